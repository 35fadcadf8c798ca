# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Sends with a delay level, and sends with a priority, among the plain ones of a turn (broker.md §7).

    DELAY=n, 1 or more      → the queue of that level (of the highest one, at most) of the schedule topic; its unit's
                              tag code is the time of the delivery
    _SYS_MSG_PRIORITY_=n    → the queue n of the topic (the last one, at most), which the answer names

They are stored as `Transformer.transform` and `SendRequests._finish` would have it. A level or a priority that is no
plain number, or a message that says more of a time or an order, is left to the ordinary handler.
"""

from __future__ import annotations

from typing import Any

from perseid.core.batch import Target
from perseid.core.edits import EditedSends

compiled = not __file__.endswith(".py")

MAX_NUMBER_DIGITS = 9
NONE = -1


class LevelledSends(EditedSends):
    """The plain sends of one turn of one broker, those with a delay level or a priority among them."""

    def __init__(self, *given: Any) -> None:
        """As `Sends`."""
        super().__init__(*given)
        self._waits_ms: tuple[int, ...] = ()
        self._levels: list[Target | None] = []
        self._level, self._priority = 0, NONE
        """0, and NONE: the send that is looked at has none."""
        self._is_ordered = False

    def set_waits(self, waits_ms: tuple[int, ...]) -> None:
        """The waits of levels 1, 2 and so on; until then no send with a level is plain."""
        self._waits_ms = waits_ms
        self._levels = [None] * len(waits_ms)

    def set_level(self, level: int, target: Target) -> None:
        """Sends with this level go there from now on."""
        self._levels[level - 1] = target

    # ---- what a send says ----

    def _read_properties(self) -> bool:
        self._level, self._priority, self._is_ordered = 0, NONE, False
        if not EditedSends._read_properties(self):
            return False
        return self._priority == NONE or (self._level == 0 and not self._is_ordered)

    def _read_property(self, at: int, size: int, value: int, end: int) -> bool:
        if size == 5 and self._says(at, b"DELAY"):
            return self._read_level(value, end)
        if size == 18 and self._says(at, b"_SYS_MSG_PRIORITY_"):
            self._is_edited = True
            self._priority = self._digits(value, end) if end - value <= MAX_NUMBER_DIGITS else NONE
            return self._priority >= 0
        if size == 13 and self._says(at, b"__SHARDINGKEY"):
            self._is_ordered = True
        return EditedSends._read_property(self, at, size, value, end)

    def _read_level(self, value: int, end: int) -> bool:
        """Take in a delay level, 1 or more."""
        self._is_edited = True
        self._level = self._digits(value, end) if end - value <= MAX_NUMBER_DIGITS else 0
        if self._level <= 0 or not self._levels:
            return False
        if self._level > len(self._levels):
            self._level = len(self._levels)
        return True

    # ---- where it goes, and as what ----

    def _target(self) -> Target | None:
        target = None
        last = 0
        if self._level == 0 and self._priority < 0:
            return EditedSends._target(self)
        target = self._name_of_send()
        if target is None:
            return None
        if self._priority >= 0:
            last = target.row.write_queue_nums - 1
            self._queue_id = self._priority if self._priority < last else last if last > 0 else 0
            return EditedSends._target(self)
        target = self._levels[self._level - 1]
        if target is None or (target.count == 0 and not self._begin_target(target)):
            return None
        return target

    def _append_own(self) -> None:
        EditedSends._append_own(self)
        if self._level > 0:
            self._set_number(b"DELAY", self._level)
            self._set(b"REAL_TOPIC", self._d, self._topic_at, self._topic_end)
            self._set_number(b"REAL_QID", self._queue_id)

    def _tag_code(self) -> int:
        """That of a delayed message is the time of its delivery."""
        wait_ms: int = 0
        if self._level == 0:
            return EditedSends._tag_code(self)
        wait_ms = self._waits_ms[self._level - 1]
        return self._now + wait_ms
