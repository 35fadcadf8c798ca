# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Received bytes, read one frame at a time: what the core's readers share.

Nothing in a read is believed. Each length is compared with what is left; a text ends at its quote or is none.
"""

from __future__ import annotations

from perseid.base.machine import Buffer
from perseid.core.layout import HEADER_BINARY, HEADER_BYTES
from perseid.wire import frame

compiled = not __file__.endswith(".py")

MAX_DIGITS = 18
SIGN_BIT = 1 << 31
MAX_FRAME_BYTES = frame.MAX_FRAME_BYTES
NOTHING = memoryview(b"")


def complete(buf: Buffer, start: int = 0) -> int:
    """As `wire.frame.complete`, which it leaves all to but reads of whole frames."""
    end = _whole(buf, start)  # type: ignore[arg-type]
    return end if end >= 0 else frame.complete(buf, start)


def _whole(d: memoryview, at: int) -> int:
    """The end of the buffer, if nothing but whole frames stands in it from `at` on; -1 when anything is otherwise."""
    total = len(d)
    length = word = 0
    while at >= 0 and total - at >= 8:
        length = d[at] << 24 | d[at + 1] << 16 | d[at + 2] << 8 | d[at + 3]
        word = d[at + 5] << 16 | d[at + 6] << 8 | d[at + 7]
        if length > MAX_FRAME_BYTES or length < 4 + word or d[at + 4] > HEADER_BINARY:
            return -1
        at += 4 + length
        if at == total:
            return at
    return -1


class Scanner:
    """Where the parts of the frame are that is looked at, and what its bytes say."""

    def __init__(self) -> None:
        self._raw: Buffer = b""
        self._d = NOTHING
        self._stop = self._serializer = 0
        self._head = self._body = self._end = 0
        """Where header and body begin, and where the frame ends."""

    def _look_at(self, data: Buffer) -> int:
        """Read from `data` from now on; its length."""
        self._raw, self._d = data, data  # type: ignore[assignment]
        return len(self._d)

    def _let_go(self) -> None:
        """The buffer belongs to its owner again."""
        self._raw, self._d = b"", NOTHING

    def _open(self, at: int, total: int) -> bool:
        """Find the parts of the frame at `at`; False when it does not end before `total`, or has an unknown header."""
        if at < 0 or total - at < 8:
            return False
        word = self._int(at + 4)
        self._serializer = word >> 24
        self._head = at + 8
        self._body = at + 8 + (word & 0xFFFFFF)
        self._end = at + 4 + self._int(at)
        return self._body <= self._end <= total and self._serializer <= HEADER_BINARY

    # ---- numbers ----

    def _int(self, at: int) -> int:
        """4 bytes, without a sign."""
        first = self._d[at]
        return first << 24 | self._d[at + 1] << 16 | self._d[at + 2] << 8 | self._d[at + 3]

    def _signed(self, at: int) -> int:
        """4 bytes, with a sign."""
        return (self._int(at) ^ SIGN_BIT) - SIGN_BIT

    def _long(self, at: int) -> int:
        """8 bytes, with a sign."""
        return self._signed(at) << 32 | self._int(at + 4)

    def _short(self, at: int) -> int:
        """2 bytes, without a sign."""
        return self._d[at] << 8 | self._d[at + 1]

    # ---- JSON ----

    def _name_end(self, at: int, end: int) -> int:
        """The closing quote of the member's name that begins at `at`; then follow a colon and a value. Or -1."""
        if at >= end or self._d[at] != 34:
            return -1
        p = self._text_end(at + 1, end)
        return p if p > at + 1 and p + 3 < end and self._d[p + 1] == 58 else -1

    def _text_end(self, at: int, end: int) -> int:
        """The closing quote of a text of ASCII without escapes that begins at `at`, or -1."""
        while at < end:
            c = self._d[at]
            if c == 34:
                return at
            if c < 32 or c > 126 or c == 92:
                return -1
            at += 1
        return -1

    def _number(self, at: int, end: int) -> int:
        """The number that begins at `at`, as JSON writes it; `_stop` says where it ends, -1 when there is none."""
        number = 0
        begin = at
        negative = at < end and self._d[at] == 45
        if negative:
            at += 1
            begin += 1
        while at < end and 48 <= self._d[at] <= 57 and at - begin < MAX_DIGITS:
            number = number * 10 + (self._d[at] - 48)
            at += 1
        self._stop = at
        if at == begin or (self._d[begin] == 48 and (at > begin + 1 or negative)):
            self._stop = -1
        return -number if negative else number

    def _is(self, at: int, size: int, text: bytes) -> bool:
        """Do these bytes of the read say `text`?"""
        if size != len(text):
            return False
        for i in range(size):
            if self._d[at + i] != text[i]:
                return False
        return True

    # ---- UTF-8 ----

    def _character(self, at: int, end: int) -> int:
        """How many bytes the character has that begins at `at`, and is not ASCII; 0 when it is no UTF-8."""
        first, left = self._d[at], end - at
        second = self._d[at + 1] if left > 1 else 0
        size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
        if first < 0xC2 or first > 0xF4 or left < size or second & 0xC0 != 0x80:
            return 0
        if (first == 0xE0 and second < 0xA0) or (first == 0xF0 and second < 0x90):  # in fewer bytes
            return 0
        if (first == 0xED and second > 0x9F) or (first == 0xF4 and second > 0x8F):  # half a character, or none at all
            return 0
        if (size > 2 and self._d[at + 2] & 0xC0 != 0x80) or (size > 3 and self._d[at + 3] & 0xC0 != 0x80):
            return 0
        return size

    def _is_utf8(self, at: int, end: int) -> bool:
        """Are these bytes UTF-8?"""
        size = 0
        while at < end:
            if self._d[at] < 128:
                at += 1
                continue
            size = self._character(at, end)
            if size == 0:
                return False
            at += size
        return True

    # ---- the binary form ----

    def _pairs(self) -> bool:
        """Is the binary header that of a request without a remark, as long as its ext fields say?"""
        at = self._head
        if self._body - at < HEADER_BYTES:
            return False
        return self._int(at + 13) == 0 and self._int(at + 17) == self._body - at - HEADER_BYTES

    def _pair(self, at: int) -> int:
        """Where the value of the pair at `at` begins; `_stop` is its end, the same place when it says nothing. -1 when
        it does not end within the header, has a name that is not ASCII, or none, or a value that is not UTF-8."""
        bits = 0
        end = self._body
        if end - at < 2:
            return -1
        name = at + 2 + self._short(at)
        if end - name < 4 or name == at + 2:
            return -1
        value = name + 4
        size = self._int(name)
        if size > end - value:
            return -1
        self._stop = value + size
        for i in range(at + 2, name):
            if self._d[i] > 126:
                return -1
        for i in range(value, value + size):
            bits |= self._d[i]
        return value if bits < 128 or self._is_utf8(value, value + size) else -1
