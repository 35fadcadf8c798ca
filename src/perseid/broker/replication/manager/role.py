"""Becoming master or slave: a role with a higher epoch than ours counts, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.machine import Millis
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.turn import Turn
from perseid.broker.replication import new_master
from perseid.broker.replication.manager.enrolment import Enrolment, State
from perseid.broker.replication.manager.ha_address import HaAddress
from perseid.broker.replication.manager.heartbeats import Heartbeats, Knock
from perseid.broker.replication.manager.in_sync import InSyncAgreement
from perseid.broker.replication.peer_checks import PeersOfSet
from perseid.replication.auto_switch.node import AutoSwitchReplication, Led
from perseid.store.store import MessageStore
from perseid.wire.controller import SyncStateSet
from perseid.wire.ha_auto import NO_EPOCH

if TYPE_CHECKING:
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.registration.name_servers import Registration
    from perseid.broker.replication.copies import Copies


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePorts:
    """What a role changes in its broker."""

    turn: Turn
    store: MessageStore
    topics: TopicTable
    offsets: ConsumerOffsets
    roles: Roles
    copies: Copies
    registration: Registration
    replication: AutoSwitchReplication


class Role:
    """Of one broker. `epoch` is that of the last role we were told; −1: none yet."""

    def __init__(
        self, ports: RolePorts, enrolment: Enrolment, heartbeats: Heartbeats, knock: Knock, ha_address: HaAddress,
        agreement: InSyncAgreement, peers: PeersOfSet, elect: Callable[[Millis], None],
    ) -> None:  # fmt: skip
        """`elect`: asks the controllers to choose a master."""
        self._turn = ports.turn
        self._store = ports.store
        self._topics = ports.topics
        self._offsets = ports.offsets
        self._roles = ports.roles
        self._copies = ports.copies
        self._registration = ports.registration
        self._replication = ports.replication
        self._enrolment = enrolment
        self._heartbeats = heartbeats
        self._knock = knock
        self.ha_address = ha_address
        self._agreement = agreement
        self._peers = peers
        self._elect = elect
        self.epoch = NO_EPOCH
        self.master_id: int | None = None
        self.master_address = ""
        self._members: tuple[list[int], int] = ([], -1)
        """The set of replicas in sync that came with our mastership, and its epoch."""
        self.fenced = True
        """No controller has told it a role yet."""

    @property
    def is_master(self) -> bool:
        """Were we told so last?"""
        return self.master_id is not None and self.master_id == self._enrolment.broker_id

    def announced(
        self, master_id: int | None, address: str | None, epoch: int, members: SyncStateSet, now: Millis
    ) -> None:
        """The controller says who is master in `epoch`, and who is in sync."""
        if self._enrolment.state is not State.SERVING or epoch < self.epoch:
            return
        if epoch == self.epoch:
            if self.is_master and master_id == self._enrolment.broker_id:
                self._agreement.agree(members.sync_state_set, members.sync_state_set_epoch, epoch, now)
            return
        if master_id is None or not address:
            if not self._heartbeats.silent or not self._heartbeats.wiped:
                self._heartbeats.silent = ""
                self._heartbeats.beat(now)
                self._elect(now)
            return
        if master_id == self._enrolment.broker_id:
            if not self._may_lead(epoch, now):
                return
            self._lead(epoch, address, members, now)
        else:
            self._follow(epoch, master_id, address, now)

    def _may_lead(self, epoch: int, now: Millis) -> bool:
        """Not an epoch that we led before a restart, and not with a log that was wiped."""
        if self._heartbeats.wiped:
            self._heartbeats.be_silent("we are to be master, and our disk was wiped")
            return False
        if self._replication.epochs.last < epoch:
            return True
        if not self._heartbeats.silent:
            why = f"an earlier life of this broker was master of epoch {epoch}: another epoch is needed"
            self._heartbeats.be_silent(why)
            self._knock.begin(now)
        return False

    def _lead(self, epoch: int, address: str, members: SyncStateSet, now: Millis) -> None:
        again = self.is_master and self._replication.leads
        self.epoch, self.master_id, self.master_address = epoch, self._enrolment.broker_id, address
        self._members = members.sync_state_set, members.sync_state_set_epoch
        self.ha_address.off()
        self._knock.off()
        self._heartbeats.silent = ""
        self._peers.ask()
        self._turn.note("info", f"master of epoch {epoch}")
        if again:
            new_master.set_groups_back(self._offsets, self._store)
            self._turn.emit_all(self._replication.lead_on(epoch))
        else:
            self._turn.emit_all(self._replication.lead(epoch, now))

    def led(self, event: Led) -> None:
        """The entry of our epoch is durable: be master."""
        now = self._turn.now
        if not self._replication.led(event.epoch):
            return
        self._agreement.agree(*self._members, self.epoch, now)
        if self._roles.is_slave:
            self._replication.confirm()
            self._roles.become(master=True)
        else:
            self._topics.bump(now, self.epoch)
            self._registration.role_changed(now)
        self._serve(now)

    def _follow(self, epoch: int, master_id: int, address: str, now: Millis) -> None:
        same = self.master_id == master_id and self.master_address == address and not self.fenced
        was_master = not self._roles.is_slave
        self.epoch, self.master_id, self.master_address = epoch, master_id, address
        self._knock.off()
        if not self._heartbeats.wiped:
            self._heartbeats.silent = ""
        self._turn.note("info", f"slave of {address}, broker {master_id}, in epoch {epoch}")
        if same:
            self._replication.epoch = epoch
        else:
            self._turn.emit_all(self._replication.follow(epoch, now))
            if was_master or self.fenced:
                self._roles.become(master=False)
            else:
                self._registration.role_changed(now)
            self._copies.follow(address, now)
            self.ha_address.find(address, now)
        self._serve(now)

    def _serve(self, now: Millis) -> None:
        """There is a role: clients may come."""
        if self.fenced:
            self.fenced = False
            self._registration.start(now)
