"""Requests that change the replicated state: decided, appended, applied, answered, in this order (controller.md §6).

    waiting (others of its set are under way) → decided → appended → applied → answered

Those of one set go one after the other, for each is decided by what the one before has left; those of different sets go
side by side, and share pushes and flushes.

The answer leaves when the last event is applied here, and says success only when the group says so: an append whose
outcome nobody knows is not one (B25). After such an outcome nothing is decided, until an entry that says nothing is
committed behind it: then it has been applied, or never will be.

A refusal needs no event, and leaves at once: a controller that was deposed and does not know it may refuse for reasons
that are no more. That a broker is unknown is said (`FINAL`) only when an entry that says nothing is committed: whoever
hears it, gives up its id and its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from perseid.base.machine import Millis
from perseid.controller import events
from perseid.controller.commands import Outcome, refused
from perseid.controller.config import ControllerConfig
from perseid.raft.node import Raft
from perseid.wire.codes import ResponseCode
from perseid.wire.dledger import Code, Entry

MAX_WAITING = 10_000
"""Requests that wait for others of their sets; the next is told to come again."""
TIMEOUT_MS = 5_000
"""A request that has waited for so long is not begun: who asked has given up."""
NOT_LEADER = "The controller is not in leader state"
UNKNOWN = "nobody knows whether this has happened: the group did not say so in time; ask again"

Decide = Callable[[], Outcome]
Answer = Callable[[Outcome], None]
NOOP = b""
FINAL = frozenset((ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,))
"""Refusals that somebody acts upon for good."""


@dataclass(slots=True)
class _Write:
    """One request."""

    decide: Decide
    answer: Answer
    deadline: Millis


class Writing(Protocol):
    """The controller that writes."""

    config: ControllerConfig
    now: Millis
    raft: Raft
    touched: bool
    """The member has something to do in this turn."""

    def lose_track(self, why: str) -> None:
        """The outcome of an entry is unknown."""


@dataclass(slots=True)
class Writes:
    """Those under way."""

    controller: Writing
    count: int = 0
    """Of those that wait."""
    _sets: dict[str, deque[_Write]] = field(default_factory=dict)
    """Of each set with a request under way: those that wait for it."""
    _number: int = 0
    """Of our time as the active controller: outcomes of an earlier one are of no use."""

    def submit(self, name: str, decide: Decide, answer: Answer) -> None:
        """A request about a set; `answer` is called once, in this turn or in a later one."""
        waiting = self._sets.get(name)
        if waiting is None:
            self._begin(name, _Write(decide, answer, 0))
        elif self.count >= MAX_WAITING:
            answer(refused(ResponseCode.SYSTEM_BUSY, f"{MAX_WAITING} requests wait already; ask again later"))
        else:
            self.count += 1
            waiting.append(_Write(decide, answer, self.controller.now + TIMEOUT_MS))

    def read(self, decide: Decide, answer: Answer) -> None:
        """A request that changes nothing: answered at once, or (isProcessReadEvent) when we have been seen to lead
        since it came."""
        if not self.controller.config.is_process_read_event:
            answer(decide())
            return
        number = self._number

        def done(code: int, entry: Entry) -> None:
            if code == Code.SUCCESS and number == self._number:
                answer(decide())
            else:
                answer(refused(ResponseCode.SYSTEM_ERROR, UNKNOWN))

        code = self.controller.raft.append(NOOP, done)
        if code != Code.SUCCESS:
            answer(not_taken(code))
        self.controller.touched = True

    def _confirm(self, name: str, write: _Write) -> None:
        """Decide again when we have been seen to lead; others of the set wait."""
        self._sets.setdefault(name, deque())
        number = self._number

        def done(code: int, entry: Entry) -> None:
            if number != self._number or code != Code.SUCCESS:
                write.answer(refused(ResponseCode.SYSTEM_ERROR, UNKNOWN))
                if number == self._number:
                    self._next(name)
            else:
                self._begin(name, write, confirmed=True)

        code = self.controller.raft.append(NOOP, done)
        self.controller.touched = True
        if code != Code.SUCCESS:
            write.answer(not_taken(code))
            self._next(name)

    def _begin(self, name: str, write: _Write, *, confirmed: bool = False) -> None:
        """Decide and append, with nothing else of this set under way. `confirmed`: we lead."""
        outcome = write.decide()
        if not outcome.events:
            if outcome.reply.code in FINAL and not confirmed:
                self._confirm(name, write)
                return
            write.answer(outcome)
            if confirmed:
                self._next(name)
            return
        self._sets.setdefault(name, deque())
        raft, number, left = self.controller.raft, self._number, len(outcome.events)

        def done(code: int, entry: Entry) -> None:
            nonlocal left
            if left == 0:
                return
            left = left - 1 if code == Code.SUCCESS else 0
            if code != Code.SUCCESS:
                write.answer(refused(ResponseCode.SYSTEM_ERROR, UNKNOWN))
                if number == self._number:
                    self.controller.lose_track(f"an entry about {name} ended with {code}")
            elif left == 0:
                write.answer(outcome)
                if number == self._number:
                    self._next(name)

        code: int = Code.SUCCESS if raft.has_room(left) else Code.LEADER_PENDING_FULL
        taken = 0
        for event in outcome.events:
            code = raft.append(events.encode(event), done) if code == Code.SUCCESS else code
            taken += code == Code.SUCCESS
        self.controller.touched = True
        if code == Code.SUCCESS:
            return
        left = 0
        write.answer(not_taken(code))
        if taken:
            self.controller.lose_track(f"only {taken} entries about {name} were taken")
        else:
            self._next(name)

    def _next(self, name: str) -> None:
        """The request under way has ended: those that waited for it may begin, up to the first that writes."""
        waiting = self._sets.pop(name, None)
        while waiting and name not in self._sets:
            write = waiting.popleft()
            self.count -= 1
            if self.controller.now > write.deadline:
                write.answer(refused(ResponseCode.SYSTEM_ERROR, f"not begun within {TIMEOUT_MS} ms"))
            else:
                self._begin(name, write)
        if waiting:
            self._sets[name].extend(waiting)

    def stop(self) -> None:
        """We are not the active controller any more: those that wait are told so; what is under way ends when the
        member says how."""
        self._number += 1
        sets, self._sets, self.count = self._sets, {}, 0
        for waiting in sets.values():
            for write in waiting:
                write.answer(refused(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER))

    def validate(self) -> None:
        """AssertionError when the state contradicts itself."""
        assert self.count == sum(map(len, self._sets.values())), f"{self.count} wait"


def not_taken(code: int) -> Outcome:
    """The answer when the group's log did not take an entry."""
    if code in (Code.NOT_LEADER, Code.LEADER_TRANSFERRING):
        return refused(ResponseCode.CONTROLLER_NOT_LEADER, NOT_LEADER)
    busy = code in (Code.LEADER_PENDING_FULL, Code.LEADER_NOT_READY)
    return refused(
        ResponseCode.SYSTEM_BUSY if busy else ResponseCode.SYSTEM_ERROR,
        f"the group's log does not take more now (DLedger code {code}); ask again",
    )
