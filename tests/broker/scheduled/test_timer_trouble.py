"""Timers on a disk that refuses: it is said once, each message comes when there is room, none comes twice."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.harness import NOW, SMALL, Rig
from perseid.store.timer import checkpoint as checkpoints
from perseid.store.timer import wheel as wheels
from perseid.wire.names import TIMER_TOPIC

from .test_timers import at, bodies, crashed

TINY = replace(SMALL, timer_log_file_bytes=52 * 6 + 20, timer_wheel_slots=512, timer_roll_window_slot=20)
SENT = [b"m%d" % number for number in range(20)]


@contextmanager
def refusing(rig: Rig, folder: str) -> Iterator[None]:
    """Meanwhile the disk opens, writes and removes nothing whose path begins so."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("open", "write", "remove"):
            real = getattr(rig.disk, name)

            def refuses(path: str, *more: Any, real: Any = real, **options: Any) -> Any:
                if path.startswith(folder):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
                return real(path, *more, **options)

            patch.setattr(rig.disk, name, refuses)
        yield


def told(rig: Rig, words: str) -> int:
    """How many notes say so."""
    return sum(words in note.text for note in rig.notes)


@pytest.mark.parametrize("room_at", [NOW + 2_000, NOW + 30_000])
def test_no_room_in_the_timer_log(tmp_path: Path, room_at: int) -> None:
    """`room_at`: before the messages' time, or long after it."""
    rig = Rig(tmp_path, store=TINY)
    with refusing(rig, "timerlog"):
        for body in SENT:
            at(rig, NOW + 5_000, body)
        rig.until(room_at)
    assert told(rig, "can't be taken in yet") == 1
    assert bodies(rig) == [] and rig.stopped is None
    rig.until(max(NOW + 5_000, room_at))
    assert rig.parts.timers.timers.queue_offset == (20 if room_at < NOW + 5_000 else 0)
    rig.until(max(NOW + 7_000, room_at + 3_000))
    assert bodies(rig) == SENT


def test_no_room_for_the_wheel(tmp_path: Path) -> None:
    """What can't be saved is delivered all the same; the checkpoint follows when there is room."""
    rig = Rig(tmp_path / "a", store=TINY)
    with refusing(rig, wheels.PATH):
        for number, body in enumerate(SENT):
            at(rig, NOW + (5_000 if number < 10 else 60_000), body)
        rig.until(NOW + 20_000)
        assert told(rig, "the timer wheel can't be written") == 2  # again after a delivery, not at each attempt
        assert bodies(rig) == SENT[:10] and checkpoints.PATH not in rig.saved
        crash = crashed(rig, tmp_path, "b")
    rig.until(NOW + 23_000)
    assert checkpoints.PATH in rig.saved
    after = crashed(rig, tmp_path, "c")
    for one in (rig, after):
        one.until(NOW + 70_000)
        assert sorted(bodies(one)) == sorted(SENT)
    crash.until(NOW + 70_000)  # nothing told it what was delivered
    assert sorted(bodies(crash)) == sorted([*SENT[:10], *SENT])


def test_no_room_at_the_end(tmp_path: Path) -> None:
    """The broker ends in order; the next start goes on from the last save."""
    rig = Rig(tmp_path / "a", store=TINY)
    at(rig, NOW + 60_000, SENT[0])
    rig.until(NOW + 3_000)
    at(rig, NOW + 60_000, SENT[1])
    with refusing(rig, "config/timercheck"):
        rig.stop()
    assert told(rig, "the timers could not be saved") == 1
    again = crashed(rig, tmp_path, "b")
    again.until(NOW + 70_000)
    assert sorted(bodies(again)) == SENT[:2]


def test_old_files_that_can_not_be_removed_are_tried_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store=TINY)
    for body in SENT:
        at(rig, NOW + 2_000, body)
    rig.until(NOW + 10_000)
    timers = rig.parts.timers.timers
    first = timers.log.segments.starts[0]
    unit = timers.log.unit(timers.log.segments.starts[2])
    assert unit is not None
    with pytest.MonkeyPatch.context() as patch:
        real = timers.remove_before
        patch.setattr(timers, "remove_before", lambda log_start: real(unit.physical_offset))
        with refusing(rig, "timerlog"):
            rig.until(NOW + 3_600_000)
        assert told(rig, "old files of the timer log can't be removed") == 1
        assert timers.log.segments.starts[0] == first
        rig.until(NOW + 7_200_000)
    assert timers.log.segments.starts[0] == first + 2 * timers.log.segments.file_bytes
    assert bodies(rig) == SENT


def test_what_the_log_has_lost_before_it_was_taken_in_is_passed_over(tmp_path: Path) -> None:
    """In silence: that the log keeps only so much is nobody's fault, and may be a million messages."""
    rig = Rig(tmp_path, store=TINY)
    with refusing(rig, "timerlog"):
        for body in SENT[:5]:
            at(rig, NOW + 5_000, body)
        rig.until(NOW + 2_000)
    queue = rig.parts.store.queues.get(TIMER_TOPIC, 0)
    assert queue is not None
    queue.min = 3
    rig.until(NOW + 8_000)
    assert bodies(rig) == SENT[3:5]
    assert told(rig, "can't be read") == 0
