"""Send a numbered message each 20 ms, until Ctrl-C. Numbers that were acknowledged go to acknowledged.txt."""

import asyncio
import logging
import os

from perseid.client import ClientError, Message, Producer, run_until_signal

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
ACKNOWLEDGED = open("acknowledged.txt", "w")  # noqa: SIM115 - open as long as this runs
log = logging.getLogger("flow")


async def send(producer: Producer, number: int) -> None:
    """Send one message; try again until it is acknowledged."""
    while True:
        try:
            await producer.send(Message("flow", b"%d" % number, keys=str(number)))
            return
        except ClientError as error:
            log.warning("%d again: %s", number, error)
            await asyncio.sleep(1)


async def send_all(producer: Producer) -> None:
    number = 0
    while True:
        number += 1
        await send(producer, number)
        print(number, file=ACKNOWLEDGED, flush=True)
        if number % 100 == 0:
            print(f"{number} acknowledged", flush=True)
        await asyncio.sleep(0.02)


producer = Producer(NAMESRV)
asyncio.run(run_until_signal(producer, work=send_all(producer)))
