"""A master of one implementation and a slave of the other: the same log, the same queues, the same tables.

A producer's messages are acknowledged when the slave has them too (SYNC_MASTER, inSyncReplicas=2), either side is
restarted in the middle, and stock consumers go on reading from the slave while the master is away.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import rig
import ways

pytestmark = [pytest.mark.interop, pytest.mark.timeout(rig.many(1200, 3600), func_only=True)]

COUNT = rig.many(5_000, 100_000)
AWAIT_SECONDS = rig.many(300, 1200)
QUEUES = 4
JAVA_COPIES_SECONDS = 100
"""A Java slave copies topics and groups for the first time after a minute."""
PAIRS = {
    "java_to_perseid": ("java", "perseid"),
    "perseid_to_java": ("perseid", "java"),
    "perseid_to_perseid": ("perseid", "perseid"),
}
SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}


class Replicated:
    """A master and a slave of one name."""

    def __init__(self, cluster: rig.Cluster, folder: Path, master: str, slave: str, **properties: object) -> None:
        self.cluster = cluster
        name = {"brokerName": folder.name, "slaveReadEnable": "true", **properties}
        self.name = folder.name
        self.master = rig.broker(master, folder / "master", cluster.namesrv, **{**name, **SYNC})
        self.slave = rig.broker(
            slave, folder / "slave", cluster.namesrv, **{**name, "brokerRole": "SLAVE", "brokerId": 1}
        )

    def start(self) -> Replicated:
        self.master.start()
        rig.await_registered(self.cluster.namesrv, self.name)
        self.slave.start()
        rig.until("the slave registers", lambda: self.addresses().keys() >= {"0", "1"}, 60)
        rig.until("the slave follows", self.followed, 90)
        return self

    def addresses(self) -> dict[str, str]:
        table = json.loads(_quoted(rig.call(self.cluster.namesrv, 106).body))["brokerAddrTable"]
        return {str(key): value for key, value in table.get(self.name, {}).get("brokerAddrs", {}).items()}

    def followed(self) -> bool:
        answer = rig.call(self.master.address, 907)
        return answer.code == 0 and json.loads(answer.body)["inSyncSlaveNums"] == 1

    def log(self, broker: rig.Process) -> tuple[int, bytes]:
        """Where a log begins, and its bytes up to the last that is not zero."""
        files = sorted((broker.folder / "store" / "commitlog").iterdir())
        return int(files[0].name), b"".join(file.read_bytes() for file in files).rstrip(b"\0")

    def queues(self, broker: rig.Process, topic: str) -> dict[str, bytes]:
        root = broker.folder / "store" / "consumequeue" / topic
        return {
            folder.name: b"".join(file.read_bytes() for file in sorted(folder.iterdir())).rstrip(b"\0")
            for folder in sorted(root.iterdir())
        }

    def kill(self) -> None:
        for broker in (self.slave, self.master):
            broker.kill()


def _quoted(body: bytes) -> bytes:
    """fastjson writes numbers as keys of objects."""
    return re.sub(rb"([{,])(\d+):", rb'\1"\2":', body)


@pytest.fixture(params=ways.in_ci(PAIRS, *ways.IDS))
def pair(
    request: pytest.FixtureRequest, perseid_cluster: rig.Cluster, workshop: Path, name: str
) -> Iterator[Replicated]:
    """A master and a slave that follows it."""
    master, slave = request.param
    made = Replicated(perseid_cluster, workshop / f"pair-{name}", master, slave)
    try:
        yield made.start()
    finally:
        made.kill()


@pytest.fixture
def producer(perseid_cluster: rig.Cluster, java_agent: rig.Agent) -> Iterator[rig.Client]:
    client = rig.Client(java_agent, perseid_cluster)
    yield client
    client.close()


def test_logs_queues_and_tables_are_the_same(pair: Replicated, producer: rig.Client, name: str) -> None:
    brokers = (pair.master, pair.slave)
    made = producer.mqadmin("updateTopic", "-b", pair.master.address, "-t", name, "-r", str(QUEUES), "-w", str(QUEUES))
    assert "success" in made
    rig.until("route", lambda: rig.call(pair.cluster.namesrv, 105, {"topic": name}).code == 0)
    offset = {"consumerGroup": f"g_{name}", "topic": name, "queueId": 1}
    made = producer.mqadmin("updateSubGroup", "-b", pair.master.address, "-g", f"g_{name}")
    assert "success" in made
    producer("flood.start", name=name, topic=name, count=COUNT)
    producer("flood.await", name=name, acked=COUNT // 4, timeoutMs=AWAIT_SECONDS * 1000, wait=AWAIT_SECONDS + 30)
    pair.slave.kill()
    pair.slave.start()
    producer("flood.await", name=name, acked=COUNT // 2, timeoutMs=AWAIT_SECONDS * 1000, wait=AWAIT_SECONDS + 30)
    pair.master.kill()
    pair.master.start()
    done = producer("flood.end", name=name, timeoutMs=2 * AWAIT_SECONDS * 1000, wait=2 * AWAIT_SECONDS + 30)
    assert len(done["acked"]) == COUNT, f"{len(done['acked'])} acknowledged, {done['retries']} retries"
    # only now: a killed Java master forgets the offsets of its last 5 s
    assert rig.call(pair.master.address, 15, {**offset, "commitOffset": 7}).code == 0

    def same() -> bool:
        return pair.log(pair.master)[1][-200:] == pair.log(pair.slave)[1][-200:]

    rig.until("the slave has caught up", same, 60)
    (start, ours), (slave_start, theirs) = pair.log(pair.master), pair.log(pair.slave)
    assert theirs == ours[slave_start - start :]
    rig.until("the queues too", lambda: pair.queues(pair.master, name) == pair.queues(pair.slave, name), 30)
    for code, table in ((21, "topicConfigTable"), (201, "subscriptionGroupTable")):

        def copied(code: int = code, table: str = table) -> bool:
            ours, theirs = (json.loads(_quoted(rig.call(b.address, code).body))[table] for b in brokers)
            return bool(ours.keys() <= theirs.keys())

        rig.until(f"{table} is copied", copied, JAVA_COPIES_SECONDS)
    rig.until("the offset is copied", lambda: rig.call(pair.slave.address, 14, offset).ext["offset"] == "7", 100)


def test_the_stock_tool_shows_master_and_slave(pair: Replicated, producer: rig.Client) -> None:
    shown = producer.mqadmin("haStatus", "-b", pair.master.address)
    assert re.search(r"#SlaveNum\s+1\b", shown) and re.search(r"#InSyncSlaveNum\s+1\b", shown), shown
    assert re.search(r"^[\d.]+:\d+ .* OK ", shown, re.MULTILINE), shown
    shown = producer.mqadmin("haStatus", "-b", pair.slave.address)
    assert re.search(r"#MasterAddr\s+\S+:\d+", shown) and "#LastReadTime" in shown, shown


def test_stock_consumers_go_on_at_the_slave(pair: Replicated, producer: rig.Client, name: str) -> None:
    made = producer.mqadmin("updateTopic", "-b", pair.master.address, "-t", name, "-r", "2", "-w", "2")
    assert "success" in made
    rig.until("route", lambda: rig.call(pair.cluster.namesrv, 105, {"topic": name}).code == 0)
    sent = producer.send(name, [f"m{i}" for i in range(40)])
    assert len(sent) == 40
    there = f'"{name}":'.encode()
    rig.until("the slave has the topic", lambda: there in rig.call(pair.slave.address, 21).body, JAVA_COPIES_SECONDS)
    pair.master.kill()
    got = producer.consume(name, f"g_{name}", 40, 75)
    assert Counter(m["body"] for m in got) == Counter(f"m{i}" for i in range(40))
