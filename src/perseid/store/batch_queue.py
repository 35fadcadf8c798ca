"""A batch consume queue: for each record of one topic and queue, which may hold many messages, 46 bytes (store.md §4).

    physical offset 8, size 4, tag code 8, store time 8, base 8, messages 2, compacted offset 4 (-1), reserved 4

Units are numbered from the queue's first one on, unit n at byte 46·n: `min`, `end`, `limit` and `issued` are such
numbers, so that durability, cuts and gates are those of any other queue. Readers speak of queue offsets: a unit holds
those from its base on, `messages` of them. Bases ascend; offsets may be missing between two units, never twice.

    base(n) + messages(n) ≤ base(n + 1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from perseid.base.machine import Buffer, Millis
from perseid.store import inner
from perseid.store.commit_log import CommitLog
from perseid.store.config import StoreConfig
from perseid.store.consume_queue import ConsumeQueue, WaitList
from perseid.store.reading import cold_records, outside
from perseid.store.results import ConsumeUnit, ReadResult, ReadStatus, Wanted, WantedRecord
from perseid.store.segments import Part
from perseid.wire.record import Record

FOLDER = "batchconsumequeue"
UNIT = Struct(">qiqqqhii")
NOT_COMPACTED = -1
_pack = UNIT.pack


class BatchUnit(NamedTuple):
    """One entry of a batch consume queue."""

    physical_offset: int
    size: int
    tag_code: int
    store_timestamp: int
    base: int
    messages: int
    compacted: int = NOT_COMPACTED
    reserved: int = 0

    @property
    def end(self) -> int:
        """The queue offset behind its messages."""
        return self.base + self.messages


class BatchQueue(ConsumeQueue):
    """One queue of a topic whose records hold batches."""

    __slots__ = ()
    unit_bytes = UNIT.size
    folder = FOLDER
    size_key = "mapperFileSizeBatchConsumeQueue"
    batched = True

    def put(
        self, physical_offset: int, size: int, tag_code: int, store_timestamp: Millis, base: int, messages: int
    ) -> None:
        assert self._file is not None, "put without prepare"
        unit = _pack(physical_offset, size, tag_code, store_timestamp, base, messages, NOT_COMPACTED, 0)
        self._file.write((self.end - self._file_first) * UNIT.size, unit)
        self.end += 1

    # ---- queue offsets ----

    @property
    def next_offset(self) -> int:
        return self._offset_at(self.end)

    @property
    def first_offset(self) -> int:
        return self._offset_at(self.min)

    @property
    def shown_offset(self) -> int:
        return self._offset_at(self.shown)

    def _offset_at(self, number: int) -> int:
        """The base of a unit; where the last one's messages end for the number behind it; 0 for an empty queue."""
        unit = self.batch(number) if self.min <= number < self.end else None
        if unit is not None:
            return unit.base
        last = self.batch(number - 1) if number > self.first else None
        return last.end if last is not None else 0

    def number_of(self, offset: int) -> int:
        """The unit that holds a queue offset, or the first one behind it; `end` when there is none."""
        low, high = self.min, self.end
        while low < high:
            middle = (low + high) // 2
            unit = self.batch(middle)
            if unit is not None and unit.end <= offset:
                low = middle + 1
            else:
                high = middle
        return low

    def is_to_come(self, offset: int) -> bool:
        return self.next_offset <= offset

    def begin_at(self, offset: int) -> None:
        """Any offset may come first."""

    def fill_up(self, offset: int) -> None:
        """Offsets may be missing between two units."""

    # ---- reading ----

    def batch(self, number: int) -> BatchUnit | None:
        """The unit at an offset, whether or not it counts."""
        view = self.segments.view(number * self.unit_bytes, self.unit_bytes)
        return BatchUnit(*UNIT.unpack(view)) if len(view) == self.unit_bytes else None

    def batches(self, number: int, count: int) -> Iterator[BatchUnit]:
        """Up to `count` units from `number` on that readers see, of one file."""
        return map(BatchUnit._make, UNIT.iter_unpack(self.units(number, count)))

    def unit(self, offset: int) -> ConsumeUnit | None:
        number = self.number_of(offset)
        unit = self.batch(number) if number < self.shown else None
        return ConsumeUnit(*unit[:3]) if unit is not None and unit.base <= offset else None

    def stored(self, offset: int) -> ConsumeUnit | None:
        number = self.number_of(offset)
        unit = self.batch(number) if number < self.end else None
        return ConsumeUnit(*unit[:3]) if unit is not None and unit.base == offset else None

    def units_from(self, offset: int, count: int) -> Iterable[ConsumeUnit]:
        return (ConsumeUnit(*unit[:3]) for unit in self.batches(self.number_of(offset), count))

    def tell(self, first: int, end: int, waits: WaitList) -> None:
        for unit in self.batches(first, end - first):
            waits.arrived(self.topic, self.queue_id, unit.end - 1, unit.tag_code)

    def read(
        self, log: CommitLog, config: StoreConfig, offset: int, max_messages: int, max_bytes: int,
        wanted: Wanted | None, wanted_record: WantedRecord | None,
    ) -> ReadResult:  # fmt: skip
        """The first record may begin before `offset`, and is whole, whatever its messages are; `count` are messages."""
        low, high = self.first_offset, self.shown_offset
        missed = outside(offset, low, high)
        if missed is not None:
            return missed
        status, next_offset, count, total, last = ReadStatus.NO_MATCHED_MESSAGE, offset, 0, 0, -1
        buffers: list[Buffer] = []
        scan = _scan_units(config, max_messages)
        for unit in self.batches(self.number_of(offset), scan):
            if unit.base - offset >= scan:
                break
            if count and _is_full(log, config, unit, count, total, max_messages, max_bytes):
                break
            at, last, next_offset = next_offset, unit.physical_offset, unit.end
            if wanted is not None and not wanted(unit.tag_code):
                continue
            record = log.view(unit.physical_offset, unit.size)
            is_wanted = record is None or wanted_record is None or wanted_record(record)
            if is_wanted is None:
                next_offset = at
                break
            if record is None:
                status = status if count else ReadStatus.MESSAGE_WAS_REMOVING
            elif is_wanted:
                buffers.append(record)
                count, total, status = count + unit.messages, total + unit.size, ReadStatus.FOUND
        return ReadResult(status, next_offset, low, high, buffers, count, total, last)

    def cold(
        self, log: CommitLog, config: StoreConfig, offset: int, max_messages: int, codes: frozenset[int] | None,
        each: bool,
    ) -> list[Part]:  # fmt: skip
        hot_from = log.end - config.hot_bytes
        if hot_from <= log.start or not self.first_offset <= offset < self.shown_offset:
            return []
        number, most = self.number_of(offset), max(1, min(max_messages, config.max_transfer_count_on_message_in_memory))
        parts = self.segments.cold(number * self.unit_bytes, min(most, self.shown - number) * self.unit_bytes)
        if parts:
            return parts
        units = self.batches(number, most)
        records = [(one.physical_offset, one.size) for one in units if one.physical_offset < hot_from and one.size > 0]
        return cold_records(log, records[0][0], sum(records[-1]), records) if records else []

    def offset_by_time(self, log: CommitLog, timestamp: Millis, upper: bool) -> int:
        """The base of such a record. Lower: of the last one when all are older, as in the original. Upper: else of the
        first one there is."""
        low, high = self.min, self.shown
        first, end = low, high
        while low < high:
            middle = (low + high) // 2
            unit = self.batch(middle)
            time = unit.store_timestamp if unit is not None else -1
            if time < timestamp or (upper and time == timestamp):
                low = middle + 1
            else:
                high = middle
        found = self.batch(max(first, min(low - 1 if upper else low, end - 1))) if first < end else None
        return found.base if found is not None else self.shown_offset

    # ---- loading ----

    def matches(self, number: int, record: Record) -> bool:
        unit = self.batch(number)
        same = (record.topic, record.queue_id) == (self.topic, self.queue_id)
        return same and unit is not None and unit == unit_of(record, unit.tag_code)

    def rejoin(self, offset: int, physical_offset: int, is_good: Callable[[int], bool], *, whole: bool) -> str:
        end = self.last_written()
        while end > self.first and not (self._is_before(end - 1, offset, physical_offset) and is_good(end - 1)):
            end -= 1
        if end == self.first and offset > 0 and not whole:
            return f"nothing before offset {offset} fits the log"
        self.go_on_at(end)
        return ""

    def _is_before(self, number: int, offset: int, physical_offset: int) -> bool:
        """Does a unit stand before that of another record?"""
        unit = self.batch(number)
        if unit is None or unit.messages <= 0:
            return False
        return unit.end <= offset and 0 <= unit.physical_offset < physical_offset


def unit_of(record: Record, tag_code: int) -> BatchUnit:
    """The unit of a record in a batch consume queue."""
    base, count = inner.span(record) or (record.queue_offset, 1)
    return BatchUnit(record.physical_offset, record.size, tag_code, record.store_timestamp, base, count)


def _scan_units(config: StoreConfig, max_messages: int) -> int:
    """So many units, and so many messages, are looked at for one answer."""
    return -(-max(config.max_filter_message_size, UNIT.size * max_messages) // UNIT.size)


def _is_full(
    log: CommitLog, config: StoreConfig, unit: BatchUnit, count: int, total: int, max_messages: int, max_bytes: int
) -> bool:
    """Has the answer no room for another record?"""
    if unit.physical_offset >= log.end - config.in_memory_bytes:
        most = config.max_transfer_count_on_message_in_memory
        most_bytes = config.max_transfer_bytes_on_message_in_memory
    else:
        most = config.max_transfer_count_on_message_in_disk
        most_bytes = config.max_transfer_bytes_on_message_in_disk
    return count + unit.messages > max_messages or count >= most or total + unit.size > min(max_bytes, most_bytes)
