"""What capabilities ask of those that stand above them: as little as they use."""

from __future__ import annotations

from typing import Protocol

from perseid.base.machine import Effect


class TopicStore(Protocol):
    """The store, for those who delete topics."""

    def delete_topic(self, topic: str) -> list[Effect]:
        """Forget a topic's queues; what is to be done for it."""


class Counts(Protocol):
    """Statistics of messages."""

    def put(self, topic: str, messages: int, size: int) -> None:
        """`messages` of `size` bytes altogether were stored under `topic`."""

    def put_failed(self) -> None:
        """The store refused a message, or a batch."""

    def put_took(self, elapsed_ms: int, sends: int = 1) -> None:
        """`sends` were answered `elapsed_ms` after they came."""

    def got(self, group: str, topic: str, messages: int, pulls: int = 1) -> None:
        """A group read so many messages of a topic, with so many pulls."""

    def missed(self, pulls: int = 1) -> None:
        """So many reads found nothing."""

    def forget_topic(self, topic: str) -> None:
        """The topic is deleted."""

    def forget_group(self, group: str) -> None:
        """The group is deleted."""
