"""What a broker has of its replicas: who waits for them, where its master is, and what it may not do as a slave.

The mode is chosen once, here: a SLAVE follows and refuses what changes a log; a SYNC_MASTER with `inSyncReplicas`
above 1 holds answers back until so many nodes have the message; a member of a Raft group (`broker.group`) does, until a
quorum has it, and is master or slave as its group elects; so is a broker under a controller (`broker.manager`), which
waits for all that are in sync with `allAckInSyncStateSet`; all others acknowledge by their own disk alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perseid.base.deadlines import soonest
from perseid.base.errors import RequestRefused
from perseid.base.machine import Close, Closed, ConnectFailed, ConnId, Effect, Feed, Frames, Millis, Opened, Resolved
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.route import OnSlave, Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.registration.name_servers import addresses
from perseid.broker.replication.acting import Acting
from perseid.broker.replication.copies import Copies
from perseid.broker.replication.forwards import Forwards
from perseid.broker.replication.manager import FileSaved, ReplicasManager
from perseid.broker.replication.promises import Promises
from perseid.disk.port import Disk
from perseid.raft.node import LISTENER as RAFT_LISTENER
from perseid.replication.auto_switch.in_sync import Proposal
from perseid.replication.auto_switch.node import AutoSwitchReplication, CutFor, Led, TrimmedTo
from perseid.replication.auto_switch.slave import Slave as AutoSlave
from perseid.replication.classic.node import ClassicReplication
from perseid.replication.classic.slave import Slave
from perseid.replication.config import ReplicationConfig
from perseid.replication.receiver import LISTENER as HA_LISTENER
from perseid.replication.sender import FetchedFor
from perseid.store.store import MessageStore
from perseid.wire.bodies import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
    SubscriptionGroupConfig,
)
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.query import ViewMessageByIdRequest
from perseid.wire.rpc import Caller, Failure

if TYPE_CHECKING:
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.kernel.acks import Acks
    from perseid.broker.registration.name_servers import Registration
    from perseid.broker.replication.raft_group import Group

SLAVE = "SLAVE"
SYNC_MASTER = "SYNC_MASTER"
MASTER_ID = 0
HA_PORT_OFFSET = 1
PROVE_TIMEOUT_MS = 3_000
REFUSED = (OnSlave.HANDED_ON, OnSlave.REFUSED)
NO_RECORD = "can not find message"
"""What a broker, a Java one too, says of an offset at which no record begins."""

class Durable:
    """Fed back when the log is durable for which an answer waits."""

    __slots__ = ("reply", "request")

    def __init__(self, request: Request, reply: Reply) -> None:
        self.request, self.reply = request, reply


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationPorts:
    """What `Replicas` stands on."""

    turn: Turn
    settings: Settings
    store: MessageStore
    disk: Disk
    caller: Caller
    roles: Roles
    acks: Acks


class Replicas:
    """The replication of one broker, in its terms."""

    def __init__(self, ports: ReplicationPorts, config: ReplicationConfig, group: Group | None) -> None:
        self._turn = ports.turn
        self._settings = ports.settings
        self._store = ports.store
        self._disk = ports.disk
        self._caller = ports.caller
        self._roles = ports.roles
        self._acks = ports.acks
        self.config = config
        self.group = group
        settings = ports.settings.current
        controlled = settings.enable_controller_mode
        role = settings.broker_role if group is None and not controlled else ""
        self._roles.is_slave = role == SLAVE or group is not None or controlled
        self.counts_nodes = role == SYNC_MASTER or controlled
        """May acknowledgements wait for slaves?"""
        may_adapt = settings.enable_slave_acting_master and config.enable_auto_in_sync_replicas
        self.adapts = may_adapt and role == SYNC_MASTER
        """They wait for as many as are in sync."""
        self.auto: AutoSwitchReplication | None = None
        if controlled:
            self.auto = AutoSwitchReplication(config, self._store, self._disk, self._propose, self._is_at)
        prove = self._prove if role == SLAVE else None
        self.classic = ClassicReplication(config, self._store, prove, wanted_from=self._wanted_from)
        self.stream: ClassicReplication | AutoSwitchReplication = self.auto or self.classic
        self.promises = Promises(self._wanted_nodes(), self._replicated)
        self.synchronous = self.promises.nodes != 1 or self.adapts
        """Do acknowledgements wait for slaves, or did they once?"""
        self.acting: Acting | None = None
        self.manager: ReplicasManager | None = None

    def join(
        self, registration: Registration, offsets: ConsumerOffsets, copies: Copies, forwards: Forwards,
        acting: Acting | None, manager: ReplicasManager | None,
    ) -> None:  # fmt: skip
        """What this broker is told by others, and copies from them."""
        self._registration = registration
        self._offsets = offsets
        self.copies = copies
        self.forwards = forwards
        self.acting = acting
        self.manager = manager
        self._roles.is_slave = self._roles.is_slave or (acting is not None and acting.isolated)

    @property
    def is_slave(self) -> bool:
        """Is this broker a slave now?"""
        return self._roles.is_slave

    @property
    def by_quorum(self) -> bool:
        """Do acknowledgements wait for a quorum of a group?"""
        return self.group is not None

    @property
    def wait_ms(self) -> Millis:
        """How long an acknowledgement waits for other nodes at most."""
        return self.group.raft.config.max_wait_ack_time_ms if self.group is not None else self.config.slave_timeout

    @property
    def ha_address(self) -> str:
        """`host:port` of our HA port; in the route for slaves."""
        config = self._settings.current
        port = self.config.ha_listen_port or config.listen_port + HA_PORT_OFFSET
        return f"{config.broker_ip2 or config.broker_ip1}:{port}"

    @property
    def broker_id(self) -> int:
        """As it stands in the route."""
        if self.manager is not None:
            return self.manager.broker_id if self.is_slave else MASTER_ID
        return self.group.broker_id if self.group is not None else self._settings.current.broker_id

    @property
    def without_master(self) -> bool:
        """Has the master gone away, so that what a name server says of it is old?"""
        return self.acting is not None and self.acting.without_master

    @property
    def acts_for_others(self) -> bool:
        """May this broker act for its master, and has it copied its tables once?"""
        return self.acting is not None and self.copies.rounds > 0

    @property
    def slave(self) -> Slave | AutoSlave | None:
        """Our end of the stream, if this is a slave that has one."""
        if self.auto is not None:
            return self.auto.slave if self.is_slave else None
        return self.classic.slave

    def start(self, now: Millis) -> None:
        """Say what the mode promises, and follow a master whose address is given."""
        if self._settings.current.broker_role == SYNC_MASTER and self.promises.nodes == 1 and self.group is None:
            self._turn.note(
                "warning",
                "brokerRole=SYNC_MASTER with inSyncReplicas=1 waits for no slave, as in RocketMQ 5: "
                "set inSyncReplicas=2 to acknowledge only what one slave has too",
            )
        if self.is_slave:
            self._offsets.follow()
        if self.auto is not None and self.manager is not None:
            self._emit(self.auto.start())
            self.manager.start(now)
            return
        if self.acting is not None:
            self.acting.start(addresses(self._settings.current.namesrv_addr), now)
        else:
            self._registration.start(now)
        if self.config.ha_master_address and self.slave is not None:
            self._emit(self.slave.follow(self.config.ha_master_address, now))

    def handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        """What is done with events of our own."""
        found: dict[type[Any], Callable[[Any], None]] = {
            FetchedFor: self._fed, Durable: self._tell, Resolved: self.resolved,
        }  # fmt: skip
        if self.manager is not None:
            found |= {CutFor: self._fed, TrimmedTo: self._fed}
            found |= {Led: self.manager.led, FileSaved: self.manager.file_saved}
        return found

    def _fed(self, event: FetchedFor | CutFor | TrimmedTo) -> None:
        self._emit(self.stream.fed(event, self._turn.now))

    def told_durably(self, request: Request, reply: Reply) -> Reply | None:
        """An answer with a table of which a slave may tell its master when that one is back: None, it leaves when what
        the log has now is durable. At once where no slave acts, and from a slave, which has it from its master."""
        store = self._store
        if self.acting is None or self.is_slave or store.flushed >= store.end:
            return reply
        request.command = request.command.keep()
        self._turn.emit(store.flush([Feed(Durable(request, reply))]))
        return None

    def _tell(self, event: Durable) -> None:
        self._turn.reply(event.request, event.reply)

    def follow(self, master: str, ha_address: str | None, now: Millis) -> None:
        """Name servers told, with a registration, where the master is, and its HA port; a configured address wins."""
        if self.group is not None and self.is_slave and master != self._settings.current.address:
            self.copies.follow(master, now)
        if self.manager is not None:
            self.manager.ha_address_told(master, ha_address, now)
        elif self.slave is not None:
            self.copies.follow(master, now)
            address = self.config.ha_master_address or ha_address
            if address:
                self._emit(self.slave.follow(address, now))

    def follow_stream(self, ha_address: str, now: Millis) -> None:
        """Follow the log of a master, and copy nothing else; a configured address wins."""
        if self.slave is not None:
            self._emit(self.slave.follow(self.config.ha_master_address or ha_address, now))

    def follow_nobody(self, now: Millis) -> None:
        """The master is away: what it had is not copied any more."""
        self.copies.follow(None, now)
        self.follow_stream("", now)

    # ---- what a slave may not ----

    def gate(self, request: Request, route: Route) -> bool:
        """Is this a send that is the master's to take, and on its way there now? RequestRefused for what only a master
        may do; before the first role, for nearly all."""
        if not self.is_slave:
            return False
        if route.on_slave is OnSlave.HANDED_ON:
            master = self.forwards.master_for(request)
            if master:
                self.forwards.send(master, request)
                return True
        self._check(route)
        return False

    def _check(self, route: Route) -> None:
        if self.manager is not None and self.manager.fenced and not route.before_role:
            raise RequestRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is fenced: no controller has told it its role yet"
            )
        config = self._settings.current
        isolated = self.acting is not None and self.acting.isolated
        if isolated and not route.while_isolated:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY, f"{config.broker_name} is not online yet: its offsets may change"
            )
        reads = config.slave_read_enable or (self.acting is not None and not isolated)
        if route.on_slave in REFUSED or (route.on_slave is OnSlave.READ and not reads):
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"[REJECTREQUEST]system busy, start flow control for a while: {config.broker_name} is a slave here"
                + ("" if route.on_slave is not OnSlave.READ else ", and slaveReadEnable is false"),
            )
        if route.on_slave is OnSlave.MASTERS_TABLE:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
            )

    # ---- what acknowledgements wait for ----

    @property
    def too_few(self) -> str:
        """Why no message is taken, with fewer replicas in sync than `minInSyncReplicas` wants; "": there are enough."""
        master, least = self.auto.master if self.auto is not None else None, self.config.min_in_sync_replicas
        if self.adapts and self._in_sync_nodes() < least:
            return f"in-sync replicas not enough: {self._in_sync_nodes()}, minInSyncReplicas is {least}"
        if least <= 1 or not self.synchronous or master is None or master.in_sync.count >= least:
            return ""
        return f"in-sync replicas not enough: {master.in_sync.count}, minInSyncReplicas is {least}"

    def replicated(self) -> int:
        """The log is on as many nodes as was promised up to here."""
        return self.promises.kept()

    def _replicated(self, nodes: int | None) -> int:
        if self.auto is not None:
            return self.auto.on(nodes)
        assert nodes is not None, "who is in sync, a controller tells"
        return self.classic.master.replicated(nodes)

    def _wanted_nodes(self) -> int | None:
        """So many must have a message before it is acknowledged; None: all that are in sync."""
        config = self.config
        if not self.counts_nodes:
            return 1
        if self._settings.current.enable_controller_mode:
            return None if config.all_ack_in_sync_state_set else config.in_sync_replicas
        if self.adapts:
            return max(min(config.in_sync_replicas, self._in_sync_nodes()), config.min_in_sync_replicas)
        return config.in_sync_replicas

    def _in_sync_nodes(self) -> int:
        """Slaves that are less behind than haMaxGapNotInSync, and we."""
        master = self.classic.master
        return 1 + sum(f.following and master.in_sync(f) for f in master.followers.values())

    def _wanted_from(self) -> int:
        """No message that somebody waits for begins before it."""
        return self._acks.begin if self.synchronous else self._store.log.end

    def _promise(self) -> None:
        """Promise what the settings say now; what is stored already was promised before."""
        acks, log_end = self._acks, self._store.end
        self.promises.change(self._wanted_nodes(), log_end, acks.awaited)
        self.synchronous = self.synchronous or self.promises.nodes != 1

    def reconfigure(self, config: ReplicationConfig) -> None:
        """Follow other settings from now on."""
        self.config = config
        self.stream.reconfigure(config)
        if self.stream is not self.classic:
            self.classic.reconfigure(config)
        self._promise()

    # ---- what operators and readers are told ----

    def status(self, now: Millis) -> HARuntimeInfo:
        """Who follows, or who is followed."""
        end = self._store.end
        info = HARuntimeInfo(master=not self.is_slave)
        if self.slave is not None:
            slave = self.slave
            info.ha_client_runtime_info = HAClientRuntimeInfo(
                master_addr=slave.address or None,
                transferred_byte_in_second=slave.meter.per_second(now),
                max_offset=end,
                last_read_timestamp=slave.heard,
                last_write_timestamp=slave.reported_at,
                is_activated=slave.following,
            )
            return info
        info.master_commit_log_max_offset = end
        if self.auto is not None:
            info.ha_connection_info = self._auto_followers(now)
            info.in_sync_slave_nums = sum(one.in_sync for one in info.ha_connection_info)
            return info
        master = self.classic.master
        followers = [f for f in master.followers.values() if f.following]
        info.in_sync_slave_nums = sum(master.in_sync(f) for f in followers)
        info.ha_connection_info = [
            HAConnectionRuntimeInfo(
                addr=f.peer,
                slave_ack_offset=f.acknowledged,
                diff=end - f.acknowledged,
                in_sync=master.in_sync(f),
                transferred_byte_in_second=f.meter.per_second(now),
                transfer_from_where=f.next,
                lag_millis=master.lag(f, now),
            )
            for f in followers
        ]
        return info

    def _auto_followers(self, now: Millis) -> list[HAConnectionRuntimeInfo]:
        master, end = self.auto.master if self.auto is not None else None, self._store.end
        return [] if master is None else [
            HAConnectionRuntimeInfo(
                addr=f.peer,
                slave_ack_offset=f.acknowledged,
                diff=end - f.acknowledged,
                in_sync=f.replica in master.in_sync.agreed,
                transferred_byte_in_second=f.meter.per_second(now),
                transfer_from_where=f.next,
            )
            for f in master.followers.values()
            if f.following
        ]  # fmt: skip

    def runtime_info(self, now: Millis) -> dict[str, str]:
        """The same as rows of code 28's table: bytes and seconds that each slave is behind."""
        found = {}
        for number, one in enumerate(self.status(now).ha_connection_info):
            found[f"slave_{number}"] = one.addr
            found[f"slaveLagBytes_{number}"] = str(one.diff)
            found[f"slaveLagSeconds_{number}"] = f"{(one.lag_millis or 0) / 1000:.1f}"
        if self.slave is not None:
            found["masterHaAddress"] = self.slave.address
            found["slaveState"] = self.slave.state.value
        return found

    def suggest(self, group: SubscriptionGroupConfig, physical_offset: int) -> int:
        """Which broker id a reader that is at an offset of the log should ask next (broker.md §6.3)."""
        if not self._settings.current.slave_read_enable:
            return MASTER_ID
        store = self._store
        behind = physical_offset >= 0 and store.end - physical_offset > store.config.in_memory_bytes
        if not behind and self.slave is not None and self.slave.following:
            return MASTER_ID
        return group.which_broker_when_consume_slowly if behind else group.broker_id

    @property
    def sends_readers_back(self) -> bool:
        """Is this a slave whose master is there, so that readers who find nothing should ask that one?"""
        if self.group is not None:
            return self.is_slave and self.group.raft.member.leader is not None
        if self.acting is not None and self.acting.keeps_readers:
            return False
        return self.slave is not None and self.slave.following

    # ---- events ----

    def opened(self, event: Opened) -> None:
        """A connection of the HA stream, or of the group."""
        if self.group is not None and self.is_groups(event):
            self.group.feed(event)
            return
        self._emit(self.stream.opened(event, self._turn.now))

    def takes(self, event: Opened) -> bool:
        """Is this a connection of replication?"""
        return event.listener == HA_LISTENER or self.is_groups(event)

    def is_groups(self, event: Opened | ConnectFailed) -> bool:
        """Is this about a connection between members of the group?"""
        if self.group is None:
            return False
        if isinstance(event, ConnectFailed):
            return event.address in self.group.addresses
        return event.dialled in self.group.addresses if event.dialled else event.listener == RAFT_LISTENER

    def connect_failed(self, event: ConnectFailed) -> None:
        if self.group is not None and self.is_groups(event):
            self.group.feed(event)
            return
        self._emit(self.stream.connect_failed(event, self._turn.now))

    def received(self, event: Frames) -> None:
        if self.group is not None and self.group.raft.owns(event.conn):
            self.group.feed(event)
            return
        self._emit(self.stream.received(event, self._turn.now))

    def closed(self, event: Closed) -> None:
        if self.group is not None and self.group.raft.owns(event.conn):
            self.group.feed(event)
            return
        self._emit(self.stream.closed(event, self._turn.now))

    def dialled_closed(self, address: str, now: Millis) -> None:
        """A connection for requests that we dialled is gone."""
        if self.manager is not None:
            self.manager.connection_closed(address, now)

    def _propose(self, proposal: Proposal) -> list[Effect]:
        assert self.manager is not None
        return self.manager.propose(proposal)

    def _is_at(self, replica: int, peer: str, now: Millis) -> bool:
        assert self.manager is not None
        return self.manager.whereabouts.is_replica(replica, peer, now)

    def resolved(self, event: Resolved) -> None:
        """Names of peers stand for these addresses."""
        if self.group is not None:
            self.group.feed(event)
        if self.manager is not None:
            self.manager.whereabouts.resolved(event)
        if self.acting is not None:
            self.acting.neighbours.resolved(event)

    def owns(self, conn: ConnId) -> bool:
        return self.stream.owns(conn) or (self.group is not None and self.group.raft.owns(conn))

    def settle(self) -> None:
        """At the end of a turn."""
        if self.group is not None:
            self.group.settle()
        self.promises.forget(self._acks.awaited)
        if self.adapts:
            self._promise()
        self._emit(self.stream.settle(self._turn.now))

    def tick(self, now: Millis) -> None:
        self._emit(self.stream.tick(now))
        if self.manager is not None:
            self.manager.tick(now)
        self.copies.tick(now)
        if self.acting is not None:
            self.acting.tick(now)

    def next_deadline(self) -> Millis | None:
        group = self.group.next_deadline() if self.group is not None else None
        manager = self.manager.next_deadline() if self.manager is not None else None
        acting = self.acting.next_deadline() if self.acting is not None else None
        return soonest(self.stream.next_deadline(), self.copies.next_deadline(), group, manager, acting)

    def stop(self) -> None:
        """At a shutdown: slaves are let go before the log is closed."""
        if self.acting is not None:
            self.acting.stop()
        if self.manager is not None and self.auto is not None:
            self.manager.stop()
            self._emit([*self.auto.slave.follow("", self._turn.now), *self.auto.let_go("the master ends")])
        for conn in list(self.classic.master.followers):
            self._turn.emit(Close(conn, "the master ends"))

    def validate(self) -> None:
        self.stream.validate()
        self.promises.validate(self._store.end)
        self.forwards.validate()
        if self.group is not None:
            self.group.validate()

    # ---- the proof of a common history ----

    def _prove(self, now: Millis) -> list[Effect]:
        """Ask the master for the record that our log ends with."""
        slave = self.classic.slave
        assert slave is not None
        master, offset = self._registration.master_address, self._store.last_record()
        ours = self._store.record_at(offset) if offset is not None else None
        if not master or offset is None or ours is None:
            why = "our log has no record to compare" if master else "no name server told its address"
            self._turn.note("warning", f"the master's log is taken to be ours, unproven: {why}")
            return slave.proved(now)
        record = bytes(ours)

        def answered(reply: Command | Failure, now: Millis) -> list[Effect]:
            end = self._store.end
            if isinstance(reply, Failure):
                return slave.refuted(f"it can't be asked for the record at {offset}: {reply.reason}", now, final=False)
            if reply.code != ResponseCode.SUCCESS and NO_RECORD not in (reply.remark or ""):
                why = f"it can't be asked for the record at {offset}: {reply.code} {reply.remark or ''}"
                return slave.refuted(why, now, final=False)
            if reply.code != ResponseCode.SUCCESS:
                why = f"it has no record at {offset}, where our last one is: it is behind, or has removed that. "
                return slave.refuted(f"{why}Wipe the store of the one that is wrong", now, final=True)
            if bytes(reply.body) != record:
                why = f"its record at {offset} is another one than ours, which ends at {end}: the histories differ"
                return slave.refuted(f"{why}. Wipe this slave's store", now, final=True)
            return slave.proved(now)

        header = ViewMessageByIdRequest(offset=offset)
        return self._caller.call(
            master, RequestCode.VIEW_MESSAGE_BY_ID, header, b"", now, PROVE_TIMEOUT_MS, answered
        )

    def _emit(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._turn.emit(effect)
