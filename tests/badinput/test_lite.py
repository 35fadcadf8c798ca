"""Lite topics: what no client may ask for. Each is refused in words, and who reads a lite topic goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from perseid.testing.embedded import SMALL_STORE, EmbeddedBroker
from perseid.wire import batch
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode

from .rig import Peer, send_header

STORE = replace(SMALL_STORE, enable_lmq=True, enable_multi_dispatch=True)
PARENT, GROUP, CLIENT = "Parent", "readers", "reader-1"
HUGE, LARGE, BEYOND = "9" * 30, str(2**31 - 1), str(2**63 - 1)

POP = {
    "clientId": "other", "consumerGroup": GROUP, "topic": PARENT, "maxMsgNum": "1", "invisibleTime": "60000",
    "pollTime": "0", "bornTime": "0",
}  # fmt: skip
ROWS: dict[Code, dict[str, str]] = {
    Code.POP_LITE_MESSAGE: POP,
    Code.GET_PARENT_TOPIC_INFO: {"topic": PARENT},
    Code.GET_LITE_TOPIC_INFO: {"parentTopic": PARENT, "liteTopic": "a"},
    Code.GET_LITE_CLIENT_INFO: {"parentTopic": PARENT, "group": GROUP, "clientId": CLIENT, "maxCount": "1"},
    Code.GET_LITE_GROUP_INFO: {"group": GROUP, "liteTopic": "a", "topK": "1"},
    Code.TRIGGER_LITE_DISPATCH: {"group": GROUP, "clientId": CLIENT},
}
NEEDED = {
    Code.POP_LITE_MESSAGE: (
        "clientId", "consumerGroup", "topic", "maxMsgNum", "invisibleTime", "pollTime",
    ),
    Code.GET_PARENT_TOPIC_INFO: ("topic",),
    Code.GET_LITE_GROUP_INFO: ("group",),
    Code.TRIGGER_LITE_DISPATCH: ("group",),
}  # fmt: skip
NUMBERS = ("maxMsgNum", "invisibleTime", "pollTime", "bornTime", "maxCount", "topK")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(store=STORE) as running, Peer(running.address) as peer:
        row = {
            "topic": PARENT, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
            "topicFilterType": "SINGLE_TAG", "order": "false", "attributes": "+message.type=LITE",
        }  # fmt: skip
        assert peer.call(Code.UPDATE_AND_CREATE_TOPIC, row).code == 0
        group = {"groupName": GROUP, "attributes": {"+lite.bind.topic": PARENT}}
        assert peer.call(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, json.dumps(group).encode()).code == 0
        yield running


def said(lite: str) -> str:
    return f"UNIQ_KEY\x01U\x02__LITE_TOPIC\x01{lite}\x02"


def change(**fields: Any) -> dict[str, Any]:
    usual = {"action": "PARTIAL_ADD", "clientId": CLIENT, "group": GROUP, "topic": PARENT, "liteTopicSet": ["a"]}
    return {**usual, **fields}


def ctl(peer: Peer, *changes: object) -> Any:
    return peer.call(Code.LITE_SUBSCRIPTION_CTL, {}, json.dumps({"subscriptionSet": list(changes)}).encode())


@pytest.fixture(autouse=True)
def a_reader_goes_on(broker: EmbeddedBroker) -> Iterator[None]:
    """After a test a client that reads a lite topic is given what comes there."""
    yield
    with Peer(broker.address) as peer:
        assert ctl(peer, change()).code == 0
        assert peer.send_message(PARENT, b"x", properties=said("a")).code == 0
        answer = peer.call(Code.POP_LITE_MESSAGE, {**POP, "clientId": CLIENT, "maxMsgNum": "32", "invisibleTime": "0"})
        assert answer.code == 0 and answer.body


@pytest.mark.parametrize(
    ("code", "name"), [(code, name) for code, names in NEEDED.items() for name in names],
    ids=lambda value: getattr(value, "name", value),
)  # fmt: skip
def test_a_field_that_is_missing_or_empty(broker: EmbeddedBroker, code: Code, name: str) -> None:
    fields = ROWS[code]
    with Peer(broker.address) as peer:
        missing = peer.call(code, {key: value for key, value in fields.items() if key != name})
        assert missing.code == ResponseCode.SYSTEM_ERROR and name in (missing.remark or "")
        empty = peer.call(code, {**fields, name: ""})
        assert empty.code != 0 and "Traceback" not in (empty.remark or "")


@pytest.mark.parametrize(
    ("code", "name"), [(code, name) for code, fields in ROWS.items() for name in NUMBERS if name in fields],
    ids=lambda value: getattr(value, "name", value),
)  # fmt: skip
@pytest.mark.parametrize("value", ["nine", "1.5", HUGE, "-" + HUGE, "0x10", " "], ids=repr)
def test_a_number_that_is_none(broker: EmbeddedBroker, code: Code, name: str, value: str) -> None:
    with Peer(broker.address) as peer:
        answer = peer.call(code, {**ROWS[code], name: value})
        assert answer.code == ResponseCode.SYSTEM_ERROR and name in (answer.remark or "")


@pytest.mark.parametrize(
    ("code", "changed", "expected"),
    [
        (Code.POP_LITE_MESSAGE, {"maxMsgNum": "0"}, 29),
        (Code.POP_LITE_MESSAGE, {"maxMsgNum": "33"}, 29),
        (Code.POP_LITE_MESSAGE, {"maxMsgNum": LARGE}, 29),
        (Code.POP_LITE_MESSAGE, {"invisibleTime": "-1"}, 29),
        (Code.POP_LITE_MESSAGE, {"invisibleTime": BEYOND}, 29),
        (Code.POP_LITE_MESSAGE, {"bornTime": "1"}, 210),
        (Code.POP_LITE_MESSAGE, {"pollTime": "-1000"}, 210),
        (Code.POP_LITE_MESSAGE, {"topic": "none-such"}, 17),
        (Code.POP_LITE_MESSAGE, {"topic": "TBW102"}, 29),
        (Code.POP_LITE_MESSAGE, {"consumerGroup": "a/b"}, 26),
        (Code.POP_LITE_MESSAGE, {"consumerGroup": "bound-to-nothing"}, 29),
        (Code.POP_LITE_MESSAGE, {"clientId": "c" * 30_000}, 210),
        (Code.GET_PARENT_TOPIC_INFO, {"topic": "none-such"}, 17),
        (Code.GET_PARENT_TOPIC_INFO, {"topic": "TBW102"}, 29),
        (Code.GET_LITE_TOPIC_INFO, {"parentTopic": "none-such"}, 17),
        (Code.GET_LITE_TOPIC_INFO, {"liteTopic": "a/b$c\0d"}, 0),
        (Code.GET_LITE_CLIENT_INFO, {"parentTopic": "none-such"}, 17),
        (Code.GET_LITE_CLIENT_INFO, {"group": "a/b"}, 26),
        (Code.GET_LITE_CLIENT_INFO, {"group": "bound-to-nothing"}, 29),
        (Code.GET_LITE_CLIENT_INFO, {"maxCount": "-1"}, 0),
        (Code.GET_LITE_CLIENT_INFO, {"maxCount": LARGE}, 0),
        (Code.GET_LITE_GROUP_INFO, {"group": "a/b"}, 26),
        (Code.GET_LITE_GROUP_INFO, {"group": "bound-to-nothing"}, 29),
        (Code.GET_LITE_GROUP_INFO, {"topK": "-1", "liteTopic": ""}, 0),
        (Code.GET_LITE_GROUP_INFO, {"topK": LARGE, "liteTopic": ""}, 0),
        (Code.TRIGGER_LITE_DISPATCH, {"group": "a/b"}, 26),
        (Code.TRIGGER_LITE_DISPATCH, {"group": "bound-to-nothing"}, 29),
        (Code.TRIGGER_LITE_DISPATCH, {"clientId": "unknown"}, 0),
    ],
    ids=str,
)
def test_a_value_that_can_not_be(broker: EmbeddedBroker, code: Code, changed: dict[str, str], expected: int) -> None:
    with Peer(broker.address) as peer:
        assert peer.call(code, {**ROWS[code], **changed}).code == expected


CHANGES: dict[str, tuple[object, int]] = {
    "no action": (change(action=""), 604),
    "an unknown action": (change(action="ADD"), 604),
    "an action of another type": (change(action=7), 1),
    "no client": (change(clientId=""), 604),
    "a blank client": (change(clientId="  "), 604),
    "a long client": (change(clientId="c" * 300), 604),
    "no group": (change(group=""), 604),
    "a group that can't be": (change(group="a/b"), 604),
    "no topic": (change(topic=""), 604),
    "too many names": (change(liteTopicSet=[str(n) for n in range(10_001)]), 2018),
    "names that are none": (change(liteTopicSet=[["a"]]), 1),
    "no list of names": (change(liteTopicSet="a"), 1),
    "an option that is none": (change(offsetOption={"type": "NOW", "value": 1}), 604),
    "an option below 0": (change(offsetOption={"type": "OFFSET", "value": -1}), 604),
    "an option that is no object": (change(offsetOption=5), 1),
    "a huge option": (change(offsetOption={"type": "OFFSET", "value": 10**30}), 1),
    "another group's client": (change(group="others"), 604),
    "no object": ("x", 1),
    "names that are no queues": (change(liteTopicSet=["", "a/b", "a$b", "\0", "x" * 70_000]), 0),
}


@pytest.mark.parametrize(("one", "expected"), CHANGES.values(), ids=CHANGES.keys())
def test_a_change_that_can_not_be(broker: EmbeddedBroker, one: object, expected: int) -> None:
    with Peer(broker.address) as peer:
        assert ctl(peer, change()).code == 0
        answer = ctl(peer, one)
        assert answer.code == expected, answer.remark
        assert "Traceback" not in (answer.remark or "")
        row = ROWS[Code.GET_LITE_CLIENT_INFO] | {"maxCount": "100"}
        assert json.loads(bytes(peer.call(Code.GET_LITE_CLIENT_INFO, row).body))["liteTopicSet"] == ["%LMQ%$Parent$a"]


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"{", b"\xff" * 9, b'{"subscriptionSet":[]}', b'{"subscriptionSet":7}']
)
def test_a_body_that_is_none(broker: EmbeddedBroker, body: bytes) -> None:
    with Peer(broker.address) as peer:
        assert peer.call(Code.LITE_SUBSCRIPTION_CTL, {}, body).code in (1, 604)


def test_too_many_changes(broker: EmbeddedBroker) -> None:
    with Peer(broker.address) as peer:
        assert ctl(peer, *[change()] * 1_001).code == 604


def test_a_pull_that_names_a_lite_topic(broker: EmbeddedBroker) -> None:
    pull = {
        "consumerGroup": GROUP, "topic": PARENT, "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "liteTopic": "a",
    }  # fmt: skip
    with Peer(broker.address) as peer:
        for _ in range(3):  # the second one could have a seat
            answer = peer.call(Code.PULL_MESSAGE, pull)
            assert answer.code == ResponseCode.INVALID_PARAMETER and "%LMQ%$Parent$a" in (answer.remark or "")


@pytest.mark.parametrize("lite", ["../../etc", "a/b", "a\0b", "x" * 300, "ü" * 126])
def test_a_lite_topic_that_can_not_be(broker: EmbeddedBroker, lite: str) -> None:
    with Peer(broker.address) as peer:
        assert peer.send_message(PARENT, b"x", properties=said(lite)).code == ResponseCode.MESSAGE_ILLEGAL


def test_a_batch(broker: EmbeddedBroker) -> None:
    body = batch.encode([(0, b"x", said("a").encode())])
    with Peer(broker.address) as peer:
        answer = peer.call(Code.SEND_BATCH_MESSAGE, send_header(PARENT, batch=True), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "light queues" in (answer.remark or "")


@pytest.mark.parametrize("code", [Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME])
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"offset": "-1"}, 208),
        ({"offset": BEYOND}, 208),
        ({"liteTopic": "none-such"}, 208),
        ({"liteTopic": "a/b"}, 208),
        ({"queueId": "1"}, 29),
        ({"queueId": "-1"}, 29),
        ({"consumerGroup": "bound-to-nothing"}, 29),
        ({"consumerGroup": "a/b"}, 29),
        ({"topic": "none-such"}, 29),
        ({"extraInfo": ""}, 1),
        ({"extraInfo": "1 2 3"}, 1),
        ({"extraInfo": "0 1 60000 3 0 b 0 0"}, 29),
    ],
    ids=str,
)
def test_a_delivery_that_can_not_be(broker: EmbeddedBroker, code: Code, changed: dict[str, str], expected: int) -> None:
    fields = {
        "consumerGroup": GROUP, "topic": PARENT, "queueId": "0", "extraInfo": "0 1 60000 999 0 b 0 0", "offset": "0",
        "liteTopic": "a", "invisibleTime": "1000",
    }  # fmt: skip
    with Peer(broker.address) as peer:
        assert peer.send_message(PARENT, b"x", properties=said("a")).code == 0
        assert peer.call(code, {**fields, **changed}).code == expected


@pytest.mark.parametrize(
    "attribute", ["lite.topic.expiration=43201", "lite.topic.expiration=-2", "lite.topic.expiration=x"]
)
def test_an_expiration_that_can_not_be(broker: EmbeddedBroker, attribute: str) -> None:
    row = {
        "topic": "Q", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "order": "false", "attributes": f"+message.type=LITE,+{attribute}",
    }  # fmt: skip
    with Peer(broker.address) as peer:
        answer = peer.call(Code.UPDATE_AND_CREATE_TOPIC, row)
        assert answer.code == 1 and "lite.topic.expiration" in (answer.remark or "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lite.sub.model", "Both"),
        ("lite.sub.client.quota", "-2"),
        ("lite.sub.client.max.event.cnt", "9"),
        ("lite.sub.client.max.event.cnt", "many"),
        ("lite.bind.topic", ""),
        ("lite.bind.topic", "t" * 128),
        ("lite.sub.reset.offset.exclusive", "yes"),
        ("lite.sub.unknown", "x"),
    ],
)
def test_an_attribute_of_a_group_that_can_not_be(broker: EmbeddedBroker, name: str, value: str) -> None:
    body = json.dumps({"groupName": "attributed", "attributes": {f"+{name}": value}}).encode()
    with Peer(broker.address) as peer:
        answer = peer.call(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        assert answer.code == 1 and name in (answer.remark or "")
