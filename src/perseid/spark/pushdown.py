"""Filter push-down: what a batch read can leave out: queues, offsets, times, tags and keys.

Spark looks at every row again, so all that matters is that nothing it wants is left out. Filters are taken by their
names and fields (`EqualTo(("tag",), "a")`): no PySpark is needed here.

- topic, brokerName, partition, queueId choose queues;
- offset, queueOffset bound the offsets of each;
- timestamp, storeTimestamp bound them too, where the brokers find the times (in a queue they never fall, unless a
  broker's clock was set back);
- tag is filtered by the brokers, when no other filter is;
- key and keys are compared after the pull, before a row is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from perseid.client.model import MessageQueue

Bound = tuple[int | None, int | None]
"""The lowest and the highest that is wanted."""

_QUEUE: dict[str, Callable[[MessageQueue], Any]] = {
    "topic": lambda queue: queue.topic,
    "brokername": lambda queue: queue.broker_name,
    "partition": lambda queue: queue.queue_id,
    "queueid": lambda queue: queue.queue_id,
}
_OFFSET = {"offset", "queueoffset"}
_TIME = {"timestamp", "storetimestamp"}
_KEYS = {"key", "keys"}


@dataclass
class Pushed:
    """The limits that filters set."""

    offsets: Bound = (None, None)
    times_ms: Bound = (None, None)
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    queues: tuple[tuple[str, frozenset[Any]], ...] = ()

    def wants_queue(self, queue: MessageQueue) -> bool:
        """Whether some row of a queue may be wanted."""
        return all(_QUEUE[name](queue) in values for name, values in self.queues)

    @property
    def expression(self) -> str | None:
        """The tags as a subscription; None when they can't be put as one."""
        if not self.tags or any(not tag or tag != tag.strip() or "||" in tag or tag == "*" for tag in self.tags):
            return None
        return " || ".join(sorted(self.tags))


def of(filters: Iterable[Any]) -> Pushed:
    """The limits set by filters that all hold; filters that set none are left to Spark."""
    pushed = Pushed()
    for one in filters:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) != 1:
            continue
        name, kind = str(path[0]).lower(), type(one).__name__
        if name in _OFFSET:
            pushed.offsets = _both(pushed.offsets, _bound(kind, getattr(one, "value", None), _whole))
        elif name in _TIME:
            pushed.times_ms = _both(pushed.times_ms, _bound(kind, getattr(one, "value", None), _milliseconds))
        values = _values(kind, getattr(one, "value", None))
        if values is None:
            continue
        if name in _QUEUE:
            pushed.queues = (*pushed.queues, (name, values))
        elif name == "tag":
            pushed.tags = _meet(pushed.tags, values)
        elif name in _KEYS:
            texts = frozenset(v.decode("utf-8", "replace") if isinstance(v, bytes | bytearray) else v for v in values)
            pushed.keys = _meet(pushed.keys, texts)
    return pushed


def _values(kind: str, value: Any) -> frozenset[Any] | None:
    """The values that a filter allows, when it names them."""
    if kind in ("EqualTo", "EqualNullSafe") and value is not None:
        return frozenset([bytes(value) if isinstance(value, bytearray) else value])
    if kind == "In":
        return frozenset(bytes(v) if isinstance(v, bytearray) else v for v in value if v is not None)
    return None


def _bound(kind: str, value: Any, number: Callable[[Any], Bound]) -> Bound:
    values = list(value) if kind == "In" else [value]
    bounds = [number(each) for each in values if each is not None]
    if not bounds or any(low is None or high is None for low, high in bounds):
        return None, None
    low, high = min(b[0] for b in bounds if b[0] is not None), max(b[1] for b in bounds if b[1] is not None)
    if kind in ("EqualTo", "EqualNullSafe", "In"):
        return low, high
    if kind in ("GreaterThan", "GreaterThanOrEqual"):
        return low, None
    if kind in ("LessThan", "LessThanOrEqual"):
        return None, high
    return None, None


def _whole(value: Any) -> Bound:
    return (value, value) if isinstance(value, int) and not isinstance(value, bool) else (None, None)


def _milliseconds(value: Any) -> Bound:
    """The milliseconds around a time: messages are stored at whole ones."""
    if not isinstance(value, datetime):
        return None, None
    at = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    low = int((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000) - 1
    return low, low + 3


def _both(one: Bound, other: Bound) -> Bound:
    lows = [bound[0] for bound in (one, other) if bound[0] is not None]
    highs = [bound[1] for bound in (one, other) if bound[1] is not None]
    return max(lows, default=None), min(highs, default=None)


def _meet(one: frozenset[str] | None, other: frozenset[Any]) -> frozenset[str]:
    return frozenset(other) if one is None else one & other
