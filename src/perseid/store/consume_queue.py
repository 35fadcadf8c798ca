"""A consume queue: for each message of one topic and queue 20 bytes: physical offset, size, tag code.

The unit of queue offset n stands at byte 20·n. Behind `end` are zeros. A queue whose first message has a
later offset than its file begins with is filled up with blank units, which `min` leaves out. Files are sparse: a
thousand topics would else take gigabytes at once. Blocks are reserved for ROOM_UNITS at a time, before the log is
written, so that a full disk refuses a message before anything of it is stored.

    min ≤ end;  units [min, end) point to records of the log in ascending order
    shown ≤ end: readers see the units before `shown`; all of them, but in a replicated store (`store.gate`)
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar

from perseid.base.machine import Buffer
from perseid.core.layout import UNIT_BYTES
from perseid.disk.port import Disk, File
from perseid.store.results import ConsumeUnit
from perseid.store.segments import Folders, Segments, written_bytes

FOLDER = "consumequeue"
ROOM_UNITS = 3_000
UNIT = Struct(">qiq")
PHYSICAL_OFFSET = Struct(">q")
BLANK_UNIT = UNIT.pack(0, 0x7FFFFFFF, 0)
BLANKS_AT_ONCE = 1_024
"""So many units are looked at for one that is not blank."""
OPEN = 1 << 62
"""The limit of a queue all of whose units readers see."""
_pack = UNIT.pack


class ConsumeQueue:
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

    unit_bytes: ClassVar[int] = UNIT_BYTES
    folder: ClassVar[str] = FOLDER
    size_key: ClassVar[str] = "mappedFileSizeConsumeQueue"

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

    @property
    def next_offset(self) -> int:
        """The queue offset of the next message; a unit is that of one message, in every queue but `batch_queue`'s."""
        return self.end

    @property
    def first_offset(self) -> int:
        """The queue offset of the first message that is still there."""
        return self.min

    @property
    def shown_offset(self) -> int:
        """Readers see the messages before this queue offset."""
        return self.shown

    # ---- writing ----

    @property
    def ready(self) -> bool:
        """Has the next unit a place, and is the queue in the books as written to?"""
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

    def put(self, physical_offset: int, size: int, tag_code: int) -> None:
        """Append a unit; `prepare` has been called."""
        self._put_packed(_pack(physical_offset, size, tag_code))

    def _put_packed(self, unit: bytes) -> None:
        end = self.end
        file = self._file
        assert file is not None, "put without prepare"
        file.write((end - self._file_first) * self.unit_bytes, unit)
        self.end = end + 1

    def go_on_at(self, offset: int) -> None:
        """Let the next unit be that of `offset`, whatever stands there and behind."""
        self.end = offset
        self.min = min(self.min, offset)
        self._file = None
        self.room = 0

    def restart(self, offset: int) -> None:
        """Forget all units and begin with `offset`: blank units stand before it in its file."""
        self.segments.remove_from(0)
        self.go_on_at(offset)
        self.min = self.issued = offset
        self.prepare()
        assert self._file is not None
        self._file.write(0, BLANK_UNIT * (offset - self._file_first))

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

    def unit(self, offset: int) -> ConsumeUnit | None:
        """What stands there for readers."""
        if not self.min <= offset < self.shown:
            return None
        return self.raw(offset)

    def raw(self, offset: int) -> ConsumeUnit | None:
        """What stands at a unit's place, whether or not it counts."""
        view = self.segments.view(offset * self.unit_bytes, self.unit_bytes)
        return ConsumeUnit(*UNIT.unpack(view)) if len(view) == self.unit_bytes else None

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
            if known < self.end and self._physical_offset(known) < log_start:
                low = known + 1
            else:
                high = middle
        self.min = self._not_blank(low)

    def _not_blank(self, offset: int) -> int:
        """The first unit from this one on that is not blank; `end` when all are."""
        most = 1  # at first: all but few are not
        while offset < self.end and self.unit_bytes == UNIT_BYTES:
            units = self.segments.view(offset * UNIT_BYTES, min(most, self.end - offset) * UNIT_BYTES)
            count, most = len(units) // UNIT_BYTES, BLANKS_AT_ONCE
            if units != BLANK_UNIT * count or not count:
                return offset + next((n for n in range(count) if units[n * UNIT_BYTES :][:UNIT_BYTES] != BLANK_UNIT), 0)
            offset += count
        return offset

    def _physical_offset(self, offset: int) -> int:
        found: int = PHYSICAL_OFFSET.unpack_from(self.segments.view(offset * self.unit_bytes, self.unit_bytes))[0]
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
