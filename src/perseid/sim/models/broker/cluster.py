"""A cluster in virtual time: one name server, one broker, clients; and what can be done to them.

The store's files are tiny, so that rolls, deletions and recoveries happen all the time. A broker that ended by
itself is started again by its supervisor; one that was killed, by the fault that killed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from perseid.base.machine import Flush, SaveState
from perseid.broker.config import BrokerConfig
from perseid.broker.node import Broker
from perseid.nameserver.config import NameServerConfig
from perseid.nameserver.node import NameServer
from perseid.security.credentials import Credentials
from perseid.sim.disk import SimDisk
from perseid.sim.driver import EPOCH_MS, NodeDriver
from perseid.sim.features.stage import Stage
from perseid.sim.history import History
from perseid.sim.models.broker.checkers import Checkers
from perseid.sim.models.broker.pop import PopHistory
from perseid.sim.models.broker.slaves import HA_PORT, Slaves
from perseid.sim.net import Network
from perseid.sim.promises import Violation
from perseid.sim.rare_settings import STORE, rare_broker_settings, rare_settings
from perseid.sim.scheduler import US_PER_MS, Scheduler
from perseid.sim.secured import Secured
from perseid.sim.security import has_tls, has_users
from perseid.sim.selection import WHOLE, Selection
from perseid.sim.users import ACCESS, ROOT, members
from perseid.store.config import ASYNC_FLUSH, SYNC_FLUSH, StoreConfig
from perseid.wire.codes import RequestCode
from perseid.wire.command import Command

BROKER_IP, NAMESRV_IP = "10.0.0.1", "10.0.0.2"
BROKER_PORT, NAMESRV_PORT = 10911, 9876
KIB = 1024
HOT_BYTES = 4 * KIB
"""Of the log's end; what stands before it may have to be fetched."""
VALIDATE_EVERY = 5
"""A check of the whole state costs as much as the event before it."""
CHECK_AFTER_MS, CHECK_INTERVAL_MS = 2_000, 3_000
"""When producers are asked about their transactions, and how often."""
MAX_FAILED_STARTS = 30
"""In a row, about a second apart: a broker that still does not start, does not start at all."""

NOTES = {
    "cut off": "recovery cut off a tail",
    "registered with name server": "broker registered",
    "its connection closed": "name server dropped the broker",
    "could not be saved": "a save failed and is tried again",
    "the index can't be written": "index given up",
}
"""Words of a log line, and what they are counted as."""
INDEX_BROKEN = "the index can't be written"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the run that exists from beginning to end."""

    name: str
    queues: int
    batches: bool = False
    """It has batch consume queues."""


class Cluster:
    """The machines of one run, what happened to them (`counts`) and what clients know (`history`)."""

    def __init__(
        self, seed: int, slaves: int | None = None, transactions: bool | None = None, *, timed: bool = True,
        acting: bool = False, store_settings: Mapping[str, Any] | None = None, selection: Selection = WHOLE,
    ) -> None:  # fmt: skip
        """`slaves`: how many, `transactions`: whether there are any; None: as the seed draws. `timed`: there are
        messages for a time. `acting`: slaves act for a master that is away. `store_settings`: of stores, besides.
        `selection`: what of it is played."""
        self.timed, self._store_settings = timed, dict(store_settings or {})
        self.scheduler = Scheduler(seed, selection)
        self.counts: Counter[str] = Counter()
        self.history = History()
        self.operations = 0
        self.created: set[str] = set()
        self.network = Network(self.scheduler, self.count)
        with_users = has_users("broker", seed)
        self.signs: Credentials | None = ROOT if with_users else None
        self.access = ACCESS if with_users else None
        if has_tls("broker", seed):
            self.network.tls = Secured(self.scheduler.stream("tls"), self.count)
        random = self.scheduler.stream("cluster")
        self.topics = [Topic("orders", random.randrange(1, 4)), Topic("events", random.randrange(1, 3))]
        self.sync_flush = random.random() < 0.5
        self.uniform = random.random() < 0.4
        """All records have one size, so that what stands behind a truncated log's end may be taken for its next
        records."""
        self.log_file_bytes = random.choice((16, 16, 32, 64)) * KIB
        self.store_config = self._store_config(random)
        self.sync_flush_timeout = random.choice((1_000, 5_000))
        self.flush_limit_us = self.store_config.flush_commit_log_thorough_interval * US_PER_MS
        drawn = self.scheduler.stream("transactions")  # of their own: other draws stay what they were without them
        self.transactions = drawn.random() < 0.5 if transactions is None else transactions
        self.check_max = drawn.choice((3, 15))
        self.slaves = Slaves(self, slaves, acting)
        listeners = {"main": BROKER_PORT, "ha": HA_PORT} if self.slaves.all else {"main": BROKER_PORT}
        self.broker = NodeDriver(
            "broker", BROKER_IP, self.scheduler, self.network, self._build_broker, listeners, self.count
        )
        self.namesrv = NodeDriver(
            "namesrv", NAMESRV_IP, self.scheduler, self.network, self._build_namesrv, {"main": NAMESRV_PORT}, self.count
        )
        self.stage = Stage(self, self.broker_name, BROKER_PORT, lambda: [self.broker])
        self.stage.offices = [self.namesrv_address]
        self.stage.master = lambda: self.broker
        self.stage.log_start = lambda: self.log_start() if self.broker.machine is not None else 0
        self.checkers = Checkers(self, self._file_deleted)
        sure = self.sync_flush and self.slaves.acting is None
        self.pops = PopHistory(self, {topic.name for topic in self.topics}, sure=sure)
        self.cut_at_next_job = False
        self.cut_after_crash_point = False
        self.down: set[str] = set()
        """Machines that a fault keeps down for now."""
        self.index_whole = True
        """The disk took all that the index wanted to write: what is in the log can be found by its keys."""
        self._failed_starts = 0
        self._last_file = 0
        for driver in (self.broker, self.namesrv):
            driver.on_error = self.broke
            driver.validate_every = VALIDATE_EVERY
            driver.on_note = self._noted
        self.broker.on_job = self._job
        self.broker.on_started = self._started
        if self.slaves.all:
            self.broker.after_event = self.slaves.master_worked
        self.broker.on_end = self._broker_ended
        self.namesrv.on_end = lambda reason: self.supervise(self.namesrv, reason)
        self._clients = 0

    # ---- parts ----

    broker_name = "sim-a"

    @property
    def broker_address(self) -> str:
        return f"{BROKER_IP}:{BROKER_PORT}"

    @property
    def namesrv_address(self) -> str:
        return f"{NAMESRV_IP}:{NAMESRV_PORT}"

    @property
    def true_ms(self) -> int:
        """The time of a clock that nobody touches."""
        return EPOCH_MS + self.scheduler.now_us // US_PER_MS

    def client_ip(self, name: str) -> str:
        """An address for a new client."""
        self._clients += 1
        ip = f"10.0.1.{self._clients}"
        self.network.machines[ip] = name
        return ip

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] += times

    def saw_log_file(self, physical: int) -> None:
        """A message was stored there: perhaps the first one of a new file."""
        number = physical // self.log_file_bytes
        if number > self._last_file:
            self._last_file = number
            self.count("log file rolled")

    def log_start(self) -> int:
        """Where the running broker's log begins."""
        machine: Any = self.broker.machine
        return machine.parts.store.log.start if machine is not None else 1 << 62

    def answered(self, client: str, request: RequestCode, name: str, command: Command) -> None:
        """A client got an answer; refusals are worth a line."""
        if command.code not in (0, 19):
            self.count(f"refusal {request.name} {name}")
            self.scheduler.note(client, f"{request.name} answered {name}: {command.remark}")

    def _store_config(self, random: Random) -> StoreConfig:
        timers = self.scheduler.stream("timers")
        return StoreConfig(
            commit_log_file_bytes=self.log_file_bytes,
            consume_queue_file_bytes=20 * 20,
            batch_consume_queue_file_bytes=46 * 20,
            max_hash_slot_num=16,
            max_index_num=48,
            hot_bytes=HOT_BYTES,
            flush_disk_type=SYNC_FLUSH if self.sync_flush else ASYNC_FLUSH,
            flush_commit_log_least_pages=random.choice((4, 16)),
            flush_commit_log_thorough_interval=random.choice((1_000, 3_000, 10_000)),
            flush_consume_queue_thorough_interval=random.choice((3_000, 20_000)),
            replay_limit_bytes=random.choice((20, 200)) * KIB,
            delete_when="00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;19;20;21;22;23",
            clean_resource_first_ms=3_000,
            clean_resource_interval=2_000,
            timer_wheel_slots=4_096,
            **self._store_settings,
            **rare_settings(self.scheduler, STORE),
            timer_log_file_bytes=52 * timers.choice((5, 40)) + 16,
            timer_roll_window_slot=timers.choice((4, 1_000)),
            timer_precision_ms=timers.choice((100, 1_000)),
        )

    def _noted(self, text: str) -> None:
        """Lines of the nodes' logs that tell of a state."""
        for words, what in NOTES.items():
            if words in text:
                self.count(what)
        if INDEX_BROKEN in text:
            self.index_whole = False
        self.slaves.master_noted(text)

    def _build_broker(self, disk: SimDisk, random: Random) -> Broker:
        self.count("start after a crash" if disk.size("abort") is not None else "start after a clean stop")
        config = BrokerConfig(
            broker_ip1=BROKER_IP,
            listen_port=BROKER_PORT,
            broker_name=self.broker_name,
            namesrv_addr=self.namesrv_address,
            sync_flush_timeout=self.sync_flush_timeout,
            broker_role=self.slaves.role,
            slave_read_enable=bool(self.slaves.all),
            transaction_time_out=CHECK_AFTER_MS,
            transaction_check_interval=CHECK_INTERVAL_MS,
            transaction_check_max=self.check_max,
            timer_wheel_enable=self.timed,
            **self.slaves.settings,
            **rare_broker_settings(self.scheduler, self.broker.lives),
        )
        return Broker(config, self.store_config, disk, random, replication=self.slaves.config, access=self.access)

    def _build_namesrv(self, disk: SimDisk, random: Random) -> NameServer:
        acting = self.slaves.acting
        config = NameServerConfig(
            support_acting_master=acting is not None,
            notify_min_broker_id_changed=acting is not None and acting.notices,
        )
        return NameServer(config, disk, members=members(authenticates=self.access is not None))

    # ---- life ----

    def start(self) -> None:
        """Switch on the name server, then the broker."""
        self.namesrv.start()
        self.broker.start()
        self.slaves.start()

    def kill(self, driver: NodeDriver) -> None:
        """The process dies."""
        if driver is self.broker:
            self.trouble(0)
            self.history.life_ended()
        driver.crash()

    def cut_power(self, driver: NodeDriver) -> None:
        """The machine goes off."""
        if driver is self.broker:
            self.trouble(0)
            self.history.life_ended()
            if driver.machine is not None:
                self.checkers.retention.look(driver.machine.parts.store)  # type: ignore[attr-defined]
            self.checkers.durability.before_power_cut()
            self.pops.power_cut()
            self.stage.repeated()
            self.stage.was_unread()
            if not self.sync_flush:
                self.stage.lost()
        for what, times in driver.cut_power().items():
            self.count(f"power cut: {what}", times)

    def restart(self, driver: NodeDriver) -> None:
        """Start a machine that is off, unless something else has started it."""
        self.down.discard(driver.name)
        if driver.machine is None:
            driver.start()

    def restart_later(self, driver: NodeDriver, low_ms: int, high_ms: int) -> None:
        self.down.add(driver.name)
        delay = driver.random.randint(low_ms, high_ms) * US_PER_MS
        self.scheduler.after(delay, self.restart, driver)

    def trouble(self, duration_us: int) -> None:
        """The broker's disk or process is not well until then."""
        until = self.scheduler.now_us + duration_us
        self.checkers.durability.disk_trouble_us = max(self.checkers.durability.disk_trouble_us, until)

    def _job(self, effect: Flush | SaveState) -> Any:
        if self.cut_at_next_job and isinstance(effect, Flush):
            self.cut_at_next_job = False
            self.count("fault power cut within a flush")
            delay = self.broker.random.randint(0, self.broker.sync_us[1])
            self.scheduler.after(delay, self._cut_and_restart)
        return self.checkers.job(effect)

    def _cut_and_restart(self) -> None:
        if self.broker.machine is not None:
            self.cut_power(self.broker)
            self.restart_later(self.broker, 200, 3_000)

    def _started(self) -> None:
        machine: Any = self.broker.machine
        self._failed_starts = 0
        self.trouble(0)
        self.count("broker started")
        self.scheduler.note("checkers", f"log [{machine.parts.store.log.start}, {machine.parts.store.log.end})")
        self.checkers.started(machine)
        self.slaves.master_started()

    def _file_deleted(self) -> None:
        self.slaves.master_lost = True  # a slave may have been further behind than that
        self.count("log file deleted")

    def _broker_ended(self, reason: str) -> None:
        self.trouble(0)
        self.history.life_ended(crashed=bool(reason))
        self.pops.crashed_within()
        self.stage.repeated()
        if reason == "crash point" and self.cut_after_crash_point:
            self.cut_after_crash_point = False
            self.cut_power(self.broker)
        self.supervise(self.broker, reason)

    def supervise(self, driver: NodeDriver, reason: str) -> None:
        """A node ended by itself: start it again, a little later."""
        self.count(f"{driver.name} ended: {_kind(reason)}")
        if reason.startswith("can't start"):
            self._failed_starts += 1
            if self._failed_starts > MAX_FAILED_STARTS or "CorruptLog" in reason or "can't be taken up" in reason:
                raise Violation("a node starts on what a crash left", reason)
        if driver.name not in self.down:
            self.restart_later(driver, 300, 2_000)

    def broke(self, error: BaseException) -> None:
        raise Violation("no unexpected exception", f"{type(error).__name__}: {error}") from error


def _kind(reason: str) -> str:
    """What a reason begins with, without names and numbers that differ from run to run."""
    if not reason:
        return "cleanly"
    if reason.startswith("can't start"):
        return "could not start"
    return "crash point" if reason == "crash point" else "disk failed"
