"""How a broker of a set is built, and where what the checkers look at stands in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from perseid.broker.access.config import Access
from perseid.broker.config import BrokerConfig
from perseid.broker.node import Broker
from perseid.broker.replication.modes.controlled import Controlled
from perseid.replication.config import ReplicationConfig
from perseid.sim.disk import SimDisk
from perseid.store.config import ASYNC_FLUSH, SYNC_FLUSH, StoreConfig
from perseid.wire.ha_auto import EpochEntry

MAIN_PORT, HA_PORT = 10911, 10912
IDENTITY = "brokerIdentity"
MAX_DRIFT_PPM = 50_000
MAX_SKEW_MS = 30_000


@dataclass(frozen=True, slots=True)
class Settings:
    """Of all brokers of a run, and of their controllers."""

    synced: bool
    """What is acknowledged is durable where the mode says so: power may be cut."""
    all_ack: bool
    unclean: bool
    log_file_bytes: int
    beat_timeout_ms: int
    not_caught_up_ms: int
    batch_bytes: int
    window_bytes: int
    hot_bytes: int
    sync_flush: bool
    """SYNC_FLUSH, else ASYNC_FLUSH."""
    report_durable: bool
    """haReportDurableOnly."""
    learner: int = 0
    """This broker (asyncLearner) is never in sync; 0: there is none."""
    late: int = 0
    """This broker comes later, empty, and begins with the last file of the log (syncFromLastFile); 0: none."""
    nodes: int = 1
    """inSyncReplicas: so many have what is acknowledged, where not all in sync have to."""
    min_in_sync: int = 1
    """minInSyncReplicas."""
    drift_ppm: int = 0
    """The clocks of all machines go wrong by up to this much, each by its own."""
    timed: bool = True
    """There are messages for a time."""
    store_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of stores, besides."""
    broker_settings: Mapping[str, Any] = field(default_factory=dict)
    """The same of brokers."""

    @property
    def strict(self) -> bool:
        """Nothing that was acknowledged is lost, as long as nobody is elected who is not in sync."""
        durable = not self.synced or (self.sync_flush and self.report_durable)
        return self.all_ack and durable

    @classmethod
    def drawn(cls, random: Random, *, synced: bool, **given: Any) -> Settings:
        """By a seed, but for what is given."""
        drawn: dict[str, Any] = {
            "all_ack": random.random() < 0.75,
            "unclean": False,
            "log_file_bytes": random.choice((8 << 10, 16 << 10, 64 << 10)),
            "beat_timeout_ms": random.choice((1_500, 3_000, 10_000)),
            "not_caught_up_ms": random.choice((2_000, 5_000, 15_000)),
            "batch_bytes": random.choice((500, 4_096, 32_768)),
            "window_bytes": random.choice((2_000, 20_000, 8 << 20)),
            "hot_bytes": random.choice((4 << 10, 64 << 20)),
            "sync_flush": synced,
            "report_durable": synced,
        }
        return cls(**{**drawn, **given, "synced": synced})

    def with_modes(self, random: Random, brokers: int) -> Settings:
        """Settings that only some sets have, drawn apart from all the others, so that a set without them plays as it
        would if there were none."""
        rare: dict[str, Any] = {}
        if random.random() < 0.12:
            rare["unclean"] = True
        if random.random() < 0.12:
            rare["learner"] = brokers
        if random.random() < 0.12:
            rare |= {"late": random.randint(1, brokers), "log_file_bytes": 8 << 10}
        voters = brokers - ("learner" in rare)
        if random.random() < 0.5 and not self.all_ack and voters > 1:
            rare["nodes"] = random.randint(2, voters)
        if random.random() < 0.15 and (self.all_ack or "nodes" in rare) and voters > 1:
            rare["min_in_sync"] = random.randint(2, voters)
        if random.random() < 0.2:
            rare["drift_ppm"] = MAX_DRIFT_PPM
        if random.random() < (0.12 if self.synced else 0.6):
            rare["sync_flush"], rare["report_durable"] = random.choice(((True, False), (False, True), (False, False)))
        return replace(self, **rare)

    def modes(self) -> list[str]:
        """What is not as in most runs, in words."""
        found = {
            "unclean elections are allowed": self.unclean,
            "a learner": self.learner > 0,
            "a broker begins with the last file": self.late > 0,
            "acknowledged by so many nodes": self.nodes > 1,
            "so many have to be in sync": self.min_in_sync > 1,
            "clocks drift": self.drift_ppm > 0,
            "asynchronous flush, and power fails": self.synced and not self.sync_flush,
            "reported before it is durable, and power fails": self.synced and not self.report_durable,
            "synchronous flush, and power stays": not self.synced and self.sync_flush,
        }
        return [words for words, is_so in found.items() if is_so]


def listeners() -> dict[str, int]:
    """Listener → port."""
    return {"main": MAIN_PORT, "ha": HA_PORT}


def build_broker(
    settings: Settings, number: int, ip: str, controllers: str, name_server: str, disk: SimDisk, random: Random,
    access: Access | None = None,
) -> Broker:  # fmt: skip
    """One life of a broker. `number`: which of the set it is."""
    store = StoreConfig(
        commit_log_file_bytes=settings.log_file_bytes,
        consume_queue_file_bytes=400,
        max_hash_slot_num=50,
        max_index_num=200,
        message_delay_level="1s 2s",
        flush_consume_queue_thorough_interval=2_000,
        flush_disk_type=SYNC_FLUSH if settings.sync_flush else ASYNC_FLUSH,
        clean_file_forcibly_enable=False,
        hot_bytes=settings.hot_bytes,
        timer_wheel_slots=4_096,
        **settings.store_settings,
        timer_log_file_bytes=52 * 10 + 16,
        timer_roll_window_slot=4,
    )
    config = BrokerConfig(
        broker_ip1=ip,
        listen_port=MAIN_PORT,
        broker_name="sim-a",
        namesrv_addr=name_server,
        slave_read_enable=True,
        enable_controller_mode=True,
        controller_addr=controllers,
        timer_wheel_enable=settings.timed,
        controller_heart_beat_timeout_mills=settings.beat_timeout_ms,
        transaction_time_out=1_500,
        transaction_check_interval=2_000,
        transaction_check_max=1_000,
        **settings.broker_settings,
    )
    replication = ReplicationConfig(
        all_ack_in_sync_state_set=settings.all_ack,
        in_sync_replicas=settings.nodes,
        min_in_sync_replicas=settings.min_in_sync,
        async_learner=number == settings.learner,
        sync_from_last_file=number == settings.late,
        ha_report_durable_only=settings.report_durable,
        ha_max_time_slave_not_catchup=settings.not_caught_up_ms,
        ha_transfer_batch_size=settings.batch_bytes,
        ha_window_bytes=settings.window_bytes,
    )
    return Broker(config, store, disk, random, replication=replication, access=access)


class Look:
    """What there is to see of a running broker."""

    def __init__(self, broker: Broker) -> None:
        mode = broker.parts.mode
        assert isinstance(mode, Controlled)
        self._broker, self._auto, self._manager = broker, mode.replication, mode.manager

    @staticmethod
    def began(broker: Broker) -> bool:
        """Has it loaded its store?"""
        return broker.parts.lifecycle.state == "running"

    @property
    def id(self) -> int:
        """Of the controllers; 0: none yet."""
        return self._manager.enrolment.broker_id

    @property
    def is_master(self) -> bool:
        return not self._broker.parts.roles.is_slave

    @property
    def proposed(self) -> frozenset[int]:
        """Whom it proposes to be in sync."""
        master = self._auto.master
        proposed = master.in_sync.proposed if master is not None else None
        return proposed.members if proposed is not None else frozenset()

    @property
    def master_epoch(self) -> int:
        """Of the last role that it took; -1: none yet."""
        return self._manager.role.epoch

    @property
    def start(self) -> int:
        """Where its log begins; 0 while that is empty."""
        log = self._broker.parts.store.log
        return log.start if log.end else 0

    @property
    def end(self) -> int:
        """Of its log."""
        return self._broker.parts.store.log.end

    @property
    def flushed(self) -> int:
        """A start has to find it up to there: nothing of a log that begins later than at 0, before its checkpoint says
        that it is there."""
        store = self._broker.parts.store
        begun = not self.start or store.flusher.saved_log_end > self.start
        return store.log.flushed if begun else 0

    @property
    def confirmed(self) -> int:
        """Readers see its log up to there."""
        return self._broker.parts.store.reads.confirmed

    @property
    def last_epoch(self) -> int:
        """Of its last byte, as its heartbeats say; while it leads, its own."""
        return self._auto.log_end_epoch

    @property
    def leads(self) -> bool:
        """Is its own epoch's entry durable, as the master that it is?"""
        return self._auto.leads

    @property
    def entries(self) -> list[EpochEntry]:
        """Of its file of epochs, as it has them itself."""
        return self._auto.epochs.entries
