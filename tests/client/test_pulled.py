"""Answers to pulls as messages: the core and plain Python give the same, and refuse the same."""

from __future__ import annotations

import pickle
from pathlib import Path
from random import Random
from typing import Any

import pytest

from perseid import core
from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.client.pulled import AnswerReader
from perseid.testing.cores import core_from
from perseid.wire import batch, compression, inner
from perseid.wire.host import host_from
from perseid.wire.record import Message, RecordError, encode, patch

WAYS = {"plain": None, "source": core_from(Path(core.__file__).parent).messages} | (
    {"core": core.installed.messages} if core.is_compiled else {}
)
RAW = (
    b"", b"TAGS\x01a\x02", b"KEYS\x01k1 k2\x02TAGS\x01b\x02UNIQ_KEY\x01ID7\x02", b"x\x01\x02\x01y\x02z\x02",
    b"a\x01b\x01c\x02KEYS\x01\xc3\xa4\x02", b"TAGS\x01one\x02TAGS\x01two\x02", b"n\x01\xff\xfe\x02TAGS\x01a\x02",
    b"TAGS\x01last has no end", b"RETRY_TOPIC\x01first\x02UNIQ_KEY\x01q\x02", b"INNER_NUM\x012\x02", b"\x01v\x02\x02",
)  # fmt: skip
TOPICS = ("t", "%RETRY%g", "消息", "t" * 200)
BATCH = batch.encode([(1, b"a", b"TAGS\x01x\x02"), (2, b"b", b"")])


def record(offset: int, raw: bytes = b"", body: bytes = b"body", topic: str = "t", **more: Any) -> bytes:
    made = {"queue_id": 3, "born_timestamp": 1_700_000_000_000, "flag": -7, "born_host": host_from("10.0.0.1:99"),
            "store_host": host_from("10.0.0.2:10911"), "reconsume_times": 2, **more}  # fmt: skip
    found = encode(Message(topic=topic, body=body, properties=raw, **made))
    patch(found, offset, 1000 * offset + 7, 1_700_000_001_234)
    return bytes(found)


def drawn(random: Random, count: int) -> bytes:
    """Messages of all kinds, one after the other."""
    found = []
    for offset in range(100, 100 + count):
        more: dict[str, Any] = {"topic": random.choice(TOPICS), "queue_id": random.choice((0, 3, -1))}
        body = random.randbytes(random.randrange(60))
        if random.random() < 0.2:
            more["sys_flag"] = compression.flag_of(compression.ZLIB)
            body = compression.compress(body * 10)
        elif random.random() < 0.1:
            more["sys_flag"], body = inner.WRAPPED, random.choice((BATCH, body))
        for host in ("born_host", "store_host"):
            if random.random() < 0.2:
                more[host] = host_from("[2001:db8::1]:10911")
        found.append(record(offset, random.choice(RAW), body, **more))
    return b"".join(found)


def facts(message: ReceivedMessage) -> tuple[Any, ...]:
    """All that a message tells; its record last, so that the parts are read without it."""
    return (
        message.queue, message.queue_offset, message.topic, message.reconsume_times, message.record_bytes,
        message.body, message.properties, list(message.properties), message.tag, message.keys, message.msg_id,
        message.offset_msg_id, message.flag, message.born_timestamp, message.store_timestamp, repr(message),
        message.physical_offset, message.record.props, message.record,
    )  # fmt: skip


def read(way: str, body: bytes, start: int = 0) -> list[tuple[Any, ...]] | str:
    try:
        return [facts(one) for one in AnswerReader("b", WAYS[way]).messages(memoryview(body), start)]
    except RecordError as error:
        return str(error)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "plain"])
@pytest.mark.parametrize("seed", range(5))
def test_both_ways_give_the_same(way: str, seed: int) -> None:
    body = drawn(Random(seed), 60)
    found = read(way, body)
    assert found == read("plain", body) and len(found) >= 60
    assert read(way, body, 130) == read("plain", body, 130)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "plain"])
def test_both_ways_refuse_the_same(way: str) -> None:
    random = Random(7)
    for _ in range(300):
        body = bytearray(drawn(random, 3))
        for _ in range(random.choice((1, 1, 4))):
            body[random.randrange(len(body))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        cut = bytes(body[: random.choice((len(body), random.randrange(len(body))))])
        assert read(way, cut) == read("plain", cut)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_record_is_refused_with_its_place(way: str) -> None:
    good = record(5)
    bad = bytearray(good)
    bad[-6] ^= 1  # in the body
    with pytest.raises(
        RecordError, match=f"^b: message 1 of a pull's answer, at byte {len(good)} of {2 * len(good)}: .*checksum"
    ):
        AnswerReader("b", WAYS[way]).messages(good + bytes(bad), 0)


@pytest.mark.parametrize("way", WAYS)
def test_a_pull_in_the_middle_of_a_batch_leaves_out_what_stands_before(way: str) -> None:
    body = record(7, b"INNER_NUM\x012\x02", BATCH, sys_flag=inner.WRAPPED) + record(9, b"", b"c")
    found = AnswerReader("b", WAYS[way]).messages(body, 8)
    assert [(one.queue_offset, one.body) for one in found] == [(8, b"b"), (9, b"c")]


@pytest.mark.parametrize("way", WAYS)
def test_a_message_is_its_own_after_the_answer_is_gone(way: str) -> None:
    answer = bytearray(record(5, RAW[2]) + record(6))
    first, second = AnswerReader("b", WAYS[way]).messages(answer, 0)
    answer[:] = bytes(len(answer))
    assert (first.body, first.tag, second.queue) == (b"body", "b", MessageQueue("t", "b", 3))
    copy = pickle.loads(pickle.dumps(first))
    assert facts(copy) == facts(first)


@pytest.mark.parametrize("way", WAYS)
def test_a_logical_queue_takes_the_place_of_the_brokers_own(way: str) -> None:
    (message,) = AnswerReader("b", WAYS[way]).messages(record(5), 0)
    message.put_into(MessageQueue("t", "logical", 0), 100)
    assert (message.queue.broker_name, message.queue_offset, message.record.queue_offset) == ("logical", 105, 5)
