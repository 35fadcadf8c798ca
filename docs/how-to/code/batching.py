"""Batches."""

import asyncio

from perseid.client import Message, Producer, ProducerOptions, SendResult


# --8<-- [start:linger]
async def send_many(namesrv: str, bodies: list[bytes]) -> list[SendResult]:
    async with Producer(namesrv, options=ProducerOptions(linger_ms=5)) as producer:
        return await asyncio.gather(*(producer.send(Message("readings", body)) for body in bodies))
# --8<-- [end:linger]


# --8<-- [start:batch]
async def send_together(namesrv: str, bodies: list[bytes]) -> list[SendResult]:
    async with Producer(namesrv) as producer:
        return await producer.send_batch([Message("readings", body) for body in bodies])
# --8<-- [end:batch]
