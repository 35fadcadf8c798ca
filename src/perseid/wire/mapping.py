"""Static topics: which queues of which brokers a topic's logical queues are made of.

A static topic has as many *logical queues* as it was given, whatever brokers come and go. Each is a list of *items*,
the oldest first; an item is a whole queue of one broker's (a *physical* one), and says at which logical offset it
begins. The last item's broker is the queue's leader: it alone takes messages, and answers for the others. While a
queue is being moved, its last item has no logical offset yet (-1, *undecided*): what is stored there is read once it
has one.

    logical    0 ──────── 731 ···gap··· 10000 ──────────>
    items      broker-a queue 2         broker-b queue 0

Between two items there is a gap: the next one begins at a rounded offset well behind the end of the one before.

Sources: LogicQueueMappingItem, TopicQueueMappingDetail, TopicQueueMappingInfo, TopicQueueMappingUtils.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from perseid.wire.body import Body
from perseid.wire.headers.base import Int, Long

GLOBAL_SCOPE = "__global__"
MOCK_PREFIX = "__syslo__"
NO_BROKER = MOCK_PREFIX + "none__"
"""The leader of a logical queue that no broker leads."""
MAX_LOGICAL_QUEUES = 65_536
"""Of one topic."""


class LogicQueueMappingItem(Body):
    """A physical queue that is a part of a logical one. `end_offset` (exclusive) and the times are reserved: -1."""

    gen: Int = 0
    queue_id: Int = 0
    bname: str = ""
    logic_offset: Long = 0
    start_offset: Long = 0
    end_offset: Long = -1
    time_of_start: Long = -1
    time_of_end: Long = -1

    @property
    def decided(self) -> bool:
        """Does it have a place in the logical queue yet?"""
        return self.logic_offset >= 0

    @property
    def ended(self) -> bool:
        return self.end_offset > self.start_offset

    def logical(self, offset: int) -> int:
        """The logical offset of a physical one; -1 while that is undecided."""
        if not self.decided:
            return -1
        if self.ended:
            offset = min(offset, self.end_offset)
        return self.logic_offset + max(0, offset - self.start_offset)

    def physical(self, offset: int) -> int:
        """The physical offset of a logical one; outside the item's bounds when that is."""
        return offset - self.logic_offset + self.start_offset

    @property
    def least_end(self) -> int:
        """The logical offset up to which it goes at least, as far as the mapping knows."""
        return self.logic_offset + (self.end_offset - self.start_offset if self.ended else 0)

    @property
    def delta(self) -> int:
        """What a reader adds to the offsets of this item's messages."""
        return self.logic_offset - self.start_offset


class TopicQueueMappingInfo(Body):
    """What a broker tells name servers of a static topic: `curr_id_map` is logical → physical id of the queues that it
    leads."""

    topic: str = ""
    scope: str = GLOBAL_SCOPE
    total_queues: Int = 0
    bname: str = ""
    epoch: Long = 0
    dirty: bool = False
    curr_id_map: dict[Int, Int] = msgspec.field(default_factory=dict)


class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """What a broker knows of a static topic: the items of the queues that it leads, and of those that it led."""

    hosted_queues: dict[Int, list[LogicQueueMappingItem]] = msgspec.field(default_factory=dict)

    def leads(self, queue_id: int) -> bool:
        items = self.hosted_queues.get(queue_id)
        return items[-1].bname == self.bname if items else False

    def info(self) -> TopicQueueMappingInfo:
        """What name servers are told."""
        led = {i: items[-1].queue_id for i, items in sorted(self.hosted_queues.items()) if self.leads(i)}
        return TopicQueueMappingInfo(
            self.topic, GLOBAL_SCOPE, self.total_queues, self.bname, self.epoch, curr_id_map=led
        )


def find(items: Sequence[LogicQueueMappingItem], offset: int) -> LogicQueueMappingItem | None:
    """The item in which a logical offset is, the first one for those before all; None: none is decided."""
    decided = [item for item in items if item.decided]
    for item in reversed(decided):
        if offset >= item.logic_offset:
            return item
    return decided[0] if decided else None


def following(
    items: Sequence[LogicQueueMappingItem], item: LogicQueueMappingItem
) -> LogicQueueMappingItem | None:
    """The next item, if it is decided."""
    for one in items:
        if one.gen > item.gen:
            return one if one.decided else None
    return None


def items_fault(items: Sequence[LogicQueueMappingItem]) -> str | None:
    """What is wrong with the items of a logical queue, in words; None: nothing."""
    after: LogicQueueMappingItem | None = None
    for item in reversed(items):
        if item.start_offset < 0 or item.gen < 0 or item.queue_id < 0 or not item.bname:
            return "The field is illegal, should not be negative"
        if item.logic_offset < -1 or (after is not None and not item.decided):
            return "The non-latest item has negative logic offset"
        if after is not None and item.gen >= after.gen:
            return "The gen does not increase monotonically"
        if item.end_offset != -1 and item.end_offset < item.start_offset:
            return "The endOffset is smaller than the start offset"
        if after is not None and after.decided and item.least_end >= after.logic_offset:
            return "The logic offset does not increase monotonically"
        after = item
    return None


def change_fault(
    old: Sequence[LogicQueueMappingItem], new: Sequence[LogicQueueMappingItem], *, same_epoch: bool
) -> str | None:
    """Why the items of a logical queue can't take the place of others; None: they can.

    Items may come and go; one that stays is what it was, but for a logical offset that was undecided.
    """
    known = {item.gen: item for item in old}
    for item in new:
        was = known.get(item.gen)
        if was is None:
            continue
        if (was.bname, was.queue_id, was.start_offset) != (item.bname, item.queue_id, item.start_offset):
            return f"gen {item.gen} is queue {was.queue_id} of {was.bname}, and can't become another one"
        if was.decided and was.logic_offset != item.logic_offset:
            return f"gen {item.gen} begins at {was.logic_offset}, and can't begin at {item.logic_offset}"
    if same_epoch and old and (new[-1].gen, new[-1].bname) != (old[-1].gen, old[-1].bname):
        return "The new leader is different but epoch equal"
    return None


# ---- what clients make of a route ----


def mock_broker(scope: str) -> str:
    """What stands for a broker in the name of a logical queue."""
    return MOCK_PREFIX + (scope[2:] if scope == GLOBAL_SCOPE else scope)


def leaders(mappings: Mapping[str, TopicQueueMappingInfo] | None) -> dict[tuple[str, int], str]:
    """The logical queues of a route's `topicQueueMappingByBroker`: (mock broker, id) → its leader's name, `NO_BROKER`
    when nobody leads it. Of two who say that they lead a queue, the one with the later epoch does."""
    infos = sorted((mappings or {}).values(), key=lambda info: info.epoch)
    totals: dict[str, int] = {}
    led: dict[tuple[str, int], str] = {}
    for info in infos:
        mock = mock_broker(info.scope)
        totals[mock] = min(max(totals.get(mock, 0), info.total_queues), MAX_LOGICAL_QUEUES)
        led.update(((mock, queue_id), info.bname) for queue_id in info.curr_id_map)
    return {
        (mock, queue_id): led.get((mock, queue_id), NO_BROKER)
        for mock, total in totals.items()
        for queue_id in range(total)
    }
