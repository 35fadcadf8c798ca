"""What the compiled core takes in a turn of a broker, and who hears of it: sends (`fast`), and timed messages here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid import core
from perseid.broker.metadata.system_topics import NOT_SENDABLE
from perseid.store.plain import packed_host
from perseid.wire.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from perseid.wire.record import MAX_TOPIC_BYTES
from perseid.wire.topic_flags import PERM_WRITE

if TYPE_CHECKING:
    from perseid.broker.admin.stats import BrokerStats
    from perseid.broker.consume.held_pulls import Holds
    from perseid.broker.kernel.durability import Durability
    from perseid.broker.kernel.settings import Settings
    from perseid.broker.kernel.turn import Turn
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.scheduled.timer_metrics import TimerMetrics
    from perseid.core import Core
    from perseid.core.batch import Batch as CoreBatch
    from perseid.core.batch import Target as CoreTarget
    from perseid.core.commits import Commits as CommitBatch
    from perseid.core.delays import Delays as DelayBatch
    from perseid.core.deliveries import Deliveries as DeliveryBatch
    from perseid.store.store import MessageStore
    from perseid.store.timer.log import Unit
    from perseid.store.timer.timers import TimerStore
    from perseid.wire.bodies import TopicConfig

MAX_TARGETS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CorePorts:
    """The parts of a broker that the core's turns need."""

    turn: Turn
    settings: Settings
    store: MessageStore
    topics: TopicTable
    holds: Holds
    stats: BrokerStats
    durability: Durability
    pop_topic: str
    """Of the revive log, whose messages POP hears of."""


def count_sends(ports: CorePorts, topic: str, count: int, size: int, requests: int) -> None:
    """Tell the statistics of plain sends. How long those took that wait is told when they are acknowledged."""
    ports.stats.put(topic, count, size)
    if not ports.durability.waits:
        ports.stats.put_took(0, requests)


class CoreTurn:
    """What the core takes in one turn of a broker: it is written, told of, and counted."""

    def __init__(self, ports: CorePorts, compiled: Core, batch: CoreBatch) -> None:
        self._ports = ports
        self._make = compiled.batch.Target
        self._batch = batch
        self._known: dict[tuple[str, int], CoreTarget] = {}
        batch.look_into(ports.topics.rows, ports.store.appends.plain_queues)
        self._appends = ports.store.appends.core_appends(batch)
        self._uncounted: list[CoreTarget] = []
        self._begun = False

    def settle(self) -> None:
        """Before another kind of request, and at the end of a turn: write, wake who waits, trust no target further."""
        self._begun = False
        batch, ports = self._batch, self._ports
        if not batch.touched:
            return
        self._appends.commit(ports.turn.now)
        if self._appends.seen:
            self._seen(batch.touched)
        for target in batch.touched:
            if not target.taken:
                self._uncounted.append(target)
        batch.clear()

    def count(self) -> None:
        """Tell the statistics what was sent: before anyone looks at them, and now and then."""
        for target in self._uncounted:
            count_sends(self._ports, target.topic, target.taken, target.taken_bytes, target.requests)
            target.taken = target.taken_bytes = target.requests = 0
        self._uncounted.clear()

    def learn(self, topic: str, queue_id: int) -> None:
        """Messages for this queue are plain from now on, if any can be that the broker itself stores anew."""
        row = self._ports.topics.rows.get(topic)
        if row is None or len(topic) > MAX_TOPIC_BYTES or self._ports.topics.is_special(topic):
            return
        if topic not in NOT_SENDABLE and topic != self._ports.pop_topic:  # others hear of what comes to those
            self._learn_queue(topic, queue_id, row)

    def _learn_queue(self, topic: str, queue_id: int, row: TopicConfig) -> bool:
        """Make a queue known to the core; False when it is, or there is none."""
        key = topic, queue_id
        queue, known = self._ports.store.appends.plain_queues.get(key), self._known.get(key)
        if queue is None or (known is not None and known.row is row and known.queue is queue):
            return False
        if len(self._known) >= MAX_TARGETS:
            self._known.clear()
        target = self._known[key] = self._make(topic, queue_id, queue, row)
        self._batch.learn(target, MAX_TARGETS)
        return True

    def _seen(self, targets: list[CoreTarget]) -> None:
        """Tell those who wait what was stored."""
        if self._ports.holds.count:
            for target in targets:
                self._ports.holds.units_arrived(target.topic, target.queue_id, target.first, target.units)

    def _begin(self) -> bool:
        """Begin a turn, or what comes after another kind of request; False: no message is plain now."""
        may_order = self._ports.settings.current.broker_permission & PERM_WRITE != 0
        self._begun = self._appends.begin(may_order, self._ports.turn.now)
        return self._begun


class CoreDeliveries(CoreTurn):
    """Timed messages whose time has come, by the compiled core: `deliver` each, then `settle`."""

    def __init__(self, ports: CorePorts, compiled: Core, timers: TimerStore, metrics: TimerMetrics) -> None:
        self._timers, self._metrics = timers, metrics
        host = packed_host(ports.settings.store_host)
        deliveries: DeliveryBatch = compiled.deliveries.Deliveries(host, TIMER_TOPIC.encode())
        super().__init__(ports, compiled, deliveries)
        self._deliveries = deliveries

    def deliver(self, unit: Unit) -> int:
        """Take the message of a unit of the timer log: where it will end in the log. 0: it has to be delivered in the
        ordinary way, before which this is to be settled."""
        if unit.rolls or unit.deletes or not (self._begun or self._begin()):
            return 0
        record = self._ports.store.reads.record_at(unit.physical_offset)
        precision_ms = self._timers.wheel.precision_ms
        return 0 if record is None else self._deliveries.deliver(record, precision_ms, unit.taken_at)

    def settle(self) -> None:
        targets = [(target.topic, target.count) for target in self._batch.touched]
        super().settle()
        for topic, count in targets:
            self._metrics.add(topic, -count, self._ports.turn.now)


class CoreDelays(CoreTurn):
    """Delayed messages whose time has come, by the compiled core: `deliver` each, then `settle`."""

    def __init__(self, ports: CorePorts, compiled: Core) -> None:
        host = packed_host(ports.settings.store_host)
        delays: DelayBatch = compiled.delays.Delays(host, SCHEDULE_TOPIC.encode())
        super().__init__(ports, compiled, delays)
        self._delays = delays

    def deliver(self, physical_offset: int) -> int:
        """Take the message of the record at an offset of the log: where it will end in the log. 0: it has to be
        delivered in the ordinary way, before which this is to be settled."""
        record = self._ports.store.reads.record_at(physical_offset)
        if record is None or not (self._begun or self._begin()):
            return 0
        return self._delays.deliver_delayed(record)


class CoreCommits(CoreTurn):
    """Halves that are committed, by the compiled core: `commit` each, then `settle`."""

    def __init__(self, ports: CorePorts, compiled: Core) -> None:
        commits: CommitBatch = compiled.commits.Commits(packed_host(ports.settings.store_host), HALF_TOPIC.encode())
        super().__init__(ports, compiled, commits)
        self._commits = commits

    def commit(self, physical_offset: int, queue_offset: int, group: str, transaction_id: str | None) -> int:
        """Take the message of a half: where it will end in the log. 0: the ordinary handler has to look at it, before
        which this is to be settled."""
        record = self._ports.store.reads.record_at(physical_offset)
        if record is None or not (self._begun or self._begin()):
            return 0
        texts = group.encode(errors="replace"), (transaction_id or "").encode(errors="replace")
        return self._commits.commit(record, physical_offset, queue_offset, *texts)


def deliveries_of(ports: CorePorts, timers: TimerStore, metrics: TimerMetrics) -> CoreDeliveries | None:
    """The quick way to deliver timed messages; None when there is none."""
    compiled = _compiled(ports)
    return CoreDeliveries(ports, compiled, timers, metrics) if compiled is not None else None


def delays_of(ports: CorePorts) -> CoreDelays | None:
    """The quick way to deliver delayed messages; None when there is none."""
    compiled = _compiled(ports)
    return CoreDelays(ports, compiled) if compiled is not None else None


def commits_of(ports: CorePorts) -> CoreCommits | None:
    """The quick way to commit halves; None when there is none."""
    compiled = _compiled(ports)
    return CoreCommits(ports, compiled) if compiled is not None else None


def _compiled(ports: CorePorts) -> Core | None:
    """The core, if this broker's messages can be plain."""
    return core.compiled if len(ports.settings.store_host.ip) == 4 and not ports.store.appends.lmq else None
