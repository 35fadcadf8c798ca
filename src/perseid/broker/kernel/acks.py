"""Answers that wait until their message is as durable as the mode promises.

States of a waiting answer: waiting → released (the log is flushed up to its end offset) or → late (its
deadline passed first: the original's FLUSH_DISK_TIMEOUT, the message stays stored). Each answer leaves once.

Invariant: end offsets and deadlines never fall along the queue, so both ends of the wait are a prefix.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from perseid.base.machine import ConnId, Millis
from perseid.broker.kernel.request import Reply, Request

MAX_WAITING = 100_000
"""Answers that wait at once. Beyond it the disk is too slow for what comes: sends are refused with 2."""


NOTHING = 1 << 62

GATHER_FROM = 4
"""Messages that wait for other nodes, with those that were last let go: from so many on the next turn had better find
more to do."""
GATHER_US = 50


@dataclass(slots=True)
class Waiting:
    """An answer, and the log offset that has to be durable before it may leave; or, in `frames`, the answers to
    `count` plain sends of one turn, written already."""

    begin_offset: int
    """What is waited for does not begin before it."""
    end_offset: int
    since: Millis
    deadline: Millis
    request: Request | None = None
    reply: Reply | None = None
    frames: Sequence[tuple[ConnId, bytes]] = ()
    """Of each connection."""
    count: int = 1


class Acks:
    """The table of waiting acknowledgements of one broker."""

    def __init__(self, *, for_nodes: bool = False) -> None:
        """`for_nodes`: what they wait for is on other nodes."""
        self.for_nodes = for_nodes
        self._waiting: deque[Waiting] = deque()
        self._count = 0
        self._released = 0
        """Messages that were let go together last."""
        self._turn_began = 0

    def __len__(self) -> int:
        """The messages whose answers wait."""
        return self._count

    @property
    def full(self) -> bool:
        """No further message may be stored that has to wait."""
        return self._count >= MAX_WAITING

    def gathers(self) -> int:
        """How many microseconds to hear nothing: when many answers wait for other nodes, or did a moment ago, what
        comes next should make one turn with what lets them go. Who waits for a way there and back loses little."""
        return GATHER_US if self.for_nodes and self._count + self._released >= GATHER_FROM else 0

    def turn(self, log_end: int) -> None:
        """A turn begins: what it stores comes behind `log_end`."""
        self._turn_began = log_end

    @property
    def begin(self) -> int:
        """No message that is or may yet be waited for begins before it."""
        return self._waiting[0].begin_offset if self._waiting else self._turn_began

    @property
    def awaited(self) -> int:
        """Where the first message ends that somebody waits for; beyond every log, when nobody does."""
        return self._waiting[0].end_offset if self._waiting else NOTHING

    def wait(self, end_offset: int, now: Millis, most_ms: int, request: Request, reply: Reply) -> None:
        """Hold `reply` back until the log is durable up to `end_offset`, for at most `most_ms`."""
        self._add(Waiting(self._turn_began, end_offset, now, now + most_ms, request, reply))

    def wait_frames(
        self, end_offset: int, now: Millis, most_ms: int, frames: Sequence[tuple[ConnId, bytes]], count: int
    ) -> None:
        """The same for the frames that answer `count` plain sends of several connections."""
        self._add(Waiting(self._turn_began, end_offset, now, now + most_ms, frames=frames, count=count))

    def _add(self, one: Waiting) -> None:
        if self._waiting:
            last = self._waiting[-1]
            assert one.end_offset >= last.end_offset, "acknowledgements are asked for in log order"
            one.deadline = max(one.deadline, last.deadline)
        self._waiting.append(one)
        self._count += one.count

    def release(self, flushed: int) -> list[Waiting]:
        """All whose message is durable, now that the log is flushed up to `flushed`."""
        done, before = [], self._count
        while self._waiting and self._waiting[0].end_offset <= flushed:
            done.append(self._waiting.popleft())
            self._count -= done[-1].count
        if done:
            self._released = before - self._count
        return done

    def expire(self, now: Millis) -> list[Waiting]:
        """All whose deadline has passed."""
        late = []
        while self._waiting and self._waiting[0].deadline <= now:
            late.append(self._waiting.popleft())
            self._count -= late[-1].count
        return late

    def give_up(self) -> list[Waiting]:
        """All that wait: nobody knows what becomes of their messages."""
        gone = list(self._waiting)
        self._waiting.clear()
        self._count = 0
        return gone

    def next_deadline(self) -> Millis | None:
        return self._waiting[0].deadline if self._waiting else None

    def validate(self, flushed: int) -> None:
        waiting = self._waiting
        assert self._count == sum(one.count for one in waiting), "what waits is counted"
        assert len(waiting) <= MAX_WAITING, "the table is bounded"
        if waiting:
            assert waiting[0].end_offset > flushed, "an acknowledgement was left behind"
        for one, after in pairwise(waiting):
            assert one.end_offset <= after.end_offset and one.deadline <= after.deadline, "both ends are a prefix"
