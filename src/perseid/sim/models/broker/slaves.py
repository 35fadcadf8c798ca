"""The slaves of a simulated cluster: their machines, their faults, and what must hold of them.

- a slave's log is byte for byte what its master's was at the same offsets, from where it begins to its end, always;
- a message that was acknowledged for n nodes is on n of them: in the page cache, with haReportDurableOnly on the disk;
- what a master sends makes sense to a slave, however it is cut, as long as they share their history;
- a slave whose history its master no longer shares is refused, with a line, and changes nothing until it is wiped;
  that may happen only after the master lost something, or removed what the slave had not yet got;
- when all faults have healed, every slave has all that the master has: log, topics, groups and offsets.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from perseid.broker.config import BrokerConfig
from perseid.broker.node import Broker
from perseid.replication.config import ReplicationConfig
from perseid.sim.disk import SimDisk
from perseid.sim.driver import SYNC_US, NodeDriver
from perseid.sim.facts import LOOSE, Sent
from perseid.sim.models.broker.acting import ActingHistory
from perseid.sim.models.broker.durability import durable_end
from perseid.sim.net import End
from perseid.sim.promises import Violation
from perseid.sim.rare_faults import RareFaults, Target
from perseid.sim.rare_settings import rare_broker_settings
from perseid.sim.scheduler import US_PER_MS, US_PER_S
from perseid.store.store import MessageStore
from perseid.wire import fastjson
from perseid.wire.ha import encode_report

if TYPE_CHECKING:
    from perseid.sim.models.broker.cluster import Cluster

PORT, HA_PORT = 10911, 10912
LOG_FOLDER = "commitlog"
REFUSED = "Wipe"
"""Stands in each line that says that a slave can't go on with what it has."""
SENSELESS = ("no record:", "was to come", "a packet of", "a packet from", "a blank of", "in the middle of a file")
"""Of a slave's lines about bytes that it does not take."""
FAULTS = (0, 3, 6)
"""Faults of slaves that a seed draws, besides the others."""


def log_end(disk: SimDisk) -> int:
    """Where the last record of a log ends, as the page cache has it."""
    end = 0
    for name in disk.names.names_in(LOG_FOLDER):
        file = disk.names.get(f"{LOG_FOLDER}/{name}")
        if file is not None and name.isdigit():
            end = max(end, int(name) + len(bytes(file.view(0, file.size)).rstrip(b"\0")))
    return end


def log_bytes(disk: SimDisk, file_bytes: int, begin: int, end: int) -> bytes | None:
    """Bytes of a log as the page cache has them; None when a file of them is not there."""
    found = bytearray()
    while begin < end:
        start = begin - begin % file_bytes
        file = disk.names.get(f"{LOG_FOLDER}/{start:020d}")
        if file is None or not file.data:
            return None
        stop = min(end, start + file_bytes)
        found += file.view(begin - start, stop - begin)
        begin = stop
    return bytes(found)


class Slave:
    """One slave: its machine, and what is known of its log."""

    def __init__(self, driver: NodeDriver) -> None:
        self.driver = driver
        self.checked = -1
        """Up to here its log was compared with the master's; -1: in this life it was not yet."""
        self.refused_at: int | None = None
        """Where its log ended when it was refused."""

    @property
    def machine(self) -> Any:
        return self.driver.machine


class Slaves:
    """All slaves of one cluster; none in half of the seeds."""

    port = PORT

    def __init__(self, cluster: Cluster, count: int | None, acting: bool) -> None:
        self.cluster = cluster
        self.random = random = cluster.scheduler.stream("slaves")
        drawn = random.choice((1, 1, 2) if acting else (0, 0, 0, 1, 2, 3))
        self.acting = ActingHistory(cluster) if acting else None
        count = drawn if count is None else count
        synchronous = count > 0 and random.random() < 0.6
        self.nodes = random.randint(2, count + 1) if synchronous else 1
        """So many have a message before it is acknowledged."""
        self.strict = random.random() < 0.4
        self.config = ReplicationConfig(
            in_sync_replicas=self.nodes,
            slave_timeout=random.choice((500, 1_500, 3_000)),
            ha_report_durable_only=self.strict,
            ha_copy_whole_log=random.random() < 0.7,
            ha_transfer_batch_size=random.choice((500, 4_096, 32_768)),
            ha_window_bytes=random.choice((2_000, 20_000, 8 << 20)),
            ha_flow_control_enable=random.random() < 0.1,
            max_ha_transfer_byte_in_second=40_000,
        )
        self.role = "SYNC_MASTER" if synchronous else "ASYNC_MASTER"
        self.lost_at_us = -1
        """When a slave last lost its power."""
        self.wiped_at_us = -1
        self.sent_end = 0
        """Up to here the master has sent its log to somebody; some of it may still be on its way."""
        self.master_lost = False
        """The master has lost, or removed, something of its log: histories may differ from now on."""
        self.count = count
        self.all = [self._new(number) for number in range(1, count + 1)]

    def _new(self, number: int) -> Slave:
        cluster, ip = self.cluster, f"10.0.2.{number}"
        listeners = {"main": PORT, "ha": HA_PORT}

        def build(disk: SimDisk, random: Random) -> Broker:
            config = BrokerConfig(
                broker_ip1=ip,
                listen_port=PORT,
                broker_name=cluster.broker_name,
                broker_id=number,
                broker_role="SLAVE",
                slave_read_enable=True,
                namesrv_addr=cluster.namesrv_address,
                **self.settings,
                **rare_broker_settings(cluster.scheduler, cluster.broker.lives),
            )
            return Broker(config, cluster.store_config, disk, random, replication=self.config, access=cluster.access)

        driver = NodeDriver(f"slave{number}", ip, cluster.scheduler, cluster.network, build, listeners, cluster.count)
        slave = Slave(driver)
        driver.on_error = cluster.broke
        driver.validate_every = 7
        driver.on_note = lambda text: self._noted(slave, text)
        driver.on_end = lambda reason: self._ended(slave, reason)
        driver.on_started = lambda: self._started(slave)
        driver.after_event = lambda: self._worked(slave)
        return slave

    @property
    def settings(self) -> dict[str, Any]:
        """What all brokers of a set are told whose slaves act."""
        if self.acting is None:
            return {}
        return {
            "enable_slave_acting_master": True,
            "total_replicas": self.count + 1,
            "compatible_with_old_name_srv": self.acting.old_name_server,
            "consumer_offset_update_version_step": self.acting.version_step,
            "enable_remote_escape": self.acting.escapes,
        }

    def at(self, address: str | None) -> Slave | None:
        """The slave with this address."""
        return next((slave for slave in self.all if f"{slave.driver.ip}:{PORT}" == address), None)

    def _worked(self, slave: Slave) -> None:
        if self.acting is not None:
            self.acting.slave_worked(slave)
        self.check(slave)

    # ---- life ----

    def start(self) -> None:
        for slave in self.all:
            slave.driver.start()

    def _started(self, slave: Slave) -> None:
        slave.checked = -1
        self.cluster.count("slave started")

    def _ended(self, slave: Slave, reason: str) -> None:
        if reason == "crash point" and self.random.random() < 0.5:
            self._cut_power(slave)
        self.cluster.supervise(slave.driver, reason)

    def _noted(self, slave: Slave, text: str) -> None:
        if "following master" in text:
            self.cluster.count("slave follows")
        if REFUSED in text and not text.startswith("slave "):  # that would be a stranger, for a slave has no slaves
            self._refused(slave, text)
        if not self.master_lost and any(words in text for words in SENSELESS):
            raise Violation("the stream makes sense", f"{slave.driver.name}: {text}")

    def master_noted(self, text: str) -> None:
        """A line of the master's log, perhaps about a slave that it refused."""
        if REFUSED in text and text.startswith("slave "):
            for slave in self.all:
                if text.startswith(f"slave {slave.driver.ip}:"):
                    self._refused(slave, text)

    def _refused(self, slave: Slave, text: str) -> None:
        self.cluster.count("slave refused")
        master: Any = self.cluster.broker.machine
        both = master is not None and slave.machine is not None
        removed = both and master.parts.store.log.start >= slave.machine.parts.store.log.end
        if not self.master_lost and not removed:
            raise Violation("a slave is refused for a reason", f"{slave.driver.name}: {text}")
        if slave.refused_at is None and slave.machine is not None:
            slave.refused_at = slave.machine.parts.store.log.end
            self.cluster.scheduler.after(self.random.randint(1, 8) * US_PER_S, self.wipe, slave)

    def wipe(self, slave: Slave) -> None:
        """An operator gives the slave an empty disk."""
        self.cluster.count("slave wiped")
        if slave.machine is not None:
            slave.driver.crash("wiped")
        slave.driver.disk = SimDisk(self.cluster.scheduler.stream(f"disk {slave.driver.name} {slave.driver.lives}"))
        slave.refused_at, slave.checked = None, -1
        self.wiped_at_us = self.cluster.scheduler.now_us
        self.cluster.restart(slave.driver)

    def _cut_power(self, slave: Slave) -> None:
        self.lost_at_us = self.cluster.scheduler.now_us
        self.cluster.cut_power(slave.driver)

    # ---- what must hold ----

    def check(self, slave: Slave) -> None:
        """After each event of a slave: what is new in its log is what the master's has there."""
        if slave.machine is None or slave.machine.parts.store.appends.why_not_writable == "the store is not loaded":
            return
        log = slave.machine.parts.store.log
        if slave.refused_at is not None:
            if log.end != slave.refused_at:
                raise Violation(
                    "a refused slave keeps what it has", f"{slave.driver.name}: {slave.refused_at} became {log.end}"
                )
            return
        if log.end == slave.checked:
            return
        begin = slave.checked if 0 <= slave.checked <= log.end else log.start
        self._compare(slave, begin, log.end)
        slave.checked = log.end

    def _compare(self, slave: Slave, begin: int, end: int) -> None:
        master = self.cluster.broker
        if master.machine is None:
            return  # what its disk has is not yet decided; its next start compares all
        store: Any = master.machine.parts.store  # type: ignore[attr-defined]
        begin, stop = max(begin, store.log.start), min(end, store.log.end)
        if end > store.log.end and not self.master_lost:
            raise Violation(
                "a slave has what its master has", f"{slave.driver.name} ends at {end}, its master at {store.log.end}"
            )
        if begin >= stop:
            return
        size = self.cluster.log_file_bytes
        ours = log_bytes(slave.driver.disk, size, begin, stop)
        theirs = log_bytes(master.disk, size, begin, stop)
        if ours is None or theirs is None or ours == theirs:
            return
        if self.master_lost:
            return  # it will be refused; `settled` wants it to be the same in the end
        at = next(i for i in range(len(ours)) if ours[i] != theirs[i])
        raise Violation("a slave's log is its master's", f"{slave.driver.name} differs at {begin + at}, up to {stop}")

    def master_worked(self) -> None:
        """After each event of the master."""
        machine: Any = self.cluster.broker.machine
        if machine is not None:
            ends = [follower.next for follower in machine.parts.mode.ha.master.followers.values()]
            self.sent_end = max(self.sent_end, *ends, 0)
            if self.acting is not None:
                self.acting.master_worked(machine)

    def master_started(self) -> None:
        """The master has recovered: whatever was sent from beyond its end now is another history."""
        store: Any = self.cluster.broker.machine.parts.store  # type: ignore[union-attr]
        if self.sent_end > store.log.end:
            if self.cluster.sync_flush:
                raise Violation(
                    "with SYNC_FLUSH no slave is ahead",
                    f"up to {self.sent_end} was sent, the master ends at {store.log.end}",
                )
            self.master_lost = True
        self.sent_end = store.log.end
        for slave in self.all:
            slave.refused_at = None  # a power cut may have brought back what it was refused for: it may go on
            if log_end(slave.driver.disk) > store.log.end:
                self.cluster.count("slave ahead of its master")

    def acknowledged(self, sent: Sent, physical: int, since_us: int) -> None:
        """A client was told that all is as safe as the mode promises."""
        lost_at_us = self.wiped_at_us if self.strict else max(self.lost_at_us, self.wiped_at_us)
        if self.nodes == 1 or lost_at_us >= since_us:
            return
        master = self.cluster.broker.machine
        if master is None:
            return
        view = master.parts.store.reads.record_at(physical)  # type: ignore[attr-defined]
        if view is None:
            return
        record, size = bytes(view), self.cluster.log_file_bytes
        holders = 1
        for slave in self.all:
            end = physical + len(record)
            there = log_bytes(slave.driver.disk, size, physical, end) == record
            holders += there and (not self.strict or durable_end(slave.driver.disk) >= end)
        if holders < self.nodes:
            raise Violation(
                "acknowledged is on n nodes",
                f"{sent} at {physical} is on {holders}{' disks' if self.strict else ''}, {self.nodes} were promised",
            )
        self.cluster.count("acknowledged by slaves")

    def lift_flow_control(self) -> bool:
        """Let the master send as fast as it can; False: it does."""
        master: Any = self.cluster.broker.machine
        if master is None or not master.parts.mode.config.ha_flow_control_enable:
            return False
        self.cluster.count("flow control lifted")
        master.parts.mode.reconfigure(replace(master.parts.mode.config, ha_flow_control_enable=False))
        return True

    def settled(self) -> str:
        """Why not every slave has all yet; "" when it has."""
        master: Any = self.cluster.broker.machine
        if master is None:
            return "the master is down"
        for slave in self.all:
            name, node = slave.driver.name, slave.machine
            if node is None:
                return f"{name} is down"
            ours, theirs = node.parts.store.log, master.parts.store.log
            if ours.end != theirs.end:
                return f"{name} ends at {ours.end}, its master at {theirs.end}"
            if node.parts.topics.rows != master.parts.topics.rows or node.parts.groups.rows != master.parts.groups.rows:
                return f"{name} has other topics or groups"
            if fastjson.loads(node.parts.offsets.for_slaves()) != fastjson.loads(master.parts.offsets.for_slaves()):
                return f"{name} has other offsets"  # what costs most is looked at last: this is asked after each event
            begin = max(ours.start, theirs.start)
            size = self.cluster.log_file_bytes
            if log_bytes(slave.driver.disk, size, begin, ours.end) != log_bytes(
                self.cluster.broker.disk, size, begin, ours.end
            ):
                return f"{name} has another log"
            for key in master.parts.store.queues.table:
                if not key[0].startswith(LOOSE) and not self._same_queue(master.parts.store, node.parts.store, key):
                    return f"{name} has another queue {key}"
        return ""

    @staticmethod
    def _same_queue(master: MessageStore, slave: MessageStore, key: tuple[str, int]) -> bool:
        """Do both queues end alike, with the same units where both have some? Of a queue that got nothing since its log
        begins a slave knows no end."""
        reads, theirs = master.reads, slave.reads
        end, start = reads.max_offset(*key), max(master.log.start, slave.log.start)
        has_any = slave.queues.get(*key) is not None
        low = max(reads.min_offset(*key), theirs.min_offset(*key)) if has_any else end
        units = [
            [unit for n in range(low, end) if (unit := one.unit(*key, n)) and unit.physical_offset >= start]
            for one in (reads, theirs)
        ]
        empty = not has_any or theirs.min_offset(*key) == theirs.max_offset(*key) == 0
        return (empty or theirs.max_offset(*key) == end) and units[0] == units[1]

    # ---- faults ----

    def plan(self, start_us: int, end_us: int) -> None:
        """Spread the slaves' own faults over a time."""
        if not self.all:
            return
        if self.acting is not None:
            self.acting.plan(start_us, end_us)
        for _ in range(self.random.choice(FAULTS)):
            kind = self.random.choice(self.cluster.scheduler.chosen.kinds(KINDS))
            at = self.random.randrange(start_us, end_us)
            self.cluster.scheduler.plan(at, self.random, self._begin, kind)
        RareFaults(self.cluster, self.random, self._target, "slave ").plan(start_us, end_us)

    def _target(self) -> Target:
        slave = self.random.choice(self.all)
        return Target(slave.driver, lambda: self._slave_crash(slave))

    def _begin(self, kind: str) -> None:
        self.cluster.scheduler.chosen.kind(kind)
        slave = self.random.choice(self.all)
        self.cluster.scheduler.note("fault", f"{slave.driver.name}: {kind}")
        self.cluster.count(f"fault {kind}")
        getattr(self, f"_{kind.replace(' ', '_')}")(slave)

    def _slave_crash(self, slave: Slave) -> None:
        if slave.machine is not None:
            self.cluster.kill(slave.driver)
            self.cluster.restart_later(slave.driver, 100, 6_000)

    def _slave_power_cut(self, slave: Slave) -> None:
        if slave.machine is not None:
            self._cut_power(slave)
            self.cluster.restart_later(slave.driver, 200, 6_000)

    def _slave_crash_within_a_call(self, slave: Slave) -> None:
        if slave.machine is not None:
            slave.driver.disk.crash_in = self.random.randint(1, 40)

    def _slave_disk_full(self, slave: Slave) -> None:
        slave.driver.disk.fill(1.0)
        disk = slave.driver.disk
        self.cluster.scheduler.after(self.random.randint(1, 8) * US_PER_S, disk.fill, 0)

    def _slave_slow_fsync(self, slave: Slave) -> None:
        slave.driver.sync_us = (0, self.random.choice((500, 4_000)) * US_PER_MS)
        self.cluster.scheduler.after(self.random.randint(1, 8) * US_PER_S, self._quick, slave)

    @staticmethod
    def _quick(slave: Slave) -> None:
        slave.driver.sync_us = SYNC_US

    def _slave_stall(self, slave: Slave) -> None:
        if slave.machine is not None:
            self._stall(slave, self.random.randint(1, 25) * US_PER_S)

    def _stall(self, slave: Slave, for_us: int) -> None:
        slave.driver.stall(True)
        self.cluster.scheduler.after(for_us, self._go_on, slave, slave.driver.lives)

    @staticmethod
    def _go_on(slave: Slave, life: int) -> None:
        if slave.driver.lives == life:
            slave.driver.stall(False)

    def _slave_partition(self, slave: Slave) -> None:
        pairs = [("broker", slave.driver.name), (slave.driver.name, "broker")]
        pairs = self.random.choice((pairs, pairs[:1], pairs[1:]))
        for pair in pairs:
            self.cluster.network.block(*pair)
        delay = self.random.randint(1, 25) * US_PER_S
        for pair in pairs:
            self.cluster.scheduler.after(delay, self.cluster.network.heal, *pair)

    def _streams(self, slave: Slave) -> list[End]:
        return [end for end in self.cluster.network.ends.values() if end.owner is slave.driver and end.other.open]

    def _slave_half_open(self, slave: Slave) -> None:
        """The slave's side of its connections is gone, and the master does not know for a while. Often the other slaves
        have nothing to say from a little before on: then each copy counts, and this one must not count twice."""
        times = 1
        if self.random.random() < 0.6:
            for other in self.all:
                if other is not slave and other.machine is not None:
                    self._stall(other, self.random.randint(2, 8) * US_PER_S)
            times = self.random.randint(1, 4)
        for _ in range(times):
            self.cluster.scheduler.after(self.random.randint(0, 4_000) * US_PER_MS, self._vanish, slave)

    def _vanish(self, slave: Slave) -> None:
        for end in self._streams(slave):
            self.cluster.network.reset(end, "vanished", 0, self.random.randint(1, 30) * US_PER_S)

    def _slave_chopped_bytes(self, slave: Slave) -> None:
        for end in self._streams(slave):
            end.chopped = end.other.chopped = True

    def _hostile_follower(self, slave: Slave) -> None:
        Stranger(self.cluster, self.random)

    def heal(self) -> None:
        """All is well from now on."""
        for slave in self.all:
            slave.driver.heal()
            self.cluster.restart(slave.driver)


KINDS = (
    "hostile follower",
    "slave chopped bytes",
    "slave crash",
    "slave crash within a call",
    "slave disk full",
    "slave half open",
    "slave partition",
    "slave power cut",
    "slave slow fsync",
    "slave stall",
)


class Stranger:
    """Connects to the master's HA port and reports what no slave may report.

    It does not claim to have what was sent to it: the stream names nobody, so such a lie is taken for a copy.
    """

    name = "stranger"

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster, self.random = cluster, random
        cluster.network.dial(self, cluster.client_ip(self.name), f"{cluster.broker.ip}:{HA_PORT}")

    def opened(self, end: End, listener: str, dialled: str) -> None:
        machine: Any = self.cluster.broker.machine
        at = machine.parts.store.log.end if machine is not None else 0
        kind = self.random.randrange(6)
        if kind == 0:
            data = self.random.randbytes(self.random.randrange(1, 40))
        elif kind == 1:
            data = b""
        elif kind == 2:
            data = encode_report(-1)
        else:
            data = encode_report(0) + encode_report(at + self.random.choice((1, 1 << 20, 1 << 60)))
        self.cluster.network.write(end, data)

    def connect_failed(self, address: str, reason: str) -> None: ...

    def received(self, end: End, frames: bytearray) -> None: ...

    def closed(self, end: End, reason: str) -> None:
        self.cluster.count("stranger cut off")
