"""One controller: a member of a Raft group, the state that the group keeps, and who acts on it (controller.md §6).

    any → (leads, and an entry of its own term is committed) active → (leads no longer, or has lost track) any

Only the active controller decides, elects and tells brokers. Elected is not enough: what earlier leaders committed is
known, and applied, when an entry that says nothing is committed in the new term. Every controller hears heartbeats, so
that the next active one knows who is alive.

Requests of brokers and of other controllers come in at the same port; the number of a command tells whose it is.

A turn: the event, then whatever the member has to do about it (pushes, flushes, what is committed), then what follows
from that, until nothing does. A turn that only brought heartbeats touches neither the member nor the state.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from perseid.base import config as settings
from perseid.base.deadlines import soonest
from perseid.base.errors import LocalProtocolError, RemoteProtocolError, RequestRefused
from perseid.base.machine import (
    Buffer,
    Close,
    Closed,
    ConnectFailed,
    ConnId,
    DiskFailed,
    Effect,
    Event,
    Feed,
    Frames,
    Millis,
    Note,
    Opened,
    Reads,
    Resolved,
    SaveState,
    Shutdown,
    Start,
    Stop,
    Tick,
    Write,
)
from perseid.controller.config import ControllerConfig
from perseid.controller.elections import Elections
from perseid.controller.live import DEFAULT_TIMEOUT_MS, Liveness, Row
from perseid.controller.request import OK, Reply, Request
from perseid.controller.routes import ROUTES
from perseid.controller.state import Tables
from perseid.controller.writes import NOOP, NOT_LEADER, Writes
from perseid.disk.port import Disk
from perseid.raft.config import RaftConfig
from perseid.raft.files import FileLog
from perseid.raft.node import REQUESTS, Raft
from perseid.raft.state import RaftEvent, Role
from perseid.security.members import OPEN, Asks, Members
from perseid.security.tls import UNCERTIFIED
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command, decode_each, encode_response
from perseid.wire.dledger import Code, Entry
from perseid.wire.headers.base import Header
from perseid.wire.rpc import Caller

LISTENER = "controller"
AGAIN_MS = 10
"""After the log did not take the entry of a new leader."""
MAX_STEPS = 20
"""Of one turn: each makes a role or a request go on."""
GATHER_US = 500
GATHER_WINDOW_MS, GATHER_FROM = 100, 50
"""So many turns in so long: brokers by the hundred, whose heartbeats had better share turns."""


class _Saved:
    """Fed back when the oldest save of the configuration is durable."""


class Controller:
    """A controller. StoreError, CorruptLog at `Start` when its files can't be read.

    `folder`: where the member's folder is, with a `/` at its end; `config_path`: where a changed configuration is
    written (nowhere when that is None); `new_log` makes the log of the group's entries; `members`: who may elect,
    report and look, and who is taken for another controller.
    """

    def __init__(
        self,
        config: ControllerConfig,
        raft: RaftConfig,
        disk: Disk,
        random: Random,
        *,
        folder: str = "",
        config_path: str | None = None,
        new_log: type[FileLog] = FileLog,
        members: Members = OPEN,
    ) -> None:
        self.config = config
        self._gate = members
        self._uncertified: set[ConnId] = set()
        """Connections on which nobody is taken for a controller."""
        self.now: Millis = 0
        self.active = False
        self.tables = Tables()
        self.live = Liveness()
        self.writes = Writes(self)
        self.elections = Elections(self, self.writes)
        self.touched = False
        """The member has something to do in this turn."""
        self._member_due: Millis | None = None
        """The member's next deadline: another one only after it was touched."""
        own = f"{folder}dledger-{raft.self_id}/"
        sizes = raft.mapped_file_size_for_entry_data, raft.mapped_file_size_for_entry_index
        log = new_log(disk, *sizes, folder=own)
        self.raft = Raft(raft, log, disk, random, folder=own, machine=self.tables, takes_appends=False)
        self.raft.on_role = self._role_changed
        self.tables.on_event = self.elections.applied
        self.tables.on_skipped = self._skipped
        self._members = frozenset(self.raft.member.peers.values())
        self._caller = Caller()
        self._caller.sign = members.sign
        self.raft.caller.sign, self.raft.stranger = members.sign, members.stranger
        self._config_path = config_path
        self.kept: Callable[[], Mapping[str, str]] = dict
        """Keys of the configuration's file that are not ours: they stay in it."""
        self._saving: deque[Request] = deque()
        self._marking = -1
        """The term in which our entry that says nothing is under way, or committed."""
        self._mark_at: Millis = 0
        self._peers: dict[ConnId, str] = {}
        self._out: list[Effect] = []
        self._ended = False
        self._quiet, self._quiet_since, self._gathers_us = 0, 0, 0
        """Turns of nothing but heartbeats, since when they are counted, and what follows from that."""
        self._events = self._handlers()

    def _handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        """What is done with each kind of event."""
        return {
            Frames: self._on_frames,
            Reads: self._on_reads,
            Opened: self._on_opened,
            Closed: self._on_closed,
            ConnectFailed: self._on_connect_failed,
            Tick: self._on_tick,
            Resolved: self._feed,
            DiskFailed: self._on_disk_failed,
            Start: self._on_start,
            Shutdown: self._on_shutdown,
            _Saved: lambda event: self.reply(self._saving.popleft(), OK),
        }

    # ---- the machine ----

    def handle(self, event: Event, now: Millis) -> list[Effect]:
        """One turn."""
        self.now = now
        out = self._out = []
        handler = self._events.get(type(event))
        if handler is not None:
            handler(event)
        elif isinstance(event, RaftEvent):
            self._feed(event)
        else:
            raise AssertionError(f"no event of a controller: {event!r}")
        if not self._ended:
            self._settle()
        if out or type(event) not in (Frames, Reads):
            self._gathers_us = 0
        else:
            self._quiet += 1
            if now - self._quiet_since >= GATHER_WINDOW_MS:
                self._gathers_us = GATHER_US if self._quiet >= GATHER_FROM else 0
                self._quiet, self._quiet_since = 0, now
        return out

    def next_deadline(self) -> Millis | None:
        if self._ended:
            return self.raft.next_deadline()
        mine = self.elections.scan_at if self.active else self._mark_at if self._unmarked else None
        others = self._caller.next_deadline(), self.live.next_deadline(), self._gate.next_deadline()
        return soonest(self._member_due, *others, mine)

    def gathers(self) -> int:
        """How many microseconds to hear nothing: some, while very many turns bring nothing but heartbeats."""
        return self._gathers_us

    def validate(self) -> None:
        """AssertionError when the state contradicts itself."""
        self.raft.validate()
        assert self._ended or self._member_due == self.raft.next_deadline(), "the member was touched by stealth"
        self.live.validate()
        self.writes.validate()
        self._caller.validate()
        assert not self.active or self.raft.member.is_leader, "active, and not the leader"
        for name, state in self.tables.in_sync.items():
            assert state.master is None or state.master in state.members, f"{name}: {state}"

    # ---- a turn ends ----

    def _settle(self) -> None:
        """Let the member do what is due, and follow it."""
        for _ in range(MAX_STEPS):
            self._mark()
            due = self._member_due
            if not self.touched and (due is None or due > self.now):
                return
            self.touched = False
            self._carry_out(self.raft.handle(Tick(), self.now))
            self._member_due = self.raft.next_deadline()
            if not self.touched and not self._unmarked:
                return
        # what is left is done when the next deadline, which is past, comes up

    @property
    def _unmarked(self) -> bool:
        """Are we elected, and have not yet appended the entry by which we learn what was committed before us?"""
        member = self.raft.member
        return member.is_leader and not self.active and self._marking != member.term

    def _mark(self) -> None:
        """Append it."""
        if not self._unmarked or self.now < self._mark_at:
            return
        term = self._marking = self.raft.member.term

        def done(code: int, entry: Entry) -> None:
            if self._marking != term or not self.raft.member.is_leader or self.raft.member.term != term:
                return
            if code == Code.SUCCESS:
                self._activate()
            else:
                self._mark_again()

        self.touched = True
        if self.raft.append(NOOP, done) != Code.SUCCESS:
            self._mark_again()

    def _mark_again(self) -> None:
        self._marking, self._mark_at = -1, self.now + AGAIN_MS

    def _activate(self) -> None:
        self.active = True
        self.live.judging_from = self.now + DEFAULT_TIMEOUT_MS
        term, sets = self.raft.member.term, len(self.tables.in_sync)
        self.note("info", f"the active controller in term {term}, of {sets} broker sets")
        self.elections.activated()

    def _role_changed(self, role: Role, term: int) -> None:
        if self.active or role is not Role.LEADER:
            self._resign()
        self._mark_at = self.now

    def lose_track(self, why: str) -> None:
        """The outcome of an entry is unknown: stop deciding until one behind it is committed."""
        if self.active:
            self.note("warning", f"{why}: not active until another entry is committed")
        self._resign()
        self._mark_again()
        self.touched = True

    def _resign(self) -> None:
        if self.active:
            self.note("info", "not the active controller any more")
        self.active = False
        self._marking = -1
        self.writes.stop()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Stop):
                self._ended = True
                self.active = False
        self._out += effects

    def _feed(self, event: Event) -> None:
        """Hand the member an event of its own."""
        self.touched = True
        self._carry_out(self.raft.take(event, self.now))

    def _skipped(self, index: int, why: str) -> None:
        self.note("error", f"entry {index} of the group holds no event ({why}): passed over, as by all members")

    # ---- for handlers ----

    def note(self, level: str, text: str) -> None:
        self._out.append(Note(level, text))

    def reply(self, request: Request, reply: Reply) -> None:
        """Answer a request; a one-way request has no answer."""
        if request.is_oneway:
            return
        try:
            data = encode_response(request.opaque, reply.code, reply.header, reply.body, remark=reply.remark)
        except LocalProtocolError as error:
            data = encode_response(request.opaque, ResponseCode.SYSTEM_ERROR, remark=str(error))
        self._out.append(Write(request.conn, data))

    def broker_appeared(self, row: Row) -> None:
        """A broker is alive that was not."""
        self.note("info", f"broker {row.broker_id} of {row.name} at {row.address} is alive")
        if self.active:
            self.elections.broker_appeared(row)

    def is_member(self, address: str) -> bool:
        """Is this the address of a controller of the group?"""
        return address in self._members

    def tell(self, address: str, code: RequestCode, header: Header, body: Buffer, timeout_ms: Millis) -> None:
        """Send a broker a request without an answer."""
        self._out += self._caller.oneway(address, code, header, body, self.now, timeout_ms)

    def save_config(self, request: Request) -> bool:
        """Write the configuration; the request is answered when it is durable. False: there is no file for it."""
        if self._config_path is None:
            return False
        self._saving.append(request)
        text = settings.to_file(self.config, kept=self.kept()).encode()
        self._out.append(SaveState(self._config_path, text, then=[Feed(_Saved())]))
        return True

    # ---- requests ----

    def _on_reads(self, event: Reads) -> None:
        for frames in event.frames:
            self._on_frames(frames)

    def _on_frames(self, event: Frames) -> None:
        conn = event.conn
        peer = self._peers.get(conn, "")
        try:
            for command in decode_each(event.data):
                if self._caller.owns(conn):
                    self._out += self._caller.answered(conn, command, self.now) if command.is_response else []
                elif command.is_response or command.code in REQUESTS:
                    self._check_member(conn)
                    self.touched = True
                    self._carry_out(self.raft.receive(conn, command, self.now))
                elif not self._ended:
                    self._serve(conn, peer, command)
        except RemoteProtocolError as error:
            self.note("warning", f"connection {conn} of {peer}: {error}; it is closed")
            self._out.append(Close(conn, str(error)))

    def _check_member(self, conn: ConnId) -> None:
        """RemoteProtocolError: who speaks as a controller has not shown that it is a member of the cluster."""
        if conn in self._uncertified:
            raise RemoteProtocolError(f"a request of a controller without a certificate: {UNCERTIFIED}")

    def _serve(self, conn: ConnId, peer: str, command: Command) -> None:
        route = ROUTES.get(command.code)
        request = Request(conn, peer, command.code, command.opaque, command.is_oneway, body=command.body)
        try:
            self._gate.admit(command, route.asks if route else Asks.SUPER, peer, self.now, self.note)
            if route is None:
                text = f" request type {command.code} not supported"
                raise RequestRefused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)
            if not (route.anywhere or self.active):
                raise RequestRefused(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER)
            if route.header is not None:
                request.header = command.header(route.header)
            reply = route.handler(self, request)
        except RequestRefused as refused:
            reply = Reply(refused.code, remark=refused.remark)
        except (AssertionError, RemoteProtocolError):
            raise
        except Exception as error:
            self.note("error", f"request {command.code} of {peer}: {traceback.format_exc()}")
            reply = Reply(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
        if reply is not None:
            self.reply(request, reply)

    # ---- connections ----

    def _on_opened(self, event: Opened) -> None:
        if event.dialled and event.dialled not in self._members:
            self._out += self._caller.handle(event, self.now)
            return
        self._peers[event.conn] = event.peer
        if self._gate.certified and not event.dialled and not event.certificate:
            self._uncertified.add(event.conn)
        self._feed(event)

    def _on_closed(self, event: Closed) -> None:
        if self._caller.owns(event.conn):
            self._out += self._caller.handle(event, self.now)
            return
        self._peers.pop(event.conn, None)
        self._uncertified.discard(event.conn)
        self._feed(event)
        for row in self.live.closed(event.conn):
            self._died(row, f"its connection closed: {event.reason}")

    def _on_connect_failed(self, event: ConnectFailed) -> None:
        if event.address in self._members:
            self._feed(event)
        else:
            self._out += self._caller.handle(event, self.now)

    def _died(self, row: Row, why: str) -> None:
        self.note("warning", f"broker {row.broker_id} of {row.name} at {row.address} is dead: {why}")
        if self.active:
            self.elections.died(row)

    # ---- time and durability ----

    def _on_tick(self, event: Tick) -> None:
        if self._ended:
            return
        self._out += self._caller.handle(event, self.now)
        self._gate.tick(self.now)
        for row in self.live.expired(self.now):
            self._out.append(Close(row.conn, "silent for too long"))
            self._died(row, f"silent for more than {row.timeout_ms} ms")
        if self.active:
            self.elections.tick(self.now)

    def _on_disk_failed(self, event: DiskFailed) -> None:
        if event.path != self._config_path:
            self._feed(event)
            return
        text = f"{event.path} could not be saved ({event.reason}): the change is lost at a restart"
        self.note("error", text)
        self.reply(self._saving.popleft(), Reply(ResponseCode.SYSTEM_ERROR, remark=text))

    def _on_start(self, event: Start) -> None:
        self._feed(event)
        self.elections.recent.clear()  # what the log holds was told long ago

    def _on_shutdown(self, event: Shutdown) -> None:
        self._gate.close(self.now)
        self._resign()
        self._feed(event)
        self._ended = True
