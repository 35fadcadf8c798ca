"""Streams the flights in order and kills the master half-way, for good."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.cluster import Cluster
from demo.flights import Flight
from perseid.client import Admin, ClientError, OrderedProducer

QUEUES = 8
TICK_S = 0.005
READY_DEADLINE_S = 60
PRODUCE_DEADLINE_S = 240


@dataclass(slots=True)
class Produced:
    """What streaming came to. `timeline`: (seconds since the kill, flights acknowledged)."""

    messages: int
    seconds: float
    unavailable_s: float
    """From the kill to the next acknowledged flight."""
    retries: int
    killed: str
    killed_ms: int
    """Since 1970."""
    timeline: list[tuple[float, int]] = field(default_factory=list)

    @property
    def messages_per_second(self) -> float:
        """Over the whole time, the outage included."""
        return self.messages / self.seconds


async def run(cluster: Cluster, topic: str, flights: Iterable[Flight], count: int) -> Produced:
    """Make the topic, send all flights, ordered per aircraft, and kill the master half-way."""
    async with Admin(cluster.namesrv) as admin:
        await _create(admin, topic, QUEUES)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>8,.0f} msg/s"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns) as progress:
        return await _stream(cluster, topic, flights, count, progress)


async def _create(admin: Admin, topic: str, queues: int) -> None:
    """Make a topic, more than once if need be: the machine may be busy."""
    deadline = time.monotonic() + READY_DEADLINE_S
    while True:
        try:
            await admin.create_topic(topic, queues)
            return
        except ClientError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(TICK_S * 10)


async def _stream(
    cluster: Cluster, topic: str, flights: Iterable[Flight], count: int, progress: Progress
) -> Produced:
    bar = progress.add_task("flights acknowledged", total=count, rate=0.0)
    start = time.monotonic()
    killed_at, killed_ms, unavailable_s, then, name = 0.0, 0, 0.0, 0, ""
    timeline: list[tuple[float, int]] = []
    async with OrderedProducer(cluster.namesrv, "demo_producer") as producer:

        async def send() -> None:
            for flight in flights:
                await producer.put(flight.message(topic), flight.order_key)
            await producer.flush()

        sending = asyncio.create_task(send())
        while not sending.done():
            await asyncio.wait({sending}, timeout=TICK_S)
            now, acknowledged = time.monotonic(), producer.metrics.sent
            progress.update(bar, completed=acknowledged, rate=acknowledged / (now - start))
            timeline.append((now, acknowledged))
            cluster.check()
            if not killed_at and acknowledged >= count // 2:
                ((_, _, master),) = producer.session.routes.addresses()
                killed_at, killed_ms, then = time.monotonic(), time.time_ns() // 1_000_000, acknowledged
                name = cluster.kill(master)
                progress.console.print(f"  SIGKILL to {name} at {master}, the master, after {then:,} flights")
            elif killed_at and not unavailable_s and acknowledged > then:
                unavailable_s = now - killed_at
            if now - start > PRODUCE_DEADLINE_S:
                sending.cancel()
                raise SystemExit(f"the flights were not sent within {PRODUCE_DEADLINE_S} s")
        await sending
        metrics = producer.metrics
    seconds = time.monotonic() - start
    progress.update(bar, completed=metrics.sent, rate=metrics.sent / seconds)
    timeline = [(at - killed_at, acknowledged) for at, acknowledged in timeline]
    return Produced(metrics.sent, seconds, unavailable_s, metrics.retried, name, killed_ms, timeline)
