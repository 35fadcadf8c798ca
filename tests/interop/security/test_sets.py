"""A slave of either kind under a master of the other, both with users: what it copies by requests, it signs for."""

from __future__ import annotations

from pathlib import Path

import pytest
import rig
import secured
from secured import SUPER, ask
from shared import Shared

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("security")]

WAYS = [
    pytest.param("java", "perseid", id="perseid_under_java"),
    pytest.param("perseid", "java", id="java_under_perseid", marks=pytest.mark.long),
]
"""A Java slave copies tables for the first time after a minute."""
UPDATE_TOPIC, SEND, MAX_OFFSET, GET_TOPIC, SLAVE_WAIT_S = 17, 10, 30, 351, 40


@pytest.mark.parametrize(("master", "slave"), WAYS)
def test_a_slave_copies_with_keys(secured_clusters: Shared, workshop: Path, name: str, master: str, slave: str) -> None:
    with secured_clusters.lent(master) as cluster:
        copy = rig.broker(
            slave, workshop / f"slave-{name}", cluster.namesrv, **secured.SETTINGS,
            brokerName=cluster.broker_name, brokerId=1, brokerRole="SLAVE",
        )  # fmt: skip
        header = {
            "topic": name, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        assert ask(cluster.broker, UPDATE_TOPIC, SUPER, header).code == 0
        copy.start()
        try:
            sent = {
                "producerGroup": "g", "topic": name, "defaultTopic": "TBW102", "defaultTopicQueueNums": 1,
                "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "",
            }  # fmt: skip
            assert ask(cluster.broker, SEND, SUPER, sent, b"x").code == 0

            def copied() -> bool:
                topic = ask(copy.address, GET_TOPIC, SUPER, {"topic": name}).code == 0
                offset = ask(copy.address, MAX_OFFSET, SUPER, {"topic": name, "queueId": 0}).ext.get("offset")
                return topic and offset == "1"

            rig.until("topic and message at the slave", copied, SLAVE_WAIT_S)
        finally:
            copy.kill()
