"""Entries by the run: many at a time as they stand on disk, one behind the other, and never an object for each.

With the compiled core (`perseid.core.entries`) the core reads and writes them; without it plain Python does the same,
but for reading a push, which the ordinary decoder does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any

from perseid import core
from perseid.base.errors import RequestRefused
from perseid.base.machine import Buffer
from perseid.wire.dledger import ENTRY_HEADER, ENTRY_HEADER_BYTES, ENTRY_MAGIC, INDEX_UNIT, Entry, PushEntryRequest
from perseid.wire.hashing import crc32_raw

CRC_UNIT = Struct(">I")
_pack_unit, _pack_crc = INDEX_UNIT.pack, CRC_UNIT.pack
BATCH_HINT = b'{"batchEntry":[{'
"""What a push begins with that carries more than one entry."""


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive entries of one term, the first of which is `index` and stands at `pos`."""

    data: bytes
    index: int
    count: int
    pos: int
    term: int

    @property
    def last(self) -> int:
        return self.index + self.count - 1

    def entries(self) -> Iterator[Entry]:
        """One after the other."""
        return entries_in(self.data)


@dataclass(frozen=True, slots=True)
class Text:
    """Entries as a push carries them: so many, which take `size` bytes on disk."""

    json: bytes
    count: int
    size: int


class RunPush(PushEntryRequest):
    """A push whose entries came as a run."""

    run: Any = None
    """A `Run`; what a sender calls so is never looked at."""

    @property
    def entries(self) -> list[Entry]:
        if not self.batch_entry:
            self.batch_entry = list(self.run.entries())
        return self.batch_entry

    @property
    def first(self) -> int:
        return int(self.run.index)

    @property
    def count(self) -> int:
        return int(self.run.count)

    @property
    def body_bytes(self) -> int:
        return len(self.run.data)


def entries_in(data: Buffer) -> Iterator[Entry]:
    """The entries that stand in `data`, as far as they are whole and each is the next one."""
    view, at = memoryview(data), 0
    index = pos = -1
    while len(view) - at >= ENTRY_HEADER_BYTES:
        magic, size, number, term, place, channel, _, _, body_bytes = ENTRY_HEADER.unpack_from(view, at)
        if magic != ENTRY_MAGIC or size != ENTRY_HEADER_BYTES + body_bytes:
            return
        if not ENTRY_HEADER_BYTES <= size <= len(view) - at or min(number, term, place) < 0:
            return
        if at and (number, place) != (index + 1, pos):
            return
        index, pos = number, place + size
        yield Entry(number, term, place, bytes(view[at + ENTRY_HEADER_BYTES : at + size]), magic, channel, size)
        at += size


def checksum(body: Buffer) -> int:
    """Of a body; never 0."""
    return crc32_raw(body) or 1


class PlainRuns:
    """In plain Python."""

    def text(self, data: Buffer, most: int) -> Text:
        """Of the entries that `data` begins with: as many as begin before `most` bytes are over."""
        texts, size = [], 0
        for entry in entries_in(data):
            if size >= most:
                break
            texts.append(entry.json())
            size += entry.disk_bytes
        return Text(",".join(texts).encode(), len(texts), size)

    def derived(self, data: Buffer) -> tuple[bytes, bytes]:
        """The index units and the checksums of the entries that `data` consists of."""
        units, crcs = [], []
        for entry in entries_in(data):
            units.append(_pack_unit(ENTRY_MAGIC, entry.pos, entry.disk_bytes, entry.index, entry.term))
            crcs.append(_pack_crc(checksum(entry.body)))
        return b"".join(units), b"".join(crcs)

    def push(self, body: Buffer) -> RunPush | None:
        """A push whose entries are a run; None: decode it in the ordinary way."""
        return None


class CoreRuns:
    """The same by the compiled core."""

    def __init__(self, compiled: core.Core) -> None:
        self._core = compiled.entries.Entries()

    def text(self, data: Buffer, most: int) -> Text:
        json = self._core.text(data, most)
        return Text(json, self._core.count, self._core.taken)

    def derived(self, data: Buffer) -> tuple[bytes, bytes]:
        units, crcs = self._core.derive(data)
        return units, crcs

    def push(self, body: Buffer) -> RunPush | None:
        if bytes(body[: len(BATCH_HINT)]) != BATCH_HINT:
            return None
        found = self._core
        data = found.parse(body)
        if not data:
            return None
        run = Run(data, found.index, found.count, found.pos, found.term)
        rest = bytes(body[found.taken :])
        if b"batchEntry" in rest or b"\\" in rest:  # named a second time: the last one counts
            return None
        try:
            request = RunPush.from_json(b"{" + rest)
        except RequestRefused:
            return None
        if request.batch_entry or request.entry is not None:
            return None
        request.run = run
        return request


def runs() -> CoreRuns | PlainRuns:
    """The quickest way that there is."""
    return PlainRuns() if core.compiled is None else CoreRuns(core.compiled)
