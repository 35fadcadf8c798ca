"""Send one message to the topic "greetings"."""

import asyncio
import os

from perseid.client import Message, Producer

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


async def main() -> None:
    async with Producer(NAMESRV) as producer:
        result = await producer.send(Message("greetings", b"hello from Python", tag="friendly", keys="k1"))
        print(result.status.name, result.queue)


asyncio.run(main())
