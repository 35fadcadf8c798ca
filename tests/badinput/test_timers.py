"""Times that can't be, and recalls of what there is not: each is refused with its own code, and changes nothing."""

import base64
import time
from collections.abc import Iterator

import pytest

from perseid.broker.config import BrokerConfig
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.codes import RequestCode, ResponseCode

from .rig import Acknowledged, Peer, send_header

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(broker=BrokerConfig(broker_name="b", recall_message_enable=True)) as running:
        yield running


def handle(*words: object) -> str:
    return base64.urlsafe_b64encode(" ".join(map(str, words)).encode()).decode()


TIMES = {
    "a word": "soon",
    "a fraction": "1.5",
    "two numbers": "5 6",
    "hexadecimal": "0x10",
    "full width": "５",
    "beyond 64 bits": str(1 << 63),
    "very long": "9" * 30_000,
    "in four days": str(int(time.time() * 1000) + 4 * DAY_MS),
}


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
@pytest.mark.parametrize("value", TIMES.values(), ids=TIMES.keys())
def test_a_time_that_can_not_be(broker: EmbeddedBroker, kept: Acknowledged, name: str, value: str) -> None:
    with Peer(broker.address) as peer:
        answer = peer.send_message(kept.topic, b"x", properties=f"{name}\x01{value}\x02")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and answer.remark


def test_messages_for_a_time_are_not_batched(broker: EmbeddedBroker, kept: Acknowledged) -> None:
    properties = "TIMER_DELAY_MS\x015000\x02"
    with Peer(broker.address) as peer:
        header = send_header(kept.topic, batch=True, properties=properties)
        answer = peer.call(RequestCode.SEND_BATCH_MESSAGE, header, bytes(21))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and answer.remark


def test_the_topic_of_timers_belongs_to_the_broker(broker: EmbeddedBroker, kept: Acknowledged) -> None:
    with Peer(broker.address) as peer:
        answer = peer.send_message("rmq_sys_wheel_timer", b"x", properties="TIMER_OUT_MS\x011\x02REAL_TOPIC\x01a\x02")
        assert answer.code == ResponseCode.NO_PERMISSION


SOON = int(time.time() * 1000) + DAY_MS
HANDLES = {
    "none": None,
    "empty": "",
    "no base64": "#!?",
    "not UTF-8": base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    "umlauts": "ä" * 9,
    "too few words": handle("v1", "T", "b"),
    "another version": handle("v2", "T", "b", SOON, "K"),
    "another topic": handle("v1", "U", "b", SOON, "K"),
    "another broker": handle("v1", "T", "c", SOON, "K"),
    "no time": handle("v1", "T", "b", "soon", "K"),
    "a time below 0": handle("v1", "T", "b", -1, "K"),
    "a time that is over": handle("v1", "T", "b", 1, "K"),
    "a time in a year": handle("v1", "T", "b", SOON + 365 * DAY_MS, "K"),
    "a huge time": handle("v1", "T", "b", 10**200, "K"),
    "an empty key": handle("v1", "T", "b", SOON, ""),
    "a huge key": handle("v1", "T", "b", SOON, "K" * 40_000),
    "huge": "A" * 1_000_000,
}


@pytest.mark.parametrize("given", HANDLES.values(), ids=HANDLES.keys())
def test_a_recall_handle_that_is_none(broker: EmbeddedBroker, kept: Acknowledged, given: str | None) -> None:
    with Peer(broker.address) as peer:
        peer.send_message("T", b"x")
        header = {"topic": "T", "producerGroup": "g"} | ({} if given is None else {"recallHandle": given})
        answer = peer.call(RequestCode.RECALL_MESSAGE, header)
        assert answer.code != 0 and answer.remark


FIELDS = {
    "no topic": {"topic": None},
    "an empty topic": {"topic": ""},
    "a topic that is not there": {"topic": "nowhere"},
    "a path for a topic": {"topic": "../../etc"},
    "a long topic": {"topic": "x" * 100_000},
}


@pytest.mark.parametrize("changed", FIELDS.values(), ids=FIELDS.keys())
def test_a_recall_without_its_topic(broker: EmbeddedBroker, kept: Acknowledged, changed: dict[str, str | None]) -> None:
    header = {"topic": "T", "producerGroup": "g", "recallHandle": handle("v1", "T", "b", SOON, "K"), **changed}
    with Peer(broker.address) as peer:
        given = {name: text for name, text in header.items() if text is not None}
        answer = peer.call(RequestCode.RECALL_MESSAGE, given)
        assert answer.code != 0 and answer.remark


@pytest.mark.parametrize("group", ["", "x" * 20_000, "a\x01b\x02c"])
def test_a_producer_group_of_any_kind(broker: EmbeddedBroker, kept: Acknowledged, group: str) -> None:
    """It is only noted; what does not fit is refused, or left out."""
    header = {"topic": "T", "producerGroup": group, "recallHandle": handle("v1", "T", "b", SOON, "K")}
    with Peer(broker.address) as peer:
        peer.send_message("T", b"x")
        assert peer.call(RequestCode.RECALL_MESSAGE, header).code in (0, ResponseCode.SYSTEM_ERROR)


@pytest.mark.parametrize("code", [RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS])
def test_what_slaves_ask_with_anything_in_it(broker: EmbeddedBroker, kept: Acknowledged, code: RequestCode) -> None:
    with Peer(broker.address) as peer:
        answer = peer.call(code, {"x": "y" * 1_000}, b"\xff" * 1_000)
        assert answer.code == 0 and len(answer.body)
