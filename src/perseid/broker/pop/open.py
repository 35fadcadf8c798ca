"""What is popped and not yet acknowledged, as rows: of one checkpoint, and of one queue of the revive log."""

from __future__ import annotations

from collections import deque

from perseid.base.machine import Millis
from perseid.wire.pop import Checkpoint, Key


class Open:
    """A checkpoint that is not closed, or (without one) acks whose checkpoint is to come."""

    __slots__ = ("acked", "checkpoint", "closed", "due", "key", "owed", "queue", "record")

    def __init__(self, key: Key, queue: int, record: int, due: Millis, checkpoint: Checkpoint | None) -> None:
        self.key = key
        self.queue = queue
        """The revive queue that tells of it."""
        self.record = record
        """Its offset there."""
        self.due = due
        self.checkpoint = checkpoint
        self.acked: set[int] = set()
        self.owed: list[int] = []
        """Messages that the retry topic has, and the revive log does not say so yet."""
        self.closed = False

    @property
    def left(self) -> list[int]:
        """The messages that are neither acknowledged nor in the retry topic."""
        assert self.checkpoint is not None
        return [offset for offset in self.checkpoint.offsets if offset not in self.acked and offset not in self.owed]

    def is_out(self, offset: int) -> bool:
        """Is it one of the messages that are `left`?"""
        assert self.checkpoint is not None
        return offset in self.checkpoint.offsets and offset not in self.acked and offset not in self.owed


class ReviveQueue:
    """One queue of the revive topic."""

    def __init__(self, queue_id: int, at: int, end: int) -> None:
        self.id = queue_id
        self.at = at
        """The next record to take up."""
        self.end = end
        """What was written before this broker led ends here."""
        self.tip = at
        """Checkpoints from here on move the groups' offsets."""
        self.progress = at - 1
        self.open: deque[Open] = deque()

    def done(self) -> int:
        """Up to this record all is closed."""
        while self.open and self.open[0].closed:
            self.open.popleft()
        return (self.open[0].record if self.open else self.at) - 1
