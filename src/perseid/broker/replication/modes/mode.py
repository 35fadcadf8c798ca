"""What differs between the ways in which a broker's log gets to other nodes: one class each, chosen once (`mode_of`).

| mode | chosen by | the log gets to others by | who is master |
|---|---|---|---|
| alone | brokerRole=ASYNC_MASTER | the HA stream: slaves may follow, nobody waits for them | this broker |
| classic | SYNC_MASTER, SLAVE, or enableSlaveActingMaster | the HA stream | whoever is configured so |
| controlled | enableControllerMode | the HA stream with epochs (AutoSwitch) | whom the controllers elect |
| DLedger | enableDLegerCommitLog | Raft | whom the group elects |

A mode tells the kernel of itself as any capability does (`capability`): its events, timers, hooks of the role, what
ends a turn and the broker. Others ask it for what they need (`elects`, `nodes`, `broker_id`, …), and not which mode it
is. What all modes have in common is in `replicas.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.broker.consume.offsets import ConsumerOffsets
from perseid.broker.kernel.acks import Acks
from perseid.broker.kernel.capability import Capability
from perseid.broker.kernel.connections import Streams
from perseid.broker.kernel.intake import StreamData
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.metadata.topics import TopicTable
from perseid.broker.registration.name_servers import Registration
from perseid.broker.replication.acting import ActsForMaster, NobodyActs
from perseid.broker.replication.awaited_nodes import AwaitedNodes
from perseid.broker.replication.copies import Copies
from perseid.broker.scheduled.delay import DelayService
from perseid.broker.scheduled.escape import Escape
from perseid.broker.scheduled.timers import TimerService
from perseid.disk.port import Disk
from perseid.replication.auto_switch.slave import Slave as AutoSwitchSlave
from perseid.replication.classic.slave import Slave as ClassicSlave
from perseid.replication.config import ReplicationConfig
from perseid.replication.sender import Connected
from perseid.store.store import MessageStore
from perseid.wire.bodies import HAConnectionRuntimeInfo
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command
from perseid.wire.controller import Epoch, SyncStateSet
from perseid.wire.headers.controller import NotifyBrokerRoleChangedRequest
from perseid.wire.rpc import Caller, Sign

SYNC_MASTER = "SYNC_MASTER"
WAITS_FOR_NO_SLAVE = (
    "brokerRole=SYNC_MASTER with inSyncReplicas=1 waits for no slave, as in RocketMQ 5: "
    "set inSyncReplicas=2 to acknowledge only what one slave has too"
)
HA_PORT_OFFSET = 1
NEEDS_CONTROLLER = ("allAckInSyncStateSet", "brokerElectionPriority", "controllerAddr", "haMaxTimeSlaveNotCatchup")
"""Options that have an effect only under a controller."""


class LogStream(Streams, StreamData, Protocol):
    """The connections by which the log goes to other nodes, and comes from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePorts:
    """The parts that a mode needs, of those that there are before the store."""

    turn: Turn
    settings: Settings
    roles: Roles
    acks: Acks
    disk: Disk
    caller: Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterPorts:
    """The parts that a mode needs besides, which in turn need to know how durable the log is."""

    registration: Registration
    topics: TopicTable
    offsets: ConsumerOffsets
    timers: TimerService
    delay: DelayService
    escape: Escape
    copies: Copies
    fail: Callable[[str], None]
    """Ends the broker: nothing may be promised any more."""


class ReplicationMode:
    """The replication of one broker, as far as its mode decides it."""

    elects: ClassVar[bool] = False
    """May another broker of the set be elected master while this one lives?"""
    stream: LogStream
    nodes: AwaitedNodes
    """What acknowledgements wait for."""
    no_effect: Mapping[str, str]
    """Options that may change while a broker runs and mean nothing to this one, and why."""

    def __init__(self, ports: ModePorts, config: ReplicationConfig, store: MessageStore) -> None:
        self._turn = ports.turn
        self._settings = ports.settings
        self._roles = ports.roles
        self.config = config
        self.store = store
        self.acting: ActsForMaster = NobodyActs()

    def guard(self, sign: Sign | None, stranger: Callable[[Command], str]) -> None:
        """Of a group whose members ask each other: `sign` what is asked, and answer no stranger. Elsewhere nothing:
        the HA stream has no requests."""

    def join(self, ports: LaterPorts) -> None:
        """Take the parts that are told by other brokers, and copy from them."""
        self._offsets = ports.offsets
        self._registration = ports.registration
        self._copies = ports.copies

    @abstractmethod
    def capability(self) -> Capability:
        """This mode, for the kernel."""

    # ---- start, stop, settings ----

    def start(self, now: Millis) -> None:
        """The broker runs: take up the role, and look for the others."""
        if self._settings.current.broker_role == SYNC_MASTER and self.nodes.counts and self.nodes.waits_for_none:
            self._turn.note("warning", WAITS_FOR_NO_SLAVE)
        if self._roles.is_slave:
            self._offsets.follow()

    def reconfigure(self, config: ReplicationConfig) -> None:
        """Follow other settings from now on."""
        self.config = config

    def controllers_changed(self, now: Millis) -> None:
        """`controllerAddr` names others from now on."""

    # ---- its place in the set, as name servers are told of it, and tell ----

    @property
    def broker_id(self) -> int:
        """As it stands in the route."""
        return self._settings.current.broker_id

    @property
    def ha_address(self) -> str:
        """`host:port` of our HA port; in the route for slaves."""
        config = self._settings.current
        port = self.config.ha_listen_port or config.listen_port + HA_PORT_OFFSET
        return f"{config.broker_ip2 or config.broker_ip1}:{port}"

    @property
    def without_master(self) -> bool:
        """Has the master gone away, so that what a name server says of it is old?"""
        return self.acting.without_master

    def follow(self, master: str, ha_address: str | None, now: Millis) -> None:
        """Name servers told, with a registration, where the master is, and its HA port; a configured address wins."""

    # ---- requests ----

    def check(self, route: Route) -> None:
        """RequestRefused: this mode has no such request served now."""

    @property
    def master_for_sends(self) -> str:
        """Where a send may be handed on to that we may not take; "": nowhere."""
        return ""

    def take_role(
        self, notice: NotifyBrokerRoleChangedRequest, members: Callable[[], SyncStateSet], peer: str, now: Millis
    ) -> None:
        """A controller says who is master, and who is in sync. RequestRefused: this one is not believed."""
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, "this broker has no controller: enableControllerMode is false"
        )

    def epochs(self) -> list[Epoch]:
        """Which bytes of our log are of which master's epoch. RequestRefused: there are no epochs."""
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "this request is for brokers under a controller only")

    # ---- readers and operators ----

    @property
    def sends_readers_back(self) -> bool:
        """Is this a slave whose master is there, so that readers who find nothing should ask that one?"""
        receiver = self.receiver
        return receiver is not None and receiver.following

    @property
    def receiver(self) -> ClassicSlave | AutoSwitchSlave | None:
        """Our end of the HA stream, if this is a slave that has one."""
        return None

    def followers(self, now: Millis) -> Sequence[HAConnectionRuntimeInfo]:
        """Who follows our HA stream, and how far behind each one is."""
        return []


def follower_of(
    one: Connected, end: int, now: Millis, in_sync: bool, lag_ms: Millis | None = None
) -> HAConnectionRuntimeInfo:
    """How far somebody who follows our HA stream is behind the `end` of the log."""
    return HAConnectionRuntimeInfo(
        addr=one.peer,
        slave_ack_offset=one.acknowledged,
        diff=end - one.acknowledged,
        in_sync=in_sync,
        transferred_byte_in_second=one.meter.per_second(now),
        transfer_from_where=one.next,
        lag_millis=lag_ms,
    )


def without_controller(**more: str) -> dict[str, str]:
    """Options that have no effect on a broker without a controller, and why; `more` of them by name."""
    why = "this broker has no controller"
    return dict.fromkeys(NEEDS_CONTROLLER, why) | more
