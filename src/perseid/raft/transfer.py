"""Leadership that is handed over, asked for by an operator or because another member is preferred (dledger.md §4.6).

At the leader: the transferee must be near; from then on no append is taken, and the transferee is asked to take over.
When it can't, or does not answer, appends are taken again. At the transferee: wait until the log is as long as the
leader's was, then go to the next term, where it alone votes at once; the answer tells what became of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from perseid.base.machine import Millis
from perseid.raft.config import RaftConfig
from perseid.raft.election import Election
from perseid.raft.leader import Leader
from perseid.raft.log import RaftLog
from perseid.raft.ports import Asking
from perseid.raft.state import Member, Role
from perseid.wire.dledger import (
    Code,
    DLedgerRequest,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    Message,
)

CHECK_MS = 1_000
"""So often a leader looks whether a preferred member could lead."""
TAKE_OVER_MS = 2_500
"""A take-over that has not ended by then has failed: less than the caller's patience."""

Answer = Callable[[Message], None]


@dataclass(slots=True)
class TakeOver:
    """We were asked to lead."""

    term: int
    index: int
    answer: Answer
    wait_until: Millis
    give_up_at: Millis
    started: bool = False


class Transferring(Asking, Protocol):
    """The member that gives, or takes."""

    preferred: list[str]
    """Who had better lead."""

    @property
    def leader(self) -> Leader | None:
        """What it knows when it leads."""


class Transfer:
    """Both sides of it, at one member."""

    def __init__(
        self, raft: Transferring, member: Member, config: RaftConfig, log: RaftLog, election: Election
    ) -> None:
        self._raft = raft
        self._member = member
        self._config = config
        self._log = log
        self._election = election
        self._taking: TakeOver | None = None
        self._check_at: Millis = 0

    def next_deadline(self) -> Millis | None:
        raft, taking = self._raft, self._taking
        dues = []
        if taking is not None:
            dues.append(taking.give_up_at if taking.started else taking.wait_until)
        if self._member.is_leader and raft.preferred and self._member.self_id not in raft.preferred:
            dues.append(self._check_at)
        return min(dues, default=None)

    def asked(self, request: LeadershipTransferRequest, now: Millis, answer: Answer) -> None:
        """A request that names us as the one who gives, or as the one who takes."""
        own = self._member.self_id
        if request.transfer_id == own:
            self._give(request.transferee_id or "", request.term, now, answer)
        elif request.transferee_id == own:
            self._take(request, now, answer)
        else:
            self._say(answer, Code.UNEXPECTED_ARGUMENT)

    def _say(self, answer: Answer, code: int) -> None:
        answer(LeadershipTransferResponse(code=code, term=self._member.term))

    # ---- to give ----

    def _give(self, peer: str, term: int, now: Millis, answer: Answer) -> None:
        raft, member = self._raft, self._member
        leader = raft.leader
        if peer not in member.others:
            return self._say(answer, Code.UNKNOWN_MEMBER)
        if term != member.term:
            return self._say(answer, Code.INCONSISTENT_TERM)
        if leader is None:
            return self._say(answer, Code.NOT_LEADER)
        if member.transferee is not None:
            return self._say(answer, Code.LEADER_TRANSFERRING)
        if self._log.end - leader.followers[peer].watermark >= max(1, self._config.max_leadership_transfer_wait_index):
            return self._say(answer, Code.FALL_BEHIND_TOO_MUCH)
        member.transferee = peer
        raft.note("info", f"{peer} is asked to lead")

        def answered(reply: LeadershipTransferResponse | None, now: Millis) -> None:
            code = reply.code if reply is not None else Code.NETWORK_ERROR
            if member.is_leader and member.term == term:
                member.transferee = None
            self._say(answer, code)

        request = LeadershipTransferRequest(
            group=member.group, remote_id=peer, local_id=member.self_id, leader_id=member.self_id, term=member.term,
            transfer_id=member.self_id, transferee_id=peer, take_leadership_ledger_index=self._log.end,
        )  # fmt: skip
        raft.call(peer, DLedgerRequest.LEADERSHIP_TRANSFER, request, LeadershipTransferResponse, answered)

    def _look_for_preferred(self, now: Millis) -> None:
        raft, member, leader = self._raft, self._member, self._raft.leader
        if leader is None or not raft.preferred or member.self_id in raft.preferred or now < self._check_at:
            return
        self._check_at = now + CHECK_MS
        if member.transferee is not None:
            return
        near = [
            (leader.followers[p].watermark, p) for p in raft.preferred if p in leader.followers and member.live.get(p)
        ]
        if near:
            watermark, peer = max(near)
            if self._log.end - watermark < max(1, self._config.max_leadership_transfer_wait_index):
                self._give(peer, member.term, now, lambda response: None)

    # ---- to take ----

    def _take(self, request: LeadershipTransferRequest, now: Millis, answer: Answer) -> None:
        member = self._member
        if request.transfer_id != member.leader:
            return self._say(answer, Code.INCONSISTENT_LEADER)
        if request.term != member.term:
            return self._say(answer, Code.INCONSISTENT_TERM)
        if self._taking is not None:
            return self._say(answer, Code.LEADER_TRANSFERRING)
        wait = self._config.leadership_transfer_wait_timeout
        self._taking = TakeOver(
            request.term, request.take_leadership_ledger_index, answer, now + wait, now + TAKE_OVER_MS
        )
        self.tick(now)

    def tick(self, now: Millis) -> None:
        """What can be done now."""
        self._look_for_preferred(now)
        taking, member = self._taking, self._member
        if taking is None:
            return
        target = taking.term + 1
        if not taking.started:
            if member.term != taking.term:
                self._end(Code.INCONSISTENT_TERM)
            elif self._log.end >= taking.index:
                taking.started = True
                member.term_to_take = target
                self._election.to_candidate(target, now)
                self._election.need_increase = True
            elif now >= taking.wait_until:
                self._end(Code.TAKE_LEADERSHIP_FAILED)
        elif member.term > target:
            self._end(Code.EXPIRED_TERM)
        elif member.term == target and member.role is not Role.CANDIDATE:
            self._end(Code.SUCCESS if member.is_leader else Code.TAKE_LEADERSHIP_FAILED)
        elif now >= taking.give_up_at:
            self._end(Code.INTERNAL_ERROR)

    def _end(self, code: int) -> None:
        taking, self._taking = self._taking, None
        assert taking is not None
        self._say(taking.answer, code)
