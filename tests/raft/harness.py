"""Raft members on simulated disks. What one sends to another lies in `mail` until the test hands it over, and what it
makes durable is carried out at once, or held until the test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from tests.durable import failure_of

from perseid.base.machine import (
    Close,
    Closed,
    Connect,
    ConnectFailed,
    Effect,
    Event,
    Feed,
    Flush,
    Frames,
    Note,
    Opened,
    SaveState,
    Shutdown,
    Start,
    Stop,
    Tick,
    Write,
)
from perseid.raft.config import RaftConfig
from perseid.raft.files import FileLog
from perseid.raft.log import RaftLog
from perseid.raft.node import LISTENER, Raft
from perseid.sim.disk import SimDisk
from perseid.store.recovery import save_durably
from perseid.wire.command import Command, decode, encode_request, encode_response
from perseid.wire.dledger import (
    HEADER_CODE,
    AppendEntryRequest,
    Code,
    DLedgerRequest,
    Entry,
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PushEntryRequest,
    PushEntryResponse,
    Vote,
    VoteRequest,
    VoteResponse,
)

START = 1_700_000_000_000
GROUP = "g"
DATA_BYTES, INDEX_BYTES = 1024, 32 * 64
M = TypeVar("M", bound=Message)


def address(name: str) -> str:
    return f"10.0.4.{name[1:]}:20911"


def peers(size: int) -> str:
    return ";".join(f"n{number}-{address(f'n{number}')}" for number in range(size))


def config(name: str = "n0", size: int = 3, **more: Any) -> RaftConfig:
    settings: dict[str, Any] = {
        "group": GROUP, "self_id": name, "peers": peers(size),
        "mapped_file_size_for_entry_data": DATA_BYTES, "mapped_file_size_for_entry_index": INDEX_BYTES,
    }  # fmt: skip
    return RaftConfig(**(settings | more))


def file_log(disk: SimDisk, data_bytes: int = DATA_BYTES, index_bytes: int = INDEX_BYTES) -> FileLog:
    return FileLog(disk, data_bytes, index_bytes)


def settle(log: RaftLog) -> None:
    """Make all durable that a log has written."""
    mark = log.mark()
    for effect in log.flush([]):
        assert isinstance(effect, Flush)
        for file in effect.files:
            file.sync()
    log.flushed(mark)


def entries(*terms: int, text: str = "body") -> list[Entry]:
    """A log's entries, one of each term."""
    found: list[Entry] = []
    pos = 0
    for index, term in enumerate(terms):
        one = Entry(index, term, pos, f"{text}-{index}".encode())
        found.append(one)
        pos += one.disk_bytes
    return found


def written(disk: SimDisk, log: list[Entry], *, term: int | None = None, vote: str = "", checkpoint: str = "") -> None:
    """Put what a member finds on its disk."""
    if log:
        files = file_log(disk)
        files.load(-1)
        for entry in log:
            files.put(entry)
        settle(files)
    if term is not None:
        save_durably(disk, "currterm", f"voteLeader={vote}\ncurrTerm={term}\n".encode())
    if checkpoint:
        save_durably(disk, "checkpoint", checkpoint.encode())


@dataclass(slots=True, eq=False)
class Mail:
    """One frame on its way."""

    sender: Seat
    conn: int
    command: Command

    @property
    def peer(self) -> str:
        """Whom the sender dialled; "" when it was dialled itself."""
        return self.sender.dialled.get(self.conn, "")

    def body(self, kind: type[M]) -> M:
        return kind.from_json(self.command.body)


class Seat:
    """One member, started, stopped, killed or cut off power."""

    def __init__(self, name: str = "n0", size: int = 3, *, disk: SimDisk | None = None, **settings: Any) -> None:
        self.name = name
        self.disk = disk or SimDisk(Random(1))
        self.config = config(name, size, **settings)
        self.now = START
        self.hold = False
        """Flushes and saves wait in `held`."""
        self.held: deque[Flush | SaveState] = deque()
        self.mail: list[Mail] = []
        """What it has sent, requests and answers."""
        self.dialled: dict[int, str] = {}
        self.on_connect: Callable[[str], bool] = lambda peer: True
        """Does a dial of a peer succeed?"""
        self.notes: list[str] = []
        self.closed: list[int] = []
        self.stopped: str | None = None
        self.roles: list[tuple[str, int]] = []
        self._conns = 0
        self._opaque = 1_000
        self._links: dict[str, int] = {}
        self._effects: deque[Effect] = deque()
        self.raft = self._new()

    def _new(self) -> Raft:
        raft = Raft(self.config, self._log(), self.disk, Random(7 + int(self.name[1:])))
        raft.on_role = lambda role, term: self.roles.append((role.value, term))
        return raft

    def _log(self) -> RaftLog:
        return file_log(
            self.disk, self.config.mapped_file_size_for_entry_data, self.config.mapped_file_size_for_entry_index
        )

    def start(self) -> Seat:
        self.do(Start())
        return self

    # ---- events and effects ----

    def do(self, event: Event) -> None:
        """One turn, and all that follows from it at once."""
        self._effects.extend(self.raft.handle(event, self.now))
        self._run()

    def _run(self) -> None:
        while self._effects:
            self._carry_out(self._effects.popleft())
        if self.stopped is None:
            self.raft.validate()

    def _carry_out(self, effect: Effect) -> None:
        assert self.stopped is None, f"after a Stop: {effect}"
        if isinstance(effect, Flush | SaveState):
            if self.hold:
                self.held.append(effect)
            else:
                self._make_durable(effect)
        elif isinstance(effect, Feed):
            self._effects.extend(self.raft.handle(effect.event, self.now))
        elif isinstance(effect, Write):
            assert isinstance(effect.data, bytes)
            self.mail.append(Mail(self, effect.conn, decode(effect.data)))
        elif isinstance(effect, Connect):
            self._connect(effect.address)
        elif isinstance(effect, Close):
            self.closed.append(effect.conn)
            self.cut(effect.conn)
        elif isinstance(effect, Note):
            self.notes.append(effect.text)
        else:
            assert isinstance(effect, Stop)
            self.stopped = effect.reason

    def _make_durable(self, effect: Flush | SaveState) -> None:
        failed = failure_of(self.disk, effect)
        if failed is not None:
            self._effects.extend(self.raft.handle(failed, self.now))
        else:
            self._effects.extendleft(reversed(effect.then))

    def release(self, count: int = 1) -> None:
        """Make durable what has waited longest, and go on holding."""
        for _ in range(count):
            self._make_durable(self.held.popleft())
            self._run()

    def _connect(self, dialled: str) -> None:
        peer = next(name for name, at in self.raft.member.peers.items() if at == dialled)
        if not self.on_connect(peer):
            self._effects.extend(self.raft.handle(ConnectFailed(dialled, "refused"), self.now))
            return
        self._conns += 1
        self.dialled[self._conns] = peer
        opened = Opened(self._conns, dialled, f"{address(self.name)}", LISTENER, dialled)
        self._effects.extend(self.raft.handle(opened, self.now))

    def cut(self, conn: int) -> None:
        """A connection ends."""
        self.dialled.pop(conn, None)
        self._links = {name: number for name, number in self._links.items() if number != conn}
        self._effects.extend(self.raft.handle(Closed(conn, "cut"), self.now))
        self._run()

    def pass_time(self, ms: int) -> None:
        """Tick at each deadline of the time that passes."""
        end, at_once = self.now + ms, 0
        while self.stopped is None and (due := self.raft.next_deadline()) is not None and due <= end:
            at_once = at_once + 1 if due <= self.now else 0
            assert at_once < 10, "ticks that change nothing"
            self.now = max(self.now, due)
            self.do(Tick())
        self.now = end

    # ---- what is asked of it ----

    def link(self, name: str) -> int:
        """The connection on which `name` asks."""
        if name not in self._links:
            self._conns += 1
            self._links[name] = self._conns
            host = address(name).partition(":")[0] if name[1:].isdigit() else "10.0.9.9"
            self.do(Opened(self._conns, f"{host}:4000", address(self.name), LISTENER))
        return self._links[name]

    def send(self, code: int, body: bytes, name: str = "stranger") -> int:
        """A request of `name`; its opaque."""
        conn = self.link(name)
        self._opaque += 1
        self.do(Frames(conn, encode_request(code, self._opaque, None, body)))
        return self._opaque

    def answers(self, opaque: int) -> list[Mail]:
        return [one for one in self.mail if one.command.is_response and one.command.opaque == opaque]

    def answer(self, opaque: int, kind: type[M]) -> M | None:
        """The one answer to a request, or none so far."""
        found = self.answers(opaque)
        if not found:
            return None
        (one,) = found
        assert one.command.code == HEADER_CODE
        return one.body(kind)

    def ask(self, code: int, request: Message, kind: type[M]) -> M:
        """A request, and its answer, which comes at once."""
        answer = self.answer(self.send(code, request.to_json(), request.leader_id or "stranger"), kind)
        assert answer is not None, f"no answer: {self.notes[-3:]}"
        return answer

    # ---- what it asks ----

    def asked(self, code: int, peer: str | None = None) -> list[Mail]:
        """Its requests that nobody has answered yet."""
        return [
            one
            for one in self.mail
            if not one.command.is_response and one.command.code == code and peer in (None, one.peer)
        ]

    def reply(self, one: Mail, response: Message) -> None:
        """Answer one of its requests."""
        self.mail.remove(one)
        self.do(Frames(one.conn, encode_response(one.command.opaque, HEADER_CODE, None, response.to_json())))

    def reply_all(self, code: int, response: Message, peer: str | None = None) -> None:
        for one in self.asked(code, peer):
            self.reply(one, response)

    def forget(self, code: int) -> None:
        """Its requests of one kind are lost on their way."""
        for one in self.asked(code):
            self.mail.remove(one)

    # ---- ends ----

    def stop(self) -> None:
        self.do(Shutdown())

    def again(self, *, power: bool = False) -> Seat:
        """The process died, or the machine lost its power; it starts again."""
        self.disk.cut_power() if power else self.disk.kill()
        for left in (self.held, self.mail, self._effects, self.dialled, self._links):
            left.clear()
        self.hold, self.stopped = False, None
        self.raft = self._new()
        return self.start()

    # ---- looking ----

    @property
    def where(self) -> tuple[str, int, str | None]:
        member = self.raft.member
        return member.role.value, member.term, member.leader

    @property
    def bodies(self) -> list[bytes]:
        found = [self.raft.log.get(index) for index in range(self.raft.log.begin, self.raft.log.end + 1)]
        return [entry.body for entry in found if entry is not None]


# ---- what peers say ----


def vote(leader: str = "n1", term: int = 0, end: int = -1, end_term: int = -1, **more: Any) -> VoteRequest:
    members: dict[str, Any] = {"group": GROUP, "remote_id": "n0", "local_id": leader, "leader_id": leader}
    return VoteRequest(**(members | {"term": term, "ledger_end_index": end, "ledger_end_term": end_term} | more))


def beat(leader: str = "n1", term: int = 0, **more: Any) -> HeartBeatRequest:
    members: dict[str, Any] = {"group": GROUP, "remote_id": "n0", "local_id": leader, "leader_id": leader}
    return HeartBeatRequest(**(members | {"term": term} | more))


def push(kind: str, *carried: Entry, term: int, leader: str = "n1", committed: int = -1) -> PushEntryRequest:
    one = len(carried) == 1
    return PushEntryRequest(
        group=GROUP, remote_id="n0", local_id=leader, leader_id=leader, term=term, type=kind, commit_index=committed,
        entry=carried[0] if one else None, batch_entry=[] if one else list(carried),
    )  # fmt: skip


def accepts(term: int) -> VoteResponse:
    return VoteResponse(term=term, vote_result=Vote.ACCEPT)


def pushed(end: int, code: int = Code.SUCCESS, begin: int = 0) -> PushEntryResponse:
    return PushEntryResponse(group=GROUP, code=code, begin_index=begin, end_index=end)


# ---- members in a state ----


def leading(seat: Seat, term: int | None = None) -> Seat:
    """Started, and elected by all others in its next round."""
    seat.start()
    for one in seat.asked(DLedgerRequest.VOTE):
        seat.reply(one, accepts(one.body(VoteRequest).term))
    assert seat.raft.member.is_leader and term in (None, seat.raft.member.term), seat.where
    return seat


def until(seat: Seat, done: Callable[[], bool]) -> None:
    """Time passes until something has come true: a candidate goes to another term when its round is over."""
    for _ in range(400):
        if done():
            return
        seat.pass_time(10)
    raise AssertionError(f"never: {seat.where}")


def following(seat: Seat, leader: str = "n1", term: int = 0) -> Seat:
    """Started, and told by a leader of this term that it leads."""
    seat.start()
    until(seat, lambda: seat.ask(DLedgerRequest.HEART_BEAT, beat(leader, term), HeartBeatResponse).code == Code.SUCCESS)
    assert seat.where == ("follower", term, leader), seat.where
    return seat


def append(seat: Seat, *bodies: bytes) -> list[int]:
    """Clients' appends; the opaques of their requests."""
    request = AppendEntryRequest(group=GROUP, remote_id=seat.name)
    opaques = []
    for body in bodies:
        request.body = body
        opaques.append(seat.send(DLedgerRequest.APPEND, request.to_json(), "client"))
    return opaques


class Group:
    """Some members, and the mail between them, which is delivered when the test says so."""

    def __init__(self, size: int = 3, **settings: Any) -> None:
        self.seats = {f"n{n}": Seat(f"n{n}", size, **settings) for n in range(size)}
        self._origin: dict[tuple[str, int], Mail] = {}
        """Receiver and opaque there → the request that it answers."""

    def __getitem__(self, name: str) -> Seat:
        return self.seats[name]

    @property
    def mail(self) -> list[Mail]:
        return [one for seat in self.seats.values() for one in seat.mail]

    def deliver(self, one: Mail) -> None:
        """One frame arrives."""
        sender = one.sender
        sender.mail.remove(one)
        if one.command.is_response:
            asked = self._origin.pop((sender.name, one.command.opaque), None)
            if asked is not None and asked.conn in asked.sender.dialled:
                asked.sender.do(
                    Frames(asked.conn, encode_response(asked.command.opaque, HEADER_CODE, None, one.command.body))
                )
            return
        receiver = self.seats[one.peer]
        if receiver.stopped is None:
            self._origin[receiver.name, receiver._opaque + 1] = one
            receiver.send(one.command.code, bytes(one.command.body), sender.name)

    def run(self, *names: str, turns: int = 200) -> None:
        """Deliver all mail among some of the members (all, if none is named), and what follows from it; the rest is
        lost."""
        among = names or tuple(self.seats)
        for _ in range(turns):
            left = self.mail
            if not left:
                return
            for one in left:
                if one.command.is_response:
                    asked = self._origin.get((one.sender.name, one.command.opaque))
                    to = asked.sender.name if asked is not None else ""
                else:
                    to = one.peer
                if one not in one.sender.mail:
                    continue
                if to in among and one.sender.name in among:
                    self.deliver(one)
                elif to in self.seats:
                    one.sender.mail.remove(one)
            if all(one.command.is_response and self._is_clients(one) for one in self.mail):
                return
        raise AssertionError(f"still talking after {turns} turns: {self.mail[:3]}")

    def _is_clients(self, one: Mail) -> bool:
        return (one.sender.name, one.command.opaque) not in self._origin

    def pass_time(self, ms: int, *names: str) -> None:
        """Time passes, with mail among some of the members (all, if none is named)."""
        among = names or tuple(self.seats)
        for _ in range(0, ms, 10):
            for name in self.seats:
                if self[name].stopped is None:
                    self[name].pass_time(10)
            self.run(*among)

    def elect(self, name: str, *names: str) -> Seat:
        """Let `name` be the first to ask for votes, and lead."""
        for seat in self.seats.values():
            if not seat.roles and not seat.notes:
                seat.start()
        for seat in self.seats.values():
            if seat.name != name:
                seat.forget(DLedgerRequest.VOTE)
        self.pass_time(10_000, *(names or tuple(self.seats)))
        return self[name]

    @property
    def leader(self) -> Seat:
        """The one leader of the highest term."""
        leaders = [seat for seat in self.seats.values() if seat.stopped is None and seat.raft.member.is_leader]
        return max(leaders, key=lambda seat: seat.raft.member.term)
