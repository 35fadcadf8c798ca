"""Who leads: votes, the reading of votes, heartbeats, and what each role does when its time is up (dledger.md §4).

The original looks at the clock each 10 ms and waits within a step; here each wait is a deadline, and each answer an
event of the round that asked for it: answers of earlier rounds count for nothing.

A candidate goes through rounds. A round asks all others for their votes, in the term that it began with, and ends as
soon as its outcome is known, or at its deadline. How its votes are read decides what comes next:

    WAIT_TO_VOTE_NEXT    a round in the next term, later
    WAIT_TO_REVOTE       a round in the same term, later
    REVOTE_IMMEDIATELY   a round in the same term, at once: enough have voted for us, or will once their term is ours
    PASSED               leader

Only WAIT_TO_VOTE_NEXT, a higher term that became known, and a start after a vote for itself raise the term. A round is
given up when a higher term becomes known: its votes would be of no use (the original waits for its end). Own votes and
votes for others are on disk before anybody hears of them.

When the leader's connection closes, a follower begins to *doubt*: it asks all others, the leader too, whether they
hear the leader. An answer of the leader itself ends the doubt. When a quorum, itself among them, no longer hears it,
the follower becomes a candidate of the next term; otherwise it goes on as before, and a timer decides as in the
original. Of several candidates the one with the longest log asks for votes at once, and the others after it, one by
one: so their votes are not split, and nobody asks in vain. For the same reason who has given a vote, or is on its way
to a candidate's term to give one, *yields*: it asks for none itself until that candidate has had time to lead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Protocol

from perseid.base.machine import Millis
from perseid.raft.config import RaftConfig
from perseid.raft.log import RaftLog
from perseid.raft.ports import Asking
from perseid.raft.state import Member, Role
from perseid.wire.dledger import (
    Code,
    DLedgerRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    MetadataRequest,
    MetadataResponse,
    Vote,
    VoteRequest,
    VoteResponse,
)

PAUSE_MS = 10
"""Between rounds that follow at once: the original's step."""
FIRST_DOUBT_MS = 5
DOUBT_MS = 40
"""Between the first two, and between two later questions whether others hear the leader."""
MAX_DOUBTS = 25
"""Questions; then the timer decides."""
MIN_TURN_MS = 50
"""At least so long the one with the longest log goes before the next one: its vote has to be kept first."""
YIELD_MS = 250
"""So long a candidate is given besides what its vote, our term and our vote take to be kept, one after the other."""
MAX_SYNC_MS = 1_000
"""A disk that takes longer to keep a vote is waited for no longer."""
ROUND_SYNCS = 3
"""A round waits for its votes at least so many times what one takes to be kept: for our own, then for others' terms and
votes."""
SPLIT_SPREAD = 4
"""Who has to go to another term asks again at a time that is drawn from at least so many times that: two whose votes
were split keep their next ones at the same time in fewer than half of the cases."""
MAX_ROUND_MS = 2_000
"""Then the votes that have come are read, though others are missing."""


class Parsed(Enum):
    """How the votes of a round are read."""

    WAIT_TO_REVOTE = "wait to revote"
    REVOTE_IMMEDIATELY = "revote immediately"
    PASSED = "passed"
    WAIT_TO_VOTE_NEXT = "wait to vote next"


@dataclass(slots=True)
class Round:
    """One asking for votes, and the answers so far."""

    number: int
    term: int
    deadline: Millis
    end_index: int
    end_term: int
    valid: int = 0
    answered: int = 0
    accepted: int = 0
    not_ready: int = 0
    bigger_ledger: int = 0
    has_leader: bool = False
    max_term: int = -1

    def count(self, result: str, term: int) -> None:
        """One answer; UNKNOWN is none."""
        self.answered += 1
        if result == Vote.UNKNOWN:
            return
        self.valid += 1
        if result == Vote.ACCEPT:
            self.accepted += 1
        elif result == Vote.ALREADY_HAS_LEADER:
            self.has_leader = True
        elif result in (Vote.TERM_SMALL_THAN_LEDGER, Vote.EXPIRED_VOTE_TERM):
            self.max_term = max(self.max_term, term)
        elif result in (Vote.EXPIRED_LEDGER_TERM, Vote.SMALL_LEDGER_END_INDEX):
            self.bigger_ledger += 1
        elif result == Vote.TERM_NOT_READY:
            self.not_ready += 1

    def is_settled(self, quorum: int, members: int) -> bool:
        """Is there no need to wait for the others?"""
        ours = self.accepted + self.not_ready
        return self.has_leader or ours >= quorum or ours + members - self.answered < quorum


@dataclass(slots=True)
class Beat:
    """One round of heartbeats, and its answers: our own is a success."""

    number: int
    term: int
    deadline: Millis
    answered: int = 1
    succeeded: int = 1
    not_ready: int = 0
    inconsistent: bool = False


@dataclass(slots=True)
class Doubt:
    """A question whether others hear the leader."""

    term: int
    leader: str
    asked: int = 0
    next_at: Millis = 0
    deaf: set[str] = field(default_factory=set)
    """Those of the others that don't hear it either, as they said last."""
    ends: dict[str, int] = field(default_factory=dict)
    """Where the logs of those end."""


class Electing(Asking, Protocol):
    """The member whose election this is."""

    preferred: list[str]
    """Who had better lead."""
    sync_ms: Millis
    """So long it took lately, at most, until something was durable here."""

    @property
    def on_vote(self) -> Callable[[int, str], None]:
        """Called when our own vote counts."""

    def after_save(self, then: Callable[[Millis], None]) -> None:
        """Do `then` when term and vote are kept as they are now."""


class Election:
    """The election of one member."""

    def __init__(self, raft: Electing, member: Member, config: RaftConfig, log: RaftLog, random: Random) -> None:
        self._raft = raft
        self._member = member
        self._config = config
        self._log = log
        self._random = random
        self._round: Round | None = None
        self._rounds = 0
        self._vote_at: Millis = 0
        self._parsed = Parsed.WAIT_TO_REVOTE
        self._yields_until: Millis = 0
        self.need_increase = False
        """A higher term is known: go to it at once."""
        self.heard: Millis = 0
        """When the leader was last heard."""
        self.leader_conn: int | None = None
        """The connection that the leader's last word came on."""
        self._doubt: Doubt | None = None
        self._beat: Beat | None = None
        self._beat_at: Millis = 0
        self._succeeded: Millis = 0

    # ---- time ----

    def start(self, now: Millis) -> None:
        """The member has read its files. Who voted for itself may have led in that term, and have lost what it pushed
        before its own disk had it: it must not lead in that term again."""
        self._vote_at = self.heard = now
        if self._member.vote == self._member.self_id:
            self._parsed = Parsed.WAIT_TO_VOTE_NEXT

    def next_deadline(self) -> Millis | None:
        member, config = self._member, self._config
        if member.role is Role.CANDIDATE:
            if self.need_increase:
                return 0
            return self._round.deadline if self._round is not None else self._asks_at
        if member.role is Role.FOLLOWER:
            silent = self.heard + config.silence_ms + 1
            return min(silent, self._doubt.next_at) if self._doubt is not None else silent
        return min(self._beat_at, self._beat.deadline) if self._beat is not None else self._beat_at

    def tick(self, now: Millis) -> None:
        """Do what is due."""
        role = self._member.role
        if role is Role.CANDIDATE:
            self._as_candidate(now)
        elif role is Role.FOLLOWER:
            self._as_follower(now)
        else:
            self._as_leader(now)

    def _next_vote(self, now: Millis, least_spread: Millis = 0) -> Millis:
        config = self._config
        if self._taking:
            low, high = config.min_take_leadership_vote_interval_ms, config.max_take_leadership_vote_interval_ms
        else:
            low, high = config.min_vote_interval_ms, config.max_vote_interval_ms
        return now + low + self._random.randrange(max(1, high - low, least_spread))

    @property
    def _asks_at(self) -> Millis:
        """When a candidate asks for votes next."""
        asked_to_lead = self._member.term_to_take == self._member.term
        return self._vote_at if asked_to_lead else max(self._vote_at, self._yields_until)

    @property
    def _taking(self) -> bool:
        member = self._member
        return member.term_to_take == member.term and member.self_id in self._raft.preferred

    # ---- roles ----

    def to_candidate(self, term: int, now: Millis) -> None:
        """Give up the role; `term` is known to exist."""
        self._doubt = self._beat = None
        self.leader_conn = None
        self._member.become(Role.CANDIDATE, term)

    def to_follower(self, leader: str, now: Millis) -> None:
        """Follow the leader of this term."""
        self._parsed = Parsed.WAIT_TO_REVOTE
        self._round = None
        self.heard = now
        self._member.become(Role.FOLLOWER, self._member.term, leader)

    def _to_leader(self, now: Millis) -> None:
        self._round = None
        self._beat, self._beat_at, self._succeeded = None, now, now
        self._member.become(Role.LEADER, self._member.term, self._member.self_id)

    # ---- the candidate ----

    def _as_candidate(self, now: Millis) -> None:
        if self.need_increase:
            self._round = None
        if self._round is not None:
            if now >= self._round.deadline:
                self._parse(self._round, now)
            return
        if not self.need_increase and now < self._asks_at:
            return
        member, log = self._member, self._log
        if self.need_increase or self._parsed is Parsed.WAIT_TO_VOTE_NEXT:
            member.next_term()
            self._parsed = Parsed.WAIT_TO_REVOTE
            if self.need_increase:
                self.need_increase = False
                asked_to_lead = member.term_to_take == member.term  # nobody else wants to
                self._vote_at = now if asked_to_lead else self._next_vote(now)
                self._raft.after_save(lambda now: None)
                return
        config = self._config
        limit = min(MAX_ROUND_MS, max(4 * config.max_vote_interval_ms, config.silence_ms, ROUND_SYNCS * self._sync_ms))
        limit += self._random.randrange(config.max_vote_interval_ms)
        self._rounds += 1
        this = self._round = Round(self._rounds, member.term, now + limit, log.end, log.end_term)
        own, term = self.vote_for(self._request(member.self_id), now, own=True)
        this.count(own, term)
        if self._round is not this:
            return
        number = this.number
        self._raft.after_save(lambda now: self._ask(number, now))

    def _request(self, peer: str) -> VoteRequest:
        member, log = self._member, self._log
        return VoteRequest(
            group=member.group, remote_id=peer, local_id=member.self_id, leader_id=member.self_id, term=member.term,
            ledger_end_index=log.end, ledger_end_term=log.end_term,
        )  # fmt: skip

    def _ask(self, number: int, now: Millis) -> None:
        """Our own vote is durable: ask the others for theirs."""
        this = self._round
        if this is None or this.number != number:
            return
        if self._member.vote == self._member.self_id:
            self._raft.on_vote(this.term, self._member.self_id)
        for peer in self._member.others:

            def answered(reply: VoteResponse | None, now: Millis) -> None:
                if self._round is not this or self._member.role is not Role.CANDIDATE:
                    return
                this.count(
                    reply.vote_result if reply is not None else Vote.UNKNOWN, reply.term if reply is not None else -1
                )
                if this.is_settled(self._member.quorum, len(self._member.peers)):
                    self._parse(this, now)

            self._raft.call(peer, DLedgerRequest.VOTE, self._request(peer), VoteResponse, answered)
        if this.is_settled(self._member.quorum, len(self._member.peers)):
            self._parse(this, now)

    def _parse(self, this: Round, now: Millis) -> None:
        """Read the votes (dledger.md §4.4): the first row that fits."""
        self._round = None
        member, config = self._member, self._config
        if member.role is not Role.CANDIDATE or member.term != this.term:
            return
        quorum = member.quorum
        if this.max_term > this.term:
            parsed, at = Parsed.WAIT_TO_VOTE_NEXT, self._next_vote(now, SPLIT_SPREAD * self._sync_ms)
            self.to_candidate(this.max_term, now)
        elif this.has_leader:
            parsed, at = Parsed.WAIT_TO_REVOTE, self._next_vote(now) + config.silence_ms
        elif this.valid < quorum:
            parsed, at = Parsed.WAIT_TO_REVOTE, self._next_vote(now)
        elif this.valid - this.bigger_ledger < quorum:
            parsed, at = Parsed.WAIT_TO_REVOTE, self._next_vote(now) + config.max_vote_interval_ms
        elif this.accepted >= quorum:
            parsed, at = Parsed.PASSED, now
        elif this.accepted + this.not_ready >= quorum:
            parsed, at = Parsed.REVOTE_IMMEDIATELY, now + PAUSE_MS
        else:  # split: of two who ask again one has to be ahead by what its own vote takes to be kept
            parsed, at = Parsed.WAIT_TO_VOTE_NEXT, self._next_vote(now, SPLIT_SPREAD * self._sync_ms)
        self._parsed, self._vote_at = parsed, at
        self._raft.note("info", f"votes in term {this.term}: {this.accepted} of {len(member.peers)}: {parsed.value}")
        if parsed is Parsed.PASSED:
            self._to_leader(now)

    # ---- to vote ----

    def vote_for(self, request: VoteRequest, now: Millis, *, own: bool = False) -> tuple[str, int]:
        """A vote (dledger.md §4.2, the first row that fits): the result, and the term in the answer. An ACCEPT leaves
        when it is kept."""
        member, log = self._member, self._log
        candidate = request.leader_id or ""
        if candidate not in member.peers:
            return Vote.UNKNOWN_LEADER, member.term
        if not own and candidate == member.self_id:
            return Vote.UNEXPECTED_LEADER, member.term
        if request.ledger_end_term < log.end_term:
            return Vote.EXPIRED_LEDGER_TERM, member.term
        if request.ledger_end_term == log.end_term and request.ledger_end_index < log.end:
            return Vote.SMALL_LEDGER_END_INDEX, member.term
        if request.term < member.term:
            return Vote.EXPIRED_VOTE_TERM, member.term
        if request.term == member.term:
            if member.vote is not None and member.vote != candidate:
                known = member.leader is not None
                return Vote.ALREADY_HAS_LEADER if known else Vote.ALREADY_VOTED, member.term
        else:
            term = member.term
            self.to_candidate(request.term, now)
            self.need_increase = True
            self.yield_to_others(now)
            return Vote.TERM_NOT_READY, term
        if request.term < log.end_term:
            return Vote.TERM_SMALL_THAN_LEDGER, log.end_term
        if not own and self._taking and request.ledger_end_term == log.end_term and log.end >= request.ledger_end_index:
            return Vote.TAKING_LEADERSHIP, member.term
        member.vote = candidate
        if not own:
            self.yield_to_others(now)
        return Vote.ACCEPT, member.term

    @property
    def _sync_ms(self) -> Millis:
        """What others' disks may take to keep a vote, as far as ours tells."""
        return min(self._raft.sync_ms, MAX_SYNC_MS)

    def yield_to_others(self, now: Millis) -> None:
        """Give a candidate time to lead."""
        self._yields_until = now + YIELD_MS + 3 * self._sync_ms

    # ---- the leader ----

    def _as_leader(self, now: Millis) -> None:
        beat, config = self._beat, self._config
        if beat is not None and now >= beat.deadline:
            self._end_beat(beat, now)
        member = self._member
        if member.role is not Role.LEADER or now < self._beat_at:
            return
        interval = config.heart_beat_time_interval_ms
        self._beat_at = now + interval
        number = self._beat.number + 1 if self._beat is not None else 1
        this = self._beat = Beat(number, member.term, now + max(1, interval - 10))
        for peer in member.others:

            def answered(reply: HeartBeatResponse | None, now: Millis, peer: str = peer) -> None:
                self._beat_answered(this, peer, reply, now)

            request = HeartBeatRequest(
                group=member.group, remote_id=peer, local_id=member.self_id, leader_id=member.self_id, term=member.term
            )
            self._raft.call(peer, DLedgerRequest.HEART_BEAT, request, HeartBeatResponse, answered)
        if not member.others:
            self._succeeded = now

    def _beat_answered(self, beat: Beat, peer: str, reply: HeartBeatResponse | None, now: Millis) -> None:
        member = self._member
        if not member.is_leader or member.term != beat.term:
            return
        member.live[peer] = reply is not None
        beat.answered += 1
        if reply is not None:
            if reply.code == Code.EXPIRED_TERM and reply.term > member.term:
                self._raft.note("warning", f"{peer} is in term {reply.term}, we lead in {member.term}: no longer")
                self.to_candidate(reply.term, now)
                self.need_increase = True
                return
            if reply.code == Code.SUCCESS:
                beat.succeeded += 1
                if beat.succeeded >= member.quorum:
                    self._succeeded = now
            beat.not_ready += reply.code == Code.TERM_NOT_READY
            beat.inconsistent |= reply.code == Code.INCONSISTENT_LEADER
        if beat is self._beat and beat.answered >= len(member.peers):
            self._end_beat(beat, now)

    def _end_beat(self, beat: Beat, now: Millis) -> None:
        """All have answered, or their time is up."""
        member, config = self._member, self._config
        beat.deadline = self._beat_at + 1
        if beat.succeeded >= member.quorum:
            return
        if beat.succeeded + beat.not_ready >= member.quorum:
            self._beat_at = min(self._beat_at, now + PAUSE_MS)
        elif beat.inconsistent:
            self.to_candidate(member.term, now)
        elif now - self._succeeded > config.silence_ms:
            self._raft.note("warning", f"no quorum has answered for {now - self._succeeded} ms: we lead no longer")
            self.to_candidate(member.term, now)

    # ---- the follower ----

    def heart_beat(self, request: HeartBeatRequest, conn: int, now: Millis) -> tuple[int, int]:
        """A leader's heartbeat: code and term of the answer."""
        member, leader = self._member, request.leader_id or ""
        if leader not in member.peers:
            return Code.UNKNOWN_MEMBER, member.term
        if leader == member.self_id:
            return Code.UNEXPECTED_MEMBER, member.term
        if request.term < member.term:
            return Code.EXPIRED_TERM, member.term
        if request.term > member.term:
            self.to_candidate(request.term, now)
            self.need_increase = True
            return Code.TERM_NOT_READY, -1
        if member.leader is None:
            self.to_follower(leader, now)
        elif member.leader != leader:
            return Code.INCONSISTENT_LEADER, -1
        self.hear(conn, now)
        return Code.SUCCESS, -1

    def hear(self, conn: int, now: Millis) -> None:
        """The leader has said something on a connection."""
        self.heard, self.leader_conn, self._doubt = now, conn, None

    def _as_follower(self, now: Millis) -> None:
        member = self._member
        if now - self.heard > self._config.silence_ms:
            self._raft.note("warning", f"leader {member.leader} has been silent for {now - self.heard} ms")
            self.to_candidate(member.term, now)
            return
        doubt = self._doubt
        if doubt is not None and now >= doubt.next_at:
            self._ask_others(doubt, now)

    # ---- doubt ----

    @property
    def hears(self) -> bool:
        """Do we hear the leader that we follow?"""
        return self._member.is_leader or (self._member.role is Role.FOLLOWER and self._doubt is None)

    def closed(self, conn: int, now: Millis) -> None:
        """A connection is gone: was it the leader's?"""
        member = self._member
        if member.role is Role.FOLLOWER and conn == self.leader_conn and member.leader is not None:
            self.leader_conn = None
            self._doubt = Doubt(member.term, member.leader, next_at=now)

    def _ask_others(self, doubt: Doubt, now: Millis) -> None:
        member = self._member
        if doubt.asked >= MAX_DOUBTS:
            doubt.next_at = self.heard + self._config.silence_ms + 1
            return
        doubt.next_at = now + min(DOUBT_MS, FIRST_DOUBT_MS << doubt.asked)
        doubt.asked += 1
        for peer in member.others:

            def answered(reply: MetadataResponse | None, now: Millis, peer: str = peer) -> None:
                self._doubt_answered(doubt, peer, reply, now)

            request = MetadataRequest(group=member.group, remote_id=peer, local_id=member.self_id, wants_status=True)
            self._raft.call(peer, DLedgerRequest.METADATA, request, MetadataResponse, answered)

    def _doubt_answered(self, doubt: Doubt, peer: str, reply: MetadataResponse | None, now: Millis) -> None:
        member = self._member
        if doubt is not self._doubt or member.role is not Role.FOLLOWER or member.term != doubt.term:
            return
        if peer == doubt.leader and reply is not None and reply.leader_id == peer:
            self._raft.note("info", f"leader {peer} answers: only its connection was gone")
            self._doubt, self.heard = None, max(self.heard, now - self._config.heart_beat_time_interval_ms)
            return
        if peer == doubt.leader or (reply is not None and (reply.hears is False or reply.leader_id != doubt.leader)):
            doubt.deaf.add(peer)  # the leader, too: it is gone, or leads no more
            end = (reply.status or {}).get("end") if reply is not None else None
            doubt.ends[peer] = end if isinstance(end, int) else -1
        elif reply is not None:
            doubt.deaf.discard(peer)
        # of those who could elect another one; the leader itself does not count
        heirs = doubt.deaf - {doubt.leader}
        if doubt.leader in doubt.deaf and len(heirs) + 1 >= member.quorum:
            self._raft.note("warning", f"leader {doubt.leader} is gone: {len(doubt.deaf)} others don't hear it either")
            self.to_candidate(member.term, now)
            self._parsed = Parsed.WAIT_TO_VOTE_NEXT
            ours = -self._log.end, member.self_id
            before = sum((-doubt.ends[heir], heir) < ours for heir in heirs)
            turn = max(MIN_TURN_MS, self._config.min_vote_interval_ms // 4, 2 * self._sync_ms)
            self._vote_at = now + before * turn + self._random.randrange(max(1, before * turn // 2))
