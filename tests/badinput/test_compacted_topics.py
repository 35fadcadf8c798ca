"""Sends to and pulls from compacted topics that can't be: refused with a remark, and all others go on."""

from collections.abc import Iterator

import pytest

from perseid.testing.embedded import EmbeddedBroker
from perseid.wire import batch
from perseid.wire.codes import RequestCode, ResponseCode

from .rig import Acknowledged, Peer, send_header

TOPIC = "compacted"
KEYS = {
    "none": "",
    "empty": "KEYS\x01\x02",
    "blank": "KEYS\x01 \t\x02",
    "another's": "XKEYS\x01k\x02",
    "cut off": "KEYS",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        with Peer(running.address) as peer:
            made = {
                "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
                "topicFilterType": "SINGLE_TAG", "order": "false", "attributes": "+cleanup.policy=COMPACTION",
            }  # fmt: skip
            assert peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, made).code == 0
        yield running


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS.keys())
def test_keys_that_are_none(broker: EmbeddedBroker, kept: Acknowledged, keys: str) -> None:
    where = {"topic": TOPIC, "queueId": "0"}
    with Peer(broker.address) as peer:
        before = peer.call(RequestCode.GET_MAX_OFFSET, where).ext["offset"]
        for properties in (f"UNIQ_KEY\x01K\x02{keys}", f"UNIQ_KEY\x01K\x02TRAN_MSG\x01true\x02{keys}"):
            answer = peer.send_message(TOPIC, b"x", properties=properties)
            assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        body = batch.encode([(0, b"x", b"KEYS\x01k\x02"), (0, b"y", keys.encode())])
        answer = peer.call(RequestCode.SEND_BATCH_MESSAGE, send_header(TOPIC, batch=True), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert peer.call(RequestCode.GET_MAX_OFFSET, where).ext["offset"] == before


@pytest.mark.parametrize("offset", [2**31, 2**63 - 1])
def test_pulls_from_where_nothing_is(broker: EmbeddedBroker, kept: Acknowledged, offset: int) -> None:
    pull = {
        "consumerGroup": "g", "topic": TOPIC, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "1",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    with Peer(broker.address) as peer:
        assert peer.send_message(TOPIC, b"x", properties="UNIQ_KEY\x01K\x02KEYS\x01k\x02").code == 0
        answer = peer.call(RequestCode.PULL_MESSAGE, pull)
        assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
