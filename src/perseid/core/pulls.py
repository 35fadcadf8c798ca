# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Pulls: which earlier one a pull is like.

A consumer pulls with the same header again and again: only opaque, queue offset and commit offset change. What remains
of the header without these three numbers is the *key* of a prepared pull, in which the caller keeps what its checks
came to. A key holds every other byte, so two headers with the same key differ in nothing but the three numbers. Where
pulls have to be signed, the signature differs, too: the caller checks it. What answers them is `core.pull_answers`.
"""

from __future__ import annotations

from typing import Any

from perseid.base.machine import Buffer
from perseid.core.layout import HEADER_BYTES, HEADER_JSON
from perseid.core.scan import Scanner

compiled = not __file__.endswith(".py")

MAX_KEY_BYTES = 2048
"""A pull with a longer header is left to the ordinary handler."""
MAX_MEMBERS = 64
"""Ext fields that are put in order; a pull with more is known by the order in which they came."""
INT_MIN, INT_MAX = -(2**31), 2**31 - 1

OPAQUE, QUEUE_OFFSET, COMMIT_OFFSET, SIGNATURE, ALL = 1, 2, 4, 8, 7


class Pulls(Scanner):
    """The pulls of one broker."""

    def __init__(self, signed: bool) -> None:
        """`signed`: one without a signature has no key."""
        super().__init__()
        self._wanted = ALL | SIGNATURE if signed else ALL
        self._must_sign = signed
        self._signature_at = self._signature_end = 0
        self.signature = b""
        """Of the pull that was found, where they have to be signed."""
        self.end = self.opaque = self.queue_offset = self.commit_offset = 0
        """Of the pull that was found: where its frame ends, and its three numbers."""
        self.keys: tuple[bytes, ...] = ()
        """Of the frame that was looked at: its bytes without the numbers, and the same with its ext fields in the order
        of their names, where they came in another one. None when it is no pull that has one."""
        self._prepared: dict[bytes, Any] = {}
        self._found = self._key_end = 0
        self._key_bytes = bytearray(MAX_KEY_BYTES)
        self._key = memoryview(self._key_bytes)
        self._spare = memoryview(bytearray(MAX_KEY_BYTES))
        self._members = 0
        """Members of the ext fields whose ends in the key are known; -1: there is something else between them."""
        self._begins = memoryview(bytearray(8 * MAX_MEMBERS)).cast("q")
        self._ends = memoryview(bytearray(8 * MAX_MEMBERS)).cast("q")

    def learn(self, key: bytes, prepared: Any, most: int) -> None:
        """Pulls with this key are prepared as this one. At most `most` are known."""
        if len(self._prepared) >= most:
            self._prepared.clear()
        self._prepared[key] = prepared

    def find(self, data: Buffer, at: int) -> Any:
        """What was prepared for the pull whose frame begins at `at`; None: it may be learnt by `key`."""
        total = self._look_at(data)
        try:
            return self._find(at, total)
        finally:
            self._let_go()

    def _find(self, at: int, total: int) -> Any:
        """The same in the read that is looked at."""
        self.keys = ()
        if not self._read_pull(at, total):
            return None
        if self._must_sign:
            self.signature = bytes(self._raw[self._signature_at : self._signature_end])
        key = bytes(self._key_bytes[: self._key_end])
        self.keys = (key,)
        found = self._prepared.get(key)
        if found is not None or not self._sort_members():
            return found
        self.keys = key, bytes(self._key_bytes[: self._key_end])
        return self._prepared.get(self.keys[1])

    # ---- the header ----

    def _read_pull(self, at: int, total: int) -> bool:
        """Take the header apart into its key and its three numbers; False when that can't be done."""
        self._found = self._key_end = self._members = 0
        if not self._open(at, total) or self._body != self._end or self._end - self._head > MAX_KEY_BYTES:
            return False
        self.end = self._end
        if not (self._read_json() if self._serializer == HEADER_JSON else self._read_binary()):
            return False
        return self._found == self._wanted and INT_MIN <= self.opaque <= INT_MAX

    def _read_json(self) -> bool:
        p = self._head
        depth = 0
        while p < self._body:
            c = self._d[p]
            if c == 34:
                p = self._read_text(p, depth)
                if p < 0:
                    return False
                continue
            if depth == 2 and (c == 44 or c == 125):
                self._end_member(c == 44)
            self._keep(p, p + 1)
            p += 1
            if c == 123:
                depth += 1
                self._begin_members(depth)
            elif c == 125:
                depth -= 1
            elif c == 91:
                self._members = -1
        return depth == 0

    def _begin_members(self, depth: int) -> int:
        """An object begins: the ext fields, if it is the only one in the header."""
        if depth == 2 and self._members == 0:
            self._begins[0] = self._key_end
        elif depth > 1:
            self._members = -1
        return self._members

    def _end_member(self, more: bool) -> int:
        """A member of the ext fields ends, and another one begins."""
        if self._members >= 0:
            self._ends[self._members] = self._key_end
            self._members += 1
            if self._members >= MAX_MEMBERS:
                self._members = -1
            elif more:
                self._begins[self._members] = self._key_end + 1
        return self._members

    def _sort_members(self) -> bool:
        """Put the ext fields of the key in the order of their names; False when they can't be, or are so already. Two
        of one name can't: the order says which counts."""
        moved = False
        if self._members < 2:
            return False
        first, last = self._begins[0], self._ends[self._members - 1]
        for i in range(1, self._members):
            begin, end, at = self._begins[i], self._ends[i], i
            while at > 0:
                order = self._compare(begin, end, self._begins[at - 1], self._ends[at - 1])
                if order == 0:
                    return False
                if order > 0:
                    break
                self._begins[at], self._ends[at] = self._begins[at - 1], self._ends[at - 1]
                at -= 1
                moved = True
            self._begins[at], self._ends[at] = begin, end
        if not moved:
            return False
        to = first
        for i in range(self._members):
            for p in range(self._begins[i], self._ends[i]):
                self._spare[to] = self._key[p]
                to += 1
            self._spare[to] = 44
            to += 1
        for p in range(first, last):
            self._key[p] = self._spare[p]
        return True

    def _compare(self, a: int, a_end: int, b: int, b_end: int) -> int:
        """How the names of two members stand, in quotes; 0: they are the same, or one is none."""
        if a >= a_end or b >= b_end or self._key[a] != 34 or self._key[b] != 34:
            return 0
        a, b = a + 1, b + 1
        while a < a_end and b < b_end:
            c, d = self._key[a], self._key[b]
            if c != d:
                return 1 if c > d else -1
            if c == 34:
                return 0
            a, b = a + 1, b + 1
        return 0

    def _read_text(self, p: int, depth: int) -> int:
        """Take in the text that begins at `p`, and the number behind it if it names one: where the next thing stands,
        or -1. A name has no escapes, and nothing but ASCII: another spelling of a number's name would not be seen. A
        value is compared as it stands."""
        stop = self._text_end(p + 1, self._body)
        if stop < 0:
            stop = self._value_end(p + 1)
            if stop < 0 or self._is_name(stop + 1):
                return -1
            self._keep(p, stop + 1)
            return stop + 1
        number = self._which(p + 1, stop - p - 1, depth)
        self._keep(p, stop + 1)
        p = stop + 1
        return self._read_number(p + 1, number) if number and p < self._body and self._d[p] == 58 else p

    def _value_end(self, at: int) -> int:
        """The closing quote of a text of whatever characters that begins at `at`, or -1."""
        while at < self._body:
            c = self._d[at]
            if c == 34:
                return at
            at += 2 if c == 92 else 1
        return -1

    def _is_name(self, at: int) -> bool:
        """Does a colon follow, behind blanks?"""
        while at < self._body and self._d[at] <= 32:
            at += 1
        return at < self._body and self._d[at] == 58

    def _read_number(self, p: int, number: int) -> int:
        """Take in the value that begins at `p`, behind the colon: one past its last digit or quote, or -1."""
        self._keep(p - 1, p)
        if number == SIGNATURE:
            return self._read_signature(p)
        quoted = number != OPAQUE and p < self._body and self._d[p] == 34
        if quoted:
            self._keep(p, p + 1)
            p += 1
        if not self._take_number(number, p) or self._stop >= self._body:
            return -1
        p = self._stop
        c = self._d[p]
        if quoted and c == 34:
            self._keep(p, p + 1)
            return p + 1
        return p if not quoted and (c == 44 or c == 125 or c <= 32) else -1

    def _read_signature(self, p: int) -> int:
        """Take in the signature whose text begins at `p`: one past its quote, or -1."""
        end = -1
        if p < self._body and self._d[p] == 34:
            end = self._text_end(p + 1, self._body)
        return end + 1 if end >= 0 and self._take_signature(p + 1, end) else -1

    def _take_signature(self, at: int, end: int) -> bool:
        """Take in the signature, once."""
        if self._found & SIGNATURE:
            return False
        self._found |= SIGNATURE
        self._signature_at, self._signature_end = at, end
        return True

    def _read_binary(self) -> bool:
        at = self._head
        if not self._pairs():
            return False
        self._keep(at, at + 5)
        self._keep(at + 9, at + 13)
        self.opaque, self._found = self._signed(at + 5), OPAQUE
        at += HEADER_BYTES
        while at < self._body:
            value = self._pair(at)
            end = self._stop
            if value < 0:
                return False
            number = self._which(at + 2, value - at - 6, 2)
            if number == SIGNATURE:
                self._keep(at, value - 4)
                if not self._take_signature(value, end):
                    return False
            elif number:
                self._keep(at, value - 4)
                if not self._take_number(number, value) or self._stop != end:
                    return False
            else:
                self._keep(at, end)
            at = end
        return True

    def _which(self, at: int, size: int, depth: int) -> int:
        """What a member of this name is, in the header (1) or its ext fields (2): a number, or SIGNATURE; 0: none."""
        if depth == 1 and self._is(at, size, b"opaque"):
            return OPAQUE
        if depth == 2 and self._is(at, size, b"queueOffset"):
            return QUEUE_OFFSET
        if depth == 2 and self._is(at, size, b"commitOffset"):
            return COMMIT_OFFSET
        if self._must_sign and depth == 2 and self._is(at, size, b"Signature"):
            return SIGNATURE
        return 0

    def _take_number(self, number: int, at: int) -> bool:
        """Take in one of the three numbers, once; `_stop` is where it ends."""
        value = self._number(at, self._body)
        if self._stop < 0 or self._found & number:
            return False
        self._found |= number
        if number == OPAQUE:
            self.opaque = value
        elif number == QUEUE_OFFSET:
            self.queue_offset = value
        else:
            self.commit_offset = value
        return True

    def _keep(self, begin: int, end: int) -> int:
        """Bytes of the key, which is never longer than the header."""
        n = self._key_end - begin
        for i in range(begin, end):
            self._key[n + i] = self._d[i]
        self._key_end = n + end
        return self._key_end
