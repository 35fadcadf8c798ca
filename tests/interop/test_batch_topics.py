"""Topics with `queue.type` BatchCQ: stock Java clients on either broker, folders that pass on byte for byte, slaves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rig
import ways

from perseid.client import Message, MessageQueue
from perseid.client.blocking import BlockingProducer, BlockingPullConsumer
from perseid.wire.record import decode_all

pytestmark = pytest.mark.interop

UNIT_BYTES = 46
STORE = {"mappedFileSizeCommitLog": 1 << 20, "mapperFileSizeBatchConsumeQueue": UNIT_BYTES * 20}
SIZES = (3, 1, 7, 2, 30, 5)
"""Messages of a batch."""


def make(java: rig.Client, address: str, topic: str) -> None:
    made = java.mqadmin("updateTopic", "-b", address, "-t", topic, "-r", "1", "-w", "1", "-a", "+queue.type=BatchCQ")
    assert "success" in made, made
    rig.until("route", lambda: rig.call(java.cluster.namesrv, 105, {"topic": topic}).code == 0, 60)


def send(java: rig.Client, topic: str, batches: int, first: int = 0) -> int:
    """Batches of messages that are numbered from `first` on, by the stock producer; the next number."""
    for batch in range(batches):
        size = SIZES[batch % len(SIZES)]
        messages = [
            {"topic": topic, "body": f"m{first + n}", "tags": "t", "keys": f"k{first + n}"} for n in range(size)
        ]
        sent = java("send", mode="batch", messages=messages)
        assert (sent["status"], sent["queueOffset"]) == ("SEND_OK", first), sent
        assert "," not in sent["offsetMsgId"], "one record"
        first += size
    return first


def end_of(address: str, topic: str) -> int:
    return int(rig.call(address, 30, {"topic": topic, "queueId": 0}).ext["offset"])


def check(java: rig.Client, process: rig.Process, topic: str, count: int) -> None:
    """All messages at their offsets, for a stock Java client and for ours."""
    rig.until(f"{count} messages", lambda: end_of(process.address, topic) == count, 60)
    queue: dict[str, Any] = {"topic": topic, "broker": process.folder.name, "queueId": 0}
    found: list[dict[str, Any]] = []
    offset = 0
    while offset < count:
        answer = java("pull", queue=queue, offset=offset)
        assert answer["next"] > offset, answer
        offset = answer["next"]
        found += answer["messages"]
    assert [m["queueOffset"] for m in found] == list(range(count))
    assert [m["body"] for m in found] == [f"m{n}" for n in range(count)]
    assert {m["tags"] for m in found} == {"t"}
    with BlockingPullConsumer(java.cluster.namesrv, "g_batch") as consumer:
        ours = [m for part in consumer.read(MessageQueue(topic, process.folder.name, 0), 0, count) for m in part]
    assert [(m.queue_offset, m.body) for m in ours] == [(n, b"m%d" % n) for n in range(count)]
    assert {m.tag for m in ours} == {"t"}


def units(process: rig.Process, topic: str) -> bytes:
    """What stands in the queue's files, behind one another."""
    folder = Path(str(process.properties["storePathRootDir"])) / "batchconsumequeue" / topic / "0"
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def test_stock_clients(java: rig.Client, cluster: rig.Cluster, name: str) -> None:
    topic, broker = f"b_{name}", cluster.broker_process
    make(java, broker.address, topic)
    count = send(java, topic, 40)
    check(java, broker, topic, count)
    got = java.consume(topic, f"g_{name}", count)
    assert sorted(int(m["body"][1:]) for m in got) == list(range(count))
    queue = {"topic": topic, "broker": broker.folder.name, "queueId": 0}
    assert (java.admin("minOffset", queue), java.admin("maxOffset", queue)) == (0, count)
    middle = java("pull", queue=queue, offset=5)
    assert middle["messages"][0]["queueOffset"] == 4, "the whole batch that holds the offset"
    stamps = sorted({m["storeTimestamp"] for m in got})
    for stamp in (stamps[0], stamps[len(stamps) // 2], stamps[-1]):
        first = min(m["queueOffset"] for m in got if m["storeTimestamp"] == stamp)
        last = max(m["queueOffset"] for m in got if m["storeTimestamp"] == stamp)
        assert first <= java.admin("searchOffset", queue, stamp) <= last
    assert java.admin("searchOffset", queue, 0) == 0


def test_our_producer(java: rig.Client, cluster: rig.Cluster, name: str) -> None:
    topic, broker = f"b_{name}", cluster.broker_process
    make(java, broker.address, topic)
    with BlockingProducer(cluster.namesrv, "p_batch") as producer:
        sent = producer.send_batch([Message(topic, b"m%d" % n, tag="t") for n in range(4)], key="k")
    assert [one.queue_offset for one in sent] == [0, 1, 2, 3]
    rig.until("4 messages", lambda: end_of(broker.address, topic) == 4, 60)
    check(java, broker, topic, 4)


def test_what_comes_alone(java: rig.Client, cluster: rig.Cluster, name: str) -> None:
    topic, broker = f"b_{name}", cluster.broker_process
    make(java, broker.address, topic)
    java.send(topic, ["m0"], tags="t")
    count = send(java, topic, 2, first=1)
    (sent,) = java.send(topic, [f"m{count}"], tags="t")
    assert sent["queueOffset"] == count
    check(java, broker, topic, count + 1)
    later = f"m{count + 1}"
    java.send(topic, [later], tags="t", delayLevel=1)
    check(java, broker, topic, count + 2)


@ways.folders_pass_on("java_to_perseid-killed")
def test_batch_queues_pass_on_with_their_folder(
    java: rig.Client,
    cluster: rig.Cluster,
    workshop: Path,
    name: str,
    writer: str,
    reader: str,
    end: Callable[[rig.Process], Any],
) -> None:
    topic = f"b_{name}"
    broker = rig.broker(writer, workshop / f"batch-{name}", cluster.namesrv, **STORE)
    broker.start()
    count = 0
    try:
        rig.await_registered(cluster.namesrv, broker.folder.name)
        make(java, broker.address, topic)
        for impl in (reader, writer, writer):
            count = send(java, topic, 50, first=count)
            check(java, broker, topic, count)
            before = units(broker, topic)
            end(broker)
            broker = rig.Process("broker", impl, broker.folder, broker.properties)
            broker.start()
            rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": topic}).code == 0, 60)
            check(java, broker, topic, count)
            assert units(broker, topic)[: len(before)] == before, "byte for byte"
    finally:
        broker.kill()


@pytest.mark.long
@pytest.mark.parametrize("cluster", ["java"], indirect=True)
def test_units_built_anew_are_those_of_java(java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str) -> None:
    topic = f"b_{name}"
    broker = rig.broker("java", workshop / f"batch-{name}", cluster.namesrv, **STORE)
    broker.start()
    try:
        rig.await_registered(cluster.namesrv, broker.folder.name)
        make(java, broker.address, topic)
        count = send(java, topic, 50)
        check(java, broker, topic, count)
        broker.kill()
        before = units(broker, topic)
        shutil.rmtree(Path(str(broker.properties["storePathRootDir"])) / "batchconsumequeue")
        (Path(str(broker.properties["storePathRootDir"])) / "checkpoint").unlink()
        broker = rig.Process("broker", "perseid", broker.folder, broker.properties)
        broker.start()
        rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": topic}).code == 0, 60)
        check(java, broker, topic, count)
        assert units(broker, topic) == before
    finally:
        broker.kill()


@ways.slaves_follow("perseid_to_java")
def test_a_slave_has_the_units_of_its_master(
    java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str, master: str, slave: str
) -> None:
    topic, folder = f"b_{name}", workshop / f"batch-slave-{name}"
    with ways.master_and_slave(master, slave, folder, cluster.namesrv, **STORE) as (first, second):
        second.start()
        make(java, first.address, topic)
        rig.until("the slave knows the topic", lambda: topic.encode() in rig.call(second.address, 21).body, 90)
        count = send(java, topic, 50)
        rig.until("the slave follows", lambda: end_of(second.address, topic) == count, 90)
        assert units(second, topic) == units(first, topic)
        answer = rig.call(
            second.address,
            11,
            {
                "consumerGroup": "g_slave", "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
                "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
                "expressionType": "TAG",
            },
        )  # fmt: skip
        assert answer.code == 0 and decode_all(answer.body)[0].props["INNER_NUM"] == str(SIZES[0])
