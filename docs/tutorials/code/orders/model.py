"""What the parts of the shop tell each other: orders as JSON, and the topics that they travel in."""

import json
from dataclasses import asdict, dataclass

# --8<-- [start:topics]
ORDERS = "orders"
"""Events of orders, those of one customer in order. The tag says what happened."""
PLACED, PAID, CANCELLED = "placed", "paid", "cancelled"

STOCK = "stock"
"""Requests: how many of an item are there?"""

PAYMENTS_DUE = "payments-due"
"""A message for each order, delivered when its payment is due."""
# --8<-- [end:topics]


# --8<-- [start:order]
@dataclass(frozen=True)
class Order:
    """What a customer has ordered; `cents` is the price of it all."""

    order_id: str
    customer: str
    item: str
    quantity: int
    cents: int

    def encode(self) -> bytes:
        """The body of a message."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, body: bytes) -> "Order":
        """The order in the body of a message."""
        return cls(**json.loads(body))
# --8<-- [end:order]
