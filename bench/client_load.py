"""One Python client under load: `python bench/client_load.py KIND NAMESRV TOPIC MESSAGES TIMES`, a line for each time.

The line has messages, nanoseconds, and nanoseconds of CPU of the whole process. `Clients.java` does the same with the
stock Java clients, by the same kinds:

    send    one by one, each with a call of its own, IN_FLIGHT at a time
    linger  the same, collected in batches by the producer (`linger_ms`; Java: autoBatch)
    batch   lists of BATCH messages, BATCHES at a time
    pull    the queues are assigned and polled
    push    a function is called for each message (Java: with a list)
    loop    `async for message in consumer`; the stock client has nothing like it

Topics that are read hold so many messages already. Each time they are read by a new group.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from perseid.client import Consumer, FlowLimits, Message, Producer, PullConsumer, PushConsumer
from perseid.client.blocking import new_event_loop

BODY = b"x" * 100
IN_FLIGHT = 512
BATCH, BATCHES = 32, 16
LINGER_MS = 5.0
TIMEOUT_MS = 30_000
LIMITS = FlowLimits(max_messages=10_000)

Counted = tuple[int, int, int]
"""Messages, nanoseconds, nanoseconds of CPU."""
Kind = Callable[[str, str, int, str], Awaitable[Counted]]


class Clock:
    """Time and CPU since it was made, or since the first message."""

    def __init__(self) -> None:
        self.began, self.spent = time.perf_counter_ns(), time.process_time_ns()

    def counted(self, messages: int) -> Counted:
        return messages, time.perf_counter_ns() - self.began, time.process_time_ns() - self.spent


async def send(namesrv: str, topic: str, count: int, name: str, linger_ms: float = 0) -> Counted:
    async with Producer(namesrv, linger_ms=linger_ms, timeout_ms=TIMEOUT_MS) as producer:

        async def some() -> None:
            for _ in range(count // IN_FLIGHT):
                await producer.send(Message(topic, BODY))

        await producer.send(Message(topic, BODY))
        clock = Clock()
        await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))
        return clock.counted(count // IN_FLIGHT * IN_FLIGHT)


async def linger(namesrv: str, topic: str, count: int, name: str) -> Counted:
    return await send(namesrv, topic, count, name, LINGER_MS)


async def batch(namesrv: str, topic: str, count: int, name: str) -> Counted:
    async with Producer(namesrv, timeout_ms=TIMEOUT_MS) as producer:
        each = count // BATCH // BATCHES

        async def some() -> None:
            for _ in range(each):
                await producer.send_batch([Message(topic, BODY) for _ in range(BATCH)])

        await producer.send(Message(topic, BODY))
        clock = Clock()
        await asyncio.gather(*(some() for _ in range(BATCHES)))
        return clock.counted(each * BATCH * BATCHES)


async def pull(namesrv: str, topic: str, count: int, name: str) -> Counted:
    size = found = 0
    async with PullConsumer(namesrv, name, from_where="first") as consumer:
        queues = await consumer.queues(topic)
        clock = Clock()
        consumer.assign(queues)
        while found < count:
            for message in await consumer.poll():
                size += len(message.body) + len(message.properties)
                found += 1
        return clock.counted(found)


async def push(namesrv: str, topic: str, count: int, name: str) -> Counted:
    size = found = 0
    clock, ended = Clock(), asyncio.Event()

    async def handle(message: object) -> None:
        nonlocal size, found, clock
        if not found:
            clock = Clock()
        size += len(message.body) + len(message.properties)  # type: ignore[attr-defined]
        found += 1
        if found >= count:
            ended.set()

    async with PushConsumer(namesrv, name, {topic: "*"}, handle, from_where="first", limits=LIMITS):
        await ended.wait()
        return clock.counted(found)


async def loop(namesrv: str, topic: str, count: int, name: str) -> Counted:
    size = found = 0
    clock = Clock()
    async with Consumer(namesrv, name, {topic: "*"}, from_where="first", limits=LIMITS) as consumer:
        async for message in consumer:
            if not found:
                clock = Clock()
            size += len(message.body) + len(message.properties)
            found += 1
            if found >= count:
                break
        return clock.counted(found)


KINDS: dict[str, Kind] = {"send": send, "linger": linger, "batch": batch, "pull": pull, "push": push, "loop": loop}


def main() -> None:
    kind, namesrv, topic, count, times = sys.argv[1:6]
    for number in range(int(times)):
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            name = f"bench-{kind}-{time.time_ns()}-{number}"
            print(*runner.run(KINDS[kind](namesrv, topic, int(count), name)), flush=True)


if __name__ == "__main__":
    main()
