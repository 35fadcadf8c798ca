# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Pulls: which earlier one a pull is like, and the records that answer it in one piece.

A consumer pulls with the same header again and again: only opaque, queue offset and commit offset change. What remains
of the header without these three numbers is the *key* of a prepared pull, in which the caller keeps what its checks
came to. A key holds every other byte, so two headers with the same key differ in nothing but the three numbers. Where
pulls have to be signed, the signature differs, too: the caller checks it.

    find → (the caller's checks) → gather → frame
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

from perseid.base.machine import Buffer
from perseid.core.layout import EXTENDED_MAX, HEADER_BYTES, HEADER_JSON, TERM_WORK, UNIT_BYTES
from perseid.core.properties import Properties
from perseid.core.scan import Scanner

compiled = not __file__.endswith(".py")

MAX_KEY_BYTES = 2048
"""A pull with a longer header is left to the ordinary handler."""
MAX_PLACES = 1024
"""Records of one answer."""
INT_MIN, INT_MAX = -(2**31), 2**31 - 1

Wants = Callable[[Callable[[str], str | None]], bool]
"""Whether a message is wanted, whose properties can be asked for by name."""
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
        self.key = b""
        """Of the frame that was looked at, `b""` when it is no pull that has one."""
        self.count = self.scanned = self.reach = self.work = 0
        """Records that were gathered, units that were looked at for them, how far the records reach from the base, and
        what their properties cost (`broker.filter.Work`)."""
        self._prepared: dict[bytes, Any] = {}
        self._found = self._key_end = self._total = 0
        self._key = memoryview(bytearray(MAX_KEY_BYTES))
        self._window = memoryview(b"")
        self._properties = Properties()
        self._places = memoryview(bytearray(8 * MAX_PLACES)).cast("q")
        self._sizes = memoryview(bytearray(8 * MAX_PLACES)).cast("q")

    def learn(self, key: bytes, prepared: Any, most: int) -> None:
        """Pulls with this key are prepared as this one. At most `most` are known."""
        if len(self._prepared) >= most:
            self._prepared.clear()
        self._prepared[key] = prepared

    def find(self, data: Buffer, at: int) -> Any:
        """What was prepared for the pull whose frame begins at `at`; None: it may be learnt by `key`."""
        total = self._look_at(data)
        is_one = self._read_pull(at, total)
        if is_one and self._must_sign:
            self.signature = bytes(self._raw[self._signature_at : self._signature_end])
        self._let_go()
        self.key = bytes(self._key[: self._key_end]) if is_one else b""
        return self._prepared.get(self.key)

    # ---- the header ----

    def _read_pull(self, at: int, total: int) -> bool:
        """Take the header apart into its key and its three numbers; False when that can't be done."""
        self._found = self._key_end = 0
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
                stop = self._text_end(p + 1, self._body)
                if stop < 0:
                    return False
                number = self._which(p + 1, stop - p - 1, depth)
                self._keep(p, stop + 1)
                p = stop + 1
                if number and p < self._body and self._d[p] == 58:
                    p = self._read_number(p + 1, number)
                    if p < 0:
                        return False
                continue
            if c == 123:
                depth += 1
            elif c == 125:
                depth -= 1
            self._keep(p, p + 1)
            p += 1
        return depth == 0

    def _read_number(self, p: int, number: int) -> int:
        """Take in the value that begins at `p`, behind the colon: one past its last digit, or -1."""
        self._keep(p - 1, p)
        if number == SIGNATURE:
            return self._read_signature(p)
        if number != OPAQUE:
            if p >= self._body or self._d[p] != 34:
                return -1
            self._keep(p, p + 1)
            p += 1
        if not self._take_number(number, p):
            return -1
        p = self._stop
        if number != OPAQUE and (p >= self._body or self._d[p] != 34):
            return -1
        if number != OPAQUE:
            self._keep(p, p + 1)
            p += 1
        return p

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

    # ---- the answer ----

    def gather(
        self,
        units: memoryview,
        window: memoryview,
        base: int,
        most: int,
        most_bytes: int,
        piece_bytes: int,
        codes: Set[int] | None,
        wants: Wants | None = None,
        terms: int = 0,
        most_work: int = 0,
    ) -> bool:
        """Find the records of consume queue units whose tag code is one of `codes` (None: all), and whose properties
        `wants` (None: any), `most` of them at most. The first one comes whatever the limits are. `wants` has so many
        `terms`, and is asked until that took `most_work`. `window` shows the log from `base` on. False when there is
        none; `scanned` is 0 when that can't be told: they take more than `piece_bytes`, or a unit does not fit the
        window."""
        total = self._look_at(units)
        end = base
        size = start = code = 0
        self.count = self.scanned = self._total = self.work = 0
        if wants is not None:
            self._properties.look_into(window)
        try:
            for at in range(0, total - UNIT_BYTES + 1, UNIT_BYTES):
                start, size = self._long(at), self._int(at + 8)
                if self.count and (self.count >= most or self._total + size > most_bytes):
                    break
                self.scanned += 1
                code = self._long(at + 12)
                if codes is not None and code > EXTENDED_MAX and code not in codes:
                    continue
                if start < end or size == 0 or size > piece_bytes - self._total or start - base > len(window) - size:
                    return self._nothing()
                if self.count >= MAX_PLACES:
                    return self._nothing()
                if wants is not None:
                    if self.work >= most_work and self.scanned > 1:
                        self.scanned -= 1
                        break
                    if not self._properties.record(start - base, size):
                        return self._nothing()
                    self.work += terms * (TERM_WORK + self._properties.size())
                    if not wants(self._properties):
                        continue
                self._places[self.count], self._sizes[self.count] = start - base, size
                self.count += 1
                self._total += size
                end = start + size
        finally:
            self._properties.let_go()
            self._let_go()
        self._window = window
        self.reach = end - base
        return self.count > 0

    def _nothing(self) -> bool:
        self.count = self.scanned = 0
        return False

    def frame(self, head: bytes) -> bytearray:
        """What was gathered behind `head`, the frame up to its header, whose length word this writes."""
        size = len(head)
        made = bytearray(size + self._total)
        made[:size] = head
        made[:4] = (size - 4 + self._total).to_bytes(4, "big")
        self._fill(memoryview(made), size, self._window)
        self._window = memoryview(b"")
        return made

    def _fill(self, out: memoryview, at: int, window: memoryview) -> int:
        for number in range(self.count):
            begin, size = self._places[number], self._sizes[number]
            for i in range(size):
                out[at + i] = window[begin + i]
            at += size
        return at
