"""Tests of a consumer that charges for orders, in virtual time."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from perseid.client import ClientError, Message, Producer, PushConsumer, ReceivedMessage
from perseid.store.config import SYNC_FLUSH
from perseid.testing.cluster import VirtualCluster
from perseid.testing.machines import SMALL_STORE
from perseid.testing.virtual import VirtualBroker


class Billing:
    """The application: charges each order once; the bank is down at first."""

    def __init__(self, namesrv: str, down: int = 0) -> None:
        self.down = down
        self.charged: set[bytes] = set()
        self.consumer = PushConsumer(namesrv, "billing", {"orders": "*"}, self.handle, from_where="first")

    async def handle(self, message: ReceivedMessage) -> None:
        """Raises while the bank is down: the message comes again."""
        if self.down:
            self.down -= 1
            raise ConnectionError("the bank is down")
        self.charged.add(message.body)


async def until_charged(billing: Billing, *orders: bytes) -> None:
    """Wait in virtual time."""
    async with asyncio.timeout(600):
        while not billing.charged >= set(orders):
            await asyncio.sleep(0.1)


# --8<-- [start:run]
async def test_a_bank_that_is_down(perseid_virtual: VirtualBroker) -> None:
    billing = Billing(perseid_virtual.namesrv, down=2)
    async with Producer(perseid_virtual.namesrv) as producer, billing.consumer:
        await producer.send(Message("orders", b"order 1"))
        await until_charged(billing, b"order 1")  # after 10 s, and 30 s more


# --8<-- [end:run]


# --8<-- [start:plain]
def test_an_order_for_tomorrow(perseid_virtual: VirtualBroker) -> None:
    async def order() -> None:
        async with Producer(perseid_virtual.namesrv) as producer:
            await producer.send(Message("orders", b"order 1", delay_ms=24 * 3_600_000))

    billing = Billing(perseid_virtual.namesrv)
    perseid_virtual.run(order())
    perseid_virtual.advance(hours=23, minutes=59)
    perseid_virtual.run(billing.consumer.start())
    assert billing.charged == set()
    perseid_virtual.advance(minutes=1, seconds=5)
    assert billing.charged == {b"order 1"}
    perseid_virtual.run(billing.consumer.stop())


# --8<-- [end:plain]


async def send_until_taken(producer: Producer, body: bytes) -> None:
    """What the shop does when a send fails."""
    async with asyncio.timeout(120):
        while True:
            try:
                await producer.send(Message("orders", body))
                return
            except ClientError:
                await asyncio.sleep(1)


# --8<-- [start:fault]
async def test_a_master_that_loses_its_power(perseid_virtual_cluster: VirtualCluster) -> None:
    cluster = perseid_virtual_cluster
    billing = Billing(cluster.namesrv)
    async with Producer(cluster.namesrv) as producer, billing.consumer:
        await producer.send(Message("orders", b"order 1"))
        lost = cluster.cut_power("master")
        await send_until_taken(producer, b"order 2")
        await until_charged(billing, b"order 1", b"order 2")
        assert cluster.master != lost
        cluster.restart(lost)  # comes back as a slave


# --8<-- [end:fault]


# --8<-- [start:own]
@pytest.fixture
def cluster() -> Iterator[VirtualCluster]:
    """A master that syncs each message to its disk, and a slave."""
    with VirtualCluster(slaves=1, store=replace(SMALL_STORE, flush_disk_type=SYNC_FLUSH)) as cluster:
        yield cluster


# --8<-- [end:own]


async def test_a_power_cut_loses_nothing_that_was_acknowledged(cluster: VirtualCluster) -> None:
    billing = Billing(cluster.namesrv)
    async with Producer(cluster.namesrv) as producer, billing.consumer:
        await producer.send(Message("orders", b"order 1"))
        cluster.restart(cluster.cut_power("master"))
        await send_until_taken(producer, b"order 2")
        await until_charged(billing, b"order 1", b"order 2")


# --8<-- [start:seeds]
@pytest.mark.parametrize("seed", range(10))
def test_no_order_is_lost(seed: int) -> None:
    with VirtualCluster(replicas=3, seed=seed) as cluster:
        cluster.run(orders_during_a_failover(cluster))


# --8<-- [end:seeds]


async def orders_during_a_failover(cluster: VirtualCluster) -> None:
    """Ten orders; the master dies after the fifth."""
    billing = Billing(cluster.namesrv)
    orders = [b"order %d" % number for number in range(10)]
    async with Producer(cluster.namesrv) as producer, billing.consumer:
        for order in orders:
            await send_until_taken(producer, order)
            if order == orders[4]:
                cluster.kill("master")
        await until_charged(billing, *orders)
