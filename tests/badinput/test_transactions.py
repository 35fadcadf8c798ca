"""Halves, words and expressions that no broker may take: each is refused, and what is open stays open."""

import json
import time
from collections.abc import Iterator

import pytest

from perseid.broker.config import BrokerConfig
from perseid.broker.consume.sql92 import MAX_CHARS, MAX_DEPTH, MAX_LINKS, MAX_TERMS, TEXT_OF_TERM
from perseid.client.blocking import BlockingAdmin
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.send import SendMessageResponse
from perseid.wire.ids import offset_message_id
from perseid.wire.record import Host

from .rig import Acknowledged, Peer

MISSING = None
HUGE, TOO_MUCH = str(2**63 - 1), str(2**63)
HALVES = "RMQ_SYS_TRANS_HALF_TOPIC"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Filters by properties; asks nobody while the tests run."""
    config = BrokerConfig(broker_name="b", transaction_time_out=3_600_000, enable_property_filter=True)
    with EmbeddedBroker(broker=config) as running:
        yield running


def begin(peer: Peer, topic: str, more: str = "", body: bytes = b"half") -> Command:
    born = time.time_ns() // 1_000_000
    properties = f"UNIQ_KEY\x01ID\x02TRAN_MSG\x01true\x02PGROUP\x01g\x02{more}"
    return peer.send_message(topic, body, born_timestamp=born, properties=properties)


def word(half: Command, **changed: str | None) -> dict[str, str]:
    """END_TRANSACTION, but for what is changed or (None) missing."""
    said = half.header(SendMessageResponse)
    fields = {
        "producerGroup": "g", "tranStateTableOffset": str(said.queue_offset), "commitOrRollback": "8",
        "commitLogOffset": str(int(said.msg_id[-16:], 16)), "msgId": "ID", "topic": "t", "transactionId": "ID",
        **changed,
    }  # fmt: skip
    return {key: value for key, value in fields.items() if value is not MISSING}


def halves(broker: EmbeddedBroker) -> int:
    with Peer(broker.address) as peer:
        return int(peer.call(RequestCode.GET_MAX_OFFSET, {"topic": HALVES, "queueId": "0"}).ext["offset"])


NUMBERS = (MISSING, "", "x", "1.5", "-1", HUGE, TOO_MUCH)
WORDS = [
    *[("producerGroup", value) for value in (MISSING, "", "other", "g" * 100_000)],
    *[("tranStateTableOffset", value) for value in NUMBERS],
    *[("commitLogOffset", value) for value in NUMBERS],
    *[("commitOrRollback", value) for value in (MISSING, "", "x", TOO_MUCH, str(2**31))],
    ("msgId", MISSING),
]


@pytest.mark.parametrize(("field", "value"), WORDS)
def test_a_word_that_is_spoilt(broker: EmbeddedBroker, kept: Acknowledged, field: str, value: str | None) -> None:
    with Peer(broker.address) as peer:
        half = begin(peer, kept.topic)
        answer = peer.call(RequestCode.END_TRANSACTION, word(half, **{field: value}))
        assert answer.code == ResponseCode.SYSTEM_ERROR and answer.remark
        assert peer.call(RequestCode.END_TRANSACTION, word(half, commitOrRollback="12")).code == 0, "it is still open"


@pytest.mark.parametrize("value", ["-2", "0", "1", "4", "7", "9", "13", str(2**31 - 1)])
def test_a_word_that_says_neither(broker: EmbeddedBroker, kept: Acknowledged, value: str) -> None:
    with Peer(broker.address) as peer:
        half = begin(peer, kept.topic)
        assert peer.call(RequestCode.END_TRANSACTION, word(half, commitOrRollback=value)).code == 0
        assert peer.call(RequestCode.END_TRANSACTION, word(half, commitOrRollback="12")).code == 0, "it is still open"
        assert peer.call(RequestCode.END_TRANSACTION, word(half)).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("more", [0, 1, 60, 1 << 20])
def test_a_half_without_room_for_its_topic(broker: EmbeddedBroker, kept: Acknowledged, more: int) -> None:
    before = halves(broker)
    with Peer(broker.address) as peer:
        answer = begin(peer, kept.topic, "k\x01" + "v" * (32_767 - 60 + more) + "\x02")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL and "properties" in (answer.remark or "")
    assert halves(broker) == before


@pytest.mark.parametrize("seconds", ["", "x", "-1", "1e9", HUGE + "0"])
def test_a_half_with_an_odd_immunity(broker: EmbeddedBroker, kept: Acknowledged, seconds: str) -> None:
    with Peer(broker.address) as peer:
        half = begin(peer, kept.topic, f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{seconds}\x02")
        assert half.code == 0, "it is not a number: there is none"
        assert peer.call(RequestCode.END_TRANSACTION, word(half, commitOrRollback="12")).code == 0


@pytest.mark.parametrize("topic", [HALVES, "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"])
def test_the_topics_of_transactions_are_the_brokers(broker: EmbeddedBroker, topic: str) -> None:
    before = halves(broker)
    with Peer(broker.address) as peer:
        for half in (peer.send_message(topic, b"x"), begin(peer, topic)):
            assert half.code == ResponseCode.NO_PERMISSION and topic in (half.remark or "")
    assert halves(broker) == before


def test_without_permission(broker: EmbeddedBroker, kept: Acknowledged) -> None:
    before = halves(broker)
    settings = b"rejectTransactionMessage=%s\n"
    with Peer(broker.address) as peer:
        try:
            assert peer.call(RequestCode.UPDATE_BROKER_CONFIG, None, settings % b"true").code == 0
            answer = begin(peer, kept.topic)
            assert answer.code == ResponseCode.NO_PERMISSION and "transaction" in (answer.remark or "")
        finally:
            assert peer.call(RequestCode.UPDATE_BROKER_CONFIG, None, settings % b"false").code == 0
    assert halves(broker) == before


IDS = {
    "missing": MISSING, "empty": "", "letters": "z" * 32, "short": "0" * 31, "long": "0" * 100_000,
    "of nothing": offset_message_id(Host(b"\x7f\0\0\1", 1), 1 << 40), "negative": "7F000001" + "0" * 8 + "F" * 16,
    "in the middle": offset_message_id(Host(b"\x7f\0\0\1", 1), 7),
}  # fmt: skip


@pytest.mark.parametrize("msg_id", IDS.values(), ids=IDS.keys())
def test_a_half_that_can_not_be_resumed(broker: EmbeddedBroker, kept: Acknowledged, msg_id: str | None) -> None:
    before = halves(broker)
    with Peer(broker.address) as peer:
        header = {"topic": kept.topic} | ({} if msg_id is MISSING else {"msgId": msg_id})
        answer = peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        assert answer.code == ResponseCode.SYSTEM_ERROR and "Put message back" in (answer.remark or "")
    assert halves(broker) == before


def test_a_plain_message_and_an_open_half_can_not_be_resumed(broker: EmbeddedBroker, kept: Acknowledged) -> None:
    with Peer(broker.address) as peer:
        for sent in (peer.send_message("plain", b"x"), begin(peer, kept.topic)):
            before = halves(broker)
            msg_id = sent.header(SendMessageResponse).msg_id
            answer = peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": msg_id})
            assert answer.code == ResponseCode.SYSTEM_ERROR and halves(broker) == before


EXPRESSIONS = {
    "empty": "", "blank": "  ", "nothing behind": "a >", "a value": "5", "a text": "'a'",
    "an open text": "a = 'b", "an open bracket": "(a > 5", "a stray sign": "a > 5 ; b", "an umlaut": "ä > 5",
    "a zero byte": "a\0 > 5", "an open comment": "a > 5 /* b", "a number over a long": "a > 9223372036854775808",
    "a chain": "a = " * (MAX_LINKS + 2) + "a",
    "too deep": "(" * (MAX_DEPTH + 1) + "a > 5" + ")" * (MAX_DEPTH + 1), "nots": "NOT " * 10_000 + "a",
    "too long": "a > 5 OR " * (MAX_CHARS // 9 + 1) + "a > 5",
    "too many values": " OR ".join(["a>5"] * (MAX_TERMS // 2 + 1)),
    "a text that is too long": f"a CONTAINS '{'x' * TEXT_OF_TERM * MAX_TERMS}'",
    "a number of 5,000 digits": "a > " + "1" * 5_000,
}  # fmt: skip


@pytest.mark.parametrize("text", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_an_expression_that_can_not_be_read(broker: EmbeddedBroker, kept: Acknowledged, text: str) -> None:
    header = {
        "consumerGroup": "c", "topic": kept.topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": text, "subVersion": "1",
        "expressionType": "SQL92",
    }  # fmt: skip
    wanted = {"topic": kept.topic, "subString": text, "expressionType": "SQL92", "tagsSet": [], "codeSet": []}
    body = json.dumps({"clientId": "c", "group": "c", "subscriptionData": wanted}).encode()
    with Peer(broker.address) as peer:
        pulled = peer.call(RequestCode.PULL_MESSAGE, header)
        for answer in (pulled, peer.call(RequestCode.CHECK_CLIENT_CONFIG, None, body)):
            assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED and len(answer.remark or "") < 2_000


MANY = "9" * 5_000
NUMBERS = {"long": MANY, "zeros": "-" + "0" * 30_000 + "7", "hex": f"0x1p{MANY}", "exp": f"1e{MANY}"}


@pytest.mark.parametrize("value", NUMBERS.values(), ids=NUMBERS.keys())
def test_a_property_that_is_a_very_long_number(broker: EmbeddedBroker, kept: Acknowledged, value: str) -> None:
    """Its message is not wanted, or is; the broker lives, whichever way the pull goes."""
    with Peer(broker.address) as peer:
        text = f"UNIQ_KEY\x01ID{value[:6]}\x02a\x01{value}\x02"
        assert peer.send_message(kept.topic, b"%d " % len(kept.bodies), properties=text).code == 0
        kept.bodies.append(b"%d " % len(kept.bodies))
        for expression in ("a > 5", "a > 5.5", "a < b", "a = 7", "a NOT BETWEEN 1 AND 8"):
            header = {
                "consumerGroup": "c", "topic": kept.topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
                "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": expression,
                "subVersion": "1", "expressionType": "SQL92",
            }  # fmt: skip
            codes = {peer.call(RequestCode.PULL_MESSAGE, header).code for _ in range(3)}
            assert codes <= {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY} and len(codes) == 1


@pytest.mark.parametrize("kind", ["sql92", "SQL", "JAVA", "x" * 10_000])
def test_a_kind_of_filter_that_there_is_not(broker: EmbeddedBroker, kept: Acknowledged, kind: str) -> None:
    header = {
        "consumerGroup": "c", "topic": kept.topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "a > 5", "subVersion": "1",
        "expressionType": kind,
    }  # fmt: skip
    with Peer(broker.address) as peer:
        assert peer.call(RequestCode.PULL_MESSAGE, header).code == ResponseCode.SYSTEM_ERROR


def test_what_was_refused_is_not_in_the_topic_list(broker: EmbeddedBroker) -> None:
    with BlockingAdmin(broker.namesrv) as admin:
        assert not [topic for topic in admin.topic_list() if topic.startswith("TRANS_CHECK")]
