"""Messages that no broker may take: each is refused with its own code and remark, and changes nothing."""

from collections.abc import Iterator

import pytest

from perseid.client.blocking import BlockingAdmin
from perseid.testing.embedded import SMALL_STORE, EmbeddedBroker
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import encode_request

from .rig import Acknowledged, Peer, send_header

LIMIT = SMALL_STORE.max_message_size
NEVER_CREATED = "never-created"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2], ids=lambda code: code.name)
@pytest.mark.parametrize("more", [1, 1 << 20])
def test_a_body_over_the_limit(broker: EmbeddedBroker, kept: Acknowledged, code: RequestCode, more: int) -> None:
    header = send_header(kept.topic)
    if code == RequestCode.SEND_MESSAGE:
        header = {
            "producerGroup": "g", "topic": kept.topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
            "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0",
        }  # type: ignore[assignment]  # fmt: skip
    with Peer(broker.address) as peer:
        answer = peer.call(code, header, bytes(LIMIT + more))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and str(LIMIT) in (answer.remark or "")


def test_a_body_of_just_the_limit_is_taken(broker: EmbeddedBroker) -> None:
    with Peer(broker.address) as peer:
        assert peer.send_message("just-the-limit", bytes(LIMIT)).code == 0


def test_a_body_that_no_frame_may_carry(broker: EmbeddedBroker, kept: Acknowledged) -> None:
    with Peer(broker.address) as peer:
        frame = encode_request(RequestCode.SEND_MESSAGE_V2, 1, send_header(kept.topic), b"")
        too_much = (17 << 20).to_bytes(4, "big") + frame[4:]
        peer.send(too_much)
        assert peer.ended()


def test_no_body_at_all(broker: EmbeddedBroker, kept: Acknowledged) -> None:
    with Peer(broker.address) as peer:
        answer = peer.send_message(kept.topic, b"")
        assert answer.code != 0 and "body" in (answer.remark or "")


def test_properties_over_the_limit(broker: EmbeddedBroker, kept: Acknowledged) -> None:
    with Peer(broker.address) as peer:
        answer = peer.send_message(kept.topic, b"x", properties="k\x01" + "v" * 40_000 + "\x02")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "properties" in (answer.remark or "")


ILLEGAL = {
    "empty": "",
    "blank": " ",
    "slash": "a/b",
    "parent folder": "../../etc/passwd",
    "dot": ".",
    "zero byte": "a\0b",
    "newline": "a\nb",
    "umlaut": "Größe",
    "space": "a b",
    "long": "x" * 128,
    "very long": "x" * 100_000,
}


@pytest.mark.parametrize("topic", ILLEGAL.values(), ids=ILLEGAL.keys())
def test_a_topic_with_an_illegal_name(broker: EmbeddedBroker, kept: Acknowledged, topic: str) -> None:
    with BlockingAdmin(broker.namesrv) as admin:
        before = admin.topic_list()
        with Peer(broker.address) as peer:
            answer = peer.send_message(topic, b"x")
            assert answer.code != 0 and answer.remark
            created = peer.call(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
                 "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"},
            )  # fmt: skip
            assert created.code != 0 and created.remark
        assert admin.topic_list() == before


def test_topics_that_belong_to_the_broker(broker: EmbeddedBroker, kept: Acknowledged) -> None:
    with Peer(broker.address) as peer:
        for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC"):
            answer = peer.send_message(topic, b"x")
            assert answer.code != 0 and topic in (answer.remark or ""), topic


@pytest.mark.parametrize("queue_id", [4, 1_000, 2**31 - 1])
def test_a_queue_that_is_not_there(broker: EmbeddedBroker, kept: Acknowledged, queue_id: int) -> None:
    with Peer(broker.address) as peer:
        answer = peer.send_message(kept.topic, b"x", queue_id=queue_id)
        assert answer.code == ResponseCode.INVALID_PARAMETER and str(queue_id) in (answer.remark or "")


BATCHES = {"cut": b"\0\0\0\x05", "2 GB": b"\x7f\xff\xff\xff" * 8, "zeros": bytes(16)}


@pytest.mark.parametrize("body", BATCHES.values(), ids=BATCHES.keys())
def test_a_batch_that_is_none(broker: EmbeddedBroker, kept: Acknowledged, body: bytes) -> None:
    with Peer(broker.address) as peer:
        answer = peer.call(RequestCode.SEND_BATCH_MESSAGE, send_header(kept.topic, batch=True), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and answer.remark
