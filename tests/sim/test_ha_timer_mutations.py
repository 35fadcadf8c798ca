"""Defects planted into the timers of broker sets: each breaks what is promised, in a seed that is named for it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from perseid.sim.models.ha.run import run
from perseid.sim.options import Options
from perseid.store.timer.timers import TimerStore

from .planted import Mutation, seek


def a_message_rolls_from_its_taking_in(patch: pytest.MonkeyPatch) -> None:
    """A master reckons when a message rolls from the moment in which it takes it in."""
    take_in, slot_of = TimerStore.take_in, TimerStore.slot_of

    def taken(self: TimerStore, record: Any, now: int, *, master: bool) -> Any:
        patch.setattr(TimerStore, "slot_of", lambda self, at, stored: slot_of(self, at, now if master else stored))
        return take_in(self, record, now, master=master)

    patch.setattr(TimerStore, "take_in", taken)


def a_cut_leaves_the_round(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint that is on its way when the log is cut counts, and messages are taken in at once."""
    patch.setattr(TimerStore, "_doubt", lambda self: None)
    patch.setattr(TimerStore, "_misfit", lambda self, log_end: "")


def what_came_late_is_called_delivered(patch: pytest.MonkeyPatch) -> None:
    """A master tells its slaves that all before its first slot is delivered."""
    progress = TimerStore.progress

    def told(self: TimerStore, now: int, *, master: bool) -> Any:
        self._late.clear()
        return progress(self, now, master=master)

    patch.setattr(TimerStore, "progress", told)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.once
@pytest.mark.parametrize(
    ("mutation", "promise"),
    [
        (a_message_rolls_from_its_taking_in, "delayed messages come"),
        (a_cut_leaves_the_round, "no member breaks"),
        (what_came_late_is_called_delivered, "delayed messages come"),
    ],
)
def test_a_planted_defect_is_found(mutation: Mutation, promise: str) -> None:
    seek(mutation, partial(run, options=Options(features=())), promise=promise)
