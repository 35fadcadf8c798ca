"""A broker's part under a controller: all of it, for the mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.deadlines import soonest
from perseid.base.machine import Effect, Millis
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.replication.controllers import FIND_MS, SOON_MS, Controllers
from perseid.broker.replication.manager.enrolment import Enrolment, State
from perseid.broker.replication.manager.ha_address import HaAddress
from perseid.broker.replication.manager.heartbeats import Heartbeats, Knock
from perseid.broker.replication.manager.in_sync import InSyncAgreement
from perseid.broker.replication.manager.questions import Questions
from perseid.broker.replication.manager.role import Role, RolePorts
from perseid.broker.replication.peer_checks import PeersOfSet
from perseid.disk.port import Disk
from perseid.replication.auto_switch.in_sync import Proposal
from perseid.replication.auto_switch.node import AutoSwitchReplication
from perseid.store.store import MessageStore
from perseid.wire.rpc import Caller

if TYPE_CHECKING:
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.registration.name_servers import Registration
    from perseid.broker.replication.copies import Copies


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerPorts:
    """The parts of a broker that `ReplicasManager` needs."""

    turn: Turn
    settings: Settings
    store: MessageStore
    topics: TopicTable
    offsets: ConsumerOffsets
    roles: Roles
    disk: Disk
    caller: Caller
    copies: Copies
    registration: Registration


class ReplicasManager:
    """Of one broker."""

    def __init__(self, ports: ManagerPorts, replication: AutoSwitchReplication) -> None:
        turn, settings = ports.turn, ports.settings
        self.controllers = controllers = Controllers(turn, settings, self._go_on)
        self.peers = PeersOfSet(turn, settings, replication, controllers)
        self.heartbeats = heartbeats = Heartbeats(
            turn, settings, ports.store, ports.caller, controllers, replication
        )
        self._knock = Knock(
            turn, ports.caller, controllers, heartbeats, replication, lambda now: self.questions.ask_at(now + FIND_MS)
        )
        self.enrolment = Enrolment(
            turn, settings, ports.disk, controllers, heartbeats, replication, self._registered
        )
        self._agreement = InSyncAgreement(turn, settings, controllers, replication)
        changed = RolePorts(
            turn=turn, store=ports.store, topics=ports.topics, offsets=ports.offsets, roles=ports.roles,
            copies=ports.copies, registration=ports.registration, replication=replication,
        )  # fmt: skip
        self.role = Role(
            changed, self.enrolment, heartbeats, self._knock, HaAddress(turn, controllers, replication.slave),
            self._agreement, self.peers, lambda now: self.questions.elect(now),
        )  # fmt: skip
        self.questions = Questions(settings, controllers, self.enrolment, self.role.announced)

    # ---- begin and end ----

    def start(self, now: Millis) -> None:
        """Take in what was saved, and look for the controllers. IdentityRefused: it is another broker's."""
        self.enrolment.start()
        self.peers.start()
        self.controllers.find(now)

    def connection_closed(self, address: str, now: Millis) -> None:
        """A connection that we dialled is gone."""
        self.controllers.forget(address, now)

    def stop(self) -> None:
        """Say nothing any more."""
        self.controllers.ending = True

    # ---- what leads from one part to another ----

    def _go_on(self, now: Millis) -> None:
        """Another controller leads."""
        if self.enrolment.state is State.SERVING:
            self.heartbeats.beat(now)
            self.questions.ask(now)
        else:
            self.enrolment.go_on(now)

    def _registered(self, now: Millis) -> None:
        """Let the leader know that we live, and ask who is master."""
        if not self.heartbeats.greet(now, self.questions.ask, lambda now: self.questions.ask_at(now + SOON_MS)):
            self.heartbeats.beat(now)
            self.questions.ask(now)

    def propose(self, proposal: Proposal) -> list[Effect]:
        """Ask the controller for another set of replicas in sync; `InSync` hears what came of it."""
        self._agreement.propose(proposal, lambda: self.role.epoch, self.questions.ask_at)
        return []

    # ---- time ----

    def tick(self, now: Millis) -> None:
        """Do what is due."""
        if self.controllers.ending:
            return
        self.controllers.tick(now)
        self.peers.tick(now)
        self.enrolment.tick(now)
        if self.enrolment.state is State.SERVING:
            self.heartbeats.tick(now)
            self.questions.tick(now)
            self.role.ha_address.tick(now)
            self._knock.tick(now)

    def next_deadline(self) -> Millis | None:
        if self.controllers.ending:
            return None
        due = soonest(self.controllers.next_deadline(), self.peers.next_deadline(), self.enrolment.next_deadline())
        if self.enrolment.state is State.SERVING:
            serving = (self.heartbeats, self.questions, self.role.ha_address, self._knock)
            return soonest(due, *(one.next_deadline() for one in serving))
        return due
