"""Sends to and pulls from topics with BatchCQ that can't be: refused with a remark, and all others go on."""

from collections.abc import Iterator

import pytest

from perseid.client.blocking import BlockingAdmin
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire import batch
from perseid.wire.codes import RequestCode, ResponseCode

from .rig import Acknowledged, Peer, send_header

TOPIC = "batches"
GOOD = batch.encode([(0, b"a", b""), (0, b"b", b"")])


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        with Peer(running.address) as peer:
            made = {
                "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
                "topicFilterType": "SINGLE_TAG", "order": "false", "attributes": "+queue.type=BatchCQ",
            }  # fmt: skip
            assert peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, made).code == 0
        yield running


@pytest.fixture
def ends(broker: EmbeddedBroker, kept: Acknowledged) -> Iterator[None]:
    """The queue ends where it ended before."""
    before = end_of(broker)
    yield
    assert end_of(broker) == before


def end_of(broker: EmbeddedBroker) -> int:
    with Peer(broker.address) as peer:
        return int(peer.call(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}).ext["offset"])


BODIES = {
    "no batch": b"hello",
    "cut off": GOOD[:-1],
    "a size of nothing": bytes(64),
    "a size below itself": b"\0\0\0\x05" + GOOD[4:],
    "a negative size": b"\xff" * 64,
    "a huge size": b"\x7f\xff\xff\xff" + GOOD[4:],
    "behind the last one": GOOD + b"x",
}


@pytest.mark.usefixtures("ends")
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
@pytest.mark.parametrize("key", ["", "UNIQ_KEY\x01K\x02"])
def test_batches_that_can_not_be_read(broker: EmbeddedBroker, body: bytes, key: str) -> None:
    with Peer(broker.address) as peer:
        header = send_header(TOPIC, batch=True, properties=key)
        answer = peer.call(RequestCode.SEND_BATCH_MESSAGE, header, body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "batch" in (answer.remark or "")


@pytest.mark.usefixtures("ends")
def test_more_messages_than_a_unit_holds(broker: EmbeddedBroker) -> None:
    with Peer(broker.address) as peer:
        header = send_header(TOPIC, batch=True, properties="UNIQ_KEY\x01K\x02")
        answer = peer.call(RequestCode.SEND_BATCH_MESSAGE, header, batch.encode([(0, b"", b"")] * 32_768))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "32768" in (answer.remark or "")


@pytest.mark.usefixtures("ends")
@pytest.mark.parametrize(
    "number", ["0", "-2", "1", "3", "32768", "99999999999999999999", "x", "2.0", " 5"], ids=list("abcdefghi")
)
def test_numbers_that_a_client_says(broker: EmbeddedBroker, number: str) -> None:
    with Peer(broker.address) as peer:
        said = f"UNIQ_KEY\x01K\x02INNER_NUM\x01{number}\x02"
        for sys_flag in (0, 0x80, 0xC0):
            answer = peer.send_message(TOPIC, GOOD, properties=said, sys_flag=sys_flag)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL and answer.remark


def test_a_base_that_a_client_says_counts_for_nothing(broker: EmbeddedBroker, kept: Acknowledged) -> None:
    before = end_of(broker)
    with Peer(broker.address) as peer:
        for base in ("7", "-1", "99999999999999999999", "x"):
            said = f"UNIQ_KEY\x01K\x02INNER_BASE\x01{base}\x02"
            answer = peer.call(RequestCode.SEND_BATCH_MESSAGE, send_header(TOPIC, batch=True, properties=said), GOOD)
            assert (answer.code, answer.ext["queueOffset"]) == (0, str(before))
            assert peer.send_message(TOPIC, b"alone", properties=said).ext["queueOffset"] == str(before + 2)
            before += 3
    assert end_of(broker) == before


@pytest.mark.parametrize("offset", [-(2**63), -1, 2**31, 2**63 - 1], ids=["least", "minus one", "far", "most"])
def test_pulls_from_where_nothing_is(broker: EmbeddedBroker, kept: Acknowledged, offset: int) -> None:
    pull = {
        "consumerGroup": "g", "topic": TOPIC, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "1",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    with Peer(broker.address) as peer:
        assert peer.send_message(TOPIC, b"there is something").code == 0
        answer = peer.call(RequestCode.PULL_MESSAGE, pull)
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert int(answer.ext["nextBeginOffset"]) == (0 if offset < 0 else int(answer.ext["maxOffset"]))


def test_the_kind_of_a_topic_stays(broker: EmbeddedBroker, kept: Acknowledged) -> None:
    with Peer(broker.address) as peer, BlockingAdmin(broker.namesrv) as admin:
        changes = (TOPIC, "+queue.type=SimpleCQ"), (TOPIC, "-queue.type"), (kept.topic, "+queue.type=BatchCQ")
        for topic, change in changes:
            changed = {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
                "topicFilterType": "SINGLE_TAG", "order": "false", "attributes": change,
            }  # fmt: skip
            answer = peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, changed)
            assert answer.code == ResponseCode.SYSTEM_ERROR and "queue.type" in (answer.remark or "")
        assert TOPIC in admin.topic_list()
