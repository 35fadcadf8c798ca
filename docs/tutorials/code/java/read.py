"""Read the topic "flow" until Ctrl-C. The numbers go to read.txt."""

import asyncio
import os

from perseid.client import Consumer, run_until_signal

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
READ = open("read.txt", "w")  # noqa: SIM115 - open as long as this runs


async def read(consumer: Consumer) -> None:
    count = 0
    async for message in consumer:
        print(int(message.body), file=READ, flush=True)
        count += 1
        if count % 100 == 0:
            print(f"{count} read", flush=True)


consumer = Consumer(NAMESRV, "readers", {"flow": "*"}, from_where="first")
asyncio.run(run_until_signal(consumer, work=read(consumer)))
