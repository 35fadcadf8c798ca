"""When what is flushed, in which order, and what a checkpoint says."""

from __future__ import annotations

from typing import Any

import pytest

from perseid.base.machine import Feed, Flush, SaveState
from perseid.store import checkpoint as checkpoints
from perseid.store.config import ASYNC_FLUSH, SYNC_FLUSH
from perseid.store.results import Flushed, PieceFlushed

from .harness import START, Node, message

ORIGINAL: dict[str, Any] = {
    "commit_log_file_bytes": 1 << 20,
    "consume_queue_file_bytes": 20_000,
    "max_hash_slot_num": 100,
    "max_index_num": 1000,
    "flush_commit_log_thorough_interval": 10_000,
    "flush_consume_queue_thorough_interval": 60_000,
    "clean_resource_first_ms": 10_000_000,
}


def loaded(**settings: Any) -> Node:
    node = Node(**(ORIGINAL | settings))
    node.load()
    return node


def paths(flush: Flush) -> list[str]:
    return [file.path for file in flush.files]


def flushed_after(node: Node, most_ms: int = 100_000) -> int:
    """How long until all of the log is durable."""
    begin = node.now
    while node.store.log.flushed < node.store.log.end:
        assert node.now < begin + most_ms
        node.pass_time(1)
    return node.now - begin


# ---- the log ----


def test_a_flush_names_the_files_and_the_folder_of_a_new_one() -> None:
    node = loaded(commit_log_file_bytes=1024)
    for _ in range(4):
        node.store.appends.append(message(body=bytes(400)), START)
    assert node.store.flusher.needs_flush
    flush = node.store.flusher.flush([Feed("mine")])
    assert paths(flush) == ["commitlog/" + "0" * 20, f"commitlog/{1024:020d}", "commitlog", ""]
    first, second = flush.then
    assert isinstance(first, Feed) and isinstance(first.event, Flushed) and second == Feed("mine")
    assert (first.event.upto, first.event.timestamp) == (node.store.log.end, START)
    assert not node.store.flusher.needs_flush and node.store.log.flushed == 0
    again = node.store.flusher.flush([])
    assert paths(again) == [] and len(again.then) == 1


def test_only_what_is_new_is_flushed() -> None:
    node = loaded(commit_log_file_bytes=1024)
    for _ in range(3):
        node.store.appends.append(message(body=bytes(400)), START)
    node.flush()
    node.settle()
    assert node.store.log.flushed == node.store.log.end
    node.store.appends.append(message(), START)
    assert paths(node.store.flusher.flush([])) == [f"commitlog/{1024:020d}"]


def test_flushed_never_goes_back() -> None:
    node = loaded()
    node.store.appends.append(message(), START)
    early = node.store.flusher.flush([])
    node.store.appends.append(message(), START)
    node.flush()
    node.settle()
    end = node.store.log.flushed
    for effect in early.then:
        assert isinstance(effect, Feed)
        node.store.handle(effect.event)
    assert node.store.log.flushed == end == node.store.log.end


@pytest.mark.parametrize(
    ("kind", "body_bytes", "wait"),
    [(ASYNC_FLUSH, 20_000, 500), (ASYNC_FLUSH, 10, 10_000), (SYNC_FLUSH, 10, 10), (SYNC_FLUSH, 20_000, 10)],
)
def test_the_rhythm_of_flushes(kind: str, body_bytes: int, wait: int) -> None:
    """Four pages within 500 ms, anything within 10 s; with SYNC_FLUSH what nobody waits for after 10 ms."""
    node = loaded(flush_disk_type=kind)
    node.store.appends.append(message(body=bytes(body_bytes)), node.now)
    assert flushed_after(node) == wait


def test_nothing_is_due_when_nothing_is_written() -> None:
    node = loaded()
    node.pass_time(100_000)
    assert node.store.next_deadline() == START + ORIGINAL["clean_resource_first_ms"]
    assert node.store.tick(node.now) == []


# ---- rounds ----


def test_a_round_flushes_queues_and_index_in_pieces() -> None:
    """40 queues: the new folders and 16 files, then 16, then the rest with the index, each after the other."""
    node = loaded()
    for number in range(40):
        node.store.appends.append(message(queue_id=number, KEYS="k"), START)
    node.flush()
    node.settle()
    pieces = []
    node.now += 60_000
    effects = node.store.tick(node.now)
    while flushes := [e for e in effects if isinstance(e, Flush) and any("commitlog" not in p for p in paths(e))]:
        (piece,) = flushes
        pieces.append(paths(piece))
        assert node.store.flusher.checkpoint.replay_from == 0
        effects = [more for e in piece.then if isinstance(e, Feed) for more in node.store.handle(e.event)]
    files = [[p for p in piece if p[-20:].isdigit() or p.startswith("index/")] for piece in pieces]
    assert [len(f) for f in files] == [16, 16, 9]
    assert {"consumequeue", "consumequeue/T", "consumequeue/T/39", "index"} <= set(pieces[0])
    assert files[2][-1].startswith("index/")
    assert node.store.flusher.checkpoint.replay_from == node.store.log.end


def test_rounds_come_early_when_much_would_be_replayed() -> None:
    node = loaded(replay_limit_bytes=5000)
    for _ in range(20):
        node.store.appends.append(message(body=bytes(300)), node.now)
    node.pass_time(1)
    assert node.store.flusher.checkpoint.replay_from == node.store.log.end


def test_a_stray_event_of_a_round_does_nothing() -> None:
    node = loaded()
    assert node.store.handle(PieceFlushed()) == []


# ---- the checkpoint ----


def test_a_checkpoint_tells_only_what_is_durable() -> None:
    node = loaded()
    node.store.appends.append(message(), START + 7)
    node.flush()
    node.store.appends.append(message(), START + 9)
    node.settle()
    node.pass_time(1_000)
    told = checkpoints.decode(node.disk.read("checkpoint"))
    assert (told.log_timestamp, told.queues_timestamp) == (START + 7, 0)
    assert (told.log_end, told.replay_from) == (node.store.reads.unit("T", 0, 1).physical_offset, 0)  # type: ignore[union-attr]
    node.pass_time(70_000)
    told = checkpoints.decode(node.disk.read("checkpoint"))
    assert (told.log_timestamp, told.queues_timestamp, told.index_timestamp) == (START + 9,) * 3
    assert told.log_end == told.replay_from == node.store.log.end


def test_a_round_ahead_of_the_log_promises_no_more_than_the_log() -> None:
    node = loaded(flush_consume_queue_thorough_interval=10)
    node.store.appends.append(message(), node.now)
    node.pass_time(1_500)
    assert node.store.log.flushed == 0
    assert checkpoints.decode(node.disk.read("checkpoint")).replay_from == 0
    node.store.validate()


def test_checkpoints_are_saved_at_most_once_a_second_and_only_when_something_changed() -> None:
    node = loaded()
    saves = []
    for _ in range(50):
        node.store.appends.append(message(), node.now)
        node.flush()
        node.settle()
        node.now += 100
        effects = node.store.tick(node.now)
        saves += [node.now - START for e in effects if isinstance(e, SaveState)]
        node.effects.extend(effects)
        node.settle()
    assert saves == [1000, 2000, 3000, 4000, 5000]


def test_a_clean_stop_leaves_all_times_at_the_last_message() -> None:
    node = loaded()
    node.store.appends.append(message(), START + 7)
    node.stop()
    told = checkpoints.decode(node.disk.read("checkpoint"))
    assert (told.log_timestamp, told.queues_timestamp, told.index_timestamp) == (START + 7,) * 3
    assert told.min_timestamp == START + 7 - 3000


# ---- the order of things, seen by a power cut ----


@pytest.mark.parametrize("piece", range(1, 4))
def test_a_flush_of_the_log_between_the_pieces_of_a_round_is_whole(piece: int) -> None:
    """The round has taken the folders; a log file made meanwhile needs its own (sim S8)."""
    for seed in range(15):
        node = Node(seed, **(ORIGINAL | {"commit_log_file_bytes": 1024}))
        node.load()
        for number in range(40):
            node.store.appends.append(message(queue_id=number), START)
        node.effects.extend(node.store.tick(START + 60_000))
        for _ in range(2 * piece):
            node.step()
        node.store.appends.append(message(body=bytes(900)), START)
        node.flush("acknowledged")
        while "acknowledged" not in node.events:
            node.step()
        node.cut_power()
        node.load()
        assert node.store.reads.max_offset("T", 0) == 2
