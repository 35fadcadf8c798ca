"""What `linger_ms` brings a Python producer: `python bench/linger.py` prints messages/s and the client's CPU a message.

Tasks of one client each send one message of 100 bytes after the other to a topic of four queues. The broker is a
process of its own on the same machine (`EmbeddedBroker`). The rows take turns, each ROUNDS times; their medians are
printed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import sys
import time
from multiprocessing.connection import Connection

from servers import HERE

sys.path.insert(0, str(HERE.parent / "src"))

from perseid.client import Admin, Message, OrderedProducer, Producer, ProducerOptions
from perseid.client.blocking import new_event_loop
from perseid.store.config import StoreConfig
from perseid.testing.embedded import EmbeddedBroker

ROUNDS = 5
TASKS = 500
EACH = 40
BODY = b"x" * 100
LINGERS_MS = (0, 5)


def broker(told: Connection) -> None:
    """Run a broker until the other end is closed."""
    with EmbeddedBroker(store=StoreConfig(commit_log_file_bytes=256 << 20)) as embedded:
        told.send(embedded.namesrv)
        told.poll(None)


async def by_tasks(namesrv: str, linger_ms: float) -> tuple[float, float]:
    """Messages/s and CPU µs a message of TASKS that send one message after the other."""
    options = ProducerOptions(linger_ms=linger_ms, timeout_ms=30_000)
    async with Producer(namesrv, options=options) as producer:

        async def send() -> None:
            for _ in range(EACH):
                await producer.send(Message("bench", BODY))

        await producer.send(Message("bench", BODY))
        began, spent = time.perf_counter(), time.process_time()
        await asyncio.gather(*(send() for _ in range(TASKS)))
        return rates(began, spent)


async def in_order(namesrv: str) -> tuple[float, float]:
    """The same of an `OrderedProducer`, whose `put()` does not wait for the answer."""
    async with OrderedProducer(namesrv) as producer:
        await producer.put(Message("bench", BODY), "0")
        await producer.flush()
        began, spent = time.perf_counter(), time.process_time()
        for number in range(TASKS * EACH):
            await producer.put(Message("bench", BODY), str(number % 64))
        await producer.flush()
        return rates(began, spent)


def rates(began: float, spent: float) -> tuple[float, float]:
    """Messages/s since `began`, and µs of CPU a message since `spent`."""
    count = TASKS * EACH
    return count / (time.perf_counter() - began), (time.process_time() - spent) / count * 1e6


async def measure(namesrv: str) -> None:
    """Print a table."""
    async with Admin(namesrv) as admin:
        await admin.create_topic("bench", 4)
    rows: dict[str, list[tuple[float, float]]] = {}
    for _ in range(ROUNDS):
        for linger_ms in LINGERS_MS:
            rows.setdefault(f"send, linger_ms={linger_ms}", []).append(await by_tasks(namesrv, linger_ms))
        rows.setdefault("OrderedProducer.put", []).append(await in_order(namesrv))
    print("| client | messages/s | CPU µs a message |\n|---|---|---|")
    for name, found in rows.items():
        rate, cpu = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"| {name} | {rate:,.0f} | {cpu:.1f} |")


if __name__ == "__main__":
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=broker, args=(theirs,), daemon=True)
    process.start()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(measure(ours.recv()))
    ours.send(None)
    process.join(30)
