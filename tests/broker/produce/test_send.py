"""Sends: every check of broker.md §4.1 and what is stored; the limits; retries and dead letters; batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.harness import NOW, SMALL, Rig
from broker.requests import properties, send_header
from perseid.base.machine import Frames
from perseid.broker.kernel.request import Request
from perseid.wire import batch
from perseid.wire.codes import Serializer
from perseid.wire.command import Command, decode, encode_request
from perseid.wire.headers.send import SendMessageRequest
from perseid.wire.record import Record, decode_all

SEND, SEND_V2, SEND_BATCH = 10, 310, 320
MIB = 1 << 20


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def stored(rig: Rig, topic: str = "T", queue_id: int = 0) -> list[Record]:
    return decode_all(b"".join(rig.parts.store.reads.read(topic, queue_id, 0, 32, 1 << 24).buffers))


def send(rig: Rig, body: bytes = b"body", *, code: int = SEND_V2, **fields: Any) -> Command:
    return rig.ask(code, send_header(**fields), body)


def make_topic(rig: Rig, topic: str, **fields: str) -> None:
    row = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "order": "false",
    }  # fmt: skip
    assert rig.ask(17, row | fields).code == 0


# ---- what is stored and answered ----


@pytest.mark.parametrize("code", [SEND, SEND_V2])
def test_a_message(rig: Rig, code: int) -> None:
    own = properties(UNIQ_KEY="A", TAGS="t")
    header: Any = send_header(queue_id=1, flag=7, sys_flag=1, reconsume_times=2, properties=own)
    if code == SEND:
        header = SendMessageRequest(**{name: getattr(header, name) for name in header.__struct_fields__})
    for offset in (0, 1):  # the second goes the quick way
        answer = rig.ask(code, header, b"body")
        assert answer.code == 0 and answer.remark is None
        record = stored(rig, queue_id=1)[offset]
        assert answer.ext == {
            "msgId": record.msg_id, "queueId": "1", "queueOffset": str(offset), "transactionId": "A",
            "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
        }  # fmt: skip
        assert (record.body, record.flag, record.sys_flag, record.reconsume_times) == (b"body", 7, 1, 2)
        assert record.born_timestamp == 1_600_000_000_000 and record.store_timestamp == NOW
        assert str(record.born_host) == "10.0.0.1:5000" and str(record.store_host) == "127.0.0.1:10911"
        assert record.props == {
            "UNIQ_KEY": "A", "TAGS": "t", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "C",
        }  # fmt: skip


def test_a_message_without_a_unique_key_gets_one(rig: Rig) -> None:
    answers = [send(rig, properties=properties(TAGS="t")) for _ in range(2)]
    keys = [answer.ext["transactionId"] for answer in answers]
    assert len(set(keys)) == 2 and all(len(key) == 32 for key in keys)
    assert [record.unique_key for record in stored(rig)] == keys


def test_what_a_client_says_of_region_trace_and_cluster_does_not_count(rig: Rig) -> None:
    send(rig, properties=properties(UNIQ_KEY="A", MSG_REGION="x", TRACE_ON="false", CLUSTER="y", POP_CK="z", mine="1"))
    (record,) = stored(rig)
    assert record.props == {
        "UNIQ_KEY": "A", "mine": "1", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "C",
    }  # fmt: skip


def test_properties_of_old_clients_lack_the_last_separator(rig: Rig) -> None:
    send(rig, properties="UNIQ_KEY\x01A\x02TAGS\x01t")
    assert stored(rig)[0].props["TAGS"] == "t" and stored(rig)[0].props["CLUSTER"] == "C"


def test_a_queue_at_random(rig: Rig) -> None:
    make_topic(rig, "T")
    seen = {int(send(rig, queue_id=-1).ext["queueId"]) for _ in range(40)}
    assert seen == {0, 1, 2, 3}


def test_one_way(rig: Rig) -> None:
    for _ in range(2):
        rig.tell(SEND_V2, send_header(), b"body", oneway=True)
    rig.tell(SEND_V2, send_header(topic="a/b"), b"body", oneway=True)
    assert len(stored(rig)) == 2 and not rig.sent.get(1)


def test_a_multi_tag_topic_marks_its_messages(rig: Rig) -> None:
    make_topic(rig, "T", topicFilterType="MULTI_TAG")
    send(rig, sys_flag=1)
    assert stored(rig)[0].sys_flag == 3


def test_prepared_messages_are_never_delayed_and_never_shown(rig: Rig) -> None:
    answer = send(rig, sys_flag=4, properties=properties(UNIQ_KEY="A", DELAY="3"))
    assert answer.code == 0 and answer.ext["queueOffset"] == "0"
    assert rig.parts.store.log.end > 0 and rig.parts.store.reads.max_offset("T", 0) == 0
    assert rig.parts.store.reads.max_offset("SCHEDULE_TOPIC_XXXX", 2) == 0


# ---- checks, in their order ----


def refused(answer: Command, code: int, *words: str) -> None:
    assert answer.code == code, (answer.code, answer.remark)
    for word in words:
        assert word in (answer.remark or ""), answer.remark
    assert answer.ext["MSG_REGION"] == "DefaultRegion" and answer.ext["TRACE_ON"] == "true"


def test_an_empty_body_is_code_1_whatever_else_is_wrong(rig: Rig) -> None:
    refused(send(rig, b"", topic="a/b"), 1, "body is empty")
    refused(send(rig, b"", code=SEND_BATCH, batch=True), 1, "body is empty")
    assert "T" not in rig.parts.topics


def test_not_before_its_time(tmp_path: Path) -> None:
    rig = Rig(tmp_path, start_accept_send_request_time_stamp=NOW + 10)
    refused(send(rig, topic="a/b"), 1, "broker unable to service, until")
    rig.until(NOW + 10)
    assert send(rig).code == 0


def test_an_order_topic_of_a_broker_that_may_not_be_written_to(tmp_path: Path) -> None:
    rig = Rig(tmp_path, broker_permission=4)
    make_topic(rig, "Order", order="true")
    refused(send(rig, topic="Order"), 16, "the broker[127.0.0.1] sending message is forbidden")
    assert send(rig).code == 0, "others learn it from the route only"


@pytest.mark.parametrize(
    "topic", ["", " ", "a/b", "../up", "a.b", "ä", "a b", "x" * 128, "%RETRY%" + "x" * 249, "\0", "a\nb"]
)
def test_names_that_no_topic_has(rig: Rig, topic: str) -> None:
    refused(send(rig, topic=topic), 29, "The specified topic")
    assert topic not in rig.parts.topics and rig.parts.store.log.end == 0


@pytest.mark.parametrize("topic", ["x" * 127, "%DLQ%" + "x" * 100, "A-b_C|9%"])
def test_names_that_topics_have(rig: Rig, topic: str) -> None:
    assert send(rig, topic=topic).code == 0


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "rmq_sys_wheel_timer",
    ],
)  # fmt: skip
def test_topics_that_only_the_broker_writes_to(rig: Rig, topic: str) -> None:
    refused(send(rig, topic=topic), 16, f"Sending message to topic[{topic}] is forbidden.")


def test_inner_batches(rig: Rig) -> None:
    refused(send(rig, properties=properties(UNIQ_KEY="A", INNER_NUM=2)), 13, "inner batch")
    refused(send(rig, sys_flag=0x80), 13, "inner batch")
    refused(send(rig, code=SEND_BATCH, batch=True, sys_flag=0x80), 13, "inner batch")
    assert rig.parts.store.log.end == 0 and rig.parts.stats.put_messages.total == 0


def test_a_retried_message_of_a_transaction_is_an_ordinary_one(rig: Rig) -> None:
    more = properties(UNIQ_KEY="A", TRAN_MSG="true", DELAY="1")
    assert send(rig, properties=more, reconsume_times=1).code == 0
    assert send(rig, properties=properties(UNIQ_KEY="A", TRAN_MSG="false")).code == 0


@pytest.mark.parametrize("queue_id", [4, 5, 2**31 - 1])
def test_a_queue_that_is_not_there(rig: Rig, queue_id: int) -> None:
    make_topic(rig, "T")
    refused(send(rig, queue_id=queue_id), 29, f"request queueId[{queue_id}] is illegal")


def test_a_queue_that_is_there_for_readers_takes_sends(rig: Rig) -> None:
    """max(write, read), as in the original."""
    make_topic(rig, "T", writeQueueNums="2")
    assert send(rig, queue_id=3).code == 0
    make_topic(rig, "N", writeQueueNums="0")
    refused(send(rig, topic="N", queue_id=-1), 1, "no queue to write to")


# ---- creation ----


def test_a_topic_is_made_after_its_template(rig: Rig) -> None:
    assert send(rig, default_topic_queue_nums=3).code == 0
    row = rig.parts.topics.get("T")
    assert row is not None and (row.write_queue_nums, row.read_queue_nums, row.perm, row.topic_sys_flag) == (3, 3, 6, 0)
    assert send(rig, topic="Many", default_topic_queue_nums=1000).code == 0
    many = rig.parts.topics.get("Many")
    assert many is not None and many.write_queue_nums == 8, "at most as many as the template"
    assert send(rig, topic="Unit", unit_mode=True).code == 0
    unit = rig.parts.topics.get("Unit")
    assert unit is not None and unit.topic_sys_flag == 1
    assert rig.saved.count("config/topics.json") == 4, "the broker's own when it began, and one each"


def test_the_answer_waits_for_the_topic_to_be_saved(rig: Rig) -> None:
    rig.hold_io()
    sent = rig.tell(SEND_V2, send_header(), b"body")
    assert rig.answer(sent) is None and len(stored(rig)) == 1
    rig.finish_io()
    assert rig.answer(sent) is not None


@pytest.mark.parametrize("fields", [{"default_topic": "none"}, {"default_topic": "SELF_TEST_TOPIC"}])
def test_no_template_no_topic(rig: Rig, fields: dict[str, Any]) -> None:
    refused(send(rig, **fields), 17, "topic[T] not exist, apply first please!", "https://")


def test_no_queues_no_queue(rig: Rig) -> None:
    refused(send(rig, default_topic_queue_nums=-3), 29)


def test_auto_creation_switched_off(tmp_path: Path) -> None:
    rig = Rig(tmp_path, auto_create_topic_enable=False)
    refused(send(rig), 17)
    assert send(rig, topic="%RETRY%g").code == 0, "retry topics are made all the same"
    row = rig.parts.topics.get("%RETRY%g")
    assert row is not None and (row.write_queue_nums, row.perm) == (1, 6)
    refused(send(rig, topic="%DLQ%g"), 17)
    assert send(rig, topic="%RETRY%unit", unit_mode=True).code == 0
    unit = rig.parts.topics.get("%RETRY%unit")
    assert unit is not None and unit.topic_sys_flag == 2


# ---- limits (client-traps 9) ----


def test_four_mebibytes_and_one_byte_more(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store=replace(SMALL, commit_log_file_bytes=32 * MIB))
    for round_ in range(2):  # the second goes the quick way
        assert send(rig, b"x" * (4 * MIB)).code == 0, round_
        refused(send(rig, b"x" * (4 * MIB + 1)), 13, "msg body length limit 4194304B")
    assert rig.parts.stats.put_failed_times == 2
    assert "putMessageFailedTimes" in bytes(rig.ask(28).body).decode()


@pytest.mark.parametrize("first", [True, False])
def test_properties_with_the_brokers_own_are_at_most_32767_bytes(rig: Rig, first: bool) -> None:
    if not first:
        send(rig)
    own = len(rig.parts.answers.encoded_properties)
    fits = properties(UNIQ_KEY="A", p="")[:-1]
    room = 32_767 - own - len(fits) - 1
    assert send(rig, properties=f"{fits}{'x' * room}\x02").code == 0
    assert len(stored(rig)[-1].properties) == 32_767
    refused(send(rig, properties=f"{fits}{'x' * (room + 1)}\x02"), 13, "properties")
    refused(send(rig, properties=f"{fits}{'x' * 33_000}\x02"), 13)


def test_properties_are_counted_in_bytes(rig: Rig) -> None:
    refused(send(rig, properties=properties(UNIQ_KEY="A", p="消" * 11_000)), 13)
    assert send(rig, properties=properties(UNIQ_KEY="A", p="消" * 10_800)).code == 0


def test_a_delayed_message_needs_room_for_where_it_goes(rig: Rig) -> None:
    """REAL_TOPIC and REAL_QID count as well."""
    fits = properties(UNIQ_KEY="A", DELAY="1")
    room = 32_767 - len(rig.parts.answers.encoded_properties) - len(fits) - len("p\x01\x02")
    answer = send(rig, properties=fits + properties(p="x" * room))
    refused(answer, 13)
    assert send(rig, properties=fits + properties(p="x" * (room - 40))).code == 0


# ---- retries and dead letters (broker.md §5.2) ----


def test_a_consumers_own_send_to_its_retry_topic(rig: Rig) -> None:
    answer = send(rig, topic="%RETRY%g", reconsume_times=16, properties=properties(UNIQ_KEY="A", RETRY_TOPIC="T"))
    assert answer.code == 0
    (record,) = stored(rig, "%RETRY%g")
    assert record.reconsume_times == 16 and record.props["RETRY_TOPIC"] == "T"
    send(rig, topic="%RETRY%g", reconsume_times=17, properties=properties(UNIQ_KEY="B", DELAY="3"))
    (dead,) = stored(rig, "%DLQ%g")
    assert dead.unique_key == "B" and dead.props["DELAY"] == "-1"
    row = rig.parts.topics.get("%DLQ%g")
    assert row is not None and row.write_queue_nums == 1


def test_the_headers_own_limit_wins_from_clients_that_know_it(rig: Rig) -> None:
    def sent(version: int) -> None:
        rig.connect(1)
        raw = encode_request(SEND_V2, 1, send_header(topic="%RETRY%g", reconsume_times=4, max_reconsume_times=3), b"b")
        command = decode(raw)
        command.version = version
        rig.parts.dispatch.request(Request(rig.parts.connections[1], command, None))
        rig.broker._settle()

    sent(120)
    assert len(stored(rig, "%RETRY%g")) == 1
    sent(121)
    assert len(stored(rig, "%DLQ%g")) == 1


def test_a_group_that_consumes_in_order_has_no_retries(rig: Rig) -> None:
    queue = b'{"topic":"T","brokerName":"b","queueId":0}'
    locked = rig.ask(41, None, b'{"consumerGroup":"g","clientId":"c","mqSet":[' + queue + b"]}")
    assert locked.code == 0
    send(rig, topic="%RETRY%g")
    assert len(stored(rig, "%DLQ%g")) == 1
    rig.until(NOW + 60_001)
    send(rig, topic="%RETRY%g")
    assert len(stored(rig, "%RETRY%g")) == 1, "the lock ran out"


def test_a_retry_topic_of_no_group(tmp_path: Path) -> None:
    rig = Rig(tmp_path, auto_create_subscription_group=False)
    refused(send(rig, topic="%RETRY%nobody"), 26, "subscription group not exist, nobody")


# ---- batches ----


def items(*bodies: bytes, **pairs: object) -> bytes:
    return batch.encode([(n, body, properties(UNIQ_KEY=f"B{n}", **pairs).encode()) for n, body in enumerate(bodies)])


@pytest.mark.parametrize("code", [SEND_V2, SEND_BATCH])
def test_a_batch(rig: Rig, code: int) -> None:
    send(rig)
    body = items(b"a", b"bb", b"", TAGS="t", KEYS="k1 k2")
    answer = send(rig, body, code=code, batch=True, properties=properties(UNIQ_KEY="BATCH", WAIT="true"))
    records = stored(rig)[1:]
    assert [(r.body, r.flag, r.queue_offset) for r in records] == [(b"a", 0, 1), (b"bb", 1, 2), (b"", 2, 3)]
    assert answer.ext["msgId"] == ",".join(record.msg_id for record in records)
    assert (answer.ext["queueOffset"], answer.ext["transactionId"]) == ("1", "BATCH")
    assert records[0].props == {"UNIQ_KEY": "B0", "TAGS": "t", "KEYS": "k1 k2"}, "as 5.5.0: nothing is added"
    assert len(rig.parts.store.reads.query("T", "k2", 9, 0, NOW).records) == 3


def test_batches_that_cannot_be(rig: Rig) -> None:
    one = items(b"a")
    refused(send(rig, one, batch=True, topic="%RETRY%g"), 13, "does not support retry group")
    refused(send(rig, one, batch=True, sys_flag=4), 13, "transaction")
    refused(send(rig, one, batch=True, properties=properties(UNIQ_KEY="A", DELAY="1")), 13, "delayed")
    refused(send(rig, items(b"a", DELAY=1), batch=True), 13, "delayed")
    refused(send(rig, items(b"a", TRAN_MSG="true"), batch=True), 13, "transaction")
    refused(send(rig, items(b"a", INNER_NUM=3), batch=True), 13, "inner")
    refused(send(rig, one + b"junk", batch=True), 13, "can't be read")
    refused(send(rig, one, batch=True, topic="%DLQ%" + "x" * 200), 13, "topic length too long")
    refused(send(rig, b"x" * (4 * MIB + 1), batch=True), 13, "a batch of 4194305 bytes")
    assert rig.parts.store.log.end == 0, "all or none"


def test_a_batch_whose_last_message_is_too_long_stores_none(rig: Rig) -> None:
    body = items(b"a") + batch.encode([(0, b"b", b"p\x01" + b"x" * 32_764)])
    assert send(rig, body, batch=True).code == 0
    before = rig.parts.store.log.end
    refused(send(rig, items(b"a", b"x" * 2 * MIB), batch=True), 13)  # no room in a log file of 1 MiB
    assert rig.parts.store.log.end == before


def test_a_batch_in_a_binary_header(rig: Rig) -> None:
    rig.connect(1)
    raw = encode_request(SEND_BATCH, 5, send_header(batch=True), items(b"a"), serializer=Serializer.ROCKETMQ)
    rig.handle(Frames(1, raw))
    answer = rig.answer(5)
    assert answer is not None and answer.code == 0 and answer.serializer == Serializer.ROCKETMQ
