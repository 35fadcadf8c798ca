"""POP over starts and changes of roles, what is durable when, and what the revive log looks like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.harness import NOW, SMALL, Rig, records
from broker.pops import (
    ACK,
    BATCH_ACK,
    INVISIBLE_MS,
    POP,
    REVIVE_TOPIC,
    Popped,
    ack,
    ack_header,
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
from perseid.broker.metadata.groups import GROUPS_PATH
from perseid.broker.metadata.topics import TOPICS_PATH
from perseid.broker.pop import service
from perseid.raft.config import RaftConfig
from perseid.store.config import SYNC_FLUSH
from perseid.store.results import AppendRefused, PutStatus
from perseid.wire import pop as wire
from perseid.wire.names import REVIVE_GROUP
from perseid.wire.pop import BatchAck, Checkpoint, Handle

# ---- starts over ----


@pytest.mark.parametrize("clean", [True, False])
def test_what_is_out_stays_out_over_a_start(tmp_path: Path, clean: bool) -> None:
    """Neither is a message lost nor does it come before its time, whatever was saved of the offsets."""
    rig = stocked(tmp_path, 8)
    first = pop(rig, max_msg_nums=3)
    rig.until(NOW + 6_000)  # offsets are saved in between
    second = pop(rig, max_msg_nums=3)
    assert ack(rig, first[0]).code == ack(rig, second[0]).code == 0
    if clean:
        rig.stop()
        rig = Rig(tmp_path, now=rig.now)
    else:
        rig = crash(rig, tmp_path)
    left = pop(rig)
    assert sorted(bodies([*first, *second, *left])) == [b"m%d" % n for n in range(8)]
    for one in left:
        ack(rig, one)
    assert ack(rig, first[1]).code == 0
    rig.until(NOW + INVISIBLE_MS - 1)
    assert pop(rig) == []
    rig.until(NOW + INVISIBLE_MS)
    again = pop(rig)
    assert bodies(again) == [first[2].body]
    rig.until(NOW + 6_000 + INVISIBLE_MS)
    assert sorted(bodies(pop(rig))) == sorted(bodies(second[1:]))
    for queue in range(8):
        assert rig.parts.store.reads.max_offset(REVIVE_TOPIC, queue) >= 0


def test_more_time_passes_over_nothing_where_a_power_cut_took_the_pop(tmp_path: Path) -> None:
    lost, rig = [Rig(tmp_path / name) for name in ("lost", "kept")]
    for one in (lost, rig):
        for number in range(3):
            one.send("T", 0, b"m%d" % number)
    last = pop(lost)[2]  # its checkpoint is not in the other log
    rig.until(NOW + 1_000)
    rig = crash(rig, tmp_path / "kept")
    is_changed(change(rig, last, INVISIBLE_MS))
    assert bodies(pop(rig)) == [b"m0", b"m1", b"m2"]


def test_what_came_again_does_not_come_twice_after_a_crash(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 2)
    pop(rig)
    rig.until(NOW + INVISIBLE_MS)
    again = pop(rig)
    assert len(again) == 2 and ack(rig, again[0]).code == 0
    rig = crash(rig, tmp_path)
    rig.until(NOW + 3 * INVISIBLE_MS)
    assert bodies(pop(rig)) == [again[1].body]


@pytest.mark.parametrize("separate", [False, True])
def test_what_came_again_is_there_though_its_topic_was_not_saved(tmp_path: Path, separate: bool) -> None:
    """Simulator, `acting`, swarm, seed 8601051: the log had the message and the ack, and the table no retry topic."""
    rig = stocked(tmp_path, 3, use_separate_retry_queue=separate)
    before = rig.disk.read(TOPICS_PATH) or b""
    assert len(pop(rig)) == 3
    rig.until(NOW + INVISIBLE_MS)
    assert before != rig.disk.read(TOPICS_PATH), "there is a retry topic now"
    rig.disk.write(TOPICS_PATH, before)
    again = crash(rig, tmp_path, use_separate_retry_queue=separate)
    assert [one.topic for one in pop(again)] == ["%RETRY%g_T"] * 3
    assert b"%RETRY%g_T" in (again.disk.read(TOPICS_PATH) or b""), "it is saved with the start"


def test_what_is_out_comes_again_though_its_group_was_not_saved(tmp_path: Path) -> None:
    """The first pop of a group makes it known: its checkpoint may be durable before."""
    rig = stocked(tmp_path, 3)
    before = rig.disk.read(GROUPS_PATH) or b"{}"
    assert len(pop(rig)) == 3
    rig.disk.write(GROUPS_PATH, before)
    again = crash(rig, tmp_path)
    again.until(NOW + INVISIBLE_MS)
    assert len(pop(again)) == 3 and "g" in again.parts.groups


def test_a_reset_stays_over_a_start(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for number in range(3):
        rig.send("T", 0, b"m%d" % number)
    got = pop(rig)
    rig.until(NOW + 2_000)
    rig.parts.offsets.reset("T", "g", 0, 1)
    rig.until(NOW + 11_000)
    rig = crash(rig, tmp_path)
    assert bodies(pop(rig)) == [b"m1", b"m2"]
    assert ack(rig, got[0]).code == 0


def test_progress_is_told_up_to_the_oldest_open_checkpoint(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for number in range(3):
        rig.send("T", 0, b"m%d" % number)
    got = [pop(rig, max_msg_nums=1)[0] for _ in range(3)]
    queue = got[0].handle.revive_queue

    def progress() -> int | None:
        rig.until(rig.now + 2_000)
        return rig.parts.offsets.query(REVIVE_TOPIC, REVIVE_GROUP, queue)

    assert progress() is None
    ack(rig, got[1])
    assert progress() is None
    ack(rig, got[0])
    assert progress() == 1  # the third checkpoint stands at 2
    ack(rig, got[2])
    assert progress() == 5


def test_many_records_are_taken_up_turn_by_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = stocked(tmp_path, 12)
    got = [one for _ in range(12) for one in pop(rig, max_msg_nums=1)]
    monkeypatch.setattr(service, "LOADED_A_TURN", 5)
    rig = crash(rig, tmp_path)
    rig.send("T", 0, b"new")
    assert not rig.parts.pop.loaded and rig.ask(POP, pop_header(rig)).code == 210
    waiting = rig.tell(POP, pop_header(rig, poll_time=5_000))
    assert ack(rig, got[0]).code == 0
    rig.until(rig.now + 1)
    answer = rig.answer(waiting)
    assert answer is not None and bodies(read_pop(answer)) == [b"new"]
    rig.until(NOW + INVISIBLE_MS)
    assert sorted(bodies(pop(rig))) == sorted([b"new", *bodies(got[1:])])


def test_a_new_master_goes_on(tmp_path: Path) -> None:
    rig = stocked(tmp_path)
    got = pop(rig)
    waiting = rig.tell(POP, pop_header(rig, poll_time=50_000), client=2)
    rig.parts.roles.become(master=False)
    rig.until(rig.now + 1)
    assert len(rig.parts.pop) == 0
    rig.until(NOW + 2 * INVISIBLE_MS)
    answer = rig.answer(waiting, 2)
    assert answer is not None and answer.code in (2, 210)
    rig.parts.roles.become(master=True)
    assert len(rig.parts.pop) == 3
    rig.until(rig.now + 1)
    assert sorted(bodies(pop(rig))) == sorted(bodies(got))


# ---- durability ----


def test_messages_leave_when_their_checkpoint_is_durable(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store=replace(SMALL, flush_disk_type=SYNC_FLUSH))
    rig.send("T", 0, b"m")
    rig.hold_io()
    waiting = rig.tell(POP, pop_header(rig))
    assert rig.answer(waiting) is None
    rig.finish_io()
    while rig.io:
        rig.finish_io()
    answer = rig.answer(waiting)
    assert answer is not None
    [one] = read_pop(answer)
    rig.finish_io()
    opaque = rig.tell(200051, {
        "consumerGroup": "g", "topic": "T", "queueId": "0", "offset": "0", "extraInfo": str(one.handle)
    })  # fmt: skip
    assert rig.answer(opaque) is None
    while rig.io:
        rig.finish_io()
    assert rig.answer(opaque) is not None


def test_an_ack_that_is_repeated_waits_for_the_first_one(tmp_path: Path) -> None:
    """Nobody waits for the message any more: because of a record that power may still take."""
    rig = Rig(tmp_path, store=replace(SMALL, flush_disk_type=SYNC_FLUSH))
    rig.send("T", 0, b"m")
    [one] = pop(rig)
    handle = one.handle
    row = BatchAck("g", "T", handle.retry, 0, 0, handle.revive_queue, handle.pop_time, handle.invisible_time, (0,))
    rig.hold_io()
    asked = [rig.tell(ACK, ack_header(one)) for _ in range(2)]
    asked.append(rig.tell(BATCH_ACK, None, wire.batch_ack_body("b", [row])))
    assert [rig.answer(opaque) for opaque in asked] == [None] * 3
    assert [tag for tag, _ in revive_log(rig)] == ["ck", "ack"]
    while rig.io:
        rig.finish_io()
    answers = list(map(rig.answer, asked))
    assert all(answer is not None and answer.code == 0 for answer in answers)
    assert ack(rig, one).code == 0, "at once: there is nothing to wait for"


def test_a_log_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = stocked(tmp_path)
    [one, *_] = pop(rig, max_msg_nums=1)

    def refuse(*_: object) -> object:
        raise AppendRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(rig.parts.store.appends, "append", refuse)
        assert rig.ask(POP, pop_header(rig)).code == 14
        assert ack(rig, one).code == 14
        rig.until(NOW + INVISIBLE_MS)
        assert len(rig.parts.pop) == 1
    rig.until(rig.now + 1_000)
    assert len(pop(rig)) == 3


# ---- the revive log ----


def test_records_are_the_originals(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 1)
    [one] = pop(rig)
    ack(rig, one)
    (tag, found), (ack_tag, done) = revive_log(rig)
    assert (tag, ack_tag) == ("ck", "ack")
    assert found == {
        "bm": 0, "bn": "b", "c": "g", "d": [0], "it": INVISIBLE_MS, "n": 1, "pt": NOW, "q": 0,
        "reviveTime": NOW + INVISIBLE_MS, "ro": 0, "so": 0, "sp": False, "t": "T",
    }  # fmt: skip
    assert done == {"ao": 0, "bn": "b", "c": "g", "pt": NOW, "q": 0, "so": 0, "t": "T"}


def _append(rig: Rig, tag: str, body: bytes, queue_id: int = 3, deliver_at: int = 0) -> None:
    """A record that another one wrote, or that the timer wheel brought."""
    rig.send(REVIVE_TOPIC, queue_id, body, properties(TAGS=tag, TIMER_OUT_MS=1, TIMER_DELIVER_MS=deliver_at or NOW))


def test_records_that_the_timer_wheel_of_the_original_brings(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 2)
    rig.parts.groups.find("g", rig.config, rig.now)
    rig.until(NOW + 30_000)
    made = Checkpoint("T", "g", 0, 0, NOW, 31_000, "b", (0,))
    other = Checkpoint("T", "g", 1, 0, NOW, 31_000, "b", (0,))
    for one in (made, other):
        _append(rig, "ck", one.to_json(), deliver_at=NOW + 30_000)
    rig.until(NOW + 31_500)
    assert [r.body for r in records(rig, "%RETRY%g_T")] == []  # its acks come no sooner
    done = wire.Ack("T", "g", 0, 0, NOW, "b", (0,))
    _append(rig, "ack", done.to_json(), deliver_at=NOW + 31_000)
    rig.until(NOW + 60_000)
    assert [r.body for r in records(rig, "%RETRY%g_T")] == [b"m1"]
    assert pop(rig, queue_id=0) == [] or rig.parts.offsets.query("T", "g", 0) == 1


def test_a_checkpoint_that_the_wheel_of_the_original_brings_late_waits_for_its_acks(tmp_path: Path) -> None:
    """The broker was down when it was due: the acks stand behind it in the log."""
    rig = stocked(tmp_path, 1)
    rig.parts.groups.find("g", rig.config, rig.now)
    rig.until(NOW + 90_000)
    _append(rig, "ck", Checkpoint("T", "g", 0, 0, NOW, 31_000, "b", (0,)).to_json(), deliver_at=NOW + 30_000)
    rig.until(NOW + 90_000 + service.PATIENCE_MS - 1)
    assert records(rig, "%RETRY%g_T") == []
    rig.until(NOW + 90_000 + service.PATIENCE_MS + 10)
    assert [r.body for r in records(rig, "%RETRY%g_T")] == [b"m0"]


def test_an_ack_before_the_originals_checkpoint(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 1)
    rig.parts.groups.find("g", rig.config, rig.now)
    made = Checkpoint("T", "g", 0, 0, NOW - 1_000, 31_000, "b", (0,))
    handle = Handle(0, made.pop_time, 31_000, 3, "0", "b", 0, 0)
    [stored] = records(rig, "T")
    assert ack(rig, Popped(stored, handle, "T")).code == 0
    assert len(rig.parts.pop) == 1
    _append(rig, "ck", made.to_json(), deliver_at=NOW + 29_000)
    assert len(rig.parts.pop) == 0
    rig.until(NOW + 120_000)
    assert records(rig, "%RETRY%g_T") == []


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        ("ck", b"no json"),
        ("ck", b"[]"),
        ("ck", b'{"t":"T","c":"g"}'),
        ("ck", b'{"bm":0,"bn":"b","c":"g","d":[0],"it":5,"n":1,"pt":-1,"q":0,"so":0,"t":"T"}'),
        ("ck", b'{"bm":0,"bn":"b","c":"g","d":[-4],"it":5,"n":1,"pt":1,"q":0,"so":0,"t":"T"}'),
        ("ck", b'{"bm":0,"bn":"b","c":"g","d":[0],"it":5,"n":99,"pt":1,"q":0,"so":0,"t":"T"}'),
        ("ck", b'{"bm":0,"bn":"b","c":"g","d":"x","it":5,"n":1,"pt":1,"q":0,"so":0,"t":"T"}'),
        ("ck", b'{"c":"g","d":[0],"it":99999999999999999999,"n":1,"pt":1,"q":0,"so":0,"t":"T"}'),
        ("ack", b'{"ao":-1,"bn":"b","c":"g","pt":1,"q":0,"so":0,"t":"T"}'),
        ("ack", b'{"ao":"x"}'),
        ("bAck", b'{"aol":["x"],"bn":"b","c":"g","pt":1,"q":0,"so":0,"t":"T"}'),
        ("else", b"{}"),
    ],
)
def test_records_of_strangers_are_read_with_care(tmp_path: Path, tag: str, body: bytes) -> None:
    rig = stocked(tmp_path, 1)
    _append(rig, tag, body)
    assert bodies(pop(rig)) == [b"m0"]
    assert any("is no record of POP" in note.text for note in rig.notes)
    rig = crash(rig, tmp_path)
    rig.until(NOW + INVISIBLE_MS)
    assert bodies(pop(rig)) == [b"m0"]


def test_topics_and_groups_that_are_gone(tmp_path: Path) -> None:
    rig = stocked(tmp_path, 1)
    pop(rig)
    assert rig.ask(207, {"groupName": "g"}).code == 0
    rig.until(NOW + INVISIBLE_MS)
    assert len(rig.parts.pop) == 0 and records(rig, "%RETRY%g_T") == []


# ---- in a group ----


def in_group(path: Path, now: int = NOW) -> Rig:
    return Rig(path, now=now, raft=RaftConfig(group="C", self_id="n0", peers="n0-127.0.0.1:40911"))


def popped_in_group(rig: Rig) -> list[Popped]:
    """What a pop gets, when it is committed."""
    asked = rig.tell(POP, pop_header(rig))
    rig.until(rig.now + 10)
    answer = rig.answer(asked)
    assert answer is not None
    return read_pop(answer)


def group_with_three_out(path: Path) -> tuple[Rig, list[Popped]]:
    """A member that leads alone, and three messages that are popped."""
    rig = in_group(path)
    for number in range(3):
        sent = rig.tell(10, {
            "producerGroup": "p", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
            "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0",
        }, b"m%d" % number)  # fmt: skip
        rig.until(rig.now + 10)
        answer = rig.answer(sent)
        assert answer is not None and answer.code == 0
    got = popped_in_group(rig)
    assert bodies(got) == [b"m0", b"m1", b"m2"] and len(rig.parts.pop) == 1
    return rig, got


def tell_ack(rig: Rig, one: Popped) -> int:
    header = {"consumerGroup": "g", "topic": "T", "queueId": "0", "offset": "0", "extraInfo": str(one.handle)}
    return rig.tell(200051, header)


def test_in_a_raft_group_what_is_out_is_what_is_committed(tmp_path: Path) -> None:
    rig, got = group_with_three_out(tmp_path)
    opaque = tell_ack(rig, got[0])
    rig.until(rig.now + 10)
    acked = rig.answer(opaque)
    assert acked is not None and acked.code == 0
    rig.disk.unlock("lock")
    rig = in_group(tmp_path, rig.now)
    assert len(rig.parts.pop) == 1
    rig.until(got[0].handle.pop_time + INVISIBLE_MS)
    assert sorted(bodies(popped_in_group(rig))) == [b"m1", b"m2"]


def test_in_a_raft_group_each_ack_has_to_be_committed(tmp_path: Path) -> None:
    """A leader that is deposed, and doesn't know it yet, can't tell what the next one has handed out from what is
    acknowledged."""
    rig, got = group_with_three_out(tmp_path)
    for _ in range(2):
        opaque = tell_ack(rig, got[0])
        rig.until(rig.now + 10)
        acked = rig.answer(opaque)
        assert acked is not None and acked.code == 0
    assert [tag for tag, _ in revive_log(rig)] == ["ck", "ack", "ack"]
    assert len(rig.parts.pop) == 1


def test_a_message_whose_ack_is_not_shown_yet_is_not_shown_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is over before the ack is confirmed: that stands in the log before any copy, and is to be answered."""
    rig = stocked(tmp_path, 3)
    got, service = pop(rig), rig.parts.pop
    with monkeypatch.context() as patch:
        patch.setattr(service, "arrived", lambda queue_id: None)  # as where the log has to be confirmed first
        assert ack(rig, got[0]).code == 0
        out = list(service._open.values())
        assert sum(len(one.left) for one in out) == 3, "the ack is not taken up yet"
        assert all(map(service._revive, out))
    for queue in range(service.revive_queues):
        service.arrived(queue)
    assert len(service) == 0
    assert sorted(one.body for one in records(rig, "%RETRY%g_T")) == sorted(bodies(got[1:]))


def test_a_new_leader_shows_again_what_is_out_of_a_group_that_it_did_not_copy_yet(tmp_path: Path) -> None:
    rig, got = group_with_three_out(tmp_path)
    rig.until(rig.now + 6_000)
    rig.disk.unlock("lock")
    (tmp_path / "config" / "subscriptionGroup.json").unlink()
    rig = in_group(tmp_path, rig.now)
    assert len(rig.parts.pop) == 1
    rig.until(got[0].handle.pop_time + INVISIBLE_MS + 10)
    assert sorted(one.body for one in records(rig, "%RETRY%g_T")) == [b"m0", b"m1", b"m2"]


def test_a_checkpoint_of_more_than_its_queue_has_moves_no_group(tmp_path: Path) -> None:
    """A queue that began anew, in a log without its beginning: its first messages are not those that were popped."""
    rig = stocked(tmp_path, 1)
    checkpoint = Checkpoint("T", "g", 0, 5, NOW, INVISIBLE_MS, "b", (5, 6))
    _append(rig, "ck", checkpoint.to_json())
    assert len(rig.parts.pop) == 0 and rig.parts.offsets.query("T", "g", 0) in (None, 0)
    assert bodies(pop(rig)) == [b"m0"]
