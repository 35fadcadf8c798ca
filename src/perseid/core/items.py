# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Rows of Arrow columns in, the items of batch sends out: what the sink's `spark/encode.py` does, many rows a call.

A `Lane` is what one task sends to one queue, in order. An item is a message of a batch (wire/batch.py):

    total 4   0 4   0 4   flag 0 4   body's size 4   body   properties' size 2   properties

    properties: UNIQ_KEY \\x01 prefix, sequence (12 hex digits) \\x02 WAIT \\x01 true \\x02 tail
                PERSEID_STAMP \\x01 …: sequence : digest (8 hex digits) \\x02

The tail is what the row's own columns give. The digest is the CRC32 over bodies and tails of all items so far.
"""

from __future__ import annotations

from collections.abc import Sequence

from perseid.wire.batch import MIN_ITEM_BYTES
from perseid.wire.hashing import crc32_raw
from perseid.wire.properties import MAX_BYTES

compiled = not __file__.endswith(".py")

START_BYTES = 1 << 16
ID_DIGITS, DIGEST_DIGITS, MOST_DIGITS = 12, 8, 20
LONG_BODY_BYTES = 256
"""A longer body's checksum is made by the library, which is quicker by far, but has to be called."""
ALL_BITS = 0xFFFFFFFF
POLYNOMIAL = 0xEDB88320
WAIT = memoryview(b"\x02WAIT\x01true\x02")
HEX_ID = memoryview(b"0123456789ABCDEF")
HEX_DIGEST = memoryview(b"0123456789abcdef")


def _table() -> memoryview:
    """CRC32 of each byte."""
    found = memoryview(bytearray(4 * 256)).cast("I")
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
        found[byte] = crc
    return found


TABLE = _table()


class Lane:
    """One queue's items, until they are taken."""

    def __init__(self, unique: bytes, stamp: bytes) -> None:
        """`unique` and `stamp` are what stands before the sequence in either property; no stamp: none is written."""
        self._unique, self._stamp = memoryview(unique), memoryview(stamp)
        self._data = memoryview(bytearray(START_BYTES))
        self._digits = memoryview(bytearray(MOST_DIGITS))
        self.sequence = self.first = 0
        """Of the next item, and of the first one that waits."""
        self.waiting = self.size = 0
        """Items, and their bytes."""
        self.digest = 0

    def take(self) -> bytes:
        """What waits; then nothing does."""
        found = bytes(self._data[: self.size])
        self.waiting = self.size = 0
        return found

    def put(
        self, raw: object, b: memoryview, body: int, body_end: int, t: memoryview, tail: int, tail_end: int, most: int,
        room: int,
    ) -> bool:
        """Add an item, unless `most` of them or `room` bytes would be passed, or its properties are too long."""
        length = len(self._unique) + ID_DIGITS + len(WAIT) + tail_end - tail
        count = at = 0
        number = self.sequence
        if len(self._stamp):
            while count == 0 or number:
                self._digits[count] = 48 + number % 10
                number = number // 10
                count += 1
            length += len(self._stamp) + count + 1 + DIGEST_DIGITS + 1
        total = MIN_ITEM_BYTES + body_end - body + length
        if length > MAX_BYTES:
            return False
        if self.waiting and (self.waiting >= most or self.size + total > room):
            return False
        self._room(total)
        if self.waiting == 0:
            self.first = self.sequence
        self.digest = self._crc(raw, b, body, body_end, t, tail, tail_end)
        data, at = self._data, self.size
        _put_int(data, at, total)
        _put_int(data, at + 4, 0)
        _put_int(data, at + 8, 0)
        _put_int(data, at + 12, 0)
        _put_int(data, at + 16, body_end - body)
        at = _copy(data, at + 20, b, body, body_end)
        data[at] = length >> 8
        data[at + 1] = length & 0xFF
        at = _copy(data, at + 2, self._unique, 0, len(self._unique))
        at = _put_hex(data, at, self.sequence, ID_DIGITS, HEX_ID)
        at = _copy(data, at, WAIT, 0, len(WAIT))
        at = _copy(data, at, t, tail, tail_end)
        if len(self._stamp):
            at = _copy(data, at, self._stamp, 0, len(self._stamp))
            while count:
                count -= 1
                data[at] = self._digits[count]
                at += 1
            data[at] = 58
            at = _put_hex(data, at + 1, self.digest, DIGEST_DIGITS, HEX_DIGEST)
            data[at] = 2
        self.size += total
        self.waiting += 1
        self.sequence += 1
        return True

    def _room(self, more: int) -> None:
        if self.size + more > len(self._data):
            data = memoryview(bytearray(max(self.size + more, 2 * len(self._data))))
            data[: self.size] = self._data[: self.size]
            self._data = data

    def _crc(
        self, raw: object, b: memoryview, body: int, body_end: int, t: memoryview, tail: int, tail_end: int
    ) -> int:
        """The checksum of all items, with one more."""
        crc = self.digest
        if body_end - body > LONG_BODY_BYTES:
            crc = crc32_raw(raw[body:body_end], crc)  # type: ignore[index, call-arg]
        else:
            crc = _crc(crc, b, body, body_end)
        return _crc(crc, t, tail, tail_end)


def spread(
    lanes: list[Lane], where: Sequence[int], body_ends: Sequence[int], raw: object, tail_ends: Sequence[int],
    tails: memoryview, at: int, rows: int, most: int, room: int,
) -> int:
    """Add rows from `at` on, each to the lane that `where` says, until one does not take its row; which row that is, or
    `rows`. `…_ends`: where each row's bytes begin, and where the last one's end."""
    bodies: memoryview = raw  # type: ignore[assignment]
    while at < rows:
        lane = lanes[where[at]]
        if not lane.put(
            raw, bodies, body_ends[at], body_ends[at + 1], tails, tail_ends[at], tail_ends[at + 1], most, room
        ):
            break
        at += 1
    return at


def _crc(crc: int, data: memoryview, at: int, end: int) -> int:
    crc = crc ^ ALL_BITS
    while at < end:
        crc = crc >> 8 ^ TABLE[(crc ^ data[at]) & 0xFF]
        at += 1
    return crc ^ ALL_BITS


def _put_int(data: memoryview, at: int, number: int) -> None:
    data[at] = number >> 24 & 0xFF
    data[at + 1] = number >> 16 & 0xFF
    data[at + 2] = number >> 8 & 0xFF
    data[at + 3] = number & 0xFF


def _put_hex(data: memoryview, at: int, number: int, digits: int, alphabet: memoryview) -> int:
    """Write a number with so many digits; where the next byte goes."""
    for i in range(digits):
        data[at + digits - 1 - i] = alphabet[number & 15]
        number = number >> 4
    return at + digits


def _copy(out: memoryview, at: int, data: memoryview, begin: int, end: int) -> int:
    """Copy bytes; where the next ones go."""
    for i in range(end - begin):
        out[at + i] = data[begin + i]
    return at + end - begin
