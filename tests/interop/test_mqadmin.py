"""mqadmin on the four pairs of name server and broker: what operators read and change with it."""

from __future__ import annotations

import json
import re

import pytest
import rig

pytestmark = pytest.mark.interop

KINDS = {"java": "on_java", "perseid": "on_perseid", "java-broker": "java_broker", "perseid-broker": "perseid_broker"}
on_all = pytest.mark.parametrize("cluster", KINDS, indirect=True, ids=KINDS.values())
"""For commands that need what the broker told the name server."""


def _lines(printed: str) -> list[list[str]]:
    """Words of each line, without the table's head and what Java says about its logging."""
    lines = [line for line in printed.splitlines() if "|-" not in line and not line.startswith("#")]
    return [line.split() for line in lines if line.strip()]


@on_all
def test_cluster_commands(java: rig.Client, cluster: rig.Cluster, topic: str) -> None:
    [row] = _lines(java.mqadmin("clusterList"))
    assert row[:5] == [cluster.cluster_name, cluster.broker_name, "0", cluster.broker, "V5_5_0"]
    assert row[-1] == "true"
    [row] = _lines(java.mqadmin("clusterList", "-m"))
    assert row[:2] == [cluster.cluster_name, cluster.broker_name]
    assert {topic, "TBW102", cluster.cluster_name} <= {row[0] for row in _lines(java.mqadmin("topicList"))}
    status = dict(row for row in (line.split(":", 1) for line in java.mqadmin("brokerStatus", "-b", cluster.broker)
                                  .splitlines()) if len(row) == 2)  # fmt: skip
    status = {k.strip(): v.strip() for k, v in status.items()}
    assert status["brokerVersionDesc"] == "V5_5_0"
    assert status["brokerActive"] == "true"
    assert int(status["commitLogMaxOffset"]) >= 0


@on_all
def test_topic_commands(java: rig.Client, cluster: rig.Cluster, name: str) -> None:
    made = java.mqadmin("updateTopic", "-b", cluster.broker, "-t", name, "-r", "3", "-w", "3")
    assert f"create topic to {cluster.broker} success" in made
    rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": name}).code == 0)
    printed = java.mqadmin("topicRoute", "-t", name)
    route = json.loads(re.sub(r"(\d+):\"", r'"\1":"', printed[printed.index("{") :]))
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": cluster.broker}
    assert [(q["brokerName"], q["writeQueueNums"], q["perm"]) for q in route["queueDatas"]] == [
        (cluster.broker_name, 3, 6)
    ]
    java("producers.stop")
    java.send(name, ["a", "b", "c"])

    def ends() -> list[int]:
        return sorted(o["maxOffset"] for _, o in java.admin("examineTopicStats", name)["offsetTable"])

    rig.until("all there", lambda: ends() == [1, 1, 1])
    rows = [r[:4] for r in _lines(java.mqadmin("topicStatus", "-t", name)) if r[0] == cluster.broker_name]
    assert rows == [[cluster.broker_name, str(q), "0", "1"] for q in range(3)]
    assert cluster.cluster_name in java.mqadmin("topicClusterList", "-t", name)
    assert "from 6 to 4" in java.mqadmin("updateTopicPerm", "-b", cluster.broker, "-t", name, "-p", "4")
    deleted = java.mqadmin("deleteTopic", "-c", cluster.cluster_name, "-t", name)
    assert deleted.count("success") == 2
    assert "CODE: 17" in java.mqadmin("topicRoute", "-t", name)


def test_client_commands(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    handle = java("push.start", topic=topic, group=name, expr="T")
    java("send", group=name, messages=[{"topic": topic, "body": f"m{i}", "tags": "T"} for i in range(4)])
    java.collect(handle, 4)

    def committed() -> int:
        table = java.admin("examineConsumeStats", name, topic)["offsetTable"]
        return sum(o["consumerOffset"] for q, o in table if q["topic"] == topic)

    rig.until("offsets", lambda: committed() == 4)
    rows = [r[1:6] for r in _lines(java.mqadmin("consumerProgress", "-g", name)) if r[0] == topic]
    assert sorted(rows) == [[cluster.broker_name, str(q), "1", "1", "0"] for q in range(4)]
    [row] = [r for r in _lines(java.mqadmin("consumerProgress")) if r[0] == name]
    assert row[1:5] == ["1", "V5_5_0", "PUSH", "CLUSTERING"]
    printed = java.mqadmin("consumerConnection", "-g", name)
    assert java("push.clientId", handle=handle) in printed
    assert [topic, "T"] in _lines(printed)
    rig.until("heartbeat", lambda: java.admin("examineProducerConnectionInfo", name, topic))
    assert "JAVA" in java.mqadmin("producerConnection", "-g", name, "-t", topic)
    java("producer.stop", group=name)
    reset = java.mqadmin("resetOffsetByTime", "-g", name, "-t", topic, "-s", "0")
    assert [r for r in _lines(reset) if r[0] == cluster.broker_name], reset


def test_message_commands(java: rig.Client, cluster: rig.Cluster, topic: str) -> None:
    [sent] = java.send(topic, ["find me"], keys="rare", tags="T")
    rig.until("indexed", lambda: java.admin("queryMessage", topic, "rare", 32, 0, 1 << 50))
    assert sent["msgId"] in java.mqadmin("queryMsgByKey", "-t", topic, "-k", "rare")
    queue_id, offset = str(sent["queueId"]), str(sent["queueOffset"])
    found = [
        java.mqadmin("queryMsgById", "-t", topic, "-i", sent["offsetMsgId"]),
        java.mqadmin("queryMsgByUniqueKey", "-t", topic, "-i", sent["msgId"]),
        java.mqadmin("queryMsgByOffset", "-t", topic, "-b", cluster.broker_name, "-i", queue_id, "-o", offset),
    ]
    for printed in found:
        lines = [" ".join(r) for r in _lines(printed)]
        assert f"Topic: {topic}" in lines, printed
        assert "Keys: [rare]" in lines
        assert f"Queue ID: {queue_id}" in lines
        assert f"Store Host: {cluster.broker}" in lines
    assert "BODY: find me" in java.mqadmin("printMsg", "-t", topic)
    assert "SEND_OK" in java.mqadmin("sendMessage", "-t", topic, "-p", "by mqadmin")


def test_group_and_configuration_commands(java: rig.Client, cluster: rig.Cluster, name: str) -> None:
    made = java.mqadmin("updateSubGroup", "-b", cluster.broker, "-g", name, "-r", "5")
    assert f"create subscription group to {cluster.broker} success" in made
    assert ["retryMaxTimes", "=", "5"] in _lines(java.mqadmin("getConsumerConfig", "-g", name))
    assert "success" in java.mqadmin("deleteSubGroup", "-b", cluster.broker, "-g", name)
    config = {r[0]: r[2] for r in _lines(java.mqadmin("getBrokerConfig", "-b", cluster.broker)) if len(r) == 3}
    assert config["brokerName"] == cluster.broker_name
    before = config["shortPollingTimeMills"]
    for value in ("1234", before):
        changed = java.mqadmin("updateBrokerConfig", "-b", cluster.broker, "-k", "shortPollingTimeMills", "-v", value)
        assert f"update broker config success, {cluster.broker}" in changed
        now = java.admin("getBrokerConfig", cluster.broker)["shortPollingTimeMills"]
        assert now == value
    assert "listenPort" in java.mqadmin("getNamesrvConfig")
    assert "success" in java.mqadmin("updateKvConfig", "-s", "interop", "-k", name, "-v", "v")
    assert java.admin("getKVConfig", "interop", name) == "v"
    assert "success" in java.mqadmin("deleteKvConfig", "-s", "interop", "-k", name)
    wiped = java.mqadmin("wipeWritePerm", "-b", cluster.broker_name)
    added = java.mqadmin("addWritePerm", "-b", cluster.broker_name)
    assert f"[{cluster.namesrv}] OK" in wiped
    assert f"[{cluster.namesrv}] OK" in added
