"""Slaves that act for a master which is away, in the simulator: `perseid sim --model acting` (broker.md §10.3).

All brokers have `enableSlaveActingMaster`, the name server `supportActingMaster`. Two wanderers go wherever routes show
a master, also one that can only be read, as stock clients do. Besides all that holds of a master and its slaves:

- who acts gives each message as it was sent, in its order; a lock that it gave has one holder as long as it lives;
- a group is told offsets that it committed, and no others;
- a master that comes back shows itself with what was committed at the slave that acted for it, if that one still had
  it when it was asked (which it is while wires are whole) and followed, and clocks are right; else with what was
  committed once;
- when all faults have healed, routes show the master again.

What the broker itself promises of a group's offsets begins anew when a master has come back: groups may go back to
where its slave had them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_S

if TYPE_CHECKING:
    from perseid.sim.models.broker.cluster import Cluster
    from perseid.sim.models.broker.slaves import Slave

AWAY = (0, 2, 4)
"""Times that a seed draws, at which the master goes, and stays away for a while."""
WIRE_FAULTS = tuple(
    f"fault {name}"
    for name in (
        "bits flip", "broker isolated", "connection reset", "half-open connection", "handshakes cut",
        "name server crash", "partition", "partition from the broker", "partition to the broker", "refused connects",
        "slave disk full", "slave half open", "slave partition", "slave slow fsync", "slave stall",
        "somebody in a servers place", "stall",
    )
)  # fmt: skip
"""With one of them a master may not be told of a slave, or by it."""
CLOCK_FAULTS = ("fault clock jump", "fault clock jump by days")
SHOWN_US = 60 * US_PER_S
"""So long it may take, after all faults have healed, until the master is shown as the master."""
Queue = tuple[str, int]


@dataclass(slots=True)
class Commit:
    """The last commit of a queue that was answered: by whom, in which of its lives, and when."""

    offset: int
    number: int
    """Of the attempts: what was tried later may have come, too."""
    slave: Slave | None
    """None: by the master."""
    acted: bool
    """The slave acted all the while: it promises nothing otherwise, for its master's table counts."""
    life: int
    at_us: int


class ActingHistory:
    """What is known of one cluster whose slaves act."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.random = cluster.scheduler.stream("acting")
        self.old_name_server = self.random.random() < 0.3
        self.notices = self.random.random() < 0.7
        self.version_step = self.random.choice((3, 500))
        self.escapes = cluster.scheduler.stream("escape").random() < 0.5
        """Who acts looks for another master, for what is due; there is none."""
        self.attempts: dict[tuple[str, Queue], list[int]] = {}
        """What each group tried to commit of a queue."""
        self.commits: dict[tuple[str, Queue], Commit] = {}
        self._acted: set[str] = set()
        """Slaves that began to act since the master was last at work."""
        self._still: set[str] = set()
        """Those that have not heard yet that it is."""
        self._asked_us: dict[str, int] = {}
        """When the master that comes back turned to each of its members."""
        self._shown_us = 0
        """When it last showed itself: it has taken over by then what was committed to who acted before."""
        self._began_us = 0
        """When it began to prepare itself."""
        self._followed: set[str] = set()
        """Members that followed it when it took over their tables; of others only what they know to be their own."""
        self._prepared = 0
        """Of how many members it has taken over the tables."""
        self._isolated = 0
        """In which life the master prepares itself; 0: it does not."""

    # ---- faults ----

    def plan(self, start_us: int, end_us: int) -> None:
        """The master goes now and then, for longer than a start takes."""
        for _ in range(self.random.choice(AWAY)):
            self.cluster.scheduler.plan(self.random.randrange(start_us, end_us), self.random, self._away)

    def _away(self) -> None:
        cluster = self.cluster
        cluster.scheduler.chosen.kind("master away")
        if cluster.broker.machine is not None:
            cluster.count("fault master away")
            (cluster.cut_power if self.random.random() < 0.3 else cluster.kill)(cluster.broker)
            cluster.restart_later(cluster.broker, 4_000, 25_000)

    # ---- what the machines do ----

    def slave_worked(self, slave: Slave) -> None:
        """After each event of a slave."""
        name = slave.driver.name
        if not acts(slave):
            self._still.discard(name)
        elif name not in self._still and name not in self._acted:
            self._acted.add(name)
            self.cluster.count("a slave acts")

    def master_worked(self, machine: Any) -> None:
        """After each event of the master."""
        acting = machine.parts.mode.acting
        if len(acting.prepared) > self._prepared:
            self._taken(machine)
        self._prepared = len(acting.prepared)
        if acting.isolated:
            if self._isolated != self.cluster.broker.lives:
                self._isolated, self._asked_us = self.cluster.broker.lives, {}
                self._followed.clear()
                self._began_us = self.cluster.scheduler.now_us
            if acting.prepares_with:
                self._asked_us.setdefault(acting.prepares_with, self.cluster.scheduler.now_us)
        elif self._isolated:
            self._isolated = 0
            self._online(machine)
            self._shown_us = self.cluster.scheduler.now_us
            self._acted.clear()
            self._still = {slave.driver.name for slave in self.cluster.slaves.all if acts(slave)}

    def _taken(self, machine: Any) -> None:
        """A master that comes back has taken over a member's table: groups may go back to where that one had them."""
        store, offsets, acting = machine.parts.store, machine.parts.offsets, machine.parts.mode.acting
        if acting.is_followed:
            self._followed.add(acting.prepares_with)

        def place(topic: str, group: str, queue_id: int) -> tuple[int | None, int]:
            return offsets.query(topic, group, queue_id), store.reads.max_offset(topic, queue_id)

        for (group, queue), attempts in self.attempts.items():
            offset = offsets.query(queue[0], group, queue[1])
            if offset == store.reads.max_offset(*queue):  # no group is beyond it, and later lives may begin with that
                attempts.append(offset)
        self.cluster.history.offsets.taken_over(place, self.cluster.scheduler.now_us)
        self.cluster.pops.power_cut()
        self.cluster.stage.repeated()
        self.cluster.stage.lost()

    def _online(self, machine: Any) -> None:
        """The master shows itself: groups go on where they were."""
        for (group, queue), attempts in self.attempts.items():
            offset = machine.parts.offsets.query(queue[0], group, queue[1])
            end = machine.parts.store.reads.max_offset(*queue)
            last = self.commits.get((group, queue))
            allowed = {*attempts, end, None}
            if last is not None and self._is_promised(last, machine):
                self.cluster.count("the master goes on where a slave's groups were")
                allowed = {min(offset, end) for offset in attempts[last.number :]}
            if offset not in allowed:
                where = f"{group} in {queue[0]}/{queue[1]}"
                raise Violation("what was committed to who acts comes back", f"{where}: {offset}, not of {allowed}")

    def _is_promised(self, last: Commit, machine: Any) -> bool:
        """Was it committed to the only one who acted, before the master asked that one, who still has it?"""
        slave, counts = last.slave, self.cluster.counts
        if slave is None or not last.acted or self._acted != {slave.driver.name} or last.at_us < self._shown_us:
            return False
        if any(counts[fault] for fault in CLOCK_FAULTS):
            return False
        if slave.machine is None or slave.driver.ending or slave.driver.lives != last.life:
            return False
        if not any(counts[fault] for fault in WIRE_FAULTS) and not self.cluster.slaves.master_lost:
            return last.at_us < self._began_us  # the master can't have missed it
        address = f"{slave.driver.ip}:{self.cluster.slaves.port}"
        return address in self._followed and last.at_us < self._asked_us.get(address, 0)

    # ---- what clients are told ----

    def tried(self, group: str, queue: Queue, offset: int) -> int:
        """A group is about to commit; the number of the attempt."""
        attempts = self.attempts.setdefault((group, queue), [])
        attempts.append(offset)
        return len(attempts) - 1

    def committed(self, group: str, queue: Queue, number: int, slave: Slave | None, *, acted: bool) -> None:
        """It was told that its commit is there. `acted`: the slave did when it was asked."""
        before = self.commits.get((group, queue))
        if before is None or before.number < number:
            driver = slave.driver if slave is not None else self.cluster.broker
            offset = self.attempts[group, queue][number]
            acted = acted and slave is not None and acts(slave)
            now_us = self.cluster.scheduler.now_us
            self.commits[group, queue] = Commit(offset, number, slave, acted, driver.lives, now_us)
            if acted:
                self.cluster.count("committed to who acts")


def acts(slave: Slave) -> bool:
    """Does it act for its master?"""
    return slave.machine is not None and slave.machine.parts.mode.acting.acting
