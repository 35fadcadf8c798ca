"""The pytest plugin. Installing perseid installs it.

    def test_orders(perseid_broker):
        with BlockingProducer(perseid_broker.namesrv) as producer:
            ...

`perseid_broker` is a fresh broker for each test, `perseid_session_broker` one for the whole run; both on real sockets
and in real time. `perseid_virtual` is a broker in virtual time, `perseid_virtual_cluster` a set of three. In virtual
time no test really waits, and the test decides when faults happen.

    async def test_orders(perseid_virtual):
        async with Producer(perseid_virtual.namesrv) as producer:
            await producer.send(Message("orders", b"later", delay_ms=3_600_000))
            await asyncio.sleep(3600)

An `async def` test that has such a fixture runs on its event loop, without another plugin; a plain one calls
`perseid_virtual.run(main())`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from perseid.testing.cluster import VirtualCluster
    from perseid.testing.embedded import EmbeddedBroker
    from perseid.testing.virtual import VirtualBroker


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test on the event loop of the virtual cluster among its fixtures."""
    cluster_module = sys.modules.get("perseid.testing.cluster")  # not loaded: no test has one
    if cluster_module is None or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    given = {name: value for name, value in pyfuncitem.funcargs.items() if name in wanted}
    for value in given.values():
        if isinstance(value, cluster_module.VirtualCluster):
            value.run(pyfuncitem.obj(**given))
            return True
    return None


@pytest.fixture
def perseid_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A name server and a broker in this process, on free ports, with a store of this test's own."""
    from perseid.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(tmp_path / "perseid") as broker:
        yield broker


@pytest.fixture(scope="session")
def perseid_session_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """One broker for all tests of the run. It is quicker, but tests must use different topics."""
    from perseid.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(tmp_path_factory.mktemp("perseid")) as broker:
        yield broker


@pytest.fixture
def perseid_virtual() -> Iterator[VirtualBroker]:
    """A broker in virtual time, on a simulated disk; the asyncio clients run on it in `perseid_virtual.run(main())`."""
    from perseid.testing.virtual import VirtualBroker

    broker = VirtualBroker()
    yield broker
    broker.close()


@pytest.fixture
def perseid_virtual_cluster() -> Iterator[VirtualCluster]:
    """Three brokers under three controllers in virtual time: `kill("master")` causes a failover."""
    from perseid.testing.cluster import VirtualCluster

    with VirtualCluster(replicas=3) as cluster:
        yield cluster
