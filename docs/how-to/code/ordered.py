"""Messages in order."""

from perseid.client import ConsumeMode, Consumer, Message, OrderedProducer


# --8<-- [start:send]
async def send(namesrv: str, prices: list[tuple[str, int]]) -> None:
    async with OrderedProducer(namesrv) as producer:
        for share, price in prices:
            await producer.put(Message("prices", b"%d" % price, tag=share), key=share)
        await producer.flush()  # raises if one was not stored
# --8<-- [end:send]


# --8<-- [start:consume]
async def consume(namesrv: str, last: dict[str, list[int]]) -> None:
    async with Consumer(
        namesrv, "board", {"prices": "*"}, from_where="first", mode=ConsumeMode.ORDERED
    ) as consumer:
        async for message in consumer:
            last.setdefault(message.tag or "", []).append(int(message.body))
# --8<-- [end:consume]
