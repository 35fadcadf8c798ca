"""Each request of administration, replies and relays, with each of its fields missing, empty, negative, huge and of the
wrong type, over real sockets: refused in words or answered, never without an answer; and nothing is lost by it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perseid.client.blocking import BlockingAdmin
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode

from .rig import Acknowledged, Peer

SEND = {
    "producerGroup": "g", "topic": "R", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
    "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "REPLY_TO_CLIENT\x01nobody\x02",
}  # fmt: skip
GOOD: dict[Code, tuple[dict[str, str], bytes]] = {
    Code.SEND_REPLY_MESSAGE: (SEND, b"reply"),
    Code.SEND_REPLY_MESSAGE_V2: (
        dict(zip("abcdefghi", SEND.values(), strict=True)), b"reply"
    ),
    Code.GET_CONSUMER_RUNNING_INFO: ({"consumerGroup": "g", "clientId": "c", "jstackEnable": "true"}, b""),
    Code.CONSUME_MESSAGE_DIRECTLY: (
        {"consumerGroup": "g", "clientId": "c", "msgId": "7F00000100002A9F0000000000000000", "topic": "T",
         "topicSysFlag": "0", "groupSysFlag": "0"}, b""
    ),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ({"topic": "T", "group": "g", "clientAddr": "c"}, b""),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: (
        {"topic": "T", "group": "g", "timestamp": "0", "queueId": "0", "offset": "0", "isForce": "true"}, b""
    ),
    Code.VIEW_BROKER_STATS_DATA: ({"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}, b""),
    Code.GET_BROKER_CONSUME_STATS: ({"isOrder": "false"}, b""),
    Code.QUERY_CONSUME_QUEUE: ({"topic": "T", "queueId": "0", "index": "0", "count": "9", "consumerGroup": "g"}, b""),
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: ({}, b""),
    Code.CLEAN_UNUSED_TOPIC: ({}, b""),
    Code.DELETE_EXPIRED_COMMITLOG: ({}, b""),
    Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: ({}, b"g=1000\n"),
    Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: ({}, b"g"),
    Code.GET_COLD_DATA_FLOW_CTR_INFO: ({}, b""),
    Code.RESET_MASTER_FLUSH_OFFSET: ({"masterFlushOffset": "0"}, b""),
}  # fmt: skip
BAD_VALUES = {
    "missing": None,
    "empty": "",
    "negative": "-1",
    "huge": "9" * 30,
    "long": "x" * 20_000,
    "wrong": "no number",
    "separators": "a\x01b\x02c",
}
BAD_BODIES = {"none": b"", "bytes": b"\x00\xff\xfe", "json": b'{"a":[', "large": b"k=1\n" * 50_000}
REQUIRED = {
    Code.GET_CONSUMER_RUNNING_INFO: ("consumerGroup", "clientId"),
    Code.CONSUME_MESSAGE_DIRECTLY: ("consumerGroup",),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ("topic", "group"),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: ("topic", "group", "timestamp"),
    Code.VIEW_BROKER_STATS_DATA: ("statsName", "statsKey"),
    Code.RESET_MASTER_FLUSH_OFFSET: ("masterFlushOffset",),
    Code.SEND_REPLY_MESSAGE: tuple(name for name in SEND if name != "properties"),
    Code.SEND_REPLY_MESSAGE_V2: tuple("abcdefgh"),
}
CASES = [(code, field) for code, (fields, _) in GOOD.items() for field in fields]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="module")
def kept(broker: EmbeddedBroker) -> Iterator[Acknowledged]:
    """Messages that are there before, and after all of it."""
    topic = Acknowledged("T")
    topic.send(broker.namesrv)
    yield topic
    topic.check(broker.namesrv)


@pytest.fixture
def peer(broker: EmbeddedBroker, kept: Acknowledged) -> Iterator[Peer]:
    with Peer(broker.address) as connected:
        yield connected
        assert connected.call(Code.GET_BROKER_RUNTIME_INFO).code == 0, "the connection lives"


@pytest.mark.parametrize("what", BAD_VALUES)
@pytest.mark.parametrize(("code", "field"), CASES, ids=[f"{code.name}-{field}" for code, field in CASES])
def test_a_field_that_can_not_be(peer: Peer, code: Code, field: str, what: str) -> None:
    fields, body = GOOD[code]
    value = BAD_VALUES[what]
    asked = {name: text for name, text in {**fields, field: value}.items() if text is not None}
    answer = peer.call(code, asked, body)
    assert answer.code == 0 or answer.remark, "a refusal has its words"
    if what == "missing" and field in REQUIRED.get(code, ()):
        assert answer.code == ResponseCode.SYSTEM_ERROR and f"the field {field} is missing" in (answer.remark or "")


@pytest.mark.parametrize("what", BAD_BODIES)
@pytest.mark.parametrize("code", GOOD, ids=lambda code: code.name)
def test_a_body_that_can_not_be(peer: Peer, code: Code, what: str) -> None:
    answer = peer.call(code, GOOD[code][0], BAD_BODIES[what])
    assert answer.code == 0 or answer.remark


@pytest.mark.parametrize("code", GOOD, ids=lambda code: code.name)
def test_no_fields_at_all(peer: Peer, code: Code) -> None:
    answer = peer.call(code, None, GOOD[code][1])
    assert answer.code == 0 or answer.remark
    if code in REQUIRED:
        assert answer.code == ResponseCode.SYSTEM_ERROR and "is missing" in (answer.remark or "")


def test_what_a_broker_or_topic_without_write_permission_refuses(broker: EmbeddedBroker, peer: Peer) -> None:
    """A reply is a send: an ordered topic of a read-only broker, and the broker's own topics, refuse it."""
    forbidden = {**SEND, "topic": "SCHEDULE_TOPIC_XXXX"}
    assert peer.call(Code.SEND_REPLY_MESSAGE, forbidden, b"x").code == ResponseCode.NO_PERMISSION
    with BlockingAdmin(broker.namesrv) as admin:
        thread, client = admin._running
        body = b"brokerPermission=4\n"
        thread.run(client.create_topic("ORDERED", 1))
        assert peer.call(Code.UPDATE_BROKER_CONFIG, None, body).code == 0
        try:
            row = {
                "topic": "ORDERED", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
                "topicFilterType": "SINGLE_TAG", "order": "true",
            }  # fmt: skip
            assert peer.call(Code.UPDATE_AND_CREATE_TOPIC, row).code == 0
            refused = peer.call(Code.SEND_REPLY_MESSAGE, {**SEND, "topic": "ORDERED"}, b"x")
            assert refused.code == ResponseCode.NO_PERMISSION and "forbidden" in (refused.remark or "")
        finally:
            assert peer.call(Code.UPDATE_BROKER_CONFIG, None, b"brokerPermission=6\n").code == 0


def test_an_answer_to_a_relay_that_nobody_asked_for(peer: Peer) -> None:
    header = b'{"code":0,"flag":1,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":513}'
    peer.send((4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
