"""Messages for a time: where they wait, when they come, what takes them back, after which kinds of ends."""

from __future__ import annotations

import base64
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.harness import NOW, SMALL, Rig
from broker.requests import properties, send_header
from perseid.base.errors import CorruptLog, StoreError
from perseid.base.machine import Flush, SaveState, Tick
from perseid.broker.kernel import messages
from perseid.broker.scheduled.timer_metrics import METRICS_PATH
from perseid.store.results import AppendRefused, PutStatus
from perseid.store.timer import checkpoint as checkpoints
from perseid.store.timer import wheel as wheels
from perseid.store.timer.log import TimerLog
from perseid.store.timer.timers import TimerStore
from perseid.wire import fastjson
from perseid.wire.headers.send import RecallMessageRequest, SendMessageResponse
from perseid.wire.names import TIMER_TOPIC
from perseid.wire.record import Record, decode_all

SEND, RECALL, CHECKPOINT, METRICS = 310, 370, 60, 61
SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
TINY = replace(SMALL, timer_log_file_bytes=52 * 6 + 20, timer_wheel_slots=512, timer_roll_window_slot=20)


def records(rig: Rig, topic: str = "T", queue_id: int = 0) -> list[Record]:
    found: list[Record] = []
    at = rig.parts.store.reads.min_offset(topic, queue_id)
    while at < rig.parts.store.reads.max_offset(topic, queue_id):
        read = rig.parts.store.reads.read(topic, queue_id, at, 32, 1 << 20)
        found += decode_all(b"".join(read.buffers))
        at = read.next_offset
    return found


def bodies(rig: Rig, topic: str = "T") -> list[bytes]:
    return [record.body for record in records(rig, topic)]


def at(rig: Rig, deliver_at: int, body: bytes = b"later", key: str = "ID1", queue_id: int = 0) -> SendMessageResponse:
    pairs = properties(UNIQ_KEY=key, TAGS="A", TIMER_DELIVER_MS=deliver_at)
    return rig.send("T", queue_id, body, pairs)


def recall(rig: Rig, handle: str | None, topic: str = "T") -> Any:
    return rig.ask(RECALL, RecallMessageRequest(topic=topic, recall_handle=handle or "", producer_group="p"))


def handle(
    topic: str = "T", broker: str = "b", time: object = NOW + 60_000, key: str = "ID1", version: str = "v1"
) -> str:
    return base64.urlsafe_b64encode(f"{version} {topic} {broker} {time} {key}".encode()).decode()


def crashed(rig: Rig, tmp_path: Path, name: str, **more: Any) -> Rig:
    """Another broker, on the folder as it is."""
    shutil.copytree(rig.disk.root, tmp_path / name)
    more = {"store": rig.parts.store.config, **more}
    return Rig(tmp_path / name, now=more.pop("now", rig.now), **more)


# ---- on the way in ----


def test_where_a_message_waits(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    sent = rig.send("T", 2, b"later", properties(UNIQ_KEY="ID1", TAGS="A", TIMER_DELAY_MS=3_500))
    (record,) = records(rig, TIMER_TOPIC)
    assert record.props["REAL_TOPIC"] == "T" and record.props["REAL_QID"] == "2"
    assert record.props["TIMER_OUT_MS"] == str(NOW + 3_000) and record.tag == "A"
    assert (sent.queue_id, sent.queue_offset) == (2, 0)
    words = base64.urlsafe_b64decode(sent.recall_handle or "").decode().split(" ")
    assert words == ["v1", "T", "b", str(NOW + 3_001), "ID1"]
    assert rig.parts.store.reads.max_offset("T", 2) == 0


def test_the_largest_body_with_the_longest_properties_comes(tmp_path: Path) -> None:
    """The original, before 5.5.1, had no room for both when it was due."""
    rig = Rig(tmp_path, store=replace(SMALL, max_message_size=3_000, commit_log_file_bytes=1 << 17))
    pairs = properties(UNIQ_KEY="ID1", TIMER_DELAY_MS=2_000, long="x" * 30_000)
    rig.send("T", 0, b"b" * 3_000, pairs)
    rig.until(NOW + 5 * SECOND)
    assert [(one.body, one.props["long"]) for one in records(rig)] == [(b"b" * 3_000, "x" * 30_000)]


@pytest.mark.parametrize(
    ("name", "value", "out"),
    [
        ("TIMER_DELAY_SEC", 5, NOW + 4_000),
        ("TIMER_DELAY_MS", 1, NOW),
        ("TIMER_DELAY_MS", 1_000, NOW),
        ("TIMER_DELAY_MS", 1_001, NOW + 1_000),
        ("TIMER_DELIVER_MS", NOW + 10_999, NOW + 10_000),
        ("TIMER_DELIVER_MS", f"+{NOW + 1_000}", NOW),
    ],
)
def test_the_slot_of_a_time(tmp_path: Path, name: str, value: object, out: int) -> None:
    rig = Rig(tmp_path)
    rig.send("T", 0, b"x", properties(**{"UNIQ_KEY": "A", name: value}))
    (record,) = records(rig, TIMER_TOPIC)
    assert record.props["TIMER_OUT_MS"] == str(out)


@pytest.mark.parametrize(
    ("name", "value"),
    [("TIMER_DELAY_SEC", 0), ("TIMER_DELAY_MS", -7), ("TIMER_DELIVER_MS", NOW), ("TIMER_DELIVER_MS", 0)],
)
def test_a_time_that_is_over_is_now(tmp_path: Path, name: str, value: int) -> None:
    rig = Rig(tmp_path)
    assert rig.send("T", 0, b"now", properties(**{"UNIQ_KEY": "A", name: value})).recall_handle is None
    assert bodies(rig) == [b"now"]


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
@pytest.mark.parametrize("value", ["x", "1.5", "", "９", "9" * 25, str(1 << 63), f"{NOW + 4 * DAY}"])
def test_a_time_that_can_not_be_is_refused(tmp_path: Path, name: str, value: str) -> None:
    rig = Rig(tmp_path)
    answer = rig.ask(SEND, send_header(properties=properties(**{"UNIQ_KEY": "A", name: value})), b"body")
    if value == "":  # properties of no length vanish
        assert answer.code == 0 and bodies(rig) == [b"body"]
    else:
        assert answer.code == 13 and "timer message illegal" in (answer.remark or "")
        assert rig.parts.store.log.end == 0


def test_three_days_are_the_limit(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    at(rig, NOW + 3 * DAY)
    answer = rig.ask(SEND, send_header(properties=properties(UNIQ_KEY="A", TIMER_DELAY_MS=3 * DAY + 1)), b"body")
    assert answer.code == 13 and "259200000ms" in (answer.remark or "")


def test_a_delay_level_wins(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.send("T", 0, b"x", properties(UNIQ_KEY="A", DELAY=1, TIMER_DELAY_MS=60_000))
    (record,) = records(rig, "SCHEDULE_TOPIC_XXXX")
    assert "TIMER_DELAY_MS" not in record.props and not records(rig, TIMER_TOPIC)


def test_switched_off(tmp_path: Path) -> None:
    rig = Rig(tmp_path, timer_wheel_enable=False)
    answer = rig.ask(SEND, send_header(properties=properties(UNIQ_KEY="A", TIMER_DELAY_MS=5_000)), b"body")
    assert (answer.code, answer.remark) == (1, "accurate timer message is not enabled, timerWheelEnable is false")
    assert rig.ask(CHECKPOINT).code == rig.ask(METRICS).code == 1
    assert TIMER_TOPIC not in rig.parts.topics


def test_clients_can_not_send_to_the_timer_topic(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    fields = properties(UNIQ_KEY="A", TIMER_OUT_MS=1, REAL_TOPIC="T", REAL_QID=0)
    assert rig.ask(SEND, send_header(topic=TIMER_TOPIC, properties=fields), b"body").code == 16


def test_too_many_for_one_slot(tmp_path: Path) -> None:
    rig = Rig(tmp_path, timer_congest_num_each_slot=4)
    answers = []
    for number in range(40):
        rig.until(rig.now)
        pairs = properties(UNIQ_KEY=f"A{number}", TIMER_DELIVER_MS=NOW + 9_000)
        answers.append(rig.ask(SEND, send_header(properties=pairs), b"body").code)
    assert answers[:5] == [0] * 5 and set(answers) == {0, 1} and answers.count(0) <= 8
    assert rig.ask(SEND, send_header(properties=properties(UNIQ_KEY="B", TIMER_DELAY_MS=30_000)), b"b").code == 0


# ---- delivery ----


def test_never_early_and_at_most_a_second_late(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    random = Random(3)
    wanted = {}
    for number in range(120):
        deliver_at = NOW + random.randrange(1, 20_000)
        wanted[f"m{number}".encode()] = deliver_at
        at(rig, deliver_at, f"m{number}".encode(), f"K{number}")
    while rig.now < NOW + 22_000:
        rig.until(rig.now + 100)
        for record in records(rig):
            wait = record.store_timestamp - wanted[record.body]
            assert 0 <= wait <= SECOND, f"{record.body!r} came {wait} ms after its time"
    assert sorted(bodies(rig)) == sorted(wanted)
    times = [record.store_timestamp for record in records(rig)]
    assert times == sorted(times)


def test_what_is_delivered(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    at(rig, NOW + 2_000, queue_id=1)
    rig.until(NOW + 1_999)
    assert rig.parts.store.reads.max_offset("T", 1) == 0
    rig.until(NOW + 2_000)
    (record,) = records(rig, "T", 1)
    assert (record.body, record.tag, record.unique_key) == (b"later", "A", "ID1")
    assert record.props["TIMER_OUT_MS"] == str(NOW + 1_000) and record.props["TIMER_DEQUEUE_MS"] == str(NOW + 2_000)


def test_messages_of_a_slot_come_in_the_order_in_which_they_were_sent(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    sent = [f"m{number}".encode() for number in range(700)]
    for number, body in enumerate(sent):
        at(rig, NOW + 5_000 - number % 7, body)
    rig.until(NOW + 6_000)
    assert bodies(rig) == sent
    assert rig.parts.timers.timers.wheel.slots == {} and rig.parts.timers.metrics.count_of("T") == 0


@pytest.mark.parametrize("wait", [19, 20, 21, 26, 27, 39, 40, 41, 100, 259])
def test_long_waits_roll_on(tmp_path: Path, wait: int) -> None:
    rig = Rig(tmp_path, store=TINY)
    at(rig, NOW + wait * SECOND)
    rig.until(NOW + wait * SECOND - 1)
    assert bodies(rig) == []
    rig.until(NOW + wait * SECOND)
    (record,) = records(rig)
    assert (record.props.get("TIMER_ROLL_TIMES") is not None) == (wait > 20), record.props
    assert rig.parts.timers.metrics.count_of("T") == 0


def test_a_refused_delivery_is_tried_until_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    at(rig, NOW + 2_000)
    rig.until(NOW + 100)
    real = rig.parts.store.appends.append

    def full(message: Any, now: int) -> Any:
        raise AppendRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is too full")

    monkeypatch.setattr(rig.parts.store.appends, "append", full)
    rig.until(NOW + 60_000)
    assert len([note for note in rig.notes if "tried again" in note.text]) == 1
    monkeypatch.setattr(rig.parts.store.appends, "append", real)
    rig.until(NOW + 61_000)
    assert bodies(rig) == [b"later"]


def test_properties_that_have_no_room_for_more(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    own = sum(len(f"{name}{value}") + 2 for name, value in rig.parts.answers.own_properties.items())
    pairs = properties(UNIQ_KEY="A", TIMER_DELAY_MS=1_500)
    room = 32_767 - own - len(pairs) - len(properties(TIMER_OUT_MS=NOW, REAL_TOPIC="T", REAL_QID=0, big=""))
    rig.send("T", 0, b"big", pairs + properties(big="x" * room))
    rig.until(NOW + 3_000)
    assert bodies(rig) == [b"big"]


def test_records_that_are_no_timers_are_skipped(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for pairs in ("", properties(TIMER_OUT_MS="x", REAL_TOPIC="T"), properties(TIMER_OUT_MS=NOW + 5_000)):
        record = records(rig, TIMER_TOPIC)
        message = messages.copy_of(record[0]) if record else None
        if message is None:
            at(rig, NOW + 1_000, b"good")
            message = messages.copy_of(records(rig, TIMER_TOPIC)[0])
        message.properties = pairs.encode()
        rig.parts.store.appends.append(message, rig.now)
    at(rig, NOW + 1_000, b"last")
    rig.until(NOW + 3_000)
    assert bodies(rig) == [b"good", b"last"]
    assert len([note for note in rig.notes if "skipped" in note.text]) == 3
    again = crashed(rig, tmp_path, "b")
    again.until(NOW + 9_000)
    assert again.parts.timers.timers.queue_offset == 5


# ---- recall ----


def test_recalled(tmp_path: Path) -> None:
    rig = Rig(tmp_path, recall_message_enable=True)
    first, other = at(rig, NOW + 5_500, b"first", "K1"), at(rig, NOW + 5_700, b"other", "K2")
    rig.until(NOW + 4_000)
    answer = recall(rig, first.recall_handle)
    assert answer.code == 0 and answer.ext == {"msgId": "K1", "MSG_REGION": "DefaultRegion"}
    rig.until(NOW + 9_000)
    assert bodies(rig) == [b"other"] and other.recall_handle != first.recall_handle
    assert rig.parts.timers.metrics.count_of("T") == 0 and rig.parts.timers.timers.wheel.count == 0


def test_recalled_far_ahead(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store=TINY, recall_message_enable=True)
    kept, gone = at(rig, NOW + 90_500, b"kept", "K1"), at(rig, NOW + 90_500, b"gone", "K2")
    rig.until(NOW + 33_000)
    assert recall(rig, gone.recall_handle).code == 0
    rig.until(NOW + 100_000)
    assert bodies(rig) == [b"kept"] and kept.recall_handle


def test_a_recall_names_its_topic(tmp_path: Path) -> None:
    rig = Rig(tmp_path, recall_message_enable=True)
    at(rig, NOW + 5_500, b"kept", "K1")
    rig.send("T2")
    assert recall(rig, handle("T2", time=NOW + 5_001, key="K1"), "T2").code == 0
    rig.until(NOW + 9_000)
    assert bodies(rig) == [b"kept"]


def test_keys_with_their_topic_before_them_recall_too(tmp_path: Path) -> None:
    """As the original's with appendTopicForTimerDeleteKey, and before 5.5.0."""
    rig = Rig(tmp_path)
    at(rig, NOW + 5_500, b"gone", "K1")
    rig.send("T", 0, b"0", properties(UNIQ_KEY="K1", TIMER_DELIVER_MS=NOW + 5_400, TIMER_DEL_UNIQKEY="T+K1"))
    rig.until(NOW + 9_000)
    assert bodies(rig) == []


@pytest.mark.parametrize(
    ("request_of", "code", "remark"),
    [
        (("T", ""), 604, "recall handle is invalid"),
        (("T", "!"), 604, "recall handle is invalid"),
        (("T", "ü"), 604, "recall handle is invalid"),
        (("T", base64.b64encode(b"v1 T b 1").decode()), 604, "recall handle is invalid"),
        (("T", base64.b64encode(b"\xff\xfe v1").decode()), 604, "recall handle is invalid"),
        (("T", handle(version="v2")), 604, "recall handle is invalid"),
        (("T", handle(topic="other")), 604, "recall failed, topic not match"),
        (("T", handle(broker="other")), 604, "recall failed, broker service not available"),
        (("T", handle(time=NOW)), 604, "recall failed, timestamp invalid"),
        (("T", handle(time=NOW + 3 * DAY)), 604, "recall failed, timestamp invalid"),
        (("T", handle(time="x")), 604, "recall failed, timestamp invalid"),
        (("T", handle(time="-1")), 604, "recall failed, timestamp invalid"),
        (("T", handle(time="9" * 30)), 604, "recall failed, timestamp invalid"),
        (("nowhere", handle(topic="nowhere")), 17, "recall failed, the topic[nowhere] not exist"),
    ],
)
def test_recalls_that_are_refused(tmp_path: Path, request_of: tuple[str, str], code: int, remark: str) -> None:
    rig = Rig(tmp_path, recall_message_enable=True)
    rig.send("T")
    end = rig.parts.store.log.end
    answer = recall(rig, request_of[1], request_of[0])
    assert (answer.code, answer.remark) == (code, remark) and answer.ext == {"MSG_REGION": "DefaultRegion"}
    assert rig.parts.store.log.end == end


def test_a_handle_without_padding_is_one_too(tmp_path: Path) -> None:
    rig = Rig(tmp_path, recall_message_enable=True)
    rig.send("T")
    assert recall(rig, handle(key="ID").rstrip("=")).code == recall(rig, handle(key="ID12").rstrip("=")).code == 0


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({}, 16),
        ({"recall_message_enable": True, "broker_permission": 4, "allow_recall_when_broker_not_writeable": False}, 14),
        ({"recall_message_enable": True, "start_accept_send_request_time_stamp": NOW + 1}, 14),
        ({"recall_message_enable": True, "timer_wheel_enable": False}, 1),
    ],
)
def test_recall_without_permission(tmp_path: Path, settings: dict[str, Any], code: int) -> None:
    rig = Rig(tmp_path, **settings)
    rig.parts.topics.ensure("T", 1, NOW)
    rig.parts.topics.dirty = False
    assert recall(rig, handle()).code == code


# ---- ends and starts ----


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("pause", [0, 500, 4_000])
def test_a_start_goes_on(tmp_path: Path, clean: bool, pause: int) -> None:
    rig = Rig(tmp_path / "a", store=TINY, recall_message_enable=True)
    random = Random(pause)
    wanted = {}
    for number in range(60):
        wanted[f"m{number}".encode()] = deliver_at = rig.now + random.randrange(1, 60_000)
        sent = at(rig, deliver_at, f"m{number}".encode(), f"K{number}")
        if number % 10 == 0 and deliver_at > rig.now + 20_000:
            recall(rig, sent.recall_handle)
            del wanted[f"m{number}".encode()]
        rig.until(rig.now + random.randrange(300))
    before = bodies(rig)
    if clean:
        rig.stop()
    again = crashed(rig, tmp_path, "b", now=rig.now + pause, recall_message_enable=True)
    assert not [note for note in again.notes if note.level != "info"]
    again.until(NOW + 90_000)
    after = records(again)
    assert {record.body for record in after} == wanted.keys()
    for record in after:
        assert record.store_timestamp >= wanted[record.body]
    if clean:
        assert sorted(bodies(again)) == sorted(wanted), "nothing comes twice after a clean stop"
    assert bodies(again)[: len(before)] == before


def test_a_slot_that_was_delivered_in_part(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "a")
    sent = [f"m{number}".encode() for number in range(600)]
    for body in sent:
        at(rig, NOW + 1_500, body)
    rig.until(NOW + 1_999)
    rig.now = NOW + 2_000
    while len(bodies(rig)) < 256:
        rig.now += 1
        rig.handle(Tick())
    assert len(bodies(rig)) < 600
    rig.stop()
    again = Rig(tmp_path / "a", now=rig.now)
    again.until(again.now + 5_000)
    assert bodies(again) == sent


@pytest.mark.parametrize("lost", ["timerwheel", "timerlog", "config/timercheck", "wheel slots", "log units"])
def test_files_that_are_lost_are_made_anew(tmp_path: Path, lost: str) -> None:
    rig = Rig(tmp_path / "a", store=TINY)
    for number in range(30):
        at(rig, NOW + 3_000 + number * 1_000, f"m{number}".encode())
    rig.until(NOW + 8_500)
    rig.stop()
    root = tmp_path / "a"
    path = root / lost
    if lost == "wheel slots":
        data = bytearray((root / "timerwheel").read_bytes())
        for place in range(0, len(data), 32):
            if any(data[place : place + 8]):
                data[place + 16 : place + 24] = (1 << 40).to_bytes(8, "big")
        (root / "timerwheel").write_bytes(data)
    elif lost == "log units":
        first = sorted((root / "timerlog").iterdir())[1]
        first.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    again = Rig(root, now=NOW + 9_000, store=TINY)
    again.until(NOW + 40_000)
    found = bodies(again)
    assert set(found) == {f"m{number}".encode() for number in range(30)}
    if lost != "config/timercheck":
        assert len(found) == 30 and [note for note in again.notes if "made anew" in note.text]


def half_delivered(folder: Path) -> tuple[Rig, list[bytes]]:
    """A broker whose thirty timers stand in six slots; the first of them are done."""
    rig = Rig(folder, store=TINY)
    sent = [f"m{number}".encode() for number in range(30)]
    for number, body in enumerate(sent):
        at(rig, NOW + 3_000 + number // 5 * 1_000, body)
    rig.until(NOW + 4_500)
    return rig, sent


def damage(log: TimerLog, position: int) -> None:
    """Overwrite the unit there."""
    start = log.segments.start_of(position)
    assert start is not None
    log.segments.file(start).write(position - start, b"\xff" * 52)


def test_a_log_that_is_damaged_while_it_is_used(tmp_path: Path) -> None:
    rig, sent = half_delivered(tmp_path)
    timers = rig.parts.timers.timers
    for position in (52 * 14, 332 * 4):
        damage(timers.log, position)
    rig.until(NOW + 20_000)
    assert sorted(bodies(rig)) == sorted(sent)
    assert [note for note in rig.notes if "made anew" in note.text]


def test_what_was_delivered_in_the_turn_that_finds_the_damage_counts(tmp_path: Path) -> None:
    """Several slots are due at once: those before the broken one are gathered by the core, where there is one."""
    rig, sent = half_delivered(tmp_path)
    timers = rig.parts.timers.timers
    position = timers.wheel.slots[sorted(timers.wheel.slots)[2]].last
    damage(timers.log, position)
    rig.now = NOW + 20_000
    rig.handle(Tick())
    rig.until(NOW + 22_000)
    assert [note for note in rig.notes if "made anew" in note.text]
    assert sorted(bodies(rig)) == sorted(sent)


@pytest.mark.parametrize("text", [b"", b"\0" * 31, b"\xff" * 56])
def test_a_checkpoint_that_is_none_stops_the_start(tmp_path: Path, text: bytes) -> None:
    rig = Rig(tmp_path / "a")
    rig.stop()
    (tmp_path / "a" / "config" / "timercheck").write_bytes(text)
    with pytest.raises(StoreError, match="config/timercheck"):
        crashed(rig, tmp_path, "b")


def test_a_timer_file_of_another_size_is_named(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "a")
    at(rig, NOW + 3_000)
    rig.until(NOW + 1_500)
    rig.stop()
    with pytest.raises(CorruptLog, match="timerwheel"):
        crashed(rig, tmp_path, "b", store=replace(SMALL, timer_wheel_slots=512))
    with pytest.raises(CorruptLog, match="mappedFileSizeTimerLog"):
        crashed(rig, tmp_path, "c", store=replace(SMALL, timer_log_file_bytes=5_200))


def test_old_files_of_the_timer_log_go_with_their_messages(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store=TINY)
    for number in range(40):
        at(rig, NOW + 2_000, f"m{number}".encode())
    rig.until(NOW + 40_000)
    timers = rig.parts.timers.timers
    assert timers.log.start == 0 and len(timers.log.segments.starts) > 4
    units = [timers.log.unit(start) for start in timers.log.segments.starts]
    fourth = units[3]
    assert fourth is not None
    timers.log.remove_before(fourth.physical_offset)
    assert timers.log.segments.starts[0] == timers.log.segments.file_bytes * 3


# ---- durability ----


def test_a_round_is_in_order(tmp_path: Path) -> None:
    """Log, then timer log, then wheel, then checkpoint."""
    rig = Rig(tmp_path)
    at(rig, NOW + 9_000)
    rig.until(NOW + 10)
    rig.hold_io()
    rig.until(NOW + 1_200)
    paths = [[file.path for file in one.files] if isinstance(one, Flush) else [one.path] for one in rig.io]
    flat = [path for part in paths for path in part]
    assert any(path.startswith("commitlog/") for path in flat) and any(path.startswith("timerlog/") for path in flat)
    assert checkpoints.PATH not in flat and wheels.PATH not in flat
    while checkpoints.PATH not in rig.saved:
        one = rig.io[0]
        if isinstance(one, SaveState) and one.path == checkpoints.PATH:
            data = (Path(rig.disk.root) / wheels.PATH).read_bytes()
            assert any(data), "the wheel was written before"
        rig.finish_io(1)
    saved = checkpoints.decode(one.data) if isinstance(one, SaveState) else None
    assert saved is not None and (saved.log_end, saved.queue_offset, saved.master_offset) == (52, 1, 1)


def test_a_checkpoint_that_fails_is_saved_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    at(rig, NOW + 9_000)
    rig.hold_io()
    rig.until(NOW + 1_200)
    while not (isinstance(rig.io[0], SaveState) and rig.io[0].path == checkpoints.PATH):
        rig.finish_io(1)
    rig.fail_io()
    assert rig.stopped is None
    while rig.io:
        rig.finish_io(1)
    rig.until(NOW + 3_000)
    while rig.io:
        rig.finish_io(1)
    assert checkpoints.PATH in rig.saved


# ---- slaves, tools ----


def test_code_60_and_61(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    at(rig, NOW + 9_500)
    at(rig, NOW + 20_500)
    rig.until(NOW + 3_210)
    found = checkpoints.decode(rig.ask(CHECKPOINT).body)
    assert (found.read_ms, found.queue_offset, found.master_offset) == (NOW + 3_000, 2, 2)
    metrics = fastjson.loads(rig.ask(METRICS).body)
    assert metrics["timingCount"]["T"]["count"] == 2 and metrics["dataVersion"]["counter"] == 2
    rig.until(NOW + 10_000)
    assert checkpoints.decode(rig.ask(CHECKPOINT).body).read_ms == NOW + 10_000
    assert fastjson.loads(rig.ask(METRICS).body)["timingCount"]["T"]["count"] == 1
    rig.stop()
    text = (Path(rig.disk.root) / METRICS_PATH).read_bytes()
    assert fastjson.loads(text)["timingCount"]["T"]["count"] == 1
    assert Rig(tmp_path, now=rig.now).parts.timers.metrics.count_of("T") == 1


def test_runtime_info(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    at(rig, NOW + 9_500)
    info = fastjson.loads(rig.ask(28).body)["table"]
    assert (info["timerOffsetBehind"], info["timerCongestNum"], info["timerReadBehind"]) == ("1", "0", "0")
    rig.until(NOW + 100)
    info = fastjson.loads(rig.ask(28).body)["table"]
    assert (info["timerOffsetBehind"], info["timerCongestNum"]) == ("0", "1")


# ---- the wheel's arithmetic ----


def test_rolling_as_the_original(tmp_path: Path) -> None:
    """Half a window when less than a third of one would be left after a whole one."""
    timers = TimerStore(Rig(tmp_path).disk, replace(SMALL, timer_wheel_slots=2 * 604_800))
    window = 172_800 * SECOND
    assert timers.slot_of(NOW + window - 1, NOW) == (timers.wheel.floor(NOW + window - 1), 0)
    assert timers.slot_of(NOW + window, NOW) == (NOW + window // 2, 2)
    assert timers.slot_of(NOW + window + window // 3 - 1_000, NOW) == (NOW + window // 2, 2)
    assert timers.slot_of(NOW + window + window // 3, NOW) == (NOW + window, 2)
