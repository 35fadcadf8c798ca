"""Counts and latencies of one client, at any time: `producer.metrics`, `consumer.metrics`.

    before = producer.metrics
    ...
    now = producer.metrics
    print(now.sent - before.sent, "messages;", now.latency.percentile_ms(0.99), "ms for 99 of 100")

A client counts into one object of its own, without locks, and makes a copy of it when it is asked. So a copy is
consistent on the client's event loop; read from another thread, two counts may be one message apart. Nothing is counted
down or reset: rates are differences of two copies. `perseid.client.otel` has counters and histograms for a monitoring
system.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import Self

BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000)
"""Upper bounds of the buckets of a histogram; there is one more bucket, for what took longer."""


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
        """How many were recorded."""
        return sum(self.counts)

    @property
    def mean_ms(self) -> float:
        """The mean; 0 when nothing was recorded."""
        return self.sum_ms / max(1, self.count)

    @property
    def buckets(self) -> dict[str, int]:
        """How many took up to `1 ms`, more than that and up to `2 ms`, …, and `more`."""
        return dict(zip([*(f"{bound} ms" for bound in BOUNDS_MS), "more"], self.counts, strict=True))

    def percentile_ms(self, share: float) -> float:
        """A bound that at least this share of the times (0 to 1) did not exceed: that of a bucket; infinite for the
        last bucket, 0 when nothing was recorded."""
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
    """Of a `Producer`, `TransactionProducer` or `OrderedProducer`. Counts are of messages since the client was made."""

    sent: int = 0
    """Acknowledged by a broker."""
    sent_bytes: int = 0
    """Of their bodies, as they were sent: compressed, if they were."""
    oneway: int = 0
    """Given to a connection without waiting for an acknowledgement (`send_oneway`)."""
    failed: int = 0
    """Packed, and not acknowledged in the end: the caller got an error."""
    retried: int = 0
    """Attempts after a first one, of messages and of batches."""
    batches: int = 0
    """Requests that an `OrderedProducer`, or a `Producer` with `linger_ms`, has made of its messages."""
    in_flight: int = 0
    """Now: messages that wait for a broker's answer."""
    buffered: int = 0
    """Now: messages that wait in the client until they can be sent."""
    connections: int = 0
    """Now: open connections of the client's session, to brokers and name servers."""
    outages: int = 0
    """Of an `OrderedProducer`: times at which a sender began to wait for its broker while no other one did."""
    outage_ms: int = 0
    """Time during which at least one sender waited for its broker; of outages that are over."""
    longest_outage_ms: int = 0
    """The longest of those outages."""
    latency: Latency = field(default_factory=Latency)
    """From the begin of an attempt to its acknowledgement; an attempt of a batch counts once."""

    def snapshot(self, *, in_flight: int, buffered: int, connections: int) -> Self:
        """A copy, with what there is now."""
        now = {"in_flight": in_flight, "buffered": buffered, "connections": connections}
        return replace(self, latency=self.latency.copy(), **now)


@dataclass(slots=True)
class ConsumerMetrics:
    """Of a consumer. Counts are of messages since the client was made."""

    pulled: int = 0
    """Received from brokers."""
    pulled_bytes: int = 0
    """Of their records, as they are stored."""
    succeeded: int = 0
    """Handlers' calls that went well."""
    failed: int = 0
    """Handlers' calls that did not."""
    sent_back: int = 0
    """Given back to a broker, to come again later (`PushConsumer`)."""
    acknowledged: int = 0
    """Acknowledged (`PopConsumer`)."""
    flow_controlled: int = 0
    """Times at which pulling from a queue paused, as enough was buffered (`PushConsumer`)."""
    rebalances: int = 0
    """Times at which the queues of a topic were shared out anew in the group (`PushConsumer`)."""
    in_flight: int = 0
    """Now: messages that handlers work on."""
    buffered: int = 0
    """Now: messages that were pulled and wait for a handler or for `poll()`."""
    lag: int = 0
    """Now: messages of our queues that are not done (`PushConsumer`), or were not given out (`PullConsumer`), as far as
    the brokers' last answers tell."""
    connections: int = 0
    """Now: open connections of the client's session, to brokers and name servers."""
    latency: Latency = field(default_factory=Latency)
    """Of handlers' calls."""

    def snapshot(self, *, in_flight: int, buffered: int, lag: int, connections: int) -> Self:
        """A copy, with what there is now."""
        now = {"in_flight": in_flight, "buffered": buffered, "lag": lag, "connections": connections}
        return replace(self, latency=self.latency.copy(), **now)
