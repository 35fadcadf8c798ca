from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.harness import NOW, Rig
from broker.requests import properties
from perseid.base.config import pairs
from perseid.base.errors import RequestRefused
from perseid.broker.admin.runtime import human_bytes
from perseid.broker.config import BrokerConfig
from perseid.wire import fastjson
from perseid.wire.bodies import (
    ConsumerConnection,
    ConsumeStats,
    DataVersion,
    KVTable,
    MessageQueue,
    ProducerConnection,
    TopicStatsTable,
)
from perseid.wire.codes import RequestCode
from perseid.wire.headers import topics as headers
from perseid.wire.headers.admin import GetBrokerConfigResponse
from perseid.wire.record import decode_all


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


# ---- configuration ----


def update(rig: Rig, text: str) -> tuple[int, str | None]:
    answer = rig.ask(25, None, text.encode())
    return answer.code, answer.remark


def test_settings_can_be_read(rig: Rig) -> None:
    answer = rig.ask(26)
    settings = pairs(bytes(answer.body).decode())
    assert settings["brokerName"] == "b" and settings["brokerPermission"] == "6"
    assert settings["mappedFileSizeCommitLog"] == str(1 << 20), "the store's as well"
    assert list(settings) == sorted(settings)
    version = DataVersion.from_json(answer.header(GetBrokerConfigResponse).version)
    assert version.timestamp == NOW


def test_a_running_broker_follows_a_change(rig: Rig) -> None:
    assert update(rig, "autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false\n")[0] == 0
    assert pairs(bytes(rig.ask(26).body).decode())["autoCreateTopicEnable"] == "false"
    config = rig.parts.settings.current
    made = rig.parts.topics.create_on_send("T", default_topic="TBW102", queue_nums=1, config=config, now=NOW)
    assert made is None
    assert rig.ask(352, {"group": "g"}).code == 26


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        ("configBlackList=x", 16, "black list"),
        ("brokerConfigPath=/etc/passwd", 16, "black list"),
        ("traceOn=false\nbrokerConfigPath=x", 16, "black list"),
        ("listenPort=1234", 1, "listenPort: needs a restart"),
        ("mappedFileSizeCommitLog=4096", 1, "mappedFileSizeCommitLog: needs a restart"),
        ("nonsense=1", 1, "nonsense: is unknown"),
        ("brokerPermision=4", 1, "brokerPermision: is unknown, brokerPermission is the nearest"),
        ("brokerPermission=a lot", 1, "brokerPermission"),
        ("maxMsgsNumBatch=garbage", 1, "maxMsgsNumBatch=garbage: a whole number is wanted"),
        ("flushConsumerOffsetInterval=0", 1, "at least 1 is wanted"),
        ("timerMaxDelaySec=9223372036854775807", 1, "at most 2147483647 is wanted"),
        ("storePathCommitLog=/tmp/x", 1, "storePathCommitLog"),
        ("sendMessageThreadPoolNums=64", 1, "has no meaning here"),
        ("aclEnable=true", 1, "aclEnable: can't be had: clients would need to be on a list of ACL 1.0"),
    ],
)
def test_changes_that_can_not_be(rig: Rig, text: str, code: int, why: str) -> None:
    before = rig.parts.settings.current
    answer = update(rig, "longPollingEnable=false\n" + text)
    assert answer[0] == code and why in (answer[1] or "")
    assert rig.parts.settings.current is before, "all or nothing"


def test_a_text_that_is_none(rig: Rig) -> None:
    assert rig.ask(25, None, b"\xff\xfe=1").code == 1
    assert rig.ask(25, None, b"").code == 0


def test_a_new_permission_gives_the_topics_a_new_version(rig: Rig) -> None:
    counter = rig.parts.topics.version.counter
    assert update(rig, "brokerPermission=4")[0] == 0
    assert rig.parts.topics.version.counter == counter + 1
    assert update(rig, "brokerPermission=4")[0] == 0
    assert rig.parts.topics.version.counter == counter + 1


def test_what_a_setting_has_already_is_no_error(rig: Rig) -> None:
    """All that was read can be sent back."""
    text = bytes(rig.ask(26).body).decode()
    before = rig.parts.settings.current
    assert update(rig, text) == (0, None)
    assert rig.parts.settings.current == before


def test_how_many_messages_a_query_tells_at_most(rig: Rig) -> None:
    for number in range(3):
        rig.send("T", 0, b"x", properties(UNIQ_KEY=f"ID{number}", KEYS="k"))
    asked = {"topic": "T", "key": "k", "maxNum": "10", "beginTimestamp": "0", "endTimestamp": str(NOW + 1)}
    assert update(rig, "maxMsgsNumBatch=1")[0] == 0
    assert pairs(bytes(rig.ask(26).body).decode())["maxMsgsNumBatch"] == "1"
    assert len(decode_all(rig.ask(12, asked).body)) == 1
    assert update(rig, "maxMsgsNumBatch=64")[0] == 0
    assert len(decode_all(rig.ask(12, asked).body)) == 3


# ---- run-time information ----

KEYS = [
    "bootTimestamp",
    "runtime",
    "putMessageEntireTimeMax",
    "putMessageTimesTotal",
    "putMessageFailedTimes",
    "putMessageSizeTotal",
    "putMessageDistributeTime",
    "putMessageAverageSize",
    "dispatchMaxBuffer",
    "getMessageEntireTimeMax",
    "putTps",
    "getFoundTps",
    "getMissTps",
    "getTotalTps",
    "getTransferredTps",
    "putLatency99",
    "putLatency999",
    "commitLogDiskRatio",
    "commitLogDiskRatio_commitlog",
    "consumeQueueDiskRatio",
    "commitLogMinOffset",
    "commitLogMaxOffset",
    "brokerActive",
    "brokerVersionDesc",
    "brokerVersion",
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "dispatchBehindBytes",
    "pageCacheLockTimeMills",
    "earliestMessageTimeStamp",
    "startAcceptSendRequestTimeStamp",
    "timerReadBehind",
    "timerOffsetBehind",
    "timerCongestNum",
    "timerEnqueueTps",
    "timerDequeueTps",
    "remainTransientStoreBufferNumbs",
    "remainHowManyDataToFlush",
    "commitLogDirCapacity",
    "sendThreadPoolQueueSize",
    "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "litePullThreadPoolQueueSize",
    "litePullThreadPoolQueueCapacity",
    "litePullThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "queryThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueSize",
    "ackThreadPoolQueueCapacity",
    "ackThreadPoolQueueHeadWaitTimeMills",
    "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity",
]


def info(rig: Rig) -> dict[str, str]:
    return KVTable.from_json(rig.ask(28).body).table


def test_all_keys_are_there_from_the_start(rig: Rig) -> None:
    table = info(rig)
    assert set(KEYS) <= set(table)
    assert {f"scheduleMessageOffset_{level}" for level in range(1, 19)} <= set(table)
    assert table["earliestMessageTimeStamp"] == "-1"
    assert table["brokerVersionDesc"] == "V5_5_0" and table["brokerVersion"] == "513"
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1


def test_the_reference_says_what_each_row_is(rig: Rig) -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text()
    described = set(re.findall(r"`(\w+)`", text))
    rows = {re.sub(r"_\d+$", "_N", name) for name in info(rig)}
    pools = {name for name in rows if re.fullmatch(r"(send|pull|litePull|query|ack)ThreadPoolQueue\w+", name)}
    assert len(pools) == 15 and rows - pools <= described


def test_what_was_stored_is_counted(rig: Rig) -> None:
    for _ in range(3):
        rig.send("T")
    table = info(rig)
    assert table["putMessageTimesTotal"] == table["msgPutTotalTodayNow"] == "3"
    assert table["earliestMessageTimeStamp"] == str(NOW)
    assert int(table["putMessageSizeTotal"]) == int(table["commitLogMaxOffset"]) == rig.parts.store.log.end
    assert float(table["putMessageAverageSize"]) == rig.parts.store.log.end / 3


def test_rates_come_with_time(rig: Rig) -> None:
    assert info(rig)["putTps"].split() == []
    rig.until(NOW + 1_000)
    for _ in range(30):
        rig.send("T")
    rig.until(NOW + 10_000)
    assert info(rig)["putTps"].split() == ["3.0"]
    rig.until(NOW + 60_000)
    assert info(rig)["putTps"].split() == ["0.0", "0.5"]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (1 << 63, "8.0 EiB")],
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert human_bytes(count) == text


# ---- topics and groups ----


def commit(rig: Rig, topic: str, offset: int, group: str = "g") -> None:
    rig.ask(352, {"group": group})
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    assert rig.ask(15, fields).code == 0


def test_topic_stats(rig: Rig) -> None:
    rig.send("T")
    rig.now += 1_000
    rig.send("T")
    reply = rig.call(RequestCode.GET_TOPIC_STATS_INFO, headers.GetTopicStatsInfoRequest(topic="T"))
    table = TopicStatsTable.from_json(reply.body).offset_table
    assert [queue.queue_id for queue in table] == [0, 1, 2, 3]
    first = table[MessageQueue("T", "b", 0)]
    assert (first.min_offset, first.max_offset, first.last_update_timestamp) == (0, 2, NOW + 1_000)
    empty = table[MessageQueue("T", "b", 3)]
    assert (empty.min_offset, empty.max_offset, empty.last_update_timestamp) == (0, 0, 0)
    with pytest.raises(RequestRefused) as refused:
        rig.call(RequestCode.GET_TOPIC_STATS_INFO, headers.GetTopicStatsInfoRequest(topic="unknown"))
    assert refused.value.code == 17


def consume_stats(
    rig: Rig, topic: str | None = None, topic_list: str | None = None
) -> dict[MessageQueue, tuple[int, int]]:
    header = headers.GetConsumeStatsRequest(consumer_group="g", topic=topic, topic_list=topic_list)
    table = ConsumeStats.from_json(rig.call(RequestCode.GET_CONSUME_STATS, header).body).offset_table
    return {queue: (row.broker_offset, row.consumer_offset) for queue, row in table.items() if queue.queue_id == 0}


def test_consume_stats(rig: Rig) -> None:
    t, u = MessageQueue("T", "b", 0), MessageQueue("U", "b", 0)
    for topic in ("T", "U"):
        for _ in range(3):
            rig.send(topic)
        commit(rig, topic, 2)
    assert consume_stats(rig) == {t: (3, 2), u: (3, 2)}
    assert consume_stats(rig, "T") == {t: (3, 2)}
    assert consume_stats(rig, topic_list="U;;U;unknown") == {u: (3, 2)}
    beat = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"U"}]}],'
        b'"producerDataSet":[]}'
    )
    assert rig.ask(34, None, beat).code == 0
    assert consume_stats(rig) == {u: (3, 2)}, "only what it subscribes to while it is there"


def test_consume_stats_show_when_and_how_far(rig: Rig) -> None:
    for i in range(3):
        rig.now = NOW + i
        rig.send("T")
    commit(rig, "T", 2)
    rig.parts.offsets.pulled("T", "g", 0, 3)
    header = headers.GetConsumeStatsRequest(consumer_group="g", topic="T")
    stats = ConsumeStats.from_json(rig.call(RequestCode.GET_CONSUME_STATS, header).body)
    row = stats.offset_table[MessageQueue("T", "b", 0)]
    assert (row.pull_offset, row.last_timestamp) == (3, NOW + 1)


def test_time_span(rig: Rig) -> None:
    for i in range(3):
        rig.now = NOW + i * 10
        rig.send("T")
    commit(rig, "T", 1)
    rig.now = NOW + 100
    header = headers.QueryConsumeTimeSpanRequest(topic="T", group="g")
    spans = fastjson.loads(rig.call(RequestCode.QUERY_CONSUME_TIME_SPAN, header).body)["consumeTimeSpanSet"]
    assert spans[0] == {
        "consumeTimeStamp": NOW,
        "delayTime": 90,
        "maxTimeStamp": NOW + 20,
        "messageQueue": {"brokerName": "b", "queueId": 0, "topic": "T"},
        "minTimeStamp": NOW,
    }
    assert spans[1]["delayTime"] == 0 and spans[1]["minTimeStamp"] == -1
    with pytest.raises(RequestRefused):
        rig.call(RequestCode.QUERY_CONSUME_TIME_SPAN, headers.QueryConsumeTimeSpanRequest(topic="unknown", group="g"))


# ---- clients ----


def test_connections(rig: Rig) -> None:
    beat = (
        b'{"clientID":"c1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        b'"consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING",'
        b'"subscriptionDataSet":[{"topic":"T","subString":"*"}]}],"producerDataSet":[{"groupName":"p"}]}'
    )
    assert rig.ask(34, None, beat).code == 0
    asked = headers.GetConsumerConnectionListRequest(consumer_group="g")
    reply = rig.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, asked)
    body = ConsumerConnection.from_json(reply.body)
    (connection,) = body.connection_set
    assert (connection.client_id, connection.client_addr) == ("c1", "10.0.0.1:5000")
    assert (connection.language, connection.version) == ("PYTHON", 513)
    assert body.consume_from_where == "CONSUME_FROM_FIRST_OFFSET" and list(body.subscription_table) == ["T"]
    wanted = headers.GetProducerConnectionListRequest(producer_group="p")
    reply = rig.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, wanted)
    assert [c.client_id for c in ProducerConnection.from_json(reply.body).connection_set] == ["c1"]
    data = fastjson.loads(rig.call(RequestCode.GET_ALL_PRODUCER_INFO).body)["data"]
    assert data["p"][0]["clientId"] == "c1" and data["p"][0]["lastUpdateTimestamp"] == NOW


def test_nobody_is_connected(rig: Rig) -> None:
    with pytest.raises(RequestRefused) as refused:
        rig.call(RequestCode.GET_CONSUMER_CONNECTION_LIST, headers.GetConsumerConnectionListRequest(consumer_group="g"))
    assert (refused.value.code, refused.value.remark) == (206, "the consumer group[g] not online")
    with pytest.raises(RequestRefused) as refused:
        rig.call(RequestCode.GET_PRODUCER_CONNECTION_LIST, headers.GetProducerConnectionListRequest(producer_group="p"))
    assert refused.value.code == 1


def test_defaults_of_the_original() -> None:
    assert BrokerConfig().channel_expired_timeout == 120_000
