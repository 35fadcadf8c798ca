"""Keeps the state of each order, from the events in their order."""

import logging

from orders.database import Database
from orders.model import CANCELLED, ORDERS, PAID
from perseid.client import ConsumeMode, PushConsumer, ReceivedMessage

log = logging.getLogger(__name__)


class Ledger:
    """Hears what happens to orders, one customer's events one after the other."""

    # --8<-- [start:consumer]
    def __init__(self, namesrv: str, database: Database) -> None:
        self.database = database
        self.consumer = PushConsumer(
            namesrv,
            "ledger",
            {ORDERS: f"{PAID} || {CANCELLED}"},
            self.note,
            mode=ConsumeMode.ORDERED,
            from_where="first",
        )
        self.clients = [self.consumer]

    # --8<-- [end:consumer]

    # --8<-- [start:note]
    async def note(self, event: ReceivedMessage) -> None:
        """Change the state of one order."""
        assert event.tag is not None  # the subscription names tags
        for order_id in event.keys:
            if self.database.change_state(order_id, event.tag):
                log.info("order %s is %s", order_id, event.tag)

    # --8<-- [end:note]
