"""Which offsets a batch covers, and how they are cut into Spark partitions. Pure: numbers in, numbers out.

An offset of the source is `{"topic/brokerName/queueId": next offset, "topic/brokerName/queueId@": …}`. It grows, queue
by queue; where it shrinks, the queue was begun anew (its topic was deleted and made again), which only
failOnDataLoss=false lets through. A queue that was begun anew may have grown beyond: `@` says when the message before
the next offset was stored (ms), where brokers told that; older checkpoints have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from perseid.base.errors import ConfigError, PerseidError
from perseid.client.model import MessageQueue

Position = dict[str, int]
MARK = "@"
"""Behind a queue's name: when the message before its next offset was stored. No broker's name ends so."""


class DataLost(PerseidError):
    """Offsets that were to be read are gone from the broker."""


def name_of(queue: MessageQueue) -> str:
    """The queue's name in a source offset."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def queue_of(name: str) -> MessageQueue:
    """The inverse of `name_of`: topics and ids hold no `/`."""
    topic, _, rest = name.partition("/")
    broker_name, _, queue_id = rest.rpartition("/")
    return MessageQueue(topic, broker_name, int(queue_id))


def parted(offset: Mapping[str, int]) -> tuple[Position, Position]:
    """Next offset by queue, and when the messages before these were stored, as far as that is known."""
    position = {name: at for name, at in offset.items() if not name.endswith(MARK)}
    return position, {name: offset[f"{name}{MARK}"] for name in position if f"{name}{MARK}" in offset}


def marked(position: Mapping[str, int], marks: Mapping[str, int]) -> Position:
    """The inverse of `parted`."""
    return {**position, **{f"{name}{MARK}": at_ms for name, at_ms in marks.items()}}


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one queue."""

    queue: MessageQueue
    start: int
    end: int


def ranges(start: Mapping[str, int], end: Mapping[str, int]) -> list[Range]:
    """The ranges between two source offsets; a queue that is new in `end`, or begun anew, begins at 0."""
    result = []
    for name in sorted(end):
        first = start.get(name, 0)
        if first > end[name]:
            first = 0
        if first < end[name]:
            result.append(Range(queue_of(name), first, end[name]))
    return result


def ranges_between(start: Mapping[str, int], end: Mapping[str, int]) -> list[Range]:
    """The ranges between the two bounds of a batch read; none where the end comes first."""
    return [Range(queue_of(name), start[name], end[name]) for name in sorted(end) if start[name] < end[name]]


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


def lag(start: Mapping[str, int], latest: Mapping[str, int]) -> int:
    """How many offsets there are behind `start`."""
    return sum(max(0, latest[name] - start.get(name, 0)) for name in latest)


def advance(start: Mapping[str, int], latest: Mapping[str, int], limit: int | None) -> Position:
    """The end of the next micro-batch: at most `limit` offsets in all, shared by lag. No queue goes back.

    A queue that vanished keeps its place: its broker is away, or its topic is gone; what was read stays read.
    """
    names = sorted({*start, *latest})
    behind = {name: max(0, latest.get(name, 0) - start.get(name, 0)) for name in names}
    total = sum(behind.values())
    end = {name: start.get(name, 0) + behind[name] for name in names}
    if limit is None or total <= limit:
        return end
    share = {name: behind[name] * limit // total for name in names}
    rest = limit - sum(share.values())  # fewer than there are queues with a lag: the fractions that were cut off
    for name in [name for name in names if behind[name] > share[name]][:rest]:
        share[name] += 1
    return {name: start.get(name, 0) + share[name] for name in names}


def followed(start: Mapping[str, int], latest: Mapping[str, int]) -> Position:
    """`start`, with the queues that were begun anew (they end before it) at their ends."""
    return {name: min(offset, latest.get(name, offset)) for name, offset in start.items()}


class Pace:
    """minOffsetsPerTrigger: holds a micro-batch back until it is worth it, but not for more than `max_delay_ms`."""

    def __init__(self, least: int, max_delay_ms: int) -> None:
        self._least = least
        self._max_delay_ms = max_delay_ms
        self._last_ms: int | None = None

    def is_time(self, waiting: int, now_ms: int) -> bool:
        """Whether `waiting` offsets are to be read now; the first batch of a run is, whatever its size."""
        late = self._last_ms is None or now_ms - self._last_ms >= self._max_delay_ms
        if waiting == 0 or not (late or waiting >= self._least):
            return False
        self._last_ms = now_ms
        return True


def check_checkpoint(start: Mapping[str, int], is_read: Callable[[str], bool], *, strict: bool) -> None:
    """ConfigError when a checkpoint is of topics that this query does not read; not `strict`: of none that it reads."""
    topics = sorted({queue_of(name).topic for name in start})
    foreign = [topic for topic in topics if not is_read(topic)]
    if foreign and (strict or len(foreign) == len(topics)):
        raise ConfigError(
            f"the checkpoint is of {', '.join(foreign)}, which this query does not read: give each query a"
            " checkpointLocation of its own"
            + ("" if len(foreign) == len(topics) else ", or set failOnDataLoss=false to leave these topics")
        )


def check_not_begun_anew(start: Mapping[str, int], latest: Mapping[str, int]) -> None:
    """DataLost when a queue ends before the place that was read already."""
    for name in sorted(start.keys() & latest.keys()):
        if latest[name] < start[name]:
            raise DataLost(
                f"{name}: was read up to offset {start[name]}, and ends at {latest[name]} now: the topic was deleted"
                " and made again, or its broker lost messages; set failOnDataLoss=false to read what is there"
            )


def differing(start: Mapping[str, int], marks: Mapping[str, int], now: Mapping[str, int]) -> str:
    """Which queue has another message before the place that was read than the one that was read there; "": none, as
    far as the brokers tell (`now`)."""
    for name in sorted(marks.keys() & now.keys()):
        if now[name] != marks[name]:
            return (
                f"{another(name, start[name] - 1, marks[name], now[name])}: the topic was deleted and made again, or"
                " its broker lost messages"
            )
    return ""


def another(name: str, offset: int, was_ms: int, is_ms: int) -> str:
    """The error text for a message that is not the one that was read."""
    return (
        f"{name}: the message at offset {offset} is not the one that was read: it was stored at {was_ms}, that at"
        f" {is_ms} (milliseconds)"
    )
