"""Light message queues of one implementation, gone on with by the other: on its folder, and as its slave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rig
import ways

from perseid.wire.record import Record, decode_all

pytestmark = pytest.mark.interop

LMQ: dict[str, object] = {"enableLmq": "true", "enableMultiDispatch": "true"}
STORE = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20 * 100, **LMQ}
NAMES = ("%LMQ%a", "%LMQ%b", "%LMQ%c")
GROUP = "%LMQ%GID_g"
COUNT = 250
"""More than a file of a consume queue holds."""


def names_of(number: int) -> list[str]:
    """The light queues of a message: each third is for all, the others for one of two."""
    return list(NAMES) if number % 3 == 0 else [NAMES[number % 2]]


def send(java: rig.Client, topic: str, first: int, count: int) -> None:
    for number in range(first, first + count):
        (sent,) = java.send(topic, [f"m{number}"], tags="t", props={"INNER_MULTI_DISPATCH": ",".join(names_of(number))})
        assert sent["status"] == "SEND_OK", sent


def end_of(address: str, topic: str) -> int:
    return int(rig.call(address, 30, {"topic": topic, "queueId": 0}).ext["offset"])


def read(address: str, topic: str) -> list[Record]:
    """All messages of a light queue, as its groups pull them."""
    found: list[Record] = []
    end, offset = end_of(address, topic), 0
    while offset < end:
        header = {
            "consumerGroup": GROUP, "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
            "expressionType": "TAG",
        }  # fmt: skip
        answer = rig.call(address, 11, header)
        assert answer.code == 0, answer
        found += decode_all(answer.body)
        offset = int(answer.ext["nextBeginOffset"])
    return found


def wanted(name: str, count: int) -> list[bytes]:
    return [b"m%d" % number for number in range(count) if name in names_of(number)]


def check(address: str, count: int) -> None:
    """Each light queue has its messages in their order, and they say where they stand in it."""
    for name in NAMES:
        what = wanted(name, count)
        rig.until(f"{name} of {address}", lambda name=name, what=what: end_of(address, name) >= len(what), 30)
        records = read(address, name)
        assert [record.body for record in records] == what, name
        for offset, record in enumerate(records):
            names, offsets = (
                record.props[key].split(",") for key in ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET")
            )
            assert offsets[names.index(name)] == str(offset)


@ways.folders_pass_on()
def test_light_queues_pass_on_with_their_folder(
    java: rig.Client,
    cluster: rig.Cluster,
    workshop: Path,
    name: str,
    writer: str,
    reader: str,
    end: Callable[[rig.Process], Any],
) -> None:
    broker = rig.broker(writer, workshop / f"lmq-{name}", cluster.namesrv, **STORE)
    broker.start()
    try:
        rig.await_registered(cluster.namesrv, broker.folder.name)
        made = java.mqadmin("updateTopic", "-b", broker.address, "-t", name, "-r", "1", "-w", "1")
        assert "success" in made
        rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": name}).code == 0, 60)
        send(java, name, 0, COUNT)
        check(broker.address, COUNT)
        position = {"consumerGroup": GROUP, "topic": NAMES[0], "queueId": 0}
        assert rig.call(broker.address, 15, {**position, "commitOffset": 7}).code == 0

        end(broker)
        broker = rig.Process("broker", reader, broker.folder, broker.properties)
        broker.start()
        rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": name}).code == 0, 60)
        check(broker.address, COUNT)
        if end is rig.Process.stop:
            assert rig.call(broker.address, 14, position).ext["offset"] == "7"
        send(java, name, COUNT, 20)
        check(broker.address, COUNT + 20)

        end(broker)  # and back
        broker = rig.Process("broker", writer, broker.folder, broker.properties)
        broker.start()
        rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": name}).code == 0, 60)
        check(broker.address, COUNT + 20)
        send(java, name, COUNT + 20, 5)
        check(broker.address, COUNT + 25)
    finally:
        broker.kill()


@ways.slaves_follow("perseid_to_java")
def test_a_slave_has_the_light_queues_of_its_master(
    java: rig.Client, cluster: rig.Cluster, workshop: Path, name: str, master: str, slave: str
) -> None:
    folder = workshop / f"lmq-slave-{name}"
    with ways.master_and_slave(master, slave, folder, cluster.namesrv, **LMQ) as (first, second):
        made = java.mqadmin("updateTopic", "-b", first.address, "-t", name, "-r", "1", "-w", "1")
        assert "success" in made
        rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": name}).code == 0, 60)
        send(java, name, 0, 60)
        second.start()
        rig.until("the slave follows", lambda: end_of(second.address, NAMES[0]) >= len(wanted(NAMES[0], 60)), 90)
        send(java, name, 60, 60)
        check(first.address, 120)
        check(second.address, 120)
