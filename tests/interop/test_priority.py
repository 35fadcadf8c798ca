"""Topics by priority: stock Java clients on Java's broker and on ours, our client on Java's, folders that pass on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rig
import ways

from perseid.client import Admin, Message, PopConsumer, PoppedMessage, Producer
from perseid.wire.bodies import SubscriptionGroupConfig

pytestmark = pytest.mark.interop

QUEUES = 4
PRIORITIES = [0, 3, 1, 2, 3, 0, 9, 1]
"""9 is more than there are queues: the highest there is."""
INVISIBLE_MS = 5_000


def topic_of(java: rig.Client, namesrv: str, broker: str, name: str) -> str:
    made = java.mqadmin(
        "updateTopic", "-b", broker, "-t", name, "-r", str(QUEUES), "-w", str(QUEUES), "-a", "+message.type=PRIORITY"
    )
    assert "success" in made
    java.mqadmin("updateSubGroup", "-b", broker, "-g", f"g_{name}")
    rig.until(f"route of {name}", lambda: rig.call(namesrv, 105, {"topic": name}).code == 0, 60)
    return name


def send(java: rig.Client, topic: str, priorities: list[int]) -> list[int]:
    """The queues that a stock producer is told of."""
    return [java.send(topic, [f"p{number}"], priority=number)[0]["queueId"] for number in priorities]


def pop(java: rig.Client, broker: rig.Process, topic: str, **more: Any) -> list[dict[str, Any]]:
    found = java(
        "pop", topic=topic, group=f"g_{topic}", broker=broker.address, brokerName=broker.folder.name,
        invisibleMs=more.pop("invisibleMs", INVISIBLE_MS), **more,
    )  # fmt: skip
    messages: list[dict[str, Any]] = found["messages"]
    return messages


def ack(java: rig.Client, broker: rig.Process, topic: str, message: dict[str, Any]) -> None:
    where = {"topic": topic, "group": f"g_{topic}", "broker": broker.address, "brokerName": broker.folder.name}
    assert java("pop.ack", **where, handle=message["handle"]) == "OK"


def queue_ids(messages: list[dict[str, Any]]) -> list[int]:
    return [m["queueId"] for m in messages]


def clipped(priorities: list[int]) -> list[int]:
    return [min(number, QUEUES - 1) for number in priorities]


def ends(address: str, topic: str) -> list[int]:
    return [int(rig.call(address, 30, {"topic": topic, "queueId": n}).ext["offset"]) for n in range(QUEUES)]


def test_a_priority_is_a_queue_and_pops_take_the_highest(java: rig.Client, cluster: rig.Cluster, name: str) -> None:
    broker = cluster.broker_process
    topic = topic_of(java, cluster.namesrv, broker.address, name)
    assert send(java, topic, PRIORITIES) == clipped(PRIORITIES)
    rig.until("all are there", lambda: ends(broker.address, topic) == [2, 2, 1, 3], 30)
    first = pop(java, broker, topic, count=3)
    assert [m["body"] for m in first] == ["p3", "p3", "p9"]
    send(java, topic, [2, 3])
    rig.until("the others are there", lambda: ends(broker.address, topic) == [2, 2, 2, 4], 30)
    rest = pop(java, broker, topic)
    assert [m["body"] for m in rest] == ["p3", "p2", "p2", "p1", "p1", "p0", "p0"]
    for message in first + rest:
        ack(java, broker, topic, message)


def test_a_push_consumer_reads_all_priorities(java: rig.Client, cluster: rig.Cluster, name: str) -> None:
    broker = cluster.broker_process
    topic = topic_of(java, cluster.namesrv, broker.address, name)
    send(java, topic, PRIORITIES)
    got = java.consume(topic, f"g_{name}", len(PRIORITIES))
    assert sorted(m["body"] for m in got) == sorted(f"p{number}" for number in PRIORITIES)


def test_what_is_stronger_takes_it_away(java: rig.Client, cluster: rig.Cluster, name: str) -> None:
    broker = cluster.broker_process
    topic = topic_of(java, cluster.namesrv, broker.address, name)
    (sent,) = java.send(topic, ["late"], priority=3, delayLevel=1, queue={
        "topic": topic, "broker": broker.folder.name, "queueId": 1,
    })  # fmt: skip
    assert sent["queueId"] == 1
    rig.until("it is delivered", lambda: ends(broker.address, topic) == [0, 1, 0, 0], 30)


@pytest.mark.parametrize("cluster", ["java", "perseid"], indirect=True, ids=["on_java", "on_perseid"])
def test_our_client(cluster: rig.Cluster, name: str) -> None:
    async def test() -> None:
        namesrv, group = cluster.namesrv, f"g_{name}"
        async with Admin(namesrv) as admin, Producer(namesrv) as producer:
            await admin.create_topic(name, QUEUES, attributes={"message.type": "PRIORITY"})
            await admin.create_group(SubscriptionGroupConfig(group))
            sent = [await producer.send(Message(name, b"p%d" % n, priority=n)) for n in PRIORITIES]
            assert [one.queue.queue_id for one in sent] == clipped(PRIORITIES)
            async with PopConsumer(namesrv, group, name) as consumer:
                got: list[PoppedMessage] = []
                while len(got) < len(PRIORITIES):
                    got += await consumer.receive()
                assert sorted(m.body for m in got) == sorted(b"p%d" % n for n in PRIORITIES)
                assert [m.record.queue_id for m in got] == sorted(clipped(PRIORITIES), reverse=True)
                for message in got:
                    await consumer.ack(message)

    rig.run(test())


@ways.pass_on("perseid_to_java")
def test_separate_retry_queues_pass_on_with_their_folder(
    java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str, writer: str, reader: str
) -> None:
    """useSeparateRetryQueue: what nobody acknowledged comes again by its priority, also at the other's broker."""
    settings = {"useSeparateRetryQueue": "true", "popFromRetryProbabilityForPriority": 100}
    broker = rig.broker(writer, workshop / f"priority-{name}", cluster.namesrv, **settings)
    broker.start()
    try:
        rig.await_registered(cluster.namesrv, broker.folder.name)
        client = replace(java, cluster=replace(cluster, broker=broker.address))
        topic = topic_of(client, cluster.namesrv, broker.address, name)
        send(client, topic, [0, 3, 1])
        assert queue_ids(pop(client, broker, topic)) == [3, 1, 0]
        retry = f"%RETRY%g_{topic}_{topic}"
        rig.until("all come again", lambda: ends(broker.address, retry) == [1, 1, 0, 1], 60)
        again = pop(client, broker, topic, invisibleMs=60_000)
        assert [(m["queueId"], m["body"], m["reconsumeTimes"]) for m in again] == [
            (3, "p3", 1), (1, "p1", 1), (0, "p0", 1),
        ]  # fmt: skip
        for message in again:
            ack(client, broker, topic, message)
        send(client, topic, [1, 2, 3])
        rig.until("new ones are there", lambda: ends(broker.address, topic) == [1, 2, 1, 2], 30)
        assert queue_ids(pop(client, broker, topic)) == [3, 2, 1]
        rig.until("these come again", lambda: ends(broker.address, retry) == [1, 2, 1, 2], 60)
        broker.stop()

        broker = rig.Process("broker", reader, broker.folder, broker.properties)
        broker.start()
        rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": name}).code == 0, 60)
        again = rig.until("what comes again", lambda: pop(client, broker, topic), 60)
        assert [(m["queueId"], m["body"], m["reconsumeTimes"]) for m in again] == [
            (3, "p3", 1), (2, "p2", 1), (1, "p1", 1),
        ]  # fmt: skip
        rig.until("a second time", lambda: ends(broker.address, retry) == [1, 3, 2, 3], 60)
    finally:
        broker.kill()
