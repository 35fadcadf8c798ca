"""Histories that nobody has seen keep the promise, and those that once broke it."""

import time
from pathlib import Path

import pytest

from .run import command, played

COUNTS = {"parquet": 40}
"""`make landing` plays more."""
REGRESSIONS = {
    "parquet": (53, 89, 102, 136, 193, 232, 237, 1287, 1493, 20360, 20393, 20505, 20527, 30194, 30484, 40428, 40535),
}
"""Seeds that once failed, of the archive or of the model itself."""


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


@pytest.mark.once
@pytest.mark.parametrize(("form", "seed"), [(form, seed) for form, seeds in REGRESSIONS.items() for seed in seeds])
def test_histories_that_once_failed(form: str, seed: int) -> None:
    one = played(seed, form)
    assert not one.failure, "\n".join([*one.story[-30:], one.failure, command(one)])


def test_a_seed_gives_the_same_history_each_time() -> None:
    one, other = played(7, "parquet"), played(7, "parquet")
    assert one.counts == other.counts and one.story and one.story[0] == other.story[0]
    assert played(8, "parquet").counts != one.counts


def test_a_history_takes_no_room_when_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.spark.landing.run.MEMORY", tmp_path)
    played(7, "parquet")
    assert list(tmp_path.iterdir()) == []
