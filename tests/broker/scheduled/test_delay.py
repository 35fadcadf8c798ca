"""Delayed messages: when they come, in which order, after which kinds of stops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from broker.harness import NOW, SMALL, Rig, records
from broker.requests import properties, send_header
from perseid.base.errors import ConfigError, StoreError
from perseid.base.machine import Tick
from perseid.broker.config import BrokerConfig
from perseid.broker.kernel import messages
from perseid.broker.node import Broker
from perseid.broker.scheduled import delay
from perseid.broker.scheduled.delay import OFFSETS_PATH
from perseid.disk.real import RealDisk
from perseid.store.results import AppendRefused, PutStatus

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
SEND = 310


def bodies(rig: Rig, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [record.body for record in records(rig, topic, queue_id)]


def delayed(rig: Rig, level: int | str, body: bytes = b"later", queue_id: int = 0, **more: object) -> None:
    rig.send("T", queue_id, body, properties(UNIQ_KEY="ID1", TAGS="A", KEYS="k", WAIT="true", DELAY=level, **more))


# ---- on the way in ----


def test_where_a_delayed_message_waits(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    delayed(rig, 3, queue_id=2)
    (record,) = records(rig, SCHEDULE, 2)
    assert record.props["REAL_TOPIC"] == "T" and record.props["REAL_QID"] == "2" and record.props["DELAY"] == "3"
    unit = rig.parts.store.reads.unit(SCHEDULE, 2, 0)
    assert unit is not None and unit.tag_code == NOW + 10_000
    assert bodies(rig, "T", 2) == []


@pytest.mark.parametrize("level", ["19", "99", "2147483647"])
def test_levels_beyond_the_last_are_the_last(tmp_path: Path, level: str) -> None:
    rig = Rig(tmp_path)
    delayed(rig, level)
    assert len(records(rig, SCHEDULE, 17)) == 1


@pytest.mark.parametrize("level", ["0", "-1", "-99"])
def test_no_delay(tmp_path: Path, level: str) -> None:
    rig = Rig(tmp_path)
    delayed(rig, level)
    assert bodies(rig) == [b"later"]


@pytest.mark.parametrize("level", ["x", "1.5", "9" * 5000, "１"])
def test_a_level_that_is_no_number_is_refused(tmp_path: Path, level: str) -> None:
    rig = Rig(tmp_path)
    answer = rig.ask(SEND, send_header(properties=properties(UNIQ_KEY="A", DELAY=level)), b"body")
    assert answer.code == 1 and "DELAY" in (answer.remark or "")
    assert rig.parts.store.log.end == 0
    assert not [note for note in rig.notes if note.level == "error"]


def test_delay_takes_timers_away(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    delayed(rig, 1, TIMER_DELAY_SEC=5)
    (record,) = records(rig, SCHEDULE)
    assert "TIMER_DELAY_SEC" not in record.props


# ---- on the way out ----


def test_a_message_comes_when_it_is_due(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    delayed(rig, 2, queue_id=1)
    rig.until(NOW + 4_999)
    assert bodies(rig, "T", 1) == []
    rig.until(NOW + 5_000)
    (record,) = records(rig, "T", 1)
    assert record.store_timestamp == NOW + 5_000 and record.queue_id == 1 and record.reconsume_times == 0
    (waited,) = records(rig, SCHEDULE, 1)
    assert record.properties == waited.properties, "as the original delivers it: DELAY, REAL_TOPIC and all"
    assert record.tag == "A" and rig.parts.store.reads.unit("T", 1, 0) is not None
    assert len(rig.parts.store.reads.query("T", "k", 9, 0, rig.now).records) == 1


def test_order_within_a_level_and_between_levels(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for n, level in enumerate([2, 1, 2, 1]):
        rig.until(NOW + 10 * n)
        delayed(rig, level, b"%d" % n)
    rig.until(NOW + 10_000)
    assert bodies(rig) == [b"1", b"3", b"0", b"2"]


def test_the_settings_own_levels(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store=replace(SMALL, message_delay_level="2s 1m"))
    delayed(rig, 1, b"2s")
    delayed(rig, 18, b"1m")
    rig.until(NOW + 2_000)
    assert bodies(rig) == [b"2s"]
    rig.until(NOW + 60_000)
    assert bodies(rig) == [b"2s", b"1m"], "beyond the last level is the last"


@pytest.mark.parametrize("text", ["", "5", "s", "1y", "1s x2m", "-1s"])
def test_settings_that_name_no_levels(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        Broker(BrokerConfig(), replace(SMALL, message_delay_level=text), RealDisk(str(tmp_path)), Random(1))


def test_a_long_backlog_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay, "MAX_DELIVERIES", 3)
    rig = Rig(tmp_path)
    for n in range(10):
        delayed(rig, 1, b"%d" % n)
    rig.now = NOW + 1_000
    for seen in (3, 6, 9, 10, 10):
        rig.handle(Tick())
        assert len(bodies(rig)) == seen
    assert bodies(rig) == [b"%d" % n for n in range(10)]


def test_the_clock_went_back(tmp_path: Path) -> None:
    """What is further away than its level says is due at once."""
    rig = Rig(tmp_path)
    delayed(rig, 18, b"two hours")
    delayed(rig, 1, b"a second")
    rig.stop()
    rig = Rig(tmp_path, now=NOW - 3_600_000)
    rig.until(rig.now + 1_000)
    assert sorted(bodies(rig)) == [b"a second", b"two hours"]


# ---- stops ----


def test_a_clean_restart_goes_on(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    delayed(rig, 1, b"first")
    rig.until(NOW + 1_000)
    delayed(rig, 1, b"second")
    rig.stop()
    again = Rig(tmp_path, now=NOW + 60_000)
    assert bodies(again) == [b"first"]
    again.until(again.now + 999)
    assert bodies(again) == [b"first"], "the first look is after a second"
    again.until(again.now + 1)
    assert bodies(again) == [b"first", b"second"], "none twice"


def test_a_crash_delivers_twice_and_loses_none(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for n in range(3):
        delayed(rig, 1, b"%d" % n)
    rig.until(NOW + 1_000)
    assert rig.disk.read(OFFSETS_PATH) is None, "not saved yet"
    rig.disk.unlock("lock")  # what the end of a process does
    again = Rig(tmp_path, now=NOW + 2_000)
    again.until(again.now + 1_000)
    assert bodies(again) == [b"0", b"1", b"2", b"0", b"1", b"2"]


def test_offsets_are_saved_behind_the_log(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    delayed(rig, 1)
    rig.until(NOW + 1_000)
    rig.hold_io()
    rig.until(NOW + 10_000)
    kinds = [getattr(effect, "path", "flush") for effect in rig.io]
    assert kinds.index("flush") < kinds.index(OFFSETS_PATH)
    assert rig.parts.delay.dirty is False


def test_an_offset_beyond_the_queue_is_brought_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    delayed(rig, 1, b"here")
    rig.stop()
    RealDisk(str(tmp_path)).write(OFFSETS_PATH, b'{"offsetTable":{1:900,2:5}}')
    again = Rig(tmp_path)
    assert again.parts.delay.offsets[1] == 1 and again.parts.delay.offsets[2] == 0


@pytest.mark.parametrize("text", [b'{"offsetTable":{"x":1}}', b'{"offsetTable":[]}', b'{"dataVersion":7}'])
def test_a_file_of_offsets_that_is_none(tmp_path: Path, text: bytes) -> None:
    Rig(tmp_path).stop()
    RealDisk(str(tmp_path)).write(OFFSETS_PATH, text)
    with pytest.raises(StoreError, match=OFFSETS_PATH):
        Rig(tmp_path)


def test_offsets_of_a_java_broker(tmp_path: Path) -> None:
    """Levels as bare numbers, as fastjson writes them."""
    rig = Rig(tmp_path)
    for n in range(3):
        delayed(rig, 1, b"%d" % n)
    rig.stop()
    text = b'{\n\t"dataVersion":{"counter":7,"stateVersion":0,"timestamp":9},\n\t"offsetTable":{1:2\n\t}\n}'
    RealDisk(str(tmp_path)).write(OFFSETS_PATH, text)
    again = Rig(tmp_path, now=NOW + 60_000)
    again.until(again.now + 1_000)
    assert bodies(again) == [b"2"]
    assert again.parts.delay.version.counter == 7


# ---- trouble ----


def test_a_store_that_refuses_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    delayed(rig, 1, b"0")
    delayed(rig, 1, b"1")
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise AppendRefused(PutStatus.SERVICE_NOT_AVAILABLE, "the disk is too full")

        patch.setattr(rig.parts.store.appends, "append", refuse)
        rig.until(NOW + 3_000)
    assert [note.text for note in rig.notes if "too full" in note.text] == [
        "delay level 1: the message at 0 for T is tried again: SERVICE_NOT_AVAILABLE: the disk is too full"
    ], "one line, not twenty"
    rig.until(NOW + 3_100)
    assert bodies(rig) == [b"0", b"1"]


def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    delayed(rig, 1, b"spoilt")
    delayed(rig, 1, b"sound")
    unit = rig.parts.store.reads.unit(SCHEDULE, 0, 0)
    assert unit is not None
    raw = bytes(rig.parts.store.reads.record_at(unit.physical_offset) or b"")
    at = raw.index(b"spoilt")
    rig.parts.store.log.segments.file(0).write(unit.physical_offset + at, b"SPOILT")
    rig.parts.store._checks._validated = rig.parts.store.log.end  # the test of all records would stop here
    rig.until(NOW + 1_000)
    assert bodies(rig) == [b"sound"]
    assert any("can't be read: skipped" in note.text for note in rig.notes if note.level == "error")


@pytest.mark.parametrize("real", [{}, {"REAL_TOPIC": "T"}, {"REAL_TOPIC": "T", "REAL_QID": "x"}])
def test_what_says_not_where_to_go_is_passed_over(tmp_path: Path, real: dict[str, str]) -> None:
    rig = Rig(tmp_path)
    rig.send("T")
    (record,) = records(rig, "T")
    message = messages.seal(messages.copy_of(record), {"DELAY": "1", **real})
    message.topic = SCHEDULE
    rig.parts.store.appends.append(message, rig.now)
    rig.until(NOW + 2_000)
    assert len(bodies(rig)) == 1
    assert rig.parts.delay.offsets[1] == 1
    assert any("skipped" in note.text for note in rig.notes)


def test_random_delays_come_once_each_and_never_early(tmp_path: Path) -> None:
    random = Random(5)
    rig = Rig(tmp_path, store=replace(SMALL, message_delay_level="1s 2s 3s"))
    due: dict[bytes, int] = {}
    for n in range(60):
        rig.until(rig.now + random.randrange(200))
        level = random.randint(1, 3)
        body = b"%d" % n
        due[body] = rig.now + level * 1_000
        delayed(rig, level, body, queue_id=random.randrange(4))
    rig.until(rig.now + 4_000)
    came = {r.body: r.store_timestamp for queue_id in range(4) for r in records(rig, "T", queue_id)}
    assert came == due, "neither early nor late: a deadline brings them"


@pytest.mark.parametrize(("step", "versions"), [(1, 4), (2, 2), (3, 1), (500, 0)])
def test_each_so_many_steps_make_the_table_a_later_one(tmp_path: Path, step: int, versions: int) -> None:
    """Slaves and who acts take the later of two."""
    rig = Rig(tmp_path, delay_offset_update_version_step=step)
    before = rig.parts.delay.version.counter
    for number in range(4):
        delayed(rig, 1, b"%d" % number)
        rig.until(rig.now + 3_000)
    assert len(bodies(rig)) == 4 and rig.parts.delay.version.counter == before + versions
