"""Logs whose queue offsets have gaps, or come twice, as others may have written them: queues are built from them."""

from __future__ import annotations

import pytest

from perseid.store import batches, recovery
from perseid.store.batch_queue import BatchQueue
from perseid.store.consume_queue import UNIT_BYTES
from perseid.store.store import MessageStore
from perseid.wire.record import decode_all

from .harness import HOST, Node, message

LOG = f"commitlog/{0:020d}"
QUEUE_OFFSET_AT = 20


def written(offsets: list[int], topic: str = "T", units: int = 5) -> Node:
    """A folder whose log has records with these queue offsets, and whose queues are gone."""
    node = Node(
        commit_log_file_bytes=1 << 16, flush_consume_queue_thorough_interval=10_000_000,
        consume_queue_file_bytes=units * UNIT_BYTES,
    )  # fmt: skip
    node.load()
    places = []
    for number in range(len(offsets)):
        node.now += 1_000
        places.append(node.store.appends.append(message(topic, b"%d" % number), node.now).physical_offset)
    node.flush()
    node.settle()
    node.pass_time(60_000)
    node.kill()
    for place, offset in zip(places, offsets, strict=True):
        node.disk.open(LOG).write(place + QUEUE_OFFSET_AT, offset.to_bytes(8, "big"))
    node.disk.remove("consumequeue")
    node.notes.clear()
    return node


def loaded(node: Node) -> list[str]:
    """Load it; what was told. Such a log is not what a store of ours may write, so its invariants are not looked at."""
    node.effects.clear()
    node.store = MessageStore(node.disk, node.config, HOST)
    return node.store.load(node.now).notes


def read(store: MessageStore, offset: int = 0) -> tuple[list[tuple[int, bytes]], int]:
    """All that a reader gets from an offset on, with where it is told to go on at the end."""
    found: list[tuple[int, bytes]] = []
    for _ in range(1_000):
        result = store.reads.read("T", 0, offset, 32, 1 << 16)
        found += [(one.queue_offset, bytes(one.body)) for one in decode_all(b"".join(result.buffers))]
        if result.next_offset == offset:
            return found, offset
        offset = result.next_offset
    raise AssertionError("a reader gets nowhere")


@pytest.mark.parametrize("units", [5, 50])
def test_offsets_that_are_not_in_the_log_are_passed_over(units: int) -> None:
    """Those alone: a reader within the gap gets what stands behind it, in the same file of the queue too."""
    node = written([0, 1, 5, 6], units=units)
    notes = loaded(node)
    assert any("offsets 2 to 4 are not in the log" in note for note in notes)
    assert read(node.store)[0] == [(0, b"0"), (1, b"1"), (5, b"2"), (6, b"3")]
    assert read(node.store, 2) == ([(5, b"2"), (6, b"3")], 7) and read(node.store, 4)[0] == [(5, b"2"), (6, b"3")]
    assert node.store.appends.append(message(), node.now).queue_offset == 7


@pytest.mark.parametrize("gap", [1, 5, 4_000])
@pytest.mark.parametrize("before", [1, 2, 7])
def test_a_gap_hides_nothing_wherever_it_is(gap: int, before: int) -> None:
    """The first unit whose record the log has is found by halves: a half may be in a gap."""
    offsets = [*range(before), *range(before + gap, before + gap + 3)]
    node = written(offsets)
    loaded(node)
    assert node.store.reads.min_offset("T", 0) == 0
    assert [read(node.store, offset)[0][0][0] for offset in offsets] == offsets


@pytest.mark.parametrize("gap", [1, 3, 4, 40])
@pytest.mark.parametrize("topic", ["T", "%LMQ%T"])
def test_only_a_light_queues_gap_has_a_limit(topic: str, gap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those nobody checked what a client said while there were none."""
    monkeypatch.setattr(recovery, "MAX_LMQ_GAP", 3)
    node = written([0, 1, 2 + gap], topic)
    notes = loaded(node)
    assert any(f"offsets 2 to {1 + gap} are not in the log" in note for note in notes)
    left_out = topic != "T" and gap > 3
    assert node.store.reads.max_offset(topic, 0) == (2 if left_out else 3 + gap)


@pytest.mark.parametrize("again", [1, 2])
def test_an_offset_that_comes_again_is_its_first_records(again: int) -> None:
    node = written([0, 1, 2, again, 3])
    notes = loaded(node)
    assert any(f"offset {again} again at" in note and "left out" in note for note in notes)
    assert read(node.store)[0] == [(0, b"0"), (1, b"1"), (2, b"2"), (3, b"4")]
    assert node.store.appends.append(message(), node.now).queue_offset == 4


def test_a_topic_that_was_deleted_and_made_again_begins_anew() -> None:
    node = written([0, 1, 2, 0, 1])
    node.load()
    assert read(node.store)[0] == [(0, b"3"), (1, b"4")]
    assert node.store.appends.append(message(), node.now).queue_offset == 2


def test_a_queue_with_a_gap_becomes_one_of_batches_without_what_is_missing() -> None:
    node = written([0, 1, 5, 6])
    loaded(node)
    into = node.store.queues.make("T", 1, True)
    assert isinstance(into, BatchQueue)
    queue = node.store.queues.get("T", 0)
    assert queue is not None
    batches.copy(queue, into, node.store.log)
    units = [into.batch(number) for number in range(into.end)]
    assert [(one.base, one.messages) for one in units if one is not None] == [(0, 1), (1, 1), (5, 1), (6, 1)]
    assert all(one is not None and one.store_timestamp > 0 for one in units) and len(units) == 4
