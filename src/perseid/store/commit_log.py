"""The commit log: all records of all topics, one after the other.

A record never crosses a file: where it and 8 more bytes don't fit, a blank takes the rest of the file and
the record begins the next one. What lies behind `end` is zeros, always: recovery finds the end by them, and
a stale tail that stayed there would come back to life once the bytes before it were written again.

    start ≤ flushed ≤ issued ≤ end      issued: handed out in a Flush that may still run
"""

from __future__ import annotations

from collections.abc import Iterator

from perseid.base.errors import CorruptLog
from perseid.base.machine import Buffer, Millis
from perseid.disk.port import Disk, File
from perseid.store.config import StoreConfig
from perseid.store.results import AppendRefused, PutStatus
from perseid.store.segments import Folders, Segments, write_again
from perseid.wire.record import (
    BLANK_BYTES,
    BLANK_MAGIC,
    MAX_RECORD_BYTES,
    MIN_RECORD_BYTES,
    Record,
    RecordError,
    blank,
    decode,
    size_and_magic,
)

FOLDER = "commitlog"
UNWRITTEN = "unwritten"
PAGE_BYTES = 4096


class CommitLog:
    """The log's files and its end."""

    is_found_whole = True
    """A start finds all that was durable."""

    def __init__(self, disk: Disk, folders: Folders, config: StoreConfig) -> None:
        self._check_crc = config.check_crc_on_recover
        self.folders = folders
        self.segments = Segments(disk, folders, FOLDER, config.commit_log_file_bytes)
        self.end = 0
        self.issued = 0
        self.flushed = 0
        self.last_timestamp: Millis = 0
        """Store time of the last record."""
        self.last_offset = 0
        """Where the last record begins; at most `end`."""
        self._file: File | None = None
        self._file_start = 0
        self._file_end = 0
        self._begun_at = 0
        """Where a log began that is a copy of a part of another one."""
        self._most_bytes = 0
        self.reconfigure(config)

    def reconfigure(self, config: StoreConfig) -> None:
        """Take other records from now on: maxMessageSize has changed."""
        self._most_bytes = min(config.max_record_bytes, config.commit_log_file_bytes - BLANK_BYTES)

    @property
    def start(self) -> int:
        """The first offset that is still there."""
        return self.segments.starts[0] if self.segments.starts else self.end

    @property
    def durable_end(self) -> int:
        """Up to here a start has to find it; 0: nothing was flushed since it began, not even the name of a file."""
        return self.flushed if self.flushed > self._begun_at else 0

    @property
    def top(self) -> int:
        """Nothing from there on may be looked at: the end of the last file."""
        return self.segments.end

    # ---- loading ----

    def load(self, durable_end: int) -> list[str]:
        """Take in the files. A missing one is a CorruptLog when its bytes are known to have been durable;
        otherwise a crash took it, and what follows it goes too."""
        segments = self.segments
        missing = segments.load("mappedFileSizeCommitLog")
        if segments.starts and segments.starts[0] > durable_end >= 0:
            missing.insert(0, durable_end - durable_end % segments.file_bytes)
        elif not segments.starts and durable_end > 0:
            raise CorruptLog(segments.path(0), 0, f"no file is left of a log of {durable_end} bytes")
        if not missing:
            return []
        first = missing[0]
        if durable_end < 0 or first < durable_end:
            why = "the file is missing, and later ones are there: bring it back, or move the later ones away"
            raise CorruptLog(segments.path(first), first, why)
        gone = [start for start in segments.starts if start > first]
        segments.remove_from(first)
        return [f"{segments.path(first)}: lost in a crash, never flushed; dropped {len(gone)} later files"]

    def first_timestamp(self, start: int) -> Millis:
        """Store time of the first record of a file; 0 when there is none."""
        try:
            return decode(self.segments.view(start, MAX_RECORD_BYTES), check_crc=False).store_timestamp
        except RecordError:
            return 0

    def walk(self, offset: int) -> Walk:
        return Walk(self.segments, offset, self._check_crc)

    @staticmethod
    def promised(durable_end: int) -> int:
        """Up to where a start has to find the log, when a checkpoint says that it was durable up to `durable_end`;
        −1: nobody knows."""
        return durable_end

    def cut_off(self, end: int, *, everything: bool) -> int:
        """Let nothing stand behind `end`; returns how many bytes did. `everything`: not only files made ahead."""
        if everything:
            return self.segments.zero_from(end)
        self.segments.remove_from(end + 1)
        return 0

    def write_again(self, begin: int, end: int) -> None:
        """Write what stands there once more, so that a sync makes it durable."""
        segments = self.segments
        for start in segments.starts:
            low, high = max(begin, start), min(end, start + segments.file_bytes)
            if low < high:
                write_again(segments.file(start), low - start, high - start)

    def files_between(self, begin: int, end: int) -> list[File]:
        """The files that are to be synced for [begin, end) to be durable."""
        return self.segments.files_between(begin, end)

    def set_end(self, end: int) -> None:
        """Take `end` for the log's end; everything before it counts as written and not yet flushed."""
        self.end = end
        self.issued = self.flushed = min(self.flushed, end)
        start = self.segments.start_of(end)
        if start is None:
            self._file = None
            self._file_start = self._file_end = end
        else:
            self._use(start)

    def _use(self, start: int) -> None:
        self._file = self.segments.file(start)
        self._file_start = start
        self._file_end = start + self.segments.file_bytes

    # ---- writing ----

    @property
    def file_end(self) -> int:
        """The offset at which the file that is written to ends; the log's end when there is none."""
        return self._file_end

    def reserve(self, size: int) -> int:
        """The offset of the next `size` bytes, which lie in one file; AppendRefused when there is no room."""
        end = self.end
        if size + BLANK_BYTES <= self._file_end - end:
            return end
        self.admit(size)
        return self._roll()

    def admit(self, size: int) -> None:
        """AppendRefused when so many bytes are more than one append may bring."""
        if size > self._most_bytes:
            why = f"{size} bytes in the log; at most {self._most_bytes} are allowed"
            raise AppendRefused(PutStatus.MESSAGE_ILLEGAL, why)

    def _roll(self) -> int:
        """Begin the next file; the rest of this one becomes a blank."""
        start = self._file_end
        try:
            if not self.segments.starts or start == self.segments.end:
                self.segments.create(start)
        except OSError as error:
            raise AppendRefused(PutStatus.CREATE_MAPPED_FILE_FAILED, f"no new log file: {error}") from error
        if self._file is not None and self.end < start:
            self._file.write(self.end - self._file_start, blank(start - self.end))
        self.end = start
        self._use(start)
        return start

    def put(self, offset: int, data: Buffer, timestamp: Millis) -> None:
        """Write what `reserve` gave room to."""
        file = self._file
        assert file is not None and offset == self.end, "put without reserve"
        file.write(offset - self._file_start, data)
        self.last_offset = offset
        self.end = offset + len(data)
        self.last_timestamp = timestamp

    # ---- a copy of another log ----

    def begin_at(self, offset: int) -> None:
        """Let an empty log begin with a file at `offset`. OSError: a file that a crash left empty can't be removed."""
        assert self.end == 0, "only an empty log begins elsewhere"
        self.segments.remove_from(0)
        self.set_end(offset)
        self.issued = self.flushed = self._begun_at = offset

    def extend(self, data: Buffer) -> None:
        """Write bytes of another log at their place; they don't cross a file's end. OSError: no file could be made, and
        nothing has happened. `last_offset` and `last_timestamp` are the caller's."""
        if self.end == self._file_end:
            if self.segments.start_of(self.end) is None:
                self.segments.create(self.end)
            self._use(self.end)
        file = self._file
        assert file is not None and self.end + len(data) <= self._file_end, "bytes of two files"
        file.write(self.end - self._file_start, data)
        self.end += len(data)

    # ---- reading ----

    def view(self, offset: int, size: int) -> memoryview | None:
        """`size` bytes of one file, all before the end; None when the log hasn't got them."""
        if offset < 0 or offset + size > self.end:
            return None
        view = self.segments.view(offset, size)
        return view if len(view) == size else None

    def record_at(self, offset: int) -> memoryview | None:
        """The bytes of the record that begins at `offset`; None when there is none."""
        head = self.view(offset, BLANK_BYTES)
        if head is None:
            return None
        size, magic = size_and_magic(head)
        if magic == BLANK_MAGIC or size < MIN_RECORD_BYTES:
            return None
        return self.view(offset, size)

    def decoded(self, offset: int) -> Record | None:
        """The record that begins at `offset`; None when there is none that says so itself."""
        view = self.record_at(offset)
        if view is None:
            return None
        try:
            record = decode(view, check_crc=False)
        except RecordError:
            return None
        return record if record.physical_offset == offset and record.size == len(view) else None


class Walk:
    """The records from `offset` on, until something is none: then `offset` is that place and `why` says what
    is there. At each record `offset` is its own."""

    def __init__(self, segments: Segments, offset: int, check_crc: bool) -> None:
        self._segments = segments
        self._check_crc = check_crc
        self.offset = offset
        self.why = UNWRITTEN

    def stop(self, why: str) -> None:
        """End the walk before the record that was just handed out."""
        self.why = why

    def __iter__(self) -> Iterator[Record]:
        segments = self._segments
        while (start := segments.start_of(self.offset)) is not None:
            view = segments.file(start).view(0, segments.file_bytes)
            while (at := self.offset - start) < segments.file_bytes:
                try:
                    if self._passed_blank(view, at):
                        break
                    record = decode(view, at, check_crc=self._check_crc)
                    if record.physical_offset != self.offset:
                        raise RecordError(f"a record of offset {record.physical_offset}")
                except RecordError as error:
                    self.why = str(error) if any(view[at : at + BLANK_BYTES]) else UNWRITTEN
                    return
                yield record
                if self.why is not UNWRITTEN:
                    return
                self.offset += record.size

    def _passed_blank(self, view: memoryview, at: int) -> bool:
        size, magic = size_and_magic(view, at)
        if magic != BLANK_MAGIC:
            return False
        if size != len(view) - at:
            raise RecordError(f"a blank of {size} bytes, {len(view) - at} from the file's end")
        self.offset += size
        return True
