"""Counts and latencies of one client: `producer.metrics`, `consumer.metrics`.

    before = producer.metrics
    ...
    now = producer.metrics
    print(now.sent - before.sent, "messages;", now.latency.percentile_ms(0.99), "ms for 99 of 100")

`metrics` is a copy of the client's counts at that moment. On the client's event loop it is consistent; if another
thread reads it, two counts may be one message apart. Counts only rise, so a rate is the difference of two copies.
`perseid.client.otel` has counters and histograms for a monitoring system.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import Self

BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000)
"""Upper bounds of the buckets of a histogram. One more bucket is for longer times."""


class Latency:
    """A histogram of times in milliseconds."""

    __slots__ = ("counts", "sum_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0

    def record(self, took_ms: int) -> None:
        """Count one time, in milliseconds."""
        self.counts[bisect_left(BOUNDS_MS, took_ms)] += 1
        self.sum_ms += took_ms

    def copy(self) -> Latency:
        """The same counts, which stay as they are."""
        other = Latency()
        other.counts, other.sum_ms = self.counts.copy(), self.sum_ms
        return other

    @property
    def count(self) -> int:
        """The number of recorded times."""
        return sum(self.counts)

    @property
    def mean_ms(self) -> float:
        """The mean, or 0 if nothing was recorded."""
        return self.sum_ms / max(1, self.count)

    @property
    def buckets(self) -> dict[str, int]:
        """The number of times in each bucket: up to `1 ms`, above that and up to `2 ms`, …, and `more`."""
        return dict(zip([*(f"{bound} ms" for bound in BOUNDS_MS), "more"], self.counts, strict=True))

    def percentile_ms(self, share: float) -> float:
        """The upper bound of the bucket that contains this percentile, given as a share (0 to 1). Infinite for the last
        bucket, 0 if nothing was recorded."""
        wanted, seen = share * self.count, 0
        if not wanted:
            return 0.0
        for bound, count in zip(BOUNDS_MS, self.counts, strict=False):
            seen += count
            if seen >= wanted:
                return float(bound)
        return float("inf")

    def __repr__(self) -> str:
        found = ", ".join(f"{name}: {count}" for name, count in self.buckets.items() if count)
        return f"Latency({found or 'nothing'})"


@dataclass(slots=True)
class ProducerMetrics:
    """Counts of a `Producer`, `TransactionProducer` or `OrderedProducer`, in messages since the client was made."""

    sent: int = 0
    """Acknowledged by a broker."""
    sent_bytes: int = 0
    """Bytes of their bodies as they were sent, possibly compressed."""
    oneway: int = 0
    """Sent without waiting for an acknowledgement (`send_oneway`)."""
    failed: int = 0
    """Not acknowledged after all attempts: the caller got an error."""
    retried: int = 0
    """Attempts after the first one, of messages and of batches."""
    batches: int = 0
    """Batches that an `OrderedProducer`, or a `Producer` with `linger_ms`, has sent."""
    in_flight: int = 0
    """Now: messages that wait for a broker's answer."""
    buffered: int = 0
    """Now: messages that wait in the client until they can be sent."""
    connections: int = 0
    """Now: open connections of the client's session, to brokers and name servers."""
    outages: int = 0
    """Outages that an `OrderedProducer` has seen: one begins when a queue waits for its broker and no other queue
    does."""
    outage_ms: int = 0
    """The total time of the outages that are over."""
    longest_outage_ms: int = 0
    """The longest of these outages."""
    latency: Latency = field(default_factory=Latency)
    """From the beginning of an attempt to its acknowledgement. An attempt of a batch counts once."""

    def snapshot(self, *, in_flight: int, buffered: int, connections: int) -> Self:
        """A copy, with what there is now."""
        now = {"in_flight": in_flight, "buffered": buffered, "connections": connections}
        return replace(self, latency=self.latency.copy(), **now)


@dataclass(slots=True)
class ConsumerMetrics:
    """Counts of a consumer, in messages since the client was made."""

    pulled: int = 0
    """Received from brokers."""
    pulled_bytes: int = 0
    """Bytes of their records, as they are stored in the broker's log."""
    succeeded: int = 0
    """Calls of the handler that succeeded."""
    failed: int = 0
    """Calls of the handler that failed."""
    sent_back: int = 0
    """Sent back to a broker, to be delivered again later (`PushConsumer`)."""
    acknowledged: int = 0
    """Acknowledged (`PopConsumer`)."""
    flow_controlled: int = 0
    """How often pulling from a queue paused because its buffer was full (`PushConsumer`)."""
    rebalances: int = 0
    """How often the queues of a topic were assigned again in the group (`PushConsumer`)."""
    in_flight: int = 0
    """Now: messages that are being handled."""
    buffered: int = 0
    """Now: messages that were pulled and wait for a handler or for `poll()`."""
    lag: int = 0
    """Now: messages in the assigned queues that are not consumed (`PushConsumer`), or not returned by `poll()`
    (`PullConsumer`), according to the brokers' last answers."""
    connections: int = 0
    """Now: open connections of the client's session, to brokers and name servers."""
    latency: Latency = field(default_factory=Latency)
    """The duration of the handler's calls."""

    def snapshot(self, *, in_flight: int, buffered: int, lag: int, connections: int) -> Self:
        """A copy, with what there is now."""
        now = {"in_flight": in_flight, "buffered": buffered, "lag": lag, "connections": connections}
        return replace(self, latency=self.latency.copy(), **now)
