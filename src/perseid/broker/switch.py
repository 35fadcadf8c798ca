"""What a broker becomes and drops when its role changes: one list, from the top to the bottom, for both ways.

Whoever brings something that a master has and a slave has not adds a row. Nothing here waits: what must be durable
before a role begins is so already, and what has to be told to others is told at once. Queue offsets need no row: each
queue ends where its log's last record of it says, in every role.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from perseid.wire.bodies import TopicConfig

if TYPE_CHECKING:
    from perseid.broker.node import Broker

RECENT_MS = 60_000
"""A topic of a message so new may be missing in a slave's copy of its master's table; an older one was deleted."""

Change = Callable[["Broker"], None]


class Part(NamedTuple):
    """Something that hangs on the role."""

    name: str
    master: Change
    slave: Change


def become(broker: Broker, *, master: bool) -> None:
    """The broker's role is another one from now on."""
    broker.replicas.is_slave = not master
    broker.note("info", f"{broker.config.broker_name} is {'master' if master else 'slave'} here")
    for part in PARTS:
        (part.master if master else part.slave)(broker)


def send_away(broker: Broker, *, on: bool) -> None:
    """A slave begins, or ends, to act for its master: what is due meanwhile goes to another one, if that is wanted."""
    if not broker.escape.wanted:
        return
    for part in PARTS:
        if part.name in SENT_AWAY and not on:
            part.slave(broker)
    broker.escape.switch(on)
    for part in PARTS:
        if part.name in SENT_AWAY and on:
            part.master(broker)


def _nothing(broker: Broker) -> None:
    """Of a part that has nothing to do in this direction."""


def _check_pulls_anew(broker: Broker) -> None:
    broker.epoch += 1


def _hear_appends(broker: Broker) -> None:
    broker.arrivals.listen()


def _give_up(broker: Broker) -> None:
    broker.give_up_waiting("another broker became master before enough replicas had the message")


def _copy_nobody(broker: Broker) -> None:
    broker.replicas.copies.follow(None, broker.now)


def _lead_offsets(broker: Broker) -> None:
    broker.offsets.lead()
    if broker.replicas.manager is not None:
        set_groups_back(broker)


def set_groups_back(broker: Broker) -> None:
    """A master's epoch begins: no group is ahead of its queue. Those of a master that is elected again, too: what they
    read from one that was cut off, and lost, they may have committed here since."""
    broker.offsets.clamp(queue_end(broker))


def queue_end(broker: Broker) -> Callable[[str, int], int]:
    """Where a queue ends, 0 for one that there is not: a group must not wait behind it, for offsets that were lost."""

    def end(topic: str, queue_id: int) -> int:
        queue = broker.store.queue_of(topic, queue_id)
        return queue.next_offset if queue is not None else 0

    return end


def _follow_offsets(broker: Broker) -> None:
    broker.offsets.follow()


def _deliver_delayed(broker: Broker) -> None:
    broker.delay.start(broker.now)


def _stop_delivering(broker: Broker) -> None:
    broker.delay.stop()


def _turn_the_wheel(broker: Broker) -> None:
    broker.timers.start(broker.now)


def _stop_the_wheel(broker: Broker) -> None:
    broker.timers.stop()


def _take_up_halves(broker: Broker) -> None:
    broker.transactions.start()


def _drop_halves(broker: Broker) -> None:
    broker.transactions.stop()


def _take_up_pops(broker: Broker) -> None:
    broker.pop.start(broker.now)


def _drop_pops(broker: Broker) -> None:
    broker.pop.stop()
    broker.holds.pops.everyone()  # to be told who is master


def _read_lite_topics(broker: Broker) -> None:
    broker.lite.start(broker.now)


def _drop_readers(broker: Broker) -> None:
    broker.lite.stop()


def _complete_topics(broker: Broker) -> None:
    """A topic that the old master made in its last moments: its messages are here, its row is not."""
    store, config = broker.store, broker.config
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
        broker.topics.update(row, broker.now)
        broker.note("warning", f"topic {topic} came with its messages, without a row in the last copy of the table")


def _new_version(broker: Broker) -> None:
    """Name servers take the table of the newer master (B37)."""
    if broker.replicas.manager is not None:
        broker.topics.bump(broker.now, broker.replicas.manager.epoch)


def _register(broker: Broker) -> None:
    broker.registration.role_changed(broker.now)


PARTS = (
    Part("quick pulls", _check_pulls_anew, _check_pulls_anew),
    Part("who hears of appends", _hear_appends, _hear_appends),
    Part("answers that wait", _nothing, _give_up),
    Part("copies of the master's tables", _copy_nobody, _nothing),
    Part("consumer offsets", _lead_offsets, _follow_offsets),
    Part("delayed messages", _deliver_delayed, _stop_delivering),
    Part("messages for a time", _turn_the_wheel, _stop_the_wheel),
    Part("transactions", _take_up_halves, _drop_halves),
    Part("pop", _take_up_pops, _drop_pops),
    Part("lite topics", _read_lite_topics, _drop_readers),
    Part("topics", _complete_topics, _nothing),
    Part("the table's version", _new_version, _nothing),
    Part("name servers", _register, _register),
)
SENT_AWAY = ("delayed messages", "messages for a time", "transactions")
