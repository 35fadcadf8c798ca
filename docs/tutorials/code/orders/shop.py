"""Customers place orders here."""

from typing import Self

from orders.database import Database
from orders.model import ORDERS, PLACED, STOCK, Order
from perseid.client import Message, ReceivedMessage, SendResult, TransactionProducer, TransactionState


class OutOfStock(Exception):
    """There are not so many of an item."""


class Shop:
    """Takes orders: `async with Shop(namesrv, database) as shop: await shop.place(order)`."""

    def __init__(self, namesrv: str, database: Database) -> None:
        self.database = database
        self.producer = TransactionProducer(namesrv, "shop", self.was_saved, topics=[ORDERS])

    async def __aenter__(self) -> Self:
        await self.producer.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.producer.stop()

    # --8<-- [start:place]
    async def place(self, order: Order) -> None:
        """Take an order. After an error the customer may try again with the same order: it is saved once."""
        if self.database.state(order.order_id) is None and await self.in_stock(order.item) < order.quantity:
            raise OutOfStock(f"there are fewer than {order.quantity} of {order.item}")

        async def save(half: SendResult) -> TransactionState:
            self.database.save_order(order)
            return TransactionState.COMMIT

        message = Message(ORDERS, order.encode(), tag=PLACED, keys=order.order_id)
        await self.producer.send_in_transaction(message, save, key=order.customer)

    # --8<-- [end:place]

    # --8<-- [start:check]
    async def was_saved(self, message: ReceivedMessage) -> TransactionState:
        """A broker asks what became of an order: its half message waits, and nobody has told."""
        saved = self.database.state(Order.decode(message.body).order_id) is not None
        return TransactionState.COMMIT if saved else TransactionState.ROLLBACK

    # --8<-- [end:check]

    # --8<-- [start:request]
    async def in_stock(self, item: str) -> int:
        """Ask the stock how many of an item there are."""
        reply = await self.producer.request(Message(STOCK, item.encode()), timeout_ms=5_000)
        return int(reply.body)

    # --8<-- [end:request]
