"""One seed, from the first start to the last check; and what many seeds say together."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from perseid.sim.features.played import drawn, store_settings
from perseid.sim.features.stage import Features
from perseid.sim.models.broker.acting import SHOWN_US
from perseid.sim.models.broker.client import Client
from perseid.sim.models.broker.cluster import Cluster
from perseid.sim.models.broker.faults import MIN_FAULTS, Faults
from perseid.sim.models.broker.keeper import Keeper
from perseid.sim.models.broker.lockers import Holders, Locker
from perseid.sim.models.broker.operator import Auditor, Operator
from perseid.sim.models.broker.poppers import Drainer, Popper
from perseid.sim.models.broker.stray import Stray
from perseid.sim.models.broker.transactions import TransactionProducer
from perseid.sim.models.broker.wanderer import Locks, Wanderer
from perseid.sim.models.broker.workload import (
    BatchProducer,
    Consumer,
    DelayProducer,
    Hostile,
    OnewayProducer,
    OrderedProducer,
    Producer,
)
from perseid.sim.options import DRAWN, Options
from perseid.sim.pace import under_faults
from perseid.sim.promises import Violation
from perseid.sim.promises.linear_queues import require_linearizable
from perseid.sim.scheduler import US_PER_S, Scheduler
from perseid.sim.selection import Begun
from perseid.sim.users import Permissions

POPPING = 0.5
"""Of the seeds: in the others nobody pops."""
BATCHES = 0.5
"""Of those where nobody pops: one of the topics has batch consume queues."""
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
    """How a seed went. `story`: its trace as lines, when it was asked for or the seed failed; `broken`: the property
    that did not hold, or the exception and where it came from: equal for failures of one kind."""

    seed: int
    failure: str = ""
    broken: str = ""
    digest: str = ""
    operations: int = 0
    faults: int = 0
    virtual_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)
    begun: dict[int, Begun] = field(default_factory=dict)
    """How its faults began, by number."""
    paces: list[float] = field(default_factory=list)
    """How slow the clients of a swarm were."""
    parts: set[str] = field(default_factory=set)
    """Clients and operations that it had, and could have been without."""
    healed_s: float | None = None
    """When the last checks began; None: it did not come so far."""


class Run:
    """The course of one seed."""

    def __init__(self, seed: int, options: Options = DRAWN) -> None:
        timed, acting, selection = options.timed is not False, options.acting, options.selection
        played = drawn("acting" if acting else "broker", seed, options.features, selection)
        self.cluster = cluster = Cluster(
            seed, options.slaves, options.transactions, timed=timed, acting=acting,
            store_settings=store_settings(played), selection=selection,
        )  # fmt: skip
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
            self.wanderers = cluster.scheduler.chosen.some(self.wanderers)
            self.clients += self.wanderers
        self.transactions = TransactionProducer(cluster, "transactions1", 2_500) if cluster.transactions else None
        if self.transactions is not None:
            self.clients.append(self.transactions)
        self.clients = cluster.scheduler.chosen.some(self.clients, *self.producers[:1], *self.wanderers)
        self.features = Features(cluster.stage, {**played, "users": Permissions} if cluster.access else played)
        self.faults = Faults(cluster, Hostile(cluster), [client.name for client in self.clients])

    def play(self) -> None:
        """All of it. Violation, or another exception, when something is wrong."""
        cluster, scheduler = self.cluster, self.cluster.scheduler
        cluster.start()
        self.operator.prepare()
        wanted = {topic.name for topic in cluster.topics}
        if not scheduler.run(PREPARE_US, lambda: cluster.created >= wanted):
            raise Violation("a fresh cluster serves", f"topics {sorted(wanted - cluster.created)} were not made")
        self.features.prepare()
        for client in self.clients:
            client.begin()
        self.features.begin()
        under_faults(cluster, self.faults, "the cluster serves")
        self.finish()

    def _catch_up(self) -> None:
        """Every slave has all. What is far from its time, since a clock went back, rolls all the time, and each crash
        may have doubled it: a flow control that is slower is lifted."""
        cluster, scheduler = self.cluster, self.cluster.scheduler
        for try_again in (cluster.slaves.lift_flow_control, lambda: False):
            if scheduler.run(scheduler.now_us + SLAVES_US, lambda: not cluster.slaves.settled()):
                return
            if not try_again():
                break
        why = cluster.slaves.settled()
        raise Violation("every slave catches up", f"not within {SLAVES_US // US_PER_S} s: {why}")

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
        self.features.finish()
        self._end_wandering()
        self._catch_up()
        if cluster.broker.machine is not None:
            cluster.checkers.retention.look(cluster.broker.machine.parts.store)  # type: ignore[attr-defined]
        if self.pops:
            self.drain()
        cluster.broker.disk.evict()  # the auditor's pulls have to wait for the disk
        auditor = Auditor(cluster, "auditor")
        auditor.begin()
        if not scheduler.run(scheduler.now_us + AUDIT_US, lambda: not auditor.left):
            raise Violation("everything can be read", f"not within {AUDIT_US // US_PER_S} s")
        auditor.check()
        self._linearizable()
        if self.transactions is not None:
            self.transactions.check(auditor.seen)

    def _linearizable(self) -> None:
        """One order of all that happened explains what clients were told."""
        queues = self.cluster.history.queues
        if self.cluster.history.offsets.takeovers:
            queues.steps.clear()  # those of a slave that acted count then
        require_linearizable(queues, self.cluster.counts)

    def _end_wandering(self) -> None:
        """All routes lead to the master, and what was committed at slaves is committed there."""
        scheduler, address = self.cluster.scheduler, self.cluster.broker_address
        if not scheduler.run(
            scheduler.now_us + SHOWN_US, lambda: all(w.broker_address == address for w in self.wanderers)
        ):
            raise Violation("the master is shown as the master", f"not within {SHOWN_US // US_PER_S} s")
        if not self.wanderers:
            return
        scheduler.run(scheduler.now_us + SETTLE_US)
        for wanderer in self.wanderers:
            wanderer.commit_all()
        scheduler.run(scheduler.now_us + 2 * US_PER_S)
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


class Struck(Protocol):
    """The faults of a course."""

    begun: int


def origin(error: BaseException) -> str:
    """The kind of an exception and the function that raised it, without lines, which every change moves."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {Path(frames[-1].filename).stem}.{frames[-1].name}" if frames else ""
    return f"{type(error).__name__}{where}"


def played(seed: int, play: Callable[[], None], world: World, faults: Struck, *, story: bool) -> Result:
    """Play a course, and say how it went; never raises for what the nodes did wrong."""
    result = Result(seed)
    try:
        play()
    except Violation as violation:
        result.failure, result.broken = str(violation), violation.invariant
        if violation.__cause__ is not None:
            result.failure += "\n" + "".join(traceback.format_exception(violation.__cause__))
            result.broken += f" ({origin(violation.__cause__)})"
    except Exception as error:
        result.failure, result.broken = "".join(traceback.format_exception(error)), origin(error)
    scheduler = world.scheduler
    result.operations, result.faults = world.operations, faults.begun
    result.virtual_s, result.counts = scheduler.now_us / US_PER_S, world.counts
    result.digest = scheduler.trace.digest()
    chosen = scheduler.chosen
    result.begun, result.paces, result.parts = chosen.begun, chosen.paces, chosen.parts
    result.healed_s = chosen.healed_us / US_PER_S if chosen.healed_us is not None else None
    if not result.failure and result.faults < MIN_FAULTS and chosen.selection.is_whole:
        result.failure, result.broken = f"only {result.faults} faults began", "enough faults begin"
    if story or result.failure:
        result.story = scheduler.trace.story()
    return result


def run(seed: int, options: Options = DRAWN) -> Result:
    """Play one seed; never raises for what the cluster did wrong."""
    course = Run(seed, options)
    return played(seed, course.play, course.cluster, course.faults, story=options.story)


def run_acting(seed: int, options: Options = DRAWN) -> Result:
    """The same with slaves that act for a master which is away."""
    return run(seed, replace(options, acting=True))
