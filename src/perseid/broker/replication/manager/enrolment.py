"""How a broker gets its id, and how the controllers learn its address."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from perseid.base.machine import Feed, Millis, SaveState
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.replication import identity
from perseid.broker.replication.controllers import Controllers
from perseid.broker.replication.identity import Claim, Identity
from perseid.broker.replication.manager.heartbeats import Heartbeats
from perseid.disk.port import Disk
from perseid.replication.auto_switch.node import AutoSwitchReplication
from perseid.wire import fastjson
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.controller import BrokerReplicasInfo, SyncStateSet
from perseid.wire.headers import controller as headers

RETRY_MS = 1_000
"""After a step of the registration that failed; the original waits 5 s."""


class State(Enum):
    """How far a broker is."""

    FINDING = "finding"
    CLAIMING = "claiming"
    REGISTERING = "registering"
    SERVING = "serving"


class FileSaved:
    """Fed back when an identity, or a claim, is durable."""

    __slots__ = ("saved",)

    def __init__(self, saved: Identity | Claim) -> None:
        self.saved = saved


class Enrolment:
    """That of one broker."""

    def __init__(
        self, turn: Turn, settings: Settings, disk: Disk, controllers: Controllers, heartbeats: Heartbeats,
        replication: AutoSwitchReplication, registered: Callable[[Millis], None],
    ) -> None:  # fmt: skip
        """`registered`: the controllers know where this broker is."""
        self._turn = turn
        self._settings = settings
        self._disk = disk
        self._controllers = controllers
        self._heartbeats = heartbeats
        self._replication = replication
        self._on_registered = registered
        self.state = State.FINDING
        self._claim: Claim | None = None
        self._identity: Identity | None = None
        self._checked = False
        """No living broker has our id."""
        self._asking = False
        self._step_at: Millis | None = None

    def start(self) -> None:
        """Take in what was saved. IdentityRefused: it is another broker's."""
        config = self._settings.current
        found = identity.load(self._disk, config.broker_cluster_name, config.broker_name)
        if isinstance(found, Claim):
            self._claim = found
        elif found is not None:
            self._known(found)
            self._heartbeats.wiped = self._replication.epochs.lost or bool(self._disk.read(identity.WIPED_PATH))

    @property
    def broker_id(self) -> int:
        """Given by the controller; 0: none yet."""
        return self._identity.broker_id if self._identity is not None else 0

    def _known(self, found: Identity) -> None:
        self._identity, self._claim = found, None
        self._replication.broker_id = self._replication.slave.broker_id = found.broker_id

    def go_on(self, now: Millis) -> None:
        """Take the next step that comes before a role."""
        self._step_at = None
        if self._asking or self._controllers.ending:
            return
        config, asked = self._settings.current, True
        names = {"cluster_name": config.broker_cluster_name, "broker_name": config.broker_name}
        if self._identity is not None:
            self.state = State.REGISTERING
            asked = self._register(now) if self._checked else self._look_for_twins(now)
        elif self._claim is not None:
            self.state, (wanted, code) = State.CLAIMING, self._claim
            apply = headers.ApplyBrokerIdRequest(
                applied_broker_id=wanted.broker_id, register_check_code=code, **names
            )
            asked = self._controllers.ask_leader(
                RequestCode.CONTROLLER_APPLY_BROKER_ID, apply, b"", now, self._applied, self._not_applied
            )
        else:
            self.state = State.CLAIMING
            ask = headers.GetNextBrokerIdRequest(**names)
            asked = self._controllers.ask_leader(
                RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, ask, b"", now, self._offered, self._step_failed
            )
        self._asking = asked

    def _step_failed(self, code: int, why: str, now: Millis) -> None:
        self._asking = False
        self._step_at = now + RETRY_MS
        if code:
            self._controllers.complain(f"controller {self._controllers.leader}: {self.state.value}: {why}")

    def _offered(self, reply: Command, now: Millis) -> None:
        broker_id = reply.header(headers.GetNextBrokerIdResponse).next_broker_id
        if broker_id is None or broker_id < 1:
            self._step_failed(reply.code or -1, f"it offers the id {broker_id}", now)
            return
        config = self._settings.current
        own = Identity(config.broker_cluster_name, config.broker_name, broker_id)
        claim = Claim(own, f"{config.address};{now}")
        self._turn.emit(SaveState(identity.CLAIM_PATH, claim.encode(), [Feed(FileSaved(claim))]))

    def _applied(self, reply: Command, now: Millis) -> None:
        assert self._claim is not None
        own, replication = self._claim.identity, self._replication
        epochs = replication.epochs.save(self._disk, [])  # an identity without it is that of a wiped disk
        self._turn.emit_all([epochs, SaveState(identity.PATH, own.encode(), [Feed(FileSaved(own))])])

    def _not_applied(self, code: int, why: str, now: Millis) -> None:
        if code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:  # somebody else took it; anything else may have worked
            self._forget_claim()
            self._claim = None
            self._asking = False
            self.go_on(now)
            return
        self._step_failed(code, why, now)

    def file_saved(self, event: FileSaved) -> None:
        """A claim, or our identity, is durable: the controller may hear of it, or has."""
        now, self._asking = self._turn.now, False
        if isinstance(event.saved, Claim):
            self._claim = event.saved
        else:
            self._known(event.saved)
            self._checked = True
            self._forget_claim()
            self._turn.note("info", f"the controllers know this broker as {event.saved.broker_id}")
        self.go_on(now)

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
            self.go_on(now)

        body = fastjson.dumps([name])
        return self._controllers.ask_leader(
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

        return self._controllers.ask_leader(
            RequestCode.CONTROLLER_REGISTER_BROKER, header, b"", now, self._registered, failed
        )

    def _registered(self, reply: Command, now: Millis) -> None:
        body = SyncStateSet.from_json(reply.body)
        self._asking, self.state = False, State.SERVING
        if self._heartbeats.wiped and self.broker_id in body.sync_state_set:
            self._turn.emit(SaveState(identity.WIPED_PATH, b"wiped", []))  # before any epoch is: a restart has to know
            self._heartbeats.be_silent("we are in sync, says the controller, and have nothing: this disk was wiped")
        else:
            self._heartbeats.wiped = False
            if self._disk.read(identity.WIPED_PATH):  # others are in sync: nobody counts on us
                self._turn.emit(SaveState(identity.WIPED_PATH, b"", []))
        self._on_registered(now)

    # ---- time ----

    def tick(self, now: Millis) -> None:
        """Do what is due."""
        if self._step_at is not None and self._step_at <= now:
            self.go_on(now)

    def next_deadline(self) -> Millis | None:
        return self._step_at
