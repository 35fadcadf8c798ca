"""Reading: by queue offset, by time, by key. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from perseid.base.machine import Millis
from perseid.core.layout import UNIT_BYTES
from perseid.store.commit_log import CommitLog
from perseid.store.config import StoreConfig
from perseid.store.consume_queue import PHYSICAL_OFFSET, UNIT, ConsumeQueue
from perseid.store.dispatch import key_hash
from perseid.store.index import Index
from perseid.store.results import QueryResult, ReadResult, ReadStatus, Wanted, WantedRecord
from perseid.store.segments import Part
from perseid.wire.record import BORN_HOST_AT, SYS_BORN_HOST_V6, SYS_FLAG_AT

QUERY_PASSES = 3
_TIMESTAMP = Struct(">q")


class _Gathered:
    """The records of one answer: neighbours in the log become one buffer."""

    __slots__ = ("_begin", "_end", "_log", "buffers", "count", "total")

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._begin = self._end = -1
        self.buffers: list[memoryview] = []
        self.count = 0
        self.total = 0

    def add(self, offset: int, size: int) -> bool:
        """False when the log hasn't got the record any more."""
        if offset == self._end:
            joined = self._log.view(self._begin, offset + size - self._begin)
            if joined is not None:  # None: the next one is in the next file
                self.buffers[-1] = joined
                return self._added(offset, size)
        view = self._log.view(offset, size)
        if view is None:
            return False
        self.buffers.append(view)
        self._begin = offset
        return self._added(offset, size)

    def _added(self, offset: int, size: int) -> bool:
        self._end = offset + size
        self.count += 1
        self.total += size
        return True


def outside(offset: int, low: int, high: int) -> ReadResult | None:
    """What a read comes to of an offset that a queue from `low` to `high` does not have; None: it has it."""
    if high == 0:
        return ReadResult(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, low, high, [])
    if offset < low:
        return ReadResult(ReadStatus.OFFSET_TOO_SMALL, low, low, high, [])
    if offset == high:
        return ReadResult(ReadStatus.OFFSET_OVERFLOW_ONE, offset, low, high, [])
    if offset > high:
        return ReadResult(ReadStatus.OFFSET_OVERFLOW_BADLY, high, low, high, [])
    return None


SPAN_BYTES = 1 << 20
"""The records of a read that stand closer together than this are looked for in memory all at once."""


def cold_run(log: CommitLog, units: memoryview, hot_from: int) -> list[Part]:
    """What has to be fetched of records whose units are all wanted: the usual pull, so that only the first and the last
    unit are looked at."""
    first: int = PHYSICAL_OFFSET.unpack_from(units)[0] if units else hot_from
    if first >= hot_from:
        return []
    last, size, _ = UNIT.unpack_from(units, len(units) - UNIT_BYTES)
    records = ((at, size) for at, size, _ in UNIT.iter_unpack(units) if at < hot_from and size > 0)
    return cold_records(log, first, last + size, records)


def cold_ahead(log: CommitLog, units: memoryview, hot_from: int) -> list[Part]:
    """The same of whatever stands behind the first of them."""
    first: int = PHYSICAL_OFFSET.unpack_from(units)[0] if units else hot_from
    return log.segments.cold(first, min(SPAN_BYTES, log.end - first)) if first < hot_from else []


def cold_records(log: CommitLog, first: int, end: int, records: Iterable[tuple[int, int]]) -> list[Part]:
    """Which of the records between two offsets have to be fetched: asked for together when these are close."""
    if 0 <= end - first <= SPAN_BYTES:
        return log.segments.cold(first, end - first)
    return [part for at, size in records for part in log.segments.cold(at, size)]


def scan_units(config: StoreConfig, max_messages: int) -> int:
    """So many units are looked at for one answer."""
    return max(config.max_filter_message_size, UNIT_BYTES * max_messages) // UNIT_BYTES


def window(
    log: CommitLog, config: StoreConfig, units: memoryview, max_messages: int, max_bytes: int
) -> tuple[memoryview, int, int, int] | None:
    """Where a read whose records count as in memory finds them, or the first of them: a view of the log's file from
    the first record on, its offset, and the most messages and bytes of one answer. None: they are not in memory.
    """
    first: int = PHYSICAL_OFFSET.unpack_from(units)[0]
    end = log.end
    if not end - config.in_memory_bytes <= first < end:
        return None  # units ascend: where the first one is in memory, all are
    most = min(max_messages, config.max_transfer_count_on_message_in_memory)
    most_bytes = min(max_bytes, config.max_transfer_bytes_on_message_in_memory)
    return log.segments.view(first, end - first), first, most, most_bytes


def gather_quickly(
    log: CommitLog,
    config: StoreConfig,
    queue: ConsumeQueue,
    offset: int,
    units: memoryview,
    max_messages: int,
    max_bytes: int,
    wanted: Wanted | None,
    wanted_record: WantedRecord | None = None,
) -> ReadResult | None:
    """The usual read: some record is wanted, and all are there and in memory. One window on a file of the log
    serves all of its records. None: something is otherwise; `gather` has to look.
    """
    recent = window(log, config, units, max_messages, max_bytes)
    if recent is None:
        return None
    records, first, most, most_bytes = recent
    log_end = log.end
    base = begin = end = last = first
    scanned = 0
    base_end = first + len(records)
    buffers: list[memoryview] = []
    count = total = 0
    for physical, size, tag in UNIT.iter_unpack(units):
        if count and (count >= most or total + size > most_bytes):
            break
        scanned += 1
        last = physical
        if wanted is not None and not wanted(tag):
            continue
        if wanted_record is not None:
            record = records[physical - base : physical - base + size] if physical >= base else None
            if record is None or len(record) != size:  # in a later file, as one in a thousand
                return None
            is_wanted = wanted_record(record)
            if is_wanted is None:
                scanned -= 1
                break
            if not is_wanted:
                continue
        if physical != end:
            if end != begin:
                buffers.append(records[begin - base : end - base])
            if not end < physical < log_end:
                return None
            if physical >= base_end:  # in a later file
                records, base = log.segments.view(physical, log_end - physical), physical
                base_end = physical + len(records)
            begin = physical
        end = physical + size
        total += size
        count += 1
    if count:
        buffers.append(records[begin - base : end - base])
    if sum(map(len, buffers)) != total:
        return None  # a window ended before a record did: it was removed, or is none
    status = ReadStatus.FOUND if count else ReadStatus.NO_MATCHED_MESSAGE
    return ReadResult(status, offset + scanned, queue.min, queue.shown, buffers, count, total, last)


def gather(
    log: CommitLog,
    config: StoreConfig,
    queue: ConsumeQueue,
    offset: int,
    units: memoryview,
    max_messages: int,
    max_bytes: int,
    wanted: Wanted | None,
    wanted_record: WantedRecord | None,
) -> ReadResult:
    """The records of units from that of `offset` on, wherever they are."""
    status = ReadStatus.NO_MATCHED_MESSAGE
    found = _Gathered(log)
    next_offset, last = offset, -1
    in_memory_from = log.end - config.in_memory_bytes
    for physical, size, tag in UNIT.iter_unpack(units):
        if found.count:
            in_memory = physical >= in_memory_from
            if in_memory:
                most = config.max_transfer_count_on_message_in_memory
                most_bytes = config.max_transfer_bytes_on_message_in_memory
            else:
                most = config.max_transfer_count_on_message_in_disk
                most_bytes = config.max_transfer_bytes_on_message_in_disk
            if found.count >= most or found.count >= max_messages:
                break
            if found.total + size > most_bytes or found.total + size > max_bytes:
                break
        last = physical
        next_offset += 1
        if wanted is not None and not wanted(tag):
            continue
        if wanted_record is not None:
            record = log.view(physical, size)
            is_wanted = record is None or wanted_record(record)
            if is_wanted is None:
                next_offset -= 1
                break
            if not is_wanted:
                continue
        if found.add(physical, size):
            status = ReadStatus.FOUND
        elif not found.count:
            status = ReadStatus.MESSAGE_WAS_REMOVING  # what follows may be there
    return ReadResult(status, next_offset, queue.min, queue.shown, found.buffers, found.count, found.total, last)


# ---- time ----


def record_time(log: CommitLog, physical_offset: int, size: int) -> Millis:
    """Store time of the record at an offset of the log; -1 when the log has not got it."""
    view = log.view(physical_offset, size)
    if view is None:
        return -1
    at = BORN_HOST_AT + (20 if view[SYS_FLAG_AT + 3] & SYS_BORN_HOST_V6 else 8)
    stamp: int = _TIMESTAMP.unpack_from(view, at)[0]
    return stamp


# ---- keys ----


def query(
    log: CommitLog, index: Index, topic: str, key: str, most: int, begin: Millis, end: Millis, upto: int
) -> QueryResult:
    """Records that may carry the key, stored in [begin, end], before offset `upto` of the log. Only the hash is
    compared: the asker filters."""
    found: list[memoryview] = []
    wanted_hash = key_hash(topic, key)
    until = end
    for _ in range(QUERY_PASSES):
        offsets = sorted(index.find(wanted_hash, most, begin, until))
        if not offsets:
            break
        for number, offset in enumerate(offsets):
            view = log.record_at(offset)
            if number == 0:
                until = record_time(log, offset, len(view)) if view is not None else -1
            if view is not None and offset < upto:
                found.append(view)
        if found or until < begin:
            break
    return QueryResult(found, index.end_timestamp, max(index.end_offset, 0))
