"""The files of one compacted queue: pairs of a log of records and a queue of units, in the original's form.

    <folder of logs>/<base>     records as in the commit log, but that each says its place in here; behind the last one
                                of a full file a blank: what is left, and the blank's magic
    <folder of units>/<base>    46 bytes a record (`batch_queue`); behind the last one of a full file a unit of place -1

Both of a pair have the base of the log for a name. Pairs follow each other, but where compaction left fewer than there
were. Offsets ascend, and most are missing. Only the last pair is written to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from perseid.base.errors import CorruptLog
from perseid.base.machine import Syncable
from perseid.disk.port import Disk, File
from perseid.store.batch_queue import UNIT, BatchUnit
from perseid.store.segments import NAME_DIGITS, Folders, zero
from perseid.wire.record import BLANK_BYTES, MIN_RECORD_BYTES, PHYSICAL_OFFSET_AT, Record, RecordError, blank, decode

UNIT_BYTES = UNIT.size
END_UNIT = UNIT.pack(-1, 0, 0, 0, 0, 0, -1, 0)
LOGS, UNITS = "compaction/compactionLog", "compaction/compactionCq"
LEAST_FACTOR = 5
_PLACE = Struct(">q")


def sizes(log_bytes: int, units_bytes: int) -> tuple[int, int]:
    """The sizes of both files of a pair, by the original's rule: whole units, and of logs a multiple of that."""
    units_bytes -= units_bytes % UNIT_BYTES
    count, rest = divmod(log_bytes, units_bytes)
    if count < LEAST_FACTOR:
        return units_bytes * LEAST_FACTOR, units_bytes
    return (count if 0 < rest < units_bytes >> 1 else count + 1) * units_bytes, units_bytes


@dataclass(slots=True)
class Part:
    """One pair of files."""

    base: int
    log: File
    units: File
    count: int = 0
    """Units in use."""
    end: int = 0
    """Of the log's file: where the next record goes."""
    full: bool = False

    def unit(self, number: int) -> BatchUnit:
        return BatchUnit(*UNIT.unpack(self.units.view(number * UNIT_BYTES, UNIT_BYTES)))

    @property
    def first(self) -> int:
        """The queue offset of its first message."""
        return self.unit(0).base

    @property
    def last(self) -> int:
        """The queue offset of its last message; -1: it has none."""
        return self.unit(self.count - 1).base if self.count else -1

    def record(self, unit: BatchUnit) -> memoryview:
        return self.log.view(unit.physical_offset - self.base, unit.size)

    def find(self, offset: int) -> int:
        """The number of the first unit of a queue offset or a later one."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self.unit(middle).base < offset:
                low = middle + 1
            else:
                high = middle
        return low


class Parts:
    """All pairs of one queue, or of a compaction of it in a folder below."""

    def __init__(
        self, disk: Disk, folders: Folders, topic: str, queue_id: int, file_bytes: tuple[int, int], below: str = ""
    ) -> None:
        self._disk = disk
        self._folders = folders
        self._log_bytes, self._units_bytes = file_bytes
        self.logs = f"{LOGS}/{topic}/{queue_id}{below}"
        self.units = f"{UNITS}/{topic}/{queue_id}{below}"
        self.all: list[Part] = []
        self.dirty: dict[int, Part] = {}
        """By base: what was written since it was last handed out to be synced."""

    @property
    def end(self) -> int:
        """The queue offset behind the last message; 0: there is none."""
        return next((part.last + 1 for part in reversed(self.all) if part.count), 0)

    @property
    def begin(self) -> int:
        """The queue offset of the first message; -1: there is none."""
        return next((part.first for part in self.all if part.count), -1)

    # ---- loading ----

    def names(self, folder: str) -> list[int]:
        """The bases of the files in a folder."""
        names = [n for n in self._disk.list(folder) if len(n) == NAME_DIGITS and n.isascii() and n.isdigit()]
        for name in [n for n in names if not self._disk.size(f"{folder}/{n}")]:  # what a crash left of a create
            self._disk.remove(f"{folder}/{name}")
            names.remove(name)
        return [int(name) for name in names]

    def load(self, *, crashed: bool = False) -> str:
        """Take in all pairs; what was left out, "" for nothing. CorruptLog when one is not whole; after a crash it is
        left out instead, with what follows: it was never durable."""
        self.all.clear()
        note = ""
        logs, units = self.names(self.logs), self.names(self.units)
        for base in sorted({*logs, *units}):
            missing = self.units if base not in units else self.logs if base not in logs else ""
            path = f"{missing}/{base:0{NAME_DIGITS}d}"
            if missing and not crashed and base < max([*logs, *units]):
                raise CorruptLog(path, 0, "the file is missing, the other of its pair is there")
            if missing or note:  # what a crash left of new pairs
                note = note or f"{path}: the file is missing; its pair and all behind it are taken from the log again"
                for folder in (self.logs, self.units):
                    self._disk.remove(f"{folder}/{base:0{NAME_DIGITS}d}")
                    self._folders.touch(folder)
            else:
                self.all.append(self._open(base))
        for folder in (self.logs, self.units) if self.all else ():
            self._folders.known(folder)
        for part in self.all:
            self._find_end(part)
        return note

    def _open(self, base: int) -> Part:
        files = []
        sized = ((self.logs, self._log_bytes, "compactionMappedFileSize"),
                 (self.units, self._units_bytes, "compactionCqMappedFileSize"))  # fmt: skip
        for folder, size, key in sized:
            path = f"{folder}/{base:0{NAME_DIGITS}d}"
            file = self._disk.open(path, size, sparse=True)
            if file.size != size:
                why = f"the file has {file.size} bytes, {size} by {key}: correct the one or the other"
                raise CorruptLog(path, min(file.size, size), why)
            files.append(file)
        return Part(base, files[0], files[1])

    def _find_end(self, part: Part) -> None:
        low, high = 0, self._units_bytes // UNIT_BYTES
        while low < high:
            middle = (low + high) // 2
            unit = part.unit(middle)
            if unit.physical_offset >= 0 and unit.size > 0 and unit.base >= 0 and unit.messages > 0:
                low = middle + 1
            else:
                high = middle
        part.count = low
        last = part.unit(low - 1) if low else None
        part.end = last.physical_offset + last.size - part.base if last is not None else 0

    def check(self, part: Part) -> None:
        """Let a pair end before its first record that is not whole: a crash may have taken any page."""
        offset = self.all[self.all.index(part) - 1].last if part is not self.all[0] else -1
        for number in range(part.count):
            unit = part.unit(number)
            record = whole(part, unit)
            if record is None or unit.base <= offset:
                self.cut(unit.base if unit.base > offset else offset + 1)
                return
            offset = unit.base

    def cut(self, offset: int) -> None:
        """Take away the messages from a queue offset on."""
        while self.all:
            part = self.all[-1]
            before, part.count = part.count, part.find(offset)
            while part.count and (part.last >= offset or whole(part, part.unit(part.count - 1)) is None):
                part.count -= 1
            if part.count:
                last = part.unit(part.count - 1)
                part.end = last.physical_offset + last.size - part.base
                if part.count < before:
                    part.full = False
                    zero(part.log, part.end)
                    zero(part.units, part.count * UNIT_BYTES)
                    self.dirty[part.base] = part
                return
            self.all.pop()
            self.dirty.pop(part.base, None)
            for folder in (self.logs, self.units):
                self._disk.remove(f"{folder}/{part.base:0{NAME_DIGITS}d}")
                self._folders.touch(folder)

    # ---- writing ----

    def put(self, record: memoryview, tag_code: int, store_timestamp: int, offset: int) -> bool:
        """Append a record; False when no file is large enough for it. OSError when the disk has no room."""
        size = len(record)
        if size + BLANK_BYTES > self._log_bytes:
            return False
        part = self.all[-1] if self.all else None
        if part is None or part.full or not self._fits(part, size):
            if part is not None:
                self.close(part)
            part = self._roll()
        place = part.base + part.end
        part.log.reserve(part.end, size + BLANK_BYTES)
        part.units.reserve(part.count * UNIT_BYTES, 2 * UNIT_BYTES)
        part.log.write(part.end, record)
        part.log.write(part.end + PHYSICAL_OFFSET_AT, _PLACE.pack(place))
        unit = BatchUnit(place, size, tag_code, store_timestamp, offset, 1)
        part.units.write(part.count * UNIT_BYTES, UNIT.pack(*unit))
        part.end += size
        part.count += 1
        self.dirty[part.base] = part
        return True

    def _fits(self, part: Part, size: int) -> bool:
        """A unit's place stays free for the end, and a blank's in the log."""
        return (part.count + 1) * UNIT_BYTES < self._units_bytes and part.end + size + BLANK_BYTES <= self._log_bytes

    def close(self, part: Part) -> None:
        """Nothing more comes into this pair, for the next record has no room."""
        if part.full:
            return
        if (part.count + 1) * UNIT_BYTES <= self._units_bytes:
            part.units.write(part.count * UNIT_BYTES, END_UNIT)
        if self._log_bytes - part.end >= BLANK_BYTES:
            part.log.write(part.end, blank(self._log_bytes - part.end))
        part.full = True
        self.dirty[part.base] = part

    def _roll(self) -> Part:
        base = self.all[-1].base + self._log_bytes if self.all else 0
        try:
            part = self._open(base)
        except OSError:
            for folder in (self.logs, self.units):  # one of them may be there, and empty
                self._disk.remove(f"{folder}/{base:0{NAME_DIGITS}d}")
            raise
        self._folders.touch(self.logs)
        self._folders.touch(self.units)
        self.all.append(part)
        return part

    def take_dirty(self) -> list[Syncable]:
        """The files that were written since this was last asked."""
        files: list[Syncable] = [file for part in self.dirty.values() for file in (part.log, part.units)]
        self.dirty.clear()
        return files

    # ---- reading ----

    def units_from(self, offset: int) -> Iterator[tuple[Part, BatchUnit]]:
        """The units of a queue offset and all later ones."""
        for part in self.all:
            if part.count and part.last >= offset:
                for number in range(part.find(offset), part.count):
                    yield part, part.unit(number)

    def remove(self) -> None:
        """Take away everything."""
        for folder in (self.logs, self.units):
            self._disk.remove(folder)
            self._folders.forget(folder)
        self.all.clear()
        self.dirty.clear()


def whole(part: Part, unit: BatchUnit) -> Record | None:
    """The record of a unit; None when it is not there whole."""
    view = part.record(unit) if unit.physical_offset >= part.base else memoryview(b"")
    if len(view) != unit.size or unit.size < MIN_RECORD_BYTES:
        return None
    try:
        record = decode(view)
    except RecordError:
        return None
    good = (record.size, record.queue_offset, record.physical_offset) == (unit.size, unit.base, unit.physical_offset)
    return record if good else None
