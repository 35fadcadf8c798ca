"""What a session is told when the sources are registered; without Spark's Java."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from perseid import spark as own


def session_with(environment: dict[str, str], seen: list[dict[str, str]]) -> Any:
    fake = SparkSession.__new__(SparkSession)
    registry = SimpleNamespace(register=lambda source: seen.append(dict(environment)))
    fake.__dict__.update(_sc=SimpleNamespace(environment=environment))
    return fake, registry


def test_a_sources_environment_has_what_streams_put_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []
    environment = {"PYTHONHASHSEED": "0", own.STREAM_SETTINGS[0]: "/mine"}
    fake, registry = session_with(environment, seen)
    monkeypatch.setattr(SparkSession, "sparkContext", property(lambda self: self._sc))
    monkeypatch.setattr(SparkSession, "dataSource", property(lambda self: registry))
    monkeypatch.setattr(SparkSession, "conf", property(lambda self: SimpleNamespace(set=lambda name, value: None)))
    own.register(fake)
    assert len(seen) == 2
    for one in seen:
        assert set(own.STREAM_SETTINGS) <= one.keys()
        assert one[own.STREAM_SETTINGS[0]] == "/mine"
    assert environment == {"PYTHONHASHSEED": "0", own.STREAM_SETTINGS[0]: "/mine"}, "other functions get none of it"
