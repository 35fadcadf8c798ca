"""The pytest plugin, used in tests of its own."""

import inspect
from pathlib import Path

import pytest

from perseid.testing import cluster, embedded, plugin, virtual

LOADED = cluster, embedded, virtual
"""Here already, as a run in this process forgets what it loads: half of it would be there twice in the next one."""

pytest_plugins = ["pytester"]

SEND_AND_COUNT = """
from perseid.client import Message
from perseid.client.blocking import BlockingProducer

def send(broker):
    with BlockingProducer(broker.namesrv) as producer:
        return producer.send(Message("orders", b"x"), queue=producer.queues("orders")[0]).queue_offset
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> pytest.Pytester:
    """Runs in this process, and with nothing but what is installed: the plugin is there by itself."""
    pytester.makeini("[pytest]\naddopts = -p no:randomly -p no:cacheprovider")
    pytester.makepyfile(helpers=SEND_AND_COUNT)
    pytester.syspathinsert()
    return pytester


def test_each_test_gets_a_broker_of_its_own(run: pytest.Pytester, tmp_path: Path) -> None:
    run.makepyfile(
        """
        import pytest
        from helpers import send

        @pytest.mark.parametrize("time", [1, 2])
        def test_orders(perseid_broker, time, tmp_path):
            perseid_broker.create_topic("orders", 1)
            assert [send(perseid_broker), send(perseid_broker)] == [0, 1]
            assert perseid_broker.data.is_relative_to(tmp_path)
        """
    )
    run.runpytest_inprocess("-q").assert_outcomes(passed=2)


def test_one_broker_for_the_whole_run(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        import pytest
        from helpers import send

        @pytest.mark.parametrize("time", [0, 1, 2])
        def test_orders(perseid_session_broker, time):
            if time == 0:
                perseid_session_broker.create_topic("orders", 1)
            assert send(perseid_session_broker) == time
        """
    )
    run.runpytest_inprocess("-q").assert_outcomes(passed=3)


def test_a_broker_in_virtual_time(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        def test_orders(perseid_virtual):
            perseid_virtual.create_topic("orders", queues=1)
            before = perseid_virtual.now
            perseid_virtual.send("orders", b"later", queue_id=0, delay_level=3)
            assert perseid_virtual.pull("orders", 0) == []
            perseid_virtual.advance(11_000)
            assert [m.body for m in perseid_virtual.pull("orders", 0)] == [b"later"]
            assert perseid_virtual.now - before >= 11_000
            perseid_virtual.cut_power()
            perseid_virtual.start()
        """
    )
    run.runpytest_inprocess("-q").assert_outcomes(passed=1)


CLIENTS = """
import asyncio
from perseid.client import Message, Producer, PullConsumer

async def round_trip(namesrv):
    async with Producer(namesrv) as producer, PullConsumer(namesrv, "g", from_where="first") as consumer:
        result = await producer.send(Message("orders", b"one"))
        consumer.assign([result.queue])
        await asyncio.sleep(60)
        return [message.body for message in await consumer.poll()]
"""


def test_asyncio_clients_in_virtual_time(run: pytest.Pytester) -> None:
    run.makepyfile(clients=CLIENTS)
    run.makepyfile(
        """
        import asyncio
        import pytest
        from clients import round_trip
        from perseid.testing.cluster import VirtualCluster

        def test_plain(perseid_virtual):
            assert perseid_virtual.run(round_trip(perseid_virtual.namesrv)) == [b"one"]

        async def test_async(perseid_virtual):
            assert await round_trip(perseid_virtual.namesrv) == [b"one"]

        @pytest.fixture
        def own():
            with VirtualCluster(slaves=1, seed=7) as cluster:
                yield cluster

        class TestOrders:
            @pytest.mark.parametrize("time", [1, 2])
            async def test_of_a_class_with_a_cluster_of_its_own(self, own, time, tmp_path):
                assert await round_trip(own.namesrv) == [b"one"]

        async def test_a_failover(perseid_virtual_cluster):
            was = perseid_virtual_cluster.master
            perseid_virtual_cluster.kill("master")
            await asyncio.sleep(30)
            assert await round_trip(perseid_virtual_cluster.namesrv) == [b"one"]
            assert perseid_virtual_cluster.master not in ("", was)

        async def test_fails(perseid_virtual):
            assert await round_trip(perseid_virtual.namesrv) == [b"two"]
        """
    )
    run.runpytest_inprocess("-q").assert_outcomes(passed=5, failed=1)


def test_the_fixtures_are_listed_with_their_words(run: pytest.Pytester) -> None:
    said = run.runpytest_inprocess("--fixtures", "-q").stdout.str()
    for name in ("perseid_broker", "perseid_session_broker", "perseid_virtual", "perseid_virtual_cluster"):
        words = inspect.getdoc(getattr(plugin, name)) or ""
        assert f"\n{name}" in said and len(words) > 20 and words.splitlines()[0] in said


def test_a_failing_test_still_stops_its_broker(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        import threading
        before = set(threading.enumerate())

        def test_fails(perseid_broker):
            assert False

        def test_nothing_runs_any_more():
            assert set(threading.enumerate()) <= before
        """
    )
    run.runpytest_inprocess("-q").assert_outcomes(failed=1, passed=1)
