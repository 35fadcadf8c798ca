"""Reads from the slave while the master is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from perseid.client import ClientError, MessageQueue, PullConsumer

READ_DEADLINE_S = 90
PAUSE_S = 0.05


async def read_everything(
    consumer: PullConsumer, queues: list[MessageQueue], wanted: Callable[[], int], on_read: Callable[[int], None]
) -> float:
    """Read all queues from their beginning, until as many different flights have come as are `wanted`; the seconds that
    took. SystemExit when they don't come in time."""
    seen: set[bytes] = set()
    start = time.monotonic()

    async def read(queue: MessageQueue) -> None:
        offset = 0
        while len(seen) < wanted():
            try:
                found = await consumer.pull(queue, offset, hold_ms=0)
            except ClientError:  # the master is being noticed to be away
                await asyncio.sleep(PAUSE_S)
                continue
            seen.update(message.body for message in found.messages)
            offset = found.next_offset
            on_read(len(seen))
            if not found.messages:
                await asyncio.sleep(PAUSE_S)

    try:
        async with asyncio.timeout(READ_DEADLINE_S):
            await asyncio.gather(*(read(queue) for queue in queues))
    except TimeoutError:
        raise SystemExit(
            f"{len(seen):,} of {wanted():,} acknowledged flights were read from the slave within {READ_DEADLINE_S} s"
        ) from None
    return time.monotonic() - start
