"""One seed of brokers in a Raft group. In the end all of them have the same queues, without gaps, and each message of
the log once in them."""

from __future__ import annotations

from perseid.sim.features.played import drawn, store_settings
from perseid.sim.features.stage import Features
from perseid.sim.models.broker.run import Result, played
from perseid.sim.models.dledger.clients import Client
from perseid.sim.models.dledger.group import BrokerGroup, BrokerMember, member_of
from perseid.sim.models.dledger.history import TOPIC, GroupHistory
from perseid.sim.models.raft.run import LIVENESS_US, Faults
from perseid.sim.options import DRAWN, Options
from perseid.sim.pace import under_faults
from perseid.sim.promises import Violation
from perseid.sim.promises.linear_queues import require_linearizable
from perseid.sim.promises.timers import check_time, still_waits
from perseid.sim.scheduler import US_PER_S
from perseid.sim.security import has_users
from perseid.sim.users import Permissions
from perseid.wire.names import SCHEDULE_TOPIC
from perseid.wire.record import decode

CLIENTS = 4
DELAY_US = 1 * US_PER_S


class Course:
    """The course of one seed."""

    def __init__(self, seed: int, options: Options = DRAWN) -> None:
        played = drawn("dledger", seed, options.features, options.selection)
        self.group = group = BrokerGroup(
            seed, transactions=options.transactions, strangers=options.strangers,
            named=bool(played) or has_users("dledger", seed),
            store_settings=store_settings(played), selection=options.selection,
        )  # fmt: skip
        group.ambushes = True
        self.history = GroupHistory(group)
        self.clients = [Client(group, f"client{n}", self.history) for n in range(CLIENTS)]
        self.features = Features(group.stage, {**played, "users": Permissions} if group.access else played)
        self.faults = Faults(group)

    def play(self) -> None:
        """All of it. Violation when something is wrong."""
        group, scheduler = self.group, self.group.scheduler
        group.start()
        self.features.prepare()
        for client in scheduler.chosen.some(self.clients, self.clients[0]):
            client.begin()
        self.features.begin()
        under_faults(group, self.faults, "the group serves")
        self.faults.heal()
        wanted = self.history.acknowledged + 5
        if not scheduler.run(scheduler.now_us + LIVENESS_US, lambda: self.history.acknowledged >= wanted):
            raise Violation("sends succeed after faults heal", f"not within {LIVENESS_US // US_PER_S} s")
        self.features.finish()
        for client in self.clients:
            client.running = False
        scheduler.run(scheduler.now_us + 5 * DELAY_US)
        if not scheduler.run(scheduler.now_us + LIVENESS_US, lambda: not self.unsettled()):
            raise Violation("every broker catches up", self.unsettled())
        self.check()

    def unsettled(self) -> str:
        """Why not all brokers have everything yet."""
        if why := self.group.settled():
            return why
        for member in self.group.members:
            assert isinstance(member, BrokerMember) and member.broker is not None
            if not member_of(member.broker).store.settled:
                return f"{member.name} has not dispatched all"
        return ""

    def check(self) -> None:
        """The last look: the queues of all brokers."""
        for member in self.group.members:
            assert isinstance(member, BrokerMember) and member.broker is not None
            store = member.broker.parts.store
            begin = store.log.start  # a disk that was too full has no older ones
            met: set[int] = set()
            bodies: set[bytes] = set()
            clock_ms = min(one.driver.now for one in self.group.members)
            for topic, queue_id in store.queues.table:
                last = -1
                for offset in range(store.reads.min_offset(topic, queue_id), store.reads.max_offset(topic, queue_id)):
                    unit = store.reads.unit(topic, queue_id, offset)
                    if unit is not None and topic in store.queues.batch_topics and unit.physical_offset == last:
                        continue  # another message of one record
                    last = unit.physical_offset if unit is not None else -1
                    body = self.group.records.get(unit.physical_offset) if unit is not None else None
                    if unit is None or body is None or unit.physical_offset in met:
                        raise Violation("queues have no gaps", f"{member.name}: {topic}/{queue_id}@{offset} is {unit}")
                    met.add(unit.physical_offset)
                    found = decode(store.reads.record_at(unit.physical_offset) or b"")
                    if check_time(found):
                        self.group.count("timed message came")
                    if still_waits(found, clock_ms):
                        bodies.add(body)
                    if topic == TOPIC:
                        bodies.add(body)
                        self.history.decisions.check_read(member.name, body)
                        if self.history.seen.get((queue_id, offset), body) != body:
                            raise Violation("an offset keeps its message", f"{member.name}: {queue_id}@{offset}")
            for queue_id, offset in self.history.seen:
                if offset >= store.reads.max_offset(TOPIC, queue_id):
                    raise Violation("nothing acknowledged is lost", f"{member.name} has no {queue_id}@{offset}")
            wanted = {offset for offset in self.group.records if offset >= begin}
            if met != wanted:
                raise Violation("each message is in its queue", f"{member.name}: {len(met)} of {len(wanted)}")
            if not begin and (missing := self.history.delayed - bodies):
                waits = store.reads.max_offset(SCHEDULE_TOPIC, 0)
                raise Violation("delayed messages come", f"{member.name}: {len(missing)} of {waits} are missing")
        require_linearizable(self.history.queues, self.group.counts)


def run(seed: int, options: Options = DRAWN) -> Result:
    """Play one seed; never raises for what the brokers did wrong."""
    course = Course(seed, options)
    return played(seed, course.play, course.group, course.faults, story=options.story)
