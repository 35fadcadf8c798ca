"""The checkpoint file: the original's five numbers, and the exact offsets behind them."""

from __future__ import annotations

import pytest

from perseid.store.checkpoint import Checkpoint, decode, encode

FULL = Checkpoint(7_000, 5_000, 6_000, 4, 5, log_end=900, replay_from=800, last_record=700, index_end=600)


def test_round_trip() -> None:
    assert len(encode(FULL)) == 4096
    assert decode(encode(FULL)) == FULL
    assert decode(encode(Checkpoint(1, 2, 3))) == Checkpoint(1, 2, 3)


def test_the_first_forty_bytes_are_the_originals() -> None:
    assert encode(FULL)[:40] == b"".join(n.to_bytes(8, "big") for n in (7_000, 5_000, 6_000, 4, 5))


@pytest.mark.parametrize("at", [0, 7, 15, 39, 40, 47, 50, 60, 70, 79, 80, 83])
def test_offsets_do_not_outlive_a_change(at: int) -> None:
    """Java writes the first numbers only; and a torn page tears the checksum."""
    data = bytearray(encode(FULL))
    data[at] ^= 1
    read = decode(bytes(data))
    assert (read.log_end, read.replay_from, read.last_record, read.index_end) == (-1, -1, -1, -1)


@pytest.mark.parametrize("data", [None, b"", bytes(39), bytes(40), bytes(4096), b"\xff" * 4096])
def test_files_that_say_nothing(data: bytes | None) -> None:
    assert decode(data).log_end == -1
    assert decode(data).min_timestamp == 0


def test_offsets_that_cannot_be() -> None:
    assert decode(encode(Checkpoint(log_end=5, replay_from=6))).log_end == -1
    assert decode(encode(Checkpoint(log_end=5, replay_from=-2))).log_end == -1


@pytest.mark.parametrize(("log", "queues", "oldest"), [(9_000, 5_000, 2_000), (5_000, 9_000, 2_000), (9_000, 10, 0)])
def test_three_seconds_are_given(log: int, queues: int, oldest: int) -> None:
    assert Checkpoint(log, queues).min_timestamp == oldest
