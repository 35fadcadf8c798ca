"""Where the records of a segment stand: read in order from its first byte, or from any place in its middle.

**The walk.** From a segment's first byte a walk goes from *event* to event. At each place there is one of

    record    what stands there is sound (`core.columns`): the next event begins where it ends
    blank     the mark that no record fits any more: nothing follows
    stretch   neither: the next event is the first place behind it at which something is sound

So the events tile the segment, and what a place begins depends on the bytes from there on alone, not on how the walk
came there. A segment's rows are by definition those of the walk from its first byte.

**Splits.** A split has the events that begin within it. To know the first one it would have to walk from the segment's
first byte. `Walk.begin` finds the same place from nearby, for any bytes whatsoever, also for bodies that hold records
that claim to stand where they stand: let W be the size that no record exceeds, and A = [a, a+W) a window before the
split. Take (1) each place in A at which something is sound, and (2) the first such place at or behind a+W.

    The walk from the segment's first byte passes through one of them. If a record of it begins in A, that is one of
    (1). Otherwise no record of it reaches from before A to behind it, as none is longer than W; so at a+W the walk is
    in a stretch, which by definition ends at (2).

So when the walks from all of them come to the same first event of the split, that is it. Otherwise the window moves
back, to twice the distance, until they agree; at worst it reaches the segment's first byte, where there is but one
walk. In a log as brokers write it the first window, of some 4 MiB, is enough; a sender who knows where his
message will stand can make a split read more, up to the segment's part before it, but never read wrongly.
(tests/spark/log/test_walk.py draws logs with such messages, damaged ones and both.)

**The end.** The last segment that holds anything ends at zeros, or in a record that is being written: that is no damage
(`torn`). Any other end without a blank is.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from struct import Struct
from typing import Any

from perseid.base.machine import Buffer
from perseid.spark.log.rows import Rows
from perseid.spark.log.torn import LogEnd
from perseid.wire import dledger
from perseid.wire.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    PHYSICAL_OFFSET_AT,
)

CHUNK_BYTES = 4 << 20
"""Read at a time."""
PAGE_BYTES = 4096
"""Around a place that can't be read, so much is given up."""
_PAIR = Struct(">ii")
_LONG = Struct(">q")


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a log. All places are offsets of the log."""

    path: str
    start: int
    """Its first byte."""
    end: int
    """Behind its last byte."""
    limit: int
    """What is read ends here: at `end`, but the last segment is read as far as it was when it was planned."""
    entries: bool
    """Its records stand in a DLedger group's entries."""
    is_last: bool
    """No later segment of the log holds anything."""

    def where(self, place: int) -> str:
        """How messages name a place."""
        return f"{self.path}: at byte {place - self.start}"


class SegmentBytes:
    """The bytes of a segment; those that the disk can't give are zeros, and remembered."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        self.unreadable: list[tuple[int, int]] = []
        """Places, from and to."""

    def __enter__(self) -> SegmentBytes:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)

    def read(self, place: int, count: int, stop: int | None = None) -> Buffer:
        """The bytes from `place` on: `count`, or up to `stop`, or else to the limit."""
        segment = self._segment
        count = max(0, min(count, (segment.limit if stop is None else stop) - place))
        buffer = bytearray(count)
        view = memoryview(buffer)
        done = 0
        while done < count:
            try:
                got = self._pread(view[done:], place + done - segment.start)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                return self._by_pages(place, count)
            if got == 0:
                break  # the file became shorter: zeros stand for the rest
            done += got
        return buffer

    def _by_pages(self, place: int, count: int) -> Buffer:
        """The same, page by page, with zeros for those that can't be read."""
        buffer = bytearray(count)
        view = memoryview(buffer)
        start = self._segment.start
        at = 0
        while at < count:
            size = min(PAGE_BYTES - (place + at - start) % PAGE_BYTES, count - at)
            try:
                self._pread(view[at : at + size], place + at - start)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                self._remember(place + at, place + at + size)
            at += size
        return buffer

    def _remember(self, begin: int, end: int) -> None:
        if not any(low <= begin and end <= high for low, high in self.unreadable):
            self.unreadable.append((begin, end))

    def _pread(self, into: memoryview, at: int) -> int:
        return os.preadv(self._fd, [into], at)


class Walk:
    """Events of one segment. `torn_is_end`: a record that goes over into zeros at the log's end is no damage."""

    def __init__(
        self, segment: Segment, data: SegmentBytes, rows: Rows, most_bytes: int, *, torn_is_end: bool = False
    ) -> None:
        self.segment, self._data, self._rows, self._most_bytes = segment, data, rows, most_bytes
        self._end = LogEnd(segment, data, most_bytes, torn_is_end=torn_is_end)
        self._near: tuple[int, Buffer] = (0, b"")
        """Bytes that were read, and where they begin."""

    # ---- events ----

    def _bytes(self, place: int, count: int) -> tuple[Buffer, int]:
        """A buffer with `count` bytes from `place` on, or as many as there are; and where in it they begin."""
        base, data = self._near
        end = min(place + count, self.segment.limit)
        if not base <= place <= end <= base + len(data):
            base, data = place, self._data.read(place, max(count, 2 * self._most_bytes))
            self._near = base, data
        return data, place - base

    def sound(self, place: int) -> int:
        """The size of what stands there, if it is sound; -1 else."""
        data, at = self._bytes(place, 8)
        if len(data) - at < 8:
            return -1
        size = _PAIR.unpack_from(data, at)[1 if self.segment.entries else 0]
        if not 0 < size <= self._most_bytes:
            return -1
        data, at = self._bytes(place, max(size, dledger.ENTRY_HEADER_BYTES))
        return self._rows.sound(data, at, place - at)

    def search(self, place: int, stop: int | None = None) -> int | None:
        """The first place from there on, and before `stop`, at which something is sound."""
        stop = self.segment.limit if stop is None else min(stop, self.segment.limit)
        while place < stop:
            count = min(CHUNK_BYTES, stop - place)
            data, at = self._bytes(place, count + self._most_bytes)
            found = self._rows.find(data, at, min(at + count, len(data)), place - at)
            if found >= 0:
                return place + found - at
            place += count
        return None

    def is_blank(self, place: int) -> bool:
        """Does the mark stand there that no record fits any more?"""
        data, at = self._bytes(place, 8)
        if len(data) - at < 8:
            return False
        first, second = _PAIR.unpack_from(data, at)
        if self.segment.entries:
            return bool(first == dledger.BLANK_MAGIC and second >= self.segment.end - place)
        return bool(second == BLANK_MAGIC and first >= self.segment.end - place)

    def next(self, place: int) -> int:
        """Where the event ends that begins there."""
        size = self.sound(place)
        if size > 0:
            return place + size
        found = None if self.is_blank(place) else self.search(place + 1)
        return self.segment.limit if found is None else found

    def begin(self, place: int) -> int:
        """The first event at `place` or behind it of the walk from the segment's first byte (see above)."""
        segment, back = self.segment, self._most_bytes
        while place - back > segment.start:
            found = self._meet(self._starts(place - back), place)
            if len(found) == 1:
                return found.pop()
            back *= 2
        return self._meet([(segment.start, self.next(segment.start))], place).pop()

    def _starts(self, low: int) -> list[tuple[int, int]]:
        """Where a walk may be that comes from before the window at `low`, and where the events at these places end."""
        high = low + self._most_bytes
        data, at = self._bytes(low, 2 * self._most_bytes)
        places, ends = self._rows.marks(data, at, min(at + high - low, len(data)), low - at)
        behind = self.search(high)
        last = (self.segment.limit,) * 2 if behind is None else (behind, self.next(behind))
        return [*zip(places, ends, strict=True), last]

    def _meet(self, starts: list[tuple[int, int]], place: int) -> set[int]:
        """Where the walks from these places, which are in order, come to at or behind `place`."""
        walks: list[int] = []
        for begin, end in starts:
            self._walk_on(walks, min(begin, place))
            if begin >= place:
                heappush(walks, begin)
            elif not walks or walks[0] != begin:
                heappush(walks, end)
            elif len(walks) == 1:
                walks[0] = end
            else:
                while walks and walks[0] == begin:
                    heappop(walks)
                heappush(walks, end)
        self._walk_on(walks, place)
        return set(walks)

    def _walk_on(self, walks: list[int], place: int) -> None:
        """Let each of these walks, a heap, go on to `place` or behind it."""
        while walks and walks[0] < place:
            at = heappop(walks)
            while walks and walks[0] == at:
                heappop(walks)
            heappush(walks, self.next(at))

    # ---- rows ----

    def batches(self, begin: int, end: int) -> Iterator[Any]:
        """The rows of the events that begin from `begin` on and before `end`, in order, as record batches."""
        rows = self._rows
        place = self.segment.start if begin <= self.segment.start else self.begin(begin)
        self._near = 0, b""
        base, data = place, self._data.read(place, CHUNK_BYTES)
        while place < end:
            if rows.full:
                yield rows.batch()
            if place - base >= len(data):
                base, data = place, self._data.read(place, CHUNK_BYTES)
            place = base + rows.read(data, place - base, min(len(data), end - base), base)
            if place >= end or rows.full:
                continue
            missing = self._missing(data, place - base, base)
            if missing:
                base, data = place, self._data.read(place, max(missing, CHUNK_BYTES))
                continue
            place = self._odd(data, place - base, base)
        if rows.count:
            yield rows.batch()

    def _missing(self, data: Buffer, at: int, base: int) -> int:
        """How many bytes from `at` on have to be read to see what stands there; 0 when it can be seen."""
        left = len(data) - at
        if base + len(data) >= self.segment.limit:
            return 0
        if left < dledger.ENTRY_HEADER_BYTES:
            return CHUNK_BYTES
        size = int(_PAIR.unpack_from(data, at)[1 if self.segment.entries else 0])
        return size if left < size <= self._most_bytes and base + at + size <= self.segment.limit else 0

    def _odd(self, data: Buffer, at: int, base: int) -> int:
        """A row for what is no plain record; where the next event begins."""
        place, segment = base + at, self.segment
        size = self._rows.sound(data, at, base)
        if size > 0:
            if segment.is_last and self._end.is_in(data, at, size, place):
                return segment.limit
            self._rows.odd(data, at, base, segment.where(place))
            return place + size
        if self.is_blank(place):
            return segment.limit
        found = self.search(place + 1)
        end, why = segment.limit if found is None else found, None
        if found is None and segment.is_last:
            rest = self._end.rest(place)
            if rest is not None:
                if self._end.is_at(place, rest):
                    return end
                end, why = place + max(1, len(rest)), self._end.words(place, rest)
        why = why or self._why(place, end)
        self._rows.hole(place, f"{segment.where(place)}: {end - place} bytes are no record: {why}")
        return segment.limit if found is None else found

    def _why(self, place: int, end: int) -> str:
        """Why nothing stands there."""
        for low, high in self._data.unreadable:
            if place < high and low < end:
                return f"bytes {low - self.segment.start} to {high - self.segment.start} can't be read from the disk"
        data, at = self._bytes(place, dledger.ENTRY_HEADER_BYTES)
        left = min(end - place, len(data) - at)
        if left < 8 or not any(bytes(data[at : at + min(left, PAGE_BYTES)])):
            return "zeros, and the log goes on behind them" if left >= 8 else "too few for one"
        first, second = _PAIR.unpack_from(data, at)
        size, magic = (second, first) if self.segment.entries else (first, second)
        if magic not in ((dledger.ENTRY_MAGIC,) if self.segment.entries else (MAGIC_V1, MAGIC_V2)):
            return f"magic {magic & 0xFFFFFFFF:08x}"
        if not MIN_RECORD_BYTES <= size <= self._most_bytes:
            return f"a size of {size} bytes"
        if place + size > self.segment.end:
            return f"a size of {size} bytes, and the file ends after {self.segment.end - place}"
        own_at = 24 if self.segment.entries else PHYSICAL_OFFSET_AT
        own = _LONG.unpack_from(data, at + own_at)[0] if len(data) - at >= own_at + 8 else place
        if own != place:
            return f"it says that it stands at {own}, not at {place}"
        return f"its parts don't add up to its size of {size} bytes"
