"""A broker of a set whose master controllers elect (enableControllerMode; `manager/`).

The log goes by the HA stream with epochs: a broker whose log goes another way than that of its new master is cut to
what both have. With `allAckInSyncStateSet` an acknowledgement waits for all replicas in sync, so that any of them can
be elected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perseid.base.errors import RequestRefused
from perseid.base.machine import Effect, Millis, Resolved
from perseid.broker.kernel.capability import Capability, Step, Timer
from perseid.broker.kernel.connections import of_dialled
from perseid.broker.kernel.roles import RoleHook
from perseid.broker.kernel.route import Route
from perseid.broker.replication.awaited_nodes import SyncStateSetNodes
from perseid.broker.replication.ha_stream import HaStream
from perseid.broker.replication.manager.enrolment import FileSaved
from perseid.broker.replication.manager.heartbeats import CaughtUp
from perseid.broker.replication.manager.manager import ManagerPorts, ReplicasManager
from perseid.broker.replication.modes.mode import LaterPorts, ModePorts, ReplicationMode, follower_of
from perseid.broker.replication.new_master import LostTopics, set_groups_back
from perseid.replication.auto_switch.in_sync import Proposal
from perseid.replication.auto_switch.node import AutoSwitchReplication, CutFor, Led, TrimmedTo
from perseid.replication.auto_switch.slave import Slave
from perseid.replication.config import ReplicationConfig
from perseid.replication.sender import FetchedFor
from perseid.store.store import MessageStore
from perseid.wire.bodies import MASTER_ID, HAConnectionRuntimeInfo
from perseid.wire.codes import ResponseCode
from perseid.wire.controller import OPEN_END, Epoch, SyncStateSet
from perseid.wire.headers.controller import NotifyBrokerRoleChangedRequest


class Controlled(ReplicationMode):
    """That of one broker."""

    elects = True
    manager: ReplicasManager
    """Made when there is what it stands on (`join`)."""

    def __init__(self, ports: ModePorts, config: ReplicationConfig, store: MessageStore) -> None:
        super().__init__(ports, config, store)
        self._ports = ports
        self._roles.is_slave = True
        self.replication = AutoSwitchReplication(config, store, ports.disk, self._propose, self._is_at)
        self.stream = self._stream = HaStream(ports.turn, self.replication)
        self.nodes = SyncStateSetNodes(store, ports.acks, self.replication)
        self.no_effect = {}

    def join(self, ports: LaterPorts) -> None:
        super().join(ports)
        own = ManagerPorts(
            turn=self._turn, settings=self._settings, store=self.store, topics=ports.topics, offsets=ports.offsets,
            roles=self._roles, disk=self._ports.disk, caller=self._ports.caller, copies=ports.copies,
            registration=ports.registration,
        )  # fmt: skip
        self.manager = ReplicasManager(own, self.replication)
        self._topics = ports.topics
        self._lost_topics = LostTopics(self._turn, self._settings, self.store, ports.topics)

    def capability(self) -> Capability:
        manager, replication, fed = self.manager, self.replication, self._stream.fed
        return Capability(
            name="under controllers",
            events={
                FetchedFor: fed, CutFor: fed, TrimmedTo: fed, Led: manager.role.led,
                FileSaved: manager.enrolment.file_saved, CaughtUp: manager.heartbeats.caught_up,
                Resolved: manager.peers.resolved,
            },
            begins=(self.start,),
            hooks=(
                RoleHook("groups that are ahead", lambda: set_groups_back(self._offsets, self.store)),
                RoleHook("topics", self._lost_topics.make),
                RoleHook("version of the topics", self._new_version),
            ),
            timers=(
                Timer("replication", self._stream.tick, replication.next_deadline),
                Timer("controllers", manager.tick, manager.next_deadline),
            ),
            settles=(Step("promises", self.nodes.settle), Step("replication", self._stream.settle)),
            ends=(Step("replication", self._stop),),
            gone=(of_dialled(self._turn, manager.connection_closed),),
            checks=(replication.validate, self.nodes.validate),
        )  # fmt: skip

    # ---- start, stop, settings ----

    def start(self, now: Millis) -> None:
        super().start(now)
        self._turn.emit_all(self.replication.start())
        self.manager.start(now)

    def _stop(self) -> None:
        self.manager.stop()
        slave, now = self.replication.slave, self._turn.now
        self._turn.emit_all([*slave.follow("", now), *self.replication.let_go("the master ends")])

    def reconfigure(self, config: ReplicationConfig) -> None:
        super().reconfigure(config)
        self.replication.reconfigure(config)
        self.nodes.reconfigured()

    def controllers_changed(self, now: Millis) -> None:
        self.manager.controllers.reconfigure(now)

    # ---- its place in the set ----

    @property
    def broker_id(self) -> int:
        return self.manager.enrolment.broker_id if self._roles.is_slave else MASTER_ID

    def follow(self, master: str, ha_address: str | None, now: Millis) -> None:
        self.manager.role.ha_address.announced(master, ha_address, now)

    def _new_version(self) -> None:
        """Name servers take the table of the newer master (B37)."""
        self._topics.bump(self._turn.now, self.manager.role.epoch)

    # ---- what the stream asks of the controllers ----

    def _propose(self, proposal: Proposal) -> list[Effect]:
        return self.manager.propose(proposal)

    def _is_at(self, replica: int, peer: str, now: Millis) -> bool:
        return self.manager.peers.is_replica(replica, peer, now)

    # ---- requests ----

    def check(self, route: Route) -> None:
        if self.manager.role.fenced and not route.before_role:
            raise RequestRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is fenced: no controller has told it its role yet"
            )

    @property
    def master_for_sends(self) -> str:
        role = self.manager.role
        return "" if role.fenced or role.is_master else role.master_address

    def take_role(
        self, notice: NotifyBrokerRoleChangedRequest, members: Callable[[], SyncStateSet], peer: str, now: Millis
    ) -> None:
        manager = self.manager
        if not manager.peers.is_controller(peer, now):
            manager.questions.ask_soon(now)
            raise RequestRefused(ResponseCode.NO_PERMISSION, "only a controller of this broker may say who is master")
        if notice.master_epoch is not None:
            manager.role.announced(notice.master_broker_id, notice.master_address, notice.master_epoch, members(), now)

    def epochs(self) -> list[Epoch]:
        entries = self.replication.epochs.entries
        ends = [*(entry.start for entry in entries[1:]), OPEN_END]
        return [
            Epoch(epoch=entry.epoch, start_offset=entry.start, end_offset=end)
            for entry, end in zip(entries, ends, strict=False)
        ]

    # ---- readers and operators ----

    @property
    def receiver(self) -> Slave | None:
        return self.replication.slave if self._roles.is_slave else None

    def followers(self, now: Millis) -> Sequence[HAConnectionRuntimeInfo]:
        master, end = self.replication.master, self.store.log.end
        if master is None:
            return []
        found = [one for one in master.followers.values() if one.following]
        return [follower_of(one, end, now, one.replica in master.in_sync.agreed) for one in found]
