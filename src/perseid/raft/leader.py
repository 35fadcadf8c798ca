"""The leader's side of the log: bring each follower to the same entries, and commit what a quorum has (dledger.md §5).

For each follower, and anew in each term:

    COMPARE → APPEND                     the follower's entry is ours, and its last one
    COMPARE → TRUNCATE → APPEND          it has other or more entries: told to cut, and to put ours there
    APPEND  → COMPARE                    a push was refused, or not answered; or the follower does not know that what
                                         is committed is what it has

`watermark` is up to where a follower has said, in this term, that its log is ours and as durable as its mode promises;
−1 before it has said so. Our own is `durable`.

    committed = the highest index that a quorum's watermarks have reached and whose entry is of our own term

Entries of older terms are committed by being before such an entry, never by counting (Raft §5.4.2; the original
counts).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from perseid.base.machine import Millis
from perseid.raft.config import RaftConfig
from perseid.raft.log import LogRefused, RaftLog
from perseid.raft.ports import Asking
from perseid.raft.runs import Run, Text
from perseid.raft.state import Member
from perseid.wire.dledger import Code, DLedgerRequest, Entry, Push, PushEntryRequest, PushEntryResponse

MAX_PUSHES = 1_000
"""Without an answer, to one follower."""
AGAIN_MS = 500
"""After an answer that can't be read in another way."""
LOST_MS = 100
"""After a push that was not answered."""
IDLE_COMMIT_MS = 1_000
"""So often a follower that gets nothing is told what is committed."""
COMMIT_MS = 20
"""So soon, when more is committed than it was told."""


class State(Enum):
    """See above."""

    COMPARE = "compare"
    TRUNCATE = "truncate"
    APPEND = "append"


@dataclass(slots=True)
class Progress:
    """How far one follower is."""

    peer: str
    state: State = State.COMPARE
    index: int = -1
    """To be compared, to be cut at, or the next to be sent. −1: our last one."""
    watermark: int = -1
    begun: int = -1
    """Its watermark when it last began to follow: refused before it has moved, it is given time."""
    number: int = 0
    """Of the present state: answers to pushes of earlier ones don't count."""
    at: Millis = 0
    """Nothing is sent before."""
    asked: bool = False
    """A COMPARE or a TRUNCATE waits for its answer."""
    pushes: int = 0
    bytes: int = 0
    told: int = -1
    """The committed index of the last push."""
    told_at: Millis = 0
    tell_at: Millis = 0

    def turn(self, state: State, index: int, at: Millis) -> None:
        self.state, self.index, self.at = state, index, at
        self.number += 1
        self.asked = False
        self.pushes = self.bytes = 0


@dataclass(slots=True)
class Pending:
    """An append that waits to be committed; or the last one of many, the first of which was `first`."""

    index: int
    deadline: Millis
    done: Callable[[int, Entry], None]
    entry: Entry
    first: int


class Leading(Asking, Protocol):
    """The member that leads."""

    @property
    def leader(self) -> object:
        """The leader that it follows now."""

    @property
    def committed(self) -> int: ...

    def commit(self, index: int) -> None:
        """Entries up to `index` are final."""


@dataclass(slots=True)
class Leader:
    """What a leader knows, in one term. Made anew for each."""

    raft: Leading
    member: Member
    config: RaftConfig
    log: RaftLog
    term: int
    since: Millis
    followers: dict[str, Progress] = field(default_factory=dict)
    pending: deque[Pending] = field(default_factory=deque)
    made: tuple[int, int, Text] | None = None
    """The text that was made last: of the entries from where on, and where the log ended."""

    def __post_init__(self) -> None:
        self.followers = {peer: Progress(peer, at=self.since) for peer in self.member.others}

    # ---- appending ----

    def append(self, body: bytes, now: Millis, done: Callable[[int, Entry], None]) -> int:
        """Put a body into the log; `done` is called with a code when it is committed, or when nobody knows. Any other
        code than SUCCESS: nothing has happened."""
        code = self.may_append
        if code != Code.SUCCESS:
            return code
        empty = self.log.end < self.log.begin
        try:
            entry = self.log.append(self.term, body)
        except LogRefused as refused:
            self.raft.note("warning", f"an append of {len(body)} bytes: {refused}")
            return Code.DISK_FULL
        self._appended(empty, entry.index, entry, now, done)
        return Code.SUCCESS

    def extend(self, run: Run, now: Millis, done: Callable[[int, Entry], None]) -> None:
        """Put many entries into the log, whose room was asked for, when one may append; `done` is called once."""
        log, last = self.log, Entry(run.last, self.term)
        assert run.term == self.term and self.may_append == Code.SUCCESS
        empty = log.end < log.begin
        log.extend(run)
        self._appended(empty, run.index, last, now, done)

    @property
    def may_append(self) -> int:
        """SUCCESS, or why one may not."""
        if self.member.transferee is not None:
            return Code.LEADER_TRANSFERRING
        if self.waiting >= self.config.max_pending_requests_num:
            return Code.LEADER_PENDING_FULL
        return Code.LEADER_NOT_READY if self.log.cutting else Code.SUCCESS

    @property
    def waiting(self) -> int:
        """Appends that wait to be committed."""
        return self.pending[-1].index + 1 - self.pending[0].first if self.pending else 0

    def _appended(
        self, was_empty: bool, first: int, last: Entry, now: Millis, done: Callable[[int, Entry], None]
    ) -> None:
        """The log has grown from entry `first` on."""
        if was_empty:  # they had nothing to compare, and waited
            for progress in self.followers.values():
                progress.at = now
        self.pending.append(Pending(last.index, now + self.config.max_wait_ack_time_ms, done, last, first))

    # ---- committing ----

    def commit(self) -> None:
        """Move the committed index to where a quorum is, and answer what waited for it."""
        raft = self.raft
        own = self.log.durable if self.config.sync_before_answer else self.log.end
        marks = sorted([own, *(p.watermark for p in self.followers.values())], reverse=True)
        index = min(marks[self.member.quorum - 1], self.log.end)
        if index > raft.committed and self.log.term_of(index) == self.term:
            raft.commit(index)
        while self.pending and self.pending[0].index <= raft.committed:
            one = self.pending.popleft()
            one.done(Code.SUCCESS, one.entry)

    def expire(self, now: Millis) -> None:
        """Appends that no quorum had in time: nobody knows what becomes of them."""
        while self.pending and self.pending[0].deadline <= now:
            one = self.pending.popleft()
            one.done(Code.WAIT_QUORUM_ACK_TIMEOUT, one.entry)

    def end(self) -> None:
        """We lead no longer."""
        while self.pending:
            one = self.pending.popleft()
            one.done(Code.TERM_CHANGED, one.entry)

    # ---- pushing ----

    def drive(self, now: Millis) -> None:
        """Send each follower what can be sent now."""
        for progress in self.followers.values():
            if now >= progress.at:
                self._drive(progress, now)

    def next_deadline(self) -> Millis | None:
        first = self.pending[0].deadline if self.pending else None
        for progress in self.followers.values():
            if progress.state is State.APPEND and progress.at <= progress.tell_at:
                due = progress.tell_at
            elif not progress.asked:
                due = progress.at
            else:
                continue
            if first is None or due < first:
                first = due
        return first

    def _drive(self, progress: Progress, now: Millis) -> None:
        log = self.log
        if progress.state is not State.COMPARE and 0 <= progress.index < log.begin:
            progress.turn(State.COMPARE, -1, now)  # what it lacks was removed, by age or because the disk was full
        if progress.state is State.APPEND:
            while self._push_next(progress, now):
                pass
            self._tell(progress, now)
        elif not progress.asked:
            if log.end < log.begin:
                progress.at = now + AGAIN_MS  # there is nothing to be compared
            elif progress.state is State.COMPARE:
                if not log.begin <= progress.index <= log.end:
                    progress.index = log.end
                self._ask(progress, Push.COMPARE)
            else:
                self._ask(progress, Push.TRUNCATE)

    def _request(self, progress: Progress, kind: str, entries: list[Entry]) -> PushEntryRequest:
        member = self.member
        single = entries[0] if len(entries) == 1 else None
        return PushEntryRequest(
            group=member.group, remote_id=progress.peer, local_id=member.self_id, leader_id=member.self_id,
            term=self.term, type=kind, commit_index=self.raft.committed, entry=single, batch_entry=entries if
            len(entries) > 1 else [],
        )  # fmt: skip

    def _ask(self, progress: Progress, kind: str) -> None:
        """A COMPARE or a TRUNCATE, one at a time."""
        entry = self.log.get(progress.index)
        assert entry is not None, f"entry {progress.index} of {self.log.begin} to {self.log.end}"
        progress.asked = True
        number = progress.number

        def answered(reply: PushEntryResponse | None, now: Millis) -> None:
            if not self._current(progress, number):
                return
            if reply is None:
                progress.turn(State.COMPARE, -1, now + LOST_MS)
            elif kind == Push.COMPARE:
                self._compared(progress, reply, now)
            elif reply.code == Code.SUCCESS:
                self._follows(progress, now)
            else:
                progress.turn(State.COMPARE, -1, now + AGAIN_MS)

        self.raft.call(
            progress.peer, DLedgerRequest.PUSH, self._request(progress, kind, [entry]), PushEntryResponse, answered
        )

    def _current(self, progress: Progress, number: int) -> bool:
        return self.raft.leader is self and progress.number == number

    def _compared(self, progress: Progress, reply: PushEntryResponse, now: Millis) -> None:
        """dledger.md §5.1."""
        log, index = self.log, progress.index
        if reply.code == Code.SUCCESS:
            if index == reply.end_index:
                self._follows(progress, now)
            else:
                progress.turn(State.TRUNCATE, index, now)
        elif reply.code != Code.INCONSISTENT_STATE:
            progress.turn(State.COMPARE, -1, now + AGAIN_MS)
        elif reply.end_index < log.begin or reply.begin_index > log.end or index <= max(reply.begin_index, log.begin):
            progress.turn(State.TRUNCATE, log.begin, now)
        else:
            progress.turn(State.COMPARE, min(index - 1, reply.end_index), now)

    def _follows(self, progress: Progress, now: Millis) -> None:
        """The follower's log ends with our entry `index`."""
        index = progress.index
        progress.begun = progress.watermark = max(progress.watermark, index)
        progress.turn(State.APPEND, index + 1, now)
        self.raft.note("info", f"{progress.peer} follows from entry {index + 1}")

    def _push_next(self, progress: Progress, now: Millis) -> bool:
        """One more push, if there is something to send and room for it."""
        log, config = self.log, self.config
        if progress.index > log.end or progress.pushes >= MAX_PUSHES or progress.bytes >= config.push_window_bytes:
            return False
        text = self._text(progress.index)
        last, size, number = progress.index + text.count - 1, text.size, progress.number

        def answered(reply: PushEntryResponse | None, now: Millis) -> None:
            if not self._current(progress, number):
                return
            progress.pushes -= 1
            progress.bytes -= size
            if reply is not None and reply.code == Code.SUCCESS:
                progress.watermark = max(progress.watermark, last)
            elif reply is not None and reply.code == Code.INCONSISTENT_STATE:
                stuck = progress.watermark == progress.begun  # its disk is full, say
                progress.turn(State.COMPARE, -1, now + (AGAIN_MS if stuck else 0))
            else:
                progress.turn(State.COMPARE, -1, now + (LOST_MS if reply is None else AGAIN_MS))

        progress.index = last + 1
        progress.pushes += 1
        progress.bytes += size
        self._told(progress, now)
        request = self._request(progress, Push.APPEND, [])
        body = request.to_json_with(text.json, text.count)
        self.raft.call(progress.peer, DLedgerRequest.PUSH, body, PushEntryResponse, answered)
        return progress.number == number

    def _text(self, index: int) -> Text:
        """The entries from `index` on for a push. All followers that are equally far get the same."""
        log = self.log
        if self.made is None or self.made[:2] != (index, log.end):
            self.made = index, log.end, log.text(index, self.config.push_batch_bytes)
        return self.made[2]

    def _tell(self, progress: Progress, now: Millis) -> None:
        """A follower that gets no entries hears what is committed."""
        news = self.raft.committed > progress.told
        due = progress.told_at + (COMMIT_MS if news else IDLE_COMMIT_MS)
        if now < due:
            progress.tell_at = due
            return
        self._told(progress, now)
        number = progress.number

        def answered(reply: PushEntryResponse | None, now: Millis) -> None:
            unsure = reply is not None and reply.code == Code.INCONSISTENT_STATE
            if unsure and self._current(progress, number) and not progress.pushes:  # it has begun anew, say
                progress.turn(State.COMPARE, -1, now)

        request = self._request(progress, Push.COMMIT, [])
        self.raft.call(progress.peer, DLedgerRequest.PUSH, request, PushEntryResponse, answered)

    def _told(self, progress: Progress, now: Millis) -> None:
        progress.told, progress.told_at = self.raft.committed, now
        progress.tell_at = now + IDLE_COMMIT_MS
