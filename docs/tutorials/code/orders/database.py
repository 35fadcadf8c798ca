"""The shop's database, in SQLite: orders, payments, stock."""

import sqlite3
from pathlib import Path

from orders.model import CANCELLED, PAID, PLACED, Order

TABLES = """
CREATE TABLE IF NOT EXISTS orders
    (order_id TEXT PRIMARY KEY, customer TEXT, item TEXT, quantity INT, cents INT, state TEXT);
CREATE TABLE IF NOT EXISTS payments (order_id TEXT PRIMARY KEY, cents INT);
CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, quantity INT);
"""
BEFORE = {PAID: PLACED, CANCELLED: PLACED}
"""The state that an order is in before another one."""


class Database:
    """What the shop must not forget. Several processes may use the same file."""

    def __init__(self, path: Path | str) -> None:
        self.connection = sqlite3.connect(path, timeout=10)
        self.connection.executescript(TABLES)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    # --8<-- [start:orders]
    def save_order(self, order: Order) -> None:
        """Save a new order, and take its items out of the stock. An order that is saved already is not saved again."""
        with self.connection as transaction:
            row = (order.order_id, order.customer, order.item, order.quantity, order.cents, PLACED)
            if transaction.execute("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?, ?, ?)", row).rowcount:
                taken = (order.quantity, order.item)
                transaction.execute("UPDATE stock SET quantity = quantity - ? WHERE item = ?", taken)

    def state(self, order_id: str) -> str | None:
        """The state of an order; None for one that was never saved."""
        row = self.connection.execute("SELECT state FROM orders WHERE order_id = ?", (order_id,)).fetchone()
        return row[0] if row else None

    # --8<-- [end:orders]

    # --8<-- [start:change]
    def change_state(self, order_id: str, state: str) -> bool:
        """Bring an order into its next state; False when it is not in the state before: the event came twice."""
        with self.connection as transaction:
            changed = transaction.execute(
                "UPDATE orders SET state = ? WHERE order_id = ? AND state = ?", (state, order_id, BEFORE[state])
            )
        return changed.rowcount == 1

    # --8<-- [end:change]

    # --8<-- [start:payments]
    def is_paid(self, order_id: str) -> bool:
        """Was this order charged?"""
        return self.connection.execute("SELECT 1 FROM payments WHERE order_id = ?", (order_id,)).fetchone() is not None

    def save_payment(self, order: Order) -> None:
        """Remember that an order was charged."""
        with self.connection as transaction:
            transaction.execute("INSERT OR IGNORE INTO payments VALUES (?, ?)", (order.order_id, order.cents))

    # --8<-- [end:payments]

    def put_into_stock(self, item: str, quantity: int) -> None:
        """Set how many of an item there are."""
        with self.connection as transaction:
            transaction.execute("INSERT OR REPLACE INTO stock VALUES (?, ?)", (item, quantity))

    def in_stock(self, item: str) -> int:
        """How many of an item there are."""
        row = self.connection.execute("SELECT quantity FROM stock WHERE item = ?", (item,)).fetchone()
        return int(row[0]) if row else 0

    def states(self) -> dict[str, str]:
        """The state of each order."""
        return dict(self.connection.execute("SELECT order_id, state FROM orders ORDER BY order_id"))
