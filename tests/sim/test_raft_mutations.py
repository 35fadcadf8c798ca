"""Defects planted in Raft: each breaks the promise that it should, in the seed that found it.

The numbers are those of the register of real defects that they are like (B…), and of the invariants that catch them
(R1 to R10, see `perseid.sim.models.raft.group`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perseid.base.machine import Feed, SaveState
from perseid.raft.applying import Applier
from perseid.raft.election import Beat, Election, Round
from perseid.raft.files import FileLog
from perseid.raft.follower import Follower, Waiting
from perseid.raft.leader import Leader, Progress, State
from perseid.raft.log import LogRefused, Mark
from perseid.raft.node import REQUESTS, Raft, _Then
from perseid.raft.state import VOTE_FILE, Member, Role
from perseid.sim.models.raft.run import run
from perseid.store.segments import Segments
from perseid.wire.dledger import (
    Code,
    DLedgerRequest,
    Entry,
    HeartBeatResponse,
    Push,
    PushEntryRequest,
    PushEntryResponse,
    Vote,
    VoteRequest,
)

from .planted import Mutation, seek


def no_self_checks(patch: pytest.MonkeyPatch) -> None:
    """The member's own check of its own state is off: what the defect does has to show."""
    patch.setattr(Raft, "validate", lambda self: None)


# ---- votes and terms ----


def votes_promised_count(patch: pytest.MonkeyPatch) -> None:
    """R1: a member that answers that it will come to our term is counted as a vote."""
    real = Round.count

    def count(self: Round, result: str, term: int) -> None:
        real(self, Vote.ACCEPT if result == Vote.TERM_NOT_READY else result, term)

    patch.setattr(Round, "count", count)


def half_elects(patch: pytest.MonkeyPatch) -> None:
    """R1: a candidate needs one vote less than a quorum."""
    real = Election._parse

    def parse(self: Election, this: Round, now: int) -> None:
        this.accepted += 1
        real(self, this, now)

    patch.setattr(Election, "_parse", parse)


def vote_overwritten(patch: pytest.MonkeyPatch) -> None:
    """R2: a member votes for a second candidate in the same term."""
    real = Election.vote_for

    def vote_for(self: Election, request: VoteRequest, now: int, *, own: bool = False) -> tuple[str, int]:
        if request.term == self._member.term and self._member.role is Role.CANDIDATE:
            self._member.vote = None
        return real(self, request, now, own=own)

    patch.setattr(Election, "vote_for", vote_for)


def vote_answered_before_kept(patch: pytest.MonkeyPatch) -> None:
    """B27, R2: a vote is sent while its save is under way."""

    def after_save(self: Raft, then: Callable[[int], None]) -> None:
        now = self.member.term, self.member.vote
        if now != self._kept:
            self.emit(self.member.save([Feed(_Then(now, lambda now: None, self.now))]))
        then(self.now)

    patch.setattr(Raft, "after_save", after_save)


def vote_not_kept(patch: pytest.MonkeyPatch) -> None:
    """B27, R2: the file has the term, but not the vote in it."""

    def save(self: Member, then: list[Any]) -> SaveState:
        return SaveState(VOTE_FILE, f"currTerm={self.term}\n".encode(), then)

    patch.setattr(Member, "save", save)


def term_not_kept(patch: pytest.MonkeyPatch) -> None:
    """R3: the file has the vote, but the term before it."""

    def save(self: Member, then: list[Any]) -> SaveState:
        return SaveState(VOTE_FILE, f"voteLeader={self.vote or ''}\ncurrTerm={self.term - 1}\n".encode(), then)

    patch.setattr(Member, "save", save)


def any_log_may_lead(patch: pytest.MonkeyPatch) -> None:
    """R6: a vote ignores the candidate's log."""
    real = Election.vote_for

    def vote_for(self: Election, request: VoteRequest, now: int, *, own: bool = False) -> tuple[str, int]:
        request.ledger_end_term = max(request.ledger_end_term, self._log.end_term)
        request.ledger_end_index = max(request.ledger_end_index, self._log.end)
        return real(self, request, now, own=own)

    patch.setattr(Election, "vote_for", vote_for)


def end_term_is_the_current_term(patch: pytest.MonkeyPatch) -> None:
    """B31, R6: an old entry from a new leader makes the log count as one of the new term."""

    def put(self: Follower, entry: Entry, request: PushEntryRequest) -> str:
        log = self._log
        try:
            log.put(entry)
        except LogRefused as refused:
            return str(refused)
        log.end_term = request.term
        return ""

    patch.setattr(Follower, "_put", put)


def leads_again(patch: pytest.MonkeyPatch) -> None:
    """R5: a leader whose process ended may be elected again in the same term, with fewer entries than it pushed."""

    def start(self: Election, now: int) -> None:
        self._vote_at = self.heard = now

    patch.setattr(Election, "start", start)


def higher_term_ignored(patch: pytest.MonkeyPatch) -> None:
    """B32: a leader with answers of a quorum goes on leading, although another member is in a higher term."""
    real = Election._beat_answered

    def answered(self: Election, beat: Beat, peer: str, reply: HeartBeatResponse | None, now: int) -> None:
        silent_ms = self._config.heart_beat_time_interval_ms * self._config.max_heart_beat_leak
        if reply is not None and reply.code == Code.EXPIRED_TERM and now - self._succeeded <= silent_ms:
            reply.code = Code.INTERNAL_ERROR
        real(self, beat, peer, reply, now)

    patch.setattr(Election, "_beat_answered", answered)


# ---- the leader ----


def leader_tidies_up(patch: pytest.MonkeyPatch) -> None:
    """R4: a new leader truncates entries that are not known to be committed."""
    real = Leader.__post_init__

    def begin(self: Leader) -> None:
        real(self)
        if self.log.begin <= self.raft.committed < self.log.end:
            self.log.cut(self.raft.committed + 1)

    patch.setattr(Leader, "__post_init__", begin)


def commit_with(own: Callable[[Raft], int], own_term: bool) -> Callable[[Leader], None]:
    """`Leader.commit` with another idea of what its own log counts for, or of what a quorum commits."""

    def commit(self: Leader) -> None:
        raft = self.raft
        marks = sorted([own(raft), *(p.watermark for p in self.followers.values())], reverse=True)
        index = min(marks[raft.member.quorum - 1], raft.log.end)
        if index > raft.committed and (not own_term or raft.log.term_of(index) == self.term):
            raft.commit(index)
        while self.pending and self.pending[0].index <= raft.committed:
            one = self.pending.popleft()
            one.done(Code.SUCCESS, one.entry)

    return commit


def minority_commits(patch: pytest.MonkeyPatch) -> None:
    """R6: an entry is committed with one member less than a quorum."""
    real = Leader.commit

    def commit(self: Leader) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Member, "quorum", property(lambda self: len(self.peers) // 2))
            real(self)

    patch.setattr(Leader, "commit", commit)


def acknowledged_at_once(patch: pytest.MonkeyPatch) -> None:
    """R9: an append is acknowledged when it is in the leader's log."""
    real = Leader.append

    def append(self: Leader, body: bytes, now: int, done: Callable[[int, Entry], None]) -> int:
        code = real(self, body, now, done)
        if code == Code.SUCCESS:
            one = self.pending.pop()
            one.done(Code.SUCCESS, one.entry)
        return code

    patch.setattr(Leader, "append", append)


def unknown_is_success(patch: pytest.MonkeyPatch) -> None:
    """B25, R9: an append is acknowledged though its leader lost the role before."""

    def end(self: Leader) -> None:
        while self.pending:
            one = self.pending.popleft()
            one.done(Code.SUCCESS, one.entry)

    patch.setattr(Leader, "end", end)


def late_is_success(patch: pytest.MonkeyPatch) -> None:
    """B25, R9: an append is acknowledged though no quorum had it in time."""

    def expire(self: Leader, now: int) -> None:
        while self.pending and self.pending[0].deadline <= now:
            one = self.pending.popleft()
            one.done(Code.SUCCESS, one.entry)

    patch.setattr(Leader, "expire", expire)


def lost_pushes_are_not_missed(patch: pytest.MonkeyPatch) -> None:
    """B33: a dispatcher in the append state never compares again."""
    real = Progress.turn

    def turn(self: Progress, state: State, index: int, at: int) -> None:
        if not (self.state is State.APPEND and state is State.COMPARE):
            real(self, state, index, at)

    patch.setattr(Progress, "turn", turn)


def leader_counts_itself_early(patch: pytest.MonkeyPatch) -> None:
    """R6: the leader counts its own entries before they are durable."""
    patch.setattr(Leader, "commit", commit_with(lambda raft: raft.log.end, own_term=True))


def uncommitted_is_read(patch: pytest.MonkeyPatch) -> None:
    """B36: a leader shows entries that are not committed yet."""
    request, response, real = REQUESTS[DLedgerRequest.GET]

    def get(self: Raft, *arguments: Any) -> None:
        committed, self.committed = self.committed, self.log.end
        real(self, *arguments)
        self.committed = committed

    patch.setitem(REQUESTS, DLedgerRequest.GET, (request, response, get))


# ---- the follower ----


def commits_what_it_is_told(patch: pytest.MonkeyPatch) -> None:
    """B29, R7: a follower commits up to the leader's index, whatever its own entries are."""

    def commit(self: Follower, request: PushEntryRequest) -> None:
        index = min(request.commit_index, self._log.end)
        if index > self._raft.committed:
            self._raft.commit(index)

    patch.setattr(Follower, "_commit", commit)


def follower_answers_early(patch: pytest.MonkeyPatch) -> None:
    """R6: a follower confirms entries that are written, but not durable yet."""

    def accept(self: Follower, one: Waiting, index: int) -> None:
        one.answer(self._response(one.request, Code.SUCCESS))

    patch.setattr(Follower, "_accept", accept)


def verified_for_ever(patch: pytest.MonkeyPatch) -> None:
    """B29, R7: a comparison with one leader's log counts for the next leader's."""
    real = Follower.work

    def work(self: Follower, now: int) -> None:
        self._of = self._member.term, self._member.leader
        real(self, now)

    patch.setattr(Follower, "work", work)


def committed_is_cut(patch: pytest.MonkeyPatch) -> None:
    """B30, R8: an entry that can't be compared counts as different, so that the leader steps back too far and may
    truncate committed entries: the committed index stays above the end of the log."""
    no_self_checks(patch)
    truncate, response = Follower._truncate, Follower._response

    def obey(self: Follower, one: Waiting, now: int) -> None:
        committed, self._raft.committed = self._raft.committed, -1
        truncate(self, one, now)
        self._raft.committed = max(committed, self._raft.committed)

    def answer(self: Follower, request: PushEntryRequest, code: int) -> PushEntryResponse:
        unlike = request.type == Push.COMPARE and code != Code.SUCCESS
        return response(self, request, Code.INCONSISTENT_STATE if unlike else code)

    patch.setattr(Follower, "_truncate", obey)
    patch.setattr(Follower, "_response", answer)


def compared_by_index(patch: pytest.MonkeyPatch) -> None:
    """R5: an entry with the same index counts as the same entry."""
    patch.setattr(Follower, "_has", lambda self, entry: self._log.get(entry.index) is not None)


def older_terms_are_counted(patch: pytest.MonkeyPatch) -> None:
    """B28, R6: entries of older terms are committed as soon as a quorum has them."""
    patch.setattr(Leader, "commit", commit_with(lambda raft: raft.answerable, own_term=False))


# ---- the disk ----


def durable_survives_a_cut(patch: pytest.MonkeyPatch) -> None:
    """B34, R10: entries that replace durable ones count as durable, and are never flushed."""
    no_self_checks(patch)
    real = FileLog.cut

    def cut(self: FileLog, index: int) -> None:
        durable = self.durable
        real(self, index)
        self.durable = durable

    patch.setattr(FileLog, "cut", cut)

    def wants_flush(self: Raft) -> bool:
        return not self._flushing and (self.log.durable < self.log.end or self.log.cutting)

    patch.setattr(Raft, "_wants_flush", property(wants_flush))


def written_is_durable(patch: pytest.MonkeyPatch) -> None:
    """B34, R10: entries count as durable as soon as they are written."""
    real = FileLog._append

    def append(self: FileLog, entry: Entry) -> None:
        real(self, entry)
        self.durable = self.end

    patch.setattr(FileLog, "_append", append)


def flush_covers_all(patch: pytest.MonkeyPatch) -> None:
    """R10: entries written during a flush count as flushed by it."""
    real = FileLog.flushed
    patch.setattr(FileLog, "flushed", lambda self, mark: real(self, Mark(self.end, mark.cuts)))


def found_is_durable(patch: pytest.MonkeyPatch) -> None:
    """R10: after a start, all entries found count as durable, although an earlier life's sync may have failed."""
    patch.setattr(FileLog, "_write_again", lambda self, *arguments: None)


def body_not_checked(patch: pytest.MonkeyPatch) -> None:
    """B35: a start does not check the checksums of bodies."""
    patch.setattr(FileLog, "_crc_of", lambda self, index: 0)


def cut_without_zeros(patch: pytest.MonkeyPatch) -> None:
    """B13: truncated entries stay in the files, after the end."""
    patch.setattr(Segments, "zero_from", lambda self, offset: 0)


def zeros_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """B13: new entries are written before the zeros of a truncation are durable."""
    no_self_checks(patch)
    real = FileLog.cut

    def cut(self: FileLog, index: int) -> None:
        real(self, index)
        self.cutting = False

    patch.setattr(FileLog, "cut", cut)


def snapshot_without_data(patch: pytest.MonkeyPatch) -> None:
    """B26, R7: a snapshot has its last index, but no state."""
    real = Applier.keep

    def keep(self: Applier) -> SaveState | None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self._machine, "snapshot", lambda: b"")
            return real(self)

    patch.setattr(Applier, "keep", keep)


def found_is_committed(patch: pytest.MonkeyPatch) -> None:
    """R8: after a restart, all entries of the log count as committed."""
    real = Raft._start

    def start(self: Raft) -> None:
        real(self)
        self.committed = self.log.end

    patch.setattr(Raft, "_start", start)


FOUND: dict[Mutation, str] = {
    half_elects: "R1",
    votes_promised_count: "R1",
    vote_overwritten: "R2",
    vote_not_kept: "R2",
    term_not_kept: "R3",
    vote_answered_before_kept: "R2",
    any_log_may_lead: "R6",
    higher_term_ignored: "every member catches up",
    leads_again: "R5",
    end_term_is_the_current_term: "R6",
    leader_tidies_up: "R4",
    minority_commits: "R6",
    older_terms_are_counted: "R6",
    acknowledged_at_once: "R9",
    unknown_is_success: "R9",
    late_is_success: "R9",
    lost_pushes_are_not_missed: "every member catches up",
    leader_counts_itself_early: "R6",
    follower_answers_early: "R6",
    uncommitted_is_read: "R9",
    commits_what_it_is_told: "R7",
    compared_by_index: "R5",
    verified_for_ever: "R7",
    committed_is_cut: "R8",
    written_is_durable: "a member runs",
    durable_survives_a_cut: "R10",
    found_is_committed: "R8",
    snapshot_without_data: "R7",
    found_is_durable: "a member runs",
    flush_covers_all: "R10",
    body_not_checked: "R10",
    cut_without_zeros: "R10",
    zeros_not_awaited: "R10",
}
"""What is broken first."""


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.once
@pytest.mark.usefixtures("without_core")
@pytest.mark.parametrize("mutation", FOUND, ids=lambda mutation: mutation.__name__)
def test_a_planted_defect_is_found(mutation: Mutation) -> None:
    seek(mutation, run, promise=FOUND[mutation])
