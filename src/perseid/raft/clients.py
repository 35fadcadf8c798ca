"""What clients of a group ask a member: appends, reads, and where the leader is (dledger.md §6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from perseid.base.machine import ConnId
from perseid.raft.log import RaftLog
from perseid.raft.state import Member
from perseid.wire.dledger import (
    AppendEntryRequest,
    AppendEntryResponse,
    Code,
    Entry,
    GetEntriesRequest,
    GetEntriesResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
)

MAX_BATCH = 1_000
"""Bodies of one append."""

Answer = Callable[[Message], None]


class Serving(Protocol):
    """The member that is asked."""

    @property
    def member(self) -> Member: ...

    @property
    def log(self) -> RaftLog: ...

    @property
    def committed(self) -> int: ...

    @property
    def hears_leader(self) -> bool: ...

    def append(self, body: bytes, done: Callable[[int, Entry], None]) -> int: ...

    def status(self) -> dict[str, Any]: ...


def append(raft: Serving, conn: ConnId, request: AppendEntryRequest, answer: Answer) -> None:
    """Entries with these bodies; answered when the last one is committed."""
    bodies = request.batch_msgs or ([request.body] if request.body is not None else [])
    if not bodies or len(bodies) > MAX_BATCH:
        code = Code.UNEXPECTED_ARGUMENT if bodies else Code.REQUEST_WITH_EMPTY_BODYS
        answer(_appended(raft, code, None))
        return

    def last(code: int, entry: Entry) -> None:
        answer(_appended(raft, code, entry))

    def other(code: int, entry: Entry) -> None:
        """The last one's outcome tells of all."""

    for number, body in enumerate(bodies, 1):
        taken = raft.append(body, last if number == len(bodies) else other)
        if taken != Code.SUCCESS:
            answer(_appended(raft, taken, None))
            return


def _appended(raft: Serving, code: int, entry: Entry | None) -> AppendEntryResponse:
    member = raft.member
    response = AppendEntryResponse(group=member.group, leader_id=member.leader, code=code, term=member.term)
    if entry is not None:
        response.index, response.pos, response.term = entry.index, entry.pos, entry.term
    return response


def get(raft: Serving, conn: ConnId, request: GetEntriesRequest, answer: Answer) -> None:
    """One entry that is committed."""
    member, index = raft.member, request.begin_index
    response = GetEntriesResponse(group=member.group, leader_id=member.leader)
    if not member.is_leader:
        response.code = Code.NOT_LEADER
    elif index is None or not raft.log.begin <= index <= raft.committed:
        response.code = Code.INDEX_OUT_OF_RANGE
    else:
        entry = raft.log.get(index)
        assert entry is not None
        response.entries = [entry]
    answer(response)


def metadata(raft: Serving, conn: ConnId, request: MetadataRequest, answer: Answer) -> None:
    """The members, and who leads."""
    member, hears = raft.member, raft.hears_leader
    response = MetadataResponse(group=member.group, peers=member.peers, leader_id=member.leader, hears=hears)
    if request.wants_status:
        response.status = raft.status()
    answer(response)
