"""Pops, acks and assignments that no client may ask for: each field missing, empty, negative, huge, of another type.
Each is refused in words, nobody else notices, and what was popped before stays what it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perseid.client import Message, PoppedMessage
from perseid.client.blocking import BlockingPopConsumer, BlockingProducer
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire import fastjson
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode

from .rig import Peer

TOPIC, GROUP = "popped", "g"
HUGE = "9" * 30

POP = {
    "consumerGroup": "other", "topic": TOPIC, "queueId": "-1", "maxMsgNums": "1", "invisibleTime": "60000",
    "pollTime": "0", "bornTime": "0", "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
}  # fmt: skip
NOTIFY = {
    "consumerGroup": "other", "topic": TOPIC, "queueId": "-1", "pollTime": "0", "bornTime": "0", "expType": "TAG",
    "exp": "*", "order": "false",
}  # fmt: skip
PEEK = {"consumerGroup": "other", "topic": TOPIC, "queueId": "-1", "maxMsgNums": "1"}
INFO = {"consumerGroup": "other", "topic": TOPIC, "queueId": "-1"}
NUMBERS = {"queueId", "maxMsgNums", "invisibleTime", "pollTime", "bornTime", "initMode", "offset"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="module")
def popped(broker: EmbeddedBroker) -> PoppedMessage:
    with BlockingProducer(broker.namesrv) as producer:
        for number in range(4):
            producer.send(Message(TOPIC, b"%d" % number))
    with BlockingPopConsumer(broker.namesrv, GROUP, TOPIC, invisible_ms=3_600_000) as consumer:
        return consumer.receive(1)[0]


@pytest.fixture(autouse=True)
def stays_popped(broker: EmbeddedBroker, popped: PoppedMessage) -> Iterator[None]:
    """After a test the message is still its owner's, and the broker serves."""
    yield
    with BlockingPopConsumer(broker.namesrv, GROUP, TOPIC) as consumer:
        popped.handle = consumer.change_invisible(popped, 3_600_000).handle


def _of_popped(popped: PoppedMessage) -> dict[str, str]:
    handle = popped.handle
    return {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(handle.queue_id), "extraInfo": str(handle),
        "offset": str(handle.offset),
    }  # fmt: skip


def fields_of(code: Code, popped: PoppedMessage) -> dict[str, str]:
    """What is right for a request."""
    return {
        Code.POP_MESSAGE: POP,
        Code.NOTIFICATION: NOTIFY,
        Code.PEEK_MESSAGE: PEEK,
        Code.POLLING_INFO: INFO,
        Code.ACK_MESSAGE: _of_popped(popped),
        Code.CHANGE_MESSAGE_INVISIBLETIME: {**_of_popped(popped), "invisibleTime": "1000"},
    }[code]


NEEDED = {
    Code.POP_MESSAGE: ("consumerGroup", "topic"),
    Code.NOTIFICATION: ("consumerGroup", "topic"),
    Code.PEEK_MESSAGE: ("consumerGroup", "topic"),
    Code.POLLING_INFO: ("consumerGroup", "topic"),
    Code.ACK_MESSAGE: ("consumerGroup", "topic", "queueId", "extraInfo", "offset"),
    Code.CHANGE_MESSAGE_INVISIBLETIME: (
        "consumerGroup", "topic", "queueId", "extraInfo", "offset", "invisibleTime"
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "name"), [(code, name) for code, names in NEEDED.items() for name in names],
    ids=lambda value: getattr(value, "name", value),
)  # fmt: skip
def test_a_field_that_is_missing_or_empty(broker: EmbeddedBroker, popped: PoppedMessage, code: Code, name: str) -> None:
    fields = fields_of(code, popped)
    with Peer(broker.address) as peer:
        missing = peer.call(code, {key: value for key, value in fields.items() if key != name})
        assert missing.code == ResponseCode.SYSTEM_ERROR and name in (missing.remark or "")
        empty = peer.call(code, {**fields, name: ""})
        silent = name == "consumerGroup" and code == Code.ACK_MESSAGE  # nothing of that group is out
        assert (empty.code != 0 or silent) and "Traceback" not in (empty.remark or "")


NUMBER_FIELDS = [
    (code, name)
    for code in NEEDED
    for name in sorted(NUMBERS)
    if name
    in {Code.POP_MESSAGE: POP, Code.NOTIFICATION: NOTIFY, Code.PEEK_MESSAGE: PEEK, Code.POLLING_INFO: INFO}.get(
        code, {"queueId": "", "offset": "", **({} if code == Code.ACK_MESSAGE else {"invisibleTime": ""})}
    )
]


@pytest.mark.parametrize(("code", "name"), NUMBER_FIELDS, ids=lambda value: getattr(value, "name", value))
@pytest.mark.parametrize("value", ["nine", "1.5", HUGE, "-" + HUGE, "0x10", " "], ids=repr)
def test_a_number_that_is_none(
    broker: EmbeddedBroker, popped: PoppedMessage, code: Code, name: str, value: str
) -> None:
    with Peer(broker.address) as peer:
        answer = peer.call(code, {**fields_of(code, popped), name: value})
        assert answer.code == ResponseCode.SYSTEM_ERROR and name in (answer.remark or "")


LARGE, BEYOND = str(2**31 - 1), str(2**63 - 1)
OUT_OF_RANGE = [
    (Code.POP_MESSAGE, {"maxMsgNums": "0"}, 29),
    (Code.POP_MESSAGE, {"maxMsgNums": "-1"}, 29),
    (Code.POP_MESSAGE, {"maxMsgNums": "33"}, 29),
    (Code.POP_MESSAGE, {"maxMsgNums": LARGE}, 29),
    (Code.POP_MESSAGE, {"invisibleTime": "-1"}, 29),
    (Code.POP_MESSAGE, {"invisibleTime": BEYOND}, 29),
    (Code.POP_MESSAGE, {"queueId": LARGE}, 29),
    (Code.POP_MESSAGE, {"bornTime": "1"}, 210),
    (Code.POP_MESSAGE, {"pollTime": "-1000"}, 210),
    (Code.POP_MESSAGE, {"topic": "none-such"}, 17),
    (Code.POP_MESSAGE, {"topic": "a/b"}, 17),
    (Code.POP_MESSAGE, {"consumerGroup": "a/b"}, 26),
    (Code.POP_MESSAGE, {"consumerGroup": "g" * 300}, 26),
    (Code.POP_MESSAGE, {"exp": "||"}, 23),
    (Code.POP_MESSAGE, {"expType": "XPATH"}, 1),
    (Code.POP_MESSAGE, {"expType": "SQL92", "exp": "a >"}, 1),
    (Code.NOTIFICATION, {"queueId": LARGE}, 29),
    (Code.NOTIFICATION, {"topic": "none-such"}, 17),
    (Code.PEEK_MESSAGE, {"queueId": LARGE}, 29),
    (Code.PEEK_MESSAGE, {"maxMsgNums": "-1"}, 19),
    (Code.POLLING_INFO, {"topic": "none-such"}, 17),
    (Code.ACK_MESSAGE, {"topic": "none-such"}, 17),
    (Code.ACK_MESSAGE, {"queueId": "-1"}, 13),
    (Code.ACK_MESSAGE, {"queueId": LARGE}, 13),
    (Code.ACK_MESSAGE, {"offset": "-1"}, 208),
    (Code.ACK_MESSAGE, {"offset": BEYOND}, 208),
    (Code.CHANGE_MESSAGE_INVISIBLETIME, {"topic": "none-such"}, 17),
    (Code.CHANGE_MESSAGE_INVISIBLETIME, {"queueId": "-1"}, 13),
    (Code.CHANGE_MESSAGE_INVISIBLETIME, {"offset": "-1"}, 208),
    (Code.CHANGE_MESSAGE_INVISIBLETIME, {"offset": BEYOND}, 208),
    (Code.CHANGE_MESSAGE_INVISIBLETIME, {"invisibleTime": "-1"}, 29),
    (Code.CHANGE_MESSAGE_INVISIBLETIME, {"invisibleTime": BEYOND}, 29),
    (Code.CHANGE_MESSAGE_INVISIBLETIME, {"consumerGroup": "other"}, 208),
]


@pytest.mark.parametrize(("code", "changed", "expected"), OUT_OF_RANGE, ids=str)
def test_a_value_that_can_not_be(
    broker: EmbeddedBroker, popped: PoppedMessage, code: Code, changed: dict[str, str], expected: int
) -> None:
    with Peer(broker.address) as peer:
        answer = peer.call(code, {**fields_of(code, popped), **changed})
        assert answer.code == expected, answer.remark


HANDLES = {
    "empty": "",
    "words": "a b c d e f g h",
    "too short": "1 2 3",
    "no number": "0 x 60000 0 0 b 0 0",
    "huge": f"{HUGE} 1 1 1 0 b 0 0",
    "a revive queue that is none": "0 1 60000 8 0 b 0 0",
    "a negative revive queue": "0 1 60000 -1 0 b 0 0",
    "very long": "0" * 100_000 + " 0 0 0 0 b",
    "another separator": "0,1,60000,0,0,b,0,0",
}


@pytest.mark.parametrize("code", [Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME], ids=lambda code: code.name)
@pytest.mark.parametrize("handle", HANDLES.values(), ids=HANDLES.keys())
def test_a_handle_that_is_none(broker: EmbeddedBroker, popped: PoppedMessage, code: Code, handle: str) -> None:
    with Peer(broker.address) as peer:
        answer = peer.call(code, {**fields_of(code, popped), "extraInfo": handle})
        assert answer.code != 0


def test_a_handle_of_another_pop_changes_nothing(broker: EmbeddedBroker, popped: PoppedMessage) -> None:
    """An ack of nothing is answered as one, as by the original; the fixture sees that the message is still out."""
    with Peer(broker.address) as peer:
        for changed in ({"pop_time": 1}, {"start_offset": popped.handle.start_offset + 1}):
            other = popped.handle._replace(**changed)  # type: ignore[arg-type]
            answer = peer.call(Code.ACK_MESSAGE, {**_of_popped(popped), "extraInfo": str(other)})
            assert answer.code == 0


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"\xff\x00{",
    "a list": b"[]",
    "a number": b"7",
    "deep": b"[" * 5_000,
    "null": b"null",
}


@pytest.mark.parametrize(
    "code", [Code.BATCH_ACK_MESSAGE, Code.QUERY_ASSIGNMENT, Code.SET_MESSAGE_REQUEST_MODE], ids=lambda code: code.name
)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_body_that_is_none(broker: EmbeddedBroker, code: Code, body: bytes) -> None:
    with Peer(broker.address) as peer:
        assert peer.call(code, None, body).code != 0


def _ack(**changed: Any) -> bytes:
    row = {"b": "AQ==", "c": GROUP, "it": 60_000, "pt": 1, "q": 0, "r": "0", "rq": 0, "so": 0, "t": TOPIC, **changed}
    return fastjson.dumps({"acks": [row], "brokerName": "b"})


ACKS = {
    "no bits": _ack(b=None),
    "bits as numbers": _ack(b=[1, 2]),
    "bits that are not base64": _ack(b="***"),
    "too many bits": _ack(b="A" * 400_000),
    "an unknown retry": _ack(r="9"),
    "no group": _ack(c=None),
    "an empty topic": _ack(t=""),
    "a negative queue": _ack(q=-1),
    "a huge offset": _ack(so=10**30),
    "a text for a number": _ack(pt="soon"),
    "a revive queue that is none": _ack(rq=77),
    "acks that are no list": fastjson.dumps({"acks": {"a": 1}}),
    "acks that are no objects": fastjson.dumps({"acks": [1]}),
}


@pytest.mark.parametrize("body", ACKS.values(), ids=ACKS.keys())
def test_a_batch_acknowledgement_that_is_none(broker: EmbeddedBroker, body: bytes) -> None:
    with Peer(broker.address) as peer:
        assert peer.call(Code.BATCH_ACK_MESSAGE, None, body).code == ResponseCode.SYSTEM_ERROR


MODES = [
    ({"topic": "%RETRY%g"}, 16),
    ({"topic": "none-such"}, 17),
    ({"consumerGroup": "a/b"}, 26),
    ({"consumerGroup": ""}, 26),
    ({"mode": "PUSH"}, 29),
    ({"mode": None}, 0),
    ({"popShareQueueNum": "many"}, 1),
    ({"popShareQueueNum": 10**20}, 1),
]


@pytest.mark.parametrize(("changed", "expected"), MODES, ids=str)
def test_a_mode_that_can_not_be(broker: EmbeddedBroker, changed: dict[str, Any], expected: int) -> None:
    right = {"topic": TOPIC, "consumerGroup": "moded", "mode": "PULL", "popShareQueueNum": 0}
    with Peer(broker.address) as peer:
        answer = peer.call(Code.SET_MESSAGE_REQUEST_MODE, None, fastjson.dumps({**right, **changed}))
        assert answer.code == expected, answer.remark


ASSIGNMENTS = [
    ({"topic": ""}, 29),
    ({"consumerGroup": ""}, 29),
    ({"messageModel": "EVERYBODY"}, 29),
    ({"topic": "none-such"}, 0),
    ({"strategyName": "FAIR"}, 0),
    ({"consumerGroup": "nobody"}, 0),
    ({"clientId": ""}, 0),
    ({"topic": 7}, 1),
]


@pytest.mark.parametrize(("changed", "expected"), ASSIGNMENTS, ids=str)
def test_an_assignment_that_can_not_be(broker: EmbeddedBroker, changed: dict[str, Any], expected: int) -> None:
    right = {
        "topic": TOPIC, "consumerGroup": GROUP, "clientId": "c", "strategyName": "AVG", "messageModel": "CLUSTERING"
    }  # fmt: skip
    with Peer(broker.address) as peer:
        answer = peer.call(Code.QUERY_ASSIGNMENT, None, fastjson.dumps({**right, **changed}))
        assert answer.code == expected, answer.remark
        assert expected or bytes(answer.body) == b"{}"
