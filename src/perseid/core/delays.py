# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Delayed messages whose time has come: records of the schedule topic in; records of their real topics out.

    begin → deliver_delayed … deliver_delayed → records, touched, entries → clear

A message is stored as `DelayService` would, with the properties that it has, or left alone: whatever is unusual about
it (its queue is not known or full, it tells more of times) is left to that.
"""

from __future__ import annotations

from perseid.base.machine import Buffer
from perseid.core.deliveries import Deliveries

compiled = not __file__.endswith(".py")

NOTHING = memoryview(b"")


class Delays(Deliveries):
    """The delayed messages that one tick of one broker delivers."""

    def deliver_delayed(self, record: Buffer) -> int:
        """Take the message of a record of the schedule topic: where it will end in the log. 0: it is none that is
        plain, and nothing has changed."""
        end = self._deliver_delayed(self._look_at(record))
        self._born_host = NOTHING
        self._let_go()
        return end

    def _deliver_delayed(self, total: int) -> int:
        target = None
        if not self._is_one(total) or not self._is_sound(0):
            return 0
        if not self._take_properties(self._properties_at, self._properties_end):
            return 0
        self._real_at = self._real_queue_id = self._out_ms = -1
        if not self._read_properties() or min(self._unique_at, self._real_at, self._real_queue_id) < 0:
            return 0
        self._queue_id = self._real_queue_id
        target = self._named(self._targets, self._q, self._real_at, self._real_end)
        if target is None:
            return 0
        self._read_rest()
        return self._stored(target)
