"""One seed of a whole cluster: clients, faults, and the last check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perseid.sim.features.played import drawn, store_settings
from perseid.sim.features.stage import Features
from perseid.sim.models.broker.run import Result, played
from perseid.sim.models.ha.clients import Client, Operator, Probe, Producer, Reader
from perseid.sim.models.ha.cluster import Ha
from perseid.sim.models.ha.faults import HaFaults
from perseid.sim.models.ha.queues import TOPIC
from perseid.sim.models.ha.transactions import Transactions
from perseid.sim.options import DRAWN, Options
from perseid.sim.pace import under_faults
from perseid.sim.promises import Violation
from perseid.sim.promises.linear_queues import require_linearizable
from perseid.sim.promises.timers import check_time, still_waits
from perseid.sim.scheduler import US_PER_S
from perseid.sim.users import Permissions
from perseid.wire.names import TIMER_TOPIC
from perseid.wire.record import decode

BEGIN_US = 30 * US_PER_S
"""A new cluster serves within this."""
SERVES_US = 29 * US_PER_S
"""C13: and so long after all faults have healed there is a master at work."""
IN_SYNC_US = 60 * US_PER_S
"""So long it may take until all are in sync and have the same; and until sends succeed that wait for others."""
DELAY_US = 10 * US_PER_S


class Course:
    """The course of one seed."""

    def __init__(self, seed: int, options: Options = DRAWN) -> None:
        played = drawn("ha", seed, options.features, options.selection)
        settings = {**({} if options.timed is None else {"timed": options.timed}), **options.settings}
        self.ha = ha = Ha(seed, store_settings=store_settings(played), selection=options.selection, **settings)
        ha.ambushes = True
        self.producers = [Producer(ha, f"producer{n}", pause) for n, pause in enumerate((60, 250, 900), 1)]
        self.readers = [Reader(ha, f"reader{n}", pause) for n, pause in enumerate((200, 1_500), 1)]
        self.operator = Operator(ha, "operator")
        self.clients: list[Client] = [*self.producers, *self.readers]
        transactions = options.transactions
        if transactions is None:
            transactions = ha.scheduler.stream("transactions").random() < 0.3
        self.transactions = Transactions(ha, "transactions1", 300) if transactions else None
        if self.transactions is not None:
            self.clients.append(self.transactions)
        self.features = Features(ha.stage, {**played, "users": Permissions} if ha.access else played)
        self.faults = HaFaults(ha, self.clients, self.operator)

    def play(self) -> None:
        """All of it. Violation when something is wrong."""
        self.begin()
        under_faults(self.ha, self.faults, "the set serves")
        self.finish()

    def begin(self) -> None:
        """Start everything, and wait until it serves."""
        ha = self.ha
        ha.start()
        if not ha.scheduler.run(BEGIN_US, lambda: ha.serving):
            raise Violation("C13", f"a new cluster does not serve within {BEGIN_US // US_PER_S} s: {ha.settled()}")
        self.features.prepare()
        for client in ha.scheduler.chosen.some(self.clients, self.clients[0]):
            client.begin()
        self.operator.begin()
        self.features.begin()

    def finish(self) -> None:
        """Heal everything; then all promises are looked at once more."""
        ha, scheduler = self.ha, self.ha.scheduler
        self.faults.heal()
        if not scheduler.run(scheduler.now_us + SERVES_US, lambda: ha.serving):
            raise Violation("C13", f"nobody serves within {SERVES_US // US_PER_S} s: {ha.settled()}")
        self.faults.bring_back_forgotten()
        probe = Probe(ha, "probe")
        probe.begin()
        alone = ha.settings.nodes == ha.settings.min_in_sync == 1
        if not scheduler.run(scheduler.now_us + (SERVES_US if alone else IN_SYNC_US), lambda: not probe.left):
            raise Violation("sends succeed after faults heal", f"not to {probe.left} of the queues")
        for client in self.clients:
            if client is self.transactions:
                self.transactions.wind_down()
            else:
                client.stop()
        scheduler.run(scheduler.now_us + DELAY_US)
        self._end_transactions()
        self.features.finish()
        if not scheduler.run(scheduler.now_us + IN_SYNC_US, lambda: not ha.settled()):
            raise Violation("C13", f"not within {IN_SYNC_US // US_PER_S} s: {ha.settled()}")
        self.check()

    def _end_transactions(self) -> None:
        """All halves are asked about, and decided."""
        producer, scheduler = self.transactions, self.ha.scheduler
        if producer is None:
            return
        if not scheduler.run(scheduler.now_us + IN_SYNC_US, lambda: not producer.unfinished()):
            why = producer.unfinished()
            raise Violation("every transaction comes to an end", f"not within {IN_SYNC_US // US_PER_S} s: {why}")
        producer.stop()

    def check(self) -> None:
        """The last look: all that was acknowledged, in each broker's log and queues."""
        ha, history = self.ha, self.ha.history
        for replica in ha.replicas:
            assert replica.broker is not None
            for stored in history.stored.values():
                if not replica.has(stored):
                    raise Violation("C5", f"{replica.name} has not {stored.body[:20]!r} at {stored.physical}")
            history.places.check(replica)
            self._queues(replica)
        if ha.oracle.states and history.acknowledged == 0:
            raise Violation("the set serves", "nothing was acknowledged")
        if ha.certain and not history.lost:
            require_linearizable(history.queues, ha.counts)

    def _queues(self, replica: Any) -> None:
        """Queues have no gaps, each message once, and what was delayed has come: but not where a broker begins with a
        later part of the log, which may be master without what stands before."""
        store, history = replica.broker.parts.store, self.ha.history
        met: dict[bytes, int] = {}
        waiting: set[bytes] = set()
        clock_ms = min(one.driver.now for one in self.ha.replicas)
        for topic, queue_id in sorted(store.queues.table):
            for offset in range(store.reads.min_offset(topic, queue_id), store.reads.max_offset(topic, queue_id)):
                unit = store.reads.unit(topic, queue_id, offset)
                if unit is not None and replica.start and unit.physical_offset < replica.start:
                    continue  # its log begins later: what fills the queue up to there names nothing
                raw = replica.record(unit.physical_offset) if unit is not None else None
                if raw is None:
                    raise Violation("C11", f"{replica.name}: {topic}/{queue_id}@{offset} is {unit}")
                if topic == TIMER_TOPIC and still_waits(decode(raw), clock_ms):
                    waiting.add(decode(raw).body)
                if topic == TOPIC:
                    record = decode(raw)
                    self.ha.count("timed message came", int(check_time(record)))
                    body = record.body
                    met[body] = met.get(body, 0) + 1
        for body, times in met.items():
            history.decisions.check_read(replica.name, body)
            if body not in history.sent:
                raise Violation("what is stored was sent", f"{replica.name}: {body[:20]!r}")
            if times > history.sent[body] and body not in history.may_repeat:
                raise Violation("stored as often as it was sent", f"{replica.name}: {body[:20]!r}, {times} times")
        missing = sorted(history.delayed - met.keys() - waiting)
        if missing and self.ha.certain and not replica.start and not self.ha.settings.late:
            raise Violation("delayed messages come", f"{replica.name}: {len(missing)} are missing: {missing[0][:20]!r}")


def run(seed: int, options: Options = DRAWN) -> Result:
    """Play one seed; never raises for what the cluster did wrong."""
    course = Course(seed, replace(options, settings={"modes": True, **options.settings}))
    return played(seed, course.play, course.ha, course.faults, story=options.story)
