"""The shop as processes.

    python -m orders serve                               run stock, billing, ledger and reminders
    python -m orders place ORDER CUSTOMER ITEM QUANTITY CENTS
    python -m orders fill ITEM QUANTITY                  put items into the stock
    python -m orders show                                the state of each order
"""

import argparse
import asyncio
import logging
import os
import sys

from orders.billing import Declined
from orders.database import Database
from orders.model import Order
from orders.service import Service
from orders.shop import OutOfStock, Shop
from perseid.client import run_until_signal

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
DATABASE = os.environ.get("ORDERS_DATABASE", "orders.db")
log = logging.getLogger("orders")


class DemoBank:
    """Stands for a bank's service: everybody can pay but Mallory."""

    async def charge(self, order: Order) -> None:
        """Log what would be charged."""
        if order.customer == "mallory":
            raise Declined(f"the card of {order.customer} is declined")
        log.info("charged %s %.2f for order %s", order.customer, order.cents / 100, order.order_id)


async def place(database: Database, order: Order) -> None:
    """Place one order."""
    async with Shop(NAMESRV, database) as shop:
        await shop.place(order)


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="orders")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve")
    commands.add_parser("show")
    placing = commands.add_parser("place")
    for name, kind in (("order", str), ("customer", str), ("item", str), ("quantity", int), ("cents", int)):
        placing.add_argument(name, type=kind)
    filling = commands.add_parser("fill")
    filling.add_argument("item")
    filling.add_argument("quantity", type=int)
    given = parser.parse_args()

    logging.basicConfig(format="%(message)s")
    logging.getLogger("orders").setLevel(logging.INFO)
    database = Database(DATABASE)
    if given.command == "serve":
        service = Service(NAMESRV, database, DemoBank())
        sys.exit(asyncio.run(run_until_signal(service)))
    elif given.command == "fill":
        database.put_into_stock(given.item, given.quantity)
    elif given.command == "show":
        for order_id, state in database.states().items():
            print(order_id, state)
    else:
        order = Order(given.order, given.customer, given.item, given.quantity, given.cents)
        try:
            asyncio.run(place(database, order))
        except OutOfStock as error:
            raise SystemExit(f"not placed: {error}") from None
        print(f"placed {order.order_id}")


if __name__ == "__main__":
    main()
