# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""The hot path of a slave: records of a master's log in; queue units and index entries out.

    begin → take → touched, entries, times → clear

`take` ends before the first record that it does not know as a plain one, or that is not whole: whatever is unusual or
wrong is left to `store.replica`, which says what it is. The records themselves are written as they came.

Trust: nothing is believed. Sizes are compared with what is left, each record has to stand where it says, its parts have
to add up, its body to match its checksum, and its queue offset to be the next one of a queue that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perseid.base.machine import Buffer
from perseid.core.batch import Batch, Target
from perseid.core.layout import PLAIN_SYS_FLAGS
from perseid.wire.dledger import ENTRY_HEADER_BYTES as HEAD_BYTES
from perseid.wire.dledger import ENTRY_MAGIC
from perseid.wire.record import MIN_RECORD_BYTES as MIN_BYTES
from perseid.wire.record import PHYSICAL_OFFSET_AT as PHYSICAL_AT
from perseid.wire.record import QUEUE_OFFSET_AT, SYS_TRANSACTION_COMMIT
from perseid.wire.record import STORE_TIMESTAMP_AT as STORED_AT

if TYPE_CHECKING:
    from perseid.core.queue import Queue

compiled = not __file__.endswith(".py")

SHOWN_SYS_FLAGS = PLAIN_SYS_FLAGS | SYS_TRANSACTION_COMMIT
"""Compressed, and how, and the end of a transaction: what a record in a queue may say of itself here."""


class Records(Batch):
    """The records of one packet after the other."""

    def __init__(self) -> None:
        super().__init__(bytes(8), b"", 0, (b"",) * 6, (b"",) * 5, False, False)
        self._time = 0
        self.times: list[tuple[int, int]] = []
        """(begin in `entries`, store time): the entries from there on, up to the next begin, are of that time."""

    def follow(self, queues: Mapping[tuple[str, int], Queue]) -> None:
        """The table of queues as it is from now on."""
        self._queues = queues

    def _begin_target(self, target: Target) -> bool:
        """Is the target's queue still there, with a place for the next unit?"""
        if self._queues.get(target.key) is not target.queue or not target.queue.dirty:
            return False
        target.first, target.room = target.queue.end, target.queue.room
        return target.first < target.room

    def read(self, data: Buffer, at: int, offset: int, limit: int) -> int:
        """Take the plain records that stand in `data` from `at` on, of which the first is at `offset` of the log; where
        the first one begins that is none, or not whole. All end before `limit` of the log."""
        total = self._look_at(data)
        self._at, self._limit = offset, limit
        while 0 <= at < total:
            if not self._record(at, total):
                break
            at += self._size
        self._let_go()
        return at

    def read_entries(self, data: Buffer, at: int, offset: int, limit: int) -> int:
        """The same of a Raft group's entries, each a record behind a head (dledger.md §7); what is returned, and where
        it begins, are places of entries."""
        total = self._look_at(data)
        self._at, self._limit = offset, limit
        while 0 <= at < total:
            if not self._entry(at, total):
                break
            self._at += HEAD_BYTES
            if not self._record(at + HEAD_BYTES, total):
                break
            at += HEAD_BYTES + self._size
        self._let_go()
        return at

    def finish(self) -> None:
        """What was taken has been written."""
        self.clear()
        self.times.clear()
        self._time = 0

    def _entry(self, at: int, total: int) -> bool:
        """Does an entry begin at `at`, of which the record behind its head is all?"""
        if total - at < HEAD_BYTES + MIN_BYTES or self._int(at) != ENTRY_MAGIC:
            return False
        return self._int(at + 4) == HEAD_BYTES + self._int(at + HEAD_BYTES)

    def _record(self, at: int, total: int) -> bool:
        """Take the record at `at`, if it is plain."""
        target = None
        if not self._parts(at, total, SHOWN_SYS_FLAGS) or self._at + self._size > self._limit:
            return False
        if self._long(at + PHYSICAL_AT) != self._at:
            return False
        if not self._take_properties(self._properties_at, self._properties_end):
            return False
        if not self._read_properties():
            return False
        target = self._target()
        if target is None or self._long(at + QUEUE_OFFSET_AT) != target.first + target.count:
            return False
        if target.first + target.count >= target.room:
            return False
        if not self._is_sound(at):
            return False
        self._make_room(target)
        if target.count == 0:
            self.touched.append(target)
        self._put_unit(target, self._size)
        self._put_time(self._long(at + STORED_AT))
        self._put_entries(target)
        target.count += 1
        target.taken_bytes += self._size
        self.last = self._at
        self._at += self._size
        self.taken += 1
        return True

    def _put_time(self, stored: int) -> None:
        """The entries from here on are of records of this time."""
        if stored != self._time or not self.times:
            self.times.append((self._entries_end, stored))
            self._time = stored

    def _read_property(self, at: int, size: int, value: int, end: int) -> bool:
        """Take in a property, whose name begins at `at`; False when it is one of the indexed ones, once more."""
        return self._take_indexed(at, size, value, end) >= 0
