"""A simple consume queue: for each message of one topic and queue 20 bytes: physical offset, size, tag code.

A unit's number is its message's queue offset. A queue whose first message has a later offset than its file begins with
is filled up with blank units, which `min` leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from perseid.base.machine import Millis
from perseid.core.layout import EXTENDED_MAX, UNIT_BYTES
from perseid.store.commit_log import CommitLog
from perseid.store.config import StoreConfig
from perseid.store.consume_queue import BLANK_UNIT, UNIT, ConsumeQueue, WaitList
from perseid.store.dispatch import units_of
from perseid.store.lmq import is_lmq
from perseid.store.reading import (
    cold_ahead,
    cold_records,
    cold_run,
    gather,
    gather_quickly,
    outside,
    record_time,
    scan_units,
)
from perseid.store.results import ConsumeUnit, ReadResult, ReadStatus, Wanted, WantedRecord
from perseid.store.segments import Part
from perseid.wire.record import Record

FOLDER = "consumequeue"
BLANKS_AT_ONCE = 1_024
"""So many units are looked at for one that is not blank."""
_pack = UNIT.pack


class SimpleQueue(ConsumeQueue):
    """One queue of a topic whose records are messages; a light queue is one, too."""

    __slots__ = ()
    unit_bytes = UNIT_BYTES
    folder = FOLDER
    size_key = "mappedFileSizeConsumeQueue"
    batched = False

    # ---- queue offsets ----

    @property
    def next_offset(self) -> int:
        return self.end

    @property
    def first_offset(self) -> int:
        return self.min

    @property
    def shown_offset(self) -> int:
        return self.shown

    def is_to_come(self, offset: int) -> bool:
        return self.end == offset

    def begin_at(self, offset: int) -> None:
        if offset:
            self.restart(offset)

    def fill_up(self, offset: int) -> None:
        while self.end < offset:
            self.prepare()
            self._put(BLANK_UNIT)

    # ---- writing ----

    def put(
        self, physical_offset: int, size: int, tag_code: int, store_timestamp: Millis, base: int, messages: int
    ) -> None:
        end = self.end
        file = self._file
        assert file is not None, "put without prepare"
        file.write((end - self._file_first) * UNIT_BYTES, _pack(physical_offset, size, tag_code))
        self.end = end + 1

    def _put(self, unit: bytes) -> None:
        assert self._file is not None, "put without prepare"
        self._file.write((self.end - self._file_first) * UNIT_BYTES, unit)
        self.end += 1

    def restart(self, offset: int) -> None:
        """Forget all units and begin with `offset`: blank units stand before it in its file."""
        self.segments.remove_from(0)
        self.go_on_at(offset)
        self.min = self.issued = offset
        self.prepare()
        assert self._file is not None
        self._file.write(0, BLANK_UNIT * (offset - self._file_first))

    # ---- reading ----

    def unit(self, offset: int) -> ConsumeUnit | None:
        return self.raw(offset) if self.min <= offset < self.shown else None

    def stored(self, offset: int) -> ConsumeUnit | None:
        return self.raw(offset) if offset < self.end else None

    def units_from(self, offset: int, count: int) -> Iterable[ConsumeUnit]:
        return map(ConsumeUnit._make, UNIT.iter_unpack(self.units(offset, count)))

    def read(
        self, log: CommitLog, config: StoreConfig, offset: int, max_messages: int, max_bytes: int,
        wanted: Wanted | None, wanted_record: WantedRecord | None,
    ) -> ReadResult:  # fmt: skip
        low, high = self.min, self.shown
        missed = outside(offset, low, high)
        if missed is not None:
            return missed
        units = self.units(offset, scan_units(config, max_messages))
        if not units:
            after = min((s for s in self.segments.starts if s > offset * UNIT_BYTES), default=high * UNIT_BYTES)
            return ReadResult(ReadStatus.OFFSET_FOUND_NULL, after // UNIT_BYTES, low, high, [])
        found = gather_quickly(log, config, self, offset, units, max_messages, max_bytes, wanted, wanted_record)
        return found or gather(log, config, self, offset, units, max_messages, max_bytes, wanted, wanted_record)

    def cold(
        self, log: CommitLog, config: StoreConfig, offset: int, max_messages: int, codes: frozenset[int] | None,
        each: bool,
    ) -> list[Part]:  # fmt: skip
        hot_from = log.end - config.hot_bytes
        if hot_from <= log.start or not self.min <= offset < self.shown:
            return []
        scan = min(scan_units(config, max_messages), self.shown - offset)
        parts = self.segments.cold(offset * UNIT_BYTES, scan * UNIT_BYTES)
        if parts:
            return parts
        if each:
            return cold_ahead(log, self.units(offset, 1), hot_from)
        most = min(max(max_messages, 1), config.max_transfer_count_on_message_in_memory)
        if codes is None:
            return cold_run(log, self.units(offset, most), hot_from)
        wanted = (u for u in UNIT.iter_unpack(self.units(offset, scan)) if u[2] in codes or u[2] <= EXTENDED_MAX)
        records = [(at, size) for at, size, _ in islice(wanted, most) if at < hot_from and size > 0]
        return cold_records(log, records[0][0], sum(records[-1]), records) if records else []

    def offset_by_time(self, log: CommitLog, timestamp: Millis, upper: bool) -> int:
        """Lower: when all are earlier, the end; before all messages the first unit of the queue's files. Upper: 0 when
        there is none."""
        if not self.segments.starts:
            return 0
        low, high = self.min, self.shown
        if low >= high:
            return 0 if upper else high
        first = low
        while low < high:
            middle = (low + high) // 2
            time = self._store_time(log, middle)  # -1, the log has lost it: counts as earlier
            if time < timestamp or (upper and time == timestamp):
                low = middle + 1
            else:
                high = middle
        if upper:
            return low - 1 if low > first else 0
        return self.first if low == first and self._store_time(log, first) > timestamp else low

    def _store_time(self, log: CommitLog, offset: int) -> Millis:
        unit = self.unit(offset)
        return -1 if unit is None else record_time(log, unit.physical_offset, unit.size)

    def tell(self, first: int, end: int, waits: WaitList) -> None:
        while first < end:  # file by file
            units = self.units(first, end - first)
            if not units:
                return
            waits.units_arrived(self.topic, self.queue_id, first, units)
            first += len(units) // UNIT_BYTES

    # ---- loading ----

    def matches(self, number: int, record: Record) -> bool:
        return ((self.topic, self.queue_id), number) in units_of(record, lmq=is_lmq(self.topic))

    def rejoin(self, offset: int, physical_offset: int, is_good: Callable[[int], bool], *, whole: bool) -> str:
        if offset < self.first:
            if not whole and offset > 0:
                return "begins too late"
            self.restart(offset)
        elif offset == 0 or offset == self.first or is_good(offset - 1):
            self.go_on_at(offset)
        elif not whole:
            return f"unit {offset - 1} does not fit the log"
        else:
            self.restart(offset)
        return ""

    def _not_blank(self, number: int) -> int:
        most = 1  # at first: all but few are not
        while number < self.end:
            units = self.segments.view(number * UNIT_BYTES, min(most, self.end - number) * UNIT_BYTES)
            count, most = len(units) // UNIT_BYTES, BLANKS_AT_ONCE
            if units != BLANK_UNIT * count or not count:
                return number + next((n for n in range(count) if units[n * UNIT_BYTES :][:UNIT_BYTES] != BLANK_UNIT), 0)
            number += count
        return number
