"""The order service: on a real broker, then in virtual time."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from orders.billing import Declined
from orders.database import Database
from orders.model import ORDERS, PLACED, Order
from orders.service import Service
from orders.shop import OutOfStock, Shop

from perseid.client import ClientError, Message, PushConsumer, ReceivedMessage
from perseid.testing.cluster import VirtualCluster
from perseid.testing.embedded import EmbeddedBroker
from perseid.testing.virtual import VirtualBroker

ORDER = Order("1", "anna", "book", 2, 1999)


# --8<-- [start:bank]
class Bank:
    """A bank that is down for the first `down` charges, and knows what it has charged."""

    def __init__(self, down: int = 0) -> None:
        self.down = down
        self.attempts = 0
        self.charged: list[str] = []

    async def charge(self, order: Order) -> None:
        self.attempts += 1
        if self.attempts <= self.down:
            raise ConnectionError("the bank is down")
        if order.customer == "mallory":
            raise Declined("the bank says no")
        self.charged.append(order.order_id)


# --8<-- [end:bank]


# --8<-- [start:helpers]
@pytest.fixture
def database() -> Iterator[Database]:
    database = Database(":memory:")
    database.put_into_stock("book", 1000)
    yield database
    database.close()


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until a condition holds; TimeoutError if it never does."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


# --8<-- [end:helpers]


# --8<-- [start:real]
def test_an_order_is_charged(perseid_broker: EmbeddedBroker, database: Database) -> None:
    async def main() -> None:
        async with Service(perseid_broker.namesrv, database, bank), Shop(perseid_broker.namesrv, database) as shop:
            await shop.place(ORDER)
            await until(lambda: database.state("1") == "paid")
            with pytest.raises(OutOfStock):
                await shop.place(Order("2", "anna", "pencil", 1, 99))

    bank = Bank()
    asyncio.run(main())
    assert bank.charged == ["1"]


# --8<-- [end:real]


# --8<-- [start:retries]
def test_a_bank_that_is_down_is_asked_again(perseid_virtual: VirtualBroker, database: Database) -> None:
    async def main() -> float:
        async with Service(perseid_virtual.namesrv, database, bank), Shop(perseid_virtual.namesrv, database) as shop:
            await shop.place(ORDER)
            begun = asyncio.get_running_loop().time()
            await until(lambda: database.state("1") == "paid")
            return asyncio.get_running_loop().time() - begun

    bank = Bank(down=2)
    seconds = perseid_virtual.run(main())
    assert bank.charged == ["1"]
    assert 40 < seconds < 45  # again after 10 s, and after 30 s more


# --8<-- [end:retries]


# --8<-- [start:dead]
def test_an_order_that_cannot_be_charged_is_a_dead_letter(perseid_virtual: VirtualBroker, database: Database) -> None:
    async def main() -> None:
        async with Service(perseid_virtual.namesrv, database, bank), Shop(perseid_virtual.namesrv, database) as shop:
            await shop.place(ORDER)
            async with PushConsumer(perseid_virtual.namesrv, "morgue", {"%DLQ%billing": "*"}, look, from_where="first"):
                await until(lambda: bool(dead), seconds=600)

    async def look(message: ReceivedMessage) -> None:
        dead.append(Order.decode(message.body))

    bank = Bank(down=1000)
    dead: list[Order] = []
    perseid_virtual.run(main())
    assert dead == [ORDER]
    assert (bank.attempts, database.state("1")) == (4, "placed")  # the first time, and three more


# --8<-- [end:dead]


# --8<-- [start:timer]
def test_an_order_that_is_not_paid_is_cancelled_after_two_days(
    perseid_virtual: VirtualBroker, database: Database
) -> None:
    async def place() -> None:
        async with Service(namesrv, database, Bank()), Shop(namesrv, database) as shop:
            await shop.place(Order("1", "mallory", "book", 1, 1999))
            await asyncio.sleep(60)

    async def look() -> str | None:
        async with Service(namesrv, database, Bank()):
            await asyncio.sleep(60)
            return database.state("1")

    namesrv = perseid_virtual.namesrv
    perseid_virtual.run(place())
    perseid_virtual.advance(days=1, hours=23)
    assert perseid_virtual.run(look()) == "placed"
    perseid_virtual.advance(hours=1)
    assert perseid_virtual.run(look()) == "cancelled"


# --8<-- [end:timer]


# --8<-- [start:crash]
def test_an_order_whose_shop_dies_before_it_commits_is_charged(
    perseid_virtual: VirtualBroker, database: Database
) -> None:
    async def main() -> None:
        async with Service(perseid_virtual.namesrv, database, bank):
            async with Shop(perseid_virtual.namesrv, database) as shop:
                await shop.producer.begin(Message(ORDERS, ORDER.encode(), tag=PLACED, keys="1"))
                database.save_order(ORDER)  # and here this shop dies
            async with Shop(perseid_virtual.namesrv, database):
                await until(lambda: database.state("1") == "paid", seconds=300)  # a broker asks this shop

    bank = Bank()
    perseid_virtual.run(main())
    assert bank.charged == ["1"]


# --8<-- [end:crash]


# --8<-- [start:failover]
async def place_until_taken(shop: Shop, order: Order) -> None:
    """What a customer does: try again after an error."""
    async with asyncio.timeout(120):
        while True:
            try:
                return await shop.place(order)
            except ClientError:
                await asyncio.sleep(1)


def test_no_order_is_lost_when_the_master_dies(perseid_virtual_cluster: VirtualCluster, database: Database) -> None:
    async def main() -> None:
        async with Service(cluster.namesrv, database, bank), Shop(cluster.namesrv, database) as shop:
            for order in orders:
                if order.order_id == "5":
                    cluster.kill("master")
                await place_until_taken(shop, order)
            await until(lambda: set(database.states().values()) == {"paid"}, seconds=300)

    cluster = perseid_virtual_cluster
    bank = Bank()
    orders = [Order(str(n), f"customer {n % 3}", "book", 1, 1999) for n in range(10)]
    before = cluster.master
    cluster.run(main())
    assert cluster.master != before
    assert sorted(bank.charged) == sorted(order.order_id for order in orders)  # each one once


# --8<-- [end:failover]
