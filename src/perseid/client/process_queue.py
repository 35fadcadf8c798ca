"""The messages of one queue that a consumer has buffered, and the offset up to which the queue may be committed.

    pulled --add()--> buffered, waiting or being handled --done()--> removed

The offset to commit is that of the lowest message that is not done; with none left it is where the next
pull begins. So nothing that was not handled is ever committed. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.client.options import FlowLimits


class ProcessQueue:
    """Buffered messages of one queue, by offset."""

    __slots__ = ("_offsets", "bytes", "dropped", "messages", "next_offset", "queue")

    def __init__(self, queue: MessageQueue, next_offset: int) -> None:
        self.queue = queue
        self.next_offset = next_offset
        """Where the next pull begins."""
        self.messages: dict[int, ReceivedMessage] = {}
        """By offset, in order; waiting or running."""
        self.bytes = 0
        self.dropped = False
        """True once the queue is assigned to another member: its messages are not handed out any more."""
        self._offsets: deque[int] = deque()

    def add(self, messages: Iterable[ReceivedMessage], next_offset: int) -> list[ReceivedMessage]:
        """Buffer the messages of a pull; returns those that were not buffered already, in order."""
        fresh: list[ReceivedMessage] = []
        last = self._offsets[-1] if self._offsets else -1
        for message in messages:
            offset = message.queue_offset
            if offset <= last or offset < self.next_offset:
                continue
            last = offset
            self.messages[offset] = message
            self._offsets.append(offset)
            self.bytes += message.record_bytes
            fresh.append(message)
        self.next_offset = max(self.next_offset, next_offset)
        return fresh

    def done(self, offset: int) -> None:
        """A message was handled (or handed on to the retry queue)."""
        message = self.messages.pop(offset, None)
        if message is None:
            return
        self.bytes -= message.record_bytes
        offsets = self._offsets
        while offsets and offsets[0] not in self.messages:
            offsets.popleft()
        while offsets and offsets[-1] not in self.messages:
            offsets.pop()

    def lowest(self) -> ReceivedMessage | None:
        """The message with the lowest offset."""
        return self.messages[self._offsets[0]] if self._offsets else None

    @property
    def commit_offset(self) -> int:
        """All below this is done."""
        return self._offsets[0] if self._offsets else self.next_offset

    @property
    def span(self) -> int:
        """Distance between the lowest and the highest offset buffered."""
        return self._offsets[-1] - self._offsets[0] if self._offsets else 0

    def full(self, limits: FlowLimits, *, ordered: bool = False) -> str:
        """Why pulling has to pause; empty when it need not."""
        if len(self.messages) > limits.max_messages:
            return f"{len(self.messages)} messages wait"
        if self.bytes > limits.max_bytes:
            return f"{self.bytes} bytes wait"
        if not ordered and self.span > limits.max_span:
            return f"the offsets that wait are {self.span} apart"
        return ""
