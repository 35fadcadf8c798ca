"""What controllers hear of a broker: that it lives; that it lived, and is not to be elected; that it was gone."""

from __future__ import annotations

from collections.abc import Callable

from perseid.base.machine import Feed, Millis, SaveState
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.replication import identity
from perseid.broker.replication.controllers import Controllers, ignore_failure
from perseid.replication.auto_switch.node import AutoSwitchReplication
from perseid.store.store import MessageStore
from perseid.wire.codes import RequestCode
from perseid.wire.command import Command
from perseid.wire.headers.namesrv import BrokerHeartbeatRequest
from perseid.wire.rpc import Caller

STUCK_MS = 5_000
"""So long an acknowledgement may wait for a replica that is gone, and was perhaps taken in: only another epoch ends
what may still be under way."""
KNOCK_MS = 15_000
"""Between two attempts to let controllers know that we were gone: longer than they need to notice by themselves."""


class CaughtUp:
    """Fed back when it is durable that nothing is missing any more of a wiped disk."""

    __slots__ = ()


class Heartbeats:
    """Those of one broker."""

    def __init__(
        self, turn: Turn, settings: Settings, store: MessageStore, caller: Caller, controllers: Controllers,
        replication: AutoSwitchReplication,
    ) -> None:  # fmt: skip
        self._turn = turn
        self._settings = settings
        self._store = store
        self._caller = caller
        self._controllers = controllers
        self._replication = replication
        self.silent = ""
        """Why no heartbeats are sent; "": they are."""
        self.wiped = False
        """The disk lacks what the controllers think it has."""
        self._beat_at: Millis | None = None

    def header(self) -> BrokerHeartbeatRequest:
        """What a heartbeat says now."""
        config, store = self._settings.current, self._store
        return BrokerHeartbeatRequest(
            cluster_name=config.broker_cluster_name,
            broker_addr=config.address,
            broker_name=config.broker_name,
            broker_id=self._replication.broker_id,
            epoch=self._replication.log_end_epoch,
            max_offset=store.log.end,
            confirm_offset=store.reads.confirmed,
            heartbeat_timeout_mills=config.controller_heart_beat_timeout_mills,
            election_priority=config.broker_election_priority,
        )

    def beat(self, now: Millis) -> None:
        """A heartbeat for each controller."""
        config = self._settings.current
        self._beat_at = now + config.broker_heartbeat_interval
        if self.wiped and self._replication.slave.caught_up:
            flushed = self._store.flusher.flush([])
            self._turn.emit_all([flushed, SaveState(identity.WIPED_PATH, b"", [Feed(CaughtUp())])])
        if self.silent:
            return
        header = self.header()
        for address in self._controllers.addresses:
            timeout = config.send_heartbeat_timeout_millis
            self._turn.emit_all(self._caller.oneway(address, RequestCode.BROKER_HEARTBEAT, header, b"", now, timeout))

    def greet(self, now: Millis, heard: Callable[[Millis], None], failed: Callable[[Millis], None]) -> bool:
        """Let the leader know that we live, and wait until it does. False: nobody knows the leader, or it must not hear
        of us."""
        leader = self._controllers.leader
        if self.silent or leader is None:
            return False
        self._beat_at = now + self._settings.current.broker_heartbeat_interval
        self._controllers.ask(
            leader, RequestCode.BROKER_HEARTBEAT, self.header(), b"", now,
            lambda reply, now: heard(now), lambda code, why, now: failed(now),
        )  # fmt: skip
        return True

    def be_silent(self, why: str) -> None:
        """Send none from now on."""
        if not self.silent:
            self._turn.note("warning", f"{why}; no heartbeats are sent, so that nobody is elected by mistake")
        self.silent = why

    def caught_up(self, event: CaughtUp) -> None:
        """What a wiped disk had lost is there again."""
        if self.wiped:
            self.wiped, self.silent = False, ""
            self._turn.note("info", "what the master said is confirmed is here again")

    def tick(self, now: Millis) -> None:
        """Send those that are due."""
        if self._beat_at is not None and self._beat_at <= now:
            self.beat(now)

    def next_deadline(self) -> Millis | None:
        return self._beat_at


class Knock:
    """Says that we live, and closes that connection: controllers take it for the death that they may have missed."""

    def __init__(
        self, turn: Turn, caller: Caller, controllers: Controllers, heartbeats: Heartbeats,
        replication: AutoSwitchReplication, heard: Callable[[Millis], None],
    ) -> None:  # fmt: skip
        """`heard`: the controller has, and may elect anew soon."""
        self._turn = turn
        self._caller = caller
        self._controllers = controllers
        self._heartbeats = heartbeats
        self._replication = replication
        self._heard = heard
        self._at: Millis | None = None

    def begin(self, now: Millis) -> None:
        """Do it, and again until `off`."""
        self._at = now + KNOCK_MS
        leader = self._controllers.leader
        if leader is None:
            return

        def heard(reply: Command, now: Millis) -> None:
            self._turn.emit_all(self._caller.drop(leader))
            self._heard(now)

        header = self._heartbeats.header()
        self._controllers.ask(leader, RequestCode.BROKER_HEARTBEAT, header, b"", now, heard, ignore_failure)

    def off(self) -> None:
        """There is another epoch."""
        self._at = None

    def tick(self, now: Millis) -> None:
        """Do it when it is time, and let the time begin when an acknowledgement is stuck."""
        if self._at is not None and self._at <= now:
            self.begin(now)
        master = self._replication.master
        if master is not None and not self._heartbeats.silent:
            self._at = (self._at or now + STUCK_MS) if master.in_sync.stuck else None

    def next_deadline(self) -> Millis | None:
        return self._at
