"""The stock Java admin client: topics, groups, connections, statistics, configuration, and what it asks of clients."""

from __future__ import annotations

import time

import pytest
import rig

pytestmark = pytest.mark.interop


def _routed(cluster: rig.Cluster, topic: str) -> bool:
    return rig.call(cluster.namesrv, 105, {"topic": topic}).code == 0


def test_topic_made_and_changed(java: rig.Client, cluster: rig.Cluster, name: str) -> None:
    config = {
        "topicName": name, "readQueueNums": 3, "writeQueueNums": 2, "perm": 6, "order": False,
        "attributes": {},
    }  # fmt: skip
    java.admin("createAndUpdateTopicConfig", cluster.broker, config)
    rig.until("route", lambda: _routed(cluster, name))
    route = java.admin("examineTopicRouteInfo", name)
    assert [(q["brokerName"], q["readQueueNums"], q["writeQueueNums"], q["perm"]) for q in route["queueDatas"]] == [
        (cluster.broker_name, 3, 2, 6)
    ]
    [broker] = route["brokerDatas"]
    assert (broker["cluster"], broker["brokerAddrs"]) == (cluster.cluster_name, {"0": cluster.broker})
    found = java.admin("examineTopicConfig", cluster.broker, name)
    assert (found["topicName"], found["readQueueNums"], found["writeQueueNums"]) == (name, 3, 2)
    java.admin("createAndUpdateTopicConfig", cluster.broker, {**config, "writeQueueNums": 3, "perm": 4})
    rig.until("read only", lambda: java.admin("examineTopicRouteInfo", name)["queueDatas"][0]["perm"] == 4)
    table = java.admin("getAllTopicConfig", cluster.broker, 5000)["topicConfigTable"]
    assert (table[name]["writeQueueNums"], table[name]["perm"]) == (3, 4)
    assert table["TBW102"]["readQueueNums"] > 0


def test_topic_deleted_and_made_anew(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    """Queue offsets start at 0 again."""
    java.send(topic, [f"m{i}" for i in range(8)])
    assert topic in java.admin("fetchAllTopicList")["topicList"]
    java.admin("deleteTopicInBroker", [cluster.broker], topic)
    java.admin("deleteTopicInNameServer", [cluster.namesrv], topic)
    rig.until("no route", lambda: not _routed(cluster, topic))
    assert topic not in java.admin("fetchAllTopicList")["topicList"]
    assert topic not in java.admin("getAllTopicConfig", cluster.broker, 5000)["topicConfigTable"]
    java.admin("createTopic", "TBW102", topic, 1, {})
    rig.until("route", lambda: _routed(cluster, topic))
    java("producers.stop")
    [sent] = java.send(topic, ["new"])
    assert (sent["queueId"], sent["queueOffset"]) == (0, 0)
    assert [m["body"] for m in java.consume(topic, name, 1)] == ["new"]


def test_topic_list(java: rig.Client, cluster: rig.Cluster, topic: str) -> None:
    topics = java.admin("fetchAllTopicList")["topicList"]
    assert {topic, "TBW102", cluster.cluster_name, cluster.broker_name} <= set(topics)
    assert topic in java.admin("fetchTopicsByCLuster", cluster.cluster_name)["topicList"]
    assert java.admin("getTopicClusterList", topic) == [cluster.cluster_name]


def test_topic_statistics(java: rig.Client, topic: str) -> None:
    java("send", mode="ordered", messages=[{"topic": topic, "body": "m", "key": i % 3} for i in range(9)])

    def stats() -> dict[int, tuple[int, int]]:
        table = java.admin("examineTopicStats", topic)["offsetTable"]
        return {q["queueId"]: (o["minOffset"], o["maxOffset"]) for q, o in table}

    rig.until("all there", lambda: stats() == {0: (0, 3), 1: (0, 3), 2: (0, 3), 3: (0, 0)})
    last = {q["queueId"]: o["lastUpdateTimestamp"] for q, o in java.admin("examineTopicStats", topic)["offsetTable"]}
    assert last[0] > 0
    assert last[3] == 0


def test_consumer_progress(java: rig.Client, topic: str, name: str) -> None:
    java.send(topic, [f"m{i}" for i in range(8)])
    java.consume(topic, name, 8)
    java.send(topic, [f"m{i}" for i in range(4)])

    def progress() -> list[tuple[int, int]]:
        table = java.admin("examineConsumeStats", name, topic)["offsetTable"]
        return [(o["brokerOffset"], o["consumerOffset"]) for q, o in table if q["topic"] == topic]

    rig.until("two of three each", lambda: sorted(progress()) == [(3, 2)] * 4)
    assert topic in java.admin("queryTopicsByConsumer", name)["topicList"]
    java("push.start", topic=topic, group=name)
    rig.until("all", lambda: sorted(progress()) == [(3, 3)] * 4)
    assert name in java.admin("queryTopicConsumeByWho", topic)["groupList"]


def test_connections(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    handle = java("push.start", topic=topic, group=name, expr="A || B")
    found = rig.until("connected", lambda: java.admin("examineConsumerConnectionInfo", name))
    assert (found["consumeType"], found["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert found["consumeFromWhere"] == "CONSUME_FROM_FIRST_OFFSET"
    [connection] = found["connectionSet"]
    assert connection["clientId"] == java("push.clientId", handle=handle)
    assert connection["language"] == "JAVA"
    assert connection["clientAddr"].startswith("127.0.0.1:")
    subscription = found["subscriptionTable"][topic]
    assert (subscription["subString"], sorted(subscription["tagsSet"])) == ("A || B", ["A", "B"])
    java("push.stop", handle=handle)
    with pytest.raises(rig.AgentError) as e:
        java.admin("examineConsumerConnectionInfo", name)
    assert e.value.code == 206


def test_producer_connection(java: rig.Client, topic: str, name: str) -> None:
    java("send", group=name, messages=[{"topic": topic, "body": "m"}])
    found = rig.until("heartbeat", lambda: java.admin("examineProducerConnectionInfo", name, topic))
    [connection] = found["connectionSet"]
    assert connection["language"] == "JAVA"
    java("producer.stop", group=name)
    with pytest.raises(rig.AgentError):
        java.admin("examineProducerConnectionInfo", name, topic)


def test_cluster_and_runtime(java: rig.Client, cluster: rig.Cluster, topic: str) -> None:
    info = java.admin("examineBrokerClusterInfo")
    assert info["clusterAddrTable"] == {cluster.cluster_name: [cluster.broker_name]}
    assert info["brokerAddrTable"][cluster.broker_name]["brokerAddrs"] == {"0": cluster.broker}
    java.send(topic, ["m"])
    table = java.admin("fetchBrokerRuntimeStats", cluster.broker)["table"]
    for key in ("brokerVersionDesc", "putTps", "getTransferredTps", "msgPutTotalTodayNow", "commitLogMaxOffset",
                "commitLogDiskRatio", "bootTimestamp", "sendThreadPoolQueueSize", "earliestMessageTimeStamp",
                "pageCacheLockTimeMills", "dispatchBehindBytes", "msgGetTotalTodayNow"):  # fmt: skip
        assert table.get(key), key
    assert table["brokerVersionDesc"] == "V5_5_0"
    assert int(table["commitLogMaxOffset"]) > int(table["commitLogMinOffset"])


def test_groups(java: rig.Client, cluster: rig.Cluster, name: str) -> None:
    config = {"groupName": name, "retryMaxTimes": 3, "retryQueueNums": 2, "consumeEnable": True}
    java.admin("createAndUpdateSubscriptionGroupConfig", cluster.broker, config)
    found = java.admin("examineSubscriptionGroupConfig", cluster.broker, name)
    assert (found["groupName"], found["retryMaxTimes"], found["retryQueueNums"]) == (name, 3, 2)
    table = java.admin("getAllSubscriptionGroup", cluster.broker, 5000)["subscriptionGroupTable"]
    assert table[name]["retryMaxTimes"] == 3
    java.admin("deleteSubscriptionGroup", cluster.broker, name)
    table = java.admin("getAllSubscriptionGroup", cluster.broker, 5000)["subscriptionGroupTable"]
    assert name not in table or table[name]["retryMaxTimes"] == 16, "a Java 5.5.0 broker makes it anew at once"


def test_group_that_may_not_consume(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    config = {"groupName": name, "consumeEnable": False}
    java.admin("createAndUpdateSubscriptionGroupConfig", cluster.broker, config)
    java.send(topic, [f"m{i}" for i in range(4)])
    header = {
        "consumerGroup": name, "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 1, "expressionType": "TAG",
    }  # fmt: skip
    assert rig.call(cluster.broker, 11, header).code == 16
    java.admin("createAndUpdateSubscriptionGroupConfig", cluster.broker, {**config, "consumeEnable": True})
    assert len(java.consume(topic, name, 4)) == 4


def test_broker_configuration(java: rig.Client, cluster: rig.Cluster) -> None:
    config = java.admin("getBrokerConfig", cluster.broker)
    assert config["brokerName"] == cluster.broker_name
    assert config["listenPort"] == cluster.broker.rsplit(":", 1)[1]
    assert config["flushDiskType"] == "ASYNC_FLUSH"
    before = config["shortPollingTimeMills"]
    for value in ("1234", before):
        java.admin("updateBrokerConfig", cluster.broker, {"shortPollingTimeMills": value})
        assert java.admin("getBrokerConfig", cluster.broker)["shortPollingTimeMills"] == value


def test_broker_permission(java: rig.Client, cluster: rig.Cluster, topic: str) -> None:
    """A broker that may only be read says so in its routes at once."""

    def perm() -> int:
        return int(java.admin("examineTopicRouteInfo", topic)["queueDatas"][0]["perm"])

    try:
        java.admin("updateBrokerConfig", cluster.broker, {"brokerPermission": "4"})
        rig.until("read only", lambda: perm() == 4)
    finally:
        java.admin("updateBrokerConfig", cluster.broker, {"brokerPermission": "6"})
    rig.until("writable", lambda: perm() == 6)


def test_name_server_configuration(java: rig.Client, cluster: rig.Cluster, name: str) -> None:
    [(_, config)] = java.admin("getNameServerConfig", [cluster.namesrv]).items()
    assert config["listenPort"] == cluster.namesrv.rsplit(":", 1)[1]
    java.admin("createAndUpdateKvConfig", "interop", name, "value ü")
    assert java.admin("getKVConfig", "interop", name) == "value ü"
    assert java.admin("getKVListByNamespace", "interop")["table"][name] == "value ü"
    java.admin("deleteKvConfig", "interop", name)
    assert name not in java.admin("getKVListByNamespace", "interop")["table"]


def test_write_permission_wiped_and_back(java: rig.Client, cluster: rig.Cluster, topic: str) -> None:
    def perm() -> int:
        return int(java.admin("examineTopicRouteInfo", topic)["queueDatas"][0]["perm"])

    assert java.admin("wipeWritePermOfBroker", cluster.namesrv, cluster.broker_name) > 0
    try:
        assert perm() == 4
    finally:
        java.admin("addWritePermOfBroker", cluster.namesrv, cluster.broker_name)
    assert perm() == 6


def test_offsets_reset_while_consuming(java: rig.Client, topic: str, name: str) -> None:
    java.send(topic, [f"m{i}" for i in range(8)])
    handle = java("push.start", topic=topic, group=name)
    java.collect(handle, 8)
    java.admin("resetOffsetByTimestamp", topic, name, 0, True)
    again = java.collect(handle, 16, 60)[8:]
    assert sorted(m["body"] for m in again) == [f"m{i}" for i in range(8)]


def test_offset_set(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    queue = {"topic": topic, "broker": cluster.broker_name, "queueId": 0}
    java("send", messages=[{"topic": topic, "body": f"m{i}", "queue": queue} for i in range(6)])
    java.consume(topic, name, 6)
    java.admin("updateConsumeOffset", cluster.broker, name, queue, 4)
    assert sorted(m["body"] for m in java.consume(topic, name, 2)) == ["m4", "m5"]  # by several threads


def test_questions_relayed_to_a_consumer(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    handle = java("push.start", topic=topic, group=name)
    [sent] = java.send(topic, ["m"])
    java.collect(handle, 1)
    client = java("push.clientId", handle=handle)
    info = java.admin("getConsumerRunningInfo", name, client, False)
    assert [s["topic"] for s in info["subscriptionSet"] if not s["topic"].startswith("%")] == [topic]
    assert info["properties"]["PROP_CLIENT_VERSION"] == "V5_5_0"
    status = java.admin("getConsumeStatus", topic, name, client)
    assert list(status) == [client]
    done = java.admin("consumeMessageDirectly", name, client, topic, sent["offsetMsgId"])
    assert done["consumeResult"] == "CR_SUCCESS"
    assert len(java.collect(handle, 2)) == 2


def test_consume_queue_shown(java: rig.Client, cluster: rig.Cluster, topic: str) -> None:
    queue = {"topic": topic, "broker": cluster.broker_name, "queueId": 0}
    java("send", messages=[{"topic": topic, "body": f"m{i}", "tags": "T", "queue": queue} for i in range(3)])
    rig.until("three", lambda: java.admin("maxOffset", queue) == 3)
    found = java.admin("queryConsumeQueue", cluster.broker, topic, 0, 0, 10, None)
    assert (found["minQueueIndex"], found["maxQueueIndex"]) == (0, 3)
    assert [u["tagsCode"] for u in found["queueData"]] == [ord("T")] * 3


def test_time_span_of_a_group(java: rig.Client, topic: str, name: str) -> None:
    before = int(time.time() * 1000) - 1000
    java.send(topic, [f"m{i}" for i in range(4)])
    java.consume(topic, name, 4)
    spans = java.admin("queryConsumeTimeSpan", topic, name)
    assert len(spans) == 4
    assert all(before <= s["minTimeStamp"] <= s["maxTimeStamp"] for s in spans)
