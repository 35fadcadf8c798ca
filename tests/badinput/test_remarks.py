"""Refusals quote little of what was sent: 1 KiB of a remark at most, whoever refuses and whatever it quotes."""

from collections.abc import Iterator

import pytest

from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.codes import RequestCode as Code
from perseid.wire.command import MAX_REMARK_BYTES

from .rig import Peer

LONG = 100 * 1024
PULL = {
    "consumerGroup": "c", "topic": "TBW102", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "1", "expressionType": "TAG",
}  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def requests(name: str) -> dict[str, tuple[str, int, dict[str, str]]]:
    """What each is asked of, its code and its fields: each names what is far too long."""
    create = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    return {
        "a route": ("namesrv", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": name}),
        "a setting": ("namesrv", Code.GET_KV_CONFIG, {"namespace": name, "key": name}),
        "a topic": ("broker", Code.UPDATE_AND_CREATE_TOPIC, create),
        "a pull": ("broker", Code.PULL_MESSAGE, {**PULL, "topic": name}),
        "a group": ("broker", Code.PULL_MESSAGE, {**PULL, "consumerGroup": name}),
        "an expression": ("broker", Code.PULL_MESSAGE, {**PULL, "expressionType": name}),
        "tags": ("broker", Code.PULL_MESSAGE, {**PULL, "subscription": "|" * len(name)}),
        "members": ("broker", Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": name}),
        "a number": ("broker", Code.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": name}),
        "a message": ("broker", Code.VIEW_MESSAGE_BY_ID, {"offset": name}),
    }


@pytest.mark.parametrize("what", requests(""))
@pytest.mark.parametrize("char", ["x", "\u4e2d", "\U0001f600"])
def test_a_remark_quotes_little(broker: EmbeddedBroker, what: str, char: str) -> None:
    at, code, fields = requests(char * (LONG // len(char.encode())))[what]
    with Peer(broker.namesrv if at == "namesrv" else broker.address) as peer:
        answer = peer.call(code, fields)
        assert answer.code != 0 and answer.remark
        assert len(answer.remark.encode()) <= MAX_REMARK_BYTES + len("\u2026".encode())
