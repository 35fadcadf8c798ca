# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Texts of a request, decoded: those of JSON with its escapes, and properties in UTF-8.

A text that is not UTF-8, and an escape that stands for half a character, are left to the ordinary decoder, which knows
what takes their place.
"""

from __future__ import annotations

from perseid.core.layout import MAX_TEXT_BYTES
from perseid.core.signers import SignedReader
from perseid.wire.record import MAX_PROPERTIES_BYTES

compiled = not __file__.endswith(".py")

SPARE_BYTES = 8
"""Behind the longest properties: for a last separator, and for the rest of a character."""
HIGH, LOW, BEHIND = 0xD800, 0xDC00, 0xDFFF
"""Where high and low surrogates begin, and the last of those."""


class TextReader(SignedReader):
    """`_q` holds the properties that were read last: those of a header, then those of each message of a batch."""

    def __init__(self, own_properties: bytes, signed: bool) -> None:
        super().__init__(signed)
        self._own = memoryview(own_properties)
        self._q = memoryview(bytearray(MAX_PROPERTIES_BYTES + SPARE_BYTES))
        self._q_end = self._said_end = 0
        """Where the properties end: as they are to be stored, and as they were sent."""
        self._is_escaped = False
        """Does the text that was passed last have escapes?"""

    # ---- JSON ----

    def _past_spaces(self, at: int, end: int) -> int:
        """The first byte from `at` on that is no white space of JSON."""
        while at < end and (self._d[at] == 32 or self._d[at] == 10 or self._d[at] == 13 or self._d[at] == 9):
            at += 1
        return at

    def _value_end(self, at: int, end: int) -> int:
        """The closing quote of the text that begins at `at`, or -1."""
        c = 0
        self._is_escaped = False
        while at < end:
            c = self._d[at]
            if c == 34:
                return at
            if c < 32:
                return -1
            if c == 92:
                self._is_escaped = True
                if self._escape(at, end) < 0:
                    return -1
                at = self._stop
            elif c < 128:
                at += 1
            else:
                c = self._character(at, end)
                if c == 0:
                    return -1
                at += c
        return -1

    def _unescape(self, at: int, end: int) -> int:
        """Write the text that begins at `at` into `_q`; its closing quote, or -1."""
        n = code = 0
        most = MAX_PROPERTIES_BYTES - len(self._own)
        while at < end and n < most:
            c = self._d[at]
            if c == 34:
                self._q_end = self._said_end = n
                return at
            if c < 32:
                return -1
            if c < 128 and c != 92:
                self._q[n] = c
                n += 1
                at += 1
                continue
            if c == 92:
                code = self._escape(at, end)
                if code < 0:
                    return -1
                n = self._put_character(n, code)
                at = self._stop
                continue
            code = self._character(at, end)
            if code == 0:
                return -1
            for i in range(code):
                self._q[n + i] = self._d[at + i]
            n += code
            at += code
        return -1

    def _escape(self, at: int, end: int) -> int:
        """The character that the escape at `at` stands for, or -1; `_stop` is behind it."""
        c = self._d[at + 1] if end - at > 1 else 0
        self._stop = at + 2
        if c == 117:  # \uXXXX
            return self._escaped_unit(at, end)
        if c == 34 or c == 92 or c == 47:
            return c
        if c == 110:
            return 10
        if c == 116:
            return 9
        if c == 114:
            return 13
        if c == 98:
            return 8
        return 12 if c == 102 else -1

    def _escaped_unit(self, at: int, end: int) -> int:
        """The same of an escape by number, or of two of them that stand for one character."""
        low = 0
        code = self._hex_number(at + 2, end)
        self._stop = at + 6
        if code < HIGH or code > BEHIND:
            return code
        if code >= LOW or end - at < 12 or self._d[at + 6] != 92 or self._d[at + 7] != 117:
            return -1
        low = self._hex_number(at + 8, end)
        self._stop = at + 12
        return 0x10000 + ((code - HIGH) << 10) + (low - LOW) if LOW <= low <= BEHIND else -1

    def _hex_number(self, at: int, end: int) -> int:
        """The number that four hex digits say, or -1."""
        number = digit = 0
        if end - at < 4:
            return -1
        for i in range(at, at + 4):
            digit = _hex(self._d[i])
            if digit > 15:
                return -1
            number = number << 4 | digit
        return number

    def _put_character(self, n: int, code: int) -> int:
        """Write a character into `_q` in UTF-8; where the next one goes."""
        if code < 0x80:
            self._q[n] = code
            return n + 1
        if code < 0x800:
            self._q[n] = 0xC0 | code >> 6
        else:
            if code < 0x10000:
                self._q[n] = 0xE0 | code >> 12
            else:
                self._q[n], self._q[n + 1] = 0xF0 | code >> 18, 0x80 | (code >> 12 & 63)
                n += 1
            self._q[n + 1] = 0x80 | (code >> 6 & 63)
            n += 1
        self._q[n + 1] = 0x80 | (code & 63)
        return n + 2

    # ---- properties ----

    def _take_properties(self, at: int, end: int) -> bool:
        """Copy the properties that stand between into `_q`; False when they are too long or no UTF-8."""
        size = end - at
        bits = 0
        if size > MAX_PROPERTIES_BYTES - len(self._own):
            return False
        for i in range(size):
            self._q[i] = self._d[at + i]
            bits |= self._d[at + i]
        self._q_end = self._said_end = size
        return bits < 128 or self._is_utf8(at, end)

    def _put_apart(self, at: int) -> int:
        """The properties, whose JSON has escapes."""
        if self._said_end > MAX_TEXT_BYTES - at:
            return -1
        for i in range(self._said_end):
            self._text_space[at + i] = self._q[i]
        return at + self._said_end


def _hex(c: int) -> int:
    """The value of a hex digit; 64 for what is none."""
    return c - 48 if 48 <= c <= 57 else c - 87 if 97 <= c <= 102 else c - 55 if 65 <= c <= 70 else 64
