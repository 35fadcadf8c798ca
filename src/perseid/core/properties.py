# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""The properties of stored records by their names, for filters that look at each record of a read.

    look_into (a window of the log) → record, properties(name) …; record, properties(name) … → let_go
"""

from __future__ import annotations

from perseid.base.machine import Buffer
from perseid.core.layout import BORN_V6, FIXED_V4, STORE_V6, V6_MORE
from perseid.core.scan import Scanner
from perseid.wire.record import MAGIC_V1

compiled = not __file__.endswith(".py")

FLAGS_AT = 39
"""The last byte of the record's flags."""


class Properties(Scanner):
    """Of one record of the window after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._at = self._to = 0

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

    def __call__(self, name: str) -> str | None:
        """What the property says, as `wire.properties.decode` reads it: of several the last that says anything."""
        return self._value(name.encode())

    def _value(self, key: bytes) -> str | None:
        size = len(key)
        begin = end = -1
        at = stop = self._at
        while at < self._to:
            stop = at
            while stop < self._to and self._d[stop] != 2:
                stop += 1
            if stop - at > size + 1 and self._d[at + size] == 1 and self._is(at, size, key):
                begin, end = at + size + 1, stop
            at = stop + 1
        return self._text(begin, end - begin) if begin >= 0 and size > 0 else None

    def _text(self, begin: int, size: int) -> str:
        text = bytearray(size)
        for i in range(size):
            text[i] = self._d[begin + i]
        return text.decode("utf-8", "replace")
