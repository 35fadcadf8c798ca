"""Streams the flights in order and kills the master half-way, for good; a second, steady sender tells how long nothing
was acknowledged, and where that time went."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo.cluster import Cluster
from demo.flights import Flight
from perseid.cli.verify import Picture
from perseid.client import Admin, ClientError, OrderedProducer, PullConsumer, Session
from perseid.client.verify import Findings, Ledger, Outage, SteadySender, Watch, compare, read_back

QUEUES = 8
TICK_S = 0.005
READY_DEADLINE_S = 60
PRODUCE_DEADLINE_S = 240
STEADY_TOPIC = "steady"
STEADY_RATE = 200.0
SETTLE_MS = 60_000


@dataclass(slots=True)
class Produced:
    """What streaming came to. `timeline`: (seconds since the kill, flights acknowledged)."""

    messages: int
    seconds: float
    unavailable_s: float
    retries: int
    killed: str
    timeline: list[tuple[float, int]] = field(default_factory=list)
    steady: list[float] = field(default_factory=list)
    """When the steady sender's messages were acknowledged, in seconds since the kill."""

    @property
    def messages_per_second(self) -> float:
        """Over the whole time, the outage included."""
        return self.messages / self.seconds


@dataclass(slots=True)
class Run:
    """All that the run showed."""

    produced: Produced
    outages: list[Outage]
    findings: Findings
    """Of the steady sender's messages."""


async def run(cluster: Cluster, topic: str, flights: Iterable[Flight], count: int) -> Run:
    """Make the topics, send everything, kill the master half-way, and hold the steady sender's ledger against the
    cluster that is left."""
    session = Session(cluster.namesrv)
    book = Ledger(STEADY_TOPIC, f"d{time.time_ns() // 1_000_000:x}")
    acknowledged_at: list[float] = []
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]:>8,.0f} msg/s"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns) as progress:
        async with Admin(session=session) as admin:
            for name, queues in ((topic, QUEUES), (STEADY_TOPIC, 4)):
                await _create(admin, name, queues)
            async with Watch(session, on_end=lambda outage: _tell(progress, outage)) as watch:
                await watch.prepare(STEADY_TOPIC)
                steady = SteadySender(
                    session, book, rate=STEADY_RATE, observer=watch,
                    on_ack=lambda entry: acknowledged_at.append(time.monotonic()),
                )  # fmt: skip
                sending = asyncio.create_task(steady.run())
                try:
                    produced, killed_at = await _stream(cluster, topic, flights, count, progress, watch, sending)
                finally:
                    steady.stop.set()
                    await sending
            produced.steady = [at - killed_at for at in acknowledged_at]
            async with PullConsumer(session=session, group="demo_steady") as consumer:
                findings = compare(book.entries, await read_back(consumer, book, settle_ms=SETTLE_MS))
        return Run(produced, watch.outages, findings)


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
    cluster: Cluster, topic: str, flights: Iterable[Flight], count: int, progress: Progress, watch: Watch,
    beside: asyncio.Task[None],
) -> tuple[Produced, float]:  # fmt: skip
    """Send all flights, ordered per aircraft; what that came to, and when the master was killed."""
    bar = progress.add_task("flights acknowledged", total=count, rate=0.0)
    start = time.monotonic()
    killed_at, unavailable_s, then, name = 0.0, 0.0, 0, ""
    timeline: list[tuple[float, int]] = []
    async with OrderedProducer(cluster.namesrv, "demo_producer") as producer:

        async def send() -> None:
            for flight in flights:
                await producer.put(flight.message(topic), flight.order_key)
            await producer.flush()

        sending = asyncio.create_task(send())
        while not sending.done():
            await asyncio.wait({sending, beside}, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
            now, acknowledged = time.monotonic(), producer.stats.acknowledged
            progress.update(bar, completed=acknowledged, rate=acknowledged / (now - start))
            timeline.append((now, acknowledged))
            cluster.check()
            if beside.done():
                beside.result()
            if not killed_at and acknowledged >= count // 2:
                master = watch_master(producer)
                watch.cause(f"SIGKILL to {master}")
                name, killed_at, then = cluster.kill(master), time.monotonic(), producer.stats.acknowledged
                progress.console.print(f"  SIGKILL to {name} at {master}, the master, after {then:,} flights")
            elif killed_at and not unavailable_s and acknowledged > then:
                unavailable_s = now - killed_at
            if now - start > PRODUCE_DEADLINE_S:
                sending.cancel()
                raise SystemExit(f"the flights were not sent within {PRODUCE_DEADLINE_S} s")
        await sending
        stats = producer.stats
    seconds = time.monotonic() - start
    progress.update(bar, completed=stats.acknowledged, rate=stats.acknowledged / seconds)
    timeline = [(at - killed_at, acknowledged) for at, acknowledged in timeline]
    return Produced(stats.acknowledged, seconds, unavailable_s, stats.retries, name, timeline), killed_at


def watch_master(producer: OrderedProducer) -> str:
    """Where the producer sends to."""
    ((_, _, address),) = producer.session.routes.addresses()
    return address


def _tell(progress: Progress, outage: Outage) -> None:
    if outage.cause is not None:
        progress.console.print(Picture(outage))
