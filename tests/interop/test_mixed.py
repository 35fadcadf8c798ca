"""A Java broker on our name server, our broker on a Java name server, and both brokers in one cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import rig

pytestmark = [
    pytest.mark.interop,
    pytest.mark.parametrize("cluster", ["java-broker", "perseid-broker"], indirect=True),
]


def _routed(namesrv: str, topic: str) -> bool:
    return rig.call(namesrv, 105, {"topic": topic}).code == 0


@pytest.fixture
def second(cluster: rig.Cluster, workshop: Path) -> Iterator[rig.Process]:
    """Another broker in the cluster, of the implementation that the first is not."""
    impl = "java" if cluster.broker_process.impl == "perseid" else "perseid"
    broker = rig.broker(impl, workshop / f"second-{impl}", cluster.namesrv)
    broker.start()
    try:
        rig.await_registered(cluster.namesrv, broker.folder.name)
        yield broker
    finally:
        broker.kill()


def test_send_retry_and_dead_letters(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    java.send(topic, [f"m{i}" for i in range(20)], tags="T", keys="k")
    assert Counter(m["body"] for m in java.consume(topic, name, 20)) == Counter(f"m{i}" for i in range(20))
    java.send(topic, ["bad"])
    java("push.start", topic=topic, group=name, failures=99, maxReconsumeTimes=1)
    rig.until("dead-letter topic", lambda: _routed(cluster.namesrv, f"%DLQ%{name}"))
    assert [m["body"] for m in java.consume(f"%DLQ%{name}", f"{name}_dead", 1)] == ["bad"]


def test_go_client(go: rig.Client, topic: str, name: str) -> None:
    messages = [{"topic": topic, "body": f"m{i}"} for i in range(20)]
    assert all(r["status"] == "SEND_OK" for r in go("send", messages=messages))
    assert Counter(m["body"] for m in go.consume(topic, name, 20)) == Counter(f"m{i}" for i in range(20))


def test_topic_made_by_the_first_send(java: rig.Client, cluster: rig.Cluster, name: str) -> None:
    """The broker registers one topic more without a whole registration."""
    java.send(name, ["a"])
    rig.until("route", lambda: _routed(cluster.namesrv, name))


def test_both_brokers_in_one_cluster(java: rig.Client, cluster: rig.Cluster, second: rig.Process, name: str) -> None:
    first_name, second_name = cluster.broker_name, second.folder.name
    printed = java.mqadmin("updateTopic", "-c", cluster.cluster_name, "-t", name, "-r", "2", "-w", "2")
    assert printed.count("success") == 2, printed

    def brokers() -> set[str]:
        return {q["brokerName"] for q in java.admin("examineTopicRouteInfo", name)["queueDatas"]}

    rig.until("both in the route", lambda: brokers() == {first_name, second_name})
    java("producers.stop")
    sent = java.send(name, [f"m{i}" for i in range(40)])
    assert {(r["broker"], r["queueId"]) for r in sent} == {(b, q) for b in (first_name, second_name) for q in (0, 1)}
    got = java.consume(name, f"g_{name}", 40)
    assert Counter((m["broker"], m["body"]) for m in got) == Counter((r["broker"], f"m{i}") for i, r in enumerate(sent))
    info = java.admin("examineBrokerClusterInfo")
    assert sorted(info["clusterAddrTable"][cluster.cluster_name]) == sorted([first_name, second_name])
    second.kill()
    rig.until("it leaves the route at once", lambda: brokers() == {first_name})
    second.start()
    rig.until("it is back", lambda: brokers() == {first_name, second_name})


def test_name_server_restarts(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    """Clients go on with the route they know; the broker registers anew, with all topics."""
    java.send(topic, ["before"])
    cluster.namesrv_process.kill()
    java.send(topic, ["without"])
    cluster.namesrv_process.start()
    rig.until("registered again", lambda: _routed(cluster.namesrv, topic), 60)
    java.send(topic, ["after"])
    got = java.consume(topic, name, 3)
    assert sorted(m["body"] for m in got) == ["after", "before", "without"]
