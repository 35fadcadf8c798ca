"""What is looked at when something becomes of the broker: it starts, ends, saves its tables, loses its power."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from perseid.base.machine import Flush, SaveState
from perseid.broker.consume.offsets import OFFSETS_PATH
from perseid.broker.transactions.service import GROUP as TRANSACTIONS
from perseid.sim.history import History
from perseid.sim.models.broker.durability import Durability, Played
from perseid.sim.models.broker.retention import Retention
from perseid.sim.promises import Violation
from perseid.wire import fastjson
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command
from perseid.wire.names import HALF_TOPIC, OP_HALF_TOPIC
from perseid.wire.record import Record, decode_all

SEND_OK = (ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT)


def read_answer(history: History, reply: Command, now_us: int) -> list[Record]:
    """The records of an answer, each checked against the history."""
    if reply.code != ResponseCode.SUCCESS or not len(reply.body):
        return []
    records = decode_all(reply.body)
    for record in records:
        history.saw(record, now_us)
    return records


class Topic(Protocol):
    """One that was asked for."""

    @property
    def name(self) -> str: ...

    @property
    def queues(self) -> int: ...


class Cluster(Played, Protocol):
    """The broker that is looked at, and its topics."""

    created: set[str]

    @property
    def topics(self) -> Sequence[Topic]: ...


class Checkers:
    """The checks of one run."""

    def __init__(self, cluster: Cluster, on_delete: Callable[[], None]) -> None:
        """`on_delete`: an old file of the log is gone."""
        self.cluster = cluster
        self.history = cluster.history
        self.durability = Durability(cluster)
        self.retention = Retention(cluster.history, on_delete)

    def job(self, effect: Flush | SaveState) -> Callable[[], None] | None:
        """A job of the broker's disk was asked for."""
        if isinstance(effect, SaveState) and effect.path == OFFSETS_PATH:
            table: dict[str, Any] = fastjson.loads(effect.data).get("offsetTable") or {}
            takeovers = self.history.offsets.takeovers
            return lambda: self.history.offsets.saved(table, takeovers)
        return None

    def started(self, broker: Any) -> None:
        """The broker has recovered: look at everything that clients were promised."""
        history, store = self.history, broker.parts.store
        self.durability.come_back(store)
        for topic in self.cluster.topics:
            row = broker.parts.topics.get(topic.name)
            if topic.name in self.cluster.created and (row is None or row.write_queue_nums != topic.queues):
                raise Violation("a topic that was made stays", f"{topic.name} with {topic.queues} queues is {row}")
        self.retention.look(store)
        self.durability.recovered(store)
        history.queues.lost(history.order.recovered(store.reads.max_offset))
        self._group_offsets(store, broker.parts.offsets)

    def _group_offsets(self, store: Any, offsets: Any) -> None:
        def offset_of(topic: str, group: str, queue_id: int) -> int | None:
            found: int | None = offsets.query(topic, group, queue_id)
            return found

        self.history.offsets.recovered(offset_of, store.reads.max_offset)
        for topic in (HALF_TOPIC, OP_HALF_TOPIC):
            offset, end = offset_of(topic, TRANSACTIONS, 0) or 0, store.reads.max_offset(topic, 0)
            if offset > end:
                raise Violation("no group is ahead of its queue", f"{TRANSACTIONS} in {topic}: {offset} of {end}")
