"""The index: from a key's hash to the physical offsets of the messages that carry it.

A file has a header of 40 bytes, a table of slots (4 bytes each) and entries (20 bytes each). A slot holds
the number of its newest entry, each entry that of the one before it in its slot; entry 0 is never used.
Entries are written in the order of the log, so those of the durable part of the log are a prefix of the
file, and after a crash everything else (header and slots) is made anew from that prefix.

While a file is written, its header and its slots are kept in memory; they are written out when the index is flushed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from datetime import datetime
from struct import Struct
from sys import byteorder
from typing import TypeAlias

from perseid import core
from perseid.base.errors import CorruptLog
from perseid.base.machine import Effect, Millis, Note
from perseid.core.layout import ENTRY_BYTES, KEY_BYTES, PART_BITS
from perseid.disk.port import Disk, File
from perseid.store.config import StoreConfig
from perseid.store.segments import Folders, zero

FOLDER = "index"
HEADER = Struct(">qqqqii")
KEY = Struct(">iq")
"""What a record is found by: hash and physical offset, the first part of an entry."""
ENTRY = Struct(">iqii")
SLOT = Struct(">i")
_pack_entry = ENTRY.pack_into
HEADER_BYTES = 40
SLOT_BYTES = 4
NAME_DIGITS = 17
MAX_NAMED_MS = 253_370_000_000_000
"""The latest time that names a file: a year of four digits, and room for more names behind it."""
MAX_DIFF_SECONDS = 0x7FFFFFFF
CHUNK_ENTRIES = 50_000
MAX_WAITING = 256
"""Entries that wait to be written together."""
RETRY_MS = 10_000
"""After the disk was full."""


Entries: TypeAlias = list[tuple[int, int]] | bytearray
"""Hash and offset of each: as numbers, or packed as the compiled core gives them."""


def _count(entries: Entries) -> int:
    return len(entries) if isinstance(entries, list) else len(entries) // KEY_BYTES


def _offsets(entries: Entries) -> tuple[int, int]:
    """Of the first and the last of them."""
    if isinstance(entries, list):
        return entries[0][1], entries[-1][1]
    return KEY.unpack_from(entries)[1], KEY.unpack_from(entries, len(entries) - KEY_BYTES)[1]


class IndexFile:
    """One file of the index."""

    def __init__(self, file: File, name: str, slots: int, most: int, insert: Callable[..., int]) -> None:
        self.file = file
        self._insert = insert
        """Of packed entries."""
        self.name = name
        self._slots = slots
        self.most = most
        self._entries_at = HEADER_BYTES + SLOT_BYTES * slots
        self.begin_timestamp: Millis
        self.end_timestamp: Millis
        self.begin_offset: int
        self.end_offset: int
        self.slot_count: int
        header = HEADER.unpack(file.view(0, HEADER_BYTES))
        self.begin_timestamp, self.end_timestamp, self.begin_offset, self.end_offset, self.slot_count = header[:5]
        self.count: int = min(max(header[5], 1), most)
        """The number of the next entry."""
        self.dirty = False
        self._table: array[int] | None = None
        """The slots, once the file is written; until then they are only in the file."""
        self._changed = bytearray((slots >> PART_BITS) + 1)
        """1 for each part of the table that the file does not have as it is."""

    def insert(self, entries: Entries, timestamp: Millis) -> None:
        """Add entries of one time, all of which the file has room for."""
        table = self._table if self._table is not None else self._load_table()
        first, offsets = self.count, _offsets(entries)
        if first <= 1:
            self.begin_timestamp, self.begin_offset = timestamp, offsets[0]
        begin = self.begin_timestamp
        diff = min((timestamp - begin) // 1000, MAX_DIFF_SECONDS) if 0 < begin < timestamp else 0
        packed = bytearray(ENTRY_BYTES * _count(entries))
        if isinstance(entries, list):
            used = self._pack(entries, table, diff, packed)
        else:
            used = self._insert(entries, table, self._changed, first, diff, packed)
        try:
            self.file.write(self._entries_at + ENTRY_BYTES * first, packed)
        except OSError:
            for key_hash, _, _, previous in reversed([*ENTRY.iter_unpack(packed)]):
                table[key_hash % self._slots] = previous
            raise
        self.count = first + _count(entries)
        self.slot_count += used
        self.end_timestamp, self.end_offset = timestamp, offsets[1]
        self.dirty = True

    def _pack(self, entries: list[tuple[int, int]], table: array[int], diff: int, packed: bytearray) -> int:
        """Write entries as the file has them into `packed`, and let the slots lead to them. How many slots had none."""
        changed, slots = self._changed, self._slots
        used = at = 0
        for count, (key_hash, offset) in enumerate(entries, self.count):
            slot = key_hash % slots
            previous = table[slot]
            if not 0 < previous < count:  # 0, or what a damaged file held
                previous = 0
                used += 1
            _pack_entry(packed, at, key_hash, offset, diff, previous)
            at += ENTRY_BYTES
            table[slot] = count
            changed[slot >> PART_BITS] = 1
        return used

    def _load_table(self) -> array[int]:
        """The slots as the file has them."""
        # They have their blocks from now on: flushes can't find the disk full. Before they are looked at: to read what
        # has none takes room, too, where the disk is memory (tmpfs), and would end the process.
        self.file.reserve(HEADER_BYTES, SLOT_BYTES * self._slots)
        raw = bytes(self.file.view(HEADER_BYTES, SLOT_BYTES * self._slots))
        self._table = _swapped(array("i", raw))
        return self._table

    def settle(self) -> None:
        """Write out what is only in memory. The file has its blocks: no error but the disk's own."""
        header = (self.begin_timestamp, self.end_timestamp, self.begin_offset, self.end_offset)
        # The original stores the counter only once there is an entry.
        self.file.write(0, HEADER.pack(*header, self.slot_count, self.count if self.count > 1 else 0))
        if self._table is None:
            return
        part = self._changed.find(1)
        while part >= 0:
            begin = part << PART_BITS
            some = self._table[begin : begin + (1 << PART_BITS)]
            self.file.write(HEADER_BYTES + SLOT_BYTES * begin, _swapped(some).tobytes())
            self._changed[part] = 0
            part = self._changed.find(1, part)

    def leave(self) -> None:
        """Nothing more will be written to it: let the table go."""
        self.settle()
        self._table = None

    def find(self, key_hash: int, most: int, begin: Millis, end: Millis) -> list[int]:
        """Offsets of entries with that hash and a time in [begin, end], the newest first."""
        found: list[int] = []
        number = self._slot(key_hash % self._slots)
        limit = self.count
        while 0 < number < limit and len(found) < most:
            entry_hash, offset, diff, previous = self.entry(number)
            time = self.begin_timestamp + diff * 1000
            if diff < 0 or time < begin:
                break
            if entry_hash == key_hash and begin <= time <= end:
                found.append(offset)
            limit, number = number, previous  # chains only lead back: a damaged one ends
        return found

    def _slot(self, slot: int) -> int:
        if self._table is not None:
            return self._table[slot]
        return int(SLOT.unpack(self.file.view(HEADER_BYTES + SLOT_BYTES * slot, SLOT_BYTES))[0])

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Hash, physical offset, seconds since the file's begin, previous entry of the slot."""
        view = self.file.view(self._entries_at + ENTRY_BYTES * number, ENTRY_BYTES)
        return ENTRY.unpack(view)

    def repair(self, before: int, timestamp_of: Callable[[int], Millis]) -> bool:
        """Keep the entries of records before the offset `before` and make all else anew from them. False
        when there is none."""
        slots = self._slots
        heads = array("i", bytes(SLOT_BYTES * slots))
        count, last, room = 1, -1, CHUNK_ENTRIES
        while count < self.most and room == CHUNK_ENTRIES:
            room = min(CHUNK_ENTRIES, self.most - count)
            chunk = bytes(self.file.view(self._entries_at + ENTRY_BYTES * count, ENTRY_BYTES * room))
            end = count + room
            for key_hash, offset, diff, previous in ENTRY.iter_unpack(chunk):  # a million a second: keep it short
                slot = key_hash % slots
                if previous != heads[slot] or not last <= offset < before or diff < 0 or key_hash < 0:
                    break
                if not key_hash and not any(chunk[(count - end) * ENTRY_BYTES :]):
                    break  # unwritten; the entry of a record at offset 0 has a key
                heads[slot] = count
                last = offset
                count += 1
            if count < end:
                break
        if count == 1:
            return False
        self._rewrite(heads, count, timestamp_of)
        return True

    def drop_from(self, offset: int) -> bool:
        """Take away the entries of records from `offset` of the log on, the newest first: each knows what its slot
        led to before. False when none is left."""
        table = self._table if self._table is not None else self._load_table()
        count = self.count
        while count > 1:
            key_hash, at, diff, previous = self.entry(count - 1)
            if at < offset:
                self.end_offset, self.end_timestamp = at, self.begin_timestamp + diff * 1000
                break
            count -= 1
            slot = key_hash % self._slots
            table[slot] = previous
            self._changed[slot >> PART_BITS] = 1
            self.slot_count -= not previous
        if count < self.count:
            self.file.write(self._entries_at + ENTRY_BYTES * count, bytes(ENTRY_BYTES * (self.count - count)))
            self.count, self.dirty = count, True
        return count > 1

    def _rewrite(self, heads: array[int], count: int, timestamp_of: Callable[[int], Millis]) -> None:
        self.count = count
        self.slot_count = len(heads) - heads.count(0)
        self._table = None
        self._changed = bytearray(len(self._changed))
        table = _swapped(heads).tobytes()
        if self.file.view(HEADER_BYTES, len(table)) != table:
            self.file.write(HEADER_BYTES, table)
        if count < self.most:
            zero(self.file, self._entries_at + ENTRY_BYTES * count)
        _, self.begin_offset, _, _ = self.entry(1)
        _, self.end_offset, diff, _ = self.entry(count - 1)
        begin = timestamp_of(self.begin_offset)
        if begin:
            self.begin_timestamp = begin
        self.end_timestamp = timestamp_of(self.end_offset) or self.begin_timestamp + diff * 1000
        self.dirty = True


def _swapped(numbers: array[int]) -> array[int]:
    """Numbers of the file as those of this machine, or back: in place."""
    if byteorder == "little":
        numbers.byteswap()
    return numbers


class Index:
    """The index files of a store, oldest first."""

    def __init__(self, disk: Disk, folders: Folders, config: StoreConfig) -> None:
        self._disk = disk
        self._folders = folders
        self._slots = config.max_hash_slot_num
        self._most = config.max_index_num
        self._insert: Callable[..., int] = (core.compiled or core.installed).batch.insert
        self._bytes = HEADER_BYTES + SLOT_BYTES * self._slots + ENTRY_BYTES * self._most
        self.enabled = config.message_index_enable
        self._files: list[IndexFile] = []
        self.broken = ""
        """Why nothing is indexed any more: the disk was full."""
        self.retry_at: Millis = 0
        self._waiting: list[tuple[Millis, Entries]] = []
        """Entries that are not in a file yet, by time. Nobody sees the difference: whoever reads or flushes drains
        first, and what is not flushed recovery makes anew from the log."""
        self._waiting_count = 0

    def load(self) -> list[str]:
        """Open the files. CorruptLog when one has another size than the configured."""
        for name in self._disk.list(FOLDER):
            if name.endswith("/") or not (name.isascii() and name.isdigit() and len(name) == NAME_DIGITS):
                continue
            path = f"{FOLDER}/{name}"
            size = self._disk.size(path)
            if size == 0:
                self._disk.remove(path)
                self._folders.touch(FOLDER)
                continue
            if size != self._bytes:
                why = f"the file has {size} bytes, maxHashSlotNum and maxIndexNum ask for {self._bytes}"
                raise CorruptLog(path, min(size or 0, self._bytes), f"{why}: correct them, or remove the folder")
            self._files.append(IndexFile(self._disk.open(path), name, self._slots, self._most, self._insert))
        if self._files:
            self._folders.known(FOLDER)
        return []

    @property
    def files(self) -> list[IndexFile]:
        """The files, with every entry so far."""
        self._drain()
        return self._files

    @property
    def end_offset(self) -> int:
        """Physical offset of the newest record in the index; -1 when it is empty."""
        files = self.files
        return files[-1].end_offset if files else -1

    @property
    def end_timestamp(self) -> Millis:
        files = self.files
        return files[-1].end_timestamp if files else 0

    def put(self, hashes: list[int], offset: int, timestamp: Millis) -> None:
        """Add a record's keys. A full disk ends the indexing (`broken`), never the append."""
        self.put_many([(key_hash, offset) for key_hash in hashes], timestamp)

    def put_many(self, entries: Entries, timestamp: Millis) -> None:
        """Add entries of one time, in the order of the records. Keeps them."""
        waiting = self._waiting
        if waiting and waiting[-1][0] == timestamp and type(waiting[-1][1]) is type(entries):
            waiting[-1][1].extend(entries)  # type: ignore[arg-type]
        else:
            waiting.append((timestamp, entries))
        self._waiting_count += _count(entries)
        if self._waiting_count >= MAX_WAITING:
            self._drain()

    def _drain(self) -> None:
        """Write what waits."""
        waiting = self._waiting
        if not waiting:
            return
        self._waiting, self._waiting_count = [], 0
        for timestamp, entries in waiting:
            self._write(entries, timestamp)

    def _write(self, entries: Entries, timestamp: Millis) -> None:
        if self.broken:
            return
        try:
            while entries:
                file = self._files[-1] if self._files else None
                if file is None or file.count >= file.most:
                    file = self._create(timestamp)
                room = file.most - file.count
                if not isinstance(entries, list):
                    room *= KEY_BYTES
                file.insert(entries[:room], timestamp)
                entries = entries[room:]
        except OSError as error:
            self.broken = f"the index can't be written: {error}"

    def _create(self, now: Millis) -> IndexFile:
        named = min(max(now, 0), MAX_NAMED_MS)  # a record's time may be anything
        name = datetime.fromtimestamp(named / 1000).strftime("%Y%m%d%H%M%S") + f"{named % 1000:03d}"
        last = self._files[-1] if self._files else None
        if last is not None and name <= last.name:  # the clock went back; the order of names is that of files
            name = f"{int(last.name) + 1:0{NAME_DIGITS}d}"
        path = f"{FOLDER}/{name}"
        opened = self._disk.open(path, self._bytes, sparse=True)
        self._folders.touch(FOLDER)
        try:
            opened.reserve(0, HEADER_BYTES)  # before it is read (`_load_table`)
            file = IndexFile(opened, name, self._slots, self._most, self._insert)
            if last is not None:
                last.leave()
                file.begin_timestamp = file.end_timestamp = last.end_timestamp
                file.begin_offset = file.end_offset = last.end_offset
            file.settle()
        except OSError:
            self._disk.remove(path)
            raise
        file.dirty = True
        self._files.append(file)
        return file

    def try_again(self, now: Millis) -> list[Effect]:
        """A broken index goes on when the disk has room again; what came meanwhile is not in it."""
        if self.retry_at == 0:
            self.retry_at = now + RETRY_MS
            return [Note("error", self.broken)]
        if now >= self.retry_at:
            self.retry_at = now + RETRY_MS
            self.broken = ""
        return []

    def take_dirty(self) -> list[File]:
        """The files that were written since the last call, with their headers written too."""
        taken = []
        for file in self.files:
            if file.dirty:
                file.settle()
                file.dirty = False
                taken.append(file.file)
        return taken

    def find(self, key_hash: int, most: int, begin: Millis, end: Millis) -> list[int]:
        """Physical offsets of records that may carry the key, the newest first."""
        found: list[int] = []
        for file in reversed(self.files):
            if file.begin_timestamp <= end and file.end_timestamp >= begin:
                found += file.find(key_hash, most - len(found), begin, end)
            if file.begin_timestamp < begin or len(found) >= most:
                break
        return found

    def repair(self, before: int, timestamp_of: Callable[[int], Millis]) -> None:
        """After a crash: keep what is about records before `before`, which is durable; drop the rest."""
        self._drain()
        while self._files and not self._files[-1].repair(before, timestamp_of):
            self._remove(self._files[-1])

    def drop_from(self, offset: int) -> None:
        """The log ends at `offset` now: drop what is about records from there on. OSError from the disk."""
        self._drain()
        while self._files and self._files[-1].end_offset >= offset and not self._files[-1].drop_from(offset):
            self._remove(self._files[-1])

    def remove_before(self, log_start: int) -> None:
        """Remove the files whose newest record the log has lost."""
        self._drain()
        while self._files and self._files[0].end_offset < log_start:
            self._remove(self._files[0])

    def clear(self) -> None:
        """Remove all files."""
        self._drain()
        while self._files:
            self._remove(self._files[-1])

    def _remove(self, file: IndexFile) -> None:
        self._files.remove(file)
        self._disk.remove(f"{FOLDER}/{file.name}")
        self._folders.touch(FOLDER)
