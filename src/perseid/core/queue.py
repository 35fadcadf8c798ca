"""A consume queue, as the core sees it."""

from __future__ import annotations

from typing import Protocol

from perseid.base.machine import Buffer


class Queue(Protocol):
    """What the core asks of a consume queue; the caller writes to it."""

    end: int
    """The offset of the next message."""
    room: int
    """The first offset that the file of the next one has no place for."""
    dirty: bool
    """It is in the books as written to."""

    def put_many(self, units: Buffer) -> None: ...
