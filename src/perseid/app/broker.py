"""A broker as a process."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from perseid.app import access as access_app
from perseid.app import process
from perseid.app import tls as tls_app
from perseid.app.tls import ProcessTls
from perseid.base import config
from perseid.base.config import Setting, option
from perseid.base.errors import ConfigError
from perseid.broker.access.config import AccessOptions
from perseid.broker.config import BrokerConfig
from perseid.broker.foreign import FOREIGN, PLACES
from perseid.broker.kernel.request import MAIN_LISTENER, VIP_LISTENER
from perseid.broker.node import Broker
from perseid.broker.replication.modes.classic import SLAVE
from perseid.broker.replication.modes.mode import HA_PORT_OFFSET
from perseid.net.driver import Driver, Listener
from perseid.net.limits import Limits
from perseid.raft.config import RaftConfig, peers_of
from perseid.raft.node import LISTENER as RAFT_LISTENER
from perseid.replication.config import ReplicationConfig
from perseid.replication.receiver import LISTENER as HA_LISTENER
from perseid.security.tls_settings import DEFAULT, Chosen, TlsConfig
from perseid.store.commit_log import FOLDER as LOG_FOLDER
from perseid.store.config import StoreConfig

ADDRESS_SERVER = "fetchNamesrvAddrByAddressServer"
"""Refused where no name server is named: nobody asks the other one where any is."""
SEVERAL_PATHS = ","
SETTINGS_FOLDER = "@settings"
"""On the broker's disk: that of its configuration's file."""

VIP_OFFSET = -2
"""The second port that the original opens, relative to listenPort."""

NAME_SERVER_VARIABLE = "NAMESRV_ADDR"

PARTS = (BrokerConfig, StoreConfig, ReplicationConfig, RaftConfig, AccessOptions)
"""Whose settings a broker's file holds besides the process's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig:
    """What concerns the process, not the broker in it."""

    store_path_root_dir: str = option(
        "",
        "The folder of everything that the broker stores: log, queues, topics, groups, offsets. A folder of RocketMQ's "
        "default store can be opened as it is. Two brokers can't share one.",
        section="Process",
        important=True,
        computed="`store` in the user's home",
    )
    bind_address: str = option(
        "0.0.0.0",
        "The address on which the broker listens, on all its ports. `127.0.0.1` keeps other machines out; what clients "
        "are told is `brokerIP1`.",
    )
    server_channel_max_idle_time_seconds: int = option(
        120,
        "A connection on which nothing is read or written for so long is closed. Clients send heartbeats every 30 s, "
        "so don't go below that.",
        unit="s",
        low=1,
    )
    rocketmq_home: str = option(
        "",
        "Shown to tools that ask for the configuration, and not used otherwise: a Perseid broker reads no files of an "
        "installation.",
        important=True,
        computed="the variable `ROCKETMQ_HOME`",
    )
    store_type: str = option(
        "default",
        "The kind of store. `default` is the only one; another value stops the start.",
    )
    store_path_commit_log: str = option(
        "",
        "A folder for the log alone, for example on a disk of its own. It must hold nothing else, and it is one "
        "folder: RocketMQ also takes several.",
        computed="`commitlog` below `storePathRootDir`",
    )


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that a broker process is told."""

    process: ProcessConfig
    broker: BrokerConfig
    store: StoreConfig
    replication: ReplicationConfig = field(default_factory=ReplicationConfig)
    raft: RaftConfig = field(default_factory=RaftConfig)
    """Of the group, with enableDLegerCommitLog."""
    kept_in: Path | None = None
    """The file in which a changed setting is kept."""
    why_not_kept: str = ""
    tls: Chosen = DEFAULT
    access: AccessOptions = field(default_factory=AccessOptions)

    def shown(self) -> tuple[Any, ...]:
        """What people and programs are shown."""
        group = (self.raft,) if self.broker.enable_dleger_commit_log else ()
        return self.process, self.broker, self.store, self.replication, self.access, *group

    @property
    def ha_port(self) -> int:
        """Where slaves connect."""
        return self.replication.ha_listen_port or self.broker.listen_port + HA_PORT_OFFSET

    @property
    def knows_slaves(self) -> bool:
        """Are strangers turned away at the HA port? By their certificates, or since the controllers know the
        addresses of all replicas."""
        by_address = self.broker.enable_controller_mode and self.replication.check_peer_addresses
        return self.tls.certified_ha or by_address

    def to_text(self, *, important: bool = False) -> str:
        return config.to_text(*self.shown(), self.tls.keys, important=important)

    def to_properties(self, broker: BrokerConfig) -> dict[str, str]:
        """All of it; `broker` as it is now."""
        return config.to_properties(*replace(self, broker=broker).shown())


def load(path: Path | None, namesrv: str | None = None, flags: Mapping[str, str] | None = None) -> Loaded:
    """The configuration of a file (or the defaults); `namesrv`, and `flags` of TLS, win over the file. ConfigError when
    it can't be."""
    settings = process.plain(_out_of_place(process.read_settings(path)), ProcessConfig, *PARTS)
    broker = config.build(BrokerConfig, settings)
    addresses = namesrv or broker.namesrv_addr or os.environ.get(NAME_SERVER_VARIABLE, "")
    config.refuse(settings, (one for one in FOREIGN.refused if not (addresses and one.key == ADDRESS_SERVER)))
    own = _with_places(config.build(ProcessConfig, settings), settings)
    process.report(settings, FOREIGN, ProcessConfig, TlsConfig, *PARTS)
    broker = _with_role(replace(broker, namesrv_addr=addresses), settings)
    store, raft = config.build(StoreConfig, settings), config.build(RaftConfig, settings)
    _check_lmq(broker, store, settings)
    who_may = access_app.load(settings)
    if broker.enable_dleger_commit_log and who_may.authentication_enabled:
        _check_group_signs(who_may, settings)
    if broker.enable_slave_acting_master:
        _check_acting(broker, settings)
    if broker.enable_controller_mode:
        _check_controllers(broker, settings)
    if broker.enable_dleger_commit_log:
        raft = _member(settings, broker, store, raft)
    _check_addresses(addresses, settings)
    return Loaded(
        own,
        replace(
            broker,
            broker_ip1=broker.broker_ip1 if "brokerIP1" in settings else process.own_ip(),
            broker_name=broker.broker_name if "brokerName" in settings else socket.gethostname(),
        ),
        replace(store, process_id=os.getpid(), physical_memory_bytes=memory_bytes()),
        config.build(ReplicationConfig, settings),
        raft,
        *_kept_in(path),
        tls_app.load(settings, flags),
        who_may,
    )


def _kept_in(path: Path | None) -> tuple[Path | None, str]:
    """Where changed settings are kept, or why they are not."""
    if path is None:
        return None, "the broker was started without a configuration file"
    if path.suffix == ".toml":
        return None, f"{path} is TOML, which is not rewritten: change it there too"
    return path.resolve(), ""


def memory_bytes() -> int:
    """Of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def build(
    loaded: Loaded, listeners: Mapping[str, Listener] | None = None, tls: ProcessTls | None = None
) -> tuple[Broker, Driver]:
    """The broker of a configuration on its own folder, and what runs it; without `tls` there is none."""
    log = loaded.process.store_path_commit_log
    _check_log(loaded.process)
    elsewhere = {LOG_FOLDER: log} if log else {}
    kept = loaded.kept_in
    if kept is not None:
        elsewhere[SETTINGS_FOLDER] = str(kept.parent)
    disk = process.open_disk(Path(loaded.process.store_path_root_dir), elsewhere)
    who_may = access_app.access(loaded.access, Path(loaded.process.store_path_root_dir))
    node = Broker(
        loaded.broker,
        loaded.store,
        disk,
        Random(),
        properties=lambda: loaded.to_properties(node.parts.settings.current),
        kept=(f"{SETTINGS_FOLDER}/{kept.name}" if kept is not None else "", loaded.why_not_kept),
        replication=loaded.replication,
        raft=loaded.raft if loaded.broker.enable_dleger_commit_log else None,
        access=who_may,
    )
    if listeners is None:
        host, port = loaded.process.bind_address, loaded.broker.listen_port
        main = Listener(host, port, setting="listenPort in the file of -c")
        vip = replace(main, port=port + VIP_OFFSET, setting=f"{main.setting} (this one is {-VIP_OFFSET} below it)")
        listeners = {MAIN_LISTENER: main, VIP_LISTENER: vip}
        if loaded.broker.enable_dleger_commit_log:
            _, _, group_port = peers_of(loaded.raft.peers)[loaded.raft.self_id].rpartition(":")
            listeners[RAFT_LISTENER] = Listener(host, int(group_port), setting="dLegerPeers")
        else:
            listeners[HA_LISTENER] = Listener(host, loaded.ha_port, complete=len, setting="haListenPort")
    limits = Limits(idle_ms=loaded.process.server_channel_max_idle_time_seconds * 1000)
    dials = tls.dials() if tls is not None else None
    secured = tls.secure(listeners) if tls is not None else listeners
    driver = Driver(node, disk, secured, name="broker", limits=limits, gathers=node.parts.acks.gathers, dials=dials)
    driver.took = node.parts.stats.turn_took
    return node, driver


async def serve(loaded: Loaded) -> int:
    """Run until told to end; the exit code."""
    broker = loaded.broker
    access_app.warn_if_open("broker", loaded.process.bind_address, broker.listen_port, loaded.access, loaded.tls)
    tls = ProcessTls(loaded.tls, (broker.broker_ip1,))
    if not broker.enable_dleger_commit_log:
        access_app.warn_if_ha_is_open(
            loaded.process.bind_address, loaded.ha_port, loaded.access,
            members_alone=loaded.knows_slaves, tls=loaded.tls,
        )  # fmt: skip
    node, running = build(loaded, tls=tls)

    async def ready() -> None:
        # before the line is printed: who reads it may ask the name servers at once
        await running.until(lambda: node.parts.registration.tried)
        at = f" and name server is {broker.namesrv_addr}" if broker.namesrv_addr else ""
        line = f"The broker[{broker.broker_name}, {broker.address}] boot success. serializeType=JSON{at}"
        process.say(line)

    return await process.serve([running], ready, tls)


def _root(text: str) -> Path:
    return Path(text or process.home_folder() / "store").expanduser().absolute()


def _out_of_place(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings without those that name a file's or folder's usual place."""

    def said(key: str) -> str:
        return settings[key].value if key in settings else ""

    root, group = _root(said("storePathRootDir")), f"dledger-{said('dLegerSelfId')}/data"
    usual = {**PLACES, **dict.fromkeys(("storePathDLedgerCommitLog", "dataStorePath"), group)}
    there = {key for key, name in usual.items() if said(key) and Path(said(key)).expanduser().absolute() == root / name}
    return {key: setting for key, setting in settings.items() if key not in there}


def _with_places(own: ProcessConfig, settings: Mapping[str, Setting]) -> ProcessConfig:
    """The folders as they are on this machine. The log's is one folder; no name of it: it is where it always is."""
    root = _root(own.store_path_root_dir)
    log = own.store_path_commit_log
    if SEVERAL_PATHS in log:
        setting = settings["storePathCommitLog"]
        raise ConfigError(
            f"{setting.where}: storePathCommitLog={config.shown(log)}: the log would be spread over several folders; "
            "Perseid keeps it in one: move all files there and name it"
        )
    place = Path(os.path.abspath(Path(log).expanduser())) if log else root / LOG_FOLDER
    if log and (root.is_relative_to(place) or place.is_relative_to(root / "consumequeue")):
        setting = settings["storePathCommitLog"]
        raise ConfigError(
            f"{setting.where}: storePathCommitLog={config.shown(log)}: other files would lie among the "
            f"log's; name a folder of its own, or remove the line: then it is {root / LOG_FOLDER}"
        )
    return replace(
        own,
        store_path_root_dir=str(root),
        store_path_commit_log="" if place == root / LOG_FOLDER else str(place),
        rocketmq_home=own.rocketmq_home or os.environ.get("ROCKETMQ_HOME", ""),
    )


def _check_log(own: ProcessConfig) -> None:
    """A log in the usual place beside one elsewhere would be out of sight."""
    usual, log = Path(own.store_path_root_dir) / LOG_FOLDER, own.store_path_commit_log
    if log and usual.is_dir() and any(usual.iterdir()) and os.path.realpath(usual) != os.path.realpath(log):
        raise ConfigError(
            f"storePathCommitLog={log}: {usual} holds files of a log, which would be out of sight; move them there, or "
            "remove the line"
        )


def _with_role(broker: BrokerConfig, settings: Mapping[str, Setting]) -> BrokerConfig:
    """A master has the id 0, whatever its file says, as the original's; a slave another one: clients tell them apart
    by it."""
    if broker.enable_dleger_commit_log or broker.enable_controller_mode:
        return broker
    if broker.broker_role != SLAVE:
        if broker.broker_id:
            setting = settings["brokerId"]
            text = "%s: brokerId=%s: a master's id is 0, so it is 0 (brokerRole=%s)"
            process.log.warning(text, setting.where, broker.broker_id, broker.broker_role)
        return replace(broker, broker_id=0)
    if broker.broker_id <= 0:
        named = settings.get("brokerId") or settings["brokerRole"]
        both = [f"brokerId={broker.broker_id}", f"brokerRole={broker.broker_role}"]
        first, second = both if named.key == "brokerId" else reversed(both)
        raise ConfigError(f"{named.where}: {first}: with {second}: a slave's id is above 0, like brokerId=1")
    return broker


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


def _check_group_signs(access: AccessOptions, settings: Mapping[str, Setting]) -> None:
    """Members of a group sign what they ask each other."""
    if not access.inner_client_authentication_credentials:
        where = settings["authenticationEnabled"].where
        raise ConfigError(
            f"{where}: authenticationEnabled=true and enableDLegerCommitLog=true need "
            "innerClientAuthenticationCredentials, the same on all members: what they sign with"
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
