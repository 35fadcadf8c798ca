"""How a broker of a set is built, and where what the checkers look at stands in it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from perseid.broker.config import BrokerConfig
from perseid.broker.node import Broker
from perseid.replication.config import ReplicationConfig
from perseid.sim.disk import SimDisk
from perseid.store.config import ASYNC_FLUSH, SYNC_FLUSH, StoreConfig

MAIN_PORT, HA_PORT = 10911, 10912
IDENTITY = "brokerIdentity"


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
        }
        return cls(**{**drawn, **given, "synced": synced})


def listeners() -> dict[str, int]:
    """Listener → port."""
    return {"main": MAIN_PORT, "ha": HA_PORT}


def build_broker(
    settings: Settings, ip: str, controllers: str, name_server: str, disk: SimDisk, random: Random
) -> Broker:
    """One life of a broker."""
    store = StoreConfig(
        commit_log_file_bytes=settings.log_file_bytes,
        consume_queue_file_bytes=400,
        max_hash_slot_num=50,
        max_index_num=200,
        message_delay_level="1s 2s",
        flush_consume_queue_thorough_interval=2_000,
        flush_disk_type=SYNC_FLUSH if settings.synced else ASYNC_FLUSH,
        clean_file_forcibly_enable=False,
        hot_bytes=settings.hot_bytes,
    )
    config = BrokerConfig(
        broker_ip1=ip,
        listen_port=MAIN_PORT,
        broker_name="sim-a",
        namesrv_addr=name_server,
        slave_read_enable=True,
        enable_controller_mode=True,
        controller_addr=controllers,
        controller_heart_beat_timeout_mills=settings.beat_timeout_ms,
    )
    replication = ReplicationConfig(
        all_ack_in_sync_state_set=settings.all_ack,
        ha_report_durable_only=settings.synced,
        ha_max_time_slave_not_catchup=settings.not_caught_up_ms,
        ha_transfer_batch_size=settings.batch_bytes,
        ha_window_bytes=settings.window_bytes,
    )
    return Broker(config, store, disk, random, replication=replication)


class Look:
    """What there is to see of a running broker."""

    def __init__(self, broker: Broker) -> None:
        auto, manager = broker.replicas.auto, broker.replicas.manager
        assert auto is not None and manager is not None
        self._broker, self._auto, self._manager = broker, auto, manager

    @staticmethod
    def began(broker: Broker) -> bool:
        """Has it loaded its store?"""
        return broker._state == "running"

    @property
    def id(self) -> int:
        """Of the controllers; 0: none yet."""
        return self._manager.broker_id

    @property
    def is_master(self) -> bool:
        return not self._broker.replicas.is_slave

    @property
    def master_epoch(self) -> int:
        """Of the last role that it took; -1: none yet."""
        return self._manager.epoch

    @property
    def end(self) -> int:
        """Of its log."""
        return self._broker.store.log.end

    @property
    def flushed(self) -> int:
        return self._broker.store.flushed

    @property
    def confirmed(self) -> int:
        """Readers see its log up to there."""
        return self._broker.store.confirmed

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """Epoch and start of each entry."""
        return [(entry.epoch, entry.start) for entry in self._auto.epochs.entries]
