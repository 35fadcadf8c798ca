"""Print each message of the topic "greetings", until Ctrl-C."""

import asyncio
import os

from perseid.client import PushConsumer, ReceivedMessage

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


async def show(message: ReceivedMessage) -> None:
    print(f"{message.body.decode()!r}, tag {message.tag}, keys {message.keys}", flush=True)


async def main() -> None:
    async with PushConsumer(NAMESRV, "readers", {"greetings": "*"}, show, from_where="first"):
        await asyncio.Event().wait()


asyncio.run(main())
