# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Sends with a time of their own, among the plain ones of a turn: they go to the timer topic (broker.md §7).

Such a send is plain when all else of it is, and its time is still to come and within the limit. It is stored as
`TimerService.redirect` would have it: in the timer topic's queue, with three more properties; and its answer says the
handle by which it can be taken back. Whatever is unusual about it is left to the ordinary handler.
"""

from __future__ import annotations

from perseid.core.batch import Batch, Lane
from perseid.wire.record import MAX_PROPERTIES_BYTES

compiled = not __file__.endswith(".py")

ABSOLUTE = -1
"""In the place of a unit: the number is the time itself."""
WORDS_BYTES = 200
"""Of the properties that are put behind, at most."""
MAX_HANDLE_BYTES = 1024
OUT_MS = memoryview(b"TIMER_OUT_MS\x01")
REAL_TOPIC = memoryview(b"\x02REAL_TOPIC\x01")
REAL_QID = memoryview(b"\x02REAL_QID\x01")
END = memoryview(b"\x02")
VERSION = memoryview(b"v1 ")
SPACE = memoryview(b" ")
HANDLE_JSON = memoryview(b'","recallHandle":"')
HANDLE_BINARY = memoryview(b"\x00\x0crecallHandle")
BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class TimedSends(Batch):
    """The plain sends of one turn of one broker, those with a time of their own among them."""

    def __init__(
        self,
        store_host: bytes,
        own_properties: bytes,
        max_body_bytes: int,
        answer: tuple[bytes, ...],
        binary_answer: tuple[bytes, ...],
        sync: bool,
        broker_name: bytes,
    ) -> None:
        """As `Batch`; `broker_name` is what handles say."""
        super().__init__(store_host, own_properties, max_body_bytes, answer, binary_answer, sync)
        self._answer_bytes += MAX_HANDLE_BYTES * 4 // 3 + len(HANDLE_JSON) + 4
        self._broker_name = memoryview(broker_name)
        self._timed: dict[int, Lane] = {}
        self._timer_lane: Lane | None = None
        self._precision_ms, self._max_delay_ms = 1, 0
        self._unit_ms = self._number_said = self._out_ms = 0
        """0: the send that is looked at has no time."""
        self._is_reserved = False
        self._words = memoryview(bytearray(MAX_HANDLE_BYTES))
        self._words_end = 0

    def set_times(self, precision_ms: int, max_delay_ms: int) -> None:
        """A slot's width, and how far ahead a time may be; 0: no send with a time is plain."""
        self._precision_ms, self._max_delay_ms = precision_ms, max_delay_ms

    def learn_timed(self, lane: Lane, timer_lane: Lane, most: int) -> None:
        """Sends with a time to this lane's topic and queue are plain from now on, and go to the other one. At most
        `most` are known."""
        if timer_lane is not self._timer_lane:
            self._timed.clear()
            self._timer_lane = timer_lane
        self._know(self._timed, lane, most)

    # ---- what a send says ----

    def _read_properties(self) -> bool:
        self._unit_ms, self._is_reserved = 0, False
        if not Batch._read_properties(self):
            return False
        return self._unit_ms == 0 or self._read_time()

    def _read_time(self) -> bool:
        """When the message is to be delivered; False when the ordinary handler has to look at it."""
        at_ms = self._number_said
        if self._code == 320 or self._is_reserved or self._timer_lane is None:
            return False
        if self._unit_ms != ABSOLUTE:
            at_ms = self._now + at_ms * self._unit_ms
        if at_ms <= self._now or at_ms - self._now > self._max_delay_ms:
            return False
        self._out_ms = (at_ms - 1) // self._precision_ms * self._precision_ms
        return self._q_end + len(self._own) + WORDS_BYTES <= MAX_PROPERTIES_BYTES

    def _read_property(self, at: int, size: int, value: int, end: int) -> bool:
        """As for all sends; takes in the time that one asks for."""
        unit_ms = 0
        if size >= 8 and (self._q[at] == 84 or self._q[at] == 82):  # T, R
            if size == 16 and self._says(at, b"TIMER_DELIVER_MS"):
                unit_ms = ABSOLUTE
            elif size == 15 and self._says(at, b"TIMER_DELAY_SEC"):
                unit_ms = 1000
            elif size == 14 and self._says(at, b"TIMER_DELAY_MS"):
                unit_ms = 1
            elif self._is_word(at, size):
                self._is_reserved = True
        if unit_ms == 0:
            return Batch._read_property(self, at, size, value, end)
        if self._unit_ms != 0:
            return False
        self._unit_ms, self._number_said = unit_ms, self._digits(value, end)
        return self._number_said >= 0

    def _is_word(self, at: int, size: int) -> bool:
        """Is it one of those that a message with a time is given here, or that takes another one back?"""
        if size == 12:
            return self._says(at, b"TIMER_OUT_MS")
        if size == 17:
            return self._says(at, b"TIMER_DEL_UNIQKEY")
        return (size == 10 and self._says(at, b"REAL_TOPIC")) or (size == 8 and self._says(at, b"REAL_QID"))

    # ---- where it goes ----

    def _lane(self) -> Lane | None:
        lane = None
        if self._unit_ms == 0:
            return Batch._lane(self)
        lane = self._named(self._timed, self._d, self._topic_at, self._topic_end)
        if lane is None or self._rows.get(lane.topic) is not lane.row or (not self._may_order and lane.row.order):
            return None
        lane = self._timer_lane
        if lane is None or (lane.count == 0 and not self._begin_lane(lane)):
            return None
        return lane

    def _append_own(self) -> None:
        Batch._append_own(self)
        if self._unit_ms != 0:
            n = self._add(self._q, self._q_end, OUT_MS, 0, len(OUT_MS))
            n = self._add(self._q, self._add_number(self._q, n, self._out_ms), REAL_TOPIC, 0, len(REAL_TOPIC))
            n = self._add(self._q, n, self._d, self._topic_at, self._topic_end)
            n = self._add(self._q, n, REAL_QID, 0, len(REAL_QID))
            self._q_end = self._add(self._q, self._add_number(self._q, n, self._queue_id), END, 0, 1)

    # ---- the handle ----

    def _put_handle(self, at: int) -> int:
        """`v1 topic broker time key` in base64, as `handlers.recall.handle_of` has it."""
        n = value = 0
        if self._unit_ms == 0:
            return at
        n = self._add(self._words, 0, VERSION, 0, 3)
        n = self._add(self._words, n, self._d, self._topic_at, self._topic_end)
        n = self._add(self._words, n, SPACE, 0, 1)
        n = self._add(self._words, n, self._broker_name, 0, len(self._broker_name))
        n = self._add(self._words, n, SPACE, 0, 1)
        n = self._add(self._words, self._add_number(self._words, n, self._out_ms + 1), SPACE, 0, 1)
        self._words_end = self._add(self._words, n, self._id, 0, self._id_end)
        if self._serializer == 0:
            return self._put_base64(self._add(self._answers, at, HANDLE_JSON, 0, len(HANDLE_JSON)))
        at = self._add(self._answers, at, HANDLE_BINARY, 0, len(HANDLE_BINARY))
        value = (self._words_end + 2) // 3 * 4
        self._answers[at] = self._answers[at + 1] = 0
        self._answers[at + 2], self._answers[at + 3] = value >> 8, value & 0xFF
        return self._put_base64(at + 4)

    def _put_base64(self, at: int) -> int:
        """Write the words, padded; where that ends."""
        n = bits = i = 0
        while n < self._words_end:
            bits = self._words[n] << 16
            if n + 1 < self._words_end:
                bits |= self._words[n + 1] << 8
            if n + 2 < self._words_end:
                bits |= self._words[n + 2]
            for i in range(4):
                self._answers[at + i] = BASE64[bits >> (18 - 6 * i) & 63] if n + i <= self._words_end else 61
            at += 4
            n += 3
        return at
