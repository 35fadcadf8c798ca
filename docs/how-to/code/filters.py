"""Filters."""

from collections.abc import Callable

from perseid.client import Consumer, Message, Producer, Sql


# --8<-- [start:send]
async def send(namesrv: str) -> None:
    async with Producer(namesrv) as producer:
        for tag, price in (("book", 20), ("pen", 2), ("desk", 300)):
            await producer.send(Message("goods", tag.encode(), tag=tag, properties={"price": str(price)}))
# --8<-- [end:send]


async def consume(namesrv: str, saw: Callable[[str, bytes], None], which: str) -> None:
    # --8<-- [start:consume]
    by_tag = Consumer(namesrv, "desks", {"goods": "desk || book"}, from_where="first")
    by_sql = Consumer(namesrv, "dear", {"goods": Sql("price > 10 AND TAGS <> 'book'")}, from_where="first")
    # --8<-- [end:consume]
    async with by_tag if which == "tag" else by_sql as consumer:
        async for message in consumer:
            saw(which, message.body)
