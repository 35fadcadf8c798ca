"""What a new master has to set right before it serves: groups that are ahead, and topics without a row."""

from __future__ import annotations

from collections.abc import Callable

from perseid.broker.consume.offsets import ConsumerOffsets
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.metadata.topics import TopicTable
from perseid.store.store import MessageStore
from perseid.wire.bodies import TopicConfig

RECENT_MS = 60_000
"""A topic of a message so new may be missing in a slave's copy of its master's table; an older one was deleted."""


def set_groups_back(offsets: ConsumerOffsets, store: MessageStore) -> None:
    """A master's epoch begins: no group is ahead of its queue. Those of a master that is elected again, too: what they
    read from one that was cut off, and lost, they may have committed here since."""
    offsets.clamp(queue_end(store))


def queue_end(store: MessageStore) -> Callable[[str, int], int]:
    """Where a queue ends, 0 for one that there is not: a group must not wait behind it, for offsets that were lost."""

    def end(topic: str, queue_id: int) -> int:
        queue = store.queues.get(topic, queue_id)
        return queue.next_offset if queue is not None else 0

    return end


class LostTopics:
    """Topics that the old master made in its last moments: their messages are here, their rows are not."""

    def __init__(self, turn: Turn, settings: Settings, store: MessageStore, topics: TopicTable) -> None:
        self._turn = turn
        self._settings = settings
        self._store = store
        self._topics = topics

    def make(self) -> None:
        """Make their rows anew."""
        store, config = self._store, self._settings.current
        queues: dict[str, int] = {}
        for topic, queue_id in store.queues.table:
            if topic not in self._topics and not self._topics.is_system(topic):
                newest = store.reads.store_time(topic, queue_id, store.reads.max_offset(topic, queue_id) - 1)
                if newest >= store.log.last_timestamp - RECENT_MS:
                    queues[topic] = max(queues.get(topic, 0), queue_id + 1)
        for topic, count in queues.items():
            count = count if topic.startswith("%") else max(count, config.default_topic_queue_nums)
            row = TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
            self._topics.update(row, self._turn.now)
            why = f"topic {topic} came with its messages, without a row in the last copy of the table"
            self._turn.note("warning", why)
