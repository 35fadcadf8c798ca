"""A broker's part under a controller (the original's ReplicasManager; controller.md §8).

    finding → claiming an id → registering → serving, as the controller says: master or slave

- *finding*: all controllers are asked at once who leads; again when the leader does not answer or says that it leads no
  longer, and each `syncControllerMetadataPeriod`.
- *claiming*: a free id is asked for, written to a file with a check code, and claimed with it; then it is ours.
- *registering*: the controller learns our address, unless a living broker has our id: then somebody copied a disk.
- *serving*: heartbeats go to all controllers; roles come by notices, by answers, and by a look each
  `syncBrokerMetadataPeriod`. A role with a higher epoch than ours counts, nothing else. Nothing waits for a timer
  that an answer could begin.

A broker that its controllers must not elect is *silent*: it sends them no heartbeats.

- It finds itself in sync, and has lost its log (a wiped disk): until it has caught up with the master.
- It finds itself master of an epoch that it led before a restart: what it has of that epoch may be less than its
  replicas have, and it can't begin another one by itself. It lets its controllers know that it was gone (`_knock`), so
  that they elect anew. A master does so, too, when a replica is gone that was perhaps taken in: see `STUCK_MS`.

Until its first role a broker is fenced: no client is served, no name server knows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from perseid.base.deadlines import soonest
from perseid.base.machine import Effect, Feed, Millis, SaveState
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.replication import identity, new_master
from perseid.broker.replication.controllers import FIND_MS, SOON_MS, Controllers, nobody_cares
from perseid.broker.replication.identity import Claim, Identity
from perseid.broker.replication.peer_checks import PeersOfSet
from perseid.disk.port import Disk
from perseid.replication.auto_switch.in_sync import Proposal
from perseid.replication.auto_switch.node import AutoSwitchReplication, Led
from perseid.store.store import MessageStore
from perseid.wire import fastjson
from perseid.wire.body import Body
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.controller import BrokerReplicasInfo, ElectMasterResponseBody, SyncStateSet
from perseid.wire.ha_auto import NO_EPOCH
from perseid.wire.headers import controller as headers
from perseid.wire.headers.namesrv import BrokerHeartbeatRequest
from perseid.wire.rpc import Caller

if TYPE_CHECKING:
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.registration.name_servers import Registration
    from perseid.broker.replication.copies import Copies

RETRY_MS = 1_000
"""After a step of the registration that failed; the original waits 5 s."""
STUCK_MS = 5_000
"""So long an acknowledgement may wait for a replica that is gone, and was perhaps taken in: only another epoch ends
what may still be under way."""
KNOCK_MS = 15_000
"""Between two attempts to let controllers know that we were gone: longer than they need to notice by themselves."""


class State(Enum):
    """See above."""

    FINDING = "finding"
    CLAIMING = "claiming"
    REGISTERING = "registering"
    SERVING = "serving"


class FileSaved:
    """Fed back when an identity, or a claim, is durable; None: that nothing is missing any more of a wiped disk."""

    __slots__ = ("saved",)

    def __init__(self, saved: Identity | Claim | None) -> None:
        self.saved = saved


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerPorts:
    """What `ReplicasManager` stands on."""

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
    """Of one broker. `epoch` is that of the last role we were told; −1: none yet."""

    def __init__(self, ports: ManagerPorts, replication: AutoSwitchReplication) -> None:
        self._turn = ports.turn
        self._settings = ports.settings
        self._store = ports.store
        self._topics = ports.topics
        self._offsets = ports.offsets
        self._roles = ports.roles
        self._disk = ports.disk
        self._caller = ports.caller
        self._copies = ports.copies
        self._registration = ports.registration
        self._replication = replication
        self.controllers = Controllers(self._turn, self._settings, self._go_on)
        self.peers = PeersOfSet(ports.turn, ports.settings, replication, self.controllers)
        self.state = State.FINDING
        self._claim: Claim | None = None
        self.identity: Identity | None = None
        self.epoch = NO_EPOCH
        self.master_id: int | None = None
        self.master_address = ""
        self._members: tuple[list[int], int] = ([], -1)
        """The set of replicas in sync that came with our mastership, and its epoch."""
        self.fenced = True
        self.silent = ""
        """Why no heartbeats are sent; "": they are."""
        self._wiped = False
        self._checked = False
        """No living broker has our id."""
        self._refused = ""
        self._asking = False
        self._step_at: Millis | None = None
        self._poll_at: Millis | None = None
        self._polled_at: Millis = -FIND_MS
        self._beat_at: Millis | None = None
        self._address_at: Millis | None = None
        self._knock_at: Millis | None = None
        self._ending = False

    # ---- begin and end ----

    def start(self, now: Millis) -> None:
        """Take in what was saved, and look for the controllers. IdentityRefused: it is another broker's."""
        config = self._settings.current
        found = identity.load(self._disk, config.broker_cluster_name, config.broker_name)
        if isinstance(found, Claim):
            self._claim = found
        elif found is not None:
            self._known(found)
            self._wiped = self._replication.epochs.lost or bool(self._disk.read(identity.WIPED_PATH))
        self.peers.start()
        self.controllers.find(now)

    def connection_closed(self, address: str, now: Millis) -> None:
        """A connection that we dialled is gone."""
        self.controllers.forget(address, now)

    def stop(self) -> None:
        """Say nothing any more."""
        self._ending = self.controllers.ending = True

    @property
    def broker_id(self) -> int:
        """Given by the controller; 0: none yet."""
        return self.identity.broker_id if self.identity is not None else 0

    @property
    def is_master(self) -> bool:
        """Were we told so last?"""
        return self.master_id is not None and self.master_id == self.broker_id

    def _known(self, found: Identity) -> None:
        self.identity, self._claim = found, None
        self._replication.broker_id = self._replication.slave.broker_id = found.broker_id

    def _emit(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self._turn.emit(effect)

    def _go_on(self, now: Millis) -> None:
        """Another controller leads."""
        if self.state is State.SERVING:
            self._beat(now)
            self._poll(now)
        else:
            self._step(now)

    # ---- an id, and registering ----

    def _step(self, now: Millis) -> None:
        """Go on with what comes before a role."""
        self._step_at = None
        if self._asking or self._ending:
            return
        config, asked = self._settings.current, True
        names = {"cluster_name": config.broker_cluster_name, "broker_name": config.broker_name}
        if self.identity is not None:
            self.state = State.REGISTERING
            asked = self._register(now) if self._checked else self._look_for_twins(now)
        elif self._claim is not None:
            self.state, (wanted, code) = State.CLAIMING, self._claim
            apply = headers.ApplyBrokerIdRequest(
                applied_broker_id=wanted.broker_id, register_check_code=code, **names
            )
            asked = self.controllers.ask_leader(
                RequestCode.CONTROLLER_APPLY_BROKER_ID, apply, b"", now, self._applied, self._not_applied
            )
        else:
            self.state = State.CLAIMING
            ask = headers.GetNextBrokerIdRequest(**names)
            asked = self.controllers.ask_leader(
                RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, ask, b"", now, self._offered, self._step_failed
            )
        self._asking = asked

    def _step_failed(self, code: int, why: str, now: Millis) -> None:
        self._asking = False
        self._step_at = now + RETRY_MS
        if code:
            self._complain(f"controller {self.controllers.leader}: {self.state.value}: {why}")

    def _complain(self, why: str) -> None:
        """A line for people, once for each reason."""
        if why != self._refused:
            self._refused = why
            self._turn.note("warning", why)

    def _offered(self, reply: Command, now: Millis) -> None:
        broker_id = reply.header(headers.GetNextBrokerIdResponse).next_broker_id
        if broker_id is None or broker_id < 1:
            self._step_failed(reply.code or -1, f"it offers the id {broker_id}", now)
            return
        config = self._settings.current
        own = Identity(config.broker_cluster_name, config.broker_name, broker_id)
        claim = Claim(own, f"{config.address};{now}")
        self._emit([SaveState(identity.CLAIM_PATH, claim.encode(), [Feed(FileSaved(claim))])])

    def _applied(self, reply: Command, now: Millis) -> None:
        assert self._claim is not None
        own, replication = self._claim.identity, self._replication
        epochs = replication.epochs.save(self._disk, [])  # an identity without it is that of a wiped disk
        self._emit([epochs, SaveState(identity.PATH, own.encode(), [Feed(FileSaved(own))])])

    def _not_applied(self, code: int, why: str, now: Millis) -> None:
        if code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:  # somebody else took it; anything else may have worked
            self._forget_claim()
            self._claim = None
            self._asking = False
            self._step(now)
            return
        self._step_failed(code, why, now)

    def file_saved(self, event: FileSaved) -> None:
        """A claim, or our identity, is durable: the controller may hear of it, or has."""
        if event.saved is None:
            if self._wiped:
                self._wiped, self.silent = False, ""
                self._turn.note("info", "what the master said is confirmed is here again")
            return
        now, self._asking = self._turn.now, False
        if isinstance(event.saved, Claim):
            self._claim = event.saved
        else:
            self._known(event.saved)
            self._checked = True
            self._forget_claim()
            self._turn.note("info", f"the controllers know this broker as {event.saved.broker_id}")
        self._step(now)

    def _forget_claim(self) -> None:
        try:
            self._disk.remove(identity.CLAIM_PATH)
        except OSError as error:  # beside an identity it counts for nothing, and one that was refused is refused again
            self._turn.note("warning", f"{identity.CLAIM_PATH} could not be removed: {error}")

    def _look_for_twins(self, now: Millis) -> bool:
        """Is there a living broker with our id and another address? Its disk is a copy of ours, or ours of its."""
        name = self._settings.current.broker_name

        def told(reply: Command, now: Millis) -> None:
            info = BrokerReplicasInfo.from_json(reply.body).replicas_info_table.get(name)
            for one in (*info.in_sync_replicas, *info.not_in_sync_replicas) if info is not None else ():
                elsewhere = one.broker_address != self._settings.current.address
                if one.broker_id == self.broker_id and one.alive and elsewhere:
                    why = (
                        f"{one.broker_address} runs as broker {one.broker_id} of {name}: one of us has a copy of the "
                        f"other's disk. Remove the store of the copy, with {identity.PATH}"
                    )
                    self._step_failed(reply.code or -1, why, now)
                    return
            self._asking, self._checked = False, True
            self._step(now)

        body = fastjson.dumps([name])
        return self.controllers.ask_leader(
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, body, now, told, self._step_failed
        )

    def _register(self, now: Millis) -> bool:
        config = self._settings.current
        header = headers.RegisterBrokerToControllerRequest(
            cluster_name=config.broker_cluster_name, broker_name=config.broker_name, broker_id=self.broker_id,
            broker_address=config.address, invoke_time=now,
        )  # fmt: skip

        def failed(code: int, why: str, now: Millis) -> None:
            if code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                why += f": it does not know the id {self.broker_id}. Restore the controllers, or remove {identity.PATH}"
            self._step_failed(code, why, now)

        return self.controllers.ask_leader(
            RequestCode.CONTROLLER_REGISTER_BROKER, header, b"", now, self._registered, failed
        )

    def _registered(self, reply: Command, now: Millis) -> None:
        body = SyncStateSet.from_json(reply.body)
        self._asking, self.state = False, State.SERVING
        if self._wiped and self.broker_id in body.sync_state_set:
            self._emit([SaveState(identity.WIPED_PATH, b"wiped", [])])  # before any epoch is: a restart has to know
            self._be_silent("we are in sync, says the controller, and have nothing: this disk was wiped")
        else:
            self._wiped = False
            if self._disk.read(identity.WIPED_PATH):  # others are in sync: nobody counts on us
                self._emit([SaveState(identity.WIPED_PATH, b"", [])])
        self._greet(now)

    def _greet(self, now: Millis) -> None:
        """Let the leader know that we live, and ask who is master."""
        if self.silent or self.controllers.leader is None:
            self._beat(now)
            self._poll(now)
            return
        self._beat_at = now + self._settings.current.broker_heartbeat_interval

        def heard(reply: Command, now: Millis) -> None:
            self._poll(now)

        def failed(code: int, why: str, now: Millis) -> None:
            self._poll_at = now + SOON_MS

        code = RequestCode.BROKER_HEARTBEAT
        self.controllers.ask(self.controllers.leader, code, self._heartbeat(), b"", now, heard, failed)

    # ---- serving ----

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        config, store = self._settings.current, self._store
        return BrokerHeartbeatRequest(
            cluster_name=config.broker_cluster_name,
            broker_addr=config.address,
            broker_name=config.broker_name,
            broker_id=self.broker_id,
            epoch=self._replication.held_epoch,
            max_offset=store.log.end,
            confirm_offset=store.reads.confirmed,
            heartbeat_timeout_mills=config.controller_heart_beat_timeout_mills,
            election_priority=config.broker_election_priority,
        )

    def _beat(self, now: Millis) -> None:
        """A heartbeat for each controller."""
        config = self._settings.current
        self._beat_at = now + config.broker_heartbeat_interval
        if self._wiped and self._replication.slave.caught_up:
            flushed = self._store.flusher.flush([])
            self._emit([flushed, SaveState(identity.WIPED_PATH, b"", [Feed(FileSaved(None))])])
        if self.silent:
            return
        header = self._heartbeat()
        for address in self.controllers.addresses:
            timeout = config.send_heartbeat_timeout_millis
            self._emit(
                self._caller.oneway(address, RequestCode.BROKER_HEARTBEAT, header, b"", now, timeout)
            )

    def _poll(self, now: Millis) -> None:
        """Who is master, and who is in sync?"""
        self._polled_at = now
        self._poll_at = now + self._settings.current.sync_broker_metadata_period
        header = headers.GetReplicaInfoRequest(broker_name=self._settings.current.broker_name)

        def told(reply: Command, now: Millis) -> None:
            said = reply.header(headers.GetReplicaInfoResponse)
            body = SyncStateSet.from_json(reply.body)
            if said.master_epoch is not None:
                self.told(said.master_broker_id, said.master_address, said.master_epoch, body, now)

        def failed(code: int, why: str, now: Millis) -> None:
            if code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
                self._step(now)
            elif code:
                self._complain(f"controller {self.controllers.leader}: {why}")

        if not self.controllers.ask_leader(RequestCode.CONTROLLER_GET_REPLICA_INFO, header, b"", now, told, failed):
            self._poll_at = now + FIND_MS

    def look_soon(self, now: Millis) -> None:
        """Somebody says that there is another master: ask the controllers, though not each time."""
        soon = max(now, self._polled_at + FIND_MS)
        if self._poll_at is None or soon < self._poll_at:
            self._poll_at = soon

    def _elect(self, now: Millis) -> None:
        """There is no master: let the controller choose one."""
        config = self._settings.current
        header = headers.ElectMasterRequest(
            cluster_name=config.broker_cluster_name, broker_name=config.broker_name, broker_id=self.broker_id,
            invoke_time=now,
        )  # fmt: skip

        def told(reply: Command, now: Millis) -> None:
            said = reply.header(headers.ElectMasterResponse)
            members = ElectMasterResponseBody.from_json(reply.body).sync_state_set
            if said.master_epoch is not None and said.sync_state_set_epoch is not None:
                body = SyncStateSet(sync_state_set=members, sync_state_set_epoch=said.sync_state_set_epoch)
                self.told(said.master_broker_id, said.master_address, said.master_epoch, body, now)

        def failed(code: int, why: str, now: Millis) -> None:
            self._poll_at = min(self._poll_at or now + RETRY_MS, now + RETRY_MS)
            if code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                self._step(now)
            elif code:
                self._complain(f"controller {self.controllers.leader}: no master is elected: {why}")

        self.controllers.ask_leader(RequestCode.CONTROLLER_ELECT_MASTER, header, b"", now, told, failed)

    # ---- roles ----

    def told(self, master_id: int | None, address: str | None, epoch: int, members: SyncStateSet, now: Millis) -> None:
        """The controller says who is master in `epoch`, and who is in sync."""
        if self.state is not State.SERVING or epoch < self.epoch:
            return
        if epoch == self.epoch:
            if self.is_master and master_id == self.broker_id:
                self._agree(members.sync_state_set, members.sync_state_set_epoch, now)
            return
        if master_id is None or not address:
            if not self.silent or not self._wiped:
                self.silent = ""
                self._beat(now)
                self._elect(now)
            return
        if master_id == self.broker_id:
            if not self._may_lead(epoch, now):
                return
            self._lead(epoch, address, members, now)
        else:
            self._follow(epoch, master_id, address, now)

    def _may_lead(self, epoch: int, now: Millis) -> bool:
        """Not an epoch that we led before a restart, and not with a log that was wiped."""
        if self._wiped:
            self._be_silent("we are to be master, and our disk was wiped")
            return False
        if self._replication.epochs.last < epoch:
            return True
        if not self.silent:
            self._be_silent(f"an earlier life of this broker was master of epoch {epoch}: another epoch is needed")
            self._knock(now)
        return False

    def _be_silent(self, why: str) -> None:
        if not self.silent:
            self._turn.note("warning", f"{why}; no heartbeats are sent, so that nobody is elected by mistake")
        self.silent = why

    def _knock(self, now: Millis) -> None:
        """Say that we live, and close that connection: controllers take it for the death that they may have missed."""
        self._knock_at = now + KNOCK_MS
        leader = self.controllers.leader
        if leader is None:
            return

        def heard(reply: Command, now: Millis) -> None:
            self._emit(self._caller.drop(leader))
            self._poll_at = now + FIND_MS

        self.controllers.ask(leader, RequestCode.BROKER_HEARTBEAT, self._heartbeat(), b"", now, heard, nobody_cares)

    def _lead(self, epoch: int, address: str, members: SyncStateSet, now: Millis) -> None:
        again = self.is_master and self._replication.leads
        self.epoch, self.master_id, self.master_address = epoch, self.broker_id, address
        self._members = members.sync_state_set, members.sync_state_set_epoch
        self._address_at = self._knock_at = None
        self.silent = ""
        self.peers.ask()
        self._turn.note("info", f"master of epoch {epoch}")
        if again:
            new_master.set_groups_back(self._offsets, self._store)
            self._emit(self._replication.lead_on(epoch))
        else:
            self._emit(self._replication.lead(epoch, now))

    def led(self, event: Led) -> None:
        """The entry of our epoch is durable: be master."""
        now = self._turn.now
        if not self._replication.led(event.epoch):
            return
        self._agree(*self._members, now)
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
        self._knock_at = None
        if not self._wiped:
            self.silent = ""
        self._turn.note("info", f"slave of {address}, broker {master_id}, in epoch {epoch}")
        if same:
            self._replication.epoch = epoch
        else:
            self._emit(self._replication.follow(epoch, now))
            if was_master or self.fenced:
                self._roles.become(master=False)
            else:
                self._registration.role_changed(now)
            self._copies.follow(address, now)
            self._ask_address(now)
        self._serve(now)

    def _serve(self, now: Millis) -> None:
        """There is a role: clients may come."""
        if self.fenced:
            self.fenced = False
            self._registration.start(now)

    def _ask_address(self, now: Millis) -> None:
        """Where is the HA port of our master? It may not be one yet."""
        master = self.master_address
        self._address_at = now + SOON_MS

        def told(reply: Command, now: Millis) -> None:
            said = reply.header(headers.ExchangeHaInfoResponse)
            if master == self.master_address and not self.is_master and said.master_ha_address:
                self._address_at = None
                self._emit(self._replication.slave.follow(said.master_ha_address, now))

        self.controllers.ask(
            master, RequestCode.EXCHANGE_BROKER_HA_INFO, headers.ExchangeHaInfoRequest(), b"", now, told, nobody_cares
        )

    def ha_address_told(self, master: str, ha_address: str | None, now: Millis) -> None:
        """A name server says where the master's HA port is."""
        if ha_address and master == self.master_address and not self.is_master and self._address_at is not None:
            self._address_at = None
            self._emit(self._replication.slave.follow(ha_address, now))

    # ---- who is in sync ----

    def _agree(self, members: list[int], epoch: int, now: Millis) -> None:
        """The controller's set."""
        master = self._replication.master
        if master is not None and master.in_sync.agree(members, epoch, now):
            self._turn.note("info", f"in sync: {sorted(members)}, set {epoch} of master epoch {self.epoch}")

    def propose(self, proposal: Proposal) -> list[Effect]:
        """Ask the controller for another set of replicas in sync; `InSync` hears what came of it."""
        now, epoch, config = self._turn.now, self.epoch, self._settings.current
        master = self._replication.master
        assert master is not None
        in_sync, members = master.in_sync, sorted(proposal.members)

        def told(reply: Command, now: Millis) -> None:
            body = SyncStateSet.from_json(reply.body)
            if self._replication.master is master and epoch == self.epoch:
                self._agree(body.sync_state_set, body.sync_state_set_epoch, now)
            in_sync.failed(proposal, now, refused=False)  # unless it is agreed to by now

        def failed(code: int, why: str, now: Millis) -> None:
            refused = code >= ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH and code != ResponseCode.CONTROLLER_NOT_LEADER
            stranger = code == ResponseCode.CONTROLLER_INVALID_REPLICAS
            in_sync.failed(proposal, now, refused=refused, stranger=stranger)
            if refused and code != ResponseCode.CONTROLLER_BROKER_NOT_ALIVE:
                self._complain(f"controller {self.controllers.leader}: {members} are not taken for in sync: {why}")
                self._poll_at = now

        header = headers.AlterSyncStateSetRequest(
            broker_name=config.broker_name, master_broker_id=self.broker_id, master_epoch=epoch, invoke_time=now
        )
        body: Body = SyncStateSet(sync_state_set=members, sync_state_set_epoch=in_sync.epoch)
        code = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
        if not self.controllers.ask_leader(code, header, body.to_json(), now, told, failed):
            in_sync.failed(proposal, now, refused=True)
        return []

    # ---- time ----

    def tick(self, now: Millis) -> None:
        """Do what is due."""
        if self._ending:
            return
        self.controllers.tick(now)
        self.peers.tick(now)
        if self._step_at is not None and self._step_at <= now:
            self._step(now)
        if self.state is not State.SERVING:
            return
        if self._beat_at is not None and self._beat_at <= now:
            self._beat(now)
        if self._poll_at is not None and self._poll_at <= now:
            self._poll(now)
        if self._address_at is not None and self._address_at <= now:
            self._ask_address(now)
        if self._knock_at is not None and self._knock_at <= now:
            self._knock(now)
        master = self._replication.master
        if master is not None and not self.silent:
            stuck = master.in_sync.stuck
            self._knock_at = (self._knock_at or now + STUCK_MS) if stuck else None

    def next_deadline(self) -> Millis | None:
        if self._ending:
            return None
        due = soonest(self.controllers.next_deadline(), self.peers.next_deadline(), self._step_at)
        if self.state is State.SERVING:
            return soonest(due, self._beat_at, self._poll_at, self._address_at, self._knock_at)
        return due

