"""The timer log: one unit for each message that waits, in the order in which they were taken in.

A unit names the message's record, when it was taken in and how long it waits from then, and the unit before it in the
same slot of the wheel. Units have 52 bytes; a file ends with a blank where no further unit and blank would fit.
Behind the end are zeros.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from perseid.base.machine import Millis, Syncable
from perseid.disk.port import Disk
from perseid.store.segments import Folders, Segments, write_again

FOLDER = "timerlog"
FILE_KEY = "mappedFileSizeTimerLog"

ROLL = 2
"""The slot's time is not the message's: then it is taken in anew."""
DELETE = 4
"""The message takes another one back, of the same time."""
_DEFAULT = 1
_KNOWN_BITS = 0xF
NONE = -1
"""No unit."""

_UNIT = Struct(">iqiqiqiiq")
UNIT_BYTES = _UNIT.size
_BLANK = Struct(">iqi")
BLANK_MAGIC = -875_286_124
_MAX_WAIT_MS = (1 << 31) - 1
RESERVE_BYTES = 1 << 16
"""Blocks are asked for in such steps."""


class Unit(NamedTuple):
    """One message that waits. `previous`: where the unit before it in its slot stands; -1: it is the first."""

    size: int
    previous: int
    magic: int
    taken_at: Millis
    wait_ms: int
    physical_offset: int
    record_bytes: int
    topic_hash: int
    reserved: int

    @property
    def at_ms(self) -> Millis:
        """The time of its slot."""
        return self.taken_at + self.wait_ms

    @property
    def rolls(self) -> bool:
        return bool(self.magic & ROLL)

    @property
    def deletes(self) -> bool:
        return bool(self.magic & DELETE)


def unit_for(
    at_ms: Millis, now: Millis, previous: int, flags: int, physical_offset: int, record_bytes: int, topic_hash: int
) -> Unit:
    """A unit of the slot `at_ms`, taken in `now`."""
    if abs(at_ms - now) > _MAX_WAIT_MS:
        now = at_ms
    magic = _DEFAULT | flags
    return Unit(UNIT_BYTES, previous, magic, now, at_ms - now, physical_offset, record_bytes, topic_hash, 0)


class TimerLog:
    """The units, by their positions: 0, 52, … with the blanks between files."""

    def __init__(self, disk: Disk, folders: Folders, file_bytes: int) -> None:
        self.segments = Segments(disk, folders, FOLDER, file_bytes, sparse=True)
        self.end = 0
        """Where the next unit goes, or the blank before it."""
        self.issued = 0
        """Up to here all was handed out to be synced."""
        self._reserved = 0
        """Up to here in the last file there are blocks."""
        self._last_in_file = ((file_bytes - _BLANK.size) // UNIT_BYTES - 1) * UNIT_BYTES

    @property
    def start(self) -> int:
        """The first position that there is."""
        return self.segments.starts[0] if self.segments.starts else 0

    def load(self) -> list[int]:
        """Take in the files; the starts of those that are missing. CorruptLog for one of another size."""
        return self.segments.load(FILE_KEY)

    def unit(self, position: int) -> Unit | None:
        """The unit at a position, whoever named it; None when there is none."""
        if position < 0 or position % self.segments.file_bytes > self._last_in_file:
            return None
        view = self.segments.view(position, UNIT_BYTES)
        if len(view) < UNIT_BYTES:
            return None
        unit = Unit._make(_UNIT.unpack(view))
        return unit if unit.size == UNIT_BYTES and not unit.magic & ~_KNOWN_BITS else None

    def after(self, position: int) -> int:
        """Where the unit behind the one at `position` stands."""
        if position % self.segments.file_bytes >= self._last_in_file:
            return position - position % self.segments.file_bytes + self.segments.file_bytes
        return position + UNIT_BYTES

    def before(self, position: int) -> int:
        """Where the unit before `position` stands."""
        into = position % self.segments.file_bytes
        if into > self._last_in_file + UNIT_BYTES:
            into = self._last_in_file + UNIT_BYTES
        if into:
            return position - position % self.segments.file_bytes + into - UNIT_BYTES
        return position - self.segments.file_bytes + self._last_in_file

    def append(self, unit: Unit) -> int:
        """Its position. OSError when the disk has no room: nothing has happened, but that a next file may be there."""
        at = self.place_from(self.end)
        if at != self.end:
            self._write(self.end, _BLANK.pack(at - self.end, 0, BLANK_MAGIC)[: at - self.end])
        if at == self.segments.end or not self.segments.starts:
            self.segments.create(at)
        self._write(at, _UNIT.pack(*unit))
        self.end = at + UNIT_BYTES
        return at

    def place_from(self, position: int) -> int:
        """Where a unit goes that comes at `position` or behind it: a file that has no room for it ends with a blank."""
        size = self.segments.file_bytes
        into = position % size
        return position - into + size if into > self._last_in_file else position

    def _write(self, position: int, data: bytes) -> None:
        start = self.segments.start_of(position)
        assert start is not None, f"no file of the timer log holds {position}"
        file, end = self.segments.file(start), position + len(data)
        if not start <= self._reserved - 1 < start + self.segments.file_bytes or end > self._reserved:
            upto = min(end - start + RESERVE_BYTES, self.segments.file_bytes)
            file.reserve(position - start, upto - (position - start))
            self._reserved = start + upto
        file.write(position - start, data)

    def cut(self, end: int) -> None:
        """Let the log end at `end`."""
        self.segments.zero_from(end)
        self.end = end
        self.issued = min(self.issued, end)
        self._reserved = 0

    def write_again(self, begin: int) -> None:
        """Write what is there from `begin` on anew: an earlier life's sync of it may have failed."""
        size = self.segments.file_bytes
        for start in self.segments.starts:
            low, high = max(begin, start), min(self.end, start + size)
            if low < high:
                write_again(self.segments.file(start), low - start, high - start)

    def clear(self) -> None:
        """Take away everything."""
        self.segments.remove_from(0)
        self.end = self.issued = self._reserved = 0

    def take_dirty(self) -> list[Syncable]:
        """The files that were written since this was asked last."""
        files: list[Syncable] = [*self.segments.files_between(min(self.issued, self.end), self.end)]
        self.issued = self.end
        return files

    def remove_before(self, physical_offset: int) -> None:
        """Remove files all of whose messages are gone from the commit log, but never the one in which the log ends: the
        next one may be there without a unit, since the disk had no room for it. OSError when one can't be."""
        starts = self.segments.starts
        while len(starts) > 1 and starts[0] + self.segments.file_bytes <= self.end:
            last = self.unit(starts[0] + self._last_in_file)
            if last is None or last.physical_offset >= physical_offset:
                return
            self.segments.remove(starts[0])
