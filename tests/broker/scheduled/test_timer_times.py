"""The times that messages with a time, and the units of the timer log, keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.harness import NOW, Rig
from perseid.disk.real import RealDisk
from perseid.store.segments import Folders
from perseid.store.timer.log import TimerLog, unit_for

from .test_timers import DAY, SECOND, TINY, at, records


def test_a_message_says_when_it_began_to_wait_and_when_that_ended(tmp_path: Path) -> None:
    """A message that waits in several steps says it of the last one, as in the original."""
    rig = Rig(tmp_path, store=TINY)
    for wait_s in (5, 28):
        at(rig, NOW + wait_s * SECOND, key=str(wait_s))
    rig.until(NOW + 30 * SECOND)
    found = {int(one.props["UNIQ_KEY"]): one.props for one in records(rig)}
    began = {wait_s: int(said["TIMER_ENQUEUE_MS"]) - NOW for wait_s, said in found.items()}
    ended = {wait_s: int(said["TIMER_DEQUEUE_MS"]) - NOW for wait_s, said in found.items()}
    assert began[5] == 0 and 4_000 <= ended[5] <= 6_000
    assert found[28]["TIMER_ROLL_TIMES"] == "1" and 0 < began[28] < 27_000 <= ended[28] <= 29_000


@pytest.mark.parametrize("wait_ms", [0, 1, 3 * DAY, (1 << 31) - 1, 1 << 31, 400 * DAY, -5, -400 * DAY])
def test_a_unit_has_its_time_however_wrong_clocks_were(tmp_path: Path, wait_ms: int) -> None:
    """Between a message's time and that of a clock that was set right may be more than a unit's field holds."""
    disk = RealDisk(tmp_path)
    log = TimerLog(disk, Folders(disk), TINY.timer_log_file_bytes)
    unit = log.unit(log.append(unit_for(NOW + wait_ms, NOW, -1, 0, 7, 100, 3)))
    assert unit is not None and (unit.at_ms, unit.physical_offset, unit.record_bytes) == (NOW + wait_ms, 7, 100)
    assert unit.taken_at == NOW or abs(wait_ms) >= 1 << 31


@pytest.mark.parametrize(("window", "rolls"), [(1, 0), (2, 2), (3, 1), (5, 1), (196, 0), (197, 0)])
def test_the_wheel_is_gone_round_in_steps_of_its_window(tmp_path: Path, window: int, rolls: int) -> None:
    """Of two slots at least, and of half the wheel without some at most: anything else means that most."""
    rig = Rig(tmp_path, store=replace(TINY, timer_roll_window_slot=window))
    at(rig, NOW + 7 * SECOND)
    rig.until(NOW + 10 * SECOND)
    (found,) = records(rig)
    assert int(found.props.get("TIMER_ROLL_TIMES", "0")) == rolls
