# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""The hot path of a Raft group: entries as they stand on disk, and their text in a push (dledger.md §5, 7).

    text: bytes on disk → JSON      parse: JSON → bytes on disk      derive: bytes on disk → index units, checksums

`text` writes what `wire.dledger.Entry.json` does. `parse` takes what it and Java write, member for member; whatever is
written in another way, or is more than a run of one term, it leaves to the ordinary decoder.

Trust: nothing is believed. Each head has to follow from the one before, each size is compared with what is left, each
character of a body with what base64 may hold.
"""

from __future__ import annotations

from perseid.base.machine import Buffer
from perseid.core.scan import Scanner
from perseid.wire.dledger import ENTRY_HEADER_BYTES as HEAD_BYTES
from perseid.wire.dledger import ENTRY_MAGIC
from perseid.wire.dledger import INDEX_UNIT_BYTES as UNIT_BYTES
from perseid.wire.hashing import crc32_raw

compiled = not __file__.endswith(".py")

CRC_BYTES = 4
TEXT_BYTES = 256
"""Of an entry's text but for its body, at most."""
START_BYTES = 1 << 16
KEEP_BYTES = 4 << 20
"""A buffer that a large push made longer than this is let go after it."""
MAX_ENTRIES = 10_000
"""Of one push."""
INT_MAX = 2**31 - 1
INVALID = 128
LETTERS = memoryview(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
VALUES = memoryview(bytes(bytes(LETTERS).find(c) if c in bytes(LETTERS) else INVALID for c in range(256)))

BATCH = memoryview(b'{"batchEntry":[')
BODY, BODY_CRC, CHAIN_CRC = memoryview(b'{"body":"'), memoryview(b'","bodyCrc":0'), memoryview(b',"chainCrc":0')
CHANNEL, INDEX, MAGIC = memoryview(b',"channel":'), memoryview(b',"index":'), memoryview(b',"magic":1')
POS, SIZE, TERM = memoryview(b',"pos":'), memoryview(b',"size":'), memoryview(b',"term":')


class Entries(Scanner):
    """Reads and writes runs of entries. What the last call found: `count` entries, in `taken` bytes of what it was
    given; the first one's `index`, `pos` and `term`."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.taken = self.index = self.pos = self.term = 0
        self._next = self._at = 0
        self._out = memoryview(bytearray(START_BYTES))
        self._out_end = 0

    # ---- on disk → JSON ----

    def text(self, data: Buffer, most: int) -> bytes:
        """The texts, with commas between them, of the entries that `data` begins with: as many as begin before `most`
        bytes are over."""
        at, total = 0, self._look_at(data)
        self.count = self._out_end = 0
        while at < total and at < most and self.count < MAX_ENTRIES and self._head_at(at, total):
            self._room(TEXT_BYTES + (self._end - at) // 3 * 4)
            if self.count:
                self._out[self._out_end] = 44
                self._out_end += 1
            self._put_text(at)
            self.count += 1
            at = self._end
        self.taken = at
        self._let_go()
        return self._found()

    def derive(self, data: Buffer) -> tuple[bytes, bytes]:
        """The index units and the checksums of the entries that `data` consists of."""
        at, total = 0, self._look_at(data)
        self.count = self._out_end = 0
        crcs = []
        while at < total and self._head_at(at, total):
            self._room(UNIT_BYTES)
            self._put_unit(at)
            crcs.append((crc32_raw(self._raw[at + HEAD_BYTES : self._end]) or 1).to_bytes(CRC_BYTES, "big"))
            self.count += 1
            at = self._end
        self.taken = at
        self._let_go()
        return self._found(), b"".join(crcs)

    def _found(self) -> bytes:
        """What was put out."""
        found = bytes(memoryview(self._out)[: self._out_end])
        if len(self._out) > KEEP_BYTES:
            self._out = memoryview(bytearray(START_BYTES))
        return found

    def _room(self, more: int) -> None:
        """Make room for so many bytes more."""
        if self._out_end + more > len(self._out):
            new = memoryview(bytearray(max(self._out_end + more, 2 * len(self._out))))
            new[: self._out_end] = self._out[: self._out_end]
            self._out = new

    def _head_at(self, at: int, total: int) -> bool:
        """Does a whole entry stand at `at`, the next one after that before? `_end` is where it ends."""
        size = 0
        if total - at < HEAD_BYTES or self._int(at) != ENTRY_MAGIC:
            return False
        size = self._int(at + 4)
        if size > total - at or size != HEAD_BYTES + self._int(at + 44) or size < HEAD_BYTES:
            return False
        if self._long(at + 8) < 0 or self._long(at + 16) < 0 or self._long(at + 24) < 0:
            return False
        if self.count and (self._long(at + 8) != self._next or self._long(at + 24) != self._at):
            return False
        if self.count == 0:
            self.index, self.term, self.pos = self._long(at + 8), self._long(at + 16), self._long(at + 24)
        self._next, self._at = self._long(at + 8) + 1, self._long(at + 24) + size
        self._end = at + size
        return True

    def _put_text(self, at: int) -> int:
        self._say(BODY)
        self._encode(at + HEAD_BYTES, self._end)
        self._say(BODY_CRC)
        self._say(CHAIN_CRC)
        self._say(CHANNEL)
        self._put_digits(self._signed(at + 32))
        self._say(INDEX)
        self._put_digits(self._long(at + 8))
        self._say(MAGIC)
        self._say(POS)
        self._put_digits(self._long(at + 24))
        self._say(SIZE)
        self._put_digits(self._int(at + 4))
        self._say(TERM)
        self._put_digits(self._long(at + 16))
        self._out[self._out_end] = 125
        self._out_end += 1
        return self._out_end

    def _put_unit(self, at: int) -> int:
        """magic, pos, size, index, term"""
        end = self._out_end
        self._copy(end, at, 4)
        self._copy(end + 4, at + 24, 8)
        self._copy(end + 12, at + 4, 4)
        self._copy(end + 16, at + 8, 16)
        self._out_end = end + UNIT_BYTES
        return self._out_end

    def _copy(self, to: int, at: int, count: int) -> int:
        for i in range(count):
            self._out[to + i] = self._d[at + i]
        return to + count

    def _say(self, text: memoryview) -> int:
        for i in range(len(text)):
            self._out[self._out_end + i] = text[i]
        self._out_end += len(text)
        return self._out_end

    def _put_digits(self, number: int) -> int:
        """Write a number of at most 19 digits."""
        rest, end = 0, self._out_end + 1
        if number < 0:
            self._out[end - 1] = 45
            end += 1
            number = -number
        rest = number
        while rest >= 10:
            rest //= 10
            end += 1
        self._out_end = end
        while True:
            end -= 1
            self._out[end] = 48 + number % 10
            number //= 10
            if number == 0:
                return end

    def _encode(self, at: int, end: int) -> int:
        """Write bytes as base64."""
        to = self._out_end
        word = 0
        while at + 3 <= end:
            word = self._d[at] << 16 | self._d[at + 1] << 8 | self._d[at + 2]
            self._out[to], self._out[to + 1] = LETTERS[word >> 18], LETTERS[word >> 12 & 63]
            self._out[to + 2], self._out[to + 3] = LETTERS[word >> 6 & 63], LETTERS[word & 63]
            at += 3
            to += 4
        if at < end:
            word = self._d[at] << 16 | (self._d[at + 1] << 8 if at + 2 == end else 0)
            self._out[to], self._out[to + 1] = LETTERS[word >> 18], LETTERS[word >> 12 & 63]
            self._out[to + 2], self._out[to + 3] = LETTERS[word >> 6 & 63] if at + 2 == end else 61, 61
            to += 4
        self._out_end = to
        return to

    # ---- JSON → on disk ----

    def parse(self, data: Buffer) -> bytes:
        """The entries of the batch that a push carries, when they are a run of one term; `taken` is where the rest of
        the push begins: the next member's name, behind the batch's bracket and a comma. b"" when it is anything
        else."""
        at, total = len(BATCH), self._look_at(data)
        self.count = self._out_end = 0
        self._room(total + HEAD_BYTES)
        if not self._says(0, total, BATCH):
            at = -1
        while at >= 0:
            at = self._parse_one(at, total)
            if at < 0 or at + 2 >= total or self.count >= MAX_ENTRIES:
                at = -1
            elif self._d[at] == 44:
                at += 1
            elif self._d[at] == 93 and self._d[at + 1] == 44 and self._d[at + 2] == 34:
                break
            else:
                at = -1
        self._let_go()
        self.taken = at + 2
        if at < 0:
            self._out_end = 0
        return self._found()

    def _parse_one(self, at: int, total: int) -> int:
        """Take the entry whose text begins at `at`: where it ends; -1 when it is none, or not the next one."""
        head, size = self._out_end, 0
        channel = index = pos = term = 0
        if not self._says(at, total, BODY):
            return -1
        at = self._decode(at + len(BODY), total)
        if at < 0 or not self._says(at, total, BODY_CRC):
            return -1
        size = self._out_end - head
        at += len(BODY_CRC)
        if not self._says(at, total, CHAIN_CRC):
            return -1
        channel = self._member(at + len(CHAIN_CRC), total, CHANNEL)
        index = self._member(self._stop, total, INDEX)
        if self._stop < 0 or not self._says(self._stop, total, MAGIC):
            return -1
        pos = self._member(self._stop + len(MAGIC), total, POS)
        if self._member(self._stop, total, SIZE) != size:
            return -1
        term = self._member(self._stop, total, TERM)
        at = self._stop
        if at < 0 or at >= total or self._d[at] != 125 or channel > INT_MAX:
            return -1
        if self.count == 0:
            self.index, self.pos, self.term = index, pos, term
        elif index != self._next or pos != self._at or term != self.term:
            return -1
        self._put_head(head, size, channel, index, pos, term)
        self._next, self._at = index + 1, pos + size
        self.count += 1
        return at + 1

    def _put_head(self, at: int, size: int, channel: int, index: int, pos: int, term: int) -> int:
        """magic, size, index, term, pos, channel, two checksums that nobody knows, size of the body"""
        at = self._put_number(at, 4, ENTRY_MAGIC)
        at = self._put_number(at, 4, size)
        at = self._put_number(at, 8, index)
        at = self._put_number(at, 8, term)
        at = self._put_number(at, 8, pos)
        at = self._put_number(at, 4, channel)
        at = self._put_number(at, 8, 0)
        return self._put_number(at, 4, size - HEAD_BYTES)

    def _put_number(self, at: int, count: int, number: int) -> int:
        for i in range(count):
            self._out[at + count - 1 - i] = number & 0xFF
            number >>= 8
        return at + count

    def _says(self, at: int, total: int, text: memoryview) -> bool:
        """Does `text` stand at `at`?"""
        if at < 0 or total - at < len(text):
            return False
        for i in range(len(text)):
            if self._d[at + i] != text[i]:
                return False
        return True

    def _member(self, at: int, total: int, name: memoryview) -> int:
        """The number that follows `name` at `at`; -1 when it does not stand there, or has a sign. `_stop`: its end."""
        number = 0
        if not self._says(at, total, name):
            self._stop = -1
            return -1
        number = self._number(at + len(name), total)
        if number < 0:
            self._stop = -1
        return number if self._stop >= 0 else -1

    def _decode(self, at: int, total: int) -> int:
        """Write what the base64 text that begins at `at` stands for, behind room for a head: its closing quote; -1 when
        it has none, or another character."""
        to, wrong, word, a, b = self._out_end + HEAD_BYTES, 0, 0, 0, 0
        while at + 4 <= total and self._d[at] != 34:
            a, b = VALUES[self._d[at + 2]], VALUES[self._d[at + 3]]
            if b & INVALID and self._d[at + 3] == 61 and at + 4 < total and self._d[at + 4] == 34:
                break
            wrong |= VALUES[self._d[at]] | VALUES[self._d[at + 1]] | a | b
            word = VALUES[self._d[at]] << 18 | VALUES[self._d[at + 1]] << 12 | a << 6 | b
            self._out[to], self._out[to + 1], self._out[to + 2] = word >> 16 & 255, word >> 8 & 255, word & 255
            at += 4
            to += 3
        if at + 4 < total and self._d[at] != 34:  # the last one or two bytes
            wrong |= VALUES[self._d[at]] | VALUES[self._d[at + 1]]
            word = VALUES[self._d[at]] << 18 | VALUES[self._d[at + 1]] << 12
            self._out[to] = word >> 16 & 255
            to += 1
            if self._d[at + 2] != 61:
                wrong |= VALUES[self._d[at + 2]]
                word |= VALUES[self._d[at + 2]] << 6
                self._out[to] = word >> 8 & 255
                to += 1
            if word & (0xFFFF if self._d[at + 2] == 61 else 0xFF):  # bits that nobody encodes
                return -1
            at += 4
        self._out_end = to
        return at if at < total and self._d[at] == 34 and not wrong & INVALID else -1
