"""Light message queues at a broker: sends, pulls, pops, offsets and numbers; topics and groups that are in no list."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.harness import NOW, SMALL, Rig
from broker.pops import ACK, INVISIBLE_MS, POP, pop_header
from broker.requests import SUBSCRIPTION, SUSPEND, properties, pull_header, send_header
from perseid.base.machine import Frames
from perseid.broker.consume.offsets import LMQ_OFFSETS_PATH, OFFSETS_PATH, ConsumerOffsets, with_light
from perseid.wire import batch, fastjson
from perseid.wire.command import Command, encode_request
from perseid.wire.headers.pop import AckMessageRequest, PopMessageResponse
from perseid.wire.pop import Handle, parse_info
from perseid.wire.record import decode_all

ON = replace(SMALL, enable_lmq=True, enable_multi_dispatch=True)
A, B, GROUP = "%LMQ%a", "%LMQ%b", "%LMQ%GID_g"
SEND, BATCH, PULL = 310, 320, 11


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, store=ON)


def send(rig: Rig, names: str, body: bytes = b"body", **more: Any) -> Command:
    fields = {key: more.pop(key) for key in ("topic", "queue_id", "sys_flag") if key in more}
    said = properties(UNIQ_KEY="U", INNER_MULTI_DISPATCH=names, **more)
    return rig.ask(SEND, send_header(properties=said, **fields), body)


def pull(rig: Rig, topic: str = A, offset: int = 0, group: str = GROUP, **more: Any) -> Command:
    fields = {"sys_flag": SUBSCRIPTION} | more
    return rig.ask(PULL, pull_header(topic=topic, consumer_group=group, queue_offset=offset, **fields))


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in decode_all(answer.body)]


def test_sends_are_pulled_from_their_light_queues(rig: Rig) -> None:
    for n, names in enumerate((A, B, f"{A},{B}")):
        answer = send(rig, names, b"%d" % n, queue_id=n)
        assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, str(n), "0"), "those of its topic"
    found = pull(rig)
    assert (found.code, bodies(found)) == (0, [b"0", b"2"])
    assert (found.ext["nextBeginOffset"], found.ext["minOffset"], found.ext["maxOffset"]) == ("2", "0", "2")
    last = decode_all(found.body)[-1]
    assert (last.topic, last.queue_id, last.queue_offset) == ("T", 2, 0), "as it stands in the log"
    assert last.props["INNER_MULTI_QUEUE_OFFSET"] == "1,1"
    assert bodies(pull(rig, B)) == [b"1", b"2"]
    assert bodies(pull(rig, "T", queue_id=2)) == [b"2"], "a group of light queues reads any topic"
    assert rig.ask(PULL, pull_header(topic=A, queue_id=1)).code == 29, "a light queue is queue 0"


def test_tags_count_there_too(rig: Rig) -> None:
    for tag in "xyx":
        send(rig, A, tag.encode(), TAGS=tag)
    assert bodies(pull(rig, subscription="x")) == [b"x", b"x"]


def test_a_pull_waits_for_its_light_queue(rig: Rig) -> None:
    waiting = pull_header(topic=A, consumer_group=GROUP, sys_flag=SUBSCRIPTION | SUSPEND)
    rig.connect(2)
    rig.handle(Frames(2, encode_request(PULL, 7, waiting, b"")))
    send(rig, B)
    assert rig.sent.get(2) is None
    send(rig, A, b"it")
    (answer,) = rig.sent[2]
    assert bodies(answer) == [b"it"]


@pytest.mark.parametrize("names", ["plain", f"{A},{A}", "%LMQ%a/b", f"{A},,{B}", "%LMQ%" + "x" * 300])
def test_names_that_can_not_be(rig: Rig, names: str) -> None:
    answer = send(rig, names)
    assert answer.code == 13 and "INNER_MULTI_DISPATCH" in (answer.remark or "")
    assert list(rig.parts.store.queues.table) == [] and rig.parts.store.log.end == 0


def test_a_batch_stands_in_none(rig: Rig) -> None:
    items = [batch.BatchItem(flag=0, body=b"1", properties=properties(INNER_MULTI_DISPATCH=A).encode())]
    answer = rig.ask(BATCH, send_header(batch=True), batch.encode(items))
    assert answer.code == 13 and "light queues" in (answer.remark or "")
    assert rig.parts.store.log.end == 0


def test_one_more_than_the_quota(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store=replace(ON, enable_lmq_quota=True, max_lmq_consume_queue_num=2))
    assert send(rig, f"{A},{B}").code == 0
    refused = send(rig, f"{A},%LMQ%c")
    assert refused.code == 2017 and "LMQ_CONSUME_QUEUE_NUM_EXCEEDED" in (refused.remark or "")
    assert send(rig, f"{B},{A}").code == 0, "those that there are go on"
    assert rig.parts.store.reads.max_offset(A, 0) == rig.parts.store.reads.max_offset(B, 0) == 2


def test_off_they_are_names_like_any_other(tmp_path: Path) -> None:
    rig = Rig(tmp_path, auto_create_subscription_group=True)
    assert send(rig, "whatever").code == 0
    assert send(rig, A).code == 0 and rig.parts.store.reads.max_offset(A, 0) == 0
    assert pull(rig).code == 17 and rig.parts.topics.get(A) is None
    assert GROUP in rig.parts.groups.rows, "made on first use, as any"


def test_a_delayed_one_stands_there_when_it_is_delivered(rig: Rig) -> None:
    assert send(rig, A, b"late", DELAY="1").code == 0
    assert rig.parts.store.reads.max_offset(A, 0) == 0
    send(rig, A, b"soon")
    rig.until(NOW + 3_000)
    assert bodies(pull(rig)) == [b"soon", b"late"]


def test_a_half_stands_there_when_it_is_committed(rig: Rig) -> None:
    answer = send(rig, A, b"half", TRAN_MSG="true", PGROUP="p", sys_flag=4)
    assert answer.code == 0 and rig.parts.store.reads.max_offset(A, 0) == 0
    at = int(answer.ext["msgId"][-16:], 16)
    end = {
        "producerGroup": "p", "tranStateTableOffset": answer.ext["queueOffset"], "commitLogOffset": str(at),
        "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "U", "transactionId": "U",
    }  # fmt: skip
    assert rig.ask(37, end).code == 0
    (record,) = decode_all(pull(rig).body)
    assert (record.body, record.topic, record.props["INNER_MULTI_QUEUE_OFFSET"]) == (b"half", "T", "0")


def test_pops_name_offsets_of_the_light_queue(rig: Rig) -> None:
    """A client makes the handle of a message by what the record says of its light queues."""
    for n, (names, tag) in enumerate([(B, "x"), (A, "x"), (A, "y"), (f"{B},{A}", "x")]):
        send(rig, names, b"%d" % n, TAGS=tag)
    header = pop_header(rig, topic=A, consumer_group=GROUP, queue_id=0, exp="x")
    answer = rig.ask(POP, header)
    assert bodies(answer) == [b"1", b"3"]
    info = answer.header(PopMessageResponse)
    assert parse_info(info.msg_offset_info) == {("0", "0"): "0,2"}
    assert parse_info(info.start_offset_info) == {("0", "0"): "0"}
    said = [record.props["INNER_MULTI_QUEUE_OFFSET"] for record in decode_all(answer.body)]
    assert said == ["0", "1,2"]
    broker, queue = rig.parts.settings.current.broker_name, info.revive_qid
    handle = Handle(0, info.pop_time, info.invisible_time, queue, "0", broker, 0, 0)
    acked = AckMessageRequest(consumer_group=GROUP, topic=A, queue_id=0, extra_info=str(handle), offset=0)
    assert rig.ask(ACK, acked).code == 0
    rig.until(rig.now + INVISIBLE_MS + 10_000)
    again = rig.ask(POP, pop_header(rig, topic=A, consumer_group=GROUP, queue_id=-1, exp="x"))
    (record,) = decode_all(again.body)
    assert (record.body, record.topic, record.reconsume_times) == (b"3", A, 1), "what was not acknowledged"
    assert "INNER_MULTI_QUEUE_OFFSET" not in record.props, "it stands in the retry topic alone"
    assert rig.parts.store.reads.max_offset(A, 0) == 3


# ---- topics and groups that are in no list ----


def test_each_name_is_a_topic_of_one_queue(rig: Rig) -> None:
    row = rig.parts.topics.get(A)
    assert row is not None and (row.read_queue_nums, row.write_queue_nums, row.perm) == (1, 1, 6)
    assert A in rig.parts.topics and A not in rig.parts.topics.rows
    changed = {
        "topic": A, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "2",
        "topicFilterType": "SINGLE_TAG", "order": "false",
    }  # fmt: skip
    assert rig.ask(17, changed).code == 0 and rig.parts.topics.get(A) == row
    send(rig, A)
    assert rig.ask(30, {"topic": A, "queueId": "0"}).ext["offset"] == "1"
    assert rig.ask(31, {"topic": A, "queueId": "0"}).ext["offset"] == "0"
    assert rig.ask(29, {"topic": A, "queueId": "0", "timestamp": str(NOW)}).ext["offset"] == "0"
    assert b'"maxOffset":1' in bytes(rig.ask(202, {"topic": A}).body)
    assert b'"queueId":0' in bytes(rig.ask(202, {"topic": A}).body)


def test_each_name_is_a_group(rig: Rig) -> None:
    version = rig.parts.groups.version.counter
    group = rig.parts.groups.find(GROUP, rig.parts.settings.current, NOW)
    assert group is not None and group.group_name == GROUP
    assert rig.ask(200, None, json.dumps({"groupName": GROUP, "consumeEnable": False}).encode()).code == 0
    assert rig.parts.groups.get(GROUP) == group and GROUP not in rig.parts.groups.rows
    assert rig.parts.groups.version.counter == version


def test_what_is_deleted_begins_anew(rig: Rig) -> None:
    send(rig, A)
    rig.parts.offsets.commit(A, GROUP, 0, 1, NOW, 1)
    assert rig.ask(215, {"topic": A}).code == 0
    assert (rig.parts.store.reads.max_offset(A, 0), rig.parts.offsets.query(A, GROUP, 0)) == (0, None)
    send(rig, A, b"new")
    assert bodies(pull(rig)) == [b"new"]
    assert rig.parts.store.reads.max_offset("T", 0) == 2


def test_a_message_may_be_sent_to_a_light_queue_itself(rig: Rig) -> None:
    send(rig, A, b"1")
    assert rig.ask(SEND, send_header(topic=A, queue_id=0, properties=properties(UNIQ_KEY="V")), b"2").code == 0
    assert bodies(pull(rig)) == [b"1", b"2"]


def test_unused_topics_are_cleaned_without_them(rig: Rig) -> None:
    send(rig, A)
    assert rig.ask(316).code == 0 and rig.parts.store.reads.max_offset(A, 0) == 1


@pytest.mark.parametrize(("each", "rows"), [(False, {("%LMQ%", "%LMQ%")}), (True, {(GROUP, A), (GROUP, B)})])
def test_all_are_counted_as_one(tmp_path: Path, each: bool, rows: set[tuple[str, str]]) -> None:
    rig = Rig(tmp_path, store=ON, enable_lmq_stats=each)
    for name in (A, B):
        send(rig, name)
        pull(rig, name)
    counted = {(g, t): tally.total for (g, t) in rows if (tally := rig.parts.stats.group_gets(g, t)) is not None}
    assert counted == {row: 2 // len(rows) for row in rows}
    own = rig.parts.stats.topic_puts("T")
    assert own is not None and own.total == 2 and rig.parts.stats.topic_puts(A) is None


# ---- what is kept ----


def test_messages_and_offsets_survive_a_restart(rig: Rig, tmp_path: Path) -> None:
    for n in range(3):
        send(rig, A, b"%d" % n)
    rig.parts.groups.find("plain", rig.parts.settings.current, NOW)
    for group in (GROUP, "plain"):
        header = {"consumerGroup": group, "topic": A, "queueId": "0", "commitOffset": "2"}
        assert rig.ask(15, header).code == 0
    rig.parts.offsets.commit("T", GROUP, 3, 7, NOW, 1)
    rig.stop()
    saved = fastjson.loads((tmp_path / LMQ_OFFSETS_PATH).read_bytes())
    assert saved["lmqOffsetTable"] == {f"{A}@{GROUP}": 2}
    assert saved["offsetTable"] == {f"{A}@plain": {"0": 2}, f"T@{GROUP}": {"3": 7}}
    assert not (tmp_path / OFFSETS_PATH).exists()

    again = Rig(tmp_path, store=ON)
    for group in (GROUP, "plain"):
        answer = again.ask(14, {"consumerGroup": group, "topic": A, "queueId": "0"})
        assert (answer.code, answer.ext["offset"]) == (0, "2")
    assert again.parts.offsets.query("T", GROUP, 3) == 7
    assert bodies(pull(again, offset=2)) == [b"2"]
    send(again, A)
    assert again.parts.store.reads.max_offset(A, 0) == 4


def test_the_first_start_with_them_keeps_the_offsets(tmp_path: Path) -> None:
    off = Rig(tmp_path)
    off.send("T", 0, b"1")
    off.parts.offsets.commit("T", "g", 0, 1, NOW, 1)
    off.stop()
    on = Rig(tmp_path, store=ON)
    assert on.parts.offsets.query("T", "g", 0) == 1


def test_the_originals_file_is_read() -> None:
    text = b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":5},"lmqOffsetTable":{"%LMQ%a@%LMQ%g":5},'
    text += b'"offsetTable":{"T@g":{0:3,1:4}}}'
    offsets = ConsumerOffsets(0, lmq=True)
    offsets.load(text)
    assert offsets.path == LMQ_OFFSETS_PATH
    assert offsets.query("%LMQ%a", "%LMQ%g", 0) == 5 and offsets.query("T", "g", 1) == 4
    assert fastjson.loads(offsets.to_json())["lmqOffsetTable"] == {"%LMQ%a@%LMQ%g": 5}


def test_a_slave_copies_both_tables() -> None:
    table = with_light({"T@g": {0: 3}, "T@%LMQ%g": {1: 4}}, {"%LMQ%a@%LMQ%g": 5, "T@%LMQ%g": 6})
    assert table == {"T@g": {0: 3}, "T@%LMQ%g": {1: 4, 0: 6}, "%LMQ%a@%LMQ%g": {0: 5}}
    master = ConsumerOffsets(0, lmq=True)
    master.commit("%LMQ%a", "%LMQ%g", 0, 9, 0, 1)
    assert b'"%LMQ%a@%LMQ%g"' in master.for_slaves(), "ours tells it in the table that all have"


def test_what_a_slow_disk_has_not_yet_is_not_answered(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store=replace(ON, flush_disk_type="SYNC_FLUSH"))
    rig.connect(1)
    rig.hold_io()
    said = properties(UNIQ_KEY="U", INNER_MULTI_DISPATCH=A)
    rig.handle(Frames(1, encode_request(SEND, 5, send_header(properties=said), b"x")))
    assert rig.sent.get(1) is None
    rig.finish_io()
    assert [answer.code for answer in rig.sent[1]] == [0]
