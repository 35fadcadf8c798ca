"""A broker whose log is that of a Raft group (enableDLegerCommitLog; `dledger_member.py`).

The group elects the master. A message is acknowledged when a quorum has it: that is when the store shows it, so nothing
else is waited for. There is no HA stream.
"""

from __future__ import annotations

from collections.abc import Callable

from perseid.base.machine import Millis, Resolved
from perseid.broker.kernel.capability import Capability, Step, Timer
from perseid.broker.kernel.roles import RoleHook
from perseid.broker.replication.awaited_nodes import Quorum
from perseid.broker.replication.dledger_member import DLedgerMember
from perseid.broker.replication.modes.mode import LaterPorts, ModePorts, ReplicationMode, without_controller
from perseid.broker.replication.new_master import LostTopics
from perseid.raft.state import RaftEvent
from perseid.replication.config import ReplicationConfig
from perseid.wire.command import Command
from perseid.wire.rpc import Sign


class DLedger(ReplicationMode):
    """That of one broker."""

    elects = True

    def __init__(self, ports: ModePorts, config: ReplicationConfig, member: DLedgerMember) -> None:
        super().__init__(ports, config, member.store)
        self._roles.is_slave = True
        self.member = self.stream = member
        self.nodes = Quorum(self.store, member.raft.config.max_wait_ack_time_ms)
        self.no_effect = without_controller(
            minInSyncReplicas="this broker has no controller",
            inSyncReplicas="a quorum of the group has each message",
        )

    def guard(self, sign: Sign | None, stranger: Callable[[Command], str]) -> None:
        self.member.raft.caller.sign, self.member.raft.stranger = sign, stranger

    def join(self, ports: LaterPorts) -> None:
        super().join(ports)
        self.member.join(ports.fail, ports.registration.hurry)
        self._lost_topics = LostTopics(self._turn, self._settings, self.store, ports.topics)

    def capability(self) -> Capability:
        member = self.member
        return Capability(
            name="dledger",
            events={Resolved: member.feed},
            takes=(RaftEvent, member.feed),
            begins=(self.start,),
            hooks=(RoleHook("topics", self._lost_topics.make),),
            timers=(Timer("replication", lambda now: None, member.next_deadline, prompt=True),),
            settles=(Step("replication", member.settle),),
            ends=(Step("the group", lambda: member.stop([])),),
            checks=(member.validate,),
            failures=(member.failed,),
        )

    def start(self, now: Millis) -> None:
        super().start(now)
        self._registration.start(now)

    # ---- its place in the set ----

    @property
    def broker_id(self) -> int:
        return self.member.broker_id

    def follow(self, master: str, ha_address: str | None, now: Millis) -> None:
        if self._roles.is_slave and master != self._settings.current.address:
            self._copies.follow(master, now)

    @property
    def sends_readers_back(self) -> bool:
        return self._roles.is_slave and self.member.has_leader
