"""Mappings of static topics that can't be, and requests for logical queues with fields that can't: refused with a
remark, without a trace, and all else goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perseid.base.errors import StoreError
from perseid.broker.static_topics.mappings import MAX_ITEMS, TopicMappings
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire import fastjson
from perseid.wire.bodies import RegisterBrokerBody, TopicConfigSerializeWrapper
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.mapping import MAX_LOGICAL_QUEUES

from .rig import Acknowledged, Peer
from .test_admin_codes import BAD_VALUES

NAME = "embedded"
FIELDS = {
    "topic": "S", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false", "force": "false",
}  # fmt: skip
REQUIRED = ("topic", "defaultTopic", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")


def item(**more: Any) -> dict[str, Any]:
    return {"gen": 0, "queueId": 0, "bname": NAME, "logicOffset": 0, "startOffset": 0, "endOffset": -1,
            "timeOfStart": -1, "timeOfEnd": -1, **more}  # fmt: skip


def detail(*queues: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    hosted = {str(number): items for number, items in enumerate(queues)}
    return {"topic": "S", "scope": "__global__", "totalQueues": len(queues), "bname": NAME, "epoch": 1000,
            "dirty": False, "currIdMap": {}, "hostedQueues": hosted, **more}  # fmt: skip


GOOD = detail([item()], [item(queueId=1)])


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def peer(broker: EmbeddedBroker) -> Iterator[Peer]:
    with Peer(broker.address) as connected:
        yield connected
        assert connected.call(Code.GET_BROKER_RUNTIME_INFO).code == 0, "the connection lives"


def tell(peer: Peer, mapping: Any, **fields: str | None) -> Any:
    said = {name: value for name, value in {**FIELDS, **fields}.items() if value is not None}
    return peer.call(Code.UPDATE_AND_CREATE_STATIC_TOPIC, said, json.dumps(mapping).encode())


def known(peer: Peer, topic: str = "S") -> Any:
    answer = peer.call(Code.GET_TOPIC_CONFIG, {"topic": topic, "lo": "true"})
    return fastjson.loads(answer.body) if answer.code == 0 else answer.code


@pytest.mark.parametrize("what", BAD_VALUES)
@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_can_not_be(peer: Peer, field: str, what: str) -> None:
    answer = tell(peer, GOOD, **{field: BAD_VALUES[what]})
    assert answer.code == 0 or answer.remark
    if what == "missing" and field in REQUIRED:
        assert answer.code == ResponseCode.SYSTEM_ERROR and f"the field {field} is missing" in answer.remark
    if field == "topic" and what not in ("missing", "empty"):
        assert answer.code == ResponseCode.INVALID_PARAMETER


MAPPINGS = {
    "no object": [],
    "a number": 7,
    "null": None,
    "empty": {},
    "another topic": {**GOOD, "topic": "X"},
    "another broker": {**GOOD, "bname": "elsewhere"},
    "no broker": {**GOOD, "bname": None},
    "negative number of queues": {**GOOD, "totalQueues": -1},
    "huge number of queues": {**GOOD, "totalQueues": MAX_LOGICAL_QUEUES + 1},
    "number that is none": {**GOOD, "totalQueues": "many"},
    "queue beyond the number": {**GOOD, "totalQueues": 1},
    "epoch that is none": {**GOOD, "epoch": "now"},
    "epoch beyond 64 bits": {**GOOD, "epoch": 1 << 64},
    "queues that are a list": {**GOOD, "hostedQueues": [[item()]]},
    "queue id that is none": {**GOOD, "hostedQueues": {"x": [item()]}},
    "negative queue id": {**GOOD, "hostedQueues": {"-1": [item()]}},
    "no items": detail([]),
    "too many items": detail([item(gen=n, logicOffset=n * 10_000) for n in range(MAX_ITEMS + 1)]),
    "item that is none": detail([7]),  # type: ignore[list-item]
    "item without a broker": detail([item(bname="")]),
    "negative gen": detail([item(gen=-1)]),
    "negative queue": detail([item(queueId=-1)]),
    "huge queue": detail([item(queueId=1 << 40)]),
    "negative start": detail([item(startOffset=-1)]),
    "logical offset below -1": detail([item(logicOffset=-2)]),
    "end before start": detail([item(startOffset=9, endOffset=5)]),
    "gens that fall": detail([item(gen=1), item(gen=0, logicOffset=10_000)]),
    "the same gen twice": detail([item(), item(logicOffset=10_000)]),
    "undecided before decided": detail([item(logicOffset=-1), item(gen=1, logicOffset=10_000)]),
    "offsets that fall": detail([item(logicOffset=10_000), item(gen=1)]),
    "an end beyond the next": detail([item(endOffset=20_000), item(gen=1, logicOffset=10_000)]),
}


@pytest.mark.parametrize("mapping", MAPPINGS.values(), ids=MAPPINGS.keys())
def test_a_mapping_that_can_not_be(broker: EmbeddedBroker, peer: Peer, kept: Acknowledged, mapping: Any) -> None:
    """The topic is not made either: it is all or nothing."""
    peer.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "S"})
    answer = tell(peer, mapping)
    assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER) and answer.remark
    assert known(peer) == ResponseCode.TOPIC_NOT_EXIST
    assert tell(peer, GOOD).code == 0
    before = known(peer)
    assert tell(peer, mapping).code != 0 and known(peer) == before


@pytest.mark.parametrize("body", [b"", b"\x00\xff\xfe", b'{"a":[', b"{" * 10_000], ids=["none", "bytes", "cut", "deep"])
def test_a_body_that_can_not_be(peer: Peer, body: bytes) -> None:
    answer = peer.call(Code.UPDATE_AND_CREATE_STATIC_TOPIC, FIELDS, body)
    assert answer.code != 0 and answer.remark


CHANGES = {
    "an earlier epoch": {**GOOD, "epoch": 999},
    "another scope": {**GOOD, "scope": "mine"},
    "the same epoch without a queue": {**detail([item()], epoch=1000), "totalQueues": 2},
    "the same epoch with another leader": detail([item(), item(gen=1, queueId=2, logicOffset=9)], [item(queueId=1)]),
    "an item that becomes another queue": detail([item(queueId=3)], [item(queueId=1)], epoch=2000),
    "an item that begins elsewhere": detail([item(logicOffset=5)], [item(queueId=1)], epoch=2000),
}


@pytest.mark.parametrize("mapping", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_that_can_not_be(peer: Peer, mapping: Any) -> None:
    peer.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "S"})
    assert tell(peer, GOOD).code == 0
    before = known(peer)
    answer = tell(peer, mapping, readQueueNums="9", writeQueueNums="9")
    assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
    assert known(peer) == before, "the number of queues did not change either"
    assert tell(peer, mapping, force="true").code == 0, "whoever forces it gets it"


QUEUE = {"topic": "S", "queueId": "0", "consumerGroup": "g", "timestamp": "0", "commitOffset": "0"}
PULL = {**QUEUE, "queueOffset": "0", "maxMsgNums": "3", "sysFlag": "4", "suspendTimeoutMillis": "0", "subVersion": "0",
        "subscription": "*", "expressionType": "TAG"}  # fmt: skip
SEND = {"producerGroup": "g", "topic": "S", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": ""}  # fmt: skip
REQUESTS = {
    Code.PULL_MESSAGE: PULL,
    Code.SEND_MESSAGE: SEND,
    Code.QUERY_CONSUMER_OFFSET: QUEUE,
    Code.UPDATE_CONSUMER_OFFSET: QUEUE,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: QUEUE,
    Code.GET_MAX_OFFSET: QUEUE,
    Code.GET_MIN_OFFSET: QUEUE,
    Code.GET_EARLIEST_MSG_STORETIME: QUEUE,
}
NUMBERS = {"queueId": ("", "-1", "2", "65536", "2147483647", "9" * 30, "x"),
           "queueOffset": ("", "-1", "-9223372036854775808", "9223372036854775807", "x"),
           "commitOffset": ("", "-9223372036854775808", "9223372036854775807", "x"),
           "timestamp": ("", "-9223372036854775808", "9223372036854775807", "x"),
           "lo": ("", "maybe", "true", "FALSE", "0", "x" * 20_000),
           "bname": ("", "elsewhere", "x" * 20_000)}  # fmt: skip


@pytest.mark.parametrize("code", REQUESTS, ids=lambda code: code.name)
def test_requests_for_logical_queues(peer: Peer, kept: Acknowledged, code: Code) -> None:
    """Whatever the numbers are: an answer, and queue 0 is as it was."""
    peer.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "S"})
    assert tell(peer, GOOD).code == 0
    assert peer.call(Code.SEND_MESSAGE, SEND, b"x").code == 0
    good = REQUESTS[code]
    for field, values in NUMBERS.items():
        if field in good or field in ("lo", "bname"):
            for value in values:
                answer = peer.call(code, {**good, field: value}, b"y" if code == Code.SEND_MESSAGE else b"")
                assert answer.code == 0 or answer.remark, (field, value)
                if field == "queueId" and value in ("2", "65536"):
                    assert answer.code == ResponseCode.NOT_LEADER_FOR_QUEUE
    answer = peer.call(Code.PULL_MESSAGE, PULL)
    assert answer.code == 0 and answer.ext["nextBeginOffset"] >= "1"


def test_a_topic_that_may_not_be_read_or_is_the_brokers_own(peer: Peer) -> None:
    refused = tell(peer, {**GOOD, "topic": "TBW102"}, topic="TBW102")
    assert refused.code == ResponseCode.INVALID_PARAMETER and "system topic" in refused.remark
    peer.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "S"})
    assert tell(peer, GOOD, perm="2").code == 0
    assert peer.call(Code.PULL_MESSAGE, PULL).code == ResponseCode.NO_PERMISSION


FILES = {
    "another broker's": json.dumps({"topicQueueMappingInfoMap": {"S": {**GOOD, "bname": "b2"}}}),
    "under another name": json.dumps({"topicQueueMappingInfoMap": {"T": GOOD}}),
    "a list": "[]",
    "cut": '{"topicQueueMappingInfoMap":{"S":',
    "no table": json.dumps({"topicQueueMappingInfoMap": 7}),
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_a_file_that_can_not_be(text: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"config/topicQueueMapping\.json can't be taken up"):
        TopicMappings(NAME).load(text.encode())


@pytest.mark.parametrize("mapping", [7, [], {"currIdMap": 7}, {"currIdMap": {"x": 1}}, {"epoch": "x"}], ids=str)
def test_a_registration_with_a_mapping_that_can_not_be(broker: EmbeddedBroker, mapping: Any) -> None:
    wrapper = json.loads(RegisterBrokerBody(TopicConfigSerializeWrapper()).to_json())
    wrapper["topicConfigSerializeWrapper"]["topicQueueMappingInfoMap"] = {"S": mapping}
    header = {"brokerName": "x", "brokerAddr": "1.1.1.1:1", "clusterName": "C", "haServerAddr": "1.1.1.1:2",
              "brokerId": "0"}  # fmt: skip
    with Peer(broker.namesrv) as names:
        answer = names.call(Code.REGISTER_BROKER, header, json.dumps(wrapper).encode())
        assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
        assert "1.1.1.1" not in str(names.call(Code.GET_BROKER_CLUSTER_INFO).body)
