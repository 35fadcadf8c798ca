"""What consume queues of all kinds have in common: units of one size, one for each record of a topic and queue.

Unit n stands at byte n·`unit_bytes`, and begins with the record's physical offset and size. Behind `end` are zeros.
Files are sparse: a thousand topics would else take gigabytes at once. Blocks are reserved for ROOM_UNITS at a time,
before the log is written, so that a full disk refuses a message before anything of it is stored.

How many messages a unit stands for is a matter of its kind: one (`simple_queue`), or a batch (`batch_queue`). Numbers
of units are `min`, `end`, `limit` and `issued`; a *queue offset* is a message's. Who stores, reads, recovers, or cuts
a queue asks it, and not what kind it is of.

    min ≤ end;  units [min, end) point to records of the log in ascending order
    shown ≤ end: readers see the units before `shown`; all of them, but in a replicated store (`store.gate`)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from struct import Struct
from typing import ClassVar, Protocol

from perseid.base.machine import Buffer, Millis
from perseid.core.layout import UNIT_BYTES
from perseid.disk.port import Disk, File
from perseid.store.commit_log import CommitLog
from perseid.store.config import StoreConfig
from perseid.store.results import ConsumeUnit, ReadResult, Wanted, WantedRecord
from perseid.store.segments import Folders, Part, Segments, written_bytes
from perseid.wire.record import Record

ROOM_UNITS = 3_000
UNIT = Struct(">qiq")
"""What a unit of each kind begins with."""
PHYSICAL_OFFSET = Struct(">q")
BLANK_UNIT = UNIT.pack(0, 0x7FFFFFFF, 0)
OPEN = 1 << 62
"""The limit of a queue all of whose units readers see."""


class WaitList(Protocol):
    """Requests that wait for messages."""

    def arrived(self, topic: str, queue_id: int, queue_offset: int, tag_code: int) -> None:
        """A message came to a queue, or several in one record, of which this is the last."""

    def units_arrived(self, topic: str, queue_id: int, first: int, units: Buffer) -> None:
        """Messages came to a queue, given as packed units from offset `first` on."""


class ConsumeQueue(ABC):
    """One queue of one topic."""

    __slots__ = (
        "_file",
        "_file_first",
        "_unit_count",
        "dirty",
        "end",
        "issued",
        "limit",
        "min",
        "queue_id",
        "room",
        "segments",
        "topic",
    )

    unit_bytes: ClassVar[int]
    folder: ClassVar[str]
    """Where all queues of this kind are."""
    size_key: ClassVar[str]
    """The setting that says how large a file is."""
    batched: ClassVar[bool]
    """A unit may stand for several messages, and offsets may be missing between two of them."""

    def __init__(self, disk: Disk, folders: Folders, topic: str, queue_id: int, file_bytes: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._unit_count = -(-file_bytes // self.unit_bytes)
        file_bytes = self._unit_count * self.unit_bytes
        self.segments = Segments(disk, folders, f"{self.folder}/{topic}/{queue_id}", file_bytes, sparse=True)
        self.min = 0
        self.end = 0
        self.limit = OPEN
        """Readers see no unit from there on."""
        self.issued = 0
        """Units before it are durable, or in a Flush that runs."""
        self.dirty = False
        """Some unit is not issued."""
        self._file: File | None = None
        self._file_first = 0
        self.room = 0
        """The first offset for which no place in the file of the next unit is reserved."""

    @property
    def shown(self) -> int:
        """Readers see the units before this one."""
        return self.end if self.end < self.limit else self.limit

    # ---- queue offsets ----

    @property
    @abstractmethod
    def next_offset(self) -> int:
        """The queue offset of the next message."""

    @property
    @abstractmethod
    def first_offset(self) -> int:
        """The queue offset of the first message that is still there."""

    @property
    @abstractmethod
    def shown_offset(self) -> int:
        """Readers see the messages before this queue offset."""

    @abstractmethod
    def is_to_come(self, offset: int) -> bool:
        """Has the record whose first message has this queue offset no unit yet, and may it be the next one?"""

    @abstractmethod
    def begin_at(self, offset: int) -> None:
        """The first message of this queue, which is new, will have this offset. OSError from the disk."""

    @abstractmethod
    def fill_up(self, offset: int) -> None:
        """Let the next message be that of this offset, where those before it never come. OSError from the disk."""

    # ---- writing ----

    @property
    def ready(self) -> bool:
        """Has the next unit a place, and does the store know that the queue is written to?"""
        return self.dirty and self.end < self.room

    def prepare(self) -> None:
        """See to it that the next unit has a place; OSError when it can't be had."""
        if self.end < self.room:
            return
        segments, self.room = self.segments, 0
        at = self.end * self.unit_bytes
        if segments.start_of(at) is None:
            if segments.starts:
                segments.create(segments.end)
            else:
                segments.create(at - at % segments.file_bytes)
        start = segments.start_of(at)
        assert start is not None, f"{segments.folder}: no file for unit {self.end}"
        self._file = segments.file(start)
        self._file_first = start // self.unit_bytes
        self.room = self._reserve(self._file, self._file_first, self.end)

    def _reserve(self, file: File, first: int, offset: int) -> int:
        """Reserve blocks for some units of a file, from that of `offset` on; the offset up to which they are."""
        begin = offset - first
        end = min(self._unit_count, begin - begin % ROOM_UNITS + ROOM_UNITS)
        file.reserve(begin * self.unit_bytes, (end - begin) * self.unit_bytes)
        return first + end

    def reserve(self, count: int) -> None:
        """See to it that the next `count` units have places; OSError when they can't be had."""
        segments, offset, end = self.segments, self.end, self.end + count
        while end * self.unit_bytes > segments.end:
            segments.create(segments.end)
        while offset < end:
            start = segments.start_of(offset * self.unit_bytes)
            assert start is not None, f"{segments.folder}: no file for unit {offset}"
            offset = self._reserve(segments.file(start), start // self.unit_bytes, offset)

    def put_many(self, units: Buffer) -> None:
        """Append packed units that all have a place in the file of the next one; `prepare` has been called."""
        file, begin = self._file, self.end
        end = begin + len(units) // self.unit_bytes
        assert file is not None and end <= self.room, "put_many without prepare"
        file.write((begin - self._file_first) * self.unit_bytes, units)
        self.end = end

    @abstractmethod
    def put(
        self, physical_offset: int, size: int, tag_code: int, store_timestamp: Millis, base: int, messages: int
    ) -> None:
        """Append the unit of a record that holds so many messages, the first one with queue offset `base`; `prepare`
        has been called."""

    def go_on_at(self, offset: int) -> None:
        """Let the next unit be that of `offset`, whatever stands there and behind."""
        self.end = offset
        self.min = min(self.min, offset)
        self._file = None
        self.room = 0

    def cut(self, end: int) -> int:
        """Take away the units from `end` on, with all that stands behind; returns its bytes."""
        changed = self.segments.zero_from(end * self.unit_bytes)
        self.go_on_at(end)
        self.issued = min(self.issued, end)
        return changed

    # ---- reading ----

    def units(self, offset: int, count: int) -> memoryview:
        """Up to `count` units from `offset` on that readers see, of one file; empty when no file holds it."""
        return self.segments.view(offset * self.unit_bytes, max(0, min(count, self.shown - offset)) * self.unit_bytes)

    def raw(self, number: int) -> ConsumeUnit | None:
        """The unit at an offset, whether or not it counts."""
        view = self.segments.view(number * self.unit_bytes, self.unit_bytes)
        return ConsumeUnit(*UNIT.unpack_from(view)) if len(view) == self.unit_bytes else None

    @abstractmethod
    def unit(self, offset: int) -> ConsumeUnit | None:
        """What stands for a queue offset, for readers."""

    @abstractmethod
    def stored(self, offset: int) -> ConsumeUnit | None:
        """The unit of the record whose first message has this queue offset, whether or not readers see it."""

    @abstractmethod
    def units_from(self, offset: int, count: int) -> Iterable[ConsumeUnit]:
        """Up to `count` units that readers see, of one file, from that of a queue offset on."""

    @abstractmethod
    def read(
        self, log: CommitLog, config: StoreConfig, offset: int, max_messages: int, max_bytes: int,
        wanted: Wanted | None, wanted_record: WantedRecord | None,
    ) -> ReadResult:  # fmt: skip
        """The records of the messages from `offset` on that are wanted, within the limits of one answer."""

    @abstractmethod
    def cold(
        self, log: CommitLog, config: StoreConfig, offset: int, max_messages: int, codes: frozenset[int] | None,
        each: bool,
    ) -> list[Part]:  # fmt: skip
        """What a read from `offset` on would have to wait for: units first, and when they are there, records. `each`:
        all records may be looked at, so that what stands within SPAN_BYTES is asked for."""

    @abstractmethod
    def offset_by_time(self, log: CommitLog, timestamp: Millis, upper: bool) -> int:
        """The offset of the first message stored at `timestamp` or later; `upper`: of the last one at it or earlier."""

    @abstractmethod
    def tell(self, first: int, end: int, waits: WaitList) -> None:
        """Tell of the messages of these units."""

    # ---- loading ----

    def load(self, log_start: int) -> list[int]:
        """Take in the files; returns the starts of those that are missing between others. What is left of
        files whose records the log has lost does not count: it goes."""
        segments = self.segments
        missing = segments.load(self.size_key)
        for hole in reversed(missing):
            before = max(start for start in segments.starts if start < hole)
            last_bytes = segments.file(before).view(segments.file_bytes - self.unit_bytes, UNIT_BYTES)
            last = ConsumeUnit(*UNIT.unpack(last_bytes))  # a unit of messages begins like that of one
            if last.size > 0 and 0 <= last.physical_offset < log_start:
                while segments.starts[0] < hole:
                    segments.remove(segments.starts[0])
                missing = [start for start in missing if start > hole]
                break
        if missing:
            segments.remove_from(missing[0])
        return missing

    @property
    def first(self) -> int:
        """The first unit that has a file."""
        return self.segments.starts[0] // self.unit_bytes if self.segments.starts else self.end

    @abstractmethod
    def matches(self, number: int, record: Record) -> bool:
        """Is this the unit of the record that it points to?"""

    @abstractmethod
    def rejoin(self, offset: int, physical_offset: int, is_good: Callable[[int], bool], *, whole: bool) -> str:
        """Let the next unit be that of a record whose first message has this queue offset, the first one of this queue
        that a recovery reads; returns why it can't be, "" when it is so. `is_good`: does the unit of a number fit the
        log? `whole`: nothing before that record can be missing."""

    def find_end(self) -> int:
        """The end of a queue without holes: the first unit of no size. Files may have been made ahead of it."""
        low, high = self.first, self.segments.end // self.unit_bytes
        while low < high:
            middle = (low + high) // 2
            unit = self.raw(middle)
            if unit is not None and unit.size > 0:
                low = middle + 1
            else:
                high = middle
        return low

    def last_written(self) -> int:
        """One past the last unit with a byte that is not zero."""
        for start in reversed(self.segments.starts):
            used = written_bytes(self.segments.file(start))
            if used:
                return start // self.unit_bytes + -(-used // self.unit_bytes)
        return self.first

    def correct_min(self, log_start: int) -> None:
        """Let `min` be the first unit whose record the log still has; `end` when there is none. Blank units, at the
        beginning or in a gap, count as the next one that is none."""
        low, high = self.first, self.end
        while low < high:
            middle = (low + high) // 2
            known = self._not_blank(middle)
            if known < self.end and self.physical_offset(known) < log_start:
                low = known + 1
            else:
                high = middle
        self.min = self._not_blank(low)

    def _not_blank(self, number: int) -> int:
        """The first unit from this one on that is not blank; `end` when all are."""
        return number

    def physical_offset(self, number: int) -> int:
        """That of the record of a unit that is there."""
        found: int = PHYSICAL_OFFSET.unpack_from(self.segments.view(number * self.unit_bytes, self.unit_bytes))[0]
        return found

    def remove_before(self, log_start: int, durable: int) -> None:
        """Remove the files whose last unit's record the log has lost, but never the last file, nor the one before
        that of the next unit: a file may have been made ahead for a message that then found no room in the log.
        `durable`: units of records before it are durable. A file stays until the next one has such a unit: a power
        cut may take all others, and nothing would know the queue's next offset."""
        segments = self.segments
        while len(segments.starts) > 1:
            after = segments.starts[1] // self.unit_bytes
            last, following = self.raw(after - 1), self.raw(after)
            assert last is not None and following is not None
            if after >= self.end or last.physical_offset >= log_start or following.physical_offset >= durable:
                return
            segments.remove(segments.starts[0])
