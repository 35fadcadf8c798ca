"""Charges the customers' cards."""

import logging
from typing import Protocol

from orders.database import Database
from orders.model import ORDERS, PAID, PLACED, Order
from perseid.client import Message, OrderedProducer, PushConsumer, PushOptions, ReceivedMessage, RetryLater

log = logging.getLogger(__name__)


# --8<-- [start:cards]
class Declined(Exception):
    """The bank says no, and will say so again."""


class Cards(Protocol):
    """The bank's service: somebody else's, slow, and sometimes down."""

    async def charge(self, order: Order) -> None:
        """Charge an order once, however often it is asked with the same `order_id`. `Declined`, or any other error."""
        ...


# --8<-- [end:cards]


class Billing:
    """Charges each order that is placed, and tells that it is paid."""

    # --8<-- [start:consumer]
    def __init__(self, namesrv: str, database: Database, cards: Cards) -> None:
        self.database = database
        self.cards = cards
        self.events = OrderedProducer(namesrv, "billing")
        self.consumer = PushConsumer(
            namesrv,
            "billing",
            {ORDERS: PLACED},
            self.charge,
            from_where="first",
            options=PushOptions(max_reconsume_times=3),
        )
        self.clients = [self.events, self.consumer]

    # --8<-- [end:consumer]

    # --8<-- [start:charge]
    async def charge(self, message: ReceivedMessage) -> None:
        """Charge one order. The same message may come again: the card is charged once."""
        order = Order.decode(message.body)
        if self.database.state(order.order_id) != PLACED:
            return
        if not self.database.is_paid(order.order_id):
            try:
                await self.cards.charge(order)
            except Declined as declined:
                log.warning("order %s is not paid: %s", order.order_id, declined)
                raise RetryLater(str(declined), delay_level=-1) from declined  # to the dead letters
            self.database.save_payment(order)
        await self.events.send(Message(ORDERS, message.body, tag=PAID, keys=order.order_id), key=order.customer)

    # --8<-- [end:charge]
