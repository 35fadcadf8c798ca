"""Requests that a node refused, told now and then: one line a minute, however many there are."""

from __future__ import annotations

from perseid.base.machine import Millis

TELL_MS = 60_000
"""So often refusals are worth a line."""


class Refusals:
    """Of one node."""

    def __init__(self) -> None:
        self._count = 0
        self._told_at: Millis | None = None

    def line(self, code: int, peer: str, why: str, now: Millis) -> str:
        """Count one; what is to be said of all since the last line, empty when it is not time."""
        self._count += 1
        if self._told_at is not None and now - self._told_at < TELL_MS:
            return ""
        count, self._count, self._told_at = self._count, 0, now
        return f"requests refused: {count}, the last one code {code} of {peer}: {why}"
