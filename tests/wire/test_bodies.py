"""Bodies: Java's text in both directions, and what is no body."""

import json
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.base.errors import RequestRefused
from perseid.wire import bodies, copied, fastjson
from perseid.wire.bodies import (
    ClusterInfo,
    ConsumerConnection,
    ConsumeStats,
    DataVersion,
    GetConsumerStatusBody,
    HeartbeatData,
    MessageQueue,
    RegisterBrokerBody,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
    TopicStatsTable,
)
from perseid.wire.body import Body
from perseid.wire.hashing import crc32
from perseid.wire.mapping import TopicQueueMappingInfo

JAVA = {
    "DataVersion": DataVersion,
    "TopicRouteData_legacy (client version < 401 and no acceptStandardJsonOnly)": TopicRouteData,
    "TopicRouteData_fastjson1": TopicRouteData,
    "ClusterInfo": ClusterInfo,
    "TopicConfigAndMappingSerializeWrapper (code 21 body)": TopicConfigSerializeWrapper,
    "RegisterBrokerBody": RegisterBrokerBody,
    "ConsumerOffset (code 43 body)": copied.ConsumerOffsets,
    "SubscriptionGroupWrapper (code 201 body)": bodies.SubscriptionGroupWrapper,
    "delayOffset (code 45 body)": copied.DelayOffsets,
    "HeartbeatData": HeartbeatData,
    "LockBatchRequestBody": bodies.LockBatchRequestBody,
    "LockBatchResponseBody": bodies.LockBatchResponseBody,
    "GetConsumerListByGroupResponseBody": bodies.GetConsumerListByGroupResponseBody,
    "TopicStatsTable (object as map key!)": TopicStatsTable,
    "ConsumeStats": ConsumeStats,
    "ResetOffsetBody": ResetOffsetBody,
    "KVTable": bodies.KVTable,
    "TopicList": bodies.TopicList,
    "GetBrokerMemberGroupResponseBody": bodies.GetBrokerMemberGroupResponseBody,
}
ALL = sorted(
    {kind for kind in vars(bodies).values() if isinstance(kind, type) and issubclass(kind, Body | MessageQueue)},
    key=lambda kind: kind.__name__,
)
QUEUE = MessageQueue("t", "b", 3)


@pytest.mark.parametrize("name", JAVA)
def test_java_text(vectors: Any, name: str) -> None:
    text = vectors["json_bodies"][name]
    body = JAVA[name].from_json(text.encode())
    assert body.to_json().decode() == text
    assert JAVA[name].from_json(memoryview(text.encode())) == body
    assert JAVA[name].from_json(fastjson.loads(text)) == body


def test_standard_route(vectors: Any) -> None:
    texts = vectors["json_bodies"]
    for name in ("TopicRouteData_standard", "TopicRouteData_fastjson1_standard"):
        route = TopicRouteData.from_json(texts[name])
        assert route.to_json(standard=True).decode() == texts[name]
        assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911", 1: "127.0.0.1:20911"}
    assert b"\\u00e9" in TopicRouteData(order_topic_conf="é").to_json(standard=True)


def test_java_registration(vectors: Any) -> None:
    texts = vectors["json_bodies"]
    known = texts["RegisterBrokerBody_compressed"]
    packed = bytes.fromhex(known["zlib_hex"])
    plain = texts["RegisterBrokerBody"].encode()
    assert crc32(plain) == texts["RegisterBrokerBody_crc32"]
    assert crc32(packed) == known["bodyCrc32"]
    body = RegisterBrokerBody.decode(packed)
    assert zlib.decompress(body.compress()).hex() == known["inflated_hex"]
    unsent = RegisterBrokerBody.decode(plain)
    unsent.topic_config_serialize_wrapper.mapping_data_version = DataVersion()
    assert body == unsent
    line = texts["TopicConfig.encode() (space form used in the compressed register body)"]
    assert TopicConfig.from_line(line).to_line() == line
    assert RegisterBrokerBody.decode(b"") == RegisterBrokerBody()


def test_registrations_before_5_0_have_no_mappings(vectors: Any) -> None:
    inflated = bytes.fromhex(vectors["json_bodies"]["RegisterBrokerBody_compressed"]["inflated_hex"])
    body = RegisterBrokerBody.decode(zlib.compress(inflated[:-4]))
    assert list(body.topic_config_serialize_wrapper.topic_config_table) == ["TopicTest"]
    mapping = b'{"bname":"b","topic":"S"}'
    body = RegisterBrokerBody.decode(zlib.compress(inflated[:-1] + b"\1" + struct.pack(">I", len(mapping)) + mapping))
    assert body.topic_config_serialize_wrapper.topic_queue_mapping_info_map == {
        "S": TopicQueueMappingInfo(bname="b", topic="S")
    }
    assert RegisterBrokerBody.decode(body.compress()) == body


def test_compressed_registrations_that_are_none(vectors: Any) -> None:
    inflated = bytes.fromhex(vectors["json_bodies"]["RegisterBrokerBody_compressed"]["inflated_hex"])
    for cut in range(len(inflated) - 4):
        with pytest.raises(RequestRefused):
            RegisterBrokerBody.decode(zlib.compress(inflated[:cut]))
    packed = zlib.compress(inflated)
    for raw in (b"x", packed[:-1], packed[:20], b"x\xff\xff", zlib.compress(b"\xff" * 40)):
        with pytest.raises(RequestRefused):
            RegisterBrokerBody.decode(raw)
    with pytest.raises(RequestRefused, match="inflated"):
        RegisterBrokerBody.decode(zlib.compress(bytes(bodies.MAX_REGISTER_BODY_BYTES + 1)))
    for line in ("", "T 1 2", "T 1 2 x SINGLE_TAG", "T 1 2 99999999999 SINGLE_TAG", "T 1 2 6 SINGLE_TAG {a"):
        with pytest.raises(RequestRefused):
            TopicConfig.from_line(line)
    assert TopicConfig.from_line("T 1 2 6 MULTI_TAG").topic_filter_type == "MULTI_TAG"


def test_fingerprint_of_a_heartbeat(vectors: Any) -> None:
    texts = vectors["json_bodies"]
    assert HeartbeatData.from_json(texts["HeartbeatData"]).fingerprint() == texts["HeartbeatData_fingerprint_of_that"]


def test_what_go_sends() -> None:
    got = HeartbeatData.from_json(
        b'{"clientID":"c","producerDataSet":[],"consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_PASSIVELY",'
        b'"messageModel":"Clustering","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":'
        b'[{"classFilterMode":false,"topic":"t","subString":"a","tagsSet":["a"],"codeSet":["97"],"subVersion":1,'
        b'"expressionType":""}],"unitMode":false}]}'
    )
    assert got.consumer_data_set[0].subscription_data_set[0].code_set == [97]
    assert (got.heartbeat_fingerprint, got.without_sub) == (0, False)


def test_null_counts_as_absent_and_new_members_are_ignored() -> None:
    text = '{"clientID":"c","producerDataSet":null,"consumerDataSet":[null],"new":{"x":[]}}'
    assert HeartbeatData.from_json(text) == HeartbeatData("c")
    assert TopicStatsTable.from_json('{"offsetTable":null}').offset_table == {}
    assert ConsumerConnection.from_json("{}").consume_type is None


def test_queues_as_keys() -> None:
    status = GetConsumerStatusBody({QUEUE: 5}, {"client": {QUEUE: 6}})
    assert GetConsumerStatusBody.from_json(status.to_json()) == status
    reset = ResetOffsetBody({QUEUE: 7})
    assert reset.to_json() == b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"t"}:7}}'
    assert ResetOffsetBody.from_json(reset.to_json()) == reset
    assert MessageQueue.from_json(QUEUE.to_json()) == QUEUE


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_text_that_is_no_body(kind: Any) -> None:
    for text in (b"", b"[]", b"7", b"{", b'"x"', b"\xff", b"{0:" * 50_000, b"[" * 50_000):
        with pytest.raises(RequestRefused, match=kind.__name__) as caught:
            kind.from_json(text)
        assert caught.value.code == 1


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (HeartbeatData, "{}"),
        (HeartbeatData, '{"clientID":"c","consumerDataSet":{}}'),
        (TopicConfig, '{"perm":4294967296}'),
        (TopicConfig, '{"readQueueNums":"many"}'),
        (TopicStatsTable, '{"offsetTable":{"x":{}}}'),
        (TopicStatsTable, '{"offsetTable":{{"topic":"t"}:{}}}'),
        (TopicStatsTable, '{"offsetTable":[]}'),
        (TopicStatsTable, '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:7}}'),
        (GetConsumerStatusBody, '{"consumerTable":[]}'),
        (TopicRouteData, '{"brokerDatas":[{"brokerAddrs":{"master":"a"}}]}'),
    ],
)
def test_bodies_with_wrong_members(kind: Any, text: str) -> None:
    with pytest.raises(RequestRefused):
        kind.from_json(text)


def test_data_version_and_defaults() -> None:
    version = DataVersion()
    version.next_version(1000)
    assert version == DataVersion(0, 1000, 1)
    row = json.loads(SubscriptionGroupConfig(group_name="g").to_json())
    assert (row["retryMaxTimes"], row["consumeTimeoutMinute"]) == (16, 15)
    assert row["groupRetryPolicy"] == {"type": "CUSTOMIZED"}


names = st.text(max_size=8)


@given(st.dictionaries(names, st.builds(TopicConfig, topic_name=names, order=st.booleans()), max_size=3), names)
def test_round_trips(table: dict[str, TopicConfig], server: str) -> None:
    body = RegisterBrokerBody(TopicConfigSerializeWrapper(table, DataVersion(1, 2, 3)), [server])
    assert RegisterBrokerBody.from_json(body.to_json()) == body
    assert RegisterBrokerBody.from_json(fastjson.pretty(body)) == body


@given(st.text(st.sampled_from('{}[]:,"0ab'), max_size=16) | st.binary(max_size=16))
def test_any_text_is_a_body_or_refused(text: Any) -> None:
    for kind in (TopicStatsTable, HeartbeatData, TopicRouteData, MessageQueue):
        try:
            kind.from_json(text)
        except RequestRefused:
            continue
