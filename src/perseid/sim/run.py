"""One seed, from the first start to the last check; and what many seeds say together."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from perseid.sim.acting import SHOWN_US, Locks, Wanderer
from perseid.sim.client import Client
from perseid.sim.cluster import Cluster
from perseid.sim.faults import MIN_FAULTS, Faults
from perseid.sim.history import Violation
from perseid.sim.keeper import Keeper
from perseid.sim.lockers import Holders, Locker
from perseid.sim.operator import Auditor, Operator
from perseid.sim.poppers import Drainer, Popper
from perseid.sim.scheduler import US_PER_S, Scheduler
from perseid.sim.slaves import Stray
from perseid.sim.transactions import TransactionProducer
from perseid.sim.workload import (
    BatchProducer,
    Consumer,
    DelayProducer,
    Hostile,
    OnewayProducer,
    OrderedProducer,
    Producer,
)

FAULTS_US = 60 * US_PER_S
"""Of virtual time that a run lasts under faults."""
MIN_OPERATIONS = 300
POPPING = 0.5
"""Of the seeds: in the others nobody pops."""
BATCHES = 0.5
"""Of those where nobody pops: one of the topics has batch consume queues."""
MAX_FAULTS_US = 180 * US_PER_S
"""A run that has not done its operations by then has found a broker that does not serve."""
PREPARE_US = 30 * US_PER_S
LIVENESS_US = 40 * US_PER_S
"""After all faults have healed, each queue takes a message within this; a half-open connection between broker
and name server may take 20 of them until it is noticed, and there is no route before that."""
SLAVES_US = 60 * US_PER_S
"""So long a slave may take to notice a half-open connection, to be refused and wiped, and to catch up."""
SETTLE_US = 15 * US_PER_S
"""So long delayed messages may take to come, after that."""
DECIDED_US = 60 * US_PER_S
"""So long it may take until all producers were asked about open transactions, and have answered."""
AUDIT_US = 60 * US_PER_S
"""So long it may take until all can be read, and the name server knows all topics."""


@dataclass(slots=True)
class Result:
    """How a seed went. `story`: its trace as lines, when it was asked for or the seed failed."""

    seed: int
    failure: str = ""
    digest: str = ""
    operations: int = 0
    faults: int = 0
    virtual_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)


class Run:
    """The course of one seed."""

    def __init__(
        self, seed: int, slaves: int | None = None, transactions: bool | None = None, *, timed: bool = True,
        acting: bool = False,
    ) -> None:  # fmt: skip
        self.cluster = cluster = Cluster(seed, slaves, transactions, timed=timed, acting=acting)
        self.operator = Operator(cluster, "operator", 2_500)
        self.producers: list[Producer] = [
            Producer(cluster, "single1", 1_500),
            Producer(cluster, "single2", 2_200),
            BatchProducer(cluster, "batch1", 3_500),
            OrderedProducer(cluster, "ordered1", 900),
            OnewayProducer(cluster, "oneway1", 4_000),
            DelayProducer(cluster, "delayed1", 2_000 if timed else 6_000),
        ]
        self.consumers = [
            Consumer(cluster, "consumer1", "readers", None, 3_000),
            Consumer(cluster, "consumer2", "tagged", "TagA", 5_000),
        ]
        holders: Holders = {}
        lockers = [Locker(cluster, f"locker{n}", holders, 9_000) for n in (1, 2)]
        keeper = Keeper(cluster, "keeper", 2_500)
        self.clients: list[Client] = [self.operator, keeper, *self.producers, *self.consumers, *lockers]
        self.pops = cluster.scheduler.stream("pops").random() < POPPING
        if self.pops:
            self.clients += [Popper(cluster, f"popper{n}", 3_000) for n in (1, 2)]
        elif cluster.scheduler.stream("kinds").random() < BATCHES:
            cluster.topics[1] = replace(cluster.topics[1], batches=True)
            cluster.count("topic with BatchCQ")
        if cluster.slaves.all:
            self.clients.append(Stray(cluster, "stray"))
        self.wanderers: list[Wanderer] = []
        if cluster.slaves.acting is not None:
            locks: Locks = {}
            self.wanderers = [Wanderer(cluster, f"wanderer{n}", cluster.slaves.acting, locks) for n in (1, 2)]
            self.clients += self.wanderers
        self.transactions = TransactionProducer(cluster, "transactions1", 2_500) if cluster.transactions else None
        if self.transactions is not None:
            self.clients.append(self.transactions)
        self.faults = Faults(cluster, Hostile(cluster), [client.name for client in self.clients])

    def play(self) -> None:
        """All of it. Violation, or another exception, when something is wrong."""
        cluster, scheduler = self.cluster, self.cluster.scheduler
        cluster.start()
        self.operator.prepare()
        wanted = {topic.name for topic in cluster.topics}
        if not scheduler.run(PREPARE_US, lambda: cluster.created >= wanted):
            raise Violation("a fresh cluster serves", f"topics {sorted(wanted - cluster.created)} were not made")
        for client in self.clients:
            client.begin()
        start = scheduler.now_us
        self.faults.plan(start + US_PER_S, start + FAULTS_US)
        scheduler.run(start + FAULTS_US)
        while cluster.operations < MIN_OPERATIONS and scheduler.now_us < start + MAX_FAULTS_US:
            scheduler.run(scheduler.now_us + 5 * US_PER_S)
        if cluster.operations < MIN_OPERATIONS:
            raise Violation("the cluster serves", f"{cluster.operations} operations in {MAX_FAULTS_US // US_PER_S} s")
        self.finish()

    def finish(self) -> None:
        """Heal everything; then sends succeed again, and all that was promised can be read."""
        cluster, scheduler = self.cluster, self.cluster.scheduler
        self.faults.heal()
        for client in self.clients:
            if client is self.transactions:
                self.transactions.wind_down()
            elif client not in self.wanderers:
                client.stop()
        probe = Probe(cluster, "probe")
        probe.begin()
        patience_us = LIVENESS_US + (SLAVES_US if cluster.slaves.all else 0)
        if not scheduler.run(scheduler.now_us + patience_us, lambda: not probe.left):
            raise Violation(
                "sends succeed after faults heal", f"not within {patience_us // US_PER_S} s in {sorted(probe.left)}"
            )
        scheduler.run(scheduler.now_us + SETTLE_US)
        self._end_transactions()
        self._end_wandering()
        if not scheduler.run(scheduler.now_us + SLAVES_US, lambda: not cluster.slaves.settled()):
            why = cluster.slaves.settled()
            raise Violation("every slave catches up", f"not within {SLAVES_US // US_PER_S} s: {why}")
        if cluster.broker.machine is not None:
            cluster.checkers.deleted(cluster.broker.machine.store)  # type: ignore[attr-defined]
        if self.pops:
            self.drain()
        cluster.broker.disk.evict()  # the auditor's pulls have to wait for the disk
        auditor = Auditor(cluster, "auditor")
        auditor.begin()
        if not scheduler.run(scheduler.now_us + AUDIT_US, lambda: not auditor.left):
            raise Violation("everything can be read", f"not within {AUDIT_US // US_PER_S} s")
        auditor.check()
        if self.transactions is not None:
            self.transactions.check(auditor.seen)

    def _end_wandering(self) -> None:
        """All routes lead to the master, and what was committed at slaves is committed there."""
        scheduler, address = self.cluster.scheduler, self.cluster.broker_address
        if not scheduler.run(
            scheduler.now_us + SHOWN_US, lambda: all(w.broker_address == address for w in self.wanderers)
        ):
            raise Violation("the master is shown as the master", f"not within {SHOWN_US // US_PER_S} s")
        scheduler.run(scheduler.now_us + (SETTLE_US if self.wanderers else 0))
        for wanderer in self.wanderers:
            wanderer.stop()

    def _end_transactions(self) -> None:
        """All halves are asked about whose producer has an answer, and decided."""
        producer, scheduler = self.transactions, self.cluster.scheduler
        if producer is None:
            return
        if not scheduler.run(scheduler.now_us + DECIDED_US, lambda: not producer.unfinished()):
            why = producer.unfinished()
            raise Violation("every transaction comes to an end", f"not within {DECIDED_US // US_PER_S} s: {why}")
        producer.stop()
        scheduler.run(scheduler.now_us + US_PER_S)


    def drain(self) -> None:
        """All that was sent is popped and acknowledged in the end."""
        scheduler = self.cluster.scheduler
        drainer = Drainer(self.cluster, "drainer", 300)
        drainer.begin()
        scheduler.run(scheduler.now_us + AUDIT_US, lambda: not self.cluster.pops.left())
        drainer.check()
        drainer.stop()


class Probe(Producer):
    """Sends one message to each queue, again and again until each is acknowledged."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name, 0)
        self.left = {(topic.name, q) for topic in cluster.topics for q in range(topic.queues)}

    def work(self) -> None:
        for topic, queue_id in sorted(self.left):
            self.transmit([self.message(topic, queue_id)], retries=-1)

    def done(self, sents: list) -> None:  # type: ignore[type-arg]
        self.left.discard((sents[0].topic, sents[0].queue_id))


class World(Protocol):
    """What a course is played in."""

    scheduler: Scheduler
    counts: Counter[str]
    operations: int


class Begun(Protocol):
    """The faults of a course."""

    begun: int


def played(seed: int, play: Callable[[], None], world: World, faults: Begun, *, story: bool) -> Result:
    """Play a course, and say how it went; never raises for what the nodes did wrong."""
    result = Result(seed)
    try:
        play()
    except Violation as violation:
        result.failure = str(violation)
        if violation.__cause__ is not None:
            result.failure += "\n" + "".join(traceback.format_exception(violation.__cause__))
    except Exception as error:
        result.failure = "".join(traceback.format_exception(error))
    scheduler = world.scheduler
    result.operations, result.faults = world.operations, faults.begun
    result.virtual_s, result.counts = scheduler.now_us / US_PER_S, world.counts
    result.digest = scheduler.trace.digest()
    if not result.failure and result.faults < MIN_FAULTS:
        result.failure = f"only {result.faults} faults began"
    if story or result.failure:
        result.story = scheduler.trace.story()
    return result


def run(
    seed: int, *, story: bool = False, slaves: int | None = None, transactions: bool | None = None, timed: bool = True,
    acting: bool = False,
) -> Result:  # fmt: skip
    """Play one seed; never raises for what the cluster did wrong. `slaves`: as many, and `transactions`: with or
    without, instead of what the seed draws; `timed`: with messages for a time; `acting`: with slaves
    that act for a master which is away."""
    course = Run(seed, slaves, transactions, timed=timed, acting=acting)
    return played(seed, course.play, course.cluster, course.faults, story=story)
