"""What hangs on a broker's role (`kernel.roles`), in its order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from perseid.broker.kernel.roles import RoleHook
from perseid.broker.offsets import ConsumerOffsets
from perseid.store.store import MessageStore
from perseid.wire.bodies import TopicConfig

if TYPE_CHECKING:
    from perseid.broker.node import Broker

RECENT_MS = 60_000
"""A topic of a message so new may be missing in a slave's copy of its master's table; an older one was deleted."""


def role_hooks(broker: Broker) -> tuple[RoleHook, ...]:
    """Those of one broker, from the first to the last."""
    turn, changed = broker.turn, broker.generation.rise
    lost = partial(broker.durability.give_up, "another broker became master before enough replicas had the message")
    return (
        RoleHook("quick pulls", changed, changed),
        RoleHook("who hears of appends", broker.arrivals.listen, broker.arrivals.listen),
        RoleHook("answers that wait", follow=lost),
        RoleHook("copies of the master's tables", lambda: broker.replicas.copies.follow(None, turn.now)),
        RoleHook("consumer offsets", partial(_lead_offsets, broker), broker.offsets.follow),
        RoleHook("delayed messages", lambda: broker.delay.start(turn.now), broker.delay.stop, sent_away=True),
        RoleHook("messages for a time", lambda: broker.timers.start(turn.now), broker.timers.stop, sent_away=True),
        RoleHook("transactions", broker.transactions.start, broker.transactions.stop, sent_away=True),
        RoleHook("pop", lambda: broker.pop.start(turn.now), partial(_drop_pops, broker)),
        RoleHook("lite topics", lambda: broker.lite.start(turn.now), broker.lite.stop),
        RoleHook("topics", partial(_complete_topics, broker)),
        RoleHook("the table's version", partial(_new_version, broker)),
        RoleHook("name servers", *2 * (lambda: broker.registration.role_changed(turn.now),)),
    )


def _lead_offsets(broker: Broker) -> None:
    broker.offsets.lead()
    if broker.replicas.manager is not None:
        set_groups_back(broker.offsets, broker.store)


def set_groups_back(offsets: ConsumerOffsets, store: MessageStore) -> None:
    """A master's epoch begins: no group is ahead of its queue. Those of a master that is elected again, too: what they
    read from one that was cut off, and lost, they may have committed here since."""
    offsets.clamp(queue_end(store))


def queue_end(store: MessageStore) -> Callable[[str, int], int]:
    """Where a queue ends, 0 for one that there is not: a group must not wait behind it, for offsets that were lost."""

    def end(topic: str, queue_id: int) -> int:
        queue = store.queue_of(topic, queue_id)
        return queue.next_offset if queue is not None else 0

    return end


def _drop_pops(broker: Broker) -> None:
    broker.pop.stop()
    broker.holds.pops.everyone()  # to be told who is master


def _complete_topics(broker: Broker) -> None:
    """A topic that the old master made in its last moments: its messages are here, its row is not."""
    store, config = broker.store, broker.settings.current
    if broker.replicas.manager is None and broker.group is None:
        return
    queues: dict[str, int] = {}
    for topic, queue_id in store.queues():
        if topic not in broker.topics and not broker.topics.is_system(topic):
            newest = store.store_time(topic, queue_id, store.max_offset(topic, queue_id) - 1)
            if newest >= store.log.last_timestamp - RECENT_MS:
                queues[topic] = max(queues.get(topic, 0), queue_id + 1)
    for topic, count in queues.items():
        count = count if topic.startswith("%") else max(count, config.default_topic_queue_nums)
        row = TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
        broker.topics.update(row, broker.turn.now)
        broker.note("warning", f"topic {topic} came with its messages, without a row in the last copy of the table")


def _new_version(broker: Broker) -> None:
    """Name servers take the table of the newer master (B37)."""
    if broker.replicas.manager is not None:
        broker.topics.bump(broker.turn.now, broker.replicas.manager.epoch)
