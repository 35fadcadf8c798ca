# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""The records of a pull's answer as the objects that a client hands out, many a call.

    read(answer, at, found) → where the first record begins that is not taken; the others are in `found`

A message gets bytes of its own: its record, as it came. What is in it is read when somebody asks (`body_of`,
`properties_of`), so a message that is only counted or sent on costs little.

`read` stops before the first record that is out of the ordinary: one whose parts don't add up, whose body does not
match its checksum, or that holds several messages. The caller looks at that one by `wire.record`, which says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perseid.base.machine import Buffer
from perseid.core.layout import ANYWHERE
from perseid.core.stored import Stored
from perseid.wire.inner import WRAPPED
from perseid.wire.names import RETRY_PREFIX
from perseid.wire.properties import RETRY_TOPIC
from perseid.wire.record import FIXED_BYTES as FIXED_V4
from perseid.wire.record import MAGIC_AT, MAGIC_V1, QUEUE_ID_AT, QUEUE_OFFSET_AT, SYS_FLAG_AT, V6_MORE
from perseid.wire.record import SYS_BORN_HOST_V6 as BORN_V6
from perseid.wire.record import SYS_STORE_HOST_V6 as STORE_V6

compiled = not __file__.endswith(".py")

RECONSUMED_BEFORE_BODY = 16
"""Bytes from the count of failed deliveries to the body."""
V1_END = MAGIC_V1 & 0xFF
"""By its last byte a record tells how long the length of its topic is."""


class Messages(Stored):
    """Reads answers one after the other."""

    def __init__(self, kind: Any, place: Callable[[str, int], Any], most_bytes: int) -> None:
        """`kind` is what is made for each record, without a call of its `__init__`; all slots are set here. `place`
        makes the queue of a topic and a queue id. `most_bytes`: of one record."""
        super().__init__(most_bytes)
        self._kind, self._place = kind, place
        self._topic_raw = b""
        self._topic = ""
        self._queue: Any = None
        self._queue_id = -1
        self._retried = False
        """The place of the last message, where the next one mostly is, too."""

    def read(self, data: Buffer, at: int, found: list[Any]) -> int:
        """Add the ordinary messages from `at` on to `found`; where the first record begins that is none, or the end."""
        total = self._look_at(data)
        while 0 <= at < total and self._parts(at, total - at, ANYWHERE):
            if (self._int(at + SYS_FLAG_AT) & WRAPPED) == WRAPPED or not self._matches():
                break
            if not self._is(self._topic_at, self._topic_end - self._topic_at, self._topic_raw) or self._queue_id != (
                self._signed(at + QUEUE_ID_AT)
            ):
                if not self._is_utf8(self._topic_at, self._topic_end):
                    break
                self._change_place(self._signed(at + QUEUE_ID_AT))
            found.append(self._message(at))
            at += self._size
        self._let_go()
        return at

    def _change_place(self, queue_id: int) -> None:
        self._topic_raw = bytes(self._raw[self._topic_at : self._topic_end])
        self._topic = str(self._topic_raw, "utf-8")
        self._retried = self._topic.startswith(RETRY_PREFIX)
        self._queue_id = queue_id
        self._queue = self._place(self._topic, queue_id)

    def _message(self, at: int) -> Any:
        """The message of the record that was found."""
        message = self._kind.__new__(self._kind)
        raw = bytes(self._raw[at : at + self._size])
        message._raw = raw  # noqa: SLF001 - it is this module that fills them
        message._record = message._body = message._properties = None  # noqa: SLF001
        message.record_bytes = self._size
        message.queue = self._queue
        message.queue_offset = self._long(at + QUEUE_OFFSET_AT)
        message.reconsume_times = self._signed(self._body - RECONSUMED_BEFORE_BODY)
        message.topic = self._topic
        if self._retried:
            properties = properties_of(raw)
            message._properties = properties  # noqa: SLF001
            message.topic = properties.get(RETRY_TOPIC, self._topic)
        return message


def body_of(raw: bytes) -> bytes:
    """The body of a record that was read before, as it is stored."""
    at = _body_at(raw)
    return raw[at : at + _int(raw, at - 4)]


def properties_of(raw: bytes) -> dict[str, str]:
    """The properties of a record that was read before, by name: what `wire.properties.decode` gives."""
    at = _body_at(raw)
    end = len(raw)
    begin = split = 0
    found: dict[str, str] = {}
    at += _int(raw, at - 4)
    at += 1 + raw[at] if raw[MAGIC_AT + 3] == V1_END else 2 + (raw[at] << 8 | raw[at + 1])
    at += 2
    while at < end:
        begin, split = at, -1
        while at < end and raw[at] != 2:
            if raw[at] == 1 and split < 0:
                split = at
            at += 1
        if begin < split < at - 1:
            found[raw[begin:split].decode("utf-8", "replace")] = raw[split + 1 : at].decode("utf-8", "replace")
        at += 1
    return found


def _body_at(raw: bytes) -> int:
    flags = raw[SYS_FLAG_AT + 3]
    return FIXED_V4 + (V6_MORE if flags & BORN_V6 else 0) + (V6_MORE if flags & STORE_V6 else 0)


def _int(raw: bytes, at: int) -> int:
    return raw[at] << 24 | raw[at + 1] << 16 | raw[at + 2] << 8 | raw[at + 3]
