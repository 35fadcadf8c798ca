# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Halves that their producers commit: records of the half topic in; records of their real topics out (broker.md §8).

    begin → commit … commit → records, touched, entries → clear

`commit` stores a message as `TransactionService.decide` would, or leaves it alone: whatever is unusual about the half,
or about what its producer says of it, is left to that.
"""

from __future__ import annotations

from perseid.base.machine import Buffer
from perseid.core.deliveries import Deliveries
from perseid.wire.record import MAX_PROPERTIES_BYTES, QUEUE_OFFSET_AT
from perseid.wire.record import PHYSICAL_OFFSET_AT as PHYSICAL_AT
from perseid.wire.record import SYS_TRANSACTION_COMMIT as COMMITTED

compiled = not __file__.endswith(".py")

MAX_QUEUE_ID = (1 << 31) - 1
NOTHING = memoryview(b"")


class Commits(Deliveries):
    """The halves that one turn of one broker commits."""

    def __init__(self, store_host: bytes, half_topic: bytes) -> None:
        super().__init__(store_host, half_topic)
        self._group = self._key = NOTHING
        self._is_groups = self._is_keys = False

    def commit(self, record: Buffer, physical_offset: int, queue_offset: int, group: bytes, key: bytes) -> int:
        """Take the message of the half at these offsets, of this producers' group, with this UNIQ_KEY or (empty) any:
        where it will end in the log. 0: it is none that is plain, and nothing has changed."""
        self._group, self._key = group, key  # type: ignore[assignment]
        end = self._commit(self._look_at(record), physical_offset, queue_offset)
        self._born_host = self._group = self._key = NOTHING
        self._let_go()
        return end

    def _commit(self, total: int, physical_offset: int, queue_offset: int) -> int:
        target = None
        if not self._is_one(total):
            return 0
        if self._long(PHYSICAL_AT) != physical_offset or self._long(QUEUE_OFFSET_AT) != queue_offset:
            return 0
        if not self._is_sound(0) or not self._copy_properties() or not self._read_properties():
            return 0
        if self._unique_at < 0:
            return 0
        self._queue_id = self._real_queue_id
        target = self._named(self._targets, self._d, self._real_at, self._real_end)
        if target is None:
            return 0
        self._read_rest()
        self._sys_flag |= COMMITTED
        self._prepared = physical_offset
        return self._stored(target)

    def _copy_properties(self) -> bool:
        """Copy the properties into `_q` without those of the half; False: they are not plain, or another group's."""
        at = self._properties_at
        stop = self._properties_end
        n = value = end = 0
        self._real_at = self._real_queue_id = -1
        self._is_groups = False
        self._is_keys = len(self._key) == 0
        if stop - at > MAX_PROPERTIES_BYTES or not self._is_utf8(at, stop):
            return False
        while at < stop:
            value = at
            while value < stop and self._d[value] > 2:
                value += 1
            if value >= stop or self._d[value] != 1:
                return False
            end = value + 1
            while end < stop and self._d[end] != 2:
                end += 1
            if end >= stop or self._d[end] != 2:
                return False
            if not self._is_of_half(at, value - at, value + 1, end):
                if self._is_odd(at, value - at) or self._is_copied(at, value - at, n):
                    return False
                n = self._add(self._q, n, self._d, at, end + 1)
            at = end + 1
        self._q_end = n
        return self._is_groups and self._is_keys and self._real_at >= 0 and self._real_queue_id >= 0

    def _is_copied(self, at: int, size: int, end: int) -> bool:
        """Is a property of this name among those that stand in `_q` before `end`? The ordinary handler keeps one."""
        p = i = 0
        while p < end:
            i = 0
            while i < size and self._q[p + i] == self._d[at + i]:
                i += 1
            if i == size and self._q[p + i] == 1:
                return True
            while self._q[p] != 2:
                p += 1
            p += 1
        return False

    def _is_of_half(self, at: int, size: int, value: int, end: int) -> bool:
        """Is it a property of the half, which its message does not have?"""
        number = 0
        if self._is(at, size, b"REAL_TOPIC"):
            self._real_at, self._real_end = value, end
            return True
        if self._is(at, size, b"REAL_QID"):
            number = self._number(value, end)
            self._real_queue_id = number if self._stop == end and number <= MAX_QUEUE_ID else -1
            return True
        if self._is(at, size, b"PGROUP"):
            self._is_groups = self._is_value(self._group, value, end)
        elif len(self._key) and self._is(at, size, b"UNIQ_KEY"):
            self._is_keys = self._is_value(self._key, value, end)
        return self._is(at, size, b"TRAN_MSG")

    def _is_value(self, text: memoryview, value: int, end: int) -> bool:
        """Is this the value from `value` to `end`?"""
        size = len(text)
        if end - value != size:
            return False
        for i in range(size):
            if self._d[value + i] != text[i]:
                return False
        return True

    def _is_odd(self, at: int, size: int) -> bool:
        """Does it ask for a time, or say what else only the ordinary handler knows?"""
        if size >= 6 and self._is(at, 6, b"TIMER_"):
            return True
        if self._is(at, size, b"DELAY") or self._is(at, size, b"INNER_NUM"):
            return True
        if self._is(at, size, b"CHECK_IMMUNITY_TIME_IN_SECONDS"):
            return True
        return self._is(at, size, b"TRAN_PREPARED_QUEUE_OFFSET")

    def _read_property(self, at: int, size: int, value: int, end: int) -> bool:
        """Take in a property, whose name begins at `at`; False when one comes twice."""
        return self._take_indexed(at, size, value, end) >= 0
