"""Long polling: pulls that found nothing wait here until a message arrives or their time is up.

A held pull is *waiting*, then *ready* (a message that it wants arrived), then handled again, once, with
the answer given whatever it is. It leaves early when its connection closes.

The original looks at every held pull each 5 s, because its arrivals are noticed by another thread; here an
append and its notice are one step, so that only arrivals and deadlines wake.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from perseid.base.machine import Buffer, ConnId, Millis
from perseid.broker.consume.filter import Work
from perseid.broker.consume.held_pops import PopWaits
from perseid.broker.kernel.request import Request
from perseid.store.consume_queue import UNIT

MAX_HELD = 200_000
"""Pulls held at once; the next one is answered at once, as if long polling were off."""

MAX_STALE = 1024
"""Deadlines of pulls that are no longer held, before they are swept out."""

Arrival = Callable[[int, int], bool]
"""Does the subscription want a message with this tag code, at this offset of the queue?"""

QueueKey = tuple[str, int]


@dataclass(slots=True, order=True)
class Held:
    """One waiting pull. Ordered by its deadline, then by its age."""

    deadline: Millis
    number: int
    request: Request = field(compare=False)
    key: QueueKey = field(compare=False)
    offset: int = field(compare=False)
    wanted: Arrival | None = field(compare=False)
    waiting: bool = field(compare=False, default=True)


class Holds:
    """All pulls held by one broker, by (topic, queue id)."""

    def __init__(self) -> None:
        self._by_queue: dict[QueueKey, dict[int, Held]] = {}
        self._by_conn: dict[ConnId, dict[int, Held]] = {}
        self._deadlines: list[Held] = []
        self._ready: list[Held] = []
        self._numbers = 0
        self.count = 0
        """Of those that hear of arrivals: pulls, and pops."""
        self.pops = PopWaits(self)
        self.work = Work()
        """What expressions may cost until the turn has ended."""

    def __len__(self) -> int:
        return self.count

    def hold(self, request: Request, key: QueueKey, offset: int, wanted: Arrival | None, deadline: Millis) -> bool:
        """Keep a pull waiting until `deadline`; False when the table is full."""
        if self.count >= MAX_HELD:
            return False
        self._numbers += 1
        held = Held(deadline, self._numbers, request, key, offset, wanted)
        self._by_queue.setdefault(key, {})[held.number] = held
        self._by_conn.setdefault(request.conn.id, {})[held.number] = held
        heapq.heappush(self._deadlines, held)
        self.count += 1
        if len(self._deadlines) > 2 * self.count + MAX_STALE:
            self._deadlines = [held for held in self._deadlines if held.waiting]
            heapq.heapify(self._deadlines)
        return True

    def waits(self, topic: str, queue_id: int) -> bool:
        """Does anyone wait for a message of this queue?"""
        return (topic, queue_id) in self._by_queue or self.pops.waits(topic)

    def arrived(self, topic: str, queue_id: int, queue_offset: int, tag_code: int) -> None:
        """A message came to a queue: those that want it are ready."""
        if self.pops.count:
            self.pops.arrived(topic, queue_id, queue_offset, tag_code)
        self._arrived(topic, queue_id, queue_offset, tag_code)

    def _arrived(self, topic: str, queue_id: int, queue_offset: int, tag_code: int) -> None:
        queue = self._by_queue.get((topic, queue_id))
        if not queue:
            return
        for held in list(queue.values()):
            if queue_offset >= held.offset and (held.wanted is None or held.wanted(tag_code, queue_offset)):
                self._leave(held)
                self._ready.append(held)

    def units_arrived(self, topic: str, queue_id: int, first: int, units: Buffer) -> None:
        """Messages came to a queue, given as packed units from offset `first` on."""
        if self.pops.count:
            self.pops.units_arrived(topic, queue_id, first, units)
        if (topic, queue_id) in self._by_queue:
            for number, (_, _, tag_code) in enumerate(UNIT.iter_unpack(units), first):
                self._arrived(topic, queue_id, number, tag_code)

    def take_ready(self, now: Millis) -> list[Request]:
        """The pulls to be handled again: a message arrived for them, or their time is up. A turn ends with none."""
        while self._deadlines and (self._deadlines[0].deadline <= now or not self._deadlines[0].waiting):
            held = heapq.heappop(self._deadlines)
            if held.waiting:
                self._leave(held)
                self._ready.append(held)
        pops = self.pops.take_ready(now)
        if not self._ready:
            if not pops:
                self.work.begin()
            return pops
        ready, self._ready = self._ready, []
        for held in ready:
            held.request.may_hold = False
        return [held.request for held in ready] + pops

    def connection_closed(self, conn: ConnId) -> None:
        for held in list(self._by_conn.get(conn, {}).values()):
            self._leave(held)
        self._ready = [held for held in self._ready if held.request.conn.id != conn]
        self.pops.connection_closed(conn)

    def next_deadline(self) -> Millis | None:
        while self._deadlines and not self._deadlines[0].waiting:
            heapq.heappop(self._deadlines)
        own, pops = self._deadlines[0].deadline if self._deadlines else None, self.pops.next_deadline()
        return own if pops is None or (own is not None and own < pops) else pops

    def validate(self) -> None:
        self.pops.validate()
        pulls = self.count - self.pops.count
        assert pulls == sum(len(held) for held in self._by_queue.values()), "held pulls are counted"
        assert pulls == sum(len(held) for held in self._by_conn.values()), "each held pull has a connection"
        assert not self._ready, "a ready pull was not answered"

    def _leave(self, held: Held) -> None:
        held.waiting = False
        self.count -= 1
        queue = self._by_queue[held.key]
        del queue[held.number]
        if not queue:
            del self._by_queue[held.key]
        conn = self._by_conn[held.request.conn.id]
        del conn[held.number]
        if not conn:
            del self._by_conn[held.request.conn.id]
