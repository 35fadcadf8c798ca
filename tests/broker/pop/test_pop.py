"""POP: what is handed out, until when, and what becomes of it; over restarts and changes of roles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.harness import NOW, Rig, records
from broker.pops import (
    BATCH_ACK,
    INVISIBLE_MS,
    NOTIFICATION,
    PEEK,
    POLLING_INFO,
    POP,
    SECOND,
    Popped,
    ack,
    bodies,
    change,
    crash,
    is_changed,
    pop,
    pop_header,
    read_pop,
    revive_log,
    stocked,
)
from broker.requests import properties
from perseid.base.machine import Opened
from perseid.wire import fastjson
from perseid.wire import pop as wire
from perseid.wire.headers.pop import (
    NotificationRequest,
    NotificationResponse,
    PeekMessageRequest,
    PollingInfoRequest,
    PollingInfoResponse,
    PopMessageResponse,
)
from perseid.wire.pop import BatchAck
from perseid.wire.record import decode_all

# ---- pop and ack ----


def test_what_is_popped_is_nobody_elses(tmp_path: Path) -> None:
    rig = stocked(tmp_path)
    got = pop(rig)
    assert sorted(bodies(got)) == [b"m0", b"m1", b"m2"]
    assert pop(rig) == [] and sorted(bodies(pop(rig, consumer_group="other"))) == [b"m0", b"m1", b"m2"]
    assert all(ack(rig, one).code == 0 for one in got)
    rig.until(NOW + 10 * INVISIBLE_MS)
    assert pop(rig) == [] and len(rig.parts.pop) == 0


def test_what_is_not_acknowledged_comes_again_when_its_time_is_over(tmp_path: Path) -> None:
    rig = stocked(tmp_path)
    got = pop(rig)
    assert ack(rig, next(one for one in got if one.body == b"m1")).code == 0
    rig.until(NOW + INVISIBLE_MS - 1)
    assert pop(rig) == []
    rig.until(NOW + INVISIBLE_MS)
    again = pop(rig)
    assert sorted(bodies(again)) == [b"m0", b"m2"]
    for one in again:
        assert (one.message.topic, one.topic, one.message.reconsume_times) == ("T", "%RETRY%g_T", 1)
        assert one.message.props["1ST_POP_TIME"] == str(NOW)
    assert all(ack(rig, one).code == 0 for one in again)
    rig.until(NOW + 10 * INVISIBLE_MS)
    assert pop(rig) == []


def test_a_message_comes_again_as_often_as_nobody_acknowledges_it(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 1)
    for times in range(4):
        [one] = pop(rig)
        assert (one.body, one.message.reconsume_times) == (b"m0", times)
        assert one.message.props.get("1ST_POP_TIME") == (str(NOW) if times else None)
        rig.until(rig.now + INVISIBLE_MS)


def test_the_retry_topic_v2_is_popped_with_the_older_one(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 1)
    pop(rig)
    rig.until(NOW + INVISIBLE_MS)
    rig.stop()
    rig = Rig(tmp_path, now=rig.now, enable_retry_topic_v2=True)
    rig.send("T", 0, b"new")
    got: list[Popped] = []
    while len(got) < 2:  # each pop looks at one of both retry topics
        got += pop(rig)
    assert {(one.body, one.topic) for one in got} == {(b"m0", "%RETRY%g_T"), (b"new", "T")}
    rig.until(rig.now + INVISIBLE_MS)
    assert [r.body for r in records(rig, "%RETRY%g+T")] == [b"new"]


def test_a_pop_takes_so_many_and_says_what_is_left(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 10)
    answer = rig.ask(POP, pop_header(rig, max_msg_nums=4))
    header = answer.header(PopMessageResponse)
    assert len(read_pop(answer)) == 4 and header.rest_num == 6
    assert len(pop(rig, queue_id=0)) + len(pop(rig, queue_id=1)) + len(pop(rig)) == 6


def test_tags_and_what_is_between(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for number in range(6):
        rig.send("T", 0, b"m%d" % number, properties(TAGS="A" if number % 2 else "B"))
    got = pop(rig, exp="A")
    assert bodies(got) == [b"m1", b"m3", b"m5"]
    assert [one.handle.offset for one in got] == [1, 3, 5]
    assert ack(rig, got[1]).code == 0
    rig.until(NOW + INVISIBLE_MS)
    assert bodies(pop(rig, exp="A")) == [b"m1", b"m5"]
    assert pop(rig, exp="B", queue_id=0) == []  # the group is past them


def test_a_new_group_begins_where_it_says(tmp_path: Path) -> None:
    rig = Rig(tmp_path, init_pop_offset_by_check_msg_in_mem=False)
    for number in range(3):
        rig.send("T", 0, b"m%d" % number)
    assert bodies(pop(rig, init_mode=1, consumer_group="last")) == [b"m2"]
    assert bodies(pop(rig, init_mode=0, consumer_group="first")) == [b"m0", b"m1", b"m2"]


def test_a_reset_counts_from_the_next_pop_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for number in range(3):
        rig.send("T", 0, b"m%d" % number)
    assert len(pop(rig)) == 3
    rig.parts.offsets.reset("T", "g", 0, 0)
    assert bodies(pop(rig)) == []  # popped, set back and popped again: only in another moment
    rig.now += 1
    assert bodies(pop(rig)) == [b"m0", b"m1", b"m2"]


def test_batch_acks(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for number in range(5):
        rig.send("T", 0, b"m%d" % number)
    got = pop(rig)
    handle = got[0].handle
    one = BatchAck("g", "T", "0", 0, 0, handle.revive_queue, handle.pop_time, INVISIBLE_MS, (0, 2, 4))
    assert rig.ask(BATCH_ACK, None, wire.batch_ack_body("b", [one])).code == 0
    assert [tag for tag, _ in revive_log(rig)] == ["ck", "bAck"]
    rig.until(NOW + INVISIBLE_MS)
    assert bodies(pop(rig)) == [b"m1", b"m3"]
    assert rig.ask(BATCH_ACK, None, b"{}").code == 208


# ---- more time ----


def test_more_time_for_one_message(tmp_path: Path) -> None:
    rig = stocked(tmp_path)
    got = {one.body: one for one in pop(rig)}
    rig.until(NOW + 30 * SECOND)
    later = is_changed(change(rig, got[b"m0"], 2 * INVISIBLE_MS))
    assert ack(rig, got[b"m1"]).code == 0
    rig.until(NOW + INVISIBLE_MS)
    assert bodies(pop(rig)) == [b"m2"]
    rig.until(NOW + 30 * SECOND + 2 * INVISIBLE_MS - 1)
    assert b"m0" not in bodies(pop(rig, consumer_group="g", invisible_time=1))
    assert ack(rig, later).code == 0
    rig.until(NOW + 10 * INVISIBLE_MS)
    assert b"m0" not in bodies(pop(rig))


def test_less_time_lets_it_come_again_at_once(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 1)
    [one] = pop(rig)
    is_changed(change(rig, one, 0))
    rig.until(rig.now + 1)
    assert bodies(pop(rig)) == [b"m0"]
    rig.until(NOW + 1 + INVISIBLE_MS)
    assert len(records(rig, "%RETRY%g_T")) == 2  # the second delivery's, none of the first one's


def test_a_message_is_changed_twice_in_one_moment(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 1)
    [one] = pop(rig)
    one = is_changed(change(rig, one, 1_000))
    one = is_changed(change(rig, one, 5_000))
    rig.until(NOW + 4_900)
    assert pop(rig) == []
    rig.until(NOW + 5_100)
    assert bodies(pop(rig)) == [b"m0"]


def test_what_is_acknowledged_or_shown_again_gets_no_more_time(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 2)
    first, second = pop(rig)
    ack(rig, first)
    refused = change(rig, first, 5_000)
    assert not isinstance(refused, Popped) and refused.code == 208
    rig.until(NOW + INVISIBLE_MS)
    refused = change(rig, second, 5_000)
    assert not isinstance(refused, Popped) and refused.code == 208
    assert bodies(pop(rig)) == [second.body] and len(rig.parts.pop) == 1


# ---- waiting ----


def test_a_pop_waits_for_a_message(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 0)
    rig.send("T", 0, b"first")
    pop(rig)
    waiting = rig.tell(POP, pop_header(rig, poll_time=15_000), client=2)
    assert rig.answer(waiting, 2) is None
    rig.until(NOW + 5_000)
    rig.send("T", 3, b"late")
    answer = rig.answer(waiting, 2)
    assert answer is not None and bodies(read_pop(answer)) == [b"late"]


def test_one_message_wakes_one_member_and_the_rest_the_next(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 1)
    pop(rig)
    waiting = [rig.tell(POP, pop_header(rig, poll_time=15_000, max_msg_nums=1), client=c) for c in (2, 3, 4)]
    rig.send("T", 0, b"one")
    assert [rig.answer(w, c) is not None for w, c in zip(waiting, (2, 3, 4), strict=True)] == [True, False, False]
    rig.parts.holds.pops.more("T", "g")
    rig.until(rig.now + 1)
    rig.leave(3)
    rig.send("T", 1, b"two")
    answer = rig.answer(waiting[2], 4)
    assert answer is not None and bodies(read_pop(answer)) == [b"two"]
    assert rig.parts.holds.count == 0


def test_what_one_leaves_the_next_one_gets(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.send("T", 0, b"x")
    pop(rig)
    rig.parts.groups.find("g", rig.config, rig.now)
    waiting = [rig.tell(POP, pop_header(rig, poll_time=15_000, max_msg_nums=1), client=c) for c in (2, 3)]
    rig.hold_io()
    for body in (b"a", b"b"):
        rig.send("T", 0, body)
    got = [rig.answer(w, c) for w, c in zip(waiting, (2, 3), strict=True)]
    assert [bodies(read_pop(a)) for a in got if a is not None] == [[b"a"], [b"b"]]


def test_a_message_that_comes_again_wakes_who_waits(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 1)
    pop(rig)
    waiting = rig.tell(POP, pop_header(rig, poll_time=2 * INVISIBLE_MS), client=2)
    rig.until(NOW + INVISIBLE_MS - 1)
    assert rig.answer(waiting, 2) is None
    rig.until(NOW + INVISIBLE_MS)
    answer = rig.answer(waiting, 2)
    assert answer is not None and bodies(read_pop(answer)) == [b"m0"]


def test_a_pop_that_gets_nothing_is_told_so_in_time(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 1)
    pop(rig)
    waiting = rig.tell(POP, pop_header(rig, poll_time=5_000), client=2)
    info = PollingInfoRequest(consumer_group="g", topic="T", queue_id=-1)
    assert rig.ask(POLLING_INFO, info).header(PollingInfoResponse).polling_num == 1
    rig.until(NOW + 5_000)
    answer = rig.answer(waiting, 2)
    assert answer is not None and answer.code == 210
    assert rig.ask(POLLING_INFO, info).header(PollingInfoResponse).polling_num == 0
    late = rig.ask(POP, pop_header(rig, poll_time=1_000, born_time=rig.now - 2_000))
    assert late.code == 210


def test_too_many_pops_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseid.broker.consume.held_pops.MAX_HELD", 1)
    rig = stocked(tmp_path, 1)
    pop(rig)
    rig.tell(POP, pop_header(rig, poll_time=5_000), client=2)
    assert rig.ask(POP, pop_header(rig, poll_time=5_000)).code == 209


def test_a_notification_waits_and_takes_nothing(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 1)
    pop(rig)
    ask = NotificationRequest(consumer_group="g", topic="T", queue_id=-1, poll_time=15_000, born_time=rig.now)
    waiting = rig.tell(NOTIFICATION, ask, client=2)
    assert rig.answer(waiting, 2) is None
    rig.send("T", 2, b"new")
    answer = rig.answer(waiting, 2)
    assert answer is not None and answer.header(NotificationResponse).has_msg
    assert rig.ask(NOTIFICATION, ask).header(NotificationResponse).has_msg
    assert bodies(pop(rig)) == [b"new"]


def test_a_look_changes_nothing(tmp_path: Path) -> None:
    rig = stocked(tmp_path)
    peek = PeekMessageRequest(topic="T", consumer_group="g", queue_id=-1, max_msg_nums=32)
    for _ in range(2):
        answer = rig.ask(PEEK, peek)
        assert answer.code == 0 and len(decode_all(answer.body)) == 3
    assert len(pop(rig)) == 3
    assert rig.ask(PEEK, peek).code == 19


def test_all_queues_of_a_pop_and_of_a_look_share_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    for number in range(12):
        rig.send("T", number % 4, b"%02d" % number * 100)
    size = rig.parts.store.log.end // 12
    monkeypatch.setattr("perseid.broker.pop.requests.MAX_BYTES", 4 * size + size // 2)
    wanted = PeekMessageRequest(topic="T", consumer_group="g", queue_id=-1, max_msg_nums=32)
    looked = rig.ask(PEEK, wanted)
    assert len(decode_all(looked.body)) == 5, "the one that fills it, since what a queue begins with always goes"
    answer = rig.ask(POP, pop_header(rig))
    assert len(read_pop(answer)) == 5 and answer.header(PopMessageResponse).rest_num == 7


# ---- in order ----


def test_in_order_one_batch_is_out(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for number in range(4):
        rig.send("T", 0, b"m%d" % number)
    got = pop(rig, order=True, max_msg_nums=2)
    assert bodies(got) == [b"m0", b"m1"] and got[0].handle.revive_queue == wire.ORDER_QUEUE
    assert pop(rig, order=True) == []
    ack(rig, got[0])
    assert pop(rig, order=True) == []
    ack(rig, got[1])
    rig.now += 1
    got = pop(rig, order=True)
    assert bodies(got) == [b"m2", b"m3"]
    assert revive_log(rig) == []


def test_in_order_the_same_comes_again_from_the_first_that_is_not_acknowledged(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for number in range(3):
        rig.send("T", 0, b"m%d" % number)
    got = pop(rig, order=True)
    ack(rig, got[0])
    waiting = rig.tell(POP, pop_header(rig, order=True, poll_time=2 * INVISIBLE_MS), client=2)
    rig.until(NOW + INVISIBLE_MS - 1)
    assert rig.answer(waiting, 2) is None
    rig.until(NOW + INVISIBLE_MS)
    answer = rig.answer(waiting, 2)
    assert answer is not None and bodies(read_pop(answer)) == [b"m1", b"m2"]
    assert answer.header(PopMessageResponse).order_count_info == "0 qo0%1 1;0 qo0%2 1;0 0 1"
    assert ack(rig, got[1]).code == 0  # of the batch before: too late
    assert pop(rig, order=True) == []


def test_in_order_the_same_attempt_gets_the_same_batch(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.send("T", 0, b"m")
    assert bodies(pop(rig, order=True, attempt_id="a")) == [b"m"]
    rig.now += 1
    assert bodies(pop(rig, order=True, attempt_id="a")) == [b"m"]
    assert pop(rig, order=True, attempt_id="b") == []


def test_in_order_an_attempt_counts_once_however_often_it_is_made(tmp_path: Path) -> None:
    """Consumers give a message up that was popped too often; an answer that was lost is no time."""
    rig = Rig(tmp_path)
    rig.send("T", 0, b"m")
    said = []
    for attempt in "aabbbc":
        answer = rig.ask(POP, pop_header(rig, order=True, attempt_id=attempt))
        assert bodies(read_pop(answer)) == [b"m"]
        info = answer.header(PopMessageResponse).order_count_info or ""
        said.append((attempt, info.rpartition(" ")[2]))
        rig.now += 1 if len(said) in (1, 3, 4) else INVISIBLE_MS
    assert said == [("a", "0"), ("a", "0"), ("b", "1"), ("b", "1"), ("b", "1"), ("c", "2")]


def test_in_order_more_and_less_time(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.send("T", 0, b"m")
    [one] = pop(rig, order=True)
    later = is_changed(change(rig, one, 2 * INVISIBLE_MS))
    assert later.handle.revive_queue == wire.ORDER_QUEUE
    rig.until(NOW + INVISIBLE_MS)
    assert pop(rig, order=True) == []
    is_changed(change(rig, one, 100))
    rig.until(rig.now + 100)
    assert bodies(pop(rig, order=True)) == [b"m"]


def test_in_order_who_waits_gets_what_is_left_though_what_was_put_off_longest_is_acknowledged(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for number in range(2):
        rig.send("T", 0, b"m%d" % number)
    first, second = pop(rig, order=True, invisible_time=10 * SECOND)
    is_changed(change(rig, first, 40 * SECOND))
    is_changed(change(rig, second, 30 * SECOND))
    rig.until(NOW + 15 * SECOND)
    waiting = rig.tell(POP, pop_header(rig, order=True, poll_time=60 * SECOND), client=2)
    assert ack(rig, first).code == 0
    rig.until(NOW + 30 * SECOND - 1)
    assert rig.answer(waiting, 2) is None
    rig.until(NOW + 30 * SECOND)
    answer = rig.answer(waiting, 2)
    assert answer is not None and bodies(read_pop(answer)) == [b"m1"]


def test_in_order_what_is_out_is_known_after_a_clean_start(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.send("T", 0, b"m")
    [one] = pop(rig, order=True)
    rig.stop()
    saved = fastjson.loads((tmp_path / "config/consumerOrderInfo.json").read_text())
    row = saved["table"]["T@g"]["0"]
    assert (row["popTime"], row["i"], row["o"], row["cm"]) == (NOW, INVISIBLE_MS, [0], 0)
    rig = Rig(tmp_path, now=rig.now)
    assert pop(rig, order=True) == []
    ack(rig, one)
    rig.until(NOW + INVISIBLE_MS)
    assert pop(rig, order=True) == []
    assert rig.parts.offsets.query("T", "g", 0) == 1


# ---- who may, and modes ----


def _subscribed(rig: Rig, *clients: int, group: str = "g") -> None:
    for client in clients:
        body = {"clientID": f"c{client}", "producerDataSet": [], "consumerDataSet": [{
            "groupName": group, "consumeType": "CONSUME_POP", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [], "unitMode": False,
        }]}  # fmt: skip
        assert rig.ask(34, None, json.dumps(body).encode(), client=client).code == 0


def assigned(rig: Rig, client: int, **more: Any) -> list[tuple[int, str]] | None:
    body = {"topic": "T", "consumerGroup": "g", "clientId": f"c{client}", "strategyName": "AVG",
            "messageModel": "CLUSTERING", **more}  # fmt: skip
    answer = rig.ask(400, None, json.dumps(body).encode())
    assert answer.code == 0, answer.remark
    found = json.loads(bytes(answer.body)).get("messageQueueAssignments")
    return None if found is None else sorted((row["messageQueue"]["queueId"], row["mode"]) for row in found)


def set_mode(rig: Rig, mode: str, share: int = 0) -> None:
    body = {"topic": "T", "consumerGroup": "g", "mode": mode, "popShareQueueNum": share}
    assert rig.ask(401, None, json.dumps(body).encode()).code == 0


def test_queues_are_divided_among_those_that_pull(tmp_path: Path) -> None:
    rig = stocked(tmp_path)
    _subscribed(rig, 1, 2, 3)
    assert assigned(rig, 1) == [(0, "PULL"), (1, "PULL")]
    assert assigned(rig, 2) == [(2, "PULL")] and assigned(rig, 3) == [(3, "PULL")]
    assert assigned(rig, 2, strategyName="AVG_BY_CIRCLE") == [(1, "PULL")]
    assert assigned(rig, 3, messageModel="BROADCASTING") == [(n, "PULL") for n in range(4)]
    assert assigned(rig, 9) == [] and assigned(rig, 1, strategyName="FAIR") is None
    assert assigned(rig, 1, consumerGroup="nobody") is None and assigned(rig, 1, topic="none") is None


def test_queues_are_shared_by_those_that_pop(tmp_path: Path) -> None:
    rig = stocked(tmp_path)
    _subscribed(rig, 1, 2, 3)
    set_mode(rig, "POP")
    assert assigned(rig, 2) == [(-1, "POP")]
    set_mode(rig, "POP", 1)
    assert assigned(rig, 2) == [(2, "POP"), (3, "POP")] and assigned(rig, 3) == [(0, "POP"), (1, "POP"), (3, "POP")]
    _subscribed(rig, 4, 5)
    assert [assigned(rig, n) for n in (1, 4, 5)] == [[(0, "POP")], [(3, "POP")], [(0, "POP")]]


def test_modes_are_durable_and_copied(tmp_path: Path) -> None:
    rig = stocked(tmp_path)
    set_mode(rig, "POP", 3)
    assert "config/messageRequestMode.json" in rig.saved
    rig = crash(rig, tmp_path)
    row = rig.parts.pop.modes.get("T", "g")
    assert row is not None and (row.mode, row.pop_share_queue_num) == ("POP", 3)
    answer = rig.ask(402)
    assert json.loads(bytes(answer.body)) == {"messageRequestModeMap": {"T": {"g": {
        "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 3, "topic": "T"
    }}}}  # fmt: skip


def test_who_may_not_pop(tmp_path: Path) -> None:
    rig = stocked(tmp_path)
    [one] = pop(rig, max_msg_nums=1)
    rig.parts.groups.rows["g"] = msgspec.structs.replace(rig.parts.groups.rows["g"], consume_enable=False)
    assert rig.ask(POP, pop_header(rig)).code == 16
    assert ack(rig, one).code == 0, "who has a message may still give it back"
    rig.parts.topics.rows["T"] = msgspec.structs.replace(rig.parts.topics.rows["T"], perm=2)
    assert rig.ask(POP, pop_header(rig, consumer_group="other")).code == 16
    rig.stop()
    rig = Rig(tmp_path, broker_permission=2)
    assert rig.ask(POP, pop_header(rig, consumer_group="other")).code == 16
    rig.stop()
    rig = Rig(tmp_path, auto_create_subscription_group=False)
    rig.parts.topics.rows["T"] = msgspec.structs.replace(rig.parts.topics.rows["T"], perm=6)
    assert rig.ask(POP, pop_header(rig, consumer_group="unknown")).code == 26


def test_a_slave_pops_nothing(tmp_path: Path) -> None:
    rig = stocked(tmp_path)
    [one] = pop(rig, max_msg_nums=1)
    rig.parts.roles.become(master=False)
    peek = PeekMessageRequest(topic="T", consumer_group="g", queue_id=-1, max_msg_nums=32)
    assert rig.ask(POP, pop_header(rig)).code == rig.ask(PEEK, peek).code == ack(rig, one).code == 2
    refused = change(rig, one, 5_000)
    assert not isinstance(refused, Popped) and refused.code == 2
    assert rig.ask(401, None, b'{"topic":"T","consumerGroup":"g","mode":"POP"}').code == 1


def test_the_vip_port_leaves_pops_to_the_main_one(tmp_path: Path) -> None:
    rig = stocked(tmp_path)
    rig.handle(Opened(7, "10.0.0.7:1", "10.0.0.9:10909", "vip"))
    for code in (POP, PEEK, NOTIFICATION, POLLING_INFO):
        assert rig.ask(code, pop_header(rig), client=7).code == 3


def test_a_peek_and_a_pop_say_how_many_are_left(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for number in range(5):
        rig.send("T", number % 2, b"m%d" % number)
    for most, queue_id in ((1, -1), (2, -1), (32, -1), (1, 0)):
        peek = PeekMessageRequest(topic="T", consumer_group="g", queue_id=queue_id, max_msg_nums=most)
        answer = rig.ask(PEEK, peek).header(PopMessageResponse)
        assert answer.rest_num == (5 if queue_id < 0 else 3), "those that it shows among them, as in the original"
