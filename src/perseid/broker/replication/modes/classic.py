"""A SYNC_MASTER or a SLAVE, as it is configured, and any broker of a set whose slaves act for their master.

A SYNC_MASTER holds answers back until as many nodes as `inSyncReplicas` says have the message. A SLAVE copies its
master's log and tables, and refuses what changes either. With `enableSlaveActingMaster` slaves stand in for a master
that is away (`acting.py`), and a master that comes back is a slave to all who ask until it is ready.
"""

from __future__ import annotations

from collections.abc import Sequence

from perseid.base.errors import RequestRefused
from perseid.base.machine import Effect, Millis, Resolved
from perseid.broker.kernel.capability import Capability, Step, Timer
from perseid.broker.kernel.route import Route
from perseid.broker.registration.name_servers import addresses
from perseid.broker.replication.acting import Acting, ActingPorts
from perseid.broker.replication.awaited_nodes import AwaitedNodes, SlavesOfMaster
from perseid.broker.replication.ha_stream import HaStream
from perseid.broker.replication.modes.alone import NOT_SYNC_MASTER, classic_followers, let_go
from perseid.broker.replication.modes.mode import (
    SYNC_MASTER,
    LaterPorts,
    ModePorts,
    ReplicationMode,
    without_controller,
)
from perseid.replication.classic.node import ClassicReplication
from perseid.replication.classic.slave import Slave
from perseid.replication.config import ReplicationConfig
from perseid.replication.sender import FetchedFor
from perseid.store.store import MessageStore
from perseid.wire.bodies import HAConnectionRuntimeInfo
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.query import ViewMessageByIdRequest
from perseid.wire.rpc import Failure

SLAVE = "SLAVE"
PROVE_TIMEOUT_MS = 3_000
NO_RECORD = "can not find message"
"""What a broker, a Java one too, says of an offset at which no record begins."""


class Classic(ReplicationMode):
    """That of one broker."""

    def __init__(self, ports: ModePorts, config: ReplicationConfig, store: MessageStore) -> None:
        super().__init__(ports, config, store)
        self._caller = ports.caller
        own = ports.settings.current
        self._roles.is_slave = own.broker_role == SLAVE
        prove = self._prove if own.broker_role == SLAVE else None
        self.ha = ClassicReplication(config, store, prove, wanted_from=lambda: self.nodes.wanted_from)
        self.stream = self._stream = HaStream(ports.turn, self.ha)
        if own.broker_role == SYNC_MASTER:
            adapts = own.enable_slave_acting_master and config.enable_auto_in_sync_replicas
            self.nodes = SlavesOfMaster(store, ports.acks, self.ha, adapts=adapts)
        else:
            self.nodes = AwaitedNodes(store)
        self.no_effect = without_controller(
            **({} if self.nodes.adapts else {"minInSyncReplicas": "this broker has no controller"}),
            **({} if self.nodes.counts else {"inSyncReplicas": NOT_SYNC_MASTER}),
        )

    def join(self, ports: LaterPorts) -> None:
        super().join(ports)
        if self._settings.current.enable_slave_acting_master:
            self.acting = Acting(
                ActingPorts(
                    turn=self._turn, settings=self._settings, store=self.store, topics=ports.topics,
                    offsets=ports.offsets, roles=self._roles, mode=self, registration=ports.registration,
                    timers=ports.timers, delay=ports.delay, escape=ports.escape,
                )
            )  # fmt: skip
            self._roles.is_slave = self._roles.is_slave or self.acting.isolated

    def capability(self) -> Capability:
        acting = self.acting
        return Capability(
            name="classic",
            events={FetchedFor: self._stream.fed, Resolved: acting.resolved},
            begins=(self.start,),
            timers=(
                Timer("replication", self._stream.tick, self.ha.next_deadline),
                Timer("acting", acting.tick, acting.next_deadline),
            ),
            settles=(Step("promises", self.nodes.settle), Step("replication", self._stream.settle)),
            ends=(Step("replication", self._stop),),
            checks=(self.ha.validate, self.nodes.validate),
        )

    # ---- start, stop, settings ----

    def start(self, now: Millis) -> None:
        super().start(now)
        if self.acting.slaves_act:
            self.acting.start(addresses(self._settings.current.namesrv_addr), now)
        else:
            self._registration.start(now)
        if self.config.ha_master_address and self.ha.slave is not None:
            self._turn.emit_all(self.ha.slave.follow(self.config.ha_master_address, now))

    def _stop(self) -> None:
        self.acting.stop()
        let_go(self._turn, self.ha.master)

    def reconfigure(self, config: ReplicationConfig) -> None:
        super().reconfigure(config)
        self.ha.reconfigure(config)
        self.nodes.reconfigured()

    # ---- its place in the set ----

    def follow(self, master: str, ha_address: str | None, now: Millis) -> None:
        if self.ha.slave is not None:
            self._copies.follow(master, now)
            address = self.config.ha_master_address or ha_address
            if address:
                self._turn.emit_all(self.ha.slave.follow(address, now))

    def follow_stream(self, ha_address: str, now: Millis) -> None:
        """Follow the log of a master, and copy nothing else; a configured address wins."""
        if self.ha.slave is not None:
            self._turn.emit_all(self.ha.slave.follow(self.config.ha_master_address or ha_address, now))

    def follow_nobody(self, now: Millis) -> None:
        """The master is away: what it had is not copied any more."""
        self._copies.follow(None, now)
        self.follow_stream("", now)

    def is_followed_from(self, host: str) -> bool:
        """Does somebody at that host follow our log? The stream names nobody."""
        followers = self.ha.master.followers.values()
        return any(one.following and one.peer.rpartition(":")[0] == host for one in followers)

    # ---- requests, readers and operators ----

    def check(self, route: Route) -> None:
        if self.acting.isolated and not route.while_isolated:
            name = self._settings.current.broker_name
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, f"{name} is not online yet: its offsets may change")

    @property
    def sends_readers_back(self) -> bool:
        return not self.acting.keeps_readers and super().sends_readers_back

    @property
    def receiver(self) -> Slave | None:
        return self.ha.slave

    def followers(self, now: Millis) -> Sequence[HAConnectionRuntimeInfo]:
        return classic_followers(self.ha.master, self.store.log.end, now)

    # ---- the proof of a common history ----

    def _prove(self, now: Millis) -> list[Effect]:
        """Ask the master for the record that our log ends with."""
        slave = self.ha.slave
        assert slave is not None
        master, offset = self._registration.master_address, self.store.reads.last_record()
        ours = self.store.reads.record_at(offset) if offset is not None else None
        if not master or offset is None or ours is None:
            why = "our log has no record to compare" if master else "no name server told its address"
            self._turn.note("warning", f"the master's log is taken to be ours, unproven: {why}")
            return slave.proved(now)
        record = bytes(ours)

        def answered(reply: Command | Failure, now: Millis) -> list[Effect]:
            end = self.store.log.end
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
