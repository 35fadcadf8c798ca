"""POP: messages for a while."""

from perseid.client import PopConsumer


# --8<-- [start:work]
async def work(namesrv: str, done: list[bytes]) -> None:
    async with PopConsumer(namesrv, "thumbnails", "pictures", invisible_ms=30_000) as consumer:
        while True:
            for message in await consumer.receive(max_messages=8, timeout_ms=15_000):
                done.append(message.body)  # your work, in less than 30 s
                await consumer.ack(message)
# --8<-- [end:work]
