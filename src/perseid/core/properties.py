# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""The properties of stored records by their names, for filters that look at each record of a read.

    look_into (a window of the log) → record, properties(name) …; record, properties(name) … → let_go

`properties(name)` is as from any mapping's `get`; by the name's bytes, the core compares texts where they stand.
"""

from __future__ import annotations

from perseid.base.machine import Buffer
from perseid.core.layout import AT_BEGIN, AT_END
from perseid.core.scan import Scanner
from perseid.wire.record import FIXED_BYTES as FIXED_V4
from perseid.wire.record import MAGIC_V1, SYS_FLAG_AT, V6_MORE
from perseid.wire.record import SYS_BORN_HOST_V6 as BORN_V6
from perseid.wire.record import SYS_STORE_HOST_V6 as STORE_V6

compiled = not __file__.endswith(".py")

FLAGS_AT = SYS_FLAG_AT + 3
"""The last byte of the record's flags."""


class Properties(Scanner):
    """Of one record of the window after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._at = self._to = 0
        self._from = self._till = 0

    def look_into(self, window: Buffer) -> None:
        """The records of this window come next. It is held until `let_go`."""
        self._look_at(window)

    def let_go(self) -> None:
        """No record is looked at any more."""
        self._at = self._to = 0
        self._let_go()

    def record(self, at: int, size: int) -> bool:
        """Look at the record that stands there. False when its parts don't add up; then it has no properties."""
        end = at + size
        p = at + FIXED_V4
        flags = length = 0
        self._at = self._to = 0
        if at < 0 or size < FIXED_V4 or at > len(self._d) - size:
            return False
        flags = self._d[at + FLAGS_AT]
        p += (V6_MORE if flags & BORN_V6 else 0) + (V6_MORE if flags & STORE_V6 else 0)
        if p > end:
            return False
        length = self._int(p - 4)
        if length > end - p - 2:
            return False
        p += length
        p += 1 + self._d[p] if self._signed(at + 4) == MAGIC_V1 else 2 + self._short(p)  # the topic
        if p + 2 > end:
            return False
        self._at, self._to = p + 2, end
        return True

    def size(self) -> int:
        """Bytes of all the record's properties."""
        return self._to - self._at

    def __call__(self, name: str) -> str | None:
        """What the property says, as `wire.properties.decode` reads it: of several the last that says anything."""
        return self.value(name.encode())

    def value(self, key: bytes) -> str | None:
        """What the property with this name says."""
        return self._text(self._from, self._till - self._from) if self._find(key) else None

    def says(self, key: bytes, text: bytes) -> int:
        """Does the property say just this? 0 or 1; -1 when it is not there."""
        if not self._find(key):
            return -1
        return 1 if self._is(self._from, self._till - self._from, text) else 0

    def has(self, key: bytes, text: bytes, where: int) -> int:
        """Does the property have this text in it, at its begin, or at its end (WITHIN, AT_BEGIN, AT_END)? 0 or 1;
        -1 when it is not there."""
        size = len(text)
        if not self._find(key):
            return -1
        first, last = self._from, self._till - size
        if last < first:
            return 0
        if where == AT_BEGIN:
            last = first
        elif where == AT_END:
            first = last
        for at in range(first, last + 1):
            if self._is(at, size, text):
                return 1
        return 0

    def _find(self, key: bytes) -> bool:
        """Find what the property says: from `_from` to `_till`."""
        size = len(key)
        at = stop = self._at
        found = False
        while at < self._to:
            stop = at
            while stop < self._to and self._d[stop] != 2:
                stop += 1
            if stop - at > size + 1 and self._d[at + size] == 1 and self._is(at, size, key):
                self._from, self._till = at + size + 1, stop
                found = size > 0
            at = stop + 1
        return found

    def _text(self, begin: int, size: int) -> str:
        text = bytearray(size)
        for i in range(size):
            text[i] = self._d[begin + i]
        return text.decode("utf-8", "replace")
