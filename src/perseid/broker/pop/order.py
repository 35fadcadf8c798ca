"""POP in order: of each queue a group has one batch at a time (the original's ConsumerOrderInfoManager).

    free → (popped) blocked: the batch is out → (all acknowledged) free, the group's offset behind the batch
    blocked → (the invisible time of what is not acknowledged ends) free: the same messages are popped again

There are no checkpoints: the group's offset stands at the first message that is not acknowledged, so nothing is lost
whatever becomes of this table. It only says until when a queue is blocked, and how often a message was popped before.
It is saved now and then, as the original's file is: after a crash a batch may be popped again before its time.
"""

from __future__ import annotations

import heapq

import msgspec

from perseid.base.machine import Millis
from perseid.broker.kernel.saved_table import SavedTable
from perseid.wire import fastjson, pop
from perseid.wire.headers.base import Int, Long

ORDER_PATH = "config/consumerOrderInfo.json"
MAX_QUEUES = 1_000_000
"""Queues (of all groups) that are popped in order; no further one is."""
FORGET_MS = 24 * 3_600_000
"""A queue that nobody popped for so long is forgotten when the table is saved."""


_NAMES = {
    "pop_time": "popTime",
    "invisible_time": "i",
    "offsets": "o",
    "visible": "ot",
    "counts": "oc",
    "consumed_at": "l",
    "acked": "cm",
    "attempt": "a",
}


class OrderInfo(msgspec.Struct, rename=_NAMES):
    """The batch of one queue that is out, as the file has it."""

    pop_time: Long = 0
    invisible_time: Long | None = None
    offsets: list[Long] = msgspec.field(default_factory=list)
    """The first one, and the others' distances from it."""
    visible: dict[Long, Long] | None = None
    """Of single messages: when they may be seen again."""
    counts: dict[Long, Int] | None = None
    """Of messages that were popped before: how often."""
    consumed_at: Long = 0
    acked: Long = 0
    """Bits, by the place in the batch."""
    attempt: str | None = None

    def all_offsets(self) -> list[int]:
        first = self.offsets[0]
        return [first, *(first + distance for distance in self.offsets[1:])]

    def blocked_until(self) -> Millis:
        """0: all of the batch is acknowledged."""
        until = 0
        for place, offset in enumerate(self.all_offsets() if self.offsets else ()):
            if not self.acked >> place & 1:
                seen = (self.visible or {}).get(offset, self.pop_time + (self.invisible_time or 0))
                until = max(until, seen)
        return until

    def next_offset(self) -> int:
        """Where the group goes on: at the first message that is not acknowledged."""
        offsets = self.all_offsets()
        for place, offset in enumerate(offsets):
            if not self.acked >> place & 1:
                return offset
        return offsets[-1] + 1


class _Saved(SavedTable):
    """The file's form."""

    table: dict[str, dict[int, OrderInfo]] = msgspec.field(default_factory=dict)


Key = tuple[str, str]
"""Topic, group."""


class ConsumeOrder:
    """The queues of one broker that are popped in order. `dirty`: something changed since it was last saved."""

    def __init__(self) -> None:
        self.dirty = False
        self._table: dict[Key, dict[int, OrderInfo]] = {}
        self._free: list[tuple[Millis, str, str, int]] = []
        self._looked_at: dict[tuple[str, str, int], Millis] = {}
        """When a queue is looked at next, whether it has become free by itself."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def _get(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        queues = self._table.get((topic, group))
        return None if queues is None else queues.get(queue_id)

    def blocked(self, topic: str, group: str, queue_id: int, attempt: str | None, now: Millis) -> bool:
        """Is a batch of this queue out? Not for the attempt that has it: a pop whose answer was lost is repeated."""
        info = self._get(topic, group, queue_id)
        if info is None or (info.attempt is not None and info.attempt == attempt):
            return False
        return now < info.blocked_until()

    def popped(
        self, topic: str, group: str, queue_id: int, offsets: list[int], attempt: str | None, now: Millis,
        invisible_time: Millis,
    ) -> list[str] | None:  # fmt: skip
        """A batch is out: what orderCountInfo says of it. None: not now, there are too many queues, or this one was
        popped a moment ago: acks name a batch by its time."""
        old = self._get(topic, group, queue_id)
        if self._count >= MAX_QUEUES if old is None else old.pop_time >= now:
            return None
        first = offsets[0]
        info = OrderInfo(
            pop_time=now, invisible_time=invisible_time, attempt=attempt, consumed_at=now,
            offsets=[first, *(offset - first for offset in offsets[1:])],
        )  # fmt: skip
        if old is not None:
            info.counts = _counts(old, info)
        queues = self._table.setdefault((topic, group), {})
        self._count += queue_id not in queues
        queues[queue_id] = info
        self._blocks(topic, group, queue_id, info)
        counts = info.counts or {}
        parts = [pop.count_info(topic, queue_id, count, offset) for offset, count in counts.items()]
        least = min(counts.values()) if counts and len(counts) == len(offsets) else 0
        return [*parts, pop.count_info(topic, queue_id, least)]

    def acknowledged(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, position: int
    ) -> int | None:
        """A message is consumed: where the group, now at `position`, goes on. None: it is not of the batch that
        is out, or nothing is known of any (a crash, another master) and messages before it are not acknowledged: they
        are popped again, and this one too. (The original passes over them.)"""
        info = self._get(topic, group, queue_id)
        if info is None:
            return offset + 1 if offset == position else None
        if not info.offsets or pop_time != info.pop_time:
            return None
        offsets = info.all_offsets()
        if offset not in offsets:
            return None
        info.acked |= 1 << offsets.index(offset)
        self.dirty = True
        if until := info.blocked_until():  # what is left may be seen before what this one waited for
            self._look((topic, group, queue_id), until)
        return info.next_offset()

    def put_off(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, until: Millis) -> bool:
        """A message of the batch is to be seen again at another time; False: it is not out."""
        info = self._get(topic, group, queue_id)
        if info is None or pop_time != info.pop_time or not info.offsets or offset not in info.all_offsets():
            return False
        if info.visible is None:
            info.visible = {}
        info.visible[offset] = until
        self._blocks(topic, group, queue_id, info)
        return True

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """The group's offset was set: nothing of the queue is out."""
        queues = self._table.get((topic, group), {})
        if queues.pop(queue_id, None) is not None:
            self._count -= 1
            self.dirty = True

    def put_off_all(self, topic: str, group: str, queue_id: int, pop_time: int, until: Millis) -> bool:
        """All of the batch is to be seen again at another time, and this time does not count; False: it is not out."""
        info = self._get(topic, group, queue_id)
        if info is None or pop_time != info.pop_time:
            return False
        info.counts = {offset: count - 1 for offset, count in (info.counts or {}).items() if count > 1} or None
        info.visible = None
        info.invisible_time = until - info.pop_time
        self._blocks(topic, group, queue_id, info)
        return True

    def forget_topics(self, topics: set[str]) -> None:
        """Nothing is out of these any more: they are gone."""
        for key in [key for key in self._table if key[0] in topics]:
            self._count -= len(self._table.pop(key))
            self.dirty = True

    def forget(self) -> None:
        """Nothing is out: this broker is a slave."""
        self._table.clear()
        self._free.clear()
        self._looked_at.clear()
        self._count = 0

    def _blocks(self, topic: str, group: str, queue_id: int, info: OrderInfo) -> None:
        self.dirty = True
        self._look((topic, group, queue_id), info.blocked_until())

    def _look(self, key: tuple[str, str, int], at: Millis) -> None:
        known = self._looked_at.get(key)
        if known is None or at < known:
            self._looked_at[key] = at
            heapq.heappush(self._free, (at, *key))

    def next_deadline(self) -> Millis | None:
        return self._free[0][0] if self._free else None

    def freed(self, now: Millis) -> list[tuple[str, str, int]]:
        """Queues whose time is up."""
        free = []
        while self._free and self._free[0][0] <= now:
            at, topic, group, queue_id = heapq.heappop(self._free)
            if self._looked_at.get((topic, group, queue_id)) != at:
                continue
            del self._looked_at[topic, group, queue_id]
            info = self._get(topic, group, queue_id)
            until = 0 if info is None else info.blocked_until()
            if until > now:
                self._look((topic, group, queue_id), until)
            else:
                free.append((topic, group, queue_id))
        return free

    # ---- the file ----

    def to_json(self, now: Millis) -> bytes:
        """The text of config/consumerOrderInfo.json; what was not popped for a day is left out, and forgotten."""
        for key, queues in list(self._table.items()):
            for queue_id in [q for q, info in queues.items() if now - info.consumed_at > FORGET_MS]:
                del queues[queue_id]
                self._count -= 1
            if not queues:
                del self._table[key]
        table = {f"{topic}@{group}": queues for (topic, group), queues in self._table.items()}
        return fastjson.pretty({"table": table})

    def load(self, text: bytes) -> None:
        """Take up what the file says. StoreError when the text is not such a file."""
        saved = _Saved.read(text, ORDER_PATH)
        for joined, queues in saved.table.items():
            topic, at, group = joined.partition("@")
            if at and topic and group and "@" not in group:
                self._table[topic, group] = queues
                for queue_id, info in queues.items():
                    self._look((topic, group, queue_id), info.blocked_until())
        self._count = sum(map(len, self._table.values()))

    def validate(self) -> None:
        assert self._count == sum(map(len, self._table.values())), "ordered queues are counted"


def _counts(old: OrderInfo, new: OrderInfo) -> dict[int, int]:
    """How often the messages of a new batch were popped before; the repetition of an attempt does not count."""
    before = old.counts or {}
    if old.attempt is not None and old.attempt == new.attempt:
        return before
    known = set(old.all_offsets()) if old.offsets else set()
    return {offset: before.get(offset, 0) + 1 for offset in new.all_offsets() if offset in known}
