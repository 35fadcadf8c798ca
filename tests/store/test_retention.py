"""Which log files go, when, and what goes with them; and a disk that fills up."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from perseid.base.errors import ConfigError
from perseid.base.machine import Flush
from perseid.store.results import AppendRefused, PutStatus

from .harness import Node, config, message

HOUR = 3_600_000


def filled(files: int = 6, **settings: Any) -> Node:
    """One record and one hour for each file of the log, all flushed and in the checkpoint."""
    node = Node(**({"delete_commit_log_files_interval": 100, "clean_file_forcibly_enable": True} | settings))
    node.disk.now = node.now
    node.load()
    for number in range(files):
        node.store.appends.append(message(body=b"%d" % number + bytes(1800), KEYS=f"k{number}"), node.now)
        node.now += HOUR
        node.disk.now = node.now
    node.pass_time(10_000)
    return node


def starts(node: Node) -> list[int]:
    return [start // 2048 for start in node.store.log.segments.starts]


def hour_of(now: int) -> int:
    return datetime.fromtimestamp(now / 1000).hour


def test_old_files_go_in_their_hour_only() -> None:
    node = filled(file_reserved_time=3)
    assert starts(node) == [0, 1, 2, 3, 4, 5], "no hour is set"
    hour = hour_of(node.now + HOUR)
    node.stop()
    node.config = config(file_reserved_time=3, delete_when=f"{(hour + 12) % 24};{hour}")
    node.load()
    node.pass_time(HOUR)
    while hour_of(node.now) != hour:
        node.pass_time(60_000)
    node.pass_time(20_000)
    assert starts(node)[0] >= 3
    assert node.store.log.start == starts(node)[0] * 2048


def test_the_last_file_stays_however_old() -> None:
    node = filled(file_reserved_time=1)
    node.now += 500 * HOUR
    node.store.retention.delete_now(node.now)
    node.pass_time(60_000)
    assert starts(node) == [5]
    assert node.bodies()[-1][:1] == b"5"


def test_an_operator_may_ask_for_it_at_any_hour() -> None:
    node = filled(file_reserved_time=3)
    node.store.retention.delete_now(node.now)
    node.pass_time(5_000)
    assert starts(node) == [3, 4, 5]
    assert [note for note in node.notes if "hours old" in note]


def test_a_young_file_stops_the_run() -> None:
    node = filled(file_reserved_time=3)
    node.disk.open("commitlog/" + f"{2048:020d}").modified = node.now
    node.store.retention.delete_now(node.now)
    node.pass_time(60_000)
    assert starts(node)[0] == 1


def test_a_run_removes_a_batch_at_most() -> None:
    node = filled(file_reserved_time=1, delete_file_batch_max=2, clean_resource_interval=100_000)
    node.store.retention.delete_now(node.now)
    node.pass_time(50_000)
    assert starts(node) == [2, 3, 4, 5]
    node.pass_time(60_000)
    assert starts(node) == [4, 5]


def test_files_go_one_after_the_other_each_durably() -> None:
    """The next removal waits until the one before is durable: a power cut never leaves a hole."""
    node = filled(file_reserved_time=1)
    node.store.retention.delete_now(node.now)
    effects = node.store.tick(node.now)
    (flush,) = [e for e in effects if isinstance(e, Flush) and any(f.path == "commitlog" for f in e.files)]
    assert starts(node) == [1, 2, 3, 4, 5]
    for _ in range(5):
        node.now += 1_000
        assert not [e for e in node.store.tick(node.now) if isinstance(e, Flush) and e.then == flush.then]
    assert starts(node) == [1, 2, 3, 4, 5]
    node.effects.append(flush)
    node.settle()
    node.pass_time(60_000)
    assert starts(node) == [5]


def test_queues_and_index_follow_the_log() -> None:
    node = filled(12, file_reserved_time=3)
    node.store.retention.delete_now(node.now)
    node.pass_time(20_000)
    first = starts(node)[0]
    assert first == 9
    assert (node.store.reads.min_offset("T", 0), node.store.reads.max_offset("T", 0)) == (9, 12)
    assert node.disk.list("consumequeue/T/0") == [f"{100:020d}", f"{200:020d}"]
    assert [body[:2].rstrip(b"\0") for body in node.bodies()] == [b"9", b"10", b"11"]
    assert node.store.reads.query("T", "k2", 9, 0, node.now).records == []
    node.store.validate()
    for crash in (node.stop, node.kill, node.cut_power):
        crash()
        node.load()
        assert (node.store.log.start, node.store.reads.min_offset("T", 0)) == (9 * 2048, 9)
        assert node.store.appends.append(message(), node.now).queue_offset >= 12


def test_index_files_of_lost_records_go() -> None:
    node = filled(30, file_reserved_time=3, max_index_num=10)
    files = len(node.disk.list("index"))
    assert files == 4
    node.store.retention.delete_now(node.now)
    node.pass_time(30_000)
    assert len(node.disk.list("index")) < files
    assert len(node.store.reads.query("T", "k29", 9, 0, node.now).records) == 1


def test_what_a_recovery_would_read_stays() -> None:
    node = Node(file_reserved_time=0, flush_consume_queue_thorough_interval=1_000_000)
    node.load()
    for _ in range(5):
        node.store.appends.append(message(body=bytes(1800)), node.now)
    node.flush()
    node.settle()
    node.disk.fill(0.88)
    node.pass_time(60_000)
    assert starts(node) == [0, 1, 2, 3, 4], "no checkpoint says that the queues are durable"
    node.pass_time(1_000_000)
    assert starts(node) == [4]


def test_offsets_are_not_used_again_when_all_messages_of_a_queue_are_gone() -> None:
    node = filled(3, file_reserved_time=3)
    for _ in range(7):
        node.store.appends.append(message("other", body=bytes(1800)), node.now)
        node.now += HOUR
        node.disk.now = node.now
    node.pass_time(10_000)
    node.store.retention.delete_now(node.now)
    node.pass_time(20_000)
    assert (node.store.reads.min_offset("T", 0), node.store.reads.max_offset("T", 0)) == (3, 3)
    for crash in (node.stop, node.kill, node.cut_power):
        crash()
        node.load()
        assert (node.store.reads.min_offset("T", 0), node.store.reads.max_offset("T", 0)) == (3, 3)
    assert node.store.appends.append(message(), node.now).queue_offset == 3


# ---- a disk that fills up ----


@pytest.mark.parametrize(
    ("ratio", "first", "full"),
    [(0.74, 0, False), (0.76, 3, False), (0.84, 3, False), (0.86, 5, False), (0.89, 5, False), (0.91, 5, True)],
)
def test_marks(ratio: float, first: int, full: bool) -> None:
    """75 %: expired files at any hour; 85 %: the oldest, whatever their age; 90 %: no more appends."""
    node = filled(file_reserved_time=3)
    node.disk.fill(ratio)
    node.pass_time(20_000)
    assert starts(node)[0] == first
    assert node.store.appends.writable is not full
    assert node.store.retention.used_ratio == pytest.approx(ratio, abs=0.01)
    if full:
        with pytest.raises(AppendRefused, match="too full") as caught:
            node.store.appends.append(message(), node.now)
        assert caught.value.status is PutStatus.SERVICE_NOT_AVAILABLE
        node.disk.fill(0)
        node.pass_time(20_000)
        node.store.appends.append(message(), node.now)
        assert [note.rpartition(": ")[2] for note in node.notes if "full:" in note] == [
            "no more appends",
            "appends go on",
        ]


def test_young_files_stay_when_they_must_not_be_forced() -> None:
    node = filled(file_reserved_time=100, clean_file_forcibly_enable=False)
    node.disk.fill(0.95)
    node.pass_time(20_000)
    assert starts(node)[0] == 0


def test_a_removal_that_fails_is_tried_again() -> None:
    node = filled(file_reserved_time=3)
    node.disk.failing["remove"] = 1
    node.store.retention.delete_now(node.now)
    node.pass_time(500)
    assert starts(node)[0] == 0 and "can't be removed" in node.notes[-1]
    node.pass_time(20_000)
    assert starts(node)[0] == 3


def test_removals_of_queue_files_that_fail_are_told() -> None:
    node = filled(12, file_reserved_time=3)
    node.store.retention.delete_now(node.now)
    while node.store.log.segments.starts[0] < 5 * 2048:
        node.pass_time(10)
    node.disk.failing["remove"] = 2
    node.pass_time(30_000)
    assert [note for note in node.notes if "can't be removed" in note]
    assert node.store.reads.min_offset("T", 0) == 9
    assert len(node.bodies()) == 3


@pytest.mark.parametrize("text", ["4,5", "x"])
def test_hours_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="deleteWhen"):
        Node(delete_when=text)
