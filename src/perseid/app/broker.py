"""A broker as a process."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from perseid.app import process
from perseid.base import config
from perseid.base.config import Refusal, Setting, option
from perseid.base.errors import ConfigError
from perseid.broker.config import BrokerConfig
from perseid.broker.node import Broker
from perseid.broker.replicas import HA_PORT_OFFSET, SLAVE
from perseid.broker.request import MAIN_LISTENER, VIP_LISTENER
from perseid.net.driver import Driver, Listener
from perseid.net.limits import Limits
from perseid.raft.config import RaftConfig, peers_of
from perseid.raft.node import LISTENER as RAFT_LISTENER
from perseid.replication.config import ReplicationConfig
from perseid.replication.receiver import LISTENER as HA_LISTENER
from perseid.store.config import StoreConfig

VIP_OFFSET = -2
"""The second port that the original opens, relative to listenPort."""

NAME_SERVER_VARIABLE = "NAMESRV_ADDR"

REFUSED = (
    Refusal("authenticationEnabled", ("false",), "Perseid has no authentication yet"),
    Refusal("authorizationEnabled", ("false",), "Perseid has no authorization yet"),
    Refusal("aclEnable", ("false",), "Perseid has no access lists yet"),
    Refusal("tls.server.mode", ("disabled", "permissive"), "Perseid has no TLS yet"),
    Refusal("storeType", ("default",), "Perseid has one kind of store"),
    Refusal("duplicationEnable", ("false",), "Perseid has no duplication"),
    Refusal("storePathDLedgerCommitLog", (), "Perseid keeps it below storePathRootDir, in dledger-ID"),
    Refusal("fetchControllerAddrByDnsLookup", ("false",), "Perseid asks each controller of controllerAddr; name them"),
    Refusal("controllerType", ("dledger",), "Perseid has no controller of this kind"),
    Refusal("lockInStrictMode", ("false",), "Perseid locks queues at the broker that is asked alone"),
    Refusal("enableAutoInSyncReplicas", ("false",), "Perseid waits for inSyncReplicas, however many are there"),
    Refusal("enableConsumeQueueExt", ("false",), "Perseid's consume queues hold tags, not places of an extension"),
    Refusal("enableCalcFilterBitMap", ("false",), "Perseid asks each message's properties, and keeps no bitmaps"),
    Refusal("filterSupportRetry", ("false",), "Perseid does not filter retried messages"),
)
"""What would go wrong in silence if it were ignored."""

_FIXED_PLACES = {
    "storePathCommitLog": "commitlog",
    "storePathConsumeQueue": "consumequeue",
    "storePathIndex": "index",
    "storeCheckpoint": "checkpoint",
    "abortFile": "abort",
}
"""Keys that can only name their default place below storePathRootDir."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig:
    """What concerns the process, not the broker in it."""

    store_path_root_dir: str = option("", important=True)
    """Empty: `store` in the user's home."""
    bind_address: str = "0.0.0.0"
    server_channel_max_idle_time_seconds: int = option(120, low=1)
    rocketmq_home: str = option("", important=True)
    store_type: str = "default"


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that a broker process is told."""

    process: ProcessConfig
    broker: BrokerConfig
    store: StoreConfig
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    raft: RaftConfig = field(default_factory=RaftConfig)
    """Of the group, with enableDLegerCommitLog."""

    def _told(self) -> tuple[Any, ...]:
        """What people and programs are shown."""
        group = (self.raft,) if self.broker.enable_dleger_commit_log else ()
        return self.process, self.broker, self.store, self.replication, *group

    def to_text(self, *, important: bool = False) -> str:
        return config.to_text(*self._told(), important=important)

    def to_properties(self, broker: BrokerConfig) -> dict[str, str]:
        """All of it; `broker` as it is now."""
        return config.to_properties(*replace(self, broker=broker)._told())


def load(path: Path | None, namesrv: str | None = None) -> Loaded:
    """The configuration of a file (or the defaults); `namesrv` wins over the file. ConfigError when it can't be."""
    settings = process.read_settings(path)
    config.refuse(settings, REFUSED)
    own = config.build(ProcessConfig, settings)
    root = Path(own.store_path_root_dir or process.home_folder() / "store").expanduser().absolute()
    _check_places(settings, root)
    fixed = {s.key: s for s in settings.values() if s.key in _FIXED_PLACES or s.key in {r.key for r in REFUSED}}
    known = {key: setting for key, setting in settings.items() if key not in fixed}
    process.report_unknown(known, ProcessConfig, BrokerConfig, StoreConfig, ReplicationConfig, RaftConfig)
    broker = config.build(BrokerConfig, settings)
    store = config.build(StoreConfig, settings)
    raft = config.build(RaftConfig, settings)
    _check_lmq(broker, store, settings)
    if broker.enable_slave_acting_master:
        _check_acting(broker, settings)
    if broker.enable_controller_mode:
        _check_controllers(broker, settings)
    if broker.enable_dleger_commit_log:
        raft = _member(settings, broker, store, raft)
    elif not broker.enable_controller_mode:
        _check_role(broker, settings)
    addresses = namesrv or broker.namesrv_addr or os.environ.get(NAME_SERVER_VARIABLE, "")
    _check_addresses(addresses, settings)
    return Loaded(
        replace(
            own,
            store_path_root_dir=str(root),
            rocketmq_home=own.rocketmq_home or os.environ.get("ROCKETMQ_HOME", ""),
        ),
        replace(
            broker,
            namesrv_addr=addresses,
            broker_ip1=broker.broker_ip1 if "brokerIP1" in settings else process.own_ip(),
            broker_name=broker.broker_name if "brokerName" in settings else socket.gethostname(),
        ),
        replace(store, process_id=os.getpid(), physical_memory_bytes=memory_bytes()),
        config.build(ReplicationConfig, settings),
        raft,
    )


def memory_bytes() -> int:
    """Of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def build(loaded: Loaded, listeners: Mapping[str, Listener] | None = None) -> tuple[Broker, Driver]:
    """The broker of a configuration on its own folder, and what runs it."""
    disk = process.open_disk(Path(loaded.process.store_path_root_dir))
    node = Broker(
        loaded.broker,
        loaded.store,
        disk,
        Random(),
        properties=lambda: loaded.to_properties(node.config),
        replication=loaded.replication,
        raft=loaded.raft if loaded.broker.enable_dleger_commit_log else None,
    )
    if listeners is None:
        host, port = loaded.process.bind_address, loaded.broker.listen_port
        listeners = {MAIN_LISTENER: Listener(host, port), VIP_LISTENER: Listener(host, port + VIP_OFFSET)}
        if node.group is not None:
            _, _, group_port = peers_of(loaded.raft.peers)[loaded.raft.self_id].rpartition(":")
            listeners[RAFT_LISTENER] = Listener(host, int(group_port))
        else:
            ha_port = loaded.replication.ha_listen_port or port + HA_PORT_OFFSET
            listeners[HA_LISTENER] = Listener(host, ha_port, complete=len)
    limits = Limits(idle_ms=loaded.process.server_channel_max_idle_time_seconds * 1000)
    return node, Driver(node, disk, listeners, name="broker", limits=limits, gathers=node.acks.gathers)


async def serve(loaded: Loaded) -> int:
    """Run until told to end; the exit code."""
    broker = loaded.broker
    node, running = build(loaded)

    async def ready() -> None:
        await running.until(lambda: node.registration.tried)  # who reads the line may ask the name servers at once
        at = f" and name server is {broker.namesrv_addr}" if broker.namesrv_addr else ""
        line = f"The broker[{broker.broker_name}, {broker.address}] boot success. serializeType=JSON{at}"
        process.say(line)

    return await process.serve([running], ready)


def _check_places(settings: Mapping[str, Setting], root: Path) -> None:
    for key, name in _FIXED_PLACES.items():
        setting = settings.get(key)
        if setting is not None and Path(setting.value).expanduser().absolute() != root / name:
            raise ConfigError(
                f"{setting.where}: {key}={setting.value}: Perseid keeps it at {root / name}; "
                f"remove the line or change storePathRootDir"
            )


def _check_role(broker: BrokerConfig, settings: Mapping[str, Setting]) -> None:
    """A master has the id 0, a slave another one: clients tell them apart by it."""
    slave = broker.broker_role == SLAVE
    if slave != (broker.broker_id > 0) or broker.broker_id < 0:
        both = [f"brokerId={broker.broker_id}", f"brokerRole={broker.broker_role}"]
        named = settings.get("brokerId") or settings["brokerRole"]
        first, second = both if named.key == "brokerId" else reversed(both)
        what = "a slave's id is above 0, like brokerId=1" if slave else "a master's id is 0"
        raise ConfigError(f"{named.where}: {first}: with {second}: {what}")


def _check_lmq(broker: BrokerConfig, store: StoreConfig, settings: Mapping[str, Setting]) -> None:
    """Light message queues need both their keys. With one of them the original says offsets that nothing has, or takes
    them from clients; and its logs of groups know nothing of them."""
    if not (store.enable_lmq or store.enable_multi_dispatch):
        return
    named = settings.get("enableLmq") or settings["enableMultiDispatch"]
    if not store.lmq:
        raise ConfigError(
            f"{named.where}: {named.key}=true: light message queues need enableLmq=true and enableMultiDispatch=true"
        )
    if broker.enable_dleger_commit_log:
        raise ConfigError(f"{named.where}: {named.key}=true: a broker of a DLedger group has no light message queues")


def _member(
    settings: Mapping[str, Setting], broker: BrokerConfig, store: StoreConfig, timing: RaftConfig
) -> RaftConfig:
    """What the original's keys say of this broker's place in its group; the rest, intervals above all, is
    `timing`'s."""
    where = settings["enableDLegerCommitLog"].where
    for key, value in (("dLegerGroup", broker.dleger_group), ("dLegerSelfId", broker.dleger_self_id)):
        if not value:
            example = "n0" if key == "dLegerSelfId" else broker.broker_name
            raise ConfigError(f"{where}: enableDLegerCommitLog=true needs {key}, like {key}={example}")
    self_id, peers = broker.dleger_self_id, broker.dleger_peers
    if self_id not in peers_of(peers):
        where = settings["dLegerSelfId"].where
        raise ConfigError(f"{where}: dLegerSelfId={self_id} is not among dLegerPeers={peers}")
    if not self_id[1:].isdecimal():
        raise ConfigError(f"{where}: dLegerSelfId={self_id}: a letter and a number are wanted, like n0")
    return replace(
        timing,
        group=broker.dleger_group,
        self_id=self_id,
        peers=peers,
        preferred_leader_ids=broker.preferred_leader_id,
        mapped_file_size_for_entry_data=store.commit_log_file_bytes,
    )


def _check_acting(broker: BrokerConfig, settings: Mapping[str, Setting]) -> None:
    """A slave acts for its master, or becomes it."""
    for key, other in (
        ("enableControllerMode", broker.enable_controller_mode),
        ("enableDLegerCommitLog", broker.enable_dleger_commit_log),
    ):
        if other:
            where = settings["enableSlaveActingMaster"].where
            raise ConfigError(f"{where}: enableSlaveActingMaster=true and {key}=true: choose one of them")


def _check_controllers(broker: BrokerConfig, settings: Mapping[str, Setting]) -> None:
    """A controller elects, or a group does."""
    where = settings["enableControllerMode"].where
    if broker.enable_dleger_commit_log:
        raise ConfigError(f"{where}: enableControllerMode=true and enableDLegerCommitLog=true: choose one of them")
    if not broker.controller_addr.strip("; "):
        raise ConfigError(f"{where}: enableControllerMode=true needs controllerAddr=host:port;host:port")
    _check_addresses(broker.controller_addr, settings, "controllerAddr")


def _check_addresses(addresses: str, settings: Mapping[str, Setting], key: str = "namesrvAddr") -> None:
    where = settings[key].where if key in settings else "name servers"
    for address in filter(None, addresses.split(";")):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ConfigError(f"{where}: {key}={addresses}: host:port;host:port is wanted")
