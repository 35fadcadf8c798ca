"""The machines of a simulated cluster: name servers, controllers and brokers, each a `NodeDriver` with its own disk.

Addresses are those of TEST-NET (192.0.2.0/24, RFC 5737): nothing in the real world answers there, should a client that
does not run in virtual time be given one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypedDict

from perseid.base.errors import ConfigError, PerseidError
from perseid.broker.config import BrokerConfig
from perseid.broker.node import Broker
from perseid.broker.replication.modes.controlled import Controlled
from perseid.controller.config import ControllerConfig
from perseid.controller.node import LISTENER as CONTROLLER
from perseid.controller.node import Controller
from perseid.nameserver.config import NameServerConfig
from perseid.nameserver.node import NameServer
from perseid.raft.config import RaftConfig
from perseid.replication.config import ReplicationConfig
from perseid.sim.disk import SimDisk
from perseid.sim.driver import NodeDriver
from perseid.sim.net import Network
from perseid.sim.scheduler import Scheduler
from perseid.store.config import StoreConfig

NET = "192.0.2"
CLIENT_IP = f"{NET}.1"
NAMESRV_PORT, CONTROLLER_PORT = 9876, 9878
CONTROLLERS = 3
MAX_BROKERS = 9
VALIDATE_EVERY = 1_000
"""Invariants of a node's state are checked after each so-manieth event: the simulator's own tests check each."""

SMALL_STORE = StoreConfig(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_bytes=20 * 1_000,
    max_hash_slot_num=1_000,
    max_index_num=4_000,
)
"""Small files, in memory."""
BROKER = BrokerConfig(broker_name="virtual")
SAFE = ReplicationConfig(all_ack_in_sync_state_set=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which nodes a cluster has, and how its brokers are configured."""

    replicas: int = 1
    """Brokers of one set under three controllers, which elect another master when one dies (`perseid up --ha`); 1: one
    broker, and no controllers."""
    slaves: int = 0
    """Slaves of a master that stays the master, as RocketMQ has had them before its controllers."""
    name_servers: int = 1
    broker: BrokerConfig = BROKER
    store: StoreConfig = SMALL_STORE
    replication: ReplicationConfig = SAFE
    """With `all_ack_in_sync_state_set` no acknowledged message is lost as long as one replica in sync lives."""

    def __post_init__(self) -> None:
        if self.replicas > 1 and self.slaves:
            raise ConfigError(f"{self.replicas} replicas and {self.slaves} slaves: a cluster has the one or the other")
        if not (1 <= self.replicas <= MAX_BROKERS and 0 <= self.slaves < MAX_BROKERS and 1 <= self.name_servers <= 9):
            raise ConfigError(f"{self}: a cluster has 1 to {MAX_BROKERS} brokers, and 1 to 9 name servers")


class LayoutOptions(TypedDict, total=False):
    """The fields of a `Layout`."""

    replicas: int
    slaves: int
    name_servers: int
    broker: BrokerConfig
    store: StoreConfig
    replication: ReplicationConfig


class Machines:
    """All machines of a cluster; faults and the story name them `broker-1`, `namesrv-1`, `controller-1` and so on."""

    def __init__(self, layout: Layout, scheduler: Scheduler, network: Network) -> None:
        self.layout = layout
        self._scheduler = scheduler
        self._network = network
        ips = [f"{NET}.{10 + number}" for number in range(1, layout.name_servers + 1)]
        self.namesrv = ";".join(f"{ip}:{NAMESRV_PORT}" for ip in ips)
        self.name_servers = [self._name_server(number, ip) for number, ip in enumerate(ips, 1)]
        members = [f"{NET}.{20 + number}:{CONTROLLER_PORT}" for number in range(1, CONTROLLERS + 1)]
        self.controllers: list[NodeDriver] = []
        self._controller_addresses = ""
        if layout.replicas > 1:
            self._controller_addresses = ";".join(members)
            peers = ";".join(f"n{number}-{address}" for number, address in enumerate(members, 1))
            self.controllers = [self._controller(number, peers) for number in range(1, CONTROLLERS + 1)]
        count = layout.slaves + 1 if layout.slaves else layout.replicas
        self.brokers = [self._broker(number) for number in range(1, count + 1)]
        self.all = [*self.name_servers, *self.controllers, *self.brokers]
        """In the order in which they are started."""

    # ---- who is who ----

    @property
    def master(self) -> NodeDriver | None:
        """The running broker that takes sends; of two that believe to be it, the one that became it last."""
        found = [node for node in self.brokers if (broker := self.running(node)) and not broker.parts.roles.is_slave]
        return max(found, key=lambda node: (self._epoch(node), node.name), default=None)

    @property
    def is_ready(self) -> bool:
        """A master is registered at all name servers, and all brokers copy what it stores."""
        master = self.master
        broker = self.running(master) if master is not None else None
        if broker is None or not all(broker.parts.registration.registered(one) for one in self.namesrv.split(";")):
            return False
        mode = broker.parts.mode
        if not isinstance(mode, Controlled):
            return all(self.running(node) is not None for node in self.brokers)
        leading = mode.replication.master
        return leading is not None and len(leading.in_sync.agreed) == len(self.brokers)

    def named(self, name: str) -> list[NodeDriver]:
        """The machines that a name means. PerseidError when it means none."""
        groups = {
            "brokers": self.brokers, "controllers": self.controllers, "name servers": self.name_servers,
            "slaves": [node for node in self.brokers if node is not self.master], "all": self.all,
        }  # fmt: skip
        if name == "master":
            master = self.master
            if master is None:
                raise PerseidError(
                    f"no broker is the master now ({self.shown()}); let time pass until one is elected, or start one"
                )
            return [master]
        found = groups.get(name) or [node for node in self.all if node.name == name]
        if not found:
            names = ", ".join(["master", *groups, *(node.name for node in self.all)])
            raise PerseidError(f"{name!r} is no machine of this cluster; it has: {names}")
        return found

    def shown(self) -> str:
        """Which nodes run, in words."""
        return ", ".join(f"{node.name} {'runs' if node.machine is not None else 'is down'}" for node in self.all)

    @staticmethod
    def running(node: NodeDriver) -> Broker | None:
        """The broker on a machine, once it serves."""
        broker = node.machine
        return broker if isinstance(broker, Broker) and broker.parts.lifecycle.state == "running" else None

    def _epoch(self, node: NodeDriver) -> int:
        broker = self.running(node)
        mode = broker.parts.mode if broker is not None else None
        return mode.manager.role.epoch if isinstance(mode, Controlled) else 0

    # ---- how they are built ----

    def _node(self, name: str, ip: str, build: Any, listeners: dict[str, int]) -> NodeDriver:
        node = NodeDriver(name, ip, self._scheduler, self._network, build, listeners, lambda what: None)
        node.validate_every = VALIDATE_EVERY
        return node

    def _name_server(self, number: int, ip: str) -> NodeDriver:
        def build(disk: SimDisk, random: Random) -> NameServer:
            return NameServer(NameServerConfig(), disk)

        return self._node(f"namesrv-{number}", ip, build, {"main": NAMESRV_PORT})

    def _controller(self, number: int, peers: str) -> NodeDriver:
        own = f"n{number}"
        config = ControllerConfig(
            controller_dleger_group="controllers", controller_dleger_peers=peers, controller_dleger_self_id=own
        )
        raft = RaftConfig(group="controllers", self_id=own, peers=peers, mapped_file_size_for_entry_data=1 << 20)

        def build(disk: SimDisk, random: Random) -> Controller:
            return Controller(config, raft, disk, random)

        return self._node(f"controller-{number}", f"{NET}.{20 + number}", build, {CONTROLLER: CONTROLLER_PORT})

    def _broker(self, number: int) -> NodeDriver:
        ip, layout = f"{NET}.{30 + number}", self.layout
        config = replace(layout.broker, broker_ip1=ip, namesrv_addr=self.namesrv)
        if self.controllers:
            config = replace(config, enable_controller_mode=True, controller_addr=self._controller_addresses)
        elif number > 1:
            config = replace(config, broker_role="SLAVE", broker_id=number - 1)

        def build(disk: SimDisk, random: Random) -> Broker:
            return Broker(config, layout.store, disk, random, replication=layout.replication)

        port = config.listen_port
        return self._node(f"broker-{number}", ip, build, {"main": port, "ha": port + 1})


def pairs(one: list[str], other: list[str]) -> Iterator[tuple[str, str]]:
    """Each way from the ones to the others, and back."""
    for first in one:
        for second in other:
            if first != second:
                yield first, second
                yield second, first
