"""A client of a Raft group, Java's or ours: append bodies, read entries, see how the members are, let another one lead.

    async with DLedgerClient("n0-host:20911;n1-host:20911;n2-host:20911", group="g") as log:
        entry = await log.append(b"hello")          # index, term and position, once a quorum has it
        assert await log.get(entry.index) == b"hello"

An append is tried again, at whoever leads, as long as it has certainly not happened. When nobody can know (the leader
fell, or no quorum answered in time) it ends with `OutcomeUnknown`: it may be in the log, now or later.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from perseid.base.errors import PerseidError
from perseid.client.answers import unreadable
from perseid.client.connection import Connections
from perseid.client.credentials import credentials_here
from perseid.client.errors import (
    BadAnswer,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    NoLeader,
    NotStarted,
    OutcomeUnknown,
    RequestTimeout,
    ServerRefused,
)
from perseid.client.tls import ClientTls
from perseid.security.credentials import Credentials
from perseid.wire.dledger import (
    AppendEntryRequest,
    AppendEntryResponse,
    Code,
    DLedgerRequest,
    GetEntriesRequest,
    GetEntriesResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
)

TIMEOUT_MS = 10_000
CALL_TIMEOUT_MS = 3_500
"""Of one request: a little more than a leader waits for its quorum."""
PAUSE_S = 0.05
NOT_HAPPENED = frozenset(
    (
        Code.NOT_LEADER,
        Code.LEADER_NOT_READY,
        Code.LEADER_TRANSFERRING,
        Code.LEADER_PENDING_FULL,
        Code.UNKNOWN_MEMBER,
    )
)
"""Answers that say that an append has left no trace."""
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Appended:
    """Where an entry stands in the log."""

    index: int
    """Its number in the log."""
    term: int
    """The term of the leader that took it."""
    position: int
    """Where its first byte is in the log's files."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """One member, as it sees itself. What a Java member does not tell is None."""

    id: str
    """Its name in the group."""
    address: str
    """Its `host:port`."""
    role: str | None
    """leader, follower or candidate; unreachable, where it does not answer."""
    leader: str | None = None
    """The member that leads, as it knows."""
    term: int | None = None
    """Its term."""
    begin: int | None = None
    """The index of its first entry."""
    end: int | None = None
    """The index of its last entry."""
    durable: int | None = None
    """Entries up to here are on its disk."""
    committed: int | None = None
    """Entries up to here are on a majority, as it knows."""


class DLedgerClient:
    """Talks to the members that `peers` (`id-host:port;…`) names. Those of brokers with users answer who signs as the
    nodes of the cluster do, or as a Super user."""

    def __init__(
        self,
        peers: str,
        *,
        group: str = "default",
        credentials: Credentials | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self._credentials, self._tls = credentials, tls
        members = (part.strip().partition("-") for part in peers.split(";") if part.strip())
        self.members = {name: address for name, _, address in members}
        self.group = group
        self._connections: Connections | None = None
        self._leader: str | None = None

    async def __aenter__(self) -> DLedgerClient:
        self._connections = Connections(
            lambda connection, command: None, credentials=self._credentials or credentials_here(), tls=self._tls
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connections is not None:
            await self._connections.close()

    # ---- the log ----

    async def append(self, body: bytes, *, timeout_ms: int = TIMEOUT_MS) -> Appended:
        """Append one body. OutcomeUnknown, NoLeader, or ServerRefused."""
        answer = await self._at_leader(
            DLedgerRequest.APPEND, AppendEntryRequest(body=body), AppendEntryResponse, timeout_ms, once=True
        )
        return Appended(answer.index, answer.term, answer.pos)

    async def get(self, index: int, *, timeout_ms: int = TIMEOUT_MS) -> bytes:
        """The body of a committed entry, as the leader has it; ServerRefused (410) when there is none."""
        request = GetEntriesRequest(begin_index=index)
        answer = await self._at_leader(DLedgerRequest.GET, request, GetEntriesResponse, timeout_ms, once=False)
        return answer.entries[0].body

    async def transfer(self, to: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
        """Let the member `to` lead. ServerRefused says why not."""
        leader = await self.leader(timeout_ms=timeout_ms)
        status = (await self.status())[leader]
        if leader == to:
            return
        term = status.term
        if term is None:  # a Java leader does not tell its term, but in the answer to an append
            raise ServerRefused(Code.UNEXPECTED_ARGUMENT, "a Java leader does not tell its term", self.members[leader])
        request = LeadershipTransferRequest(term=term, transfer_id=leader, transferee_id=to)
        answer = await self._ask(leader, DLedgerRequest.LEADERSHIP_TRANSFER, request, LeadershipTransferResponse)
        if answer.code != Code.SUCCESS:
            raise ServerRefused(answer.code, _name(answer.code), self.members[leader])

    # ---- the members ----

    async def leader(self, *, timeout_ms: int = TIMEOUT_MS) -> str:
        """The member that says that it leads; NoLeader when none does in time."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_ms / 1000
        while True:
            for name in self.members:
                try:
                    answer = await self._ask(name, DLedgerRequest.METADATA, MetadataRequest(), MetadataResponse)
                except (ConnectFailed, ConnectionLost, RequestTimeout):
                    continue
                if answer.leader_id == name:
                    self._leader = name
                    return name
            if clock() > deadline:
                raise NoLeader(f"no member of {self.group} leads; asked: {', '.join(self.members.values())}")
            await asyncio.sleep(PAUSE_S)

    async def status(self) -> dict[str, MemberStatus]:
        """Each member as it sees itself."""
        found = await asyncio.gather(*(self.status_of(name) for name in self.members))
        return {one.id: one for one in found}

    async def status_of(self, name: str, *, timeout_ms: int = CALL_TIMEOUT_MS) -> MemberStatus:
        """One member as it sees itself."""
        address, request = self.members[name], MetadataRequest(wants_status=True)
        try:
            answer = await self._ask(name, DLedgerRequest.METADATA, request, MetadataResponse, timeout_ms)
        except ClientError:
            return MemberStatus(name, address, "unreachable")
        if answer.code != Code.SUCCESS:
            return MemberStatus(name, address, f"answers {_name(answer.code)}")
        told: dict[str, Any] = answer.status or {}
        keys = ("role", "term", "begin", "end", "durable", "committed")
        return MemberStatus(name, address, leader=answer.leader_id, **{key: told.get(key) for key in keys})

    # ---- asking ----

    async def _ask(
        self, name: str, code: int, request: Message, kind: type[M], timeout_ms: int = CALL_TIMEOUT_MS
    ) -> M:
        if self._connections is None:
            raise NotStarted("this DLedgerClient is not running: use `async with DLedgerClient(…)`")
        request.group, request.remote_id = self.group, name
        answer = await self._connections.call(self.members[name], code, None, request.to_json(), timeout_ms)
        try:
            return kind.from_json(bytes(answer.body))
        except PerseidError as error:
            raise unreadable(error) from error

    async def _at_leader(self, code: int, request: Message, kind: type[M], timeout_ms: int, *, once: bool) -> M:
        """Ask whoever leads until it succeeds. `once`: not again when it may have happened."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_ms / 1000
        while True:
            left_ms = max(1, int(1000 * (deadline - clock())))
            name = self._leader or await self.leader(timeout_ms=left_ms)
            try:
                answer = await self._ask(name, code, request, kind)
            except ConnectFailed:
                self._leader = None
            except (BadAnswer, ConnectionLost, RequestTimeout) as error:
                self._leader = None
                if once:
                    raise OutcomeUnknown(f"{name} at {self.members[name]} has not answered: {error}") from error
            else:
                if answer.code == Code.SUCCESS:
                    return answer
                if answer.code not in NOT_HAPPENED:
                    if once and answer.code in (Code.TERM_CHANGED, Code.WAIT_QUORUM_ACK_TIMEOUT):
                        raise OutcomeUnknown(f"{name} answered {_name(answer.code)}")
                    raise ServerRefused(answer.code, _name(answer.code), self.members[name])
                self._leader = None
            if clock() > deadline:
                raise NoLeader(f"no leader of {self.group} has taken it within {timeout_ms} ms")
            await asyncio.sleep(PAUSE_S)


def _name(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return f"code {code}"
