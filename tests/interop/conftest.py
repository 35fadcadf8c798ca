"""Clusters of real Java parts and of ours, and the stock clients: started once, when a test asks."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import parts
import rig
from broker_settings import set_for_a_while
from rehearsal import rehearsed
from shared import Shared

TEST_SECONDS = 500
LONGER_SECONDS = 560
LONGER = {
    f"test_{name}"
    for name in (
        "all_commands", "batch_topics", "client_on_java", "lite", "pop", "static_topics", "store_exchange", "timers",
    )
}  # fmt: skip
"""Files with tests that last for a minute. The longest limits come first (tests/conftest.py), so that none of these is
what is left when all else is done."""
KINDS = {
    "java": ("java", "java"),
    "perseid": ("perseid", "perseid"),
    "java-broker": ("perseid", "java"),
    "perseid-broker": ("java", "perseid"),
}
"""Cluster → who is the name server, who is the broker."""


STOCK = {
    f"test_{name}"
    for name in (
        "go_clients", "java_admin", "java_consumers", "java_headers", "java_producers", "java_queries", "mqadmin",
        "pop", "refusals",
    )
}  # fmt: skip
"""Files in which nothing is ours but the cluster: on Java's they prove what the tests say, not what we do."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Own time limits; stock clients on a stock cluster are `long`; with PERSEID_ORACLE=0 the tests run on our cluster
    only, without proof on the Java one."""
    without: list[pytest.Item] = []
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if not item.get_closest_marker("timeout"):
            limit = LONGER_SECONDS if item.path.stem in LONGER else TEST_SECONDS
            item.add_marker(pytest.mark.timeout(limit, func_only=True))
        if "on_java" in item.name and item.path.stem in STOCK:
            item.add_marker(pytest.mark.long)
        if os.environ.get("PERSEID_ORACLE") == "0" and "on_java" in item.name:
            without.append(item)
    if without:
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in without]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failure shows the end of each server's log and where the whole of it is."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and isinstance(item, pytest.Function):
        clusters = [v for v in item.funcargs.values() if isinstance(v, rig.Cluster)]
        for cluster in clusters:
            for process in (cluster.namesrv_process, cluster.broker_process):
                report.sections.append((f"{process.folder.name}: {process.log}", process.tail()))


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of all processes; pytest keeps those of the last three runs."""
    folder = tmp_path_factory.mktemp("interop")
    rehearsed(folder / "rehearsal")
    return folder


@pytest.fixture(scope="session")
def java_agent(workshop: Path) -> Iterator[rig.Agent]:
    """The stock Java clients, for all clusters."""
    agent = rig.java_agent(workshop / "agent-java")
    yield agent
    agent.stop()


@pytest.fixture(scope="session")
def binary_agent(workshop: Path) -> Iterator[rig.Agent]:
    """The same, with headers in the ROCKETMQ form instead of JSON."""
    agent = rig.java_agent(workshop / "agent-binary", "-Drocketmq.serialize.type=ROCKETMQ")
    yield agent
    agent.stop()


@pytest.fixture(scope="session")
def go_agent(workshop: Path) -> Iterator[rig.Agent]:
    """The stock Go clients, for all clusters."""
    agent = rig.Agent([str(parts.go_agent())], workshop / "agent-go")
    yield agent
    agent.stop()


@pytest.fixture(scope="session")
def clusters(workshop: Path) -> Iterator[Shared]:
    """Those that tests share, one of each kind."""
    made = Shared(lambda kind: rig.cluster(kind, *KINDS[kind], workshop))
    yield made
    ends = made.end()
    assert not any(ends.values()), f"exit codes after SIGTERM: {ends}"


@pytest.fixture
def java_cluster(clusters: Shared) -> Iterator[rig.Cluster]:
    """Name server and broker of Java RocketMQ 5.5.0."""
    with clusters.lent("java") as cluster:
        yield cluster


@pytest.fixture
def perseid_cluster(clusters: Shared) -> Iterator[rig.Cluster]:
    """Our name server and broker."""
    with clusters.lent("perseid") as cluster:
        yield cluster


@pytest.fixture(params=["java", "perseid"], ids=["on_java", "on_perseid"])
def transactional_cluster(request: pytest.FixtureRequest, workshop: Path, name: str) -> Iterator[rig.Cluster]:
    """Taking transactions, for one test: a thread of Java's broker spins from the first of them on."""
    cluster = rig.cluster(f"tx-{name}", request.param, request.param, workshop)
    with set_for_a_while(cluster, "rejectTransactionMessage", "false", "true"):
        yield cluster
    for process in (cluster.broker_process, cluster.namesrv_process):
        process.kill()


@pytest.fixture(params=["java", "perseid"], ids=["on_java", "on_perseid"])
def cluster(request: pytest.FixtureRequest, clusters: Shared) -> Iterator[rig.Cluster]:
    """The real thing, then ours: what a test says holds for both."""
    with clusters.lent(request.param) as cluster:
        yield cluster


@pytest.fixture
def sql_cluster(cluster: rig.Cluster) -> Iterator[rig.Cluster]:
    """Its broker filters by properties."""
    with set_for_a_while(cluster, "enablePropertyFilter", "true", "false"):
        yield cluster


@pytest.fixture
def java(cluster: rig.Cluster, java_agent: rig.Agent) -> Iterator[rig.Client]:
    """The stock Java clients on the test's cluster."""
    client = rig.Client(java_agent, cluster)
    yield client
    client.close()


@pytest.fixture(params=["java_agent", "binary_agent"], ids=["json", "binary"])
def either_java(request: pytest.FixtureRequest, cluster: rig.Cluster) -> Iterator[rig.Client]:
    """The stock Java clients on the test's cluster, with headers in JSON and in binary."""
    client = rig.Client(request.getfixturevalue(request.param), cluster)
    yield client
    client.close()


@pytest.fixture
def go(cluster: rig.Cluster, go_agent: rig.Agent) -> Iterator[rig.Client]:
    """The stock Go clients on the test's cluster."""
    client = rig.Client(go_agent, cluster)
    yield client
    client.close()


_numbers = itertools.count(1)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics and groups that no other test uses."""
    word = request.function.__name__.removeprefix("test_")[:40]
    return f"{word}_{next(_numbers)}"


@pytest.fixture
def topic(cluster: rig.Cluster, java: rig.Client, name: str) -> str:
    """A topic of four queues, ready at the name server."""
    topic = f"t_{name}"
    java.admin("createTopic", "TBW102", topic, 4, {})
    rig.until(f"route of {topic}", lambda: rig.call(cluster.namesrv, 105, {"topic": topic}).code == 0)
    return topic
