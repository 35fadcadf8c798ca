"""A batch consume queue: for each record of one topic and queue, which may hold many messages, 46 bytes (store.md §4).

    physical offset 8, size 4, tag code 8, store time 8, base 8, messages 2, compacted offset 4 (-1), reserved 4

Units are numbered from the queue's first one on, unit n at byte 46·n: `min`, `end`, `limit` and `issued` are such
numbers, so that durability, cuts and gates are those of any other queue. Readers speak of queue offsets: a unit holds
those from its base on, `messages` of them. Bases ascend; offsets may be missing between two units, never twice.

    base(n) + messages(n) ≤ base(n + 1)
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from perseid.store.consume_queue import ConsumeQueue
from perseid.store.results import ConsumeUnit

FOLDER = "batchconsumequeue"
UNIT = Struct(">qiqqqhii")
NOT_COMPACTED = -1


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

    def put_batch(self, unit: BatchUnit) -> None:
        """Append a unit; `prepare` has been called."""
        self._put_packed(UNIT.pack(*unit))

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

    def holds(self, physical_offset: int, size: int, base: int) -> bool:
        """Is there a unit of that base, of this record?"""
        unit = self.batch(self.number_of(base))
        return unit is not None and unit[:2] == (physical_offset, size) and unit.base == base

    # ---- reading ----

    def batch(self, number: int) -> BatchUnit | None:
        """What stands at a unit's place, whether or not it counts."""
        view = self.segments.view(number * self.unit_bytes, self.unit_bytes)
        return BatchUnit(*UNIT.unpack(view)) if len(view) == self.unit_bytes else None

    def batches(self, number: int, count: int) -> Iterator[BatchUnit]:
        """Up to `count` units from `number` on that readers see, of one file."""
        return map(BatchUnit._make, UNIT.iter_unpack(self.units(number, count)))

    def unit(self, offset: int) -> ConsumeUnit | None:
        """What stands for a queue offset, for readers."""
        number = self.number_of(offset)
        unit = self.batch(number) if number < self.shown else None
        return ConsumeUnit(*unit[:3]) if unit is not None and unit.base <= offset else None

    def raw(self, offset: int) -> ConsumeUnit | None:
        """What stands at the place of the unit of a number, whether or not it counts."""
        unit = self.batch(offset)
        return ConsumeUnit(*unit[:3]) if unit is not None else None
