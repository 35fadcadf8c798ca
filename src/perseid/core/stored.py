# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Where the parts of a stored record stand: what all that reads records of a log, or of a pull's answer, shares.

Trust: nothing is believed. Each length is compared with what is left before it is followed.
"""

from __future__ import annotations

from perseid.core.scan import Scanner
from perseid.wire.hashing import crc32_raw
from perseid.wire.record import FIXED_BYTES as FIXED_V4
from perseid.wire.record import MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, STORE_TIMESTAMP_AT, SYS_FLAG_AT, V6_MORE
from perseid.wire.record import MIN_RECORD_BYTES as MIN_BYTES
from perseid.wire.record import SYS_BORN_HOST_V6 as BORN_V6
from perseid.wire.record import SYS_STORE_HOST_V6 as STORE_V6

compiled = not __file__.endswith(".py")

INT_MAX, SHORT_MAX = 2**31 - 1, 2**15 - 1


class Stored(Scanner):
    """The record that was looked at last."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes`: of one record, with what stands before it."""
        super().__init__()
        self._most_bytes = most_bytes
        self._record = self._size = self._topic_at = self._topic_end = 0
        self._properties_at = self._properties_end = self._stored_at = 0

    def _parts(self, at: int, left: int, place: int) -> bool:
        """Find the parts of the record at `at`, which stands at `place` of the log (below 0: anywhere); False when they
        don't add up."""
        size = magic = p = flags = 0
        if left < MIN_BYTES:
            return False
        size = self._int(at)
        if size < MIN_BYTES or size > left or size > self._most_bytes:
            return False
        magic = self._signed(at + 4)
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            return False
        if place >= 0 and self._long(at + PHYSICAL_OFFSET_AT) != place:
            return False
        flags = self._int(at + SYS_FLAG_AT)
        self._stored_at = at + STORE_TIMESTAMP_AT + (V6_MORE if flags & BORN_V6 else 0)
        self._body = at + FIXED_V4 + (V6_MORE if flags & BORN_V6 else 0) + (V6_MORE if flags & STORE_V6 else 0)
        left = at + size - self._body
        if left < 3:
            return False
        p = self._int(self._body - 4)
        if p > left - 3:
            return False
        self._end = self._body + p
        if magic == MAGIC_V1:
            self._topic_at = self._end + 1
            p = self._d[self._end]
        else:
            self._topic_at = self._end + 2
            p = self._short(self._end)
        if p > SHORT_MAX or p > at + size - self._topic_at - 2:
            return False
        self._topic_end = self._topic_at + p
        self._properties_at = self._topic_end + 2
        self._properties_end = at + size
        p = self._short(self._topic_end)
        self._record, self._size = at, size
        return p <= SHORT_MAX and self._properties_at + p == self._properties_end

    def _matches(self) -> bool:
        """Does the body have the checksum that the record says?"""
        crc = 0
        if self._end == self._body:
            return True
        crc = crc32_raw(self._raw[self._body : self._end])
        return (crc & INT_MAX) == self._int(self._record + 8)

    def _is_utf8(self, at: int, end: int) -> bool:
        """Is this text what Python's strict decoder takes?"""
        d = self._d
        high = c = more = 0
        for i in range(at, end):
            high |= d[i]
        if high < 128:
            return True
        while at < end:
            c = d[at]
            if c < 0x80:
                at += 1
                continue
            more = 1 if 0xC2 <= c <= 0xDF else 2 if 0xE0 <= c <= 0xEF else 3 if 0xF0 <= c <= 0xF4 else 0
            if more == 0 or end - at <= more:
                return False
            high = d[at + 1]
            if (c == 0xE0 and high < 0xA0) or (c == 0xED and high > 0x9F):
                return False
            if (c == 0xF0 and high < 0x90) or (c == 0xF4 and high > 0x8F):
                return False
            for i in range(at + 1, at + more + 1):
                if d[i] & 0xC0 != 0x80:
                    return False
            at += more + 1
        return True
