"""The order of queues, as their readers see it.

- a place never changes its value: what was acknowledged there or read there is what is read there later;
- a pull answers consecutive offsets from where it began, never beyond the maximum that it names;
- a queue's maximum never falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from perseid.sim.facts import LOOSE, Place, QueueKey, Stored
from perseid.sim.promises import Violation
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.pull import PullMessageResponse
from perseid.wire.record import Record


class QueueOrder:
    """Which message stands where, and how long the queues are."""

    def __init__(self) -> None:
        self.acked: dict[Place, Stored] = {}
        """As producers were told."""
        self.read: dict[Place, Stored] = {}
        """As readers saw it."""
        self._max_offsets: dict[QueueKey, int] = {}

    # ---- places ----

    def acknowledged(self, place: Place, stored: Stored) -> None:
        """A producer was told where its message is."""
        sent = stored.sent
        if sent.queue_id not in (-1, place.queue_id):
            raise Violation("right queue", f"{sent} was sent to queue {sent.queue_id} and acknowledged at {place}")
        self._put(place, stored)
        before = self.acked.setdefault(place, stored)
        before.sure = before.sure or stored.sure
        self.saw_max(place.topic, place.queue_id, place.offset + 1, 0)

    def was_read(self, place: Place, stored: Stored) -> None:
        """A reader was given it there."""
        self._put(place, stored)
        self.read.setdefault(place, stored)

    def forget(self, places: Iterable[Place], *, lost: bool) -> None:
        """These places are gone; `lost`: with a power cut, so that others may take them."""
        for place in places:
            for table in (self.acked, self.read):
                stored = table.pop(place, None)
                if stored is not None and lost:
                    stored.sent.places.discard(place)

    def _put(self, place: Place, stored: Stored) -> None:
        for table in (self.acked, self.read):
            before = table.get(place)
            if before is not None and (before.sent is not stored.sent or before.physical != stored.physical):
                raise Violation(
                    "a place never changes",
                    f"{place}: {before.sent} at {before.physical}, now {stored.sent} at {stored.physical}",
                )
        stored.sent.places.add(place)

    # ---- pulls ----

    def pulled(
        self,
        topic: str,
        queue_id: int,
        asked: int,
        records: Sequence[Record],
        following: int,
        *,
        all_tags: bool,
        log_start: int,
    ) -> None:
        """A pull from `asked` on was answered with these records and the next offset to ask for. What retention
        took away meanwhile (the log begins at `log_start`) may be left out."""
        expected = asked
        for record in records:
            where = f"{topic}/{queue_id}"
            if record.queue_id != queue_id or record.topic != topic:
                raise Violation("right queue", f"a pull of {where} answered {record.topic}/{record.queue_id}")
            if record.queue_offset < expected:
                raise Violation("offsets ascend", f"{where}: {record.queue_offset} after {expected}")
            if all_tags:
                self._left_out(topic, queue_id, expected, record.queue_offset, log_start)
            expected = record.queue_offset + 1
        if records and (following < expected or (all_tags and following != expected)):
            raise Violation("offsets are contiguous", f"{topic}/{queue_id}: next is {following}, read up to {expected}")

    def _left_out(self, topic: str, queue_id: int, begin: int, end: int, log_start: int) -> None:
        """Messages were left out of an answer: they have to be old ones."""
        for offset in range(begin, end):
            place = Place(topic, queue_id, offset)
            stored = self.acked.get(place) or self.read.get(place)
            if not log_start or (stored is not None and stored.physical >= log_start):
                raise Violation("offsets are contiguous", f"{place} is left out; the log begins at {log_start}")

    # ---- maxima ----

    def known_max(self, topic: str, queue_id: int) -> int:
        """A queue's maximum as far as any client knows: what a request that begins now must be told at least."""
        return self._max_offsets.get((topic, queue_id), 0)

    def saw_max(self, topic: str, queue_id: int, offset: int, floor: int) -> None:
        """A maximum was named, to a request that began when `floor` was known."""
        if topic.startswith(LOOSE):
            return
        known = self._max_offsets.get((topic, queue_id), 0)
        if offset < min(floor, known):
            raise Violation("the maximum never falls", f"{topic}/{queue_id}: {offset} after {floor}")
        self._max_offsets[topic, queue_id] = max(known, offset)

    def recovered(self, max_of: Callable[[str, int], int]) -> list[QueueKey]:
        """A start has recovered the queues: their maxima may fall by what was lost only. Those that lost something."""
        known: dict[QueueKey, int] = {}
        for table in (self.acked, self.read):
            for place in table:
                key = place[:2]
                known[key] = max(known.get(key, 0), place.offset + 1)
        for (topic, queue_id), offset in known.items():
            high = max_of(topic, queue_id)
            if high < offset:
                raise Violation("the maximum never falls", f"{topic}/{queue_id}: {high} after {offset}")
        fallen = [key for key, before in self._max_offsets.items() if known.get(key, 0) < before]
        self._max_offsets = {key: known.get(key, 0) for key in self._max_offsets}
        return fallen


def check_bounds(topic: str, queue_id: int, asked: int, header: PullMessageResponse, code: int) -> None:
    """A pull's answer names the bounds of its queue."""
    if header.next_begin_offset > max(header.max_offset, asked):
        raise Violation(
            "never past the maximum", f"{topic}/{queue_id}: next {header.next_begin_offset} of {header.max_offset}"
        )
    if header.min_offset > header.max_offset:
        raise Violation("min ≤ max", f"{topic}/{queue_id}: {header.min_offset} > {header.max_offset}")
    if code == ResponseCode.PULL_OFFSET_MOVED and header.min_offset <= asked < header.max_offset:
        raise Violation("an offset that is there is served", f"{topic}/{queue_id}: moved from {asked}")
