"""What clients know of messages: what was sent, and where it stands.

A *value* is 8 unique bytes at the head of a message's body; a *place* is (topic, queue id, queue offset).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

VALUE_BYTES = 8
LOOSE = "churn"
"""Topics whose names begin so are deleted and made again during a run: of those only the bytes are checked."""


class Place(NamedTuple):
    """Where a message stands for its readers."""

    topic: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}@{self.offset}"


@dataclass(slots=True)
class Sent:
    """A message as its producer made it. `queue_id` −1: the broker chose. `ordinal` counts in its order."""

    value: bytes
    body: bytes
    topic: str
    queue_id: int
    producer: str
    ordinal: int
    tag: str | None = None
    key: str | None = None
    delayed: bool = False
    deliver_at: int | None = None
    """By the broker's clock, in milliseconds; None: at once, or after a level's delay."""
    sent_back: bool = False
    """A consumer asked for it again, so it stands in a retry topic, too."""
    commit: bool | None = None
    """Of a message of a transaction: what is to become of it."""
    decision_sent: bool = False
    """Its producer has said what is to become of it."""
    repeats: int = 0
    """How often it may come again, besides: a crash may forget that it was committed."""
    attempts: int = 0
    places: set[Place] = field(default_factory=set)
    acked_at_us: int | None = None

    def __str__(self) -> str:
        return f"{self.value.decode()} of {self.producer}"


@dataclass(slots=True)
class Stored:
    """A message at a place, and where in the log that is. `sure`: acknowledged with all that the mode has."""

    sent: Sent
    physical: int
    at_us: int
    sure: bool = False


QueueKey: TypeAlias = tuple[str, int]
"""Topic, queue id."""
