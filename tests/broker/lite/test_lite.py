"""Lite topics at a broker: what clients read, what they pop, in order, and what operators see of it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from broker.harness import Rig
from broker.lites import (
    BROKER_INFO,
    CLIENT,
    CLIENT_INFO,
    GROUP,
    INVISIBLE_MS,
    NOTIFY,
    PARENT,
    POP_LITE,
    TOPIC_INFO,
    TRIGGER,
    ack,
    ask,
    bodies,
    group,
    new,
    parent,
    pop,
    pop_header,
    put_off,
    send,
    subscribe,
)
from broker.requests import SUBSCRIPTION, pull_header
from perseid.base.machine import Closed, Frames, Opened
from perseid.broker.lite.registry import Registry
from perseid.wire.command import Command, encode_request
from perseid.wire.headers.lite import NotifyUnsubscribeLiteRequest
from perseid.wire.lite import lite_of, parent_of, queue_name
from perseid.wire.lite_sharding import bucket, place_of
from perseid.wire.record import decode_all

A, B = queue_name(PARENT, "a"), queue_name(PARENT, "b")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return new(tmp_path)


def body_of(answer: Command) -> dict[str, Any]:
    assert answer.code == 0, (answer.code, answer.remark)
    found: dict[str, Any] = json.loads(bytes(answer.body))
    return found


# ---- names ----


def test_names_of_queues() -> None:
    assert A == "%LMQ%$P$a" and (parent_of(A), lite_of(A)) == (PARENT, "a")
    for name in ("%LMQ%a", "%LMQ%$", "%LMQ%$P", "%LMQ%$P$", "%LMQ%$$a", "%LMQ%$P$a$b", "P$a"):
        assert (parent_of(name), lite_of(name)) == (None, None)


def test_a_lite_topic_belongs_to_the_broker_that_guava_says() -> None:
    """Numbers of Guava 32's Hashing.consistentHash."""
    assert [bucket(0, count) for count in (1, 2, 10, 1000)] == [0, 0, 0, 0]
    moved = [n for n in range(10_000) if bucket(n, 11) != bucket(n, 10)]
    assert all(bucket(n, 11) == 10 for n in moved) and 700 < len(moved) < 1_100
    assert {place_of(f"lite{n}", ["a", "a", "b"]) for n in range(50)} == {"a", "b"}


# ---- sends ----


def test_a_message_names_its_lite_topic(rig: Rig) -> None:
    for number in range(2):
        assert send(rig, "a", b"%d" % number, INNER_MULTI_DISPATCH="%LMQ%other").code == 0
    assert rig.parts.store.reads.max_offset(A, 0) == 2 and rig.parts.store.reads.max_offset("%LMQ%other", 0) == 0
    answer = rig.ask(11, pull_header(topic=A, queue_id=0, sys_flag=SUBSCRIPTION))
    assert bodies(decode_all(answer.body)) == [b"0", b"1"]


# ---- pops, in order ----


def test_a_client_pops_what_it_reads(rig: Rig) -> None:
    send(rig, "a", b"a0")
    send(rig, "b", b"b0")
    assert pop(rig) == [], "it reads nothing yet"
    assert subscribe(rig, "a").code == 0
    got = pop(rig)
    assert bodies(got) == [b"a0"]
    send(rig, "a", b"a1")
    assert pop(rig) == [], "the first one is out"
    assert ack(rig, got[0]).code == 0
    assert rig.parts.offsets.query(A, GROUP, 0) == 1
    rig.until(rig.now + 1)
    assert bodies(pop(rig)) == [b"a1"]
    assert rig.parts.store.reads.max_offset("%RETRY%lg_P", 0) == 0


def test_what_is_not_acknowledged_comes_again_first(rig: Rig) -> None:
    subscribe(rig, "a")
    for number in range(3):
        send(rig, "a", b"%d" % number)
    first = pop(rig, max_msg_num=2)
    then = rig.now
    assert bodies(first) == [b"0", b"1"] and ack(rig, first[0]).code == 0
    rig.until(rig.now + INVISIBLE_MS - 10)
    assert pop(rig) == []
    rig.until(rig.now + 100)
    answer = ask(rig)
    assert bodies(decode_all(answer.body)) == [b"1", b"2"]
    assert answer.ext["orderCountInfo"] == "1;0" and answer.ext["reviveQid"] == "999"
    assert ack(rig, first[1], then).code == 13, "it is out anew"
    assert ack(rig, first[0], then).code == 0, "long consumed"


def test_another_time_for_a_message_and_for_a_batch(rig: Rig) -> None:
    subscribe(rig, "a")
    send(rig, "a", b"0")
    send(rig, "a", b"1")
    first = pop(rig)
    then = rig.now
    changed = put_off(rig, first[0], 60_000)
    assert (changed.code, changed.ext["popTime"]) == (0, str(then))
    assert put_off(rig, first[1], 60_000).code == 0
    rig.until(then + INVISIBLE_MS + 1_000)
    assert pop(rig) == []
    assert put_off(rig, first[0], 1_000, then, suspend=True).code == 0
    rig.until(rig.now + 2_000)
    assert bodies(pop(rig)) == [b"0", b"1"]
    assert put_off(rig, first[0], 1_000, then).code == 208


@pytest.mark.parametrize("suspend", [False, True])
def test_who_had_messages_before_changes_nothing_of_who_has_them_now(rig: Rig, suspend: bool) -> None:
    subscribe(rig, "a")
    send(rig, "a", b"0")
    (record,) = pop(rig)
    old = rig.now
    rig.until(rig.now + INVISIBLE_MS + 100)
    assert bodies(pop(rig)) == [b"0"]
    again = rig.now
    assert put_off(rig, record, 0, old, suspend=suspend).code == 208 and ack(rig, record, old).code == 13
    rig.until(rig.now + 100)
    assert pop(rig) == [], "it is still out"
    assert put_off(rig, record, 0, again, suspend=suspend).code == 0
    rig.until(rig.now + 100)
    assert bodies(pop(rig)) == [b"0"]


def test_nothing_is_put_off_where_nothing_is_out(rig: Rig) -> None:
    subscribe(rig, "a")
    send(rig, "a", b"0")
    (record,) = pop(rig)
    group(rig, "other")
    for suspend in (False, True):
        assert put_off(rig, record, 0, suspend=suspend, consumer_group="other").code == 208


def test_an_attempt_is_repeated(rig: Rig) -> None:
    subscribe(rig, "a")
    send(rig, "a", b"0")
    assert bodies(pop(rig, attempt_id="x")) == [b"0"]
    rig.until(rig.now + 5)
    send(rig, "a", b"1")
    assert bodies(pop(rig, attempt_id="x")) == [b"0", b"1"], "its answer was lost"
    rig.until(rig.now + 5)
    send(rig, "a", b"2")
    assert pop(rig, attempt_id="y") == []


def test_one_pop_takes_of_several_lite_topics(rig: Rig) -> None:
    subscribe(rig, "a", "b", "c")
    for name in ("a", "b", "a", "c"):
        send(rig, name, name.encode())
    answer = ask(rig, max_msg_num=3)
    assert bodies(decode_all(answer.body)) == [b"a", b"a", b"b"]
    assert answer.ext["orderCountInfo"] == "0;0;0"
    assert bodies(pop(rig)) == [b"c"]


def test_all_lite_topics_of_a_pop_share_its_bytes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    subscribe(rig, "a", "b")
    for name in "aabbbb":
        send(rig, name, name.encode() * 100)
    size = rig.parts.store.log.end // 6
    monkeypatch.setattr("perseid.broker.lite.requests.MAX_BYTES", 3 * size + size // 2)
    assert [one.body[:1] for one in pop(rig)] == [b"a", b"a", b"b"]


def test_a_pop_waits_for_a_message(rig: Rig) -> None:
    subscribe(rig, "a")
    rig.connect(7)
    rig.handle(Frames(7, encode_request(POP_LITE, 5, pop_header(rig, poll_time=10_000))))
    assert rig.sent.get(7, []) == []
    send(rig, "b", b"not this")
    send(rig, "a", b"this")
    (answer,) = rig.sent[7]
    assert bodies(decode_all(answer.body)) == [b"this"]
    rig.handle(Frames(7, encode_request(POP_LITE, 6, pop_header(rig, poll_time=10_000))))
    rig.until(rig.now + 11_000)
    assert [one.code for one in rig.sent[7]] == [0, 210]
    rig.handle(Frames(7, encode_request(POP_LITE, 7, pop_header(rig, poll_time=10_000))))
    rig.handle(Closed(7, "gone"))
    send(rig, "a", b"later")
    assert rig.parts.holds.count == 0


def test_what_was_set_back_is_read_again(rig: Rig) -> None:
    for number in range(4):
        send(rig, "a", b"%d" % number)
    subscribe(rig, "a")
    got = pop(rig)
    assert bodies(got) == [b"0", b"1", b"2", b"3"]
    for record in got:
        assert ack(rig, record).code == 0
    for option, wanted in (
        ({"type": "TAIL_N", "value": 1}, [b"3"]),
        ({"type": "OFFSET", "value": 2}, [b"2", b"3"]),
        ({"type": "POLICY", "value": 1}, [b"0", b"1", b"2", b"3"]),
        ({"type": "POLICY", "value": 2}, []),
        ({"type": "POLICY", "value": 0}, []),
        ({"type": "TIMESTAMP", "value": 5}, []),
    ):
        rig.until(rig.now + 10)
        assert subscribe(rig, "a", offsetOption=option).code == 0
        got = pop(rig)
        assert bodies(got) == wanted, option
        for record in got:
            ack(rig, record)


def test_messages_that_the_log_has_lost_are_passed_over(rig: Rig) -> None:
    subscribe(rig, "a")
    send(rig, "a", b"0")
    rig.parts.offsets.commit(A, GROUP, 0, 9, rig.now, 1)
    rig.ask(TRIGGER, {"group": GROUP})
    send(rig, "a", b"1")
    rig.parts.offsets.commit(A, GROUP, 0, 1, rig.now, 1)
    rig.ask(TRIGGER, {"group": GROUP})
    assert bodies(pop(rig)) == [b"1"]


# ---- what clients read ----


def test_syncs_and_partial_changes(rig: Rig) -> None:
    registry = rig.parts.lite.registry
    assert subscribe(rig, "a", "b", action="COMPLETE_ADD").code == 0
    assert list(registry.readers[CLIENT].names) == [A, B] and registry.count == 2
    assert subscribe(rig, "b", "c", action="COMPLETE_ADD").code == 0
    assert set(registry.readers[CLIENT].names) == {B, queue_name(PARENT, "c")}
    assert subscribe(rig, "c", "unknown", action="PARTIAL_REMOVE").code == 0
    assert list(registry.readers[CLIENT].names) == [B] and registry.count == 1
    assert subscribe(rig, action="COMPLETE_REMOVE").code == 0
    assert registry.readers == {} and registry.count == 0
    assert subscribe(rig, "c", action="PARTIAL_REMOVE").code == 0


def test_clients_of_a_group_share_and_groups_do_not(rig: Rig) -> None:
    group(rig, "other")
    for client in ("c1", "c2"):
        subscribe(rig, "a", client=client)
    subscribe(rig, "a", client="d", of="other")
    send(rig, "a", b"x")
    got = [pop(rig, client_id=client) for client in ("c1", "c2")]
    assert sorted(map(bodies, got)) == [[], [b"x"]]
    assert bodies(pop(rig, client_id="d", consumer_group="other")) == [b"x"]


def two_readers(rig: Rig) -> tuple[str, str]:
    """A message has come for two clients of a group: who has the event, and who has not."""
    for client in ("c1", "c2"):
        subscribe(rig, "a", client=client)
    send(rig, "a", b"x")
    (one,) = (client for client, events in rig.parts.lite.events.items() if events.names)
    return one, {"c1": "c2", "c2": "c1"}[one]


def test_who_does_not_come_loses_what_waits_for_it(rig: Rig) -> None:
    _, other = two_readers(rig)
    got = pop(rig, client_id=other)
    for _ in range(5):
        assert got == []
        rig.until(rig.now + 5_000)
        got = pop(rig, client_id=other)
        if got:
            break
    assert bodies(got) == [b"x"]


def test_who_leaves_hands_on_what_waits_for_it(rig: Rig) -> None:
    one, other = two_readers(rig)
    subscribe(rig, client=one, action="COMPLETE_REMOVE")
    assert bodies(pop(rig, client_id=other)) == [b"x"]


def test_who_says_nothing_is_forgotten(rig: Rig) -> None:
    subscribe(rig, "a")
    rig.until(rig.now + 170_000)
    assert CLIENT in rig.parts.lite.registry.readers
    subscribe(rig, "a")
    rig.until(rig.now + 170_000)
    assert CLIENT in rig.parts.lite.registry.readers
    rig.until(rig.now + 310_000)
    assert rig.parts.lite.registry.readers == {} and rig.parts.lite.registry.count == 0


def test_a_wildcard_group_reads_everything(rig: Rig) -> None:
    group(rig, "all", lite_sub_wildcard="true")
    send(rig, "a", b"before")
    refused = subscribe(rig, "a", of="all", client="w")
    assert refused.code == 604
    assert subscribe(rig, of="all", client="w", action="COMPLETE_ADD").code == 0
    assert pop(rig, client_id="w", consumer_group="all") == []
    rig.until(rig.now + 6_000)
    assert bodies(pop(rig, client_id="w", consumer_group="all")) == [b"before"]
    send(rig, "z", b"after")
    assert bodies(pop(rig, client_id="w", consumer_group="all")) == [b"after"]
    info = body_of(rig.ask(TOPIC_INFO, {"parentTopic": PARENT, "liteTopic": "z"}))
    assert info["subscriber"] == [{"clientId": "*", "group": "all"}]
    asked = {"parentTopic": PARENT, "group": "all", "clientId": "w", "maxCount": "5"}
    assert body_of(rig.ask(CLIENT_INFO, asked))["liteTopicSet"] == ["P@all"]
    assert subscribe(rig, of="all", client="w", action="COMPLETE_REMOVE").code == 0
    assert rig.parts.lite.registry.count == 0


@pytest.mark.parametrize("reset", ["true", "false"])
def test_an_exclusive_group_has_one_reader(rig: Rig, reset: str) -> None:
    group(rig, "only", lite_sub_model="Exclusive", lite_sub_reset_offset_exclusive=reset)
    rig.connect(8)
    rig.connect(9)
    send(rig, "a", b"0")
    subscribe(rig, "a", of="only", client="first", conn=8)
    (record,) = pop(rig, consumer_group="only", client_id="first")
    assert ack(rig, record, consumer_group="only").code == 0
    before = len(rig.sent[8])
    assert subscribe(rig, "a", of="only", client="second", conn=9).code == 0
    (told,) = rig.sent[8][before:]
    assert told.code == NOTIFY and told.header(NotifyUnsubscribeLiteRequest) == NotifyUnsubscribeLiteRequest(
        lite_topic="a", consumer_group="only", client_id="first"
    )
    assert list(rig.parts.lite.registry.readers) == ["second"]
    rig.until(rig.now + 10)
    wanted = [b"0"] if reset == "true" else []
    assert bodies(pop(rig, consumer_group="only", client_id="second")) == wanted


def test_who_missed_that_it_reads_no_longer_is_told_again(rig: Rig) -> None:
    """A client whose notice was lost goes on saying that it reads; it must not become a second reader."""
    group(rig, "only", lite_sub_model="Exclusive")
    rig.connect(8)
    rig.connect(9)
    send(rig, "a", b"0")
    send(rig, "b", b"0")
    subscribe(rig, "a", "b", of="only", client="first", conn=8)
    subscribe(rig, "a", of="only", client="second", conn=9)
    before = len(rig.sent[8])
    subscribe(rig, "a", "b", of="only", client="first", conn=8, action="COMPLETE_ADD")
    told = [one.header(NotifyUnsubscribeLiteRequest).lite_topic for one in rig.sent[8][before:] if one.code == NOTIFY]
    assert told == ["a"]
    readers = {name: sorted(one.names) for name, one in rig.parts.lite.registry.readers.items()}
    assert readers == {"first": ["%LMQ%$P$b"], "second": ["%LMQ%$P$a"]}


def test_a_group_may_begin_anew_when_it_ends_reading(rig: Rig) -> None:
    group(rig, lite_sub_reset_offset_unsubscribe="true")
    send(rig, "a", b"0")
    for _ in range(2):
        subscribe(rig, "a")
        rig.until(rig.now + 10)
        (record,) = pop(rig)
        assert ack(rig, record).code == 0
        subscribe(rig, "a", action="PARTIAL_REMOVE")


def test_what_does_not_fit_a_clients_events_comes_later(tmp_path: Path) -> None:
    rig = new(tmp_path, max_client_event_count=2)
    names = [f"n{number}" for number in range(5)]
    subscribe(rig, *names)
    for name in names:
        send(rig, name, name.encode())
    assert len(rig.parts.lite.events[CLIENT].names) == 2
    got = pop(rig)
    assert bodies(got) == [b"n0", b"n1"]
    for _ in range(3):
        rig.until(rig.now + 10_100)
        got += pop(rig, invisible_time=200_000)
    assert {record.body for record in got} == {name.encode() for name in names}


# ---- quotas, ends ----


def test_more_subscriptions_than_there_may_be(tmp_path: Path) -> None:
    rig = new(tmp_path, max_lite_subscription_count=2)
    assert subscribe(rig, "a", "b").code == 0
    for action in ("PARTIAL_ADD", "COMPLETE_ADD"):
        refused = subscribe(rig, "a", "b", "c", action=action)
        assert refused.code == 2018 and "lite subscription quota exceeded" in (refused.remark or "")
    assert rig.parts.lite.registry.count == 2
    assert subscribe(rig, "a", "b").code == 0, "nothing new"


def test_a_lite_topic_ends_when_nothing_is_sent_for_long(tmp_path: Path) -> None:
    rig = new(tmp_path, attributes="+message.type=LITE,+lite.topic.expiration=20")
    subscribe(rig, "a")
    send(rig, "a", b"old")
    assert bodies(pop(rig)) == [b"old"]
    rig.until(rig.now + 10 * 60_000)
    send(rig, "b", b"young")
    rig.parts.offsets.commit(A, GROUP, 0, 1, rig.now, 1)
    rig.until(rig.now + 13 * 60_000)
    assert rig.parts.lite.names() == [B]
    assert rig.parts.offsets.query(A, GROUP, 0) is None and rig.parts.store.reads.max_offset(A, 0) == 0
    subscribe(rig, "a")
    send(rig, "a", b"new")
    assert bodies(pop(rig)) == [b"new"]


def test_a_lite_topic_of_before_a_restart_ends_too(tmp_path: Path) -> None:
    rig = new(tmp_path, attributes="+message.type=LITE,+lite.topic.expiration=20")
    send(rig, "a", b"old")
    rig.stop()
    again = Rig(tmp_path, store=rig.parts.store.config, now=rig.now + 10 * 60_000)
    again.until(again.now + 9 * 60_000)
    assert again.parts.lite.names() == [A]
    again.until(again.now + 8 * 60_000)
    assert again.parts.lite.names() == []


def test_a_slave_removes_it_too_later(tmp_path: Path) -> None:
    rig = new(tmp_path, attributes="+message.type=LITE,+lite.topic.expiration=20")
    send(rig, "a", b"old")
    rig.parts.roles.become(master=False)
    rig.until(rig.now + 28 * 60_000)
    assert rig.parts.lite.names() == [A]
    rig.until(rig.now + 6 * 60_000)
    assert rig.parts.lite.names() == []


def test_who_is_nobody_leaves_nothing_behind(rig: Rig) -> None:
    for number in range(50):
        assert pop(rig, client_id=f"stranger-{number}") == []
    assert rig.parts.lite.events == {} and rig.parts.lite.registry.readers == {}


def test_without_an_expiration_none_ends(rig: Rig) -> None:
    send(rig, "a", b"old")
    rig.until(rig.now + 60 * 60_000)
    assert rig.parts.lite.names() == [A]


def test_a_parent_is_deleted_with_all_of_its_lite_topics(rig: Rig) -> None:
    parent(rig, "Q")
    send(rig, "a", b"x")
    send(rig, "b", b"x")
    send(rig, "a", b"x", topic="Q")
    rig.parts.offsets.commit(A, GROUP, 0, 1, rig.now, 1)
    assert rig.ask(215, {"topic": PARENT}).code == 0
    assert rig.parts.lite.names() == [queue_name("Q", "a")]
    assert rig.parts.offsets.query(A, GROUP, 0) is None


def test_a_group_is_deleted_with_its_offsets(rig: Rig) -> None:
    rig.parts.offsets.commit(A, GROUP, 0, 1, rig.now, 1)
    assert rig.ask(207, {"groupName": GROUP, "cleanOffset": "false"}).code == 0
    assert rig.parts.offsets.query(A, GROUP, 0) is None


def test_a_restart_goes_on_where_the_group_was(rig: Rig, tmp_path: Path) -> None:
    subscribe(rig, "a")
    for number in range(3):
        send(rig, "a", b"%d" % number)
    got = pop(rig)
    assert ack(rig, got[0]).code == 0
    rig.stop()
    again = Rig(tmp_path, store=rig.parts.store.config, now=rig.now + 10)
    assert pop(again) == []
    subscribe(again, "a", action="COMPLETE_ADD")
    assert bodies(pop(again)) == [b"1", b"2"]


# ---- what operators see ----


def test_offsets_by_time_in_a_lite_topic(rig: Rig) -> None:
    send(rig, "a", b"0")
    rig.until(rig.now + 5_000)
    send(rig, "a", b"1")
    asked = {"topic": PARENT, "queueId": "0", "timestamp": str(rig.now - 1), "liteTopic": "a"}
    assert rig.ask(29, asked).ext["offset"] == "1"


def test_events_are_of_what_readers_can_see(rig: Rig) -> None:
    """Under a controller a gate tells what readers see, of light queues too."""
    subscribe(rig, "a")
    rig.parts.store.appends.on_light = None
    send(rig, "a", b"0")
    assert pop(rig) == []
    queue = rig.parts.store.queues.get(A, 0)
    assert queue is not None
    rig.parts.arrivals._shown(queue, 0, 1)
    assert bodies(pop(rig)) == [b"0"]


# ---- who may, and roles ----


def test_who_may_not_pop(rig: Rig) -> None:
    subscribe(rig, "a")
    send(rig, "a", b"0")
    (record,) = pop(rig)
    groups, topics = rig.parts.groups, rig.parts.topics
    groups.rows[GROUP] = msgspec.structs.replace(groups.rows[GROUP], consume_enable=False)
    assert ask(rig).code == 16
    assert subscribe(rig, "b").code == 604
    assert ack(rig, record).code == 0, "who has a message may still give it back"
    group(rig, "other")
    topics.rows[PARENT] = msgspec.structs.replace(topics.rows[PARENT], perm=2)
    assert ask(rig, consumer_group="other").code == 16


def test_without_light_queues_there_are_none(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert parent(rig).code == 1 and rig.parts.topics.get(PARENT) is None
    assert parent(rig, attributes="").code == 0 and group(rig).code == 0
    assert send(rig, "a", b"x").code == 0 and rig.parts.store.reads.max_offset(A, 0) == 0
    assert subscribe(rig, "a").code == 604 and ask(rig).code == 29
    assert body_of(rig.ask(BROKER_INFO))["currentLmqNum"] == 0


def test_a_slave_has_no_readers(rig: Rig) -> None:
    subscribe(rig, "a")
    send(rig, "a", b"0")
    (record,) = pop(rig)
    rig.parts.roles.become(master=False)
    assert subscribe(rig, "a").code == ask(rig).code == rig.ask(TRIGGER, {"group": GROUP}).code == 2
    assert ack(rig, record).code == put_off(rig, record, 5).code == 2
    assert body_of(rig.ask(BROKER_INFO))["liteSubscriptionCount"] == 0


def test_a_change_of_roles_drops_readers(rig: Rig) -> None:
    subscribe(rig, "a")
    waiting = rig.tell(POP_LITE, pop_header(rig, poll_time=50_000), client=2)
    rig.parts.roles.become(master=False)
    rig.until(rig.now + 10)
    answer = rig.answer(waiting, 2)
    assert answer is not None and answer.code == 2
    rig.parts.roles.become(master=True)
    send(rig, "a", b"0")
    assert pop(rig) == [], "it has to say again what it reads"
    subscribe(rig, "a", action="COMPLETE_ADD")
    assert bodies(pop(rig)) == [b"0"]


def test_the_vip_port_leaves_pops_to_the_main_one(rig: Rig) -> None:
    rig.handle(Opened(7, "10.0.0.7:1", "10.0.0.9:10909", "vip"))
    assert ask(rig, conn=7).code == 3 and subscribe(rig, "a", conn=7).code == 0


# ---- the table of readers ----


def test_many_changes_leave_the_table_whole() -> None:
    random, registry = Random(5), Registry()
    for step in range(3_000):
        client, name = f"c{random.randrange(8)}", queue_name("P", f"n{random.randrange(12)}")
        reader = registry.reader(client, f"g{ord(client[-1]) % 3}", "P", step)
        act = random.randrange(10)
        if act < 5:
            registry.add(reader, name)
        elif act < 8:
            registry.remove(reader, name)
        elif act == 8:
            registry.drop(client)
        elif client in ("c0", "c1"):
            registry.read_all(reader)
        else:
            registry.forget_queue(name)
        registry.validate()
    for client in list(registry.readers):
        registry.drop(client)
    assert registry.count == 0 and registry.readers_of(queue_name("P", "n1"), "P") == {}
