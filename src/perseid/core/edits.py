# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Sends whose properties are stored with changes: a property set, given another value, or dropped.

The ordinary handler reads such properties into a dictionary. A changed property keeps its place, a new one comes last,
and of a name that comes twice one value stays: a send with such a name is left to the handler.

    MSG_REGION, TRACE_ON, CLUSTER   get the broker's values, in the place where the sender has them
    POP_CK                          is dropped

A message that was consumed and is sent once more has them: of a consumer's retry, or of a copy to another topic.
"""

from __future__ import annotations

from typing import Any

from perseid.core.layout import ADDED_BYTES
from perseid.core.redirects import Sends
from perseid.wire.record import MAX_PROPERTIES_BYTES

compiled = not __file__.endswith(".py")

MAX_NUMBER_BYTES = 20


class EditedSends(Sends):
    """The plain sends of one turn of one broker, those with changed properties among them."""

    def __init__(self, *given: Any) -> None:
        """As `Sends`."""
        super().__init__(*given)
        self._own_spans: list[tuple[bytes, int, int]] = []
        """The broker's own properties: the name of each, and where in `_own` its value stands."""
        at = 0
        for piece in bytes(self._own).split(b"\x02")[:-1]:
            name = piece.partition(b"\x01")[0]
            self._own_spans.append((name, at + len(name) + 1, at + len(piece)))
            at += len(piece) + 1
        self._number_text = memoryview(bytearray(MAX_NUMBER_BYTES))
        self._is_edited = self._has_own = self._has_check_point = False

    def _read_properties(self) -> bool:
        self._is_edited = self._has_own = self._has_check_point = False
        if not Sends._read_properties(self):
            return False
        return not self._is_edited or self._may_edit()

    def _may_edit(self) -> bool:
        """Can the properties that were read be changed here, of a message like this?"""
        if self._code == 320 or self._unit_ms != 0 or self._is_half or self._has_empty:
            return False
        return self._q_end + len(self._own) + ADDED_BYTES <= MAX_PROPERTIES_BYTES and not self._has_repeated()

    def _read_property(self, at: int, size: int, value: int, end: int) -> bool:
        """As for all sends; takes in which ones are changed."""
        if size == 6 and self._says(at, b"POP_CK"):
            self._is_edited = self._has_check_point = True
            return True
        if self._is_own(at, size):
            self._is_edited = self._has_own = True
            return True
        return Sends._read_property(self, at, size, value, end)

    def _is_own(self, at: int, size: int) -> bool:
        """Is it one of those that the broker gives to each message?"""
        if size == 10:
            return self._says(at, b"MSG_REGION")
        if size == 8:
            return self._says(at, b"TRACE_ON")
        return size == 7 and self._says(at, b"CLUSTER")

    def _append_own(self) -> None:
        if self._has_check_point:
            self._drop(b"POP_CK")
        if not self._has_own:
            Sends._append_own(self)
        for name, begin, end in self._own_spans if self._has_own else ():
            self._set(name, self._own, begin, end)

    # ---- properties by their names ----

    def _stop_of(self, at: int) -> int:
        """Where the property that begins before `at`, or there, has its end."""
        while self._q[at] != 2:  # the last byte is one
            at += 1
        return at

    def _value_of(self, name: bytes) -> int:
        """Where the value of the property with this name begins; -1: there is none."""
        at = 0
        size = len(name)
        while at < self._q_end:
            if self._q_end - at > size and self._q[at + size] == 1 and self._says(at, name):
                return at + size + 1
            at = self._stop_of(at) + 1
        return -1

    def _set_number(self, name: bytes, number: int) -> None:
        """Give a property this number as its value."""
        self._set(name, self._number_text, 0, self._add_number(self._number_text, 0, number))

    def _set(self, name: bytes, data: memoryview, begin: int, end: int) -> None:
        """Give a property the value that stands there in `data`: in its place; a new one is put behind. There has to
        be room."""
        i = 0
        size, at = end - begin, self._value_of(name)
        if at < 0:
            at = self._q_end
            for i in range(len(name)):
                self._q[at + i] = name[i]
            at += len(name) + 1
            self._q[at - 1] = 1
            self._q_end = at + size + 1
            self._q[at + size] = 2
        else:
            self._move(self._stop_of(at), at + size)
        self._add(self._q, at, data, begin, end)

    def _drop(self, name: bytes) -> None:
        """Take out the property with this name, if there is one."""
        at = self._value_of(name)
        if at >= 0:
            self._move(self._stop_of(at) + 1, at - len(name) - 1)

    def _move(self, begin: int, to: int) -> None:
        """Move all that stands from `begin` on, and what is known of where it stands."""
        i = 0
        count, by = self._q_end - begin, to - begin
        if by < 0:
            for i in range(count):
                self._q[to + i] = self._q[begin + i]
        else:
            for i in range(count):
                self._q[to + count - 1 - i] = self._q[begin + count - 1 - i]
        self._q_end += by
        if self._unique_at >= begin:
            self._unique_at += by
            self._unique_end += by
        if self._tag_at >= begin:
            self._tag_at += by
            self._tag_end += by
        if self._keys_at >= begin:
            self._keys_at += by
            self._keys_end += by
