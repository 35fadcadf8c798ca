"""State files: when they are saved, behind what, and what happens when that fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.harness import NOW, Rig
from broker.requests import pull_header, send_header
from perseid.base.errors import StoreError
from perseid.base.machine import Flush, Frames, SaveState, Shutdown
from perseid.broker.kernel.saves import RETRY_MS
from perseid.disk.real import RealDisk
from perseid.wire import command, fastjson
from perseid.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData

TOPICS, GROUPS = "config/topics.json", "config/subscriptionGroup.json"
OFFSETS, DELAYS = "config/consumerOffset.json", "config/delayOffset.json"
SEND, PULL, COMMIT, HEARTBEAT, DELETE_TOPIC = 310, 11, 15, 34, 215


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.send("T")
    rig.ask(PULL, pull_header(sys_flag=4))
    rig.saved.clear()
    return rig


def commit(rig: Rig, offset: int, topic: str = "T") -> None:
    header = {"consumerGroup": "g", "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    assert rig.ask(COMMIT, header).code == 0


def waiting(rig: Rig) -> list[str]:
    return [effect.path if isinstance(effect, SaveState) else "flush" for effect in rig.io]


def saved_text(rig: Rig, path: str) -> dict[str, dict[str, object]]:
    text: dict[str, dict[str, object]] = fastjson.loads(rig.disk.read(path) or b"")
    return text


# ---- tables ----


def test_a_change_is_saved_in_its_turn(rig: Rig) -> None:
    rig.ask(SEND, send_header(topic="New"), b"x")
    assert rig.saved == [TOPICS]
    assert "New" in saved_text(rig, TOPICS)["topicConfigTable"]
    rig.ask(PULL, pull_header(topic="New", consumer_group="new", sys_flag=4))
    assert rig.saved == [TOPICS, GROUPS]
    assert "new" in saved_text(rig, GROUPS)["subscriptionGroupTable"]


def test_one_turn_one_save(rig: Rig) -> None:
    rig.connect(1)
    frames = [command.encode_request(SEND, n, send_header(topic=f"N{n}"), b"x") for n in range(5)]
    rig.handle(Frames(1, b"".join(frames)))
    assert rig.saved == [TOPICS]
    assert {f"N{n}" for n in range(5)} <= saved_text(rig, TOPICS)["topicConfigTable"].keys()
    assert {answer.opaque for answer in rig.sent[1]} == set(range(5))


def new_topic_and_group(rig: Rig) -> None:
    """A send makes a topic, a heartbeat a group, in one turn."""
    create = command.encode_request(SEND, 1, send_header(topic="New"), b"x")
    consumer = ConsumerData("new", subscription_data_set=[SubscriptionData("T", "*")])
    beat = command.encode_request(HEARTBEAT, 2, body=HeartbeatData("client", [], [consumer]).to_json())
    rig.handle(Frames(1, create + beat))


def test_answers_after_a_change_wait_for_the_save_but_pulls_do_not(rig: Rig) -> None:
    rig.connect(1)
    rig.hold_io()
    create = command.encode_request(SEND, 1, send_header(topic="New"), b"x")
    exists = command.encode_request(SEND, 2, send_header(topic="New", queue_id=1), b"x")
    pull = command.encode_request(PULL, 3, pull_header(sys_flag=4))
    rig.handle(Frames(1, create + exists + pull))
    assert [answer.opaque for answer in rig.sent[1]] == [3]
    rig.finish_io()
    assert [answer.opaque for answer in rig.sent[1]] == [3, 1, 2]


def test_a_save_that_fails_refuses_and_is_tried_again(rig: Rig) -> None:
    rig.hold_io()
    sent = rig.tell(SEND, send_header(topic="New"), b"x")
    assert waiting(rig) == [TOPICS]
    rig.fail_io("no space left")
    answer = rig.answer(sent)
    assert answer is not None and answer.code == 1 and "no space left" in (answer.remark or "")
    assert rig.stopped is None
    rig.until(NOW + RETRY_MS - 1)
    assert TOPICS not in waiting(rig)
    rig.until(NOW + RETRY_MS)
    assert TOPICS in waiting(rig)
    rig.finish_io()
    assert "New" in saved_text(rig, TOPICS)["topicConfigTable"]


@pytest.mark.parametrize("failing", [GROUPS, TOPICS])
def test_answers_wait_for_all_files_of_their_turn(rig: Rig, failing: str) -> None:
    """A send makes a topic, a heartbeat a group, in one turn: neither is answered before both files are durable,
    and both are refused when one is not saved."""
    rig.connect(1)
    rig.hold_io()
    new_topic_and_group(rig)
    assert waiting(rig) == [GROUPS, TOPICS]
    while waiting(rig)[0] != failing:
        rig.finish_io(1)
    assert not [said for said in rig.sent[1] if said.is_response]
    rig.fail_io("EIO")
    rig.finish_io()
    answers = [said for said in rig.sent[1] if said.is_response]
    assert [(answer.opaque, answer.code) for answer in answers] == [(1, 1), (2, 1)]
    assert all(failing in (answer.remark or "") for answer in answers)


# ---- offsets ----


def test_offsets_are_saved_now_and_then_behind_the_log(rig: Rig) -> None:
    commit(rig, 1)
    rig.hold_io()
    rig.until(NOW + 5_000)
    assert waiting(rig).index("flush") < waiting(rig).index(OFFSETS)
    rig.finish_io()
    assert set(saved_text(rig, OFFSETS)["offsetTable"]) == {"T@g"}
    rig.finish_io()
    rig.until(NOW + 20_000)
    assert OFFSETS not in waiting(rig), "nothing changed since"


def test_no_flush_when_the_log_is_durable(rig: Rig) -> None:
    rig.until(NOW + 4_000)  # the log's own flush
    rig._carry_out([rig.parts.store.flusher.flush([])])
    commit(rig, 1)
    rig.hold_io()
    rig.until(NOW + 5_000)
    assert OFFSETS in waiting(rig) and not any(isinstance(effect, Flush) for effect in rig.io)


def test_a_deleted_topics_offsets_go_before_it_and_behind_the_log(rig: Rig) -> None:
    rig.send("Other")
    commit(rig, 1, "Other")
    commit(rig, 1)
    rig.hold_io()
    rig.tell(DELETE_TOPIC, {"topic": "T"})
    order = waiting(rig)
    assert order.index("flush") < order.index(OFFSETS) < order.index(TOPICS)
    rig.finish_io()
    assert set(saved_text(rig, OFFSETS)["offsetTable"]) == {"Other@g"}
    assert "T" not in saved_text(rig, TOPICS)["topicConfigTable"]


def heard_late(rig: Rig) -> SaveState:
    """What waits first is durable, and the broker has not heard of that yet."""
    effect = rig.io.popleft()
    assert isinstance(effect, SaveState)
    return effect


def test_a_failure_that_is_heard_before_an_earlier_success(rig: Rig) -> None:
    """Found by a seed (acting, swarm, 45355250459): a stall lets both wait, and the failure is not behind the other."""
    rig.connect(1)
    rig.hold_io()
    new_topic_and_group(rig)
    assert waiting(rig) == [GROUPS, TOPICS]
    saved = heard_late(rig)
    rig.fail_io("EIO")
    rig._carry_out(saved.then)
    assert [said.code for said in rig.sent[1] if said.is_response] == [1, 1]
    rig.until(NOW + RETRY_MS)
    assert TOPICS in waiting(rig) and GROUPS not in waiting(rig)


def test_of_two_saves_of_one_file_neither_counts_when_one_fails(rig: Rig) -> None:
    rig.hold_io()
    first = rig.tell(SEND, send_header(topic="New"), b"x")
    second = rig.tell(SEND, send_header(topic="Newer"), b"x")
    assert waiting(rig) == [TOPICS, TOPICS]
    saved = heard_late(rig)
    rig.fail_io("EIO")
    rig._carry_out(saved.then)
    for opaque in (first, second):
        answer = rig.answer(opaque)
        assert answer is not None and answer.code == 1 and "may be lost" in (answer.remark or "")
    third = rig.tell(SEND, send_header(topic="Newest"), b"x")
    rig.finish_io()
    answer = rig.answer(third)
    assert answer is not None and answer.code == 0


# ---- begin and end ----


def test_a_clean_stop_saves_all(tmp_path: Path, rig: Rig) -> None:
    commit(rig, 1)
    rig.stop()
    of_pop = ["config/messageRequestMode.json", "config/consumerOrderInfo.json"]
    assert sorted(rig.saved) == sorted([TOPICS, GROUPS, OFFSETS, DELAYS, *of_pop])
    again = Rig(tmp_path)
    assert "T" in again.parts.topics and "g" in again.parts.groups
    assert again.parts.offsets.query("T", "g", 0) == 1
    assert again.saved == [], "nothing changed by that"


@pytest.mark.parametrize("path", [TOPICS, GROUPS, OFFSETS, DELAYS])
def test_a_stop_whose_save_fails_ends_with_the_reason(rig: Rig, path: str) -> None:
    rig.hold_io()
    rig.handle(Shutdown())
    while waiting(rig)[0] != path:
        rig.finish_io(1)
    rig.fail_io("EIO")
    assert rig.stopped is not None and path in rig.stopped and "EIO" in rig.stopped
    assert rig.broker.next_deadline() is None


def test_the_backup_counts_when_the_file_is_spoilt(tmp_path: Path, rig: Rig) -> None:
    rig.stop()
    disk = RealDisk(str(tmp_path))
    disk.write(TOPICS + ".bak", disk.read(TOPICS) or b"")
    disk.write(TOPICS, b'{"dataVersion":{"coun')
    assert "T" in Rig(tmp_path).parts.topics


def test_a_file_that_is_something_else_stops_the_start(tmp_path: Path, rig: Rig) -> None:
    rig.stop()
    RealDisk(str(tmp_path)).write(GROUPS, json.dumps([1, 2]).encode())
    with pytest.raises(StoreError, match="can't be taken up"):
        Rig(tmp_path)
