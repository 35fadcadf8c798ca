"""A slave of either implementation that acts for a master of the other: shown as the master while that one is away, and
what groups have read meanwhile is what the master goes on with when it is back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rig

pytestmark = [pytest.mark.interop, pytest.mark.timeout(rig.many(600, 1200), func_only=True)]

KINDS = {
    "perseid": ("perseid", "perseid", "perseid"),
    "java-names": ("java", "perseid", "perseid"),
    "java-slave": ("perseid", "perseid", "java"),
    "java-master": ("perseid", "java", "perseid"),
}
"""Who is the name server, the master, the slave."""
ACTING = {"enableSlaveActingMaster": "true", "totalReplicas": 2, "slaveReadEnable": "true"}
COPIED_SECONDS = 150
"""A Java slave copies tables for the first time after a minute."""
GONE_SECONDS = 30
"""Brokers are forgotten after 10 s, by a scan each 5 s."""
MESSAGES = 10


class Set:
    """A name server, a master and a slave of one name."""

    def __init__(self, folder: Path, name: str, names: str, master: str, slave: str, old: bool) -> None:
        self.name = name
        settings = {**ACTING, "brokerName": name, "compatibleWithOldNameSrv": str(old).lower()}
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


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
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
