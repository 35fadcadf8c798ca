"""A simulator that does not find planted defects is not strong enough: each is found within so many seeds.

A mutation changes the broker, the store or the driver at one place. Seeds are played until one fails that
does not fail without it.
"""

from collections.abc import Callable
from typing import Any

import pytest

from perseid.base.machine import Feed, Flush
from perseid.broker import put
from perseid.sim.disk import SimFile
from perseid.sim.driver import NodeDriver
from perseid.sim.run import run
from perseid.store.segments import FolderSync, Segments

FIRST = 500
Mutation = Callable[[pytest.MonkeyPatch], None]


def no_fsync(patch: pytest.MonkeyPatch) -> None:
    """A Flush is carried out without a sync of its files; syncs during starts and saves are real."""

    def flush(self: NodeDriver, job: Any) -> None:
        for file in job.effect.files:
            if isinstance(file, SimFile) and file.syncing is not None:
                file.undo = {**file.undo, **file.syncing}
                file.syncing = None
        self._done(job)

    patch.setattr(NodeDriver, "_flush", flush)


def acknowledge_before_flush(patch: pytest.MonkeyPatch) -> None:
    """The answer to a send does not wait for the flush."""
    patch.setattr(put, "acknowledge", lambda broker, request, reply, end_offset, wait: reply)


def no_folder_sync(patch: pytest.MonkeyPatch) -> None:
    """Creates are not followed by a sync of their folder."""
    patch.setattr(FolderSync, "sync", lambda self: None)


def no_folder_sync_after_rename(patch: pytest.MonkeyPatch) -> None:
    """A saved state file is renamed into place, and that is all."""

    def save_dir(self: NodeDriver, job: Any) -> None:
        self._done(job)

    patch.setattr(NodeDriver, "_save_dir", save_dir)


def recovery_keeps_the_tail(patch: pytest.MonkeyPatch) -> None:
    """What stands behind the last whole record is not taken away."""
    patch.setattr(Segments, "zero_from", lambda self, offset: 0)


def flushed_too_early(patch: pytest.MonkeyPatch) -> None:
    """What a Flush allows is carried out when it is asked for."""
    real = NodeDriver._carry_out

    def carry_out(self: NodeDriver, effects: Any) -> None:
        early: list[Any] = []
        for effect in effects:
            if isinstance(effect, Flush) and effect.then:
                early += [Flush(effect.files), *(then for then in effect.then if isinstance(then, Feed))]
            else:
                early.append(effect)
        real(self, early)

    patch.setattr(NodeDriver, "_carry_out", carry_out)


@pytest.mark.sim
@pytest.mark.parametrize(
    ("mutation", "within"),
    [
        (no_fsync, 10),
        (acknowledge_before_flush, 10),
        (flushed_too_early, 10),
        (no_folder_sync, 10),
        (no_folder_sync_after_rename, 60),
        (recovery_keeps_the_tail, 60),
    ],
)
def test_a_planted_defect_is_found(mutation: Mutation, within: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    for seed in range(FIRST, FIRST + within):
        result = run(seed)
        if result.failure:
            monkeypatch.undo()
            if not run(seed).failure:
                first = result.failure.splitlines()[0]
                print(f"{mutation.__name__}: found by seed {seed - FIRST + 1} of {within}: {first}")
                return
            mutation(monkeypatch)
    raise AssertionError(f"{mutation.__name__} was not found in {within} seeds: {mutation.__doc__}")
