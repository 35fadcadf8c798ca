"""Print each message of the topic "greetings", until Ctrl-C."""

import asyncio
import os

from perseid.client import Consumer, run_until_signal

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


async def show(consumer: Consumer) -> None:
    async for message in consumer:
        print(f"{message.body.decode()!r}, tag {message.tag}, keys {message.keys}", flush=True)


consumer = Consumer(NAMESRV, "readers", {"greetings": "*"}, from_where="first")
asyncio.run(run_until_signal(consumer, work=show(consumer)))
