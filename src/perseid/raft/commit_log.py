"""The commit log of a broker whose messages are entries of a group (dledger.md §9).

Each entry's body is one record; it stands 48 bytes behind the entry's place, and says so itself. What stores and
readers see of it ends where the last entry does that is committed and has its unit in a queue:

    start ≤ flushed ≤ end ≤ top       end: dispatched       top: committed

Writing, cutting and syncing are the group's affair (`perseid.raft.node`), not the store's.

A log of an earlier life without a group stays where it is, in `commitlog`, ended by a blank: what is below `divided` is
read from there (the original's dividedCommitlogOffset).
"""

from __future__ import annotations

from collections.abc import Iterator

from perseid.base.machine import Millis
from perseid.disk.port import Disk, File
from perseid.raft.files import MAX_ENTRY_BYTES, FileLog
from perseid.store.commit_log import FOLDER as OLD_FOLDER
from perseid.store.commit_log import UNWRITTEN, CommitLog, Walk
from perseid.store.config import StoreConfig
from perseid.store.results import AppendRefused, PutStatus
from perseid.store.segments import NAME_DIGITS, Segments
from perseid.wire.dledger import BLANK, BLANK_BYTES, BLANK_MAGIC, ENTRY_HEADER, ENTRY_HEADER_BYTES, ENTRY_MAGIC
from perseid.wire.record import MAX_RECORD_BYTES, Record, RecordError, decode


def starts_in(disk: Disk, folder: str) -> list[int]:
    """Where the files of a log begin, by their names."""
    return [int(name) for name in disk.list(folder) if name.isascii() and name.isdigit() and len(name) == NAME_DIGITS]


class Joined(Segments):
    """The files of an old log, and those of a group's entries behind them, as one sequence."""

    __slots__ = ("_data", "_divided", "_old_folder")

    def __init__(self, disk: Disk, entries: FileLog, divided: int) -> None:
        super().__init__(disk, entries.folders, entries.data.folder, entries.data.file_bytes)
        self._data = entries.data
        self._old_folder = OLD_FOLDER
        self._divided = divided

    def path(self, start: int) -> str:
        folder = self._old_folder if start < self._divided else self.folder
        return f"{folder}/{start:0{NAME_DIGITS}d}"

    def take_old(self, starts: list[int]) -> None:
        """The files of the old log."""
        self.starts = list(starts)

    def follow(self) -> None:
        """The group's files are others than before."""
        ours = [start for start in self.starts if start < self._divided]
        self.starts = ours + self._data.starts

    @property
    def followed(self) -> bool:
        """Are the group's last file and ours the same?"""
        return self.starts[-1:] == self._data.starts[-1:] or not self._data.starts


class EntryLog(CommitLog):
    """The committed entries of a group as a log of records, behind an old one that ends at `divided`."""

    is_found_whole = False
    """How much of it is committed a start learns from the group: the checkpoint that says so is the older one."""

    def __init__(self, disk: Disk, config: StoreConfig, entries: FileLog) -> None:
        super().__init__(disk, entries.folders, config)
        self._disk = disk
        self.divided = entries.base
        self._joined = Joined(disk, entries, self.divided) if self.divided else None
        self.segments = self._joined or entries.data
        self._entries = entries
        self._committed = 0
        self._most = min(MAX_ENTRY_BYTES, entries.data.file_bytes - BLANK_BYTES) - ENTRY_HEADER_BYTES

    @property
    def top(self) -> int:
        """Where the last committed entry ends."""
        return self._committed

    @property
    def durable_end(self) -> int:
        return self.flushed

    def committed(self, index: int) -> None:
        """Entries up to `index` are."""
        self._committed = max(self._entries.end_of(index), self.divided)
        if self._joined is not None and not self._joined.followed:
            self._joined.follow()

    def dispatched(self, end: int) -> None:
        """Readers see the log up to `end`."""
        self.end = self.issued = end

    def follow_disk(self) -> None:
        """What is durable of the entries may be more by now."""
        durable = self._entries.durable
        if self.flushed < self.end and durable >= self._entries.begin:
            self.flushed = max(self.flushed, min(self.end, self._entries.end_of(durable)))

    # ---- loading ----

    def load(self, durable_end: int) -> list[str]:
        if self._joined is not None:
            self._joined.take_old([start for start in starts_in(self._disk, OLD_FOLDER) if start < self.divided])
            self._joined.follow()
        return []  # the member has taken in its files

    @staticmethod
    def promised(durable_end: int) -> int:
        return -1  # it is the group's to judge whether entries are missing

    def first_timestamp(self, start: int) -> Millis:
        if start < self.divided:
            return super().first_timestamp(start)
        try:
            view = self.segments.view(start + ENTRY_HEADER_BYTES, MAX_RECORD_BYTES)
            return decode(view, check_crc=False).store_timestamp
        except RecordError:
            return 0

    def walk(self, offset: int) -> Walk:
        return EntryWalk(self, offset)

    def cut_off(self, end: int, *, everything: bool) -> int:
        return 0

    def write_again(self, begin: int, end: int) -> None: ...

    def files_between(self, begin: int, end: int) -> list[File]:
        return []

    def set_end(self, end: int) -> None:
        self.dispatched(end)
        self.flushed = min(self.flushed, end)

    # ---- writing ----

    def admit(self, size: int) -> None:
        if size > self._most:
            why = f"{size} bytes in the log; an entry has at most {self._most}"
            raise AppendRefused(PutStatus.MESSAGE_ILLEGAL, why)


LOST_BLANK = (0, 0)
"""In the place of a blank that a power cut took, in files of versions that did not write it again."""


class EntryWalk(Walk):
    """The records of entries, up to `upto`, else to the log's `top`. It may begin at an entry or at the record in it,
    and ends at an entry."""

    def __init__(self, log: EntryLog, offset: int, upto: int | None = None) -> None:
        super().__init__(log.segments, offset, check_crc=False)
        self._divided = log.divided
        self._top = log.top if upto is None else upto
        self.strange: list[str] = []
        """Entries that are no messages; they are passed over."""

    def __iter__(self) -> Iterator[Record]:
        if self.offset < self._divided:
            for old in super().__iter__():
                yield old
                if self.why is not UNWRITTEN:
                    return
            if self.offset != self._divided:
                return
            self.why = UNWRITTEN
        at = self._entry_at(self.offset)
        while at < self._top:
            head = self._segments.view(at, ENTRY_HEADER_BYTES)
            magic, size = BLANK.unpack_from(head) if len(head) >= BLANK_BYTES else (BLANK_MAGIC, 0)
            if magic == BLANK_MAGIC or (magic, size) == LOST_BLANK:  # the rest of a file
                step = self._segments.file_bytes
                at += step - at % step
                continue
            assert magic == ENTRY_MAGIC and len(head) == ENTRY_HEADER_BYTES, f"no entry at {at}, before {self._top}"
            self.offset = at + ENTRY_HEADER_BYTES
            record = self._record(at, ENTRY_HEADER.unpack(head)[8])
            if record is not None:
                yield record
                if self.why is not UNWRITTEN:
                    return
            at += size
        self.offset = at

    def _entry_at(self, offset: int) -> int:
        """Where the entry begins that `offset` is at, or in which it is the body's place."""
        head = self._segments.view(offset, BLANK_BYTES)
        if offset >= self._top or len(head) < BLANK_BYTES or BLANK.unpack(head)[0] in (ENTRY_MAGIC, BLANK_MAGIC):
            return offset
        return offset - ENTRY_HEADER_BYTES

    def _record(self, at: int, body_bytes: int) -> Record | None:
        """The record that an entry holds; None when it is none."""
        try:
            record = decode(self._segments.view(at + ENTRY_HEADER_BYTES, body_bytes), check_crc=False)
        except RecordError as error:
            self.strange.append(f"the entry at {at} is no message: {error}")
            return None
        if record.physical_offset == at + ENTRY_HEADER_BYTES and record.size == body_bytes:
            return record
        self.strange.append(f"the entry at {at} holds a message that says it stands at {record.physical_offset}")
        return None
