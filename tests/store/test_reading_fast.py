"""The quick loop of reads gives what the general one gives, or leaves the read to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.store import reading
from perseid.store.consume_queue import UNIT, ConsumeQueue
from perseid.store.results import ReadResult, ReadStatus

from .harness import START, Node, message

HUGE = 1 << 40
FILE = 2048
"""Bytes of a log file: a few records, so that reads cross from file to file."""

Wanted = Callable[[int], bool] | None
WantedRecord = Callable[[memoryview], bool] | None
record_wishes: st.SearchStrategy[WantedRecord] = st.sampled_from(
    [None, lambda record: len(record) % 2 == 0, lambda record: False]
)
wishes: st.SearchStrategy[Wanted] = st.sampled_from([None, lambda tag: tag == ord("a"), lambda tag: False])

stores = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 900)), min_size=1, max_size=40)
"""Queue and body size of each message."""
limits = st.fixed_dictionaries({
    "max_transfer_count_on_message_in_memory": st.sampled_from([1, 2, 5, 32]),
    "max_transfer_bytes_on_message_in_memory": st.sampled_from([1, 300, 2_000, 262_144]),
    "max_transfer_count_on_message_in_disk": st.sampled_from([1, 3, 8]),
    "max_transfer_bytes_on_message_in_disk": st.sampled_from([1, 1_000, 65_536]),
    "physical_memory_bytes": st.sampled_from([1, 5_000, 20_000, HUGE]),
})  # fmt: skip
numbers = st.sampled_from([-1, 0, 1, 2, 3, 7, 32, 1024])
sizes = st.sampled_from([-1, 0, 1, 250, 1_500, 6_000, 1 << 23])


def filled(messages: list[tuple[int, int]], **settings: Any) -> Node:
    node = Node(consume_queue_file_bytes=6000, **settings)
    node.load()
    for number, (queue_id, size) in enumerate(messages):
        tagged = message(body=bytes([number]) * size, queue_id=queue_id, TAGS="ab"[size % 2])
        node.store.appends.append(tagged, START + number)
    return node


def queue_of(node: Node, queue_id: int = 0) -> ConsumeQueue:
    queue = node.store.queues.get("T", queue_id)
    assert queue is not None
    return queue


def joined(found: ReadResult) -> ReadResult:
    """The same with its records in one piece."""
    return msgspec.structs.replace(found, buffers=[b"".join(found.buffers)])


def both(
    node: Node,
    queue: ConsumeQueue,
    offset: int,
    most: int,
    most_bytes: int,
    units: memoryview | None = None,
    wanted: Wanted = None,
    wanted_record: WantedRecord = None,
) -> tuple[ReadResult | None, ReadResult]:
    """What the quick loop and the general one give; compared, if the quick one gives anything."""
    taken = queue.units(offset, 800) if units is None else units
    log, config = node.store.log, node.config
    quick = reading.gather_quickly(log, config, queue, offset, taken, most, most_bytes, wanted, wanted_record)
    general = reading.gather(log, config, queue, offset, taken, most, most_bytes, wanted, wanted_record)
    if quick is not None:
        assert joined(quick) == joined(general)
    return quick, general


@given(stores, limits, numbers, sizes, wishes, record_wishes, st.data())
def test_both_loops_give_the_same(
    messages: list[tuple[int, int]],
    settings: dict[str, int],
    most: int,
    most_bytes: int,
    wanted: Wanted,
    wanted_record: WantedRecord,
    data: st.DataObject,
) -> None:
    node = filled(messages, **settings)
    log = node.store.log
    removed = data.draw(st.integers(0, len(log.segments.starts) - 1))
    for start in log.segments.starts[:removed]:
        log.segments.remove(start)
    for queue_id in {queue_id for queue_id, _ in messages}:
        queue = queue_of(node, queue_id)
        for offset in range(queue.min, queue.end):
            quick, general = both(node, queue, offset, most, most_bytes, wanted=wanted, wanted_record=wanted_record)
            unit = queue.unit(offset)
            assert unit is not None
            there = unit.physical_offset >= max(log.start, log.end - node.config.in_memory_bytes)
            if wanted is None and wanted_record is None:
                assert (quick is not None) == (there and general.count > 0)
            elif wanted_record is None and there and general.count:
                assert quick is not None


units_of_any_kind = st.lists(st.tuples(st.integers(0, 4 * FILE), st.integers(0, FILE)), min_size=1, max_size=12)


@given(units_of_any_kind, numbers, sizes, wishes, record_wishes)
def test_units_that_lie_are_left_to_the_general_loop(
    units: list[tuple[int, int]], most: int, most_bytes: int, wanted: Wanted, wanted_record: WantedRecord
) -> None:
    """Beyond the log's end, across the end of a file: whatever ascends."""
    node = filled([(0, 700)] * 6)
    packed = memoryview(b"".join(UNIT.pack(at, size, ord("ab"[size % 2])) for at, size in sorted(units)))
    both(node, queue_of(node), 0, most, most_bytes, packed, wanted, wanted_record)


def test_records_are_looked_at_in_the_quick_loop_within_one_file() -> None:
    node = filled([(0, 100 + i) for i in range(8)])
    wish = {"some": lambda record: len(record) % 2 == 0, "none": lambda record: False}
    for name, count in (("some", 4), ("none", 0)):
        quick, general = both(node, queue_of(node), 0, 20, 1 << 20, wanted_record=wish[name])
        assert quick is not None and quick.count == general.count == count


def test_a_run_is_one_buffer_and_another_file_another() -> None:
    node = filled([(0, 100)] * 20)
    starts = node.store.log.segments.starts
    quick, general = both(node, queue_of(node), 0, 20, 1 << 20)
    assert quick is not None and quick.count == 20 and len(quick.buffers) == len(starts) == 2
    assert general.total_bytes == sum(map(len, quick.buffers))


@pytest.mark.parametrize("twist", ["descending", "twice", "beyond the end", "too long", "negative"])
def test_the_quick_loop_refuses(twist: str) -> None:
    node = filled([(0, 100)] * 5)
    queue = queue_of(node)
    units = [(at, size, tag) for at, size, tag in UNIT.iter_unpack(queue.units(0, 5))]
    at, size, tag = units[2]
    units[2] = {
        "descending": (0, size, tag),
        "twice": units[1],
        "beyond the end": (node.store.log.end, size, tag),
        "too long": (at, FILE, tag),
        "negative": (-at, size, tag),
    }[twist]
    packed = memoryview(b"".join(UNIT.pack(*unit) for unit in units))
    assert reading.gather_quickly(node.store.log, node.config, queue, 0, packed, 32, 1 << 20, None) is None


def test_a_filter_is_asked_once_of_each_unit() -> None:
    node = filled([(0, 100)] * 5)
    asked: list[int] = []

    def wanted(tag: int) -> bool:
        asked.append(tag)
        return True

    plain = node.store.reads.read("T", 0, 0, 32, 1 << 20)
    filtered = node.store.reads.read("T", 0, 0, 32, 1 << 20, wanted)
    assert plain == filtered and plain.status is ReadStatus.FOUND and len(asked) == 5
