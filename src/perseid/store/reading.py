"""Reading: by queue offset, by time, by key. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from struct import Struct

from perseid.base.machine import Millis
from perseid.core.layout import EXTENDED_MAX, UNIT_BYTES
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


def read(
    log: CommitLog,
    queue: ConsumeQueue | None,
    config: StoreConfig,
    offset: int,
    max_messages: int,
    max_bytes: int,
    wanted: Wanted | None,
    wanted_record: WantedRecord | None = None,
) -> ReadResult:
    """Records of a queue from `offset` on that are wanted, within the limits of one answer."""
    if queue is None:
        return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [])
    low, high = queue.min, queue.shown
    missed = outside(offset, low, high)
    if missed is not None:
        return missed
    units = queue.units(offset, scan_units(config, max_messages))
    if not units:
        after = min((s for s in queue.segments.starts if s > offset * UNIT_BYTES), default=high * UNIT_BYTES)
        return ReadResult(ReadStatus.OFFSET_FOUND_NULL, after // UNIT_BYTES, low, high, [])
    found = _gather_quickly(log, config, queue, offset, units, max_messages, max_bytes, wanted, wanted_record)
    return found or _gather(log, config, queue, offset, units, max_messages, max_bytes, wanted, wanted_record)


SPAN_BYTES = 1 << 20
"""The records of a read that stand closer together than this are looked for in memory all at once."""


def cold(
    log: CommitLog,
    queue: ConsumeQueue,
    config: StoreConfig,
    offset: int,
    max_messages: int,
    codes: frozenset[int] | None,
    each: bool,
) -> list[Part]:
    """What a read from `offset` on would have to wait for: units first, and when they are there, records. `each`: all
    records may be looked at, so that what stands within SPAN_BYTES is asked for."""
    hot_from = log.end - config.hot_bytes
    if hot_from <= log.start or not queue.min <= offset < queue.shown:
        return []
    scan = min(scan_units(config, max_messages), queue.shown - offset)
    parts = queue.segments.cold(offset * UNIT_BYTES, scan * UNIT_BYTES)
    if parts:
        return parts
    if each:
        return _cold_ahead(log, queue.units(offset, 1), hot_from)
    most = min(max(max_messages, 1), config.max_transfer_count_on_message_in_memory)
    if codes is None:
        return _cold_run(log, queue.units(offset, most), hot_from)
    wanted = (u for u in UNIT.iter_unpack(queue.units(offset, scan)) if u[2] in codes or u[2] <= EXTENDED_MAX)
    records = [(at, size) for at, size, _ in islice(wanted, most) if at < hot_from and size > 0]
    return cold_records(log, records[0][0], sum(records[-1]), records) if records else []


def _cold_run(log: CommitLog, units: memoryview, hot_from: int) -> list[Part]:
    """The same of units that are all wanted: the usual pull, so that only the first and the last are looked at."""
    first: int = PHYSICAL_OFFSET.unpack_from(units)[0] if units else hot_from
    if first >= hot_from:
        return []
    last, size, _ = UNIT.unpack_from(units, len(units) - UNIT_BYTES)
    records = ((at, size) for at, size, _ in UNIT.iter_unpack(units) if at < hot_from and size > 0)
    return cold_records(log, first, last + size, records)


def _cold_ahead(log: CommitLog, units: memoryview, hot_from: int) -> list[Part]:
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


def _gather_quickly(
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
    serves all of its records. None: something is otherwise; `_gather` has to look.
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


def _gather(
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


def store_time(log: CommitLog, queue: ConsumeQueue | None, offset: int) -> Millis:
    """Store time of a queue's message; -1 when the queue or the log has none there."""
    unit = queue.unit(offset) if queue is not None else None
    return -1 if unit is None else record_time(log, unit.physical_offset, unit.size)


def record_time(log: CommitLog, physical_offset: int, size: int) -> Millis:
    """Store time of the record at an offset of the log; -1 when the log has not got it."""
    view = log.view(physical_offset, size)
    if view is None:
        return -1
    at = BORN_HOST_AT + (20 if view[SYS_FLAG_AT + 3] & SYS_BORN_HOST_V6 else 8)
    stamp: int = _TIMESTAMP.unpack_from(view, at)[0]
    return stamp


def offset_by_time(log: CommitLog, queue: ConsumeQueue | None, timestamp: Millis, upper: bool) -> int:
    """Lower: the first offset stored at `timestamp` or later, else the end; before all messages the first
    unit of the queue's files. Upper: the last offset stored at `timestamp` or earlier, 0 when there is none.
    """
    if queue is None or not queue.segments.starts:
        return 0
    low, high = queue.min, queue.shown
    if low >= high:
        return 0 if upper else high
    first = low
    while low < high:
        middle = (low + high) // 2
        time = store_time(log, queue, middle)  # -1, the log has lost it: counts as earlier
        if time < timestamp or (upper and time == timestamp):
            low = middle + 1
        else:
            high = middle
    if upper:
        return low - 1 if low > first else 0
    return queue.first if low == first and store_time(log, queue, first) > timestamp else low


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
