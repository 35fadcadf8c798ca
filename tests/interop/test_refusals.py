"""What is refused, and with which code: clients decide by the code whether they try again."""

from __future__ import annotations

import json

import pytest
import rig
from broker_settings import set_for_a_while

pytestmark = pytest.mark.interop

SYSTEM_ERROR, NOT_SUPPORTED, ILLEGAL, NO_PERMISSION = 1, 3, 13, 16
TOPIC_MISSING, QUERY_NOT_FOUND, PARSE_FAILED, NO_SUBSCRIPTION, NO_GROUP = 17, 22, 23, 24, 26
INVALID_PARAMETER, NOT_ONLINE = 29, 206


def _send(cluster: rig.Cluster, topic: str, body: bytes = b"x", **more: object) -> rig.Answer:
    header = {
        "producerGroup": "raw", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
        "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "", "reconsumeTimes": 0,
        "unitMode": "false", "batch": "false", **more,
    }  # fmt: skip
    return rig.call(cluster.broker, 10, header, body)


def _pull(cluster: rig.Cluster, topic: str, **more: object) -> rig.Answer:
    header = {
        "consumerGroup": "CID_raw", "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 1,
        "expressionType": "TAG", **more,
    }  # fmt: skip
    return rig.call(cluster.broker, 11, header)


def test_transactions(java: rig.Client, cluster: rig.Cluster, topic: str) -> None:
    """By a broker with rejectTransactionMessage, as the Java one here always is."""
    afterwards = str(cluster.broker_process.impl == "java").lower()
    with set_for_a_while(cluster, "rejectTransactionMessage", "true", afterwards):
        with pytest.raises(rig.AgentError) as e:
            java("transaction", message={"topic": topic, "body": "half"})
        assert e.value.code == NO_PERMISSION
        half = _send(java.cluster, topic, properties="TRAN_MSG\x01true\x02PGROUP\x01raw\x02")
        assert half.code == NO_PERMISSION
        assert "transaction" in (half.remark or "")


def test_sql92(java: rig.Client, cluster: rig.Cluster, topic: str, name: str) -> None:
    """Unless enablePropertyFilter is set."""
    sql = {"topic": topic, "subString": "a > 5", "expressionType": "SQL92", "tagsSet": [], "codeSet": []}
    body = {"clientId": "c", "group": name, "subscriptionData": sql}
    answer = rig.call(cluster.broker, 46, {}, json.dumps(body).encode())
    assert answer.code == SYSTEM_ERROR
    assert "SQL92" in (answer.remark or "")
    assert _pull(cluster, topic, expressionType="SQL92", subscription="a > 5").code == SYSTEM_ERROR

    def refused() -> str:
        """A client that hasn't got the route in time starts without asking."""
        try:
            java("push.stop", handle=java("push.start", topic=topic, group=name, sql="a > 5"))
        except rig.AgentError as e:
            return e.message
        return ""

    assert "SQL92" in rig.until("the consumer doesn't start", refused)


def test_sends(cluster: rig.Cluster, topic: str) -> None:
    assert _send(cluster, topic).code == 0
    assert _send(cluster, topic, b"").code in (SYSTEM_ERROR, ILLEGAL)
    assert _send(cluster, topic, queueId=4).code == INVALID_PARAMETER
    assert _send(cluster, "no/such name").code == INVALID_PARAMETER
    assert _send(cluster, "t" * 128).code == INVALID_PARAMETER
    assert _send(cluster, "SCHEDULE_TOPIC_XXXX").code == NO_PERMISSION
    missing = _send(cluster, "not_there_raw", defaultTopic="also_not_there")
    assert missing.code == TOPIC_MISSING
    assert "not_there_raw" in (missing.remark or "")
    assert _send(cluster, "%RETRY%not_there_raw_group_ü").code != 0


def test_negative_queue_is_drawn(cluster: rig.Cluster, topic: str) -> None:
    answer = _send(cluster, topic, queueId=-1)
    assert answer.code == 0
    assert 0 <= int(answer.ext["queueId"]) < 4


def test_missing_fields(cluster: rig.Cluster) -> None:
    answer = rig.call(cluster.broker, 10, {"topic": "x"}, b"x")
    assert answer.code == SYSTEM_ERROR
    answer = rig.call(cluster.broker, 11, {"topic": "x"})
    assert answer.code == SYSTEM_ERROR


def test_pulls(cluster: rig.Cluster, topic: str) -> None:
    assert _pull(cluster, topic).code == 19
    assert _pull(cluster, topic, queueId=4).code == INVALID_PARAMETER
    assert _pull(cluster, "not_there_raw2").code == TOPIC_MISSING
    assert _pull(cluster, topic, sysFlag=0).code == NO_SUBSCRIPTION


def test_unknown_codes(cluster: rig.Cluster) -> None:
    for address in (cluster.namesrv, cluster.broker):
        answer = rig.call(address, 29_999)
        assert answer.code == NOT_SUPPORTED
        assert "29999" in (answer.remark or "")


def test_admin_codes(java: rig.Client, cluster: rig.Cluster, topic: str) -> None:
    def code(address: str, request: int, **ext: object) -> int:
        return rig.call(address, request, ext).code

    assert code(cluster.namesrv, 105, topic="not_there") == TOPIC_MISSING
    assert code(cluster.broker, 202, topic="not_there") == TOPIC_MISSING
    assert code(cluster.broker, 203, consumerGroup="nobody") == NOT_ONLINE
    assert code(cluster.broker, 204, producerGroup="nobody") == SYSTEM_ERROR
    assert code(cluster.broker, 38, consumerGroup="nobody") == SYSTEM_ERROR
    assert code(cluster.namesrv, 101, namespace="n", key="missing") == QUERY_NOT_FOUND
    assert code(cluster.broker, 307, consumerGroup="nobody", clientId="x", jstackEnable="false") != 0
    assert code(cluster.broker, 29, topic="not_there", queueId=0, timestamp=0) in (0, TOPIC_MISSING)
    assert (
        code(cluster.broker, 14, consumerGroup="nobody", topic=topic, queueId=0, setZeroIfNotFound="false")
        == QUERY_NOT_FOUND
    )
    refused = rig.call(cluster.broker, 25, {}, b"brokerConfigPath=/tmp/x\n")
    assert refused.code == NO_PERMISSION
    assert rig.call(cluster.namesrv, 318, {}, b"kvConfigPath=/tmp/x\n").code == NO_PERMISSION


@pytest.mark.parametrize("name_of_it", ["TBW102", "SELF_TEST_TOPIC", "no good", "t" * 128, ""])
def test_topics_that_cannot_be_made(cluster: rig.Cluster, name_of_it: str) -> None:
    header = {
        "topic": name_of_it, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    assert rig.call(cluster.broker, 17, header).code == INVALID_PARAMETER


def test_locks_are_one_members(cluster: rig.Cluster, topic: str) -> None:
    queues = [{"topic": topic, "brokerName": cluster.broker_name, "queueId": q} for q in range(2)]

    def lock(code: int, client: str, wanted: list[dict[str, object]]) -> list[int]:
        body = {"consumerGroup": f"g_{topic}", "clientId": client, "mqSet": wanted, "onlyThisBroker": False}
        answer = rig.call(cluster.broker, code, {}, json.dumps(body).encode())
        assert answer.code == 0, answer
        if code == 42:
            return []
        return sorted(q["queueId"] for q in json.loads(answer.body)["lockOKMQSet"])

    assert lock(41, "one", queues[:1]) == [0]
    assert lock(41, "two", queues) == [1]
    assert lock(41, "one", queues) == [0]
    lock(42, "two", queues)
    assert lock(41, "two", queues) == [1]
    lock(42, "one", queues)
    assert lock(41, "two", queues) == [0, 1]
