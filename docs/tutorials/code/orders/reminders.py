"""Cancels orders that are not paid in time."""

from orders.database import Database
from orders.model import CANCELLED, ORDERS, PAYMENTS_DUE, PLACED, Order
from perseid.client import Message, OrderedProducer, Producer, PushConsumer, ReceivedMessage

DAYS_TO_PAY = 2
DAY_MS = 24 * 60 * 60 * 1000


class Reminders:
    """Sends each order to itself, to arrive in two days."""

    def __init__(self, namesrv: str, database: Database) -> None:
        self.database = database
        self.producer = Producer(namesrv, "reminders")
        self.events = OrderedProducer(namesrv, "reminders")
        self.placed = PushConsumer(namesrv, "reminders", {ORDERS: PLACED}, self.remember, from_where="first")
        self.due = PushConsumer(namesrv, "payments-due", {PAYMENTS_DUE: "*"}, self.look, from_where="first")
        self.clients = [self.producer, self.events, self.placed, self.due]

    # --8<-- [start:timer]
    async def remember(self, message: ReceivedMessage) -> None:
        """An order was placed: look at it again when its payment is due."""
        due_ms = message.born_timestamp + DAYS_TO_PAY * DAY_MS
        await self.producer.send(Message(PAYMENTS_DUE, message.body, keys=message.keys, deliver_at_ms=due_ms))

    async def look(self, message: ReceivedMessage) -> None:
        """The payment of an order is due."""
        order = Order.decode(message.body)
        if self.database.state(order.order_id) == PLACED and not self.database.is_paid(order.order_id):
            cancelled = Message(ORDERS, message.body, tag=CANCELLED, keys=order.order_id)
            await self.events.send(cancelled, key=order.customer)

    # --8<-- [end:timer]
