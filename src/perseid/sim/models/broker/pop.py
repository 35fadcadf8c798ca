"""The promises of POP: what is handed out, until when, and what comes again.

A *copy* is a message at a place: of its topic, or, with each time that nobody acknowledged it, of the retry topic. How
often it came before is its *generation* (reconsumeTimes). The checks:

- a copy is handed out once: never again before its time, and after it only as another copy;
- a copy of the next generation comes no earlier than the invisible time of the one before ends, by the broker's clock;
- what was acknowledged in time, with an answer, has no next generation;
- in the end every message that was acknowledged to its sender was acknowledged by the group, too: none is lost.

With ASYNC_FLUSH a power cut may take checkpoints and acks: what was handed out until then may come again. A crash
within a disk call, and a power cut, may fall between a copy in the retry topic and the ack that says so: then there are
two copies of one generation, and what hangs on there being one is not looked at; nor is it when a master that came
back went on with an older offset of the group (`sim/models/broker/acting.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol

from perseid.sim.driver import NodeDriver
from perseid.sim.facts import LOOSE, Sent
from perseid.sim.history import History
from perseid.sim.promises import Violation
from perseid.sim.promises.timers import may_wait
from perseid.wire import pop
from perseid.wire.pop import Handle

GROUP = "poppers"
IN_TIME_MS = 100
"""An ack that is answered so long before the invisible time ends came in time."""

Copy = tuple[str, int, int]


@dataclass(slots=True)
class Delivery:
    """A copy that was handed out."""

    sent: Sent
    topic: str
    """The topic it was popped of."""
    generation: int
    handle: Handle
    clock_ms: int
    """How far the broker's clock was off."""
    doubts: int

    @property
    def visible_at(self) -> int:
        return self.handle.pop_time + self.handle.invisible_time


class Popped(Protocol):
    """The cluster whose broker is popped of."""

    history: History
    broker: NodeDriver

    def log_start(self) -> int:
        """Where the running broker's log begins."""


class PopHistory:
    """What the group knows; fed by its members."""

    def __init__(self, cluster: Popped, topics: Set[str], *, sure: bool) -> None:
        """`topics`: those that are popped of; `sure`: nothing is in doubt after a power cut, or a takeover."""
        self._cluster = cluster
        self._topics = topics
        self._sure = sure
        self._handed: set[Copy] = set()
        self._visible: dict[tuple[bytes, int], tuple[int, int, int]] = {}
        """Value and generation → when its first copy may be followed by the next one, the clock, the doubts."""
        self._acked: set[tuple[bytes, int]] = set()
        """What was acknowledged in time."""
        self._copies: Counter[tuple[bytes, int]] = Counter()
        self.consumed: set[bytes] = set()
        """Values that a member acknowledged, answered or not."""
        self.doubts = 0

    # ---- the broker ----

    def crashed_within(self) -> None:
        """The broker ended in the middle of a turn."""
        self.doubts += 1

    def power_cut(self) -> None:
        """The broker's machine went off, or it goes on with the offsets of another one."""
        self.doubts += 1
        if not self._sure:
            self._handed.clear()
            self._visible.clear()
            self._acked.clear()
            self._copies.clear()

    # ---- members ----

    def handed_out(self, one: Delivery) -> None:
        """A member got a copy."""
        if self._in_doubt(one.doubts):
            return
        copy = pop.real_topic(one.topic, GROUP, one.handle.retry), one.handle.queue_id, one.handle.offset
        name = f"{one.sent} of generation {one.generation}"
        if copy in self._handed:
            raise Violation("a message is handed out once", f"{name} at {copy} was handed out before")
        self._handed.add(copy)
        sent = one.sent
        if sent.attempts != 1 or len(sent.places) > 1 or sent.delayed or self._cluster.history.offsets.takeovers:
            return  # it may be there more than once, also when a crash forgot that a half was committed
        key, before = (sent.value, one.generation), (sent.value, one.generation - 1)
        self._copies[key] += 1
        if self._copies[before] == 1 and self._has_one_copy(before):
            until, clock_ms, _ = self._visible[before]
            if clock_ms == one.clock_ms and one.handle.pop_time < until:
                raise Violation("nothing comes before its time", f"{name}: {one.handle.pop_time}, not before {until}")
            if before in self._acked:
                raise Violation("what is acknowledged does not come again", f"{name}: the one before was acknowledged")
        known = self._visible.get(key)
        at = one.visible_at if known is None else min(known[0], one.visible_at)
        self._visible[key] = at, one.clock_ms, one.doubts

    def _has_one_copy(self, key: tuple[bytes, int]) -> bool:
        """Was the generation handed out that it was made of, and is nothing in doubt since?"""
        value, generation = key
        this, before = self._visible.get(key), self._visible.get((value, generation - 1))
        return this is not None and (generation == 0 or (before is not None and before[2] == this[2]))

    def _in_doubt(self, doubts: int) -> bool:
        """Since then a power cut may have taken what was asked for."""
        return not self._sure and doubts != self.doubts

    def acknowledged(self, one: Delivery, asked: int, broker_ms: int) -> None:
        """An ack was answered; the doubts when it was sent, and the broker's clock now."""
        if self._in_doubt(asked) or self._in_doubt(one.doubts):
            return
        if broker_ms < one.visible_at - IN_TIME_MS and one.clock_ms == self._cluster.broker.clock_ms:
            self._acked.add((one.sent.value, one.generation))

    def put_off(self, one: Delivery, until: int | None) -> None:
        """A copy has another time; None: nobody knows."""
        known = self._visible.get((one.sent.value, one.generation))
        if known is not None:
            self._visible[one.sent.value, one.generation] = until or 0, *known[1:]

    def left(self) -> list[bytes]:
        """Values that were acknowledged to their senders, are there, and that no member acknowledged; of messages for a
        time those whose time is over."""
        history, start, now = self._cluster.history, self._cluster.log_start(), self._cluster.broker.now
        wanted = {
            stored.sent.value
            for place, stored in history.order.acked.items()
            if place.topic in self._topics and not place.topic.startswith(LOOSE) and stored.physical >= start
        }
        for value, stored in history.delayed.items():
            if stored.physical >= start and not may_wait(stored.sent, now):
                wanted.add(value)
        return sorted(wanted - self.consumed)
