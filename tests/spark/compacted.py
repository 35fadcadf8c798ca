"""A broker with a compacted topic, for tests."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from perseid.client import Message, MessageQueue
from perseid.client.blocking import BlockingAdmin, BlockingProducer, BlockingPullConsumer
from perseid.testing.embedded import SMALL_STORE, EmbeddedBroker

TOPIC = "keyed"
QUEUE = MessageQueue(TOPIC, "embedded", 0)
STORE = replace(
    SMALL_STORE, commit_log_file_bytes=16 << 10, compaction_mapped_file_size=46 * 10 * 5,
    compaction_cq_mapped_file_size=46 * 10, compaction_schedule_internal=300,
)  # fmt: skip
DEADLINE_S = 60


def broker_in(folder: Path) -> EmbeddedBroker:
    """A broker whose files are small, and which compacts at once."""
    return EmbeddedBroker(folder, store=STORE)


def make(broker: EmbeddedBroker) -> None:
    """The topic, with one queue."""
    with BlockingAdmin(broker.namesrv) as admin:
        admin.create_topic(TOPIC, 1, attributes={"cleanup.policy": "COMPACTION"})


def send(broker: EmbeddedBroker, count: int, keys: int, first: int = 0, name: str = "k") -> None:
    """Messages `first`, `first` + 1, …: their keys take turns."""
    with BlockingProducer(broker.namesrv) as producer:
        for number in range(first, first + count):
            producer.send(Message(TOPIC, b"%d" % number, keys=[f"{name}{number % keys}"]), queue=QUEUE)


def there(broker: EmbeddedBroker) -> list[int]:
    """The offsets that a consumer gets."""
    with BlockingPullConsumer(broker.namesrv, "look") as consumer:
        end = consumer.max_offset(QUEUE)
        return [message.queue_offset for found in consumer.read(QUEUE, 0, end) for message in found]


def compacted(broker: EmbeddedBroker, below: int) -> list[int]:
    """The offsets that a consumer gets once there are fewer than so many, and compaction has come to rest."""
    deadline, before, found = time.monotonic() + DEADLINE_S, [-1], [0]
    with BlockingPullConsumer(broker.namesrv, "wait") as consumer:
        while time.monotonic() < deadline:
            consumer.pull(QUEUE, consumer.max_offset(QUEUE), hold_ms=1000)  # nothing comes: three more compactions
            before, found = found, there(broker)
            if len(found) < below and found == before:
                return found
    raise AssertionError(f"not compacted within {DEADLINE_S} s: {len(found)} messages")
