"""One member of a Raft group: election, log and push as one machine, and its requests (dledger.md §2, 6).

    handle(event) → what came is answered, what is due is done → settle: push, flush, commit → effects

A host (a broker, a controller, `perseid dledger`) has one `Raft`, hands it the events of its own listener and
connections, appends with `append`, and is told of two things: `on_role` after each change of role, and `on_commit`
when more entries are committed. Entries up to `committed` are final.

What follows from entries being durable waits for the flush that makes them so: one flush at a time, and what comes
meanwhile shares the next one. What follows from a vote or a term waits for its `SaveState` (`after_save`). With
`sync_before_answer` off answers don't wait for flushes, as Java's don't; votes always do.

When the disk fails the member stops, and says why: the others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from perseid.base.deadlines import soonest
from perseid.base.errors import RemoteProtocolError, RequestRefused, StoreError
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
from perseid.disk.port import Disk
from perseid.raft import checkpoint, clients
from perseid.raft.admission import Admission
from perseid.raft.applying import Applier, Kept, StateMachine
from perseid.raft.config import RaftConfig, peers_of
from perseid.raft.election import Election
from perseid.raft.follower import Follower
from perseid.raft.leader import Leader
from perseid.raft.log import FLUSH_PAUSE_MS, Mark, RaftLog
from perseid.raft.ports import M
from perseid.raft.runs import Run, runs
from perseid.raft.state import Member, RaftEvent, Role
from perseid.raft.transfer import Transfer
from perseid.wire.command import Command, decode_all, encode_response
from perseid.wire.dledger import (
    HEADER_CODE,
    AppendEntryRequest,
    AppendEntryResponse,
    Code,
    DLedgerRequest,
    Entry,
    GetEntriesRequest,
    GetEntriesResponse,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    Message,
    MetadataRequest,
    MetadataResponse,
    PushEntryRequest,
    PushEntryResponse,
    Vote,
    VoteRequest,
    VoteResponse,
)
from perseid.wire.rpc import Caller, Failure

LISTENER = "dledger"
MAX_BACKOFF_MS = 200
"""Between two dials of a peer: whoever comes back is wanted at once."""
UNKNOWN_VOTE = "?"
"""In the place of a vote that was lost: nobody's."""

Later = Callable[[Millis], None]
Stranger = Callable[[Command], str]
"""Why whoever sent a request is no member of the cluster; nothing: it is one."""


@dataclass(slots=True)
class EntriesFlushed(RaftEvent):
    """Fed back when a flush has ended."""

    mark: Mark
    end: int


@dataclass(slots=True)
class _Then(RaftEvent):
    """Fed back when a term and a vote are kept."""

    kept: tuple[int, str | None]
    then: Later
    since: Millis


class Raft:
    """One member. StoreError, CorruptLog at `Start` when its files can't be read."""

    def __init__(
        self,
        config: RaftConfig,
        log: RaftLog,
        disk: Disk,
        random: Random,
        *,
        folder: str = "",
        machine: StateMachine | None = None,
        takes_appends: bool = True,
    ) -> None:
        """`folder`: where its own files are, with a `/` at its end; `machine`: is given what is committed;
        `takes_appends`: of clients, too, and not of the node around us alone."""
        peers = peers_of(config.peers)
        if config.self_id not in peers:
            raise StoreError(f"dLegerSelfId {config.self_id!r} is not among the peers {config.peers!r}")
        self.config = config
        self.log = log
        self.member = Member(config.group, config.self_id, peers, changed=self._role_changed, folder=folder)
        self._admission = Admission(config, self.member, takes_appends=takes_appends)
        self.preferred = [name for name in config.preferred_leader_ids.split(";") if name]
        self.committed = -1
        self.leader: Leader | None = None
        self.on_role: Callable[[Role, int], None] = lambda role, term: None
        self.on_commit: Callable[[int], None] = lambda index: None
        self.on_vote: Callable[[int, str], None] = lambda term, candidate: None
        """Called when a vote leaves, or our own counts."""
        self.now: Millis = 0
        self._disk = disk
        self._checkpoint_path = folder + checkpoint.NAME
        self.applier = Applier(machine, log, folder, config.snapshot_threshold) if machine is not None else None
        """Gives the state machine what is committed, if there is one."""
        self.caller = Caller(max_backoff_ms=MAX_BACKOFF_MS)
        """What other members are asked with."""
        self._out: list[Effect] = []
        self._election = Election(self, self.member, config, log, random)
        self._follower = Follower(self, self.member, config, log)
        self._transfer = Transfer(self, self.member, config, log, self._election)
        self._kept: tuple[int, str | None] = (0, None)
        """The term and the vote that are on disk."""
        self._flushing = False
        self._flush_at: Millis = 0
        self._flush_since: Millis = 0
        self.sync_ms: Millis = 0
        """So long it took lately, at most, until something was durable here."""
        self._ready = False
        """The first flush of this life has ended: what was found is durable."""
        self._ended = False
        self._ending = False
        """The last saves are under way."""
        self._checkpoint_at: Millis = 0
        self._checkpointed: tuple[int, int] | None = None
        self._conns: dict[ConnId, str] = {}
        self.stranger: Stranger = lambda command: ""
        """Who is one is not answered."""
        self._runs = runs()

    # ---- the machine ----

    def handle(self, event: Event, now: Millis) -> list[Effect]:
        """One turn."""
        out = self.take(event, now)
        if not self._ended and self._ready:
            self._settle()
        return out

    def take(self, event: Event, now: Millis) -> list[Effect]:
        """The first half of a turn: for a host that hands in several events, and then a `Tick` by `handle`."""
        self.now = now
        out = self._out = []
        if self._ended:
            if isinstance(event, DiskFailed) and self._ending:
                self._ending = False
                out.append(Stop(f"{event.path}: the disk failed at the end ({event.reason})"))
            return out
        if type(event) is Tick:  # the host's, in each of its turns
            out += self.caller.tick(now)
        elif isinstance(event, Frames):
            self._frames(event)
        elif isinstance(event, Reads):
            for frames in event.frames:
                self._frames(frames)
        elif isinstance(event, EntriesFlushed):
            self._on_flushed(event)
        elif isinstance(event, Kept):
            assert self.applier is not None
            self.applier.kept(event)
        elif isinstance(event, _Then):
            self._kept = event.kept
            self._synced(event.since)
            event.then(now)
        elif isinstance(event, Opened):
            self._conns[event.conn] = event.peer
            out += self.caller.handle(event, now)
        elif isinstance(event, Closed):
            self._conns.pop(event.conn, None)
            out += self.caller.handle(event, now)
            self._election.closed(event.conn, now)
        elif isinstance(event, ConnectFailed):
            out += self.caller.handle(event, now)
        elif isinstance(event, Resolved):
            self._admission.resolved(event)
        elif isinstance(event, DiskFailed) and event.path == self._checkpoint_path:
            self.note("warning", f"{event.path} can't be saved: {event.reason}; it is tried again")
            self._checkpointed = None
        elif isinstance(event, DiskFailed) and self.applier is not None and event.path == self.applier.path:
            self.note("warning", f"{event.path} can't be saved: {event.reason}; a start has more to read")
            self.applier.failed()
        elif isinstance(event, DiskFailed):
            self.stop(
                f"{event.path}: the disk failed ({event.reason}); this member stops, the group goes on without it"
            )
        elif isinstance(event, Start):
            self._start()
        elif isinstance(event, Shutdown):
            self._shut_down([Stop("")])
        else:
            raise AssertionError(f"no event of a Raft member: {event!r}")
        return out

    def next_deadline(self) -> Millis | None:
        if self._ended:
            return None
        calls = self.caller.next_deadline()
        if not self._ready:
            return calls
        return soonest(
            calls, self._election.next_deadline(), self._follower.next_deadline(), self._transfer.next_deadline(),
            self._flush_at if self._wants_flush else None, self._checkpoint_at, self._admission.next_deadline(),
            self.leader.next_deadline() if self.leader is not None else None,
        )  # fmt: skip

    def owns(self, conn: ConnId) -> bool:
        """Is this a connection of the group?"""
        return conn in self._conns

    def validate(self) -> None:
        """AssertionError when the state contradicts itself."""
        log, member = self.log, self.member
        assert log.begin <= log.end + 1 and log.durable <= log.end, f"{log.begin} {log.durable} {log.end}"
        assert self.committed <= log.end, f"committed {self.committed}, the log ends at {log.end}"
        assert (member.role is Role.LEADER) == (self.leader is not None), member
        assert member.role is not Role.FOLLOWER or self._follower.verified <= log.end
        assert member.role is not Role.LEADER or member.leader == member.self_id
        self.caller.validate()

    # ---- begin and end ----

    def _start(self) -> None:
        if note := self.member.load(self._disk):
            self.note("warning", note)
        else:
            self._kept = self.member.term, self.member.vote
        text = self._disk.read(self._checkpoint_path)
        committed, trusted, checked = checkpoint.parse(text, synced=self.config.sync_before_answer)
        for line in self.log.load(trusted, checked=checked):
            self.note("info", line)
        if self.log.end_term > self.member.term:
            self.member.term, self.member.vote = self.log.end_term, UNKNOWN_VOTE
            self.note(
                "warning",
                f"the log has entries of term {self.log.end_term}: no vote is given in it, for one may have been",
            )
        self.committed = min(committed, self.log.end)
        if self.applier is not None:
            if note := self.applier.load(self._disk, self.committed):
                self.note("info", note)
            self.committed = max(self.committed, self.applier.applied)
            self.applier.advance(self.committed)
        self._checkpoint_at = self.now + self.config.check_point_interval
        self._out += self._admission.start()
        self.note("info", f"entries {self.log.begin} to {self.log.end}, term {self.member.term}")
        self._flush()

    def _shut_down(self, then: list[Effect]) -> None:
        if self.leader is not None:
            self.leader.end()
        self._out += self.log.flush([self._checkpoint(then)])
        self._ended = self._ending = True

    def stop(self, why: str) -> None:
        """End here and now: going on would break what was promised."""
        if not self._ended:
            self._ended = True
            self._out.append(Note("error", why))
            self._out.append(Stop(why))

    def _checkpoint(self, then: list[Effect]) -> SaveState:
        self._checkpointed = self.committed, self.log.durable
        return SaveState(self._checkpoint_path, checkpoint.text(self.committed, self.log.durable), then)

    # ---- a turn ends ----

    def _settle(self) -> None:
        now = self.now
        self._out += self._admission.ask(now)
        for _ in range(len(self.member.peers) + 2):  # a step may make the next one due
            due = self._election.next_deadline()
            if due is None or due > now:
                break
            self._election.tick(now)
        self._transfer.tick(now)
        self._follower.expire(now)
        self._follower.work(now)
        if self.leader is not None:
            self.leader.commit()
        if self.leader is not None:
            self.leader.drive(now)
        if self.leader is not None:
            self.leader.expire(now)
        if now >= self._checkpoint_at:
            self._checkpoint_at = now + self.config.check_point_interval
            if (self.committed, self.log.durable) != self._checkpointed:
                self.emit(self._checkpoint([]))
        self._flush()

    @property
    def _wants_flush(self) -> bool:
        """Is something new, and no flush under way?"""
        return not self._flushing and (self.log.durable != self.log.end or self.log.cutting)

    def _flush(self) -> None:
        """Make durable what is new; when nobody waits for it, after a pause."""
        if self._ready and (not self._wants_flush or (self.now < self._flush_at and not self.log.cutting)):
            return
        self._flushing, self._flush_since = True, self.now
        if not self.config.sync_before_answer:
            self._flush_at = self.now + FLUSH_PAUSE_MS
        self._out += self.log.flush([Feed(EntriesFlushed(self.log.mark(), self.log.end))])

    def _on_flushed(self, event: EntriesFlushed) -> None:
        self._flushing = False
        self._synced(self._flush_since)
        self.log.flushed(event.mark)
        if not self._ready:
            self._ready = True
            self._election.start(self.now)
        self._follower.release()

    def _synced(self, since: Millis) -> None:
        """Something is durable that was asked for then."""
        self.sync_ms = max(self.now - since, self.sync_ms - self.sync_ms // 4)

    @property
    def answerable(self) -> int:
        """Entries up to here may be answered for."""
        return self.log.durable if self.config.sync_before_answer else self.log.end

    # ---- for the parts ----

    def emit(self, effect: Effect) -> None:
        self._out.append(effect)

    def note(self, level: str, text: str) -> None:
        self._out.append(Note(level, text))

    def after_save(self, then: Later) -> None:
        """Do `then` when term and vote are kept as they are now; at once, if they are."""
        now = self.member.term, self.member.vote
        if now == self._kept:
            then(self.now)
        else:
            self.emit(self.member.save([Feed(_Then(now, then, self.now))]))

    def call(
        self,
        peer: str,
        code: DLedgerRequest,
        request: Message | Buffer,
        kind: type[M],
        answered: Callable[[M | None, Millis], None],
        timeout_ms: Millis = 0,
    ) -> None:
        """Ask a member; `answered` gets its response, or None when there is none that can be read."""

        def replied(reply: Command | Failure, now: Millis) -> list[Effect]:
            response: M | None = None
            if not isinstance(reply, Failure):
                try:
                    response = self._believed(peer, code, kind.from_json(reply.body))
                except RequestRefused as refused:
                    self.note("warning", f"{peer}: its answer to {code.name} can't be read: {refused.remark}")
            if not self._ended:
                answered(response, now)
            return []

        limit = timeout_ms or self.config.rpc_timeout_ms
        body = request.to_json() if isinstance(request, Message) else request
        self._out += self.caller.call(self.member.peers[peer], code, None, body, self.now, limit, replied)

    def _believed(self, peer: str, code: int, response: M) -> M | None:
        """A member's answer; None when it names a term that no honest member could have."""
        if not self._admission.is_beyond(response.term):
            return response
        if self._admission.is_news(code, self.member.peers[peer], self.now):
            text = f"its answer to {code} names term {response.term}, we are in {self.member.term}: not believed"
            self.note("warning", f"{peer}: {text}")
        return None

    def commit(self, index: int) -> None:
        """Entries up to `index` are final."""
        assert self.committed < index <= self.log.end, f"{self.committed} → {index}, the log ends at {self.log.end}"
        self.committed = index
        if self.applier is not None:
            self.applier.advance(index)
            if save := self.applier.keep():
                self.emit(save)
        self.on_commit(index)

    def _role_changed(self) -> None:
        member = self.member
        if self.leader is not None:
            self.leader.end()
            self.leader = None
        self._follower.drop()
        if member.is_leader:
            self.leader = Leader(self, member, self.config, self.log, member.term, self.now)
        self.note(
            "info", f"{member.role.value} in term {member.term}" + (f" of {member.leader}" if member.leader else "")
        )
        self.on_role(member.role, member.term)

    # ---- for the host ----

    def has_room(self, count: int) -> bool:
        """May so many appends wait for a quorum, besides those that do?"""
        pending = self.leader.waiting if self.leader is not None else 0
        return pending + count <= self.config.max_pending_requests_num

    def end(self, then: list[Effect]) -> list[Effect]:
        """Take part no longer; `then` follows when all that there is is durable."""
        self._out = []
        self._shut_down(then)
        return self._out

    def append(self, body: bytes, done: Callable[[int, Entry], None]) -> int:
        """Append a body as the leader: SUCCESS when it is in the log, and `done` is called once, with SUCCESS when it
        is committed; other codes: nothing has happened."""
        if self.leader is None:
            return Code.NOT_LEADER
        return self.leader.append(body, self.now, done)

    @property
    def may_append(self) -> int:
        """SUCCESS, or why an append would not be taken now."""
        return self.leader.may_append if self.leader is not None else Code.NOT_LEADER

    def extend(self, run: Run, done: Callable[[int, Entry], None]) -> None:
        """Append entries of our term, when one may and has asked the log for `room`; `done` is called once for all."""
        assert self.leader is not None
        self.leader.extend(run, self.now, done)

    def receive(self, conn: ConnId, command: Command, now: Millis) -> list[Effect]:
        """One command of the group, for a host that has others on the same connections; a `Tick` has to follow."""
        self.now, self._out = now, []
        self._command(conn, command)
        return self._out

    # ---- requests ----

    def _command(self, conn: ConnId, command: Command) -> None:
        if command.is_response:
            self._out += self.caller.answered(conn, command, self.now)
        elif not self._ended:
            self._serve(conn, command)

    def _frames(self, event: Frames) -> None:
        try:
            for command in decode_all(event.data):
                self._command(event.conn, command)
        except RemoteProtocolError as error:
            self.note("warning", f"connection {event.conn} of {self._conns.get(event.conn, '')}: {error}; it is closed")
            self.emit(Close(event.conn, str(error)))

    def _serve(self, conn: ConnId, command: Command) -> None:
        """Answer one request. Whatever is well-formed gets a body: the original can't read any other answer."""
        opaque = command.opaque
        peer = self._conns.get(conn, "")

        def answer(response: Message) -> None:
            self.emit(Write(conn, encode_response(opaque, HEADER_CODE, None, response.to_json())))

        if why := self.stranger(command):
            if self._admission.is_news(command.code, peer, self.now):
                self.note("warning", f"{peer}: request {command.code} is refused, and its connection closed: {why}")
            self.emit(Close(conn, why))
            return
        row = REQUESTS.get(command.code)
        if row is None:
            self.note("debug", f"request {command.code} of {peer} is unknown")
            return
        request_type, response_type, serve = row
        quick = self._runs.push(command.body) if command.code == DLedgerRequest.PUSH else None
        try:
            request: Any = quick or request_type.from_json(command.body)
        except RequestRefused as refused:
            self.note("warning", f"{peer}: {refused.remark}")
            answer(response_type(code=Code.UNEXPECTED_ARGUMENT))
            return
        if why := self._admission.refusal(command.code, request, peer, self.now):
            if self._admission.is_news(command.code, peer, self.now):
                self.note("warning", f"{peer}: request {command.code} is refused: {why}")
            answer(self._copy(request, response_type, Code.UNKNOWN_MEMBER))
            return
        if wrong := self._not_for_us(request):
            answer(self._copy(request, response_type, wrong))
            return
        serve(self, conn, request, answer)

    def _not_for_us(self, request: Message) -> int:
        if request.group != self.member.group:
            return Code.UNKNOWN_GROUP
        return 0 if request.remote_id == self.member.self_id else Code.UNKNOWN_MEMBER

    def _copy(self, request: Message, kind: type[M], code: int) -> M:
        """An answer that names what the request named."""
        return kind(
            group=request.group, remote_id=request.remote_id, local_id=request.local_id, leader_id=request.leader_id,
            term=request.term, code=code,
        )  # fmt: skip

    def answer_vote(self, conn: ConnId, request: VoteRequest, answer: Callable[[Message], None]) -> None:
        """A candidate asks for our vote; the answer leaves when the vote is durable."""
        if not self._ready:
            return
        result, term = self._election.vote_for(request, self.now)
        response = self._copy(request, VoteResponse, Code.SUCCESS)
        response.term, response.vote_result = term, result
        given = result == Vote.ACCEPT

        def leave(now: Millis) -> None:
            if given:
                self.on_vote(term, request.leader_id or "")
                self._election.yield_to_others(now)
            answer(response)

        if given:
            self.after_save(leave)
        else:
            leave(self.now)

    def answer_heart_beat(self, conn: ConnId, request: HeartBeatRequest, answer: Callable[[Message], None]) -> None:
        """A leader says that it lives."""
        if self._ready:
            code, term = self._election.heart_beat(request, conn, self.now)
            answer(HeartBeatResponse(code=code, term=term))

    def answer_push(self, conn: ConnId, request: PushEntryRequest, answer: Callable[[Message], None]) -> None:
        """A leader compares logs, or brings entries."""
        member = self.member
        if not self._ready:
            return
        if member.role is Role.CANDIDATE and request.term == member.term and request.leader_id in member.others:
            self._election.to_follower(request.leader_id or "", self.now)  # who pushes leads: no need for its heartbeat
        self._follower.push(request, self.now, answer)

    def answer_transfer(
        self, conn: ConnId, request: LeadershipTransferRequest, answer: Callable[[Message], None]
    ) -> None:
        """We are asked to hand over the leadership, or to take it."""
        self._transfer.asked(request, self.now, answer)

    # ---- what people see ----

    @property
    def hears_leader(self) -> bool:
        """Does it hear the leader that it follows?"""
        return self._election.hears

    def status(self) -> dict[str, Any]:
        """This member, for people and programs."""
        member = self.member
        followers = self.leader.followers if self.leader is not None else {}
        return {
            "group": member.group, "id": member.self_id, "role": member.role.value, "term": member.term,
            "leader": member.leader, "begin": self.log.begin, "end": self.log.end, "durable": self.log.durable,
            "committed": self.committed,
            "followers": {peer: {"has": one.watermark, "state": one.state.value} for peer, one in followers.items()},
        }  # fmt: skip


Row = tuple[type[Message], type[Message], Callable[[Raft, ConnId, Any, Callable[[Message], None]], None]]
REQUESTS: dict[int, Row] = {
    DLedgerRequest.METADATA: (MetadataRequest, MetadataResponse, clients.metadata),
    DLedgerRequest.APPEND: (AppendEntryRequest, AppendEntryResponse, clients.append),
    DLedgerRequest.GET: (GetEntriesRequest, GetEntriesResponse, clients.get),
    DLedgerRequest.VOTE: (VoteRequest, VoteResponse, Raft.answer_vote),
    DLedgerRequest.HEART_BEAT: (HeartBeatRequest, HeartBeatResponse, Raft.answer_heart_beat),
    DLedgerRequest.PUSH: (PushEntryRequest, PushEntryResponse, Raft.answer_push),
    DLedgerRequest.LEADERSHIP_TRANSFER: (LeadershipTransferRequest, Message, Raft.answer_transfer),
}
"""Code → its request, its response, and what serves it."""
