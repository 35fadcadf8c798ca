"""Streams the flights in order and kills the broker half-way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.flights import TOTAL, Flight
from demo.servers import Server
from perseid.client import Admin, ClientError, OrderedProducer

QUEUES = 8
POLL_S = 0.005
READY_DEADLINE_S = 60
PRODUCE_DEADLINE_S = 240


@dataclass(slots=True)
class Produced:
    """What streaming came to."""

    messages: int
    seconds: float
    unavailable_s: float
    retries: int

    @property
    def messages_per_second(self) -> float:
        """Over the whole time, the outage included."""
        return self.messages / self.seconds


async def create_topic(namesrv: str, topic: str) -> None:
    """Wait until the broker is registered, then make the topic."""
    deadline = time.monotonic() + READY_DEADLINE_S
    async with Admin(namesrv) as admin:
        while True:
            try:
                await admin.create_topic(topic, QUEUES)
                return
            except ClientError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(POLL_S * 10)


async def stream(namesrv: str, topic: str, flights: Iterable[Flight], broker: Server) -> Produced:
    """Send all flights, ordered per aircraft; the broker is killed and started again after the first half."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>8,.0f} msg/s"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns) as progress:
        bar = progress.add_task("flights acknowledged", total=TOTAL, rate=0.0)
        start = time.monotonic()
        async with OrderedProducer(namesrv, "demo_producer") as producer:

            async def send() -> None:
                for flight in flights:
                    await producer.put(flight.message(topic), flight.order_key)
                await producer.flush()

            sending = asyncio.create_task(send())
            killed_at, unavailable_s, acknowledged_then = 0.0, 0.0, 0
            while not sending.done():
                await asyncio.wait({sending}, timeout=POLL_S)
                now, acknowledged = time.monotonic(), producer.stats.acknowledged
                progress.update(bar, completed=acknowledged, rate=acknowledged / (now - start))
                broker.check()
                if not killed_at and acknowledged >= TOTAL // 2:
                    killed_at, acknowledged_then = now, acknowledged
                    broker.kill()
                    progress.console.print(f"  SIGKILL to the broker after {acknowledged:,} flights; starting it again")
                    acknowledged_then = producer.stats.acknowledged
                    broker.start()
                elif killed_at and not unavailable_s and acknowledged > acknowledged_then:
                    unavailable_s = now - killed_at
                if now - start > PRODUCE_DEADLINE_S:
                    raise SystemExit(f"the flights were not sent within {PRODUCE_DEADLINE_S} s")
            await sending
            stats = producer.stats
        seconds = time.monotonic() - start
        progress.update(bar, completed=stats.acknowledged, rate=stats.acknowledged / seconds)
    return Produced(stats.acknowledged, seconds, unavailable_s, stats.retries)
