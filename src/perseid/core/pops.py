# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""POP: which earlier request a pop or an acknowledgement is like, and acknowledgements of one checkpoint in a row.

Headers are JSON: the codes of POP do not fit into a binary one. A consumer sends the same header again and again. What
changes is cut out of it: the opaque, the offset, the handle (`extraInfo`), the time of birth and the signature. What
remains is the *key* of a prepared request, in which the caller keeps what its checks came to.

Consumers acknowledge message by message what they popped together. Those acknowledgements differ in opaque, offset and
the last part of their handles. They make a *run*: the caller begins it at the first one, `take` adds the others.

    find → (the caller's checks) → begin → take → (the caller stores the run's offsets, and sends its answers)
"""

from __future__ import annotations

from perseid.base.machine import Buffer
from perseid.core.layout import CUT_BORN_TIME, CUT_HANDLE, CUT_OFFSET, CUT_OPAQUE, CUT_SIGNED, HEADER_JSON
from perseid.core.scan import Scanner

compiled = not __file__.endswith(".py")

MAX_KEY_BYTES = 2048
"""A request with a longer header is left to the ordinary handler."""
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
MAX_DIGITS = 18
"""Of the number at the end of a handle."""
ACK = CUT_OPAQUE | CUT_OFFSET | CUT_HANDLE
"""What is cut out of an acknowledgement that nobody signed."""
NO_RUN = memoryview(b"")


class Pops(Scanner):
    """The requests of POP that one broker gets."""

    def __init__(self, before: bytes, behind: bytes) -> None:
        """`before` and `behind` stand around the opaque of an acknowledgement's answer, which begins with its length
        words; they count an opaque of no digits."""
        super().__init__()
        self._before, self._behind = before[8:], behind
        self._frame_bytes = int.from_bytes(before[:4], "big")
        self._header_bytes = int.from_bytes(before[4:8], "big")
        self.end = self.opaque = self.offset = self.born_time = self.found = 0
        """Of the request that was looked at: where its frame ends, its numbers, and which fields were cut out."""
        self._handle_at = self._handle_end = self._stem_end = self._signature_at = self._signature_end = 0
        self._key_end = 0
        self._key = memoryview(bytearray(MAX_KEY_BYTES))
        self._run_key = self._run_stem = NO_RUN
        self._left: set[int] = set()
        self._room = 0
        self.offsets: list[int] = []
        """Of the run, each once, in the order in which they came."""
        self.count = 0
        """The acknowledgements of the run."""
        self._answers = bytearray()

    def find(self, data: Buffer, at: int) -> bytes:
        """Look at the request whose frame begins at `at`: its key, b"" when it has none."""
        total = self._look_at(data)
        is_one = self._read(at, total)
        self._let_go()
        return bytes(self._key[: self._key_end]) if is_one else b""

    def handle(self, data: Buffer) -> bytes:
        """The handle of the request that was found last in `data`."""
        return bytes(data[self._handle_at : self._handle_end])

    def signature(self, data: Buffer) -> bytes:
        """The signature of the request that was found last in `data`."""
        return bytes(data[self._signature_at : self._signature_end])

    # ---- runs ----

    def begin(self, data: Buffer, left: set[int], room: int) -> bool:
        """Begin a run at the acknowledgement that was found last in `data`: of messages that are `left` of its
        checkpoint, at most `room` acknowledgements. False when its handle does not end with a number."""
        if self._stem_end <= self._handle_at:
            return False
        self._run_key = memoryview(bytes(self._key[: self._key_end]))
        self._run_stem = memoryview(bytes(data[self._handle_at : self._stem_end]))
        self._left, self._room = left, room
        self.offsets, self.count = [], 0
        self._answers = bytearray()
        return True

    def take(self, data: Buffer, at: int) -> int:
        """Add to the run what belongs to it from `at` on: where that ends."""
        total = self._look_at(data)
        while self.count < self._room and self._read(at, total) and self._is_of_run():
            if self.offset in self._left:
                self._left.discard(self.offset)
                self.offsets.append(self.offset)
            elif self.offset not in self.offsets:
                break
            self._answer()
            at = self._end
        self._let_go()
        return at

    def answers(self) -> bytes:
        """The frames that answer the run, which ends."""
        made = bytes(self._answers)
        self._run_key = self._run_stem = NO_RUN
        self._room = 0
        return made

    def _is_of_run(self) -> bool:
        if self.found != ACK or self._key_end != len(self._run_key):
            return False
        size = self._stem_end - self._handle_at
        if size != len(self._run_stem):
            return False
        for i in range(size):
            if self._d[self._handle_at + i] != self._run_stem[i]:
                return False
        for i in range(self._key_end):
            if self._key[i] != self._run_key[i]:
                return False
        return True

    def _answer(self) -> None:
        digits = b"%d" % self.opaque
        size = len(digits)
        self._answers += (self._frame_bytes + size << 32 | self._header_bytes + size).to_bytes(8, "big")
        self._answers += self._before
        self._answers += digits
        self._answers += self._behind
        self.count += 1

    # ---- the header ----

    def _read(self, at: int, total: int) -> bool:
        """Take the header apart into its key and what changes; False when that can't be done."""
        self.found = self._key_end = 0
        self._handle_at = self._handle_end = self._stem_end = self._signature_at = self._signature_end = 0
        if not self._open(at, total) or self._body != self._end or self._body - self._head > MAX_KEY_BYTES:
            return False
        self.end = self._end
        return self._serializer == HEADER_JSON and self._read_json() and INT_MIN <= self.opaque <= INT_MAX

    def _read_json(self) -> bool:
        p = kept = self._head
        depth = field = 0
        while p < self._body:
            c = self._d[p]
            if c == 34:
                begin = p + 1
                p = self._text_end(begin, self._body) + 1
                if p <= 0:
                    return False
                if p < self._body and self._d[p] == 58:
                    field = self._which(begin, p - 1 - begin, depth)
                    if field:
                        p += 1
                        self._keep(kept, p)
                        kept = p = self._cut(field, p)
                        if p < 0:
                            return False
                continue
            if c == 123:
                depth += 1
            elif c == 125:
                depth -= 1
            p += 1
        self._keep(kept, self._body)
        return depth == 0 and self.found & CUT_OPAQUE != 0

    def _which(self, at: int, size: int, depth: int) -> int:
        """The field that a name says, whose value is cut out; 0: none."""
        if depth == 1:
            return CUT_OPAQUE if self._is(at, size, b"opaque") else 0
        if depth != 2:
            return 0
        if size == 6:
            return CUT_OFFSET if self._is(at, size, b"offset") else 0
        if size == 8:
            return CUT_BORN_TIME if self._is(at, size, b"bornTime") else 0
        if size == 9:
            if self._is(at, size, b"extraInfo"):
                return CUT_HANDLE
            return CUT_SIGNED if self._is(at, size, b"Signature") else 0
        return 0

    def _cut(self, field: int, p: int) -> int:
        """Take in the value that begins at `p`, once: one past its end, or -1."""
        if self.found & field:
            return -1
        self.found |= field
        if field == CUT_OPAQUE:
            self.opaque = self._number(p, self._body)
            p = self._stop
            return p if 0 < p < self._body and (self._d[p] == 44 or self._d[p] == 125) else -1
        if p >= self._body or self._d[p] != 34:
            return -1
        p += 1
        end = self._text_end(p, self._body)
        if end < 0:
            return -1
        if field == CUT_HANDLE:
            self._take_handle(p, end)
        elif field == CUT_SIGNED:
            self._signature_at, self._signature_end = p, end
        else:
            value = self._number(p, end)
            if self._stop != end:
                return -1
            if field == CUT_OFFSET:
                self.offset = value
            else:
                self.born_time = value
        return end + 1

    def _take_handle(self, at: int, end: int) -> None:
        """Where a handle stands, and where the number begins that it ends with."""
        self._handle_at, self._handle_end = at, end
        p = end
        while p > at and 48 <= self._d[p - 1] <= 57:
            p -= 1
        if p > at and p < end and end - p <= MAX_DIGITS and self._d[p - 1] == 32:
            self._stem_end = p

    def _keep(self, begin: int, end: int) -> None:
        """Bytes of the key, which is never longer than the header."""
        n = self._key_end - begin
        for i in range(begin, end):
            self._key[n + i] = self._d[i]
        self._key_end = n + end
