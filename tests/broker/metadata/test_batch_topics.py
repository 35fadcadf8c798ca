"""Topics with `queue.type` BatchCQ at a broker: sends of batches and of single messages, pulls, numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.harness import NOW, Rig
from broker.pops import POP, pop_header
from broker.requests import SUBSCRIPTION, SUSPEND, properties, pull_header, send_header
from perseid.client.pulled import AnswerReader
from perseid.raft.config import RaftConfig
from perseid.store.batch_queue import BatchQueue
from perseid.wire import batch, inner
from perseid.wire.bodies import TopicConfig
from perseid.wire.command import Command
from perseid.wire.headers.clients import ConsumerSendMsgBackRequest
from perseid.wire.headers.query import QueryConsumeQueueRequest
from perseid.wire.inspection import QueryConsumeQueueResponseBody
from perseid.wire.record import Record, decode_all

SEND, BATCH, PULL, SEND_BACK, QUERY_QUEUE = 310, 320, 11, 36, 321
TOPIC = "B"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    kind = {"+queue.type": "BatchCQ"}
    rig.parts.topics.update(TopicConfig(topic_name=TOPIC, attributes=kind, read_queue_nums=2, write_queue_nums=2), NOW)
    return rig


def send_batch(rig: Rig, *bodies: bytes, own: str = "UNIQ_KEY\x01K\x02", **fields: Any) -> Command:
    items = [(0, body, properties(UNIQ_KEY=f"u{n}", TAGS="t").encode()) for n, body in enumerate(bodies)]
    header = send_header(**{"topic": TOPIC, "batch": True, "properties": own, **fields})
    return rig.ask(BATCH, header, batch.encode(items))


def send(rig: Rig, body: bytes = b"x", own: str = "UNIQ_KEY\x01K\x02", **fields: Any) -> Command:
    return rig.ask(SEND, send_header(**{"topic": TOPIC, "properties": own, **fields}), body)


def pull(rig: Rig, offset: int = 0, **fields: Any) -> Command:
    return rig.ask(PULL, pull_header(topic=TOPIC, queue_offset=offset, sys_flag=SUBSCRIPTION, **fields))


def messages(answer: Command) -> list[tuple[int, bytes]]:
    return [(one.queue_offset, one.body) for record in decode_all(answer.body) for one in inner.unwrap(record)]


def test_a_batch_is_one_record_with_an_offset_for_each_message(rig: Rig) -> None:
    answer = send_batch(rig, b"0", b"1", b"2")
    assert (answer.code, answer.ext["queueOffset"], answer.ext["batchUniqId"]) == (0, "0", "K")
    assert "," not in answer.ext["msgId"], "one id"
    assert send_batch(rig, b"3", b"4").ext["queueOffset"] == "3"
    found = pull(rig)
    assert (found.ext["nextBeginOffset"], found.ext["minOffset"], found.ext["maxOffset"]) == ("5", "0", "5")
    assert messages(found) == [(n, b"%d" % n) for n in range(5)]
    first = decode_all(found.body)[0]
    assert (first.sys_flag, first.props["INNER_NUM"], first.props["INNER_BASE"]) == (0xC0, "3", "0")
    assert first.props["CLUSTER"], "the batch's own properties are the record's"
    assert [one.tag for one in inner.unwrap(first)] == ["t"] * 3
    assert rig.parts.stats.put_messages.total == 5


def test_a_pull_in_the_middle_of_a_batch_brings_all_of_it(rig: Rig) -> None:
    send_batch(rig, b"0", b"1", b"2")
    assert messages(pull(rig, 2))[0] == (0, b"0"), "the original's broker cuts nothing either"
    assert [one.body for one in AnswerReader("b").messages(pull(rig, 2).body, 2)] == [b"2"], "our client does"


def test_messages_that_come_alone_stand_between_batches(rig: Rig) -> None:
    send_batch(rig, b"0", b"1")
    answer = send(rig, b"2", "UNIQ_KEY\x01K\x02TAGS\x01a\x02")
    assert (answer.code, answer.ext["queueOffset"], answer.ext.get("batchUniqId")) == (0, "2", None)
    for _ in range(3):
        send(rig, b"more")  # none of them goes the quick way
    record = decode_all(pull(rig, 2).body)[0]
    assert (record.body, record.sys_flag, record.props.get("INNER_NUM"), record.tag) == (b"2", 0, None, "a")
    assert messages(pull(rig)) == [(0, b"0"), (1, b"1"), (2, b"2"), *[(n, b"more") for n in (3, 4, 5)]]
    assert isinstance(rig.parts.store.queues.get(TOPIC, 0), BatchQueue)


def test_a_batch_without_a_key_is_split(rig: Rig) -> None:
    answer = send_batch(rig, b"0", b"1", own="")
    assert answer.code == 0 and "batchUniqId" not in answer.ext and answer.ext["msgId"].count(",") == 1
    assert [record.sys_flag for record in decode_all(pull(rig).body)] == [0, 0]
    assert messages(pull(rig)) == [(0, b"0"), (1, b"1")]
    assert isinstance(rig.parts.store.queues.get(TOPIC, 0), BatchQueue)


def test_a_batch_that_says_by_its_flag_what_it_is(rig: Rig) -> None:
    body = batch.encode([(0, b"0", b""), (0, b"1", b"")])
    answer = send(rig, body, properties(UNIQ_KEY="K", INNER_NUM=2), sys_flag=0xC0)
    assert (answer.code, answer.ext.get("batchUniqId")) == (0, None)
    assert messages(pull(rig)) == [(0, b"0"), (1, b"1")]


GOOD = batch.encode([(0, b"0", b""), (0, b"1", b"")])
BAD_BODIES = {
    "empty": b"",
    "no batch": b"hello",
    "cut off": GOOD[:-1],
    "more than it says": GOOD + b"\0",
    "a size below the least": GOOD[:3] + b"\x01" + GOOD[4:],
    "a delayed message": batch.encode([(0, b"0", b"DELAY\x013\x02")]),
    "a half": batch.encode([(0, b"0", b"TRAN_MSG\x01true\x02")]),
    "a batch in a batch": batch.encode([(0, b"0", b"INNER_NUM\x013\x02")]),
    "more than a unit holds": batch.encode([(0, b"", b"")] * 32_768),
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_batches_that_are_refused(rig: Rig, body: bytes) -> None:
    answer = rig.ask(BATCH, send_header(topic=TOPIC, batch=True, properties="UNIQ_KEY\x01K\x02"), body)
    assert answer.code == (13 if body else 1) and answer.remark
    assert rig.parts.store.log.end == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"sys_flag": 0x80, "own": properties(UNIQ_KEY="K", INNER_NUM=3)},
        {"sys_flag": 0x80, "own": properties(UNIQ_KEY="K", INNER_NUM=-1)},
        {"sys_flag": 0x80, "own": properties(UNIQ_KEY="K", INNER_NUM="x" * 900)},
        {"sys_flag": 0x81},
        {"sys_flag": 0x84},
        {"sys_flag": 0x80, "own": properties(UNIQ_KEY="K", DELAY=3)},
        {"own": properties(UNIQ_KEY="K", INNER_NUM=2)},
    ],
)
def test_flags_and_numbers_that_can_not_be(rig: Rig, fields: dict[str, Any]) -> None:
    assert send(rig, GOOD, **fields).code == 13
    assert rig.parts.store.log.end == 0


def test_the_largest_batch(rig: Rig) -> None:
    body = batch.encode([(0, b"", b"")] * 32_767)
    assert rig.ask(BATCH, send_header(topic=TOPIC, batch=True, properties="UNIQ_KEY\x01K\x02"), body).code == 0
    assert send(rig).ext["queueOffset"] == "32767"


def test_who_waits_hears_of_a_batch(rig: Rig) -> None:
    send_batch(rig, b"0", b"1")
    waiting = pull_header(topic=TOPIC, queue_offset=2, sys_flag=SUBSCRIPTION | SUSPEND)
    opaque = rig.tell(PULL, waiting)
    assert rig.answer(opaque) is None
    send_batch(rig, b"2", b"3")
    answer = rig.answer(opaque)
    assert answer is not None and messages(answer) == [(2, b"2"), (3, b"3")]


def test_a_delayed_message_stands_in_it_when_its_time_has_come(rig: Rig) -> None:
    assert send(rig, b"late", properties(UNIQ_KEY="K", DELAY=1)).code == 0
    assert pull(rig).code != 0
    rig.until(NOW + 3_000)
    assert messages(pull(rig)) == [(0, b"late")]


def test_messages_that_are_sent_back(rig: Rig) -> None:
    send(rig, b"alone")
    send_batch(rig, b"0", b"1")
    rig.parts.groups.find("g", rig.parts.settings.current, NOW)
    alone, many = (record.physical_offset for record in decode_all(pull(rig).body))
    back = {"group": "g", "delay_level": 1, "origin_msg_id": "x", "origin_topic": TOPIC}
    answer = rig.ask(SEND_BACK, ConsumerSendMsgBackRequest(offset=many, **back))
    assert (answer.code, answer.remark) == (1, "MESSAGE_ILLEGAL"), "the client sends what failed by itself"
    assert rig.ask(SEND_BACK, ConsumerSendMsgBackRequest(offset=alone, **back)).code == 0
    rig.until(NOW + 3_000)
    found: Record = decode_all(rig.parts.store.reads.record("%RETRY%g", 0, 0))[0]  # type: ignore[arg-type]
    assert found.body == b"alone" and not any(name.startswith("INNER") for name in found.props)


def test_pops_are_refused(rig: Rig) -> None:
    send_batch(rig, b"0", b"1")
    answer = rig.ask(POP, pop_header(rig, topic=TOPIC))
    assert answer.code == 1 and "BatchCQ" in (answer.remark or "")


def test_its_units_are_shown(rig: Rig) -> None:
    send_batch(rig, b"0", b"1", b"2")
    send(rig)
    answer = rig.ask(QUERY_QUEUE, QueryConsumeQueueRequest(topic=TOPIC, queue_id=0, index=1, count=10))
    body = QueryConsumeQueueResponseBody.from_json(answer.body)
    assert (body.min_queue_index, body.max_queue_index, len(body.queue_data or ())) == (0, 4, 2)
    answer = rig.ask(QUERY_QUEUE, QueryConsumeQueueRequest(topic=TOPIC, queue_id=0, index=4, count=10))
    assert "not exist" in (answer.remark or "")


def test_a_topic_that_is_made_again_is_of_its_new_kind(rig: Rig) -> None:
    send_batch(rig, b"0", b"1")
    assert rig.ask(215, {"topic": TOPIC}).code == 0
    assert rig.ask(SEND, send_header(topic=TOPIC), b"plain").ext["queueOffset"] == "0"
    assert not isinstance(rig.parts.store.queues.get(TOPIC, 0), BatchQueue)


def test_after_a_start_it_is_what_it_was(rig: Rig, tmp_path: Path) -> None:
    send_batch(rig, b"0", b"1")
    send(rig, b"2")
    rig.stop()
    again = Rig(tmp_path)
    assert TOPIC in again.parts.topics.batch_topics
    assert messages(pull(again)) == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert send_batch(again, b"3").ext["queueOffset"] == "3"


def test_in_a_raft_group(tmp_path: Path) -> None:
    raft = RaftConfig(group="C", self_id="n0", peers="n0-127.0.0.1:40911")
    rig = Rig(tmp_path, raft=raft)
    row = TopicConfig(topic_name=TOPIC, attributes={"+queue.type": "BatchCQ"}, read_queue_nums=1, write_queue_nums=1)
    rig.parts.topics.update(row, rig.now)
    assert send(rig, b"0").ext["queueOffset"] == "0"
    assert send_batch(rig, b"1", b"2", b"3").ext["queueOffset"] == "1"
    assert send_batch(rig, b"4", b"5", own="").ext["queueOffset"] == "4"
    assert send(rig, b"6").ext["queueOffset"] == "6"
    wanted = [(n, b"%d" % n) for n in range(7)]
    assert messages(pull(rig)) == wanted
    rig.stop()
    again = Rig(tmp_path, now=rig.now, raft=raft)
    assert messages(pull(again)) == wanted
    assert send_batch(again, b"7").ext["queueOffset"] == "7"
