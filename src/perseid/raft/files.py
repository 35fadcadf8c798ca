"""The log of a member on disk, byte for byte as DLedger 0.3.2 has it, and a side file of checksums that only we have.

    data/   entries one behind the other, in files of one size; an entry never crosses a file's end, a blank fills it
    index/  32 bytes for each entry: where it stands
    crc/    4 bytes for each entry: the checksum of its body (the original keeps none); 0: nobody knows

What counts is `data`: a start reads the last files of it entry by entry, and all that is not known to be durable, up to
the first entry that is not the next one, or whose body does not match its checksum, and writes the other two anew where
they differ. What is cut is zeroed, and the zeros are durable before anything is written there (`put` asserts it):
otherwise a power cut could put new entries before old ones that look as if they followed.

A flush syncs `data` and `crc`, and `index` only when a file of `data` was begun: a start reads more than that.

Entries of an earlier life were perhaps never synced: they are `durable` after the first flush of this one.
"""

from __future__ import annotations

from collections.abc import Iterator

from perseid.base.errors import CorruptLog
from perseid.base.machine import Buffer, Effect, Flush, Syncable
from perseid.disk.port import Disk, File
from perseid.raft.log import EMPTY, LogRefused, Mark
from perseid.raft.runs import CRC_UNIT, Run, Text, checksum, runs
from perseid.store.segments import Folders, Segments, write_again
from perseid.wire.dledger import (
    BLANK,
    BLANK_BYTES,
    BLANK_MAGIC,
    ENTRY_HEADER,
    ENTRY_HEADER_BYTES,
    ENTRY_MAGIC,
    INDEX_UNIT,
    INDEX_UNIT_BYTES,
    Entry,
)
from perseid.wire.record import MIN_RECORD_BYTES

DATA, INDEX, CRC = "data", "index", "crc"
CRC_BYTES = CRC_UNIT.size
READ_FILES = 3
"""So many of the last data files a start reads whole, as the original does."""
READ_BYTES = 64 << 20
"""And at least so much where nothing is known to be durable, for files may be small."""
MAX_ENTRY_BYTES = 4 << 20
"""The original's buffer for one entry."""
ROOM_BYTES = 1 << 20
"""So much of entries may be gathered before they are written."""
AHEAD_BYTES = 4 << 20
"""Blocks for so much are had at a time where that is done."""
LEAST_BYTES = ENTRY_HEADER_BYTES + MIN_RECORD_BYTES
"""Of an entry that is a message."""
DATA_KEY, INDEX_KEY = "mappedFileSizeForEntryData", "mappedFileSizeForEntryIndex"


class FileLog:
    """The log in a folder of `disk`."""

    def __init__(self, disk: Disk, data_bytes: int, index_bytes: int, *, folder: str = "", base: int = 0) -> None:
        """Sizes of one file; all members of a group have the same `data_bytes`. CorruptLog when a folder has others.
        `folder`: where all is, with a `/` at its end; `base`: where the first entry stands."""
        self.folders = self._folders = Folders(disk)
        self.data = self._data = Segments(disk, self._folders, folder + DATA, data_bytes, sparse=True)
        self._index = Segments(disk, self._folders, folder + INDEX, index_bytes, sparse=True)
        units = index_bytes // INDEX_UNIT_BYTES
        self._crc = Segments(disk, self._folders, folder + CRC, units * CRC_BYTES, sparse=True)
        self.base = base
        """Where the first entry stands."""
        self.begin = 0
        self.end = EMPTY
        self.end_term = EMPTY
        self.durable = EMPTY
        self._pos = base
        """Where the next entry stands, unless it does not fit into its file."""
        self._runs = runs()
        self._cuts = 0
        self.cutting = False
        self._reserved = 0, 0
        """Where entries have room for sure."""
        self._dirty: dict[str, File] = {}
        self._indexed: dict[str, File] = {}
        """Files of the index that were written to since they were last synced."""
        self._begun = False
        """A file of the data was begun since."""

    @property
    def pos(self) -> int:
        """Where the last entry ends."""
        return self._pos

    # ---- loading ----

    def load(self, trusted: int, *, checked: bool = False) -> list[str]:
        """CorruptLog when a file has another size, or one is missing that must be there."""
        notes: list[str] = []
        lost: list[int] = []
        for segments, key in ((self._data, DATA_KEY), (self._index, INDEX_KEY), (self._crc, INDEX_KEY)):
            missing = segments.load(key)
            if missing:
                notes.append(f"{segments.path(missing[0])} is missing: what comes after it is removed")
                if segments is self._data:  # later: perhaps it stops the start, and somebody brings the file back
                    lost = [start for start in segments.starts if start > missing[0]]
                    segments.starts = [start for start in segments.starts if start < missing[0]]
                else:
                    segments.remove_from(missing[0])
        self._folders.distrust()
        starts = self._data.starts
        first = self._first_of(starts[0]) if starts else None
        if first is None:
            if trusted >= 0:
                raise CorruptLog(
                    self._data.path(self.base), 0, f"no entry stands here, and up to {trusted} were durable"
                )
            self._remove(lost)
            return self._start_anew(notes)
        self.begin = first.index
        scanned = self._scan_from(starts, trusted)
        end, term, pos, why = self._scan(scanned, notes, trusted if checked else None)
        if end < trusted:
            where = self._data.path(pos - pos % self._data.file_bytes)
            why = f"entry {end + 1} can't be read, and up to {trusted} were durable"
            raise CorruptLog(where, pos % self._data.file_bytes, why)
        self._remove(lost)
        if end < self.begin:
            return self._start_anew([*notes, why])
        self.end, self.end_term, self._pos = end, term, pos
        gone = self._data.zero_from(pos)
        if gone:
            notes.append(f"{DATA}: after entry {end}: {why}; cut off {gone} bytes")
        self._cut_derived(end + 1)
        first = self._first_of(scanned)
        assert first is not None
        for segments, unit in ((self._index, INDEX_UNIT_BYTES), (self._crc, CRC_BYTES)):
            self._write_again(segments, first.index * unit, (end + 1) * unit)
        # a blank behind the last trusted entry may stand in the file before the one that was read
        self._write_again(self._data, self.end_of(trusted) if trusted >= self.begin else scanned, pos)
        self._cuts += 1
        self.cutting = True  # until the first flush: what is behind the end may be old
        return notes

    def _write_again(self, segments: Segments, at: int, end: int) -> None:
        """An earlier life's sync may have failed: then only what is written again reaches the disk."""
        for begin, stop in pieces(segments, at, end - at):
            start = begin - begin % segments.file_bytes
            write_again(segments.file(start), begin - start, stop - start)
            self._touch(segments, start)

    def _remove(self, lost: list[int]) -> None:
        """Take away data files behind one that is missing."""
        for start in lost:
            self._data.starts.append(start)
            self._data.remove(start)

    def _start_anew(self, notes: list[str]) -> list[str]:
        """Nothing in the folder is an entry."""
        gone = self._data.zero_from(self._data.starts[0]) if self._data.starts else 0
        self._data.remove_from(0)
        self._drop_derived()
        self.begin, self.end, self.end_term, self._pos = 0, EMPTY, EMPTY, self.base
        return [*notes, f"{DATA}: no entry; cut off {gone} bytes"] if gone else notes

    def _drop_derived(self) -> None:
        for segments in (self._index, self._crc):
            segments.remove_from(0)

    def _cut_derived(self, index: int) -> None:
        self._index.zero_from(index * INDEX_UNIT_BYTES)
        self._crc.zero_from(index * CRC_BYTES)

    def _first_of(self, start: int) -> Entry | None:
        """The entry that a data file begins with."""
        return self._entry_at(start, None)

    def _scan_from(self, starts: list[int], trusted: int) -> int:
        """The data file to read from: before it, all is known to be durable (an earlier life may have ended before a
        flush of any number of files), and the index knows where it begins."""
        index = self._index.starts
        if not index or index[0] > self.begin * INDEX_UNIT_BYTES:
            return starts[0]
        known = trusted >= self.begin
        enough = starts[-READ_FILES:][0] if known else min(starts[-READ_FILES:][0], starts[-1] - READ_BYTES)
        for start in reversed([start for start in starts if start <= enough]):
            first = self._first_of(start)
            if first is None or (known and first.index > trusted + 1):
                continue
            if self._unit(first.index) == bytes(first.unit()):
                return start
        return starts[0]

    def _scan(self, at: int, notes: list[str], trusted: int | None) -> tuple[int, int, int, str]:
        """Read entries from `at` on: the last one's index and term, where the next would stand, and why it is none.
        With `trusted`, an entry behind it that has no checksum, and whose predecessor has one, is not whole: the power
        went before either was durable."""
        first = self._first_of(at)
        expected: int | None = None
        index, term, end = (first.index if first is not None else self.begin) - 1, EMPTY, at
        mended, known = 0, self._crc_of(index) if index >= 0 else 0
        while True:
            start = self._data.start_of(at)
            if start is None:
                return index, term, end, "the files end"
            head = self._data.view(at, BLANK_BYTES)
            magic, size = BLANK.unpack(head) if len(head) == BLANK_BYTES else (BLANK_MAGIC, 0)
            left = start + self._data.file_bytes - at
            if left < BLANK_BYTES or (magic == BLANK_MAGIC and size == left and at > start):
                at += left
                continue
            entry = self._entry_at(at, expected)
            if entry is None or entry.term < term:
                break
            before, known = known, self._crc_of(entry.index)
            if before and not known and trusted is not None and entry.index > trusted:
                notes.append(f"{DATA}: entry {entry.index} has no checksum")
                break
            if known and known != checksum(entry.body):
                notes.append(f"{DATA}: entry {entry.index} does not match its checksum")
                break
            if self._unit(entry.index) != bytes(entry.unit()) or not known:
                self._write_derived(entry)
                mended += 1
            index, term = entry.index, entry.term
            expected, at = index + 1, at + entry.disk_bytes
            end = at
        if mended:
            notes.append(f"{INDEX}: {mended} entries were not known; written anew")
        return index, term, end, "what follows is no entry"

    def _entry_at(self, at: int, expected: int | None) -> Entry | None:
        """The entry that stands at a position, if one does; with `expected`, only the one of that index."""
        head = self._data.view(at, ENTRY_HEADER_BYTES)
        if len(head) < ENTRY_HEADER_BYTES:
            return None
        magic, size, index, term, pos, channel, _, _, body_size = ENTRY_HEADER.unpack(head)
        if magic != ENTRY_MAGIC or pos != at or size != ENTRY_HEADER_BYTES + body_size or body_size < 0:
            return None
        if index < 0 or term < 0 or (expected is not None and index != expected):
            return None
        body = bytes(self._data.view(at + ENTRY_HEADER_BYTES, body_size))
        return Entry(index, term, pos, body, magic, channel, size) if len(body) == body_size else None

    # ---- what is derived ----

    def _unit(self, index: int) -> bytes:
        return bytes(self._index.view(index * INDEX_UNIT_BYTES, INDEX_UNIT_BYTES))

    def _crc_of(self, index: int) -> int:
        raw = self._crc.view(index * CRC_BYTES, CRC_BYTES)
        return int(CRC_UNIT.unpack(raw)[0]) if len(raw) == CRC_BYTES else 0

    def _write_derived(self, entry: Entry) -> None:
        self._write(self._index, entry.index * INDEX_UNIT_BYTES, bytes(entry.unit()))
        self._write(self._crc, entry.index * CRC_BYTES, CRC_UNIT.pack(checksum(entry.body)))

    def _write(self, segments: Segments, at: int, data: Buffer) -> None:
        """Write into a file of a sequence, which is made if need be."""
        step = segments.file_bytes
        start = at - at % step
        if segments.start_of(at) is None:
            if segments.starts and start != segments.end:
                segments.remove_from(0)  # it has a gap, and what is before it will not be asked for
            segments.create(start)
        segments.file(start).write(at - start, data)
        self._touch(segments, start)

    def _touch(self, segments: Segments, start: int) -> None:
        file = segments.file(start)
        (self._indexed if segments is self._index else self._dirty)[file.path] = file

    # ---- appending ----

    def append(self, term: int, body: bytes) -> Entry:
        entry = Entry(self.end + 1, term, self.place(ENTRY_HEADER_BYTES + len(body)), body)
        self._append(entry)
        return entry

    def put(self, entry: Entry) -> None:
        if entry.index != self.end + 1:
            raise LogRefused(f"entry {entry.index}: {self.end + 1} is the next")
        place = self.place(entry.disk_bytes)
        if entry.pos != place:
            raise LogRefused(
                f"entry {entry.index} stands at {entry.pos} at its leader, and would at {place} here: is {DATA_KEY} "
                f"({self._data.file_bytes} here) the same on both?"
            )
        self._append(entry)

    def place(self, size: int) -> int:
        """Where an entry of so many bytes will stand. LogRefused: no file can hold it."""
        step = self._data.file_bytes
        if size + BLANK_BYTES > step or size > MAX_ENTRY_BYTES:
            raise LogRefused(f"an entry of {size} bytes; {min(step - BLANK_BYTES, MAX_ENTRY_BYTES)} are the most")
        left = step - self._pos % step
        return self._pos if size + BLANK_BYTES <= left else self._pos + left

    def _append(self, entry: Entry) -> None:
        assert not self.cutting, "an entry is written before what was cut is gone for good"
        try:
            self._reserve(entry.index, 1, entry.pos, entry.disk_bytes)
        except OSError as error:
            raise LogRefused(f"entry {entry.index}: the disk has no room: {error}") from error
        if entry.pos != self._pos:
            self._end_file()
        self._write_derived(entry)  # first: who dies within the next line leaves half an entry, and its checksum
        head, body = entry.encode()
        self._write(self._data, entry.pos, b"".join((head, body)))
        self.end, self.end_term, self._pos = entry.index, entry.term, entry.pos + entry.disk_bytes

    def fits(self, run: Run) -> bool:
        """Are these the next entries, and is their place here, in one file, where they say?"""
        step, pos = self._data.file_bytes, run.pos
        if run.index != self.end + 1 or run.term < self.end_term or pos % step + len(run.data) + BLANK_BYTES > step:
            return False
        return pos == self._pos or (pos == self._pos + step - self._pos % step and pos == self.place(first_bytes(run)))

    def extend(self, run: Run) -> None:
        """Put a run that fits at the end. LogRefused: the disk has no room, and nothing has happened."""
        assert not self.cutting and self.fits(run), f"a run at {run.pos}, {self._pos} is next"
        try:
            self._reserve(run.index, run.count, run.pos, len(run.data))
        except OSError as error:
            raise LogRefused(f"entries {run.index} to {run.last}: the disk has no room: {error}") from error
        if run.pos != self._pos:
            self._end_file()
        units, crcs = self._runs.derived(run.data)
        assert len(units) == run.count * INDEX_UNIT_BYTES, f"{len(units)} bytes of units for {run.count} entries"
        for segments, at, data in (
            (self._index, run.index * INDEX_UNIT_BYTES, units),
            (self._crc, run.index * CRC_BYTES, crcs),  # before the data, as in `_append`
            (self._data, run.pos, run.data),
        ):
            for start, stop in pieces(segments, at, len(data)):
                self._write(segments, start, data[start - at : stop - at])
        self.end, self.end_term, self._pos = run.last, run.term, run.pos + len(run.data)

    def room(self) -> tuple[int, int]:
        """Where the next entry stands, if it fits into its file, and up to where entries of messages may be put there
        by `extend` without the disk's running out of room. OSError: it has none."""
        at, step = self._pos, self._data.file_bytes
        left = self._index.file_bytes - (self.end + 1) * INDEX_UNIT_BYTES % self._index.file_bytes
        free = min(step - BLANK_BYTES - at % step, left // INDEX_UNIT_BYTES * LEAST_BYTES)
        if free <= 0:
            return at, at
        limit = at + min(ROOM_BYTES, free)
        if not self._reserved[0] <= at <= limit <= self._reserved[1]:
            ahead = min(AHEAD_BYTES, free)
            self._reserve(self.end + 1, -(-ahead // LEAST_BYTES), at, ahead)
            self._reserved = at, at + ahead
        return at, limit

    def _end_file(self) -> None:
        """A blank fills the file that the last entry stands in."""
        step = self._data.file_bytes
        self._write(self._data, self._pos, BLANK.pack(BLANK_MAGIC, step - self._pos % step))

    def _reserve(self, index: int, count: int, pos: int, size: int) -> None:
        """Room for all that entries need which stand in one file, before anything of them is written."""
        step = self._data.file_bytes
        for segments, begin, length in (
            (self._data, self._pos, min(BLANK_BYTES, step - self._pos % step)),
            (self._data, pos, size),
            (self._index, index * INDEX_UNIT_BYTES, count * INDEX_UNIT_BYTES),
            (self._crc, index * CRC_BYTES, count * CRC_BYTES),
        ):
            for at, stop in pieces(segments, begin, length):
                start = at - at % segments.file_bytes
                if segments.start_of(at) is None:
                    if segments.starts and start != segments.end:
                        segments.remove_from(0)
                    segments.create(start)
                    self._begun = True
                segments.file(start).reserve(at - start, stop - at)

    # ---- reading ----

    def get(self, index: int) -> Entry | None:
        if not self.begin <= index <= self.end:
            return None
        _, pos, _, _, _ = INDEX_UNIT.unpack(self._unit(index))
        entry = self._entry_at(pos, index)
        assert entry is not None, f"{DATA}: entry {index} is not at {pos}, where {INDEX} says"
        return entry

    def text(self, index: int, most: int) -> Text:
        assert self.begin <= index <= self.end, f"entry {index} of {self.begin} to {self.end}"
        _, pos, _, _, _ = INDEX_UNIT.unpack(self._unit(index))
        start = pos - pos % self._data.file_bytes
        stop = min(self._pos, start + self._data.file_bytes, pos + most + MAX_ENTRY_BYTES)
        found = self._runs.text(self._data.view(pos, stop - pos), most)
        assert found.count, f"{DATA}: entry {index} is not at {pos}, where {INDEX} says"
        return found

    def term_of(self, index: int) -> int:
        if not self.begin <= index <= self.end:
            return EMPTY
        return int(INDEX_UNIT.unpack(self._unit(index))[4])

    def end_of(self, index: int) -> int:
        """Where an entry ends in the data files; where the first one begins, for none."""
        if not self.begin <= index <= self.end:
            return self._data.starts[0] if self._data.starts else self.base
        _, pos, size, _, _ = INDEX_UNIT.unpack(self._unit(index))
        return int(pos + size)

    def follow_start(self, start: int) -> None:
        """Data files before `start` were removed: the log begins with what is left."""
        self._data.starts = [one for one in self._data.starts if one >= start]
        first = self._first_of(self._data.starts[0]) if self._data.starts and self.end >= self.begin else None
        if first is not None:
            self.begin = first.index

    # ---- cutting, durability ----

    def cut(self, index: int) -> None:
        assert self.begin <= index <= self.end, f"cut at {index} of {self.begin} to {self.end}"
        _, pos, _, _, _ = INDEX_UNIT.unpack(self._unit(index))
        term = self.term_of(index - 1)
        if index > self.begin:  # not where the cut one stands: the next may be shorter, and fit in before a blank
            _, before, size, _, _ = INDEX_UNIT.unpack(self._unit(index - 1))
            pos = before + size
        for segments, at in (
            (self._data, pos),
            (self._index, index * INDEX_UNIT_BYTES),
            (self._crc, index * CRC_BYTES),
        ):
            segments.zero_from(at)
            start = segments.start_of(at)
            if start is not None:
                self._touch(segments, start)
        self.end, self.end_term, self._pos = index - 1, term, pos
        self._reserved = 0, 0
        self.durable = min(self.durable, self.end)
        self._cuts += 1
        self.cutting = True

    def mark(self) -> Mark:
        return Mark(self.end, self._cuts)

    def flush(self, then: list[Effect]) -> list[Effect]:
        files: list[Syncable] = [*self._dirty.values()]
        if self._begun or self.cutting:
            files += self._indexed.values()
            self._indexed.clear()
            self._begun = False
        files += self._folders.take()
        self._dirty.clear()
        return [Flush(files, then)] if files else list(then)

    def flushed(self, mark: Mark) -> None:
        if mark.cuts == self._cuts:  # otherwise something was cut meanwhile, which a later flush covers
            self.durable = max(self.durable, mark.end)
            self.cutting = False


def pieces(segments: Segments, at: int, length: int) -> Iterator[tuple[int, int]]:
    """The parts of a range that lie in one file each."""
    end, step = at + length, segments.file_bytes
    while at < end:
        stop = min(end, at - at % step + step)
        yield at, stop
        at = stop


def first_bytes(run: Run) -> int:
    """What the first entry of a run takes."""
    return int(BLANK.unpack_from(run.data)[1])
