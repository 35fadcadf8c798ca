"""The real asyncio clients on a cluster in virtual time, with faults."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from perseid.base.errors import ConfigError, PerseidError
from perseid.client import ClientError, Message, Producer, PushConsumer, ReceivedMessage
from perseid.store.config import SYNC_FLUSH
from perseid.testing.cluster import VirtualCluster
from perseid.testing.machines import BROKER, SMALL_STORE

HOUR_MS = 3_600_000
DAY_S = 86_400


@pytest.fixture
def one() -> Iterator[VirtualCluster]:
    with VirtualCluster() as cluster:
        yield cluster


@pytest.fixture
def three() -> Iterator[VirtualCluster]:
    with VirtualCluster(replicas=3) as cluster:
        yield cluster


class Received:
    """What a consumer's handler was given, and a wait for more."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._more = asyncio.Condition()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.bodies.append(message.body)
        async with self._more:
            self._more.notify_all()

    async def all(self, bodies: set[bytes]) -> None:
        """Wait until each was received."""
        async with self._more:
            await self._more.wait_for(lambda: bodies <= set(self.bodies))


async def send_surely(producer: Producer, message: Message) -> None:
    """As an application does it: a send that fails is made again."""
    while True:
        try:
            await producer.send(message)
            return
        except ClientError as error:
            if not error.retryable:
                raise
            await asyncio.sleep(0.2)


async def numbers(cluster: VirtualCluster, count: int, *, kill_at: int = -1) -> list[bytes]:
    """What a consumer receives of so many messages; the master dies in the middle."""
    received = Received()
    async with (
        Producer(cluster.namesrv) as producer,
        PushConsumer(cluster.namesrv, "group", {"orders": "*"}, received, from_where="first"),
    ):
        for number in range(count):
            await send_surely(producer, Message("orders", b"%d" % number))
            if number == kill_at:
                cluster.kill("master")
        await received.all({b"%d" % number for number in range(count)})
    return received.bodies


def test_messages_come_and_an_idle_day_passes(one: VirtualCluster) -> None:
    began = one.now
    assert sorted(one.run(numbers(one, 20))) == sorted(b"%d" % number for number in range(20))
    one.run(asyncio.sleep(DAY_S))
    assert one.now - began >= DAY_S * 1000


def test_acknowledged_messages_survive_a_failover_under_load(three: VirtualCluster) -> None:
    was = three.master
    received = three.run(numbers(three, 200, kill_at=100))
    assert set(received) == {b"%d" % number for number in range(200)}
    assert three.master not in ("", was)
    three.restart(was)
    three.until(lambda: three.is_ready)


PRINT_DIGEST = """
from tests.testing.test_cluster import VirtualCluster, numbers
for seed in (1, 1, 2):
    with VirtualCluster(replicas=3, seed=seed) as cluster:
        cluster.run(numbers(cluster, 60, kill_at=30))
        print(cluster.digest())
"""


@pytest.mark.parametrize("core", ["on", "off"])
def test_the_same_seed_gives_the_same_run(core: str) -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        told = {**os.environ, "PYTHONHASHSEED": hash_seed, "PERSEID_CORE": core}
        done = subprocess.run(
            [sys.executable, "-c", PRINT_DIGEST], env=told, capture_output=True, text=True, timeout=120, check=True
        )
        first, again, other = done.stdout.split()
        assert first == again != other
        digests.add(first)
    assert len(digests) == 1


def test_names_of_machines(three: VirtualCluster) -> None:
    assert three.kill("broker-2") == "broker-2"
    with pytest.raises(PerseidError, match="broker-2 is down already"):
        three.kill("broker-2")
    with pytest.raises(PerseidError, match="'broker-9' is no machine of this cluster; it has: master, brokers"):
        three.kill("broker-9")
    three.kill("brokers")
    with pytest.raises(PerseidError, match="no broker is the master now"):
        three.partition("master", "client")


def test_a_cluster_has_replicas_or_slaves() -> None:
    with pytest.raises(ConfigError, match="the one or the other"):
        VirtualCluster(replicas=3, slaves=1)


async def send(cluster: VirtualCluster, body: bytes = b"x", timeout_ms: int = 3_000) -> float:
    """So many seconds it took to have one message acknowledged."""
    async with Producer(cluster.namesrv) as producer:
        began = asyncio.get_running_loop().time()
        await producer.send(Message("orders", body), timeout_ms=timeout_ms)
        return asyncio.get_running_loop().time() - began


def test_a_master_that_is_cut_off_from_its_controllers_is_replaced(three: VirtualCluster) -> None:
    was = three.master
    three.partition("master", "controllers")
    three.until(lambda: three.master not in ("", was))
    three.heal()
    three.until(lambda: three.is_ready)
    assert three.run(send(three)) < 1


@pytest.mark.parametrize("fault", ["partition", "stall", "full_disk", "power"])
def test_sends_fail_while_a_fault_lasts(one: VirtualCluster, fault: str) -> None:
    one.run(send(one))
    {
        "partition": lambda: one.partition("client", "brokers"),
        "stall": one.stall,
        "full_disk": one.full_disk,
        "power": one.cut_power,
    }[fault]()
    with pytest.raises(ClientError):
        one.run(send(one))
    one.heal()
    one.start()
    one.advance(seconds=10)
    assert one.run(send(one)) < 1


def test_a_slow_network_and_a_slow_disk(one: VirtualCluster) -> None:
    one.run(send(one))
    one.slow("broker-1", network_ms=300)
    assert one.run(send(one)) > 0.6
    one.heal()
    assert one.run(send(one)) < 0.3
    with VirtualCluster(store=replace(SMALL_STORE, flush_disk_type=SYNC_FLUSH)) as synced:
        synced.run(send(synced))
        synced.slow("master", disk_ms=700)
        assert synced.run(send(synced)) > 0.7


def test_a_slave_serves_readers_while_its_master_is_down() -> None:
    with VirtualCluster(slaves=1, broker=replace(BROKER, slave_read_enable=True)) as cluster:
        cluster.run(send(cluster, b"one"))
        cluster.advance(minutes=2)  # slaves copy the table of topics now and then
        assert cluster.kill("master") == "broker-1" and cluster.master == ""
        received = Received()

        async def main() -> None:
            async with PushConsumer(cluster.namesrv, "group", {"orders": "*"}, received, from_where="first"):
                await received.all({b"one"})

        cluster.run(main())
        cluster.restart("broker-1")
        cluster.until(lambda: cluster.is_ready)
        assert cluster.master == "broker-1"


def test_a_node_ends_cleanly_and_what_happened_is_told(one: VirtualCluster) -> None:
    one.shut_down("broker-1")
    one.until(lambda: any("stops: cleanly" in line for line in one.story("broker-1")), within_s=30)
    assert one.master == ""
    with pytest.raises(PerseidError, match="did not come true within 5 s"):
        one.until(lambda: one.master != "", within_s=5)
