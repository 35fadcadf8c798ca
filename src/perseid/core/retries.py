# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Sends of consumers to the retry topics of their groups, among the plain ones of a turn (broker.md §5.2).

Such a send is a message that could not be consumed: it has the properties of the stored message, most often a delay
level, and says how often it was tried. It is stored as `SendRequests._redirect_retry` would have it. One that was tried
too often goes to the dead letters; that, and a group that consumes in order, is left to the ordinary handler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perseid.core.batch import Target
from perseid.core.levels import LevelledSends
from perseid.wire.headers.send import SEND_FIELDS
from perseid.wire.names import RETRY_PREFIX

compiled = not __file__.endswith(".py")

MOST_RECONSUMED = [name for _, name, _ in SEND_FIELDS].index("maxReconsumeTimes")
"""The number of this field."""
PREFIX = RETRY_PREFIX.encode()
PREFIX_BYTES = len(PREFIX)
UNLIMITED = 2**31 - 1
NEVER = -1


class RetrySends(LevelledSends):
    """The plain sends of one turn of one broker, those to retry topics among them."""

    def __init__(self, *given: Any) -> None:
        """As `Sends`."""
        super().__init__(*given)
        self._limit_of: Callable[[str], int] | None = None
        self._limits: dict[str, int] = {}
        """By topic: how often a message may have been tried that is plain in this turn; NEVER: none is."""
        self._most_reconsumed = UNLIMITED
        self._is_retry = False

    def set_limits(self, limit_of: Callable[[str], int]) -> None:
        """What tells how often a message of a retry topic may have been tried; it is asked once a turn."""
        self._limit_of = limit_of

    def begin(self, now: int, log_end: int, limit: int, may_order: bool) -> None:
        """As for all sends; what was known of groups may have changed."""
        if self._limits:
            self._limits.clear()
        LevelledSends.begin(self, now, log_end, limit, may_order)

    def _read_send(self) -> bool:
        self._most_reconsumed = UNLIMITED
        return LevelledSends._read_send(self)

    def _read_field(self, letter: int, at: int, end: int) -> bool:
        """As for all sends; takes in how often the consumer itself would try."""
        if not LevelledSends._read_field(self, letter, at, end):
            return False
        if letter == MOST_RECONSUMED:
            self._most_reconsumed = self._number(at, end)
            if self._stop != end:
                self._most_reconsumed = NEVER
        return True

    def _read_properties(self) -> bool:
        self._is_retry = False
        if not LevelledSends._read_properties(self):
            return False
        if self._topic_end - self._topic_at < PREFIX_BYTES or not self._is(self._topic_at, PREFIX_BYTES, PREFIX):
            return True
        self._is_retry = self._is_edited = True
        return self._may_edit()

    def _target(self) -> Target | None:
        target = None
        if not self._is_retry:
            return LevelledSends._target(self)
        target = self._name_of_send()
        if target is None or self._must_sign or self._reconsumed > self._most_reconsumed:
            return None  # who may send here is told by the group that the request names, not by the topic
        if self._reconsumed > self._limit_by(target.topic):
            return None
        return LevelledSends._target(self)

    def _limit_by(self, topic: str) -> int:
        """How often a message of this topic may have been tried."""
        known = self._limits.get(topic)
        if known is None:
            known = self._limits[topic] = NEVER if self._limit_of is None else self._limit_of(topic)
        return known
