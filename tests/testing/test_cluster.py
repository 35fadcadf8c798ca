"""The real asyncio clients on a cluster in virtual time, with faults."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from perseid.base.errors import ConfigError, PerseidError
from perseid.client import Message, Producer, PushConsumer, ReceivedMessage, SendFailed
from perseid.testing.cluster import VirtualCluster

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
        except SendFailed:
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
