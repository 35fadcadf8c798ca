"""Timers where roles change: what a slave has, what a cut log takes with it, what brokers of a group take in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.harness import NOW, SMALL, Rig
from broker.requests import properties, send_header
from broker.streams import ALONE
from perseid.broker.scheduled import timers
from perseid.store.timer import checkpoint as checkpoints
from perseid.store.timer.timers import TimerStore
from perseid.store.truncation import Cut
from perseid.wire.names import TIMER_TOPIC
from perseid.wire.record import Record

from .test_timers import CHECKPOINT, SECOND, SEND, TINY, at, bodies, crashed, records


def followed(tmp_path: Path, rig: Rig, seen: int) -> tuple[TimerStore, list[Record]]:
    """A slave's timers that have taken in so many of a master's messages, and all of them."""
    slave, waits = TimerStore(Rig(tmp_path / "slave").disk, TINY), records(rig, TIMER_TOPIC)
    assert slave.follow(checkpoints.decode(rig.ask(CHECKPOINT).body))
    for record in waits[:seen]:
        slave.take_in(record, rig.now, master=False)
    return slave, waits


def test_a_slave_has_the_wheel_of_its_master(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "a", store=TINY)
    for number in range(40):
        at(rig, NOW + 2_000 + number * 1_000, f"m{number}".encode())
    rig.until(NOW + 10_500)
    slave, _ = followed(tmp_path, rig, 40)
    ours = rig.parts.timers.timers
    assert slave.wheel.slots.keys() == {at_ms for at_ms in ours.wheel.slots if at_ms < NOW + 20_000} | {
        at_ms for at_ms in slave.wheel.slots if at_ms >= NOW + 20_000
    }
    assert slave.queue_offset == 40 and min(slave.wheel.slots) == min(ours.wheel.slots)
    rig.until(NOW + 15_500)
    assert slave.follow(checkpoints.decode(rig.ask(CHECKPOINT).body))
    assert min(slave.wheel.slots) == min(ours.wheel.slots)


def test_what_a_master_took_in_too_late_waits_at_its_slave_too(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "a", store=TINY)
    at(rig, NOW + 2_000, b"first")
    rig.until(NOW + 500)
    slave, _ = followed(tmp_path, rig, 1)
    at(rig, NOW + 3_000, b"late")  # stored, and taken in only after its time
    rig.now = NOW + 8_000
    rig.parts.turn.now = rig.now
    rig.parts.timers._take_in(rig.now)
    answer = checkpoints.decode(rig.ask(CHECKPOINT).body)
    assert answer.master_offset == 2
    assert slave.follow(answer)
    slave.take_in(records(rig, TIMER_TOPIC)[1], rig.now, master=False)
    assert slave.wheel.slots, "the master has not delivered it"
    rig.until(NOW + 12_000)
    assert slave.follow(checkpoints.decode(rig.ask(CHECKPOINT).body))
    assert not slave.wheel.slots and bodies(rig) == [b"first", b"late"]


def test_what_a_master_took_in_too_late_before_its_last_start_waits_at_its_slave_too(tmp_path: Path) -> None:
    """Its files don't say that it was late: it is delivered after its time, and a slave has it until then."""
    rig = Rig(tmp_path / "a", store=TINY)
    at(rig, NOW + 2_000, b"first")
    rig.until(NOW + 500)
    slave, _ = followed(tmp_path, rig, 1)
    at(rig, NOW + 3_000, b"late")
    rig.now = rig.parts.turn.now = NOW + 8_000
    rig.parts.timers._take_in(rig.now)
    rig.until(NOW + 8_900)
    assert checkpoints.decode(rig.disk.read(checkpoints.PATH) or b"").queue_offset == 2
    assert slave.follow(checkpoints.decode(rig.ask(CHECKPOINT).body)), "it knows of the message, and has it not yet"
    again = crashed(rig, tmp_path, "again")
    answer = checkpoints.decode(again.ask(CHECKPOINT).body)
    assert b"late" not in bodies(again) and answer.master_offset == 2
    assert slave.follow(answer)
    slave.take_in(records(again, TIMER_TOPIC)[1], again.now, master=False)
    assert slave.wheel.slots, "the master has not delivered it"
    again.until(NOW + 30_000)
    assert slave.follow(checkpoints.decode(again.ask(CHECKPOINT).body))
    assert not slave.wheel.slots and bodies(again)[-1] == b"late"


def test_a_master_that_is_behind_its_slave_changes_nothing(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "a", store=TINY)
    for number in range(3):
        at(rig, NOW + 5_000, f"m{number}".encode())
    rig.until(NOW + 100)
    slave, _ = followed(tmp_path, rig, 3)
    before = dict(slave.wheel.slots)
    assert not slave.follow(checkpoints.TimerCheckpoint(read_ms=NOW + 90_000, queue_offset=2, master_offset=2))
    assert slave.wheel.slots == before


def test_a_cut_log_takes_its_units_with_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store=TINY)
    ends = [rig.parts.store.log.end]
    for number in range(20):
        at(rig, NOW + 5_000 + number % 3 * 1_000, f"m{number}".encode())
        ends.append(rig.parts.store.log.end)
    rig.until(NOW + 100)
    timers = rig.parts.timers.timers
    timers.cut(ends[12])
    assert sum(slot.count for slot in timers.wheel.slots.values()) == timers.wheel.count == 12
    timers.validate()
    timers.cut(0)
    assert not timers.wheel.slots and timers.log.end == 0


def test_a_new_master_whose_clock_is_behind_the_last_ones(tmp_path: Path) -> None:
    """The last master's clock was an hour ahead: what it took in too late waits in a slot of its present, here too."""
    rig, hour_ms = Rig(tmp_path, store=TINY), 3_600_000
    service = rig.parts.timers
    at(rig, NOW + 2_000, b"first")
    rig.until(NOW + 4_000)
    service.stop()
    at(rig, NOW + 5_000, b"late")
    at(rig, NOW + 30_000, b"not yet")
    rig.now = rig.parts.turn.now = NOW + 10_000
    ahead = NOW + hour_ms
    told = checkpoints.TimerCheckpoint(read_ms=ahead, queue_offset=3, master_offset=3, timestamp=ahead)
    service.follow(checkpoints.encode(told), rig.now)
    service.tick(rig.now)
    assert max(service.timers.wheel.slots) >= ahead - 1_000 and service.timers.queue_offset == 3
    service.start(rig.now)
    rig.until(NOW + 12_000)
    assert bodies(rig) == [b"first", b"late"]
    rig.until(NOW + 29_000)
    assert bodies(rig) == [b"first", b"late"]
    rig.until(NOW + 33_000)
    assert bodies(rig) == [b"first", b"late", b"not yet"]


def test_what_waits_when_a_clock_went_back_outlives_a_crash_and_a_stop(tmp_path: Path) -> None:
    """The checkpoint is of the clock before, and ahead of what waits; a life that does not lead saves it once more
    (simulator, `acting`, seed 722545250176: the next life took all of it for delivered)."""
    rig, hour_ms = Rig(tmp_path / "a", store=TINY), 3_600_000
    at(rig, NOW + 1_000, b"first")
    rig.until(NOW + 5_000)
    rig.now = NOW - hour_ms
    at(rig, rig.now + 30_000, b"later")
    rig.until(rig.now + 100)
    assert rig.parts.timers.timers.wheel.slots, "it waits, and no round has begun"
    waiting = crashed(rig, tmp_path, "b")
    waiting.parts.timers.stop()
    waiting.stop()
    leading = crashed(waiting, tmp_path, "c")
    leading.until(leading.now + 40_000)
    assert bodies(leading) == [b"first", b"later"]


def test_what_waits_when_a_clock_went_back_is_there_when_the_wheel_is_lost(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "a", store=TINY)
    at(rig, NOW + 1_000, b"first")
    rig.until(NOW + 5_000)
    rig.now = NOW - 3_600_000
    at(rig, rig.now + 30_000, b"later")
    rig.until(rig.now + 100)
    rig.disk.remove("timerwheel")
    leading = crashed(rig, tmp_path, "b")
    assert any("made anew" in note.text for note in leading.notes)
    leading.until(leading.now + 40_000)
    assert bodies(leading)[-1] == b"later"


@pytest.mark.parametrize("when", [{"TIMER_DELAY_MS": 3_000}, {"DELAY": 1}], ids=["a time", "a level"])
def test_what_a_broker_of_a_group_took_the_quick_way_comes(tmp_path: Path, when: dict[str, int]) -> None:
    """The services hear of units that were written together, too (simulator, `group`, seeds 12, 33, 58 …)."""
    rig = Rig(tmp_path, store=replace(SMALL, message_delay_level="3s"), raft=ALONE)
    header = send_header(topic="T", queue_id=0, properties=properties(UNIQ_KEY="ID1", **when))
    for number in range(4):  # the first of a queue goes the ordinary way
        answer = rig.answer(rig.tell(SEND, header, b"m%d" % number))
        assert answer is not None and answer.code == 0
        rig.until(rig.now + 10 * SECOND)
    assert bodies(rig) == [b"m0", b"m1", b"m2", b"m3"]


@pytest.mark.parametrize("done", range(3))
def test_a_log_that_is_cut_while_a_round_is_under_way(tmp_path: Path, done: int) -> None:
    """`done`: so many steps of the round. What it had not written is written by the next one: a start has all that
    waits, and nothing of what went."""
    rig = Rig(tmp_path / "a", store=TINY)
    at(rig, NOW + 500, b"first")
    rig.until(NOW + 5_000)
    rig.hold_io()
    ends = []
    for number in range(20):
        at(rig, NOW + 15_000 + number // 4 * 1_000, f"m{number}".encode())
        ends.append(rig.parts.store.log.end)
    rig.until(NOW + 5_100)
    assert rig.parts.timers.timers.under_way
    rig.finish_io(done)
    rig.parts.turn.now = rig.now
    rig.parts.timers.cut(Cut(ends[11], []))
    for second in range(7, 14):
        rig.until(NOW + second * 1_000)
        rig.finish_io()
    assert not rig.parts.timers.timers.changed
    for one in (rig, crashed(rig, tmp_path, "b")):
        one.until(NOW + 70_000)
        assert sorted(bodies(one)[1:]) == sorted(f"m{number}".encode() for number in range(12))


def test_what_waits_in_its_place_is_not_stored_again_by_each_start(tmp_path: Path) -> None:
    """A message rolls, and the clock is set back by an hour: until that is over its slot is ahead of the clock, at each
    start (simulator, `acting`, seed 529592000100: each crash doubled what rolled, to a hundred megabytes)."""
    rig = Rig(tmp_path, store=replace(TINY, timer_roll_window_slot=4))
    service = rig.parts.timers
    at(rig, NOW + 60_000, b"later")
    rig.until(NOW + 10_000)
    stored = len(records(rig, TIMER_TOPIC))
    assert stored > 1, "it rolls"
    told = rig.parts.timers.timers.progress(rig.now, master=True)
    told.timestamp = max(rig.parts.timers.timers.wheel.slots)
    rig.now = rig.parts.turn.now = NOW - 3_600_000
    for _ in range(5):
        service.stop()
        service.timers.saved = told
        service.start(rig.now)
        rig.until(rig.now + 1_000)
    assert len(records(rig, TIMER_TOPIC)) == stored
    rig.until(NOW + 61_000)
    assert bodies(rig) == [b"later"]


def test_what_is_left_in_its_place_counts_for_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, store=replace(TINY, timer_roll_window_slot=200))
    service, read = rig.parts.timers, list[int]()
    for number in range(60):
        at(rig, NOW + 60_000 + number * SECOND, b"later")
    rig.until(NOW + 10_000)
    told = service.timers.progress(rig.now, master=True)
    told.timestamp = max(service.timers.wheel.slots)
    service.stop()
    service.timers.saved = told
    monkeypatch.setattr(timers, "DELIVERIES_A_TURN", 7)
    real = timers.messages.stored_at
    monkeypatch.setattr(timers.messages, "stored_at", lambda reads, place: (read.append(place), real(reads, place))[1])
    service.start(rig.now)
    service.tick(rig.now)
    assert 0 < len(read) <= 7
    for _ in range(20):
        service.tick(rig.now)
    assert len(read) == 60, "each was looked at once"
