"""Reads: every status, every limit, by time and by key."""

from __future__ import annotations

from typing import Any

import pytest

from perseid.store.reading import outside
from perseid.store.results import ReadStatus
from perseid.wire.record import decode, decode_all

from .harness import START, Node, message


def filled(count: int, body_bytes: int = 10, **settings: Any) -> Node:
    """Messages one second apart, tags a and b by turns, each with a key of its own and a shared one."""
    node = Node(**settings)
    node.load()
    for number in range(count):
        tag = "ab"[number % 2]
        sent = message(body=bytes(body_bytes), TAGS=tag, KEYS=f"k{number} all")
        node.store.appends.append(sent, START + number * 1000)
    node.now = START + count * 1000
    return node


def first_file_removed(node: Node) -> Node:
    """The same after retention took the log's first file."""
    node.pass_time(20_000)
    node.disk.fill(0.88)
    while node.store.log.start == 0:
        node.pass_time(100)
    node.disk.fill(0)
    node.settle()
    return node


# ---- by offset ----


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (-1, ReadStatus.OFFSET_TOO_SMALL, 0),
        (0, ReadStatus.FOUND, 3),
        (2, ReadStatus.FOUND, 3),
        (3, ReadStatus.OFFSET_OVERFLOW_ONE, 3),
        (4, ReadStatus.OFFSET_OVERFLOW_BADLY, 3),
    ],
)
def test_statuses_by_offset(offset: int, status: ReadStatus, following: int) -> None:
    result = filled(3).store.reads.read("T", 0, offset, 32, 1 << 20)
    assert (result.status, result.next_offset) == (status, following)
    assert (result.min_offset, result.max_offset) == (0, 3)
    assert (
        result.count == len(decode_all(b"".join(result.buffers))) == max(3 - offset, 0) * (status is ReadStatus.FOUND)
    )


def test_no_queue() -> None:
    result = filled(3).store.reads.read("T", 1, 5, 32, 1 << 20)
    assert (result.status, result.next_offset, result.count) == (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0)


def test_an_empty_queue() -> None:
    node = filled(3)
    queue = node.store.queues.get("T", 0)
    assert queue is not None
    queue.cut(0)
    assert node.store.reads.read("T", 0, 0, 32, 1 << 20).status is ReadStatus.NO_MESSAGE_IN_QUEUE


@pytest.mark.parametrize(
    ("offset", "low", "high", "status", "goes_on"),
    [
        (0, 0, 0, ReadStatus.NO_MESSAGE_IN_QUEUE, 0),
        (7, 0, 0, ReadStatus.NO_MESSAGE_IN_QUEUE, 0),
        (2, 3, 9, ReadStatus.OFFSET_TOO_SMALL, 3),
        (9, 3, 9, ReadStatus.OFFSET_OVERFLOW_ONE, 9),
        (10, 3, 9, ReadStatus.OFFSET_OVERFLOW_BADLY, 9),
        (5, 5, 5, ReadStatus.OFFSET_OVERFLOW_ONE, 5),
    ],
)
def test_who_asks_for_what_a_queue_has_not_is_told_where_to_go_on(
    offset: int, low: int, high: int, status: ReadStatus, goes_on: int
) -> None:
    told = outside(offset, low, high)
    assert told is not None and (told.status, told.next_offset, told.min_offset, told.max_offset) == (
        status, goes_on, low, high,
    )  # fmt: skip
    assert told.count == 0 and outside(low, low, low + 1) is None and outside(low + 1, low, low + 2) is None


def test_only_wanted_tags_and_where_to_go_on() -> None:
    node = filled(3)
    result = node.store.reads.read("T", 0, 0, 32, 1 << 20, lambda code: code == 98)
    assert (result.status, result.next_offset, result.count) == (ReadStatus.FOUND, 3, 1)
    assert decode(result.buffers[0]).tag == "b"
    nothing = node.store.reads.read("T", 0, 0, 32, 1 << 20, lambda code: False)
    assert (nothing.status, nothing.next_offset, nothing.count) == (ReadStatus.NO_MATCHED_MESSAGE, 3, 0)


def test_one_read_ends_with_a_file_of_the_queue() -> None:
    """Five units stand in one file."""
    assert filled(12).store.reads.read("T", 0, 3, 32, 1 << 20).next_offset == 5


@pytest.mark.parametrize(
    ("settings", "asked", "count"),
    [
        ({}, (32, 1 << 20), 32),
        ({}, (7, 1 << 20), 7),
        ({}, (32, 400), 3),
        ({}, (32, 1), 1),
        ({"max_transfer_count_on_message_in_memory": 4}, (32, 1 << 20), 4),
        ({"max_transfer_bytes_on_message_in_memory": 400}, (32, 1 << 20), 3),
        ({"physical_memory_bytes": 1}, (32, 1 << 20), 8),
        ({"physical_memory_bytes": 1, "max_transfer_bytes_on_message_in_disk": 400}, (32, 1 << 20), 3),
        ({"max_filter_message_size": 20}, (5, 1 << 20), 5),
    ],
)
def test_limits_of_one_answer(settings: dict[str, Any], asked: tuple[int, int], count: int) -> None:
    node = filled(60, consume_queue_file_bytes=2000, commit_log_file_bytes=1 << 16, **settings)
    size = node.records()[10].size
    assert 100 < size < 133
    result = node.store.reads.read("T", 0, 10, *asked)
    assert (result.count, result.next_offset) == (count, 10 + count)
    assert result.total_bytes == sum(map(len, result.buffers)) == count * size
    assert result.last_physical_offset == node.records()[9 + count].physical_offset


def test_a_scan_without_a_match_ends() -> None:
    node = filled(60, consume_queue_file_bytes=2000, max_filter_message_size=200, commit_log_file_bytes=1 << 16)
    assert node.store.reads.read("T", 0, 0, 5, 1 << 20, lambda code: False).next_offset == 10
    assert node.store.reads.read("T", 0, 0, 20, 1 << 20, lambda code: False).next_offset == 20


def test_neighbours_are_one_buffer_but_not_across_files() -> None:
    node = filled(20, consume_queue_file_bytes=2000)
    result = node.store.reads.read("T", 0, 0, 32, 1 << 20)
    records = node.records()
    assert result.count == 20 and len(result.buffers) == len({r.physical_offset // 2048 for r in records})
    assert [r.queue_offset for r in decode_all(b"".join(result.buffers))] == list(range(20))


def test_records_that_the_log_has_lost() -> None:
    node = first_file_removed(filled(40, consume_queue_file_bytes=2000))
    assert node.store.log.start == 2048
    first = node.store.reads.min_offset("T", 0)
    assert first > 0
    result = node.store.reads.read("T", 0, first - 1, 32, 1 << 20)
    assert (result.status, result.next_offset) == (ReadStatus.OFFSET_TOO_SMALL, first)
    queue = node.store.queues.get("T", 0)
    assert queue is not None
    queue.min = 0  # as between the removal of a file and the correction of the queue
    result = node.store.reads.read("T", 0, 0, 1, 1 << 20)
    assert result.status is ReadStatus.FOUND and result.next_offset == first + 1
    result = node.store.reads.read("T", 0, 0, 32, 1 << 20, lambda code: False)
    assert result.status is ReadStatus.NO_MATCHED_MESSAGE
    node.store.log.end = 2048
    assert node.store.reads.read("T", 0, 0, 1, 1 << 20).status is ReadStatus.MESSAGE_WAS_REMOVING


def test_a_gap_between_files_of_the_queue() -> None:
    node = filled(12)
    queue = node.store.queues.get("T", 0)
    assert queue is not None
    queue.segments.starts.remove(0)
    result = node.store.reads.read("T", 0, 2, 32, 1 << 20)
    assert (result.status, result.next_offset) == (ReadStatus.OFFSET_FOUND_NULL, 5)


def test_offsets_that_a_stranger_names() -> None:
    node = filled(3)
    assert node.store.reads.record_at(-1) is None and node.store.reads.record_at(node.store.log.end) is None
    assert node.store.reads.record_at(1 << 62) is None and node.store.reads.record_at(1) is None
    assert (
        node.store.reads.unit("T", 0, 3) is None
        and node.store.reads.unit("T", 9, 0) is None
        and node.store.reads.unit("T", 0, -1) is None
    )
    assert node.store.reads.max_offset("none", 0) == node.store.reads.min_offset("none", 0) == 0


# ---- by time ----


@pytest.mark.parametrize(
    ("second", "lower", "upper"),
    [(-5, 0, 0), (0, 0, 0), (0.5, 1, 0), (1, 1, 1), (5, 5, 5), (5.5, 6, 5), (11, 11, 11), (12, 12, 11), (99, 12, 11)],
)
def test_search_by_time(second: float, lower: int, upper: int) -> None:
    store = filled(12).store
    time = START + int(second * 1000)
    assert store.reads.offset_by_time("T", 0, time) == lower
    assert store.reads.offset_by_time("T", 0, time, upper=True) == upper


def test_search_by_time_among_equals() -> None:
    node = Node()
    node.load()
    for stamp in (1, 5, 5, 5, 9):
        node.store.appends.append(message(), START + stamp)
    assert node.store.reads.offset_by_time("T", 0, START + 5) == 1
    assert node.store.reads.offset_by_time("T", 0, START + 5, upper=True) == 3


def test_search_by_time_where_there_is_nothing() -> None:
    node = filled(1)
    assert node.store.reads.offset_by_time("none", 0, START) == 0
    assert node.store.reads.offset_by_time("none", 0, START, upper=True) == 0


def test_search_by_time_after_files_went() -> None:
    """Before all that is left: the first unit that still has a file (5 in a file), as the original answers."""
    node = first_file_removed(filled(40))
    first = node.store.reads.min_offset("T", 0)
    assert first % 5
    assert node.store.reads.offset_by_time("T", 0, START) == first - first % 5
    assert node.store.reads.offset_by_time("T", 0, START, upper=True) == 0
    assert node.store.reads.offset_by_time("T", 0, START + first * 1000) == first


def test_store_times() -> None:
    node = filled(3)
    assert [node.store.reads.store_time("T", 0, n) for n in (-1, 0, 2, 3)] == [-1, START, START + 2000, -1]
    assert node.store.reads.store_time("none", 0, 0) == -1
    assert node.store.reads.earliest_time() == START
    empty = Node()
    empty.load()
    assert empty.store.reads.earliest_time() == -1


# ---- by key ----


def offsets(node: Node, key: str, most: int = 64, begin: int = 0, end: int = 1 << 60, **more: Any) -> list[int]:
    found = node.store.reads.query("T", key, most, begin, end, **more).records
    return [decode(view).queue_offset for view in found]


def test_query_by_key() -> None:
    node = filled(30)
    assert offsets(node, "k7") == [7]
    assert offsets(node, "none") == []
    assert offsets(node, "all") == list(range(30))
    assert offsets(node, "all", most=4) == [26, 27, 28, 29], "the newest, the oldest of them first"
    assert len(filled(30, max_msgs_num_batch=3).store.reads.query("T", "all", 64, 0, 1 << 60).records) == 3


def test_query_by_tag() -> None:
    node = filled(6)
    assert offsets(node, "a", index_type="T") == [0, 2, 4]
    assert offsets(node, "a", index_type="K") == []


def test_query_by_time() -> None:
    """The index tells seconds since its file's begin."""
    node = filled(30)
    assert offsets(node, "all", begin=START + 10_000, end=START + 12_999) == [10, 11, 12]
    assert offsets(node, "all", begin=START + 40_000) == []
    assert offsets(node, "all", end=START - 1) == []


def test_how_far_the_index_is() -> None:
    node = filled(3)
    result = node.store.reads.query("T", "k0", 9, 0, 1 << 60)
    assert (result.index_timestamp, result.index_physical_offset) == (START + 2000, node.records()[2].physical_offset)
    empty = Node()
    empty.load()
    result = empty.store.reads.query("T", "k", 9, 0, 1 << 60)
    assert (result.records, result.index_timestamp, result.index_physical_offset) == ([], 0, 0)


def test_without_an_index_nothing_is_found() -> None:
    node = filled(5, message_index_enable=False)
    assert offsets(node, "k1") == [] and node.disk.list("index") == []
