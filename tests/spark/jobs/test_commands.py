"""The commands archive, replay and time-travel, on the session of the other tests."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import fill

from perseid.cli.spark.time_travel import shown
from perseid.cli.values import moment, pairs
from perseid.testing.embedded import EmbeddedBroker


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
def test_the_commands(command: Callable[..., Any], broker: EmbeddedBroker, tmp_path: Path) -> None:
    fill(broker, "commanded", 30)
    broker.create_topic("commanded-again", 2)
    table = str(tmp_path / "t")

    def run(*words: str, code: int = 0) -> list[dict[str, Any]]:
        result = command(*words, "--json")
        assert result.exit_code == code, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    server = ("--namesrv", broker.namesrv)
    *_, done = run("archive", "commanded", table, *server, "--format", "delta", "--partition-by", "day", "--compact")
    assert (done["event"], done["rows"], done["compacted"]["after"]) == ("done", 30, 1)
    *_, done = run("replay", table, "commanded-again", *server, "--rate", "100000")
    assert (done["rows"], done["done"]) == (30, done["batches"])
    at = str(1 << 42)
    *rows, done = run("time-travel", "commanded", "--as-of", at, "--table", table, *server, "--show", "2")
    assert (done["rows"], done["archived"], len(rows)) == (30, 30, 2)
    assert rows[0]["value"].startswith("body ") and rows[0]["properties"]["i"]
    assert run("archive", "other", table, *server, code=1) == []
    assert command("time-travel", "x", "--as-of", "soon").exit_code == 2


def test_times_and_pairs_as_people_write_them() -> None:
    assert moment("2026-11-20", "--as-of") == 1_795_132_800_000
    assert moment("2026-11-20T01:00:00+01:00", "--as-of") == moment("1795132800000", "--as-of") == 1_795_132_800_000
    assert moment(None, "--since") is None
    assert pairs(["a=b=c", "d=e"], "--store") == {"a": "b=c", "d": "e"}
    for text in ("a", "=b", "a="):
        with pytest.raises(Exception, match="NAME=VALUE"):
            pairs([text], "--store")
    assert shown({"a": [b"x\xff", 1, None]}) == {"a": ["x\\xff", 1, None]}
