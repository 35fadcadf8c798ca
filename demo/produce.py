"""Streams the flights in order and kills the master half-way; it comes back when the slave has been read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.flights import TOTAL, Flight
from demo.servers import Server
from demo.standby import read_everything
from perseid.client import Admin, ClientError, OrderedProducer, PullConsumer

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
    read_from_slave: int
    """Flights that were acknowledged when the master died: all were read from the slave before it came back."""
    slave_s: float

    @property
    def messages_per_second(self) -> float:
        """Over the whole time, the outage included."""
        return self.messages / self.seconds


async def create_topic(namesrv: str, topic: str) -> None:
    """Wait until the master is registered and its slave follows, then make the topic."""
    deadline = time.monotonic() + READY_DEADLINE_S
    async with Admin(namesrv) as admin:
        while True:
            try:
                if await admin.ha_status():
                    await admin.create_topic(topic, QUEUES)
                    return
            except ClientError:
                if time.monotonic() > deadline:
                    raise
            if time.monotonic() > deadline:
                raise SystemExit(f"no slave follows the master after {READY_DEADLINE_S} s")
            await asyncio.sleep(POLL_S * 10)


async def stream(namesrv: str, topic: str, flights: Iterable[Flight], broker: Server) -> Produced:
    """Send all flights, ordered per aircraft; the master is killed after the first half, and started again when all
    that was acknowledged has been read from the slave."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>8,.0f} msg/s"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns) as progress:
        bar = progress.add_task("flights acknowledged", total=TOTAL, rate=0.0)
        start = time.monotonic()
        async with (
            OrderedProducer(namesrv, "demo_producer") as producer,
            PullConsumer(namesrv, "demo_standby", from_where="first") as consumer,
        ):
            queues = await consumer.queues(topic)

            async def send() -> None:
                for flight in flights:
                    await producer.put(flight.message(topic), flight.order_key)
                await producer.flush()

            sending = asyncio.create_task(send())
            killed_at, unavailable_s, acknowledged_then, slave_s = 0.0, 0.0, 0, 0.0
            while not sending.done():
                await asyncio.wait({sending}, timeout=POLL_S)
                now, acknowledged = time.monotonic(), producer.stats.acknowledged
                progress.update(bar, completed=acknowledged, rate=acknowledged / (now - start))
                broker.check()
                if not killed_at and acknowledged >= TOTAL // 2:
                    killed_at = now
                    broker.kill()
                    progress.console.print(f"  SIGKILL to the master after {acknowledged:,} flights")
                    reading = progress.add_task("read from the slave", total=acknowledged, rate=0.0)
                    slave_s = await read_everything(
                        consumer, queues, lambda: producer.stats.acknowledged,
                        lambda count, task=reading: progress.update(task, completed=count),  # type: ignore[misc]
                    )  # fmt: skip
                    acknowledged_then = producer.stats.acknowledged
                    progress.update(reading, total=acknowledged_then, rate=acknowledged_then / slave_s)
                    progress.console.print(f"  the slave had all {acknowledged_then:,}; starting the master again")
                    broker.start()
                elif killed_at and not unavailable_s and acknowledged > acknowledged_then:
                    unavailable_s = now - killed_at
                if now - start > PRODUCE_DEADLINE_S:
                    raise SystemExit(f"the flights were not sent within {PRODUCE_DEADLINE_S} s")
            await sending
            stats = producer.stats
        seconds = time.monotonic() - start
        progress.update(bar, completed=stats.acknowledged, rate=stats.acknowledged / seconds)
    return Produced(stats.acknowledged, seconds, unavailable_s, stats.retries, acknowledged_then, slave_s)
