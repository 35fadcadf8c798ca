# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Messages for a time whose time has come: records of the timer topic in; records of their real topics out.

    begin → deliver … deliver → records, touched, entries → clear

`deliver` stores a message as `TimerService` would, or leaves it alone: whatever is unusual about it (it waits on, or
tells its times already, its queue is not known or full) is left to that.
"""

from __future__ import annotations

from perseid.base.machine import Buffer
from perseid.core.batch import Batch, Target
from perseid.core.layout import PLAIN_SYS_FLAGS
from perseid.wire.record import BORN_HOST_AT, FLAG_AT, MAX_PROPERTIES_BYTES, RECONSUMED_AT, STORE_HOST_AT
from perseid.wire.record import BORN_TIMESTAMP_AT as BORN_AT
from perseid.wire.record import SYS_FLAG_AT as RECORD_SYS_FLAG_AT

compiled = not __file__.endswith(".py")

TIMES_BYTES = 100
"""Of the properties that are put behind, at most."""
TAKEN_MS = memoryview(b"TIMER_ENQUEUE_MS\x01")
DELIVERED_MS = memoryview(b"\x02TIMER_DEQUEUE_MS\x01")
END = memoryview(b"\x02")
NOTHING = memoryview(b"")


class Deliveries(Batch):
    """The messages that one tick of one broker delivers."""

    def __init__(self, store_host: bytes, timer_topic: bytes) -> None:
        super().__init__(store_host, b"", 0, (b"",) * 6, (b"",) * 5, False, False)
        self._timer_topic = memoryview(timer_topic)
        self._real_at = self._real_end = 0
        self._real_queue_id = self._out_ms = -1

    def deliver(self, record: Buffer, precision_ms: int, taken_ms: int) -> int:
        """Take the message of a record, which was taken in at `taken_ms`: where it will end in the log. 0: it is none
        that is plain, and nothing has changed."""
        end = self._deliver(self._look_at(record), precision_ms, taken_ms)
        self._born_host = NOTHING
        self._let_go()
        return end

    def _deliver(self, total: int, precision_ms: int, taken_ms: int) -> int:
        target = None
        if not self._is_one(total) or not self._is_sound(0):
            return 0
        if not self._take_properties(self._properties_at, self._properties_end):
            return 0
        self._real_at = self._real_queue_id = self._out_ms = -1
        if not self._read_properties() or self._unique_at < 0 or self._real_at < 0:
            return 0
        if self._real_queue_id < 0 or self._out_ms < 0:
            return 0
        if self._out_ms // precision_ms * precision_ms + precision_ms > self._now:
            return 0
        self._queue_id = self._real_queue_id
        target = self._named(self._targets, self._q, self._real_at, self._real_end)
        if target is None or self._q_end + TIMES_BYTES > MAX_PROPERTIES_BYTES:
            return 0
        self._read_rest()
        self._append_times(taken_ms)
        return self._stored(target)

    def _is_one(self, total: int) -> bool:
        """Are these bytes one plain record of the timer topic?"""
        return self._parts(0, total, PLAIN_SYS_FLAGS) and self._size == total and self._is_ours()

    def _stored(self, target: Target) -> int:
        """Store the message that was read in this target: where it ends in the log; 0: there is no room."""
        if target.count == 0 and not self._begin_target(target):
            return 0
        if not self._put(target, self._body, self._end):
            return 0
        if target.count == 1:
            self.touched.append(target)
        return self._at

    def _is_ours(self) -> bool:
        """Does the record stand in the timer topic, stored by this host, and in no transaction?"""
        size = len(self._timer_topic)
        if self._topic_end - self._topic_at != size:
            return False
        for i in range(size):
            if self._d[self._topic_at + i] != self._timer_topic[i]:
                return False
        for i in range(8):
            if self._d[STORE_HOST_AT + i] != self._host[i]:
                return False
        return self._long(RECONSUMED_AT + 4) == 0

    def _read_rest(self) -> None:
        """What the message keeps of its record."""
        self._message_flag = self._signed(FLAG_AT)
        self._sys_flag = self._int(RECORD_SYS_FLAG_AT)
        self._born = self._long(BORN_AT)
        self._born_host = self._d[BORN_HOST_AT:STORE_HOST_AT - 8]
        self._reconsumed = self._signed(RECONSUMED_AT)

    def _append_times(self, taken_ms: int) -> None:
        n = self._add(self._q, self._q_end, TAKEN_MS, 0, len(TAKEN_MS))
        n = self._add(self._q, self._add_number(self._q, n, taken_ms), DELIVERED_MS, 0, len(DELIVERED_MS))
        self._q_end = self._add(self._q, self._add_number(self._q, n, self._now), END, 0, 1)

    def _read_empty(self, at: int, size: int) -> bool:
        """The ordinary handler leaves out what says nothing."""
        return False

    def _read_property(self, at: int, size: int, value: int, end: int) -> bool:
        """Take in a property, whose name begins at `at`; False when one comes twice, or is not usual here."""
        known = self._take_indexed(at, size, value, end)
        if known != 0:
            return known > 0
        if size == 10 and self._says(at, b"REAL_TOPIC"):
            if self._real_at >= 0:
                return False
            self._real_at, self._real_end = value, end
        elif size == 8 and self._says(at, b"REAL_QID"):
            if self._real_queue_id >= 0:
                return False
            self._real_queue_id = self._digits(value, end)
            return self._real_queue_id >= 0
        elif size == 12 and self._says(at, b"TIMER_OUT_MS"):
            if self._out_ms >= 0:
                return False
            self._out_ms = self._digits(value, end)
            return self._out_ms >= 0
        elif size >= 16 and self._q[at] == 84:  # T
            return not self._tells_times(at, size)
        return True

    def _tells_times(self, at: int, size: int) -> bool:
        """Is it one that is put behind here, or of a message that takes another one back?"""
        if size == 17:
            return self._says(at, b"TIMER_DEL_UNIQKEY")
        return size == 16 and (self._says(at, b"TIMER_ENQUEUE_MS") or self._says(at, b"TIMER_DEQUEUE_MS"))
