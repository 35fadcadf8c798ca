"""Histories that nobody has seen keep the promise."""

import time
from pathlib import Path

import pytest

from .run import command, played

COUNTS = {"parquet": 40, "delta": 6, "iceberg": 4}
"""`make landing` plays more."""


@pytest.mark.once
@pytest.mark.timeout(300)
@pytest.mark.parametrize("form", COUNTS)
def test_fresh_histories_keep_the_promise(form: str) -> None:
    first = time.time_ns() // 1_000_000 % 1_000_000_000
    print(f"{form}: histories {first} to {first + COUNTS[form] - 1}")
    for seed in range(first, first + COUNTS[form]):
        one = played(seed, form)
        assert not one.failure, "\n".join([*one.story[-30:], one.failure, command(one)])
        assert one.counts["run done"] >= 2, "the last runs of each history come to their end"


def test_a_seed_gives_the_same_history_each_time() -> None:
    one, other = played(7, "parquet"), played(7, "parquet")
    assert one.counts == other.counts and one.story and one.story[0] == other.story[0]
    assert played(8, "parquet").counts != one.counts


def test_a_history_takes_no_room_when_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.spark.landing.run.MEMORY", tmp_path)
    played(7, "parquet")
    assert list(tmp_path.iterdir()) == []
