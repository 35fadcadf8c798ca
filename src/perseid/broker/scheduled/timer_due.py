"""A slot of the timer wheel that is being delivered."""

from __future__ import annotations

from array import array

from perseid.base.machine import Millis
from perseid.store.timer.log import NONE


class Due:
    """A slot that is being delivered: its units are found, from the last back, then delivered, from the first on.
    `ahead`: its end has not come; it was filled by a clock that went before ours."""

    __slots__ = ("ahead", "at_ms", "cursor", "next", "positions", "recalls")

    def __init__(self, at_ms: Millis, last: int, *, ahead: bool = False) -> None:
        self.at_ms = at_ms
        self.ahead = ahead
        self.cursor = last
        self.positions = array("q")
        self.next = NONE
        """Which of the positions, counted back from the last of them; while they are being found: none."""
        self.recalls: set[tuple[str, str]] = set()
        """Topic and key of messages that were taken back."""
