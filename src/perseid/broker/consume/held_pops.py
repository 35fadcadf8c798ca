"""Long polling of POP: who found nothing waits here until a message arrives that it may pop.

Any member of a group may pop any message, so one arrival wakes one of them: the one that waits longest. It is handled
again in the same turn; what it leaves, it wakes the next one for (`more`). Who finds nothing again waits on, until its
own deadline. Pops and notifications (code 54) wait side by side: a notification takes nothing, so it lets one more
wake.

    waiting → ready (a message came, or its time is up) → handled again, and answered or waiting again
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perseid.base.machine import Buffer, ConnId, Millis
from perseid.broker.kernel.request import Request
from perseid.store.consume_queue import UNIT
from perseid.wire import pop

if TYPE_CHECKING:
    from perseid.broker.consume.held_pulls import Arrival, Holds

MAX_HELD = 100_000
"""Of all groups (maxPopPollingSize)."""
MAX_HELD_OF_QUEUE = 1_024
"""Of one topic, group and queue (popPollingSize)."""
MAX_STALE = 1_024
"""Deadlines of requests that wait no longer, before they are swept out."""
ALL_QUEUES = -1


@dataclass(slots=True, order=True)
class Held:
    """One waiting request."""

    deadline: Millis
    number: int
    request: Request = field(compare=False)
    members: Members = field(compare=False)
    queue_id: int = field(compare=False)
    wanted: Arrival | None = field(compare=False)
    takes: bool = field(compare=False)
    """It pops; otherwise it only looks."""
    waiting: bool = field(compare=False, default=True)


@dataclass(slots=True, eq=False)
class Members:
    """Those of one group that wait for one topic, in the order in which they came."""

    topic: str
    group: str
    held: dict[int, Held] = field(default_factory=dict)
    woken: set[int] = field(default_factory=set)
    """Queues (or −1) that somebody is awake for already."""


class PopWaits:
    """All that waits for something to pop. What is held counts as held in `holds`, which hears of arrivals."""

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self._by_topic: dict[str, dict[str, Members]] = {}
        """Topic, or a retry topic of it → group → who waits."""
        self._by_conn: dict[ConnId, dict[int, Held]] = {}
        self._deadlines: list[Held] = []
        self._ready: list[Held] = []
        self._numbers = 0
        self.count = 0

    def hold(
        self, request: Request, topic: str, group: str, queue_id: int, wanted: Arrival | None, deadline: Millis,
        *, takes: bool,
    ) -> bool:  # fmt: skip
        """Keep a request waiting until `deadline`; False when too many wait."""
        members = self._by_topic.get(topic, {}).get(group)
        if self.count >= MAX_HELD or (members is not None and self._of_queue(members, queue_id) >= MAX_HELD_OF_QUEUE):
            return False
        if members is None:
            members = Members(topic, group)
            for name in _names(topic, group):
                self._by_topic.setdefault(name, {})[group] = members
        self._numbers += 1
        held = Held(deadline, self._numbers, request, members, queue_id, wanted, takes)
        members.held[held.number] = held
        self._by_conn.setdefault(request.conn.id, {})[held.number] = held
        heapq.heappush(self._deadlines, held)
        self.count += 1
        self._holds.count += 1
        if len(self._deadlines) > 2 * self.count + MAX_STALE:
            self._deadlines = [one for one in self._deadlines if one.waiting]
            heapq.heapify(self._deadlines)
        return True

    @staticmethod
    def _of_queue(members: Members, queue_id: int) -> int:
        if len(members.held) < MAX_HELD_OF_QUEUE:  # then there can't be more of one queue
            return len(members.held)
        return sum(one.queue_id == queue_id for one in members.held.values())

    def waits(self, topic: str) -> bool:
        """Does anyone wait for messages of this topic, or of this retry topic?"""
        return topic in self._by_topic

    def polling(self, topic: str, group: str, queue_id: int) -> int:
        """How many wait for a queue, or (−1) for all of them (code 55)."""
        members = self._by_topic.get(topic, {}).get(group)
        return 0 if members is None else sum(one.queue_id == queue_id for one in members.held.values())

    # ---- waking ----

    def arrived(self, topic: str, queue_id: int, queue_offset: int, tag_code: int) -> None:
        """A message came: of each group one that wants it is ready."""
        groups = self._by_topic.get(topic)
        if groups is None:
            return
        for members in list(groups.values()):
            any_queue = topic != members.topic  # a retry topic is popped whichever queue is asked for
            self._wake(members, ALL_QUEUES if any_queue else queue_id, queue_offset, tag_code)

    def units_arrived(self, topic: str, queue_id: int, first: int, units: Buffer) -> None:
        """Messages came to a queue, given as packed units from offset `first` on."""
        if topic in self._by_topic:
            for number, (_, _, tag_code) in enumerate(UNIT.iter_unpack(units), first):
                self.arrived(topic, queue_id, number, tag_code)

    def more(self, topic: str, group: str, queue_id: int = ALL_QUEUES) -> None:
        """There may be something to pop of a queue, or of any one: the next one is to look."""
        members = self._by_topic.get(topic, {}).get(group)
        if members is not None:
            self._wake(members, queue_id, -1, 0)

    def everyone(self) -> None:
        """All are ready: what kept them from popping is over."""
        for groups in list(self._by_topic.values()):
            for members in list(groups.values()):
                for held in list(members.held.values()):
                    self._leave(held)
                    self._ready.append(held)

    def _wake(self, members: Members, queue_id: int, queue_offset: int, tag_code: int) -> None:
        """`queue_offset` −1: whatever it is that came."""
        woken = members.woken
        if ALL_QUEUES in woken or (queue_id >= 0 and queue_id in woken):
            return
        for held in list(members.held.values()):
            if queue_id >= 0 and held.queue_id not in (ALL_QUEUES, queue_id):
                continue
            if queue_offset >= 0 and held.wanted is not None and not held.wanted(tag_code, queue_offset):
                continue
            self._leave(held)
            self._ready.append(held)
            if held.takes:
                woken.add(held.queue_id)
                return

    def take_ready(self, now: Millis) -> list[Request]:
        """The requests to be handled again; those whose time is up may not wait any more."""
        while self._deadlines and (self._deadlines[0].deadline <= now or not self._deadlines[0].waiting):
            held = heapq.heappop(self._deadlines)
            if held.waiting:
                self._leave(held)
                self._ready.append(held)
        if not self._ready:
            return []
        ready, self._ready = self._ready, []
        for held in ready:
            held.members.woken.clear()
            if held.deadline <= now:
                held.request.may_hold = False
        return [held.request for held in ready]

    def connection_closed(self, conn: ConnId) -> None:
        for held in list(self._by_conn.get(conn, {}).values()):
            self._leave(held)
        gone = [held for held in self._ready if held.request.conn.id == conn]
        self._ready = [held for held in self._ready if held.request.conn.id != conn]
        for held in gone:  # what it was woken for, another one may have
            held.members.woken.clear()
            self._wake(held.members, ALL_QUEUES, -1, 0)

    def next_deadline(self) -> Millis | None:
        while self._deadlines and not self._deadlines[0].waiting:
            heapq.heappop(self._deadlines)
        return self._deadlines[0].deadline if self._deadlines else None

    def validate(self) -> None:
        members = {id(one): one for groups in self._by_topic.values() for one in groups.values()}
        assert self.count == sum(len(one.held) for one in members.values()), "held pops are counted"
        assert self.count == sum(len(held) for held in self._by_conn.values()), "each held pop has a connection"
        assert not self._ready, "a ready pop was not answered"

    def _leave(self, held: Held) -> None:
        held.waiting = False
        self.count -= 1
        self._holds.count -= 1
        members = held.members
        del members.held[held.number]
        if not members.held:
            for name in _names(members.topic, members.group):
                groups = self._by_topic[name]
                del groups[members.group]
                if not groups:
                    del self._by_topic[name]
        conn = self._by_conn[held.request.conn.id]
        del conn[held.number]
        if not conn:
            del self._by_conn[held.request.conn.id]


def _names(topic: str, group: str) -> Iterable[str]:
    """The topics that a pop of `topic` looks at."""
    return topic, pop.retry_topic_v1(topic, group), pop.retry_topic_v2(topic, group)
