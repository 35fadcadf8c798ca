"""Which offsets a batch covers, and how they are cut into Spark partitions. Pure: numbers in, numbers out.

An offset of the source is `{"topic/brokerName/queueId": next offset}`. It only grows, queue by queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from perseid.client.model import MessageQueue

Position = dict[str, int]


def name_of(queue: MessageQueue) -> str:
    """The queue's name in a source offset."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def queue_of(name: str) -> MessageQueue:
    """What `name_of` named: topics and ids hold no `/`."""
    topic, _, rest = name.partition("/")
    broker_name, _, queue_id = rest.rpartition("/")
    return MessageQueue(topic, broker_name, int(queue_id))


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one queue."""

    queue: MessageQueue
    start: int
    end: int


def ranges(start: Mapping[str, int], end: Mapping[str, int]) -> list[Range]:
    """What lies between two source offsets; a queue that is new in `end` begins at 0."""
    result = []
    for name in sorted(end):
        first = start.get(name, 0)
        if first < end[name]:
            result.append(Range(queue_of(name), first, end[name]))
    return result


def split(parts: Iterable[Range], at_least: int) -> list[Range]:
    """Cut ranges, larger ones more often, until there are at least `at_least` (as far as offsets allow)."""
    result = list(parts)
    total = sum(part.end - part.start for part in result)
    if not total or len(result) >= at_least:
        return result
    cut: list[Range] = []
    for part in result:
        size = part.end - part.start
        pieces = min(size, max(1, -(-size * at_least // total)))
        edges = [part.start + size * i // pieces for i in range(pieces + 1)]
        cut.extend(Range(part.queue, a, b) for a, b in pairwise(edges))
    return cut


def advance(start: Mapping[str, int], latest: Mapping[str, int], limit: int | None) -> Position:
    """The end of the next micro-batch: `latest`, or at most `limit` offsets on, shared in proportion to the lag.

    Never behind `start`, also when a queue is gone or lost its end.
    """
    names = sorted({*start, *latest})
    lag = {name: max(0, latest.get(name, 0) - start.get(name, 0)) for name in names}
    total = sum(lag.values())
    end = {name: start.get(name, 0) + lag[name] for name in names}
    if limit is None or total <= limit:
        return end
    share = {name: lag[name] * limit // total for name in names}
    rest = limit - sum(share.values())  # fewer than there are queues with a lag: the fractions that were cut off
    for name in [name for name in names if lag[name] > share[name]][:rest]:
        share[name] += 1
    return {name: start.get(name, 0) + share[name] for name in names}
