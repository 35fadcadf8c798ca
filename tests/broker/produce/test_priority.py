"""Messages with a priority: the queue that it names, and pops that look at the highest first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.harness import NOW, Rig
from broker.pops import INVISIBLE_MS, ack, bodies, pop
from broker.requests import properties, send_header
from perseid.broker.metadata.groups import SubscriptionGroupTable, priority_factor
from perseid.wire.bodies import SubscriptionGroupConfig
from perseid.wire.command import Command
from perseid.wire.record import decode_all

SEND_V2 = 310


def topic(rig: Rig, **fields: str) -> None:
    row = {
        "topic": "T", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "order": "false", "attributes": "+message.type=PRIORITY",
    }  # fmt: skip
    assert rig.ask(17, row | fields).code == 0


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    topic(rig)
    return rig


def send(rig: Rig, priority: object = None, body: bytes = b"x", queue_id: int = 1, **more: Any) -> Command:
    fields = {key: more.pop(key) for key in ("topic", "sys_flag") if key in more}
    said = {"UNIQ_KEY": "U", **more, **({} if priority is None else {"_SYS_MSG_PRIORITY_": priority})}
    return rig.ask(SEND_V2, send_header(queue_id=queue_id, properties=properties(**said), **fields), body)


def ends(rig: Rig) -> list[int]:
    return [rig.parts.store.reads.max_offset("T", queue_id) for queue_id in range(4)]


@pytest.mark.parametrize(
    ("priority", "queue_id"),
    [
        (0, 0),
        (2, 2),
        (3, 3),
        (4, 3),  # the highest there is
        (2**31 - 1, 3),
        ("+2", 2),
        (2**31, 1),  # no number to the original: the sender's queue
        (-1, 1),
        ("high", 1),
        ("1.5", 1),
        (None, 1),
    ],
)
def test_a_priority_is_a_queue(rig: Rig, priority: object, queue_id: int) -> None:
    for sent in (1, 2):  # the second one could go the quick way
        answer = send(rig, priority)
        assert (answer.code, answer.ext["queueId"]) == (0, str(queue_id))
        assert ends(rig) == [sent if number == queue_id else 0 for number in range(4)]
    read = rig.parts.store.reads.read("T", queue_id, 0, 32, 1 << 20)
    for record in decode_all(b"".join(read.buffers)):
        assert record.props.get("_SYS_MSG_PRIORITY_") == (None if priority is None else str(priority))


def test_the_attribute_of_the_topic_does_not_matter_to_sends(rig: Rig) -> None:
    rig.send("plain", 0, b"makes the topic")
    assert send(rig, 2, topic="plain").ext["queueId"] == "2"


@pytest.mark.parametrize(
    "more", [{"DELAY": "1"}, {"__SHARDINGKEY": "k"}, {"TIMER_DELAY_SEC": "1"}], ids=["level", "in order", "timer"]
)
def test_what_is_stronger_takes_the_priority_away(rig: Rig, more: dict[str, str]) -> None:
    answer = send(rig, 3, **more)
    assert (answer.code, answer.ext["queueId"]) == (0, "1")
    rig.until(NOW + 5_000)
    read = rig.parts.store.reads.read("T", 1, 0, 32, 1 << 20)
    (record,) = decode_all(b"".join(read.buffers))
    assert "_SYS_MSG_PRIORITY_" not in record.props


def test_a_half_has_none(rig: Rig) -> None:
    answer = send(rig, 3, TRAN_MSG="true", PGROUP="p", sys_flag=4)
    assert (answer.code, answer.ext["queueId"]) == (0, "1")


def test_pops_look_at_the_highest_first(rig: Rig) -> None:
    for number in (0, 3, 1, 2, 3, 0):
        send(rig, number, b"%d" % number)
    assert bodies(pop(rig, max_msg_nums=2)) == [b"3", b"3"]
    send(rig, 3, b"3")
    assert bodies(pop(rig, max_msg_nums=2)) == [b"3", b"2"]
    assert bodies(pop(rig, max_msg_nums=32)) == [b"1", b"0", b"0"]


def test_the_lowest_first_if_it_is_told_so(tmp_path: Path) -> None:
    rig = Rig(tmp_path, priority_order_asc=False)
    topic(rig)
    for number in (3, 1, 2):
        send(rig, number, b"%d" % number)
    assert bodies(pop(rig)) == [b"1", b"2", b"3"]


def test_what_comes_again_comes_last(rig: Rig) -> None:
    """It may be asked for sooner by popFromRetryProbabilityForPriority."""
    send(rig, 3, b"again")
    assert bodies(pop(rig)) == [b"again"]
    rig.until(rig.now + INVISIBLE_MS + 10_000)
    for number in range(20):
        send(rig, 0, b"%d" % number)
        (one,) = pop(rig, max_msg_nums=1)
        assert one.body == b"%d" % number
        assert ack(rig, one).code == 0
    assert bodies(pop(rig)) == [b"again"]


def come_again(rig: Rig, *priorities: int) -> None:
    """Messages of these priorities are popped, and nobody acknowledges them."""
    for number in priorities:
        send(rig, number, b"%d" % number)
    assert len(pop(rig)) >= len(priorities)
    rig.until(rig.now + INVISIBLE_MS + 10_000)


def retry_ends(rig: Rig, topic: str = "%RETRY%g_T") -> list[int]:
    row = rig.parts.topics.get(topic)
    assert row is not None and row.read_queue_nums == row.write_queue_nums
    return [rig.parts.store.reads.max_offset(topic, queue_id) for queue_id in range(row.read_queue_nums)]


@pytest.mark.parametrize("asc", [True, False])
def test_what_comes_again_keeps_its_priority_if_it_is_told_so(tmp_path: Path, asc: bool) -> None:
    rig = Rig(tmp_path, use_separate_retry_queue=True, priority_order_asc=asc)
    topic(rig)
    come_again(rig, 0, 3, 1, 3)
    assert retry_ends(rig) == [1, 1, 0, 2]
    got = pop(rig)
    assert bodies(got) == sorted((b"0", b"1", b"3", b"3"), reverse=asc)
    assert [one.message.queue_id for one in got] == sorted((0, 1, 3, 3), reverse=asc)
    assert all(ack(rig, one).code == 0 for one in got[1:])
    rig.until(rig.now + INVISIBLE_MS + 10_000)
    (last,) = pop(rig)
    assert (last.body, last.message.reconsume_times, last.topic) == (got[0].body, 2, "%RETRY%g_T")
    assert last.message.queue_id == got[0].message.queue_id


def test_separate_retry_queues_grow_with_their_topic(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic(rig)
    come_again(rig, 2)
    assert retry_ends(rig) == [1]
    rig.stop()
    rig = Rig(tmp_path, now=rig.now, use_separate_retry_queue=True)
    come_again(rig, 3)
    assert retry_ends(rig) == [2, 0, 0, 1], "what was in the only queue stays there"
    topic(rig, readQueueNums="6", writeQueueNums="6")
    come_again(rig, 5)
    assert retry_ends(rig) == [3, 0, 0, 2, 0, 1]
    topic(rig, readQueueNums="2", writeQueueNums="2")
    assert [one.message.queue_id for one in pop(rig)] == [5, 3, 0], "none is lost when a topic has fewer"
    rig.stop()
    rig = Rig(tmp_path, now=rig.now + INVISIBLE_MS)
    rig.until(rig.now + 10_000)
    assert retry_ends(rig) == [6, 0, 0, 2, 0, 1], "and none when the setting is gone"


def test_separate_retry_queues_of_a_plain_topic(tmp_path: Path) -> None:
    rig = Rig(tmp_path, use_separate_retry_queue=True, pop_from_retry_probability=100)
    topic(rig, attributes="")
    come_again(rig, 0, 1, 2, 3)
    assert retry_ends(rig) == [1, 1, 1, 1]
    got = pop(rig)
    assert sorted(bodies(got)) == [b"0", b"1", b"2", b"3"]
    assert all(ack(rig, one).code == 0 for one in got)
    rig.until(rig.now + INVISIBLE_MS + 10_000)
    assert pop(rig) == []


def test_a_topic_without_the_attribute_is_popped_anywhere(rig: Rig) -> None:
    topic(rig, attributes="+message.type=NORMAL")
    firsts = set()
    for _ in range(60):
        for number in range(4):
            send(rig, number, b"%d" % number)
        firsts.add(bodies(pop(rig))[0])
    assert len(firsts) == 4


@pytest.mark.parametrize(("factor", "anywhere"), [("100", False), ("0", True)])
def test_how_many_pops_of_a_group_are_by_priority(rig: Rig, factor: str, anywhere: bool) -> None:
    body = json.dumps({"groupName": "g", "attributes": {"+priority.factor": factor}}).encode()
    assert rig.ask(200, None, body).code == 0
    firsts = set()
    for _ in range(60):
        for number in range(4):
            send(rig, number, b"%d" % number)
        firsts.add(bodies(pop(rig))[0])
    assert (len(firsts) == 4) if anywhere else (firsts == {b"3"})


@pytest.mark.parametrize("value", ["101", "-1", "", "x", "50.0"])
def test_factors_that_can_not_be(rig: Rig, value: str) -> None:
    body = json.dumps({"groupName": "g", "attributes": {"+priority.factor": value}}).encode()
    answer = rig.ask(200, None, body)
    assert answer.code == 1 and "priority.factor" in (answer.remark or "")
    assert rig.parts.groups.get("g") is None


def test_a_factor_is_changed_taken_away_and_kept() -> None:
    table = SubscriptionGroupTable(NOW)
    for change, wanted in (({"+priority.factor": "30"}, 30), ({}, 30), ({"-priority.factor": ""}, 100)):
        table.update(SubscriptionGroupConfig("g", attributes=change), NOW)
        row = table.get("g")
        assert row is not None and priority_factor(row) == wanted
    again = SubscriptionGroupTable(0)
    again.load(b'{"subscriptionGroupTable":{"g":{"groupName":"g","attributes":{"priority.factor":"7"}}}}')
    row = again.get("g")
    assert row is not None and priority_factor(row) == 7
