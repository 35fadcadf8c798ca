"""The stock answers how many of an item there are."""

import logging

from orders.database import Database
from orders.model import STOCK
from perseid.client import ClientError, Producer, PushConsumer, ReceivedMessage

log = logging.getLogger(__name__)


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
        try:
            await self.producer.reply(request, str(quantity).encode())
        except ClientError as error:
            log.info("nobody waits for this reply any more: %s", error)

    # --8<-- [end:answer]
