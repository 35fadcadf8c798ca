"""When it may matter again what a request's checks look at."""

from __future__ import annotations


class Generation:
    """`number` rises when something may have changed that the checks of a pull look at: what they came to is kept no
    longer than that (`pulls`)."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def rise(self) -> None:
        """Nothing that was checked counts any more."""
        self.number += 1
