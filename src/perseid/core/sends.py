# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""What the properties of a send say, and how they are stored.

A message with a UNIQ_KEY is stored with its properties as they came. One without gets a key; then what says nothing is
left out of its properties, as the ordinary handler does. A send is plain when none of its properties changes what is
stored (`wire.properties.CHANGING_NAMES`).
"""

from __future__ import annotations

from perseid.core.headers import HeaderReader
from perseid.core.layout import MAX_NAMES
from perseid.wire import properties as props
from perseid.wire.record import MAX_PROPERTIES_BYTES

compiled = not __file__.endswith(".py")

MAX_DIGITS = 15

CHANGING_NAMES = tuple([name.encode() for name in props.CHANGING_NAMES])


class SendReader(HeaderReader):
    """Reads one send after the other."""

    def __init__(self, own_properties: bytes, sync: bool, signed: bool) -> None:
        super().__init__(own_properties, signed)
        self._sync = sync
        self._unique_at = self._unique_end = self._tag_at = self._tag_end = self._keys_at = self._keys_end = 0
        self._has_empty = self._no_wait = False
        """Has one of the properties nothing to say? Does the sender not want to wait?"""

    def _read_send(self) -> bool:
        """Read the header of the frame that was opened, and its properties; False when it is no plain send's."""
        return self._read_header() and self._end_properties() and self._read_properties()

    # ---- properties ----

    def _end_properties(self) -> bool:
        """End the last property, as the store would (store.md §3.7); False when they are too long with the broker's own
        behind them."""
        if self._q_end > 0 and self._q[self._q_end - 1] != 2:
            self._q[self._q_end] = 2
            self._q_end += 1
        return self._q_end + len(self._own) <= MAX_PROPERTIES_BYTES

    def _append_own(self) -> None:
        """Put the broker's own properties behind those of a message that was sent alone."""
        n = self._q_end
        for i in range(len(self._own)):
            self._q[n + i] = self._own[i]
        self._q_end = n + len(self._own)

    def _read_properties(self) -> bool:
        """Find unique key, tag and keys; False when they are not plain. Of several with one name the last one counts
        that says anything (`wire.properties.get`)."""
        n = self._q_end
        at = 0
        self._unique_at = self._tag_at = self._tag_end = self._keys_at = self._keys_end = -1
        self._has_empty = self._no_wait = False
        if n > 0 and self._q[n - 1] != 2:
            return False
        while at < n:
            value = end = at
            while self._q[end] != 2:  # the last byte is one
                end += 1
            while value < end and self._q[value] != 1:
                value += 1
            if value == at or value + 1 >= end:
                self._has_empty = True
                if value < end and not self._read_empty(at, value - at):
                    return False
            elif not self._read_property(at, value - at, value + 1, end):
                return False
            at = end + 1
        return not (self._sync and self._no_wait)

    def _read_empty(self, at: int, size: int) -> bool:
        """Is a property plain that has this name, and nothing to say?"""
        return not self._is_changing(at, size)

    def _read_property(self, at: int, size: int, value: int, end: int) -> bool:
        """Take in a property, whose name begins at `at`; False when a plain send has another one."""
        if size == 8 and self._says(at, b"UNIQ_KEY"):
            self._unique_at, self._unique_end = value, end
        elif size == 4 and self._says(at, b"TAGS"):
            self._tag_at, self._tag_end = value, end
        elif size == 4 and self._says(at, b"KEYS"):
            self._keys_at, self._keys_end = value, end
        elif size == 4 and self._says(at, b"WAIT"):
            self._no_wait = end - value == 5 and self._says(value, b"false")
        else:
            return not self._is_changing(at, size)
        return True

    def _is_changing(self, at: int, size: int) -> bool:
        """Does a property of this name change what is stored?"""
        if size == 18 and self._says(at, b"_SYS_MSG_PRIORITY_"):
            return True
        if size >= 5 and 67 <= self._q[at] <= 84:  # C to T
            for i in range(len(CHANGING_NAMES)):
                changing: bytes = CHANGING_NAMES[i]
                if size == len(changing) and self._says(at, changing):
                    return True
        return False

    def _leave_out_empty(self) -> None:
        """Take those out of the properties that say nothing."""
        n = at = 0
        while at < self._q_end:
            value = end = at
            while self._q[end] != 2:
                end += 1
            while value < end and self._q[value] != 1:
                value += 1
            if at < value < end - 1:
                for i in range(at, end + 1):
                    self._q[n] = self._q[i]
                    n += 1
            at = end + 1
        self._q_end = n

    def _has_repeated(self) -> bool:
        """Does a name come twice, or are there too many to say? Each property says something."""
        at = count = 0
        while at < self._q_end:
            count += 1
            if count > MAX_NAMES or self._is_named_before(at):
                return True
            while self._q[at] != 2:
                at += 1
            at += 1
        return False

    def _is_named_before(self, at: int) -> bool:
        """Has one of the properties before `at` the name of the one that stands there?"""
        p = i = 0
        while p < at:
            i = 0
            while self._q[p + i] == self._q[at + i] and self._q[p + i] != 1:
                i += 1
            if self._q[p + i] == 1 and self._q[at + i] == 1:
                return True
            while self._q[p] != 2:
                p += 1
            p += 1
        return False

    def _digits(self, at: int, end: int) -> int:
        """The number that the value of a property is; -1 when it is none, or a long one."""
        number = 0
        if at == end or end - at > MAX_DIGITS:
            return -1
        for i in range(at, end):
            if not 48 <= self._q[i] <= 57:
                return -1
            number = number * 10 + (self._q[i] - 48)
        return number

    def _says(self, at: int, text: bytes) -> bool:
        for i in range(len(text)):
            if self._q[at + i] != text[i]:
                return False
        return True
