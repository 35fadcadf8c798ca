"""The fault model: one function per kind of fault, and the plan that a seed draws from all of them.

A fault begins at a time of the plan and heals by itself after a while; `heal` ends all of them at once. Faults
overlap. `count("fault …")` is told when a fault took hold, so that a run can tell which kinds never did.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from perseid.sim.driver import SYNC_US, NodeDriver
from perseid.sim.net import End
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_MS, US_PER_S
from perseid.sim.tls_faults import plan_tls_faults

if TYPE_CHECKING:
    from perseid.sim.models.broker.cluster import Cluster
    from perseid.sim.models.broker.workload import Hostile

HOUR_MS = 3_600_000
SHUTDOWN_MS = 30_000
MIN_FAULTS = 10
MAX_FAULTS = 16


class Faults:
    """Does things to a cluster. Each method is one kind of fault."""

    def __init__(self, cluster: Cluster, hostile: Hostile, clients: list[str]) -> None:
        self.cluster = cluster
        self.hostile = hostile
        self.clients = clients
        self.random: Random = cluster.scheduler.stream("faults")
        self.blocked: list[tuple[str, str]] = []
        self.slow: list[End] = []
        self.begun = 0
        self.healed = False

    # ---- the plan ----

    def plan(self, start_us: int, end_us: int) -> None:
        """Spread faults over a time."""
        kinds = self.cluster.scheduler.chosen.kinds(list(KINDS), lambda kind: kind.__name__)
        weights = [KINDS[kind] for kind in kinds]
        for _ in range(self.random.randrange(MIN_FAULTS, MAX_FAULTS + 1)):
            at = self.random.randrange(start_us, end_us)
            kind = self.random.choices(kinds, weights)[0]
            self.cluster.scheduler.plan(at, self.random, self._begin, kind)
        self.cluster.slaves.plan(start_us, end_us)
        reads = self.cluster.scheduler.stream("evictions")
        for _ in range(reads.choice((0, 0, 3, 6))):
            at, failing = reads.randrange(start_us, end_us), reads.random() < 0.3
            self.cluster.scheduler.plan(at, reads, self._evict, failing)
        plan_tls_faults(self.cluster.network, start_us, end_us)

    def _begin(self, kind: Callable[[Faults], None]) -> None:
        self.begun += 1
        self.cluster.scheduler.chosen.kind(kind.__name__.replace("_", " "))
        self.cluster.scheduler.note("fault", kind.__name__)
        kind(self)

    def took_hold(self, name: str) -> None:
        self.cluster.count(f"fault {name}")

    def _after(self, low_ms: int, high_ms: int, function: Callable[[], None]) -> int:
        """Run `function` after a while; the while, in microseconds."""
        delay = self.random.randint(low_ms * US_PER_MS, high_ms * US_PER_MS)
        self.cluster.scheduler.after(delay, function)
        return delay

    # ---- processes and machines ----

    @property
    def broker(self) -> NodeDriver:
        return self.cluster.broker

    def process_crash(self) -> None:
        if self.broker.machine is not None:
            self.took_hold("process crash")
            self.cluster.kill(self.broker)
            self.cluster.restart_later(self.broker, 100, 4_000)

    def power_cut(self) -> None:
        if self.broker.machine is not None:
            self.took_hold("power cut")
            self.cluster.cut_power(self.broker)
            self.cluster.restart_later(self.broker, 200, 5_000)

    def crash_soon_again(self) -> None:
        """A power cut, and before much is written after the restart, another crash."""
        if self.broker.machine is not None:
            self.took_hold("crash soon again")
            life = self.broker.lives
            self.cluster.cut_power(self.broker)
            self.cluster.restart_later(self.broker, 200, 1_000)
            self._after(1_500, 4_000, lambda: self._again(life + 1))

    def _again(self, life: int) -> None:
        if self.broker.machine is not None and self.broker.lives == life and not self.healed:
            (self.cluster.kill if self.random.random() < 0.7 else self.cluster.cut_power)(self.broker)
            self.cluster.restart_later(self.broker, 100, 1_000)

    def power_cut_within_flush(self) -> None:
        if self.broker.machine is not None:
            self.cluster.cut_at_next_job = True

    def crash_within_a_call(self) -> None:
        """The process dies in the middle of a change of the disk; sometimes the power is cut then, too."""
        if self.broker.machine is not None:
            self.broker.disk.crash_in = self.random.randint(1, 60)
            self.cluster.cut_after_crash_point = self.random.random() < 0.5
            self.took_hold("crash within a call")

    def crash_within_recovery(self) -> None:
        """Killed or cut off, and then again during the start that follows, perhaps several times."""
        if self.broker.machine is None:
            return
        self.took_hold("crash within recovery")
        cut = self.random.random() < 0.7
        (self.cluster.cut_power if cut else self.cluster.kill)(self.broker)
        self.cluster.down.add("broker")
        self._after(100, 2_000, lambda: self._crashing_start(self.random.randrange(1, 4), cut))

    def _crashing_start(self, times: int, cut: bool) -> None:
        if self.broker.machine is not None or self.healed:
            return
        self.broker.disk.crash_in = self.random.randint(1, 40)
        self.broker.start()
        if self.broker.machine is None:  # it died in its recovery
            self.cluster.count("crashed within recovery")
            if cut:
                self.cluster.cut_power(self.broker)
            if times > 1:
                self._after(50, 500, lambda: self._crashing_start(times - 1, cut))
                return
        self.cluster.restart_later(self.broker, 100, 1_000)

    def clean_restart(self) -> None:
        if self.broker.machine is not None:
            self.took_hold("clean restart")
            self.broker.shut_down()
            self._after(SHUTDOWN_MS, SHUTDOWN_MS, lambda life=self.broker.lives: self._give_up(life))  # type: ignore[misc]

    def _give_up(self, life: int) -> None:
        """As the driver of the real world: a shutdown that has not ended by now is not waited for."""
        if self.broker.machine is not None and self.broker.lives == life:
            if self.broker.idle:
                raise Violation("a shutdown ends", f"the broker does nothing, and has not ended in {SHUTDOWN_MS} ms")
            self.cluster.count("shutdown given up")
            self.cluster.kill(self.broker)
            self.cluster.restart_later(self.broker, 100, 1_000)

    def stall(self) -> None:
        """SIGSTOP: nothing is handled for a while."""
        if self.broker.machine is not None:
            self.took_hold("stall")
            life = self.broker.lives
            self.broker.stall(True)
            took = self._after(100, 15_000, lambda: self.broker.stall(False) if life == self.broker.lives else None)
            self.cluster.trouble(took)

    def clock_jump(self) -> None:
        self._jump("clock jump", self.random.randint(-HOUR_MS, HOUR_MS))

    def clock_jump_by_days(self) -> None:
        """So far that old files are past their time."""
        self.cluster.checkers.retention.may_delete = True
        self._jump("clock jump by days", self.random.choice((1, 1, -1)) * self.random.randint(73, 100) * HOUR_MS)

    def _jump(self, name: str, by_ms: int) -> None:
        if self.broker.machine is not None:
            self.took_hold(name)
            if self.random.random() < 0.3:
                self.cluster.cut_power(self.broker)
            else:
                self.cluster.kill(self.broker)
            self.broker.clock_ms = by_ms
            self.cluster.restart_later(self.broker, 100, 2_000)

    def namesrv_crash(self) -> None:
        namesrv = self.cluster.namesrv
        if namesrv.machine is not None:
            self.took_hold("name server crash")
            (self.cluster.kill if self.random.random() < 0.5 else self.cluster.cut_power)(namesrv)
            self.cluster.restart_later(namesrv, 200, 10_000)

    # ---- disks ----

    def disk_full(self) -> None:
        self.took_hold("disk full")
        self._fill(1.0)

    def disk_pressure(self) -> None:
        self.took_hold("disk pressure")
        self._fill(self.random.choice((0.80, 0.87, 0.93)))

    def _fill(self, ratio: float) -> None:
        self.cluster.checkers.retention.may_delete = True
        self.broker.disk.fill(ratio)
        self._after(500, 12_000, lambda: self.broker.disk.fill(0))

    def _evict(self, failing: bool) -> None:
        """Memory is short: the page cache is emptied, and sometimes the next read of the disk fails."""
        self.cluster.scheduler.chosen.kind(ON_TOP[0])
        self.took_hold(ON_TOP[0])
        self.broker.disk.evict()
        if failing and not self.healed:
            self.took_hold(ON_TOP[1])
            self.broker.disk.failing["read"] = 1

    def failing_sync(self) -> None:
        self._fail("sync", "failing fsync")

    def failing_create(self) -> None:
        self._fail("create", "failing create")

    def failing_save(self) -> None:
        self._fail(self.random.choice(("write", "rename", "sync_dir")), "failing save")

    def failing_remove(self) -> None:
        self.cluster.checkers.retention.may_delete = True
        self._fail("remove", "failing remove")
        self._fill(0.87)

    def _fail(self, kind: str, name: str) -> None:
        self.took_hold(name)
        self.broker.disk.failing[kind] = self.random.choice((1, 1, 2, 5))

        def heal() -> None:
            self.broker.disk.failing.pop(kind, None)

        took = self._after(200, 8_000, heal)
        self.cluster.trouble(took)

    def slow_sync(self) -> None:
        """Each fsync takes up to ten seconds."""
        self.took_hold("slow fsync")
        most = self.random.choice((50, 500, 3_000, 10_000)) * US_PER_MS
        self.broker.sync_us = (0, most)

        def heal() -> None:
            self.broker.sync_us = SYNC_US

        self.cluster.trouble(self._after(500, 10_000, heal) + 3 * most)

    # ---- network ----

    def partition(self) -> None:
        other = self._other()
        self.took_hold("partition")
        self._block([("broker", other), (other, "broker")])

    def partition_to_broker(self) -> None:
        self.took_hold("partition to the broker")
        self._block([(self._other(), "broker")])

    def partition_from_broker(self) -> None:
        self.took_hold("partition from the broker")
        self._block([("broker", self._other())])

    def broker_isolated(self) -> None:
        """From everybody."""
        self.took_hold("broker isolated")
        self._block([pair for name in (*self.clients, "namesrv") for pair in (("broker", name), (name, "broker"))])

    def _other(self) -> str:
        return self.random.choice((*self.clients, "namesrv", "namesrv"))

    def _block(self, pairs: list[tuple[str, str]]) -> None:
        for pair in pairs:
            self.cluster.network.block(*pair)
        self.blocked += pairs

        def heal() -> None:
            for pair in pairs:
                self.cluster.network.heal(*pair)

        self._after(500, 15_000, heal)

    def _broker_ends(self) -> list[End]:
        return [end for end in self.cluster.network.ends.values() if end.owner is self.broker and end.other.open]

    def connection_reset(self) -> None:
        for end in self._some(self._broker_ends()):
            self.took_hold("connection reset")
            self.cluster.network.reset(end, "connection reset", 0, self.random.randint(0, 1_000))

    def half_open(self) -> None:
        """One side is gone and the other does not know."""
        for end in self._some(self._broker_ends()):
            self.took_hold("half-open connection")
            side = end if self.random.random() < 0.5 else end.other
            self.cluster.network.reset(side, "vanished", 0, self.random.randint(US_PER_S, 20 * US_PER_S))

    def chopped(self) -> None:
        """Bytes come one by one."""
        for end in self._some(self._broker_ends()):
            self.took_hold("chopped bytes")
            end.chopped = end.other.chopped = True
            self._after(200, 3_000, lambda end=end: self._whole(end))  # type: ignore[misc]

    @staticmethod
    def _whole(end: End) -> None:
        end.chopped = end.other.chopped = False

    def slow_reader(self) -> None:
        """A client does not take in what the broker sends, or the broker what a client sends."""
        for end in self._some(self._broker_ends()):
            self.took_hold("slow reader")
            side = end.other if self.random.random() < 0.8 else end
            side.reading = False
            self.slow.append(side)
            self._after(500, 10_000, lambda side=side: self.cluster.network.read_again(side))  # type: ignore[misc]

    def refused_connects(self) -> None:
        self.took_hold("refused connects")
        machine = self.random.choice(("broker", "broker", "namesrv"))
        self.cluster.network.refusing.add(machine)
        for end in self._some(self._broker_ends()):
            self.cluster.network.reset(end, "connection reset", 0, 0)
        self._after(500, 6_000, lambda: self.cluster.network.refusing.discard(machine))

    def hostile_peer(self) -> None:
        self.took_hold("hostile peer")
        for _ in range(self.random.randrange(1, 6)):
            self.hostile.attack()

    def _some(self, ends: list[End]) -> list[End]:
        """A few of the ends, or all."""
        if not ends or self.random.random() < 0.2:
            return ends
        return self.random.sample(ends, self.random.randrange(1, len(ends) + 1))

    # ---- the end of all faults ----

    def heal(self) -> None:
        """All is well from now on: machines run, wires are whole, disks are quick and have room."""
        self.healed = True
        self.cluster.scheduler.chosen.healed_us = self.cluster.scheduler.now_us
        cluster, network = self.cluster, self.cluster.network
        cluster.scheduler.note("fault", "all faults heal")
        network.refusing.clear()
        for pair in sorted(network.blocked):  # a set has another order in each process
            network.heal(*pair)
        for end in self.slow:
            network.read_again(end)
        for end in network.ends.values():
            end.chopped = False
        for driver in (cluster.broker, cluster.namesrv):
            driver.heal()
            cluster.restart(driver)
        cluster.slaves.heal()
        if network.tls is not None:
            network.tls.heal()
        cluster.cut_at_next_job = cluster.cut_after_crash_point = False


KINDS: dict[Callable[[Faults], None], int] = {
    Faults.process_crash: 3,
    Faults.power_cut: 5,
    Faults.power_cut_within_flush: 3,
    Faults.crash_soon_again: 3,
    Faults.crash_within_a_call: 4,
    Faults.crash_within_recovery: 3,
    Faults.clean_restart: 3,
    Faults.stall: 2,
    Faults.clock_jump: 1,
    Faults.clock_jump_by_days: 1,
    Faults.namesrv_crash: 2,
    Faults.disk_full: 2,
    Faults.disk_pressure: 2,
    Faults.failing_sync: 2,
    Faults.failing_create: 1,
    Faults.failing_save: 2,
    Faults.failing_remove: 1,
    Faults.slow_sync: 2,
    Faults.partition: 2,
    Faults.partition_to_broker: 1,
    Faults.partition_from_broker: 1,
    Faults.broker_isolated: 1,
    Faults.connection_reset: 2,
    Faults.half_open: 2,
    Faults.chopped: 2,
    Faults.slow_reader: 2,
    Faults.refused_connects: 1,
    Faults.hostile_peer: 2,
}
"""Each kind, and how often it is drawn compared with the others."""

ON_TOP = ("page cache emptied", "failing read")
"""Faults that have a stream of their own: the plan of a seed stays what it was before there were any."""
