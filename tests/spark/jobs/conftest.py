"""The jobs' commands, in the tests' session."""

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

import perseid.spark
from perseid.cli.main import app


class Kept:
    """The tests' session for commands, which end theirs."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """Not this one."""


@pytest.fixture
def command(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`perseid spark …` with these words; its exit code and what it prints."""
    monkeypatch.setattr(perseid.spark, "session", lambda *_, **__: Kept(spark))
    return lambda *arguments: CliRunner().invoke(app, ["spark", *map(str, arguments)])
