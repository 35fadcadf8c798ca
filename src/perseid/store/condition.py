"""Whether a store takes messages, and why not."""

from __future__ import annotations


class Condition:
    """That of one store; its owner sets it."""

    __slots__ = ("disk_full", "failure", "why_not_loaded")

    def __init__(self) -> None:
        self.why_not_loaded = "the store is not loaded"
        self.failure = ""
        """What the disk refused: nothing may be promised any more."""
        self.disk_full = False
        """The disk is fuller than the warning mark: nothing may be appended."""

    @property
    def runs(self) -> bool:
        """Is it loaded, and has nothing failed?"""
        return not self.why_not_loaded and not self.failure

    @property
    def why_not_writable(self) -> str:
        """Why appends are refused; "" when they are not."""
        return self.why_not_loaded or self.failure or ("the disk is too full" if self.disk_full else "")

    def fail(self, reason: str) -> None:
        """The disk failed; the first reason counts."""
        self.failure = self.failure or reason
