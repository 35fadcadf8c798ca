"""A Raft group whose talk is written down: who said what to whom, and when. Frames take one millisecond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perseid.wire.dledger import (
    AppendEntryRequest,
    AppendEntryResponse,
    Code,
    DLedgerRequest,
    Entry,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
    PushEntryRequest,
    PushEntryResponse,
    VoteRequest,
    VoteResponse,
)

from .harness import GROUP, START, Group, Mail, Seat, append

PAIRS: dict[int, tuple[type[Message], type[Message]]] = {
    DLedgerRequest.APPEND: (AppendEntryRequest, AppendEntryResponse),
    DLedgerRequest.HEART_BEAT: (HeartBeatRequest, HeartBeatResponse),
    DLedgerRequest.LEADERSHIP_TRANSFER: (LeadershipTransferRequest, LeadershipTransferResponse),
    DLedgerRequest.METADATA: (MetadataRequest, MetadataResponse),
    DLedgerRequest.PUSH: (PushEntryRequest, PushEntryResponse),
    DLedgerRequest.VOTE: (VoteRequest, VoteResponse),
}


def shown(entries: list[Entry]) -> str:
    return ", ".join(f"{entry.index}:{entry.body.decode()} (term {entry.term})" for entry in entries)


def told(request: Any) -> str:
    """A request as a reader wants it; "" when it says nothing new."""
    if isinstance(request, VoteRequest):
        log = "empty log" if request.ledger_end_index < 0 else f"log ends at {request.ledger_end_index}"
        return f"VOTE term {request.term}, {log}" + (
            f" (term {request.ledger_end_term})" if request.ledger_end_index >= 0 else ""
        )
    if isinstance(request, PushEntryRequest):
        return " ".join(filter(None, (request.type, shown(request.entries)))) + f", committed {request.commit_index}"
    if isinstance(request, LeadershipTransferRequest):
        return f"TRANSFER to {request.transferee_id}"
    return "DO YOU HEAR THE LEADER?" if isinstance(request, MetadataRequest) else ""


def answered(response: Any) -> str:
    """The same of an answer."""
    code = Code(response.code).name
    if isinstance(response, VoteResponse):
        return f"{response.vote_result}, term {response.term}"
    if isinstance(response, PushEntryResponse):
        return f"{code}, log ends at {response.end_index}"
    if isinstance(response, MetadataResponse):
        return f"the leader is {response.leader_id}" + ("" if response.hears else "; it is not heard")
    if isinstance(response, AppendEntryResponse):
        return code + (f", entry {response.index}" if response.code == Code.SUCCESS else "")
    if isinstance(response, HeartBeatResponse):
        return "" if response.code == Code.SUCCESS else f"HEART_BEAT: {code}"
    return code


class Stage(Group):
    """Members that are started, killed and parted by a script."""

    def __init__(self, size: int = 3, **settings: Any) -> None:
        super().__init__(size, **settings)
        self.lines: list[str] = []
        self.now = 0
        self.down = set(self.seats)
        self.parted: set[frozenset[str]] = set()
        self._heard = dict.fromkeys(self.seats, 0)
        self._stopped: set[str] = set()
        self._committed: dict[tuple[str, str], int] = {}
        self._transfers: set[tuple[str, int]] = set()
        for seat in self.seats.values():
            seat.on_connect = lambda peer: peer not in self.down

    # ---- what the script does ----

    def say(self, text: str) -> None:
        """A line of the script itself."""
        self.lines += ["", f"        {text}"]

    def start(self, *names: str) -> None:
        for name in names or sorted(self.down):
            self.down.discard(name)
            self[name].now = START + self.now
            self[name].start()
        self._notes()

    def kill(self, name: str, *, power: bool = False) -> None:
        """The process ends, and its sockets with it; without power, they say nothing."""
        self.down.add(name)
        for seat in () if power else self._up():
            for conn in [*seat.dialled, *seat._links.values()]:
                if seat.dialled.get(conn) == name or seat._links.get(name) == conn:
                    seat.cut(conn)
        self[name].mail.clear()
        self._notes()

    def again(self, name: str, *, power: bool = False) -> None:
        self.down.discard(name)
        self._heard[name] = len(self[name].notes)
        self[name].now = START + self.now
        self[name].again(power=power)
        self._notes()

    def part(self, name: str, *others: str) -> None:
        """What they say to one another is lost from now on."""
        self.parted |= {frozenset((name, other)) for other in others or set(self.seats) - {name}}

    def heal(self) -> None:
        """They hear one another again; connections of before are gone."""
        parted, self.parted = self.parted, set()
        for one, two in sorted(sorted(pair) for pair in parted):
            for name, other in ((one, two), (two, one)):
                for conn in [conn for conn, peer in self[name].dialled.items() if peer == other]:
                    self[name].cut(conn)

    def append(self, name: str, *bodies: str) -> None:
        for body in bodies:
            self._line("client", name, f"APPEND {body}")
            append(self[name], body.encode())
        self._notes()

    def transfer(self, name: str, to: str) -> None:
        term = self[name].raft.member.term
        request = LeadershipTransferRequest(group=GROUP, remote_id=name, term=term, transfer_id=name, transferee_id=to)
        self._line("client", name, told(request))
        opaque = self[name].send(DLedgerRequest.LEADERSHIP_TRANSFER, request.to_json(), "client")
        self._transfers.add((name, opaque))
        self._notes()

    def play(self, ms: int, until: Callable[[], bool] = lambda: False) -> None:
        """Time passes, at most so much."""
        end = self.now + ms
        while self.now < end and not until():
            mail = self.mail
            self.now = min(end, self._next(bool(mail)))
            for seat in self._up():
                seat.pass_time(START + self.now - seat.now)
            self._notes()
            for one in mail:
                if one in one.sender.mail:
                    self.deliver(one)
                    self._notes()

    def play_until_committed(self, index: int, *names: str) -> None:
        self.play(20_000, lambda: all(self[name].raft.committed >= index for name in names or self.seats))
        assert all(self[name].raft.committed >= index for name in names or self.seats), "\n".join(self.lines)

    def end(self) -> str:
        """What each member has."""
        self.say("in the end")
        for name, seat in self.seats.items():
            log, raft = seat.raft.log, seat.raft
            entries = [entry for at in range(log.begin, log.end + 1) if (entry := log.get(at)) is not None]
            role = (
                "down" if name in self.down or seat.stopped is not None else f"{seat.where[0]} of term {seat.where[1]}"
            )
            self.lines.append(f"        {name}  {role:<20} committed {raft.committed:>2}: {shown(entries)}".rstrip())
        return "\n".join(self.lines).strip("\n")

    # ---- what happens ----

    def _up(self) -> list[Seat]:
        return [seat for name, seat in self.seats.items() if name not in self.down and seat.stopped is None]

    def _next(self, talking: bool) -> int:
        dues = [due - START for seat in self._up() if (due := seat.raft.next_deadline()) is not None]
        return self.now + 1 if talking else max(self.now + 1, min(dues, default=self.now + 1_000))

    def _line(self, who: str, to: str, text: str, arrow: str = "→") -> None:
        names = f"{who} {arrow} {to}" if to else who
        self.lines.append(f"{self.now / 1000:7.3f}  {names:<12}  {text}")

    def _notes(self) -> None:
        for name, seat in self.seats.items():
            for note in seat.notes[self._heard[name] :]:
                self._line(name, "", note)
            self._heard[name] = len(seat.notes)
            if seat.stopped is not None and name not in self._stopped:
                self._stopped.add(name)
                self.kill(name)

    def deliver(self, one: Mail) -> None:
        asked = self._origin.get((one.sender.name, one.command.opaque)) if one.command.is_response else None
        to = asked.sender.name if asked is not None else one.peer or "client"
        text = self._text(one, asked)
        if frozenset((one.sender.name, to)) in self.parted or to in self.down:
            one.sender.mail.remove(one)
            if text:
                self._line(one.sender.name, to, f"{text}: lost", "✗")
            return
        if text:
            self._line(one.sender.name, to, text)
        if to == "client":
            one.sender.mail.remove(one)
        else:
            super().deliver(one)

    def _text(self, one: Mail, asked: Mail | None) -> str:
        if not one.command.is_response:
            request: Any = one.body(PAIRS[one.command.code][0])
            if isinstance(request, PushEntryRequest) and not request.entries:  # that again?
                key, before = (one.sender.name, one.peer), self._committed.get((one.sender.name, one.peer), -1)
                self._committed[key] = request.commit_index
                return told(request) if request.commit_index > before else ""
            return told(request)
        if asked is None:
            transfer = (one.sender.name, one.command.opaque) in self._transfers
            return answered(one.body(LeadershipTransferResponse if transfer else AppendEntryResponse))
        request = asked.body(PAIRS[asked.command.code][0])
        if isinstance(request, PushEntryRequest) and not request.entries:
            return ""
        return answered(one.body(PAIRS[asked.command.code][1]))
