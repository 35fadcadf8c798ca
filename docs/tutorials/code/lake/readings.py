"""Send 1,000 readings of ten thermometers to the topic "readings"."""

import asyncio
import json
import os
import sys

from perseid.client import Message, Producer, ProducerOptions

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


async def main(first: int) -> None:
    async with Producer(NAMESRV, options=ProducerOptions(linger_ms=5)) as producer:
        numbers = range(first, first + 1000)
        readings = [{"number": n, "sensor": f"s{n % 10}", "celsius": 15 + n % 10} for n in numbers]
        messages = [Message("readings", json.dumps(r).encode(), keys=str(r["number"])) for r in readings]
        results = await asyncio.gather(*(producer.send(message) for message in messages))
        print(len(results), "readings stored")


asyncio.run(main(int(sys.argv[1])))
