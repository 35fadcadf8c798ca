"""Timers where roles change: what a slave has, and what a cut log takes with it."""

from __future__ import annotations

from pathlib import Path

from perseid.broker.system_topics import TIMER_TOPIC
from perseid.store.timer import checkpoint as checkpoints
from perseid.store.timer.timers import TimerStore
from perseid.wire.record import Record

from .harness import NOW, Rig
from .test_timers import CHECKPOINT, TINY, at, bodies, records


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
    ours = rig.broker.timers.timers
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
    rig.broker.now = rig.now
    rig.broker.timers._take_in(rig.now)
    answer = checkpoints.decode(rig.ask(CHECKPOINT).body)
    assert answer.master_offset == 2
    assert slave.follow(answer)
    slave.take_in(records(rig, TIMER_TOPIC)[1], rig.now, master=False)
    assert slave.wheel.slots, "the master has not delivered it"
    rig.until(NOW + 12_000)
    assert slave.follow(checkpoints.decode(rig.ask(CHECKPOINT).body))
    assert not slave.wheel.slots and bodies(rig) == [b"first", b"late"]


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
    ends = [rig.broker.store.end]
    for number in range(20):
        at(rig, NOW + 5_000 + number % 3 * 1_000, f"m{number}".encode())
        ends.append(rig.broker.store.end)
    rig.until(NOW + 100)
    timers = rig.broker.timers.timers
    timers.cut(ends[12])
    assert sum(slot.count for slot in timers.wheel.slots.values()) == timers.wheel.count == 12
    timers.validate()
    timers.cut(0)
    assert not timers.wheel.slots and timers.log.end == 0


def test_a_new_master_whose_clock_is_behind_the_last_ones(tmp_path: Path) -> None:
    """The last master's clock was an hour ahead: what it took in too late waits in a slot of its present, here too."""
    rig, hour_ms = Rig(tmp_path, store=TINY), 3_600_000
    service = rig.broker.timers
    at(rig, NOW + 2_000, b"first")
    rig.until(NOW + 4_000)
    service.stop()
    at(rig, NOW + 5_000, b"late")
    at(rig, NOW + 30_000, b"not yet")
    rig.now = rig.broker.now = NOW + 10_000
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
