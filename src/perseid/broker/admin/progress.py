"""How far a group is in a queue, and how far the queue goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.broker.kernel.settings import Settings
from perseid.store.reads import Reads
from perseid.wire import bodies
from perseid.wire.bodies import MessageQueue

if TYPE_CHECKING:
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.static_topics.mappings import TopicMappings


@dataclass(slots=True, kw_only=True)
class Progress:
    """That of all groups of one broker."""

    settings: Settings
    reads: Reads
    offsets: ConsumerOffsets
    mappings: TopicMappings

    def queue(self, topic: str, queue_id: int) -> MessageQueue:
        """A queue of this broker."""
        return MessageQueue(topic, self.settings.current.broker_name, queue_id)

    def of(self, group: str, topic: str, queue_id: int) -> bodies.OffsetWrapper:
        """How far a group is in a queue, and how far the queue goes. In a static topic -1 says that the group has no
        offset in this queue: it may have one in another of the same logical queue."""
        nowhere = -1 if topic in self.mappings.rows else 0
        found = self.offsets.query(topic, group, queue_id)
        consumed = nowhere if found is None else found
        pulled = self.offsets.pull_offset(topic, group, queue_id) or 0
        last = self.reads.store_time(topic, queue_id, consumed - 1) if consumed > 0 else 0
        return bodies.OffsetWrapper(
            broker_offset=max(0, self.reads.max_offset(topic, queue_id)),
            consumer_offset=consumed,
            pull_offset=max(consumed, pulled),
            last_timestamp=max(0, last),
        )
