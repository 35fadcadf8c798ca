"""The follower's side of the log: what a leader pushes (dledger.md §5.3).

    committed ≤ verified ≤ end        verified: up to here our log is that of the leader of this term

`verified` begins at −1 with each leader, and rises by an entry that was compared and found equal, put by a TRUNCATE, or
appended behind a verified end. Nothing beyond it is committed, whatever the leader says (the original believes it); a
leader that calls entries committed which are here, and which we don't know to be its own, is told so, and compares anew
(one of ours: the original does not look at that answer). Nothing at or below the committed index is ever cut: a leader
that wants it has not what was committed, and we stop.

Answers that a leader may count are given when the entries that they stand for are durable. Pushes that come before
their place is there wait for it, at most `maxPushTimeOutMs`; then they are refused, and the leader compares anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from perseid.base.machine import Millis
from perseid.raft.config import RaftConfig
from perseid.raft.log import LogRefused, RaftLog
from perseid.raft.ports import Noting
from perseid.raft.runs import Run, RunPush
from perseid.raft.state import Member, Role
from perseid.wire.dledger import Code, Entry, Push, PushEntryRequest, PushEntryResponse

MAX_WAITING = 2_000
"""Pushes that wait for their place, or for a flush."""
MAX_WAITING_BYTES = 64 << 20

Answer = Callable[[PushEntryResponse], None]


@dataclass(slots=True)
class Waiting:
    """A push that has no place yet."""

    request: PushEntryRequest
    deadline: Millis
    answer: Answer
    bytes: int


@dataclass(slots=True)
class Due:
    """An answer that waits for entries to be durable."""

    index: int
    answer: Answer
    response: PushEntryResponse


class Following(Noting, Protocol):
    """The member whose log follows."""

    @property
    def answerable(self) -> int:
        """Entries up to here may be answered for."""

    @property
    def committed(self) -> int: ...

    def commit(self, index: int) -> None:
        """Entries up to `index` are final."""

    def stop(self, why: str) -> None:
        """Going on would break what was promised."""


class Follower:
    """What a member has of the leader that it follows, or may come to follow."""

    def __init__(self, raft: Following, member: Member, config: RaftConfig, log: RaftLog) -> None:
        self._raft = raft
        self._member = member
        self._config = config
        self._log = log
        self.verified = -1
        self._of: tuple[int, str | None] = (-1, None)
        self._waiting: dict[int, Waiting] = {}
        self._bytes = 0
        self._held: list[Waiting] = []
        """COMPARE, TRUNCATE and COMMIT that came while nothing may be written, or nobody is followed."""
        self._due: list[Due] = []

    # ---- what comes ----

    def push(self, request: PushEntryRequest, now: Millis, answer: Answer) -> None:
        """Take a push in; it is answered at once, later, or (when we follow nobody) never."""
        size = request.body_bytes
        one = Waiting(request, now + self._config.max_push_time_out_ms, answer, size)
        if (
            len(self._waiting) + len(self._held) + len(self._due) >= MAX_WAITING
            or self._bytes + size > MAX_WAITING_BYTES
        ):
            answer(self._response(request, Code.INTERNAL_ERROR))  # no 406: that would say that our entries differ
            return
        if request.type == Push.APPEND:
            first = request.first
            if first is None or (not isinstance(request, RunPush) and not _one_run(request.entries)):
                answer(self._response(request, Code.UNEXPECTED_ARGUMENT))
                return
            if first in self._waiting:
                answer(self._response(request, Code.REPEATED_PUSH))
                return
            self._waiting[first] = one
            self._bytes += size
        else:
            self._held.append(one)
        self.work(now)

    def work(self, now: Millis) -> None:
        """Do what can be done now."""
        while self._member.role is Role.FOLLOWER and not self._log.cutting:
            if self._of != (self._member.term, self._member.leader):
                self._of, self.verified = (self._member.term, self._member.leader), -1
            if self._held:
                self._control(self._held.pop(0), now)
                continue
            if not self._waiting:
                break
            first = min(self._waiting)
            if first > self._log.end + 1:
                break
            self._append(self._forget(first), now)

    def expire(self, now: Millis) -> None:
        """Pushes that waited in vain: refused, so that the leader compares; not answered when we follow nobody."""
        follows = self._member.role is Role.FOLLOWER and not self._log.cutting
        if not self._waiting and not self._held:
            return
        for first in [first for first, one in self._waiting.items() if one.deadline <= now]:
            one = self._forget(first)
            if follows:
                one.answer(self._response(one.request, Code.INCONSISTENT_STATE))
        self._held = [one for one in self._held if one.deadline > now]

    def next_deadline(self) -> Millis | None:
        if not self._waiting and not self._held:
            return None
        return min(one.deadline for one in (*self._waiting.values(), *self._held))

    def _forget(self, first: int) -> Waiting:
        one = self._waiting.pop(first)
        self._bytes -= one.bytes
        return one

    def _forget_all(self) -> None:
        self._waiting.clear()
        self._bytes = 0

    # ---- answers ----

    def _response(self, request: PushEntryRequest, code: int) -> PushEntryResponse:
        log = self._log
        has = log.end >= log.begin
        return PushEntryResponse(
            group=self._member.group, term=request.term, code=code, index=request.first,
            count=request.count, begin_index=log.begin if has else -1, end_index=log.end,
        )  # fmt: skip

    def _accept(self, one: Waiting, index: int) -> None:
        """Answer as soon as entries up to `index` are durable."""
        response = self._response(one.request, Code.SUCCESS)
        if index <= self._raft.answerable:
            one.answer(response)
        else:
            self._due.append(Due(index, one.answer, response))

    def release(self) -> None:
        """Give the answers whose entries are durable now."""
        upto = self._raft.answerable
        ready = [due for due in self._due if due.index <= upto]
        if ready:
            self._due = [due for due in self._due if due.index > upto]
            for due in ready:
                due.answer(due.response)

    def drop(self) -> None:
        """The role has changed: nothing is said any more to whom was followed before."""
        self._due.clear()

    def _refuse(self, one: Waiting, why: str) -> None:
        self._raft.note("debug", f"a push of {one.request.leader_id} in term {one.request.term}: {why}")
        one.answer(self._response(one.request, Code.INCONSISTENT_STATE))

    # ---- what is done ----

    def _stranger(self, request: PushEntryRequest) -> str:
        """Why a push is not from the leader that we follow; "" when it is."""
        member = self._member
        if request.term != member.term:
            return f"we are in term {member.term}"
        return "" if request.leader_id == member.leader else f"we follow {member.leader}"

    def _append(self, one: Waiting, now: Millis) -> None:
        """Entries of which the first has its place in the log, or before: those that are here must be the same."""
        request = one.request
        if why := self._stranger(request):
            return self._refuse(one, why)
        if isinstance(request, RunPush) and self._append_run(one, request.run):
            return
        for entry in request.entries:
            if entry.index > self.verified + 1:
                return self._refuse(one, f"entries {self.verified + 1} to {entry.index - 1} were not compared")
            if entry.index <= self._log.end:
                if not self._has(entry):
                    return self._refuse(one, f"entry {entry.index} is another one here")
            elif why := self._put(entry, request):
                return self._refuse(one, why)
            self.verified = max(self.verified, entry.index)
        self._accept(one, request.entries[-1].index)
        self._commit(request)

    def _append_run(self, one: Waiting, run: Run) -> bool:
        """Put a run of the leader's own term behind what is verified; False when it is not so simple."""
        log, request = self._log, one.request
        if run.index != self.verified + 1 or run.term != request.term or not log.fits(run):
            return False
        try:
            log.extend(run)
        except LogRefused as refused:
            self._raft.note("warning", f"leader {request.leader_id}: {refused}")
            self._refuse(one, str(refused))
            return True
        self.verified = run.last
        self._accept(one, run.last)
        self._commit(request)
        return True

    def _put(self, entry: Entry, request: PushEntryRequest) -> str:
        """Put an entry at the end; why it can't be, "" when it could."""
        log = self._log
        if not log.end_term <= entry.term <= request.term:
            return f"entry {entry.index} of term {entry.term} after one of {log.end_term}"
        try:
            log.put(entry)
        except LogRefused as refused:
            self._raft.note("warning", f"leader {request.leader_id}: {refused}")
            return str(refused)
        return ""

    def _has(self, entry: Entry) -> bool:
        ours = self._log.get(entry.index)
        return ours is not None and ours.same(entry)

    def _control(self, one: Waiting, now: Millis) -> None:
        kind = one.request.type
        if kind == Push.COMMIT:
            ours = not self._stranger(one.request)
            if ours:
                self._commit(one.request)
            end = min(one.request.commit_index, self._log.end)
            unsure = ours and self._raft.committed < end  # it is here, and may be another leader's
            one.answer(self._response(one.request, Code.INCONSISTENT_STATE if unsure else Code.SUCCESS))
        elif kind == Push.COMPARE:
            self._forget_all()
            self._compare(one)
        elif kind == Push.TRUNCATE:
            self._forget_all()
            self._truncate(one, now)
        else:
            one.answer(self._response(one.request, Code.UNEXPECTED_ARGUMENT))

    def _compare(self, one: Waiting) -> None:
        request = one.request
        if len(request.entries) != 1:
            return one.answer(self._response(request, Code.UNEXPECTED_ARGUMENT))
        entry = request.entries[0]
        if request.term != self._member.term:
            return one.answer(self._response(request, Code.INCONSISTENT_TERM))
        if request.leader_id != self._member.leader:
            return one.answer(self._response(request, Code.INCONSISTENT_LEADER))
        if not self._has(entry):
            return one.answer(self._response(request, Code.INCONSISTENT_STATE))
        self.verified = max(self.verified, entry.index)
        self._accept(one, entry.index)
        self._commit(request)

    def _truncate(self, one: Waiting, now: Millis) -> None:
        raft, request = self._raft, one.request
        if len(request.entries) != 1:
            return one.answer(self._response(request, Code.UNEXPECTED_ARGUMENT))
        if why := self._stranger(request):
            return self._refuse(one, why)
        entry, log = request.entries[0], self._log
        if entry.index > log.end + 1 or entry.index < log.begin:
            raft.note(
                "error",
                f"leader {request.leader_id} begins with entry {entry.index}, ours are {log.begin} to {log.end}: what "
                "is between is gone at the leader. Copy a whole member's folder here",
            )
            return self._refuse(one, "a gap")
        keep = self._has(entry)
        if not keep and entry.index > max(log.begin, self.verified + 1):
            return self._refuse(one, f"entries {self.verified + 1} to {entry.index - 1} were not compared")
        # what is committed is the leader's too: to cut it, and to write it again, would only put it at risk
        cut = max(entry.index, raft.committed) + 1 if keep else entry.index
        if cut <= raft.committed:
            raft.stop(
                f"leader {request.leader_id} of term {request.term} wants entries from {cut} on cut, and "
                f"{raft.committed} is committed: what was acknowledged is not in its log. "
                "Compare the members' folders before going on"
            )
            return
        if cut <= log.end:
            raft.note("warning", f"entries {cut} to {log.end} are not those of leader {request.leader_id}: cut off")
            self.verified = min(self.verified, cut - 1)
            try:
                log.cut(cut)
            except OSError as error:  # what is left of the cut is what a crash leaves of one
                raft.stop(f"the log could not be cut at entry {cut}: {error}; restart to recover")
                return
            self._held.insert(0, one)  # what comes in their place is written when they are gone for good
            return
        if not keep and (why := self._put(entry, request)):
            return self._refuse(one, why)
        self.verified = entry.index
        self._accept(one, entry.index)
        self._commit(request)

    def _commit(self, request: PushEntryRequest) -> None:
        """What the leader calls committed, as far as we know that it is ours."""
        index = min(request.commit_index, self.verified)
        if index > self._raft.committed:
            self._raft.commit(index)


def _one_run(entries: list[Entry]) -> bool:
    return all(entry.index == entries[0].index + at for at, entry in enumerate(entries))
