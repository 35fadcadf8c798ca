"""Topics with `cleanup.policy` COMPACTION: stock Java clients on either broker, folders that pass on, byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rig
import ways

from perseid.spark import plan
from perseid.spark.bounds import Bounds
from perseid.spark.options import parse
from perseid.spark.pushdown import Pushed
from perseid.spark.reading import QueueRange, RangeReport, read_range
from perseid.wire.record import decode_all

pytestmark = pytest.mark.interop

STORE = {
    "mappedFileSizeCommitLog": 1 << 20,
    "compactionMappedFileSize": 46 * 40 * 5,
    "compactionCqMappedFileSize": 46 * 40,
}
OFTEN = {"compactionScheduleInternal": 3_000}
KEYS = 9


def make(java: rig.Client, address: str, topic: str) -> None:
    policy = "+cleanup.policy=COMPACTION"
    made = java.mqadmin("updateTopic", "-b", address, "-t", topic, "-r", "1", "-w", "1", "-a", policy)
    assert "success" in made, made
    rig.until("route", lambda: rig.call(java.cluster.namesrv, 105, {"topic": topic}).code == 0, 60)


def send(java: rig.Client, topic: str, first: int, count: int) -> None:
    messages = [
        {"topic": topic, "body": f"m{n}", "tags": "t", "keys": f"k{n % KEYS}"} for n in range(first, first + count)
    ]
    for result in java("send", messages=messages):
        assert result.get("status") == "SEND_OK", result


def contents(java: rig.Client, process: rig.Process, topic: str) -> dict[int, str]:
    """Body by offset of all that a stock client pulls."""
    queue: dict[str, Any] = {"topic": topic, "broker": process.folder.name, "queueId": 0}
    found: dict[int, str] = {}
    offset, end = 0, int(java.admin("maxOffset", queue))
    while offset < end:
        answer = java("pull", queue=queue, offset=offset)
        if answer["next"] <= offset:
            break
        offset = answer["next"]
        found |= {m["queueOffset"]: m["body"] for m in answer["messages"]}
    return found


def check(java: rig.Client, process: rig.Process, topic: str, count: int) -> dict[int, str]:
    """The last message of each key is there, and nothing that was not sent."""
    rig.until("the last one", lambda: count - 1 in contents(java, process, topic), 60)
    found = contents(java, process, topic)
    assert all(body == f"m{offset}" for offset, body in found.items())
    assert set(range(count - KEYS, count)) <= found.keys()
    return found


def read_alike(java: rig.Client, process: rig.Process, namesrv: str, topic: str) -> bool:
    """Whether Spark's source and a stock client read the same, with holes; compaction may go on between the two."""
    spark = contents_for_spark(namesrv, topic)
    assert len(spark) < 250
    return spark == check(java, process, topic, 250)


def bodies_of_last(count: int) -> list[str]:
    """Of the last message of each key, after so many messages."""
    return [f"m{number}" for number in range(count - KEYS, count)]


def await_fewer(java: rig.Client, process: rig.Process, topic: str, before: int) -> None:
    rig.until("compacted", lambda: len(contents(java, process, topic)) < before, 90)


def contents_for_spark(namesrv: str, topic: str) -> dict[int, str]:
    """Body by offset of all that the Spark source reads; nothing is told to be missing."""
    options = parse({"nameserver": namesrv, "subscribe": topic}, streaming=False)
    with Bounds(options) as bounds:
        parts = plan.ranges_between(bounds.starting(), bounds.ending())
    report, found = RangeReport(), {}
    for part in parts:
        for batch in read_range(options, ["queueOffset", "value"], QueueRange(part), Pushed(), report):
            found |= {row["queueOffset"]: row["value"].decode() for row in batch.to_pylist()}
    assert report.missing == []
    return found


def files(process: rig.Process, topic: str) -> dict[str, bytes]:
    root = Path(str(process.properties["storePathRootDir"])) / "compaction"
    return {
        f"{kind}/{path.name}": path.read_bytes()
        for kind in ("compactionLog", "compactionCq")
        for path in sorted((root / kind / topic / "0").iterdir())
        if path.is_file()
    }


@pytest.mark.parametrize("impl", ["java", "perseid"])
@pytest.mark.parametrize("cluster", ["java"], indirect=True)
def test_stock_clients(java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str, impl: str) -> None:
    topic = f"c_{name}"
    broker = rig.broker(impl, workshop / f"compact-{name}", cluster.namesrv, **STORE, **OFTEN)
    broker.start()
    try:
        rig.await_registered(cluster.namesrv, broker.folder.name)
        make(java, broker.address, topic)
        (refused,) = java("send", messages=[{"topic": topic, "body": "no key"}])
        assert refused["error"]["code"] == 13 and "Required message key is missing" in str(refused["error"])
        send(java, topic, 0, 200)
        rig.until("compacted", lambda: len(check(java, broker, topic, 200)) < 200, 90)
        handle, wanted, seen = java("push.start", topic=topic, group=f"g_{name}"), set(bodies_of_last(200)), set()

        def all_came() -> bool:  # among older ones, which a compaction may still leave
            seen.update(m["body"] for m in java("push.await", handle=handle, count=1, timeoutMs=1_000, wait=60))
            return wanted <= seen

        rig.until("the last of each key", all_came, 60)
        java("push.stop", handle=handle)
        send(java, topic, 200, 50)
        rig.until("both read the same", lambda: read_alike(java, broker, cluster.namesrv, topic), 60)
    finally:
        broker.kill()


@ways.folders_pass_on("java_to_perseid-killed")
def test_compacted_queues_pass_on_with_their_folder(
    java: rig.Client,
    cluster: rig.Cluster,
    workshop: Path,
    name: str,
    writer: str,
    reader: str,
    end: Callable[[rig.Process], Any],
) -> None:
    topic, count, kept = f"c_{name}", 0, 0
    broker = rig.broker(writer, workshop / f"compact-{name}", cluster.namesrv, **STORE, **OFTEN)
    broker.start()
    try:
        rig.await_registered(cluster.namesrv, broker.folder.name)
        make(java, broker.address, topic)
        for impl in (reader, writer):
            send(java, topic, count, 150)
            count += 150
            check(java, broker, topic, count)
            await_fewer(java, broker, topic, kept + 150)  # it may be so already
            kept = len(check(java, broker, topic, count))
            end(broker)
            broker = rig.Process("broker", impl, broker.folder, broker.properties)
            broker.start()
            rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": topic}).code == 0, 60)
            check(java, broker, topic, count)
    finally:
        broker.kill()


@pytest.mark.parametrize("cluster", ["java"], indirect=True)
def test_files_built_anew_are_those_of_java(java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str) -> None:
    topic = f"c_{name}"
    broker = rig.broker("java", workshop / f"compact-{name}", cluster.namesrv, **STORE)
    broker.start()
    try:
        rig.await_registered(cluster.namesrv, broker.folder.name)
        make(java, broker.address, topic)
        send(java, topic, 0, 200)
        assert len(check(java, broker, topic, 200)) == 200
        broker.stop()
        before = files(broker, topic)
        assert len(before) > 4
        shutil.rmtree(Path(str(broker.properties["storePathRootDir"])) / "compaction")
        broker = rig.Process("broker", "perseid", broker.folder, broker.properties)
        broker.start()
        rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": topic}).code == 0, 60)
        assert len(check(java, broker, topic, 200)) == 200
        assert files(broker, topic) == before
    finally:
        broker.kill()


def pulled(address: str, topic: str) -> dict[int, bytes]:
    """Body by offset of what a broker has, master or slave."""
    found: dict[int, bytes] = {}
    offset = 0
    while True:
        header = {
            "consumerGroup": "g_slave", "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
            "expressionType": "TAG",
        }  # fmt: skip
        answer = rig.call(address, 11, header)
        if answer.code != 0:
            return found
        found |= {record.queue_offset: record.body for record in decode_all(answer.body)}
        offset = int(answer.ext["nextBeginOffset"])


@ways.slaves_follow("java_to_perseid")
def test_a_slave_has_what_its_master_has(
    java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str, master: str, slave: str
) -> None:
    topic, folder = f"c_{name}", workshop / f"compact-slave-{name}"
    with ways.master_and_slave(master, slave, folder, cluster.namesrv, **STORE) as (first, second):
        second.start()
        make(java, first.address, topic)
        rig.until("the slave knows the topic", lambda: topic.encode() in rig.call(second.address, 21).body, 90)
        send(java, topic, 0, 120)
        wanted = {n: b"m%d" % n for n in range(120)}
        rig.until("the master has all", lambda: pulled(first.address, topic) == wanted, 60)
        rig.until("the slave has all", lambda: pulled(second.address, topic) == wanted, 90)
        if slave == "perseid":
            assert files(second, topic) == files(first, topic)
