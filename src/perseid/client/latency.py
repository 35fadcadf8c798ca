"""Which queue next: round robin, not the broker that just failed, and (if asked for) not slow brokers.

The table is the original's: a send that took as long as `_LATENCY_MS[i]` keeps its broker out for
`_KEEP_OUT_MS[i]`; a failed one counts as 10 s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from perseid.client.model import MessageQueue

_LATENCY_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
_KEEP_OUT_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
FAILURE_COUNTS_AS_MS = 10_000


class QueueChooser:
    """Chooses the queue of each send; `avoid_slow_brokers` is the original's sendLatencyFaultEnable."""

    def __init__(self, start: int, *, avoid_slow_brokers: bool = False) -> None:
        self._next: dict[str, int] = {}
        self._start = start
        self._avoid = avoid_slow_brokers
        self._out_until_ms: dict[str, int] = {}
        self._latency_ms: dict[str, int] = {}

    def choose(self, topic: str, queues: Sequence[MessageQueue], now: int, failed: str | None) -> MessageQueue:
        """The next of `queues` (at least one); not on broker `failed` when there is another."""
        count = len(queues)
        at = self._next.get(topic, self._start)
        self._next[topic] = (at + 1) % 0x7FFFFFFF
        fallback: MessageQueue | None = None
        for step in range(count):
            queue = queues[(at + step) % count]
            if queue.broker_name == failed:
                continue
            if fallback is None:
                fallback = queue
            if not self._avoid or self._out_until_ms.get(queue.broker_name, 0) <= now:
                return queue
        if fallback is not None and self._avoid:
            return min(
                (q for q in queues if q.broker_name != failed),
                key=lambda q: (self._out_until_ms.get(q.broker_name, 0), self._latency_ms.get(q.broker_name, 0)),
            )
        return fallback if fallback is not None else queues[at % count]

    def report(self, broker_name: str, took_ms: int, now: int, *, failed: bool) -> None:
        """Note how a send to a broker ended."""
        if self._avoid:
            took_ms = FAILURE_COUNTS_AS_MS if failed else took_ms
            self._latency_ms[broker_name] = took_ms
            row = bisect_right(_LATENCY_MS, took_ms) - 1
            self._out_until_ms[broker_name] = now + (_KEEP_OUT_MS[row] if row >= 0 else 0)

    def healthy(self, broker_name: str, now: int) -> bool:
        """False while a broker is kept out."""
        return self._out_until_ms.get(broker_name, 0) <= now
