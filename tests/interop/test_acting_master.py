"""A slave of either implementation that acts for a master of the other: shown as the master while that one is away, and
what groups have read meanwhile is what the master goes on with when it is back. What is due meanwhile goes to another
master (`enableRemoteEscape`), of either implementation."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rig
import ways

from perseid.wire.record import decode_all

pytestmark = [pytest.mark.interop, pytest.mark.timeout(rig.many(600, 1200), func_only=True)]

KINDS = {
    "perseid": ("perseid", "perseid", "perseid"),
    "java-names": ("java", "perseid", "perseid"),
    "java-slave": ("perseid", "perseid", "java"),
    "java-master": ("perseid", "java", "perseid"),
}
"""Who is the name server, the master, the slave."""
ACTING = {"enableSlaveActingMaster": "true", "totalReplicas": 2, "slaveReadEnable": "true", "brokerIP2": "127.0.0.1"}
"""A Java master knows its followers by their address: the HA port is where the broker is."""
COPIED_SECONDS = 150
"""A Java slave copies tables for the first time after a minute."""
GONE_SECONDS = 30
"""Brokers are forgotten after 10 s, by a scan each 5 s."""
MESSAGES = 10


class Set:
    """A name server, a master and a slave of one name."""

    def __init__(self, folder: Path, name: str, names: str, master: str, slave: str, old: bool, **more: object) -> None:
        self.name = name
        settings = {**ACTING, "brokerName": name, "compatibleWithOldNameSrv": str(old).lower(), **more}
        self.own = master == slave == "perseid"
        self.names = rig.namesrv(
            names, folder / "names", supportActingMaster="true", notifyMinBrokerIdChanged="true"
        ).start()
        self.master = rig.broker(master, folder / "master", self.names.address, **settings)
        self.slave = rig.broker(
            slave, folder / "slave", self.names.address, **{**settings, "brokerRole": "SLAVE", "brokerId": 1}
        )

    def start(self) -> Set:
        self.master.start()
        rig.until("the master registers", lambda: self.members() == {"0": self.master.address}, 60)
        self.slave.start()
        rig.until("the slave registers", lambda: self.members().keys() == {"0", "1"}, 60)
        rig.until("the slave follows", self.followed, 90)
        return self

    def members(self) -> dict[str, str]:
        asked = {"clusterName": "InteropCluster", "brokerName": self.name}
        return dict(_read(rig.call(self.names.address, 901, asked).body)["brokerMemberGroup"]["brokerAddrs"])

    def route(self, topic: str) -> tuple[dict[str, str], int]:
        """Addresses by id, and what may be done with the topic's queues."""
        answer = rig.call(self.names.address, 105, {"topic": topic})
        if answer.code:
            return {}, 0
        found = _read(answer.body)
        return dict(found["brokerDatas"][0]["brokerAddrs"]), int(found["queueDatas"][0]["perm"])

    def followed(self) -> bool:
        answer = rig.call(self.master.address, 907)
        return answer.code == 0 and _read(answer.body)["inSyncSlaveNums"] == 1

    def kill(self) -> None:
        for process in (self.slave, self.master, self.names):
            process.kill()


def _read(body: bytes) -> dict[str, Any]:
    """fastjson writes numbers as keys of objects."""
    found: dict[str, Any] = json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', body))
    return found


@pytest.fixture(params=ways.in_ci(KINDS, "java-slave"))
def replicas(request: pytest.FixtureRequest, workshop: Path, name: str) -> Iterator[Set]:
    names, master, slave = request.param
    made = Set(workshop / f"acting-{name}", f"acting-{name}", names, master, slave, old=names == "java")
    try:
        yield made.start()
    finally:
        made.kill()


def test_a_slave_acts_and_the_master_goes_on_where_groups_are(replicas: Set, name: str) -> None:
    master, slave, group = replicas.master.address, replicas.slave.address, f"g_{name}"
    made = rig.call(
        master, 17,
        {"topic": name, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
         "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"},
    )  # fmt: skip
    assert made.code == 0, made.remark
    assert rig.call(master, 200, body=json.dumps({"groupName": group}).encode()).code == 0
    for number in range(MESSAGES):
        sent = rig.call(
            master, 10,
            {"producerGroup": "p", "topic": name, "defaultTopic": "TBW102", "defaultTopicQueueNums": 1, "queueId": 0,
             "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "", "reconsumeTimes": 0},
            f"m{number}".encode(),
        )  # fmt: skip
        assert sent.code == 0, sent.remark
    place = {"consumerGroup": group, "topic": name, "queueId": 0}
    assert rig.call(master, 15, {**place, "commitOffset": 3}).code == 0
    asked = lambda address: rig.call(address, 14, place).ext.get("offset")  # noqa: E731
    rig.until("the slave has the offset", lambda: asked(slave) == "3", COPIED_SECONDS)
    groups = f'"{group}"'.encode()
    rig.until("and the group", lambda: groups in rig.call(slave, 201).body, COPIED_SECONDS)

    replicas.master.kill()
    rig.until("the slave is shown as master", lambda: replicas.route(name) == ({"0": slave}, 4), GONE_SECONDS)
    assert rig.call(slave, 30, {"topic": name, "queueId": 0}).ext["offset"] == str(MESSAGES)
    assert rig.call(slave, 15, {**place, "commitOffset": 8}).code == 0

    replicas.master.start()
    rig.until("the master is back", lambda: replicas.members() == {"0": master, "1": slave}, 90)
    assert asked(master) == "8", "it showed itself with what groups had read before"
    rig.until("it is written to again", lambda: replicas.route(name) == ({"0": master, "1": slave}, 6), GONE_SECONDS)
    rig.until("the slave follows again", replicas.followed, 90)


# ---- messages that who acts sends to another master ----

ESCAPES = {
    "perseid-to-java": ("perseid", "perseid", "perseid", "java"),
    "java-to-perseid": ("java", "perseid", "java", "perseid"),
    "perseid-for-java": ("perseid", "java", "perseid", "perseid"),
}
"""Who is the name server, the master, the slave that sends them away, the other master."""
WAIT_SECONDS = 30
"""Delay level 4."""
ESCAPED_SECONDS = 90
ALL = {"DELAY": {"DELAY": "4"}, "TIMER": {"TIMER_DELAY_SEC": str(WAIT_SECONDS)}, "HALF": {"TRAN_MSG": "true"}}
COUNT = 5
OPEN = {"timerWheelEnable": "true", "rejectTransactionMessage": "false"}
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"


@pytest.fixture(params=ways.in_ci(ESCAPES, "java-to-perseid"))
def cluster(request: pytest.FixtureRequest, workshop: Path, name: str) -> Iterator[tuple[Set, Any]]:
    """A set, and another master."""
    names, master, slave, other = request.param
    more = {"enableRemoteEscape": "true", "transactionCheckInterval": 5_000, **OPEN}
    folder = workshop / f"escape-{name}"
    made = Set(folder, f"escape-{name}", names, master, slave, old=names == "java", **more)
    there = rig.broker(other, folder / "other", made.names.address, brokerName="other", **OPEN)
    try:
        yield made.start(), there.start()
    finally:
        there.kill()
        made.kill()


def _send(address: str, topic: str, body: str, properties: dict[str, str]) -> None:
    half = "TRAN_MSG" in properties
    text = "".join(f"{key}\x01{value}\x02" for key, value in properties.items())
    sent = rig.call(
        address, 10,
        {"producerGroup": "p", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 1, "queueId": 0,
         "sysFlag": 4 if half else 0, "bornTimestamp": int(time.time() * 1000), "flag": 0, "properties": text,
         "reconsumeTimes": 0},
        body.encode(),
    )  # fmt: skip
    assert sent.code == 0, sent.remark


def _end(address: str, topic: str) -> int:
    return int(rig.call(address, 30, {"topic": topic, "queueId": 0}).ext.get("offset", 0))


def _bodies(address: str, topic: str) -> list[tuple[str, int]]:
    """Body and store time of each message of the topic's queue."""
    answer = rig.call(
        address, 11,
        {"consumerGroup": "readers", "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
         "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG"},
    )  # fmt: skip
    if answer.code != 0:
        return []
    return [(record.body.decode(), record.store_timestamp) for record in decode_all(answer.body)]


def test_what_is_due_meanwhile_goes_to_another_master(cluster: tuple[Set, Any], name: str) -> None:
    replicas, other = cluster
    master, slave = replicas.master.address, replicas.slave.address
    for address in (master, other.address):
        made = rig.call(
            address, 17,
            {"topic": name, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
             "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"},
        )  # fmt: skip
        assert made.code == 0, made.remark
        assert rig.call(address, 200, body=json.dumps({"groupName": "readers"}).encode()).code == 0
    rig.until("the slave knows the topic", lambda: rig.call(slave, 30, {"topic": name, "queueId": 0}).code == 0, 150)
    before_ms = int(time.time() * 1000)
    for kind, asked in ALL.items():
        for number in range(COUNT):
            unique = {"UNIQ_KEY": f"{kind}{number}", "PGROUP": "producers", "CHECK_IMMUNITY_TIME_IN_SECONDS": "900"}
            _send(master, name, f"{kind}{number}", {**unique, **asked})
    rig.until("the slave has them", lambda: _end(slave, HALF_TOPIC) == COUNT, 60)
    replicas.master.kill()
    wanted = sorted(f"{kind}{number}" for kind in ("DELAY", "TIMER") for number in range(COUNT))
    rig.until(
        "they come to the other master",
        lambda: sorted(body for body, _ in _bodies(other.address, name)) == wanted and _end(other.address, HALF_TOPIC),
        ESCAPED_SECONDS,
    )
    early = [body for body, at_ms in _bodies(other.address, name) if at_ms < before_ms + WAIT_SECONDS * 1000]
    assert not early, "never before their time"
    rig.until("the halves, too", lambda: _end(other.address, HALF_TOPIC) >= COUNT, 60)

    replicas.master.start()
    rig.until("the master is back", lambda: replicas.members() == {"0": master, "1": slave}, 90)
    marker = "the end"
    _send(master, name, marker, {"UNIQ_KEY": "END", "DELAY": "2"})
    rig.until("it delivers", lambda: marker in [body for body, _ in _bodies(master, name)], 60)
    again = {body for body, _ in _bodies(master, name)} - {marker}
    assert not {body for body in again if body.startswith(("DELAY", "HALF"))}, "what was sent away is done with"
    if replicas.own:
        assert not again, "between brokers of ours, timers too"
    assert sorted(body for body, _ in _bodies(other.address, name)) == wanted, "each once"
