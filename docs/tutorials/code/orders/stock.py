"""The stock answers how many of an item there are."""

from orders.database import Database
from orders.model import STOCK
from perseid.client import Producer, PushConsumer, ReceivedMessage


class Stock:
    """Replies to requests."""

    def __init__(self, namesrv: str, database: Database) -> None:
        self.database = database
        self.producer = Producer(namesrv, "stock")
        self.consumer = PushConsumer(namesrv, "stock", {STOCK: "*"}, self.answer)
        self.clients = [self.producer, self.consumer]

    # --8<-- [start:answer]
    async def answer(self, request: ReceivedMessage) -> None:
        """Reply to one request."""
        quantity = self.database.in_stock(request.body.decode())
        await self.producer.reply(request, str(quantity).encode())

    # --8<-- [end:answer]
