"""Where a log ends, and where it is damaged at its end: what stands behind the last sound record of its last segment.

| what stands there | it is |
|---|---|
| zeros, as files are prepared; less than a record's size and magic | the log's end |
| a record of which there is more a moment later, also behind what was planned to be read | it is written to: the end |
| a size and a magic that are whole, and a record that is not: cut off, or with other bytes | damage |
| anything else | damage |

A broker cuts off all of these but the first when it starts; a reader has to tell, since what was acknowledged may stand
there. Replicas that are compared are another matter (`torn_is_end`): a slave gets its log in pieces, so a record that
goes over into zeros only says that it is behind.
"""

from __future__ import annotations

import time
from struct import Struct
from typing import TYPE_CHECKING

from perseid.base.machine import Buffer
from perseid.wire import dledger
from perseid.wire.record import (
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    PHYSICAL_OFFSET_AT,
    RecordError,
    decode,
)

if TYPE_CHECKING:
    from perseid.spark.log.walk import Segment, SegmentBytes

AGAIN_MS = 100
"""A record that is being written is another after that; once for a log, and only where its end looks damaged."""
HEAD_BYTES = 8
"""Size and magic."""
SPARE_BYTES = 8192
"""Reads end at a page, behind the last byte that is not zero."""
_PAIR = Struct(">ii")
_LONG = Struct(">q")


class LogEnd:
    """Of one segment, whose records have at most so many bytes. `torn_is_end`: see above."""

    def __init__(
        self, segment: Segment, data: SegmentBytes, most_bytes: int, *, torn_is_end: bool = False
    ) -> None:
        self._segment, self._data, self._most_bytes = segment, data, most_bytes
        self._torn_is_end = torn_is_end
        self._head_bytes = dledger.ENTRY_HEADER_BYTES if segment.entries else 0

    def rest(self, place: int) -> bytes | None:
        """All that stands from there on, without the zeros at its end; None when it is too long for one record."""
        count = self._segment.limit - place
        if count > self._most_bytes + SPARE_BYTES:
            return None
        return bytes(self._data.read(place, count)).rstrip(b"\0")

    def is_at(self, place: int, rest: bytes) -> bool:
        """Does the log end here, where nothing sound stands, and `rest` is all that follows?"""
        if any(place < high and low < self._segment.limit for low, high in self._data.unreadable):
            return False
        if len(rest) < HEAD_BYTES:
            return True
        size = self._size(place, rest)
        if size is None or len(rest) > size or place + size > self._segment.end:
            return False
        if self._torn_is_end:
            return len(rest) < size
        return self._is_being_written(place, size, rest)

    def is_in(self, data: Buffer, at: int, size: int, place: int) -> bool:
        """Does it end within this record or entry, which is sound by its sizes, and not behind it?"""
        if self._is_whole(data, at) or self.rest(place + size) != b"":
            return False
        if self._torn_is_end:
            return data[at + size - 1] == 0 and not self._is_whole(data, at, check_crc=False)
        return self._is_being_written(place, size, bytes(data[at : at + size]))

    def words(self, place: int, rest: bytes) -> str | None:
        """The error text for a record of which only the beginning is there; None for anything else."""
        size = self._size(place, rest)
        if size is None or len(rest) >= size or place + size > self._segment.end:
            return None
        return f"a record of {size} bytes, and behind the first {len(rest)} are only zeros"

    def _size(self, place: int, rest: bytes) -> int | None:
        """Of the record or entry whose size and magic stand there; None when none do."""
        if len(rest) < HEAD_BYTES:
            return None
        first, second = _PAIR.unpack_from(rest)
        size, magic = (second, first) if self._segment.entries else (first, second)
        known = magic == dledger.ENTRY_MAGIC if self._segment.entries else magic in (MAGIC_V1, MAGIC_V2)
        if not known or not MIN_RECORD_BYTES <= size <= self._most_bytes:
            return None
        own_at = 24 if self._segment.entries else PHYSICAL_OFFSET_AT
        if len(rest) >= own_at + 8 and _LONG.unpack_from(rest, own_at)[0] != place:
            return None
        return int(size)

    def _is_being_written(self, place: int, size: int, seen: bytes) -> bool:
        """Is a broker at it: is there more of it now, also behind what was planned to be read, or in a moment?"""
        now = bytes(self._data.read(place, size, self._segment.end))
        if now != seen.ljust(len(now), b"\0"):
            return True
        time.sleep(AGAIN_MS / 1000)
        return bytes(self._data.read(place, size, self._segment.end)) != now

    def _is_whole(self, data: Buffer, at: int, *, check_crc: bool = True) -> bool:
        """Is the record of an event there up to the end of its properties, which has to be none of a file's zeros?"""
        try:
            record = decode(data, at + self._head_bytes, check_crc=check_crc, errors="replace")
        except RecordError:
            return False
        return not record.properties.endswith(b"\0")
