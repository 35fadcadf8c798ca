# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Sends that go to a topic of the broker's own, among the plain ones of a turn (broker.md §7 and §8).

    with a time of its own, still to come and within the limit → the timer topic; the answer says the handle by which
                                                                 the message can be taken back
    with TRAN_MSG=true                                         → the half topic; `halves` tells of it

Such a send is plain when all else of it is. It is stored as `TimerService.redirect` or `TransactionService.prepare`
would have it, with three more properties. Whatever is unusual about it is left to the ordinary handler.
"""

from __future__ import annotations

from perseid.core.batch import Batch, Target
from perseid.core.layout import ADDED_BYTES, PLAIN_SYS_FLAGS
from perseid.wire.headers.send import SEND_FIELDS
from perseid.wire.record import MAX_PROPERTIES_BYTES
from perseid.wire.record import SYS_TRANSACTION_PREPARED as PREPARED

compiled = not __file__.endswith(".py")

SYS_FLAG = [name for _, name, _ in SEND_FIELDS].index("sysFlag")
"""The number of this field."""
ABSOLUTE = -1
"""In the place of a unit: the number is the time itself."""
MAX_HANDLE_BYTES = 1024
OUT_MS = memoryview(b"TIMER_OUT_MS\x01")
TRANSACTION_ID = memoryview(b"__transactionId__\x01")
REAL_TOPIC = memoryview(b"\x02REAL_TOPIC\x01")
REAL_QID = memoryview(b"\x02REAL_QID\x01")
END = memoryview(b"\x02")
VERSION = memoryview(b"v1 ")
SPACE = memoryview(b" ")
HANDLE_JSON = memoryview(b'","recallHandle":"')
HANDLE_BINARY = memoryview(b"\x00\x0crecallHandle")
BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class Sends(Batch):
    """The plain sends of one turn of one broker, those that are redirected among them."""

    def __init__(
        self,
        store_host: bytes,
        own_properties: bytes,
        max_body_bytes: int,
        answer: tuple[bytes, ...],
        binary_answer: tuple[bytes, ...],
        sync: bool,
        signed: bool,
        broker_name: bytes,
    ) -> None:
        """As `Batch`; `broker_name` is what handles say."""
        super().__init__(store_host, own_properties, max_body_bytes, answer, binary_answer, sync, signed)
        self._answer_bytes += MAX_HANDLE_BYTES * 4 // 3 + len(HANDLE_JSON) + 4
        self._broker_name = memoryview(broker_name)
        self._names: dict[int, Target] = {}
        self._timer_target: Target | None = None
        self._half_target: Target | None = None
        self.halves: list[tuple[int, int, int]] = []
        """Queue offset, physical offset and time of birth of each half of this turn."""
        self.halves_left = 0
        """So many more are plain."""
        self._precision_ms, self._max_delay_ms = 1, 0
        self._unit_ms = self._number_said = self._out_ms = 0
        """0: the send that is looked at has no time."""
        self._is_reserved = self._is_half = self._is_prepared = False
        self._handle = memoryview(bytearray(MAX_HANDLE_BYTES))
        self._handle_end = 0

    def set_times(self, precision_ms: int, max_delay_ms: int) -> None:
        """A slot's width, and how far ahead a time may be; 0: no send with a time is plain."""
        self._precision_ms, self._max_delay_ms = precision_ms, max_delay_ms

    def learn_name(self, target: Target, most: int) -> None:
        """Redirected sends to this target's topic and queue are plain from now on. At most `most` are known."""
        self._know(self._names, target, most)

    def redirect(self, timer_target: Target | None, half_target: Target | None) -> None:
        """Where they go; None: those are not plain."""
        self._timer_target, self._half_target = timer_target, half_target

    # ---- what a send says ----

    def _read_properties(self) -> bool:
        self._unit_ms, self._is_reserved, self._is_half = 0, False, False
        if not Batch._read_properties(self):
            return False
        if self._unit_ms == 0 and not self._is_half:
            return not self._is_prepared
        if self._unique_at < 0 or self._code == 320 or self._is_reserved:
            return False
        if self._unit_ms != 0 and (self._is_half or self._is_prepared):
            return False
        if self._q_end + len(self._own) + ADDED_BYTES + self._unique_end - self._unique_at > MAX_PROPERTIES_BYTES:
            return False
        return self.halves_left > 0 if self._is_half else self._read_time()

    def _read_time(self) -> bool:
        """When the message is to be delivered; False when the ordinary handler has to look at it."""
        at_ms = self._number_said
        if self._unit_ms != ABSOLUTE:
            at_ms = self._now + at_ms * self._unit_ms
        if at_ms <= self._now or at_ms - self._now > self._max_delay_ms:
            return False
        self._out_ms = (at_ms - 1) // self._precision_ms * self._precision_ms
        return True

    def _read_field(self, letter: int, at: int, end: int) -> bool:
        """As for all sends; a half says so in its sysFlag."""
        if letter != SYS_FLAG:
            return Batch._read_field(self, letter, at, end)
        self._sys_flag, self._is_prepared = 0, False
        if not Batch._read_field(self, letter, at, end):
            if self._sys_flag & PREPARED == 0 or self._sys_flag & ~(PLAIN_SYS_FLAGS | PREPARED) != 0:
                return False
            self._sys_flag &= ~PREPARED
            self._is_prepared = True
        return True

    def _read_property(self, at: int, size: int, value: int, end: int) -> bool:
        """As for all sends; takes in the time that one asks for, and whether it is a half."""
        unit_ms = 0
        if size >= 8:
            if size == 8 and self._says(at, b"TRAN_MSG") and end - value == 4 and self._says(value, b"true"):
                if self._is_half:
                    return False
                self._is_half = True
                return True
            if size == 16 and self._says(at, b"TIMER_DELIVER_MS"):
                unit_ms = ABSOLUTE
            elif size == 15 and self._says(at, b"TIMER_DELAY_SEC"):
                unit_ms = 1000
            elif size == 14 and self._says(at, b"TIMER_DELAY_MS"):
                unit_ms = 1
            elif self._is_reserved_name(at, size):
                self._is_reserved = True
        if unit_ms == 0:
            return Batch._read_property(self, at, size, value, end)
        if self._unit_ms != 0:
            return False
        self._unit_ms, self._number_said = unit_ms, self._digits(value, end)
        return self._number_said >= 0

    def _read_empty(self, at: int, size: int) -> bool:
        """As for all sends; a reserved name that says nothing is one, too."""
        self._is_reserved = self._is_reserved or self._is_reserved_name(at, size)
        return Batch._read_empty(self, at, size)

    def _is_reserved_name(self, at: int, size: int) -> bool:
        """Is it one of those that a message is given here, or that says more of a time or a half?"""
        if size == 12:
            return self._says(at, b"TIMER_OUT_MS")
        if size == 17:
            return self._says(at, b"TIMER_DEL_UNIQKEY") or self._says(at, b"__transactionId__")
        if size == 30:
            return self._says(at, b"CHECK_IMMUNITY_TIME_IN_SECONDS")
        return (size == 10 and self._says(at, b"REAL_TOPIC")) or (size == 8 and self._says(at, b"REAL_QID"))

    # ---- where it goes ----

    def _target(self) -> Target | None:
        target = None
        if self._unit_ms == 0 and not self._is_half:
            return Batch._target(self)
        if self._name_of_send() is None:
            return None
        target = self._half_target if self._is_half else self._timer_target
        if target is None or (target.count == 0 and not self._begin_target(target)):
            return None
        return target

    def _name_of_send(self) -> Target | None:
        """That of the known names which the send says, when its topic is as it was and may be written to."""
        target = self._named(self._names, self._d, self._topic_at, self._topic_end)
        if target is None or self._rows.get(target.topic) is not target.row:
            return None
        return target if self._may_order or not target.row.order else None

    def _append_own(self) -> None:
        n = 0
        Batch._append_own(self)
        if self._is_half:
            n = self._add(self._q, self._q_end, TRANSACTION_ID, 0, len(TRANSACTION_ID))
            n = self._add(self._q, n, self._id, 0, self._id_end)
        elif self._unit_ms != 0:
            n = self._add(self._q, self._q_end, OUT_MS, 0, len(OUT_MS))
            n = self._add_number(self._q, n, self._out_ms)
        if n:
            n = self._add(self._q, n, REAL_TOPIC, 0, len(REAL_TOPIC))
            n = self._add(self._q, n, self._d, self._topic_at, self._topic_end)
            n = self._add(self._q, n, REAL_QID, 0, len(REAL_QID))
            self._q_end = self._add(self._q, self._add_number(self._q, n, self._queue_id), END, 0, 1)

    def _put(self, target: Target, body: int, end: int) -> bool:
        if not Batch._put(self, target, body, end):
            return False
        if self._is_half:
            self.halves.append((target.first + target.count - 1, self.last, self._born))
            self.halves_left -= 1
        return True

    # ---- the handle ----

    def _put_handle(self, at: int) -> int:
        """`v1 topic broker time key` in base64, as `broker/produce/recall_handles.py` has it."""
        n = value = 0
        if self._unit_ms == 0:
            return at
        n = self._add(self._handle, 0, VERSION, 0, 3)
        n = self._add(self._handle, n, self._d, self._topic_at, self._topic_end)
        n = self._add(self._handle, n, SPACE, 0, 1)
        n = self._add(self._handle, n, self._broker_name, 0, len(self._broker_name))
        n = self._add(self._handle, n, SPACE, 0, 1)
        n = self._add(self._handle, self._add_number(self._handle, n, self._out_ms + 1), SPACE, 0, 1)
        self._handle_end = self._add(self._handle, n, self._id, 0, self._id_end)
        if self._serializer == 0:
            return self._put_base64(self._add(self._answers, at, HANDLE_JSON, 0, len(HANDLE_JSON)))
        at = self._add(self._answers, at, HANDLE_BINARY, 0, len(HANDLE_BINARY))
        value = (self._handle_end + 2) // 3 * 4
        self._answers[at] = self._answers[at + 1] = 0
        self._answers[at + 2], self._answers[at + 3] = value >> 8, value & 0xFF
        return self._put_base64(at + 4)

    def _put_base64(self, at: int) -> int:
        """Write the words, padded; where that ends."""
        n = bits = i = 0
        while n < self._handle_end:
            bits = self._handle[n] << 16
            if n + 1 < self._handle_end:
                bits |= self._handle[n + 1] << 8
            if n + 2 < self._handle_end:
                bits |= self._handle[n + 2]
            for i in range(4):
                self._answers[at + i] = BASE64[bits >> (18 - 6 * i) & 63] if n + i <= self._handle_end else 61
            at += 4
            n += 3
        return at
