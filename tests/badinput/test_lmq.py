"""Messages for light queues that can't be: refused with a remark, without a trace, and all others go on."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from perseid.testing.embedded import SMALL_STORE, EmbeddedBroker
from perseid.wire import batch
from perseid.wire.codes import RequestCode, ResponseCode

from .rig import Acknowledged, Peer, send_header

STORE = replace(
    SMALL_STORE, enable_lmq=True, enable_multi_dispatch=True, enable_lmq_quota=True, max_lmq_consume_queue_num=2
)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(store=STORE) as running:
        yield running


NAMES = {
    "another prefix": "LMQ%a",
    "empty among others": "%LMQ%a,,%LMQ%b",
    "parent folder": "%LMQ%../../../etc/passwd",
    "slash": "%LMQ%a/b",
    "zero byte": "%LMQ%a\0b",
    "long": "%LMQ%" + "x" * 1_000,
    "umlauts that are too long": "%LMQ%" + "ü" * 126,
    "twice": "%LMQ%a,%LMQ%a",
    "more than fit": ",".join(f"%LMQ%{n}" for n in range(1_400)),
}


def said(names: str, offsets: str = "") -> str:
    more = f"INNER_MULTI_QUEUE_OFFSET\x01{offsets}\x02" if offsets else ""
    return f"UNIQ_KEY\x01U\x02INNER_MULTI_DISPATCH\x01{names}\x02{more}"


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES.keys())
def test_names_that_can_not_be(broker: EmbeddedBroker, kept: Acknowledged, names: str) -> None:
    with Peer(broker.address) as peer:
        answer = peer.send_message(kept.topic, b"x", properties=said(names))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "INNER_MULTI_DISPATCH" in (answer.remark or "")


@pytest.mark.parametrize("offsets", ["-1", "99999999999999999999", "0,0,0", "x", "\0"])
def test_offsets_that_a_client_says_count_for_nothing(broker: EmbeddedBroker, offsets: str) -> None:
    with Peer(broker.address) as peer:
        where = {"topic": "%LMQ%said", "queueId": "0"}
        before = int(peer.call(RequestCode.GET_MAX_OFFSET, where).ext["offset"])
        assert peer.send_message("lmq-said", b"x", properties=said("%LMQ%said", offsets)).code == 0
        assert int(peer.call(RequestCode.GET_MAX_OFFSET, where).ext["offset"]) == before + 1


def test_more_queues_than_the_quota(broker: EmbeddedBroker, kept: Acknowledged) -> None:
    with Peer(broker.address) as peer:
        answer = peer.send_message(kept.topic, b"x", properties=said("%LMQ%1,%LMQ%2,%LMQ%3"))
        assert answer.code == ResponseCode.LMQ_QUOTA_EXCEEDED and "maxLmqConsumeQueueNum" in (answer.remark or "")


def test_a_batch(broker: EmbeddedBroker, kept: Acknowledged) -> None:
    body = batch.encode([(0, b"x", said("%LMQ%a").encode())])
    with Peer(broker.address) as peer:
        answer = peer.call(RequestCode.SEND_BATCH_MESSAGE, send_header(kept.topic, batch=True), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "light queues" in (answer.remark or "")


@pytest.mark.parametrize("queue_id", [-1, 1, 2**31 - 1])
def test_another_queue_than_its_only_one(broker: EmbeddedBroker, queue_id: int) -> None:
    pull = {
        "consumerGroup": "%LMQ%g", "topic": "%LMQ%a", "queueId": str(queue_id), "queueOffset": "0", "maxMsgNums": "1",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    with Peer(broker.address) as peer:
        assert peer.call(RequestCode.PULL_MESSAGE, pull).code == ResponseCode.INVALID_PARAMETER
