"""Slaves that act for a master which is away: seeds, those that once failed, and defects that are planted and found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from perseid.broker.acting import Acting
from perseid.broker.locks import QueueLocks
from perseid.broker.offsets import ConsumerOffsets
from perseid.broker.replicas import Replicas
from perseid.sim import coverage
from perseid.sim.run import Result, run

play = partial(run, acting=True)
FIRST, SEEDS, GROUPS = 20_000, 24, 2
"""`make sim` plays more."""
REGRESSIONS = {
    39: "a master that was still preparing itself told groups their offsets, which it then took over from a slave",
    108: "files of the timer log went with old messages, and their slots stayed",
    2_039: "a slave that had not heard of it copied the old offsets of a master that was still preparing itself",
    20_014: "a slave had copied how far a group had popped; the master lost it, and took that: a message never came",
    658: "a slave that did not act, and whose table had changed more often, was asked after the one that did",
}
Mutation = Callable[[pytest.MonkeyPatch], None]


def explained(result: Result) -> str:
    return "\n".join([*result.story[-60:], f"perseid sim --seed {result.seed} --model acting", result.failure])


@pytest.mark.sim
@pytest.mark.once
@pytest.mark.parametrize("group", range(GROUPS))
def test_seeds_keep_all_promises(group: int) -> None:
    counts: Counter[str] = Counter()
    per_group = SEEDS // GROUPS
    for seed in range(FIRST + group * per_group, FIRST + (group + 1) * per_group):
        result = play(seed)
        assert not result.failure, explained(result)
        counts += result.counts
    assert not [name for name in coverage.ACTING_EXPECTED["slaves that act"] if not counts[name]]


@pytest.mark.sim
@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seeds_that_once_failed(seed: int) -> None:
    result = play(seed)
    assert not result.failure, explained(result)


# ---- planted defects ----


def tables_not_taken(patch: pytest.MonkeyPatch) -> None:
    """A master that comes back goes on with its own file."""
    patch.setattr(ConsumerOffsets, "take_over", lambda self, table, version, highest: None)


def no_later_version(patch: pytest.MonkeyPatch) -> None:
    """Who begins to act does not make its table a later one, so that the master's own counts."""
    real = Acting.min_changed

    def min_changed(self: Acting, min_id: int, address: str, ha_address: str | None, now: int) -> None:
        version = self._broker.offsets.version
        before = version.counter, version.timestamp
        real(self, min_id, address, ha_address, now)
        version.counter, version.timestamp = before

    patch.setattr(Acting, "min_changed", min_changed)


def told_before_durable(patch: pytest.MonkeyPatch) -> None:
    """A master tells its slaves how far groups are before that is durable."""
    patch.setattr(Replicas, "told_durably", lambda self, request, reply: reply)


def online_at_once(patch: pytest.MonkeyPatch) -> None:
    """A master shows itself without having asked anybody."""
    patch.setattr(Acting, "_prepare", lambda self, members, now: self._online(now))


def acting_ones_take_messages(patch: pytest.MonkeyPatch) -> None:
    """Who acts is taken for a master in everything."""
    real = Replicas.check

    def check(self: Replicas, code: int) -> None:
        if self.acting is None or not self.acting.acting:
            real(self, code)

    patch.setattr(Replicas, "check", check)


def locks_for_all(patch: pytest.MonkeyPatch) -> None:
    """A lock is given to whoever asks."""
    patch.setattr(QueueLocks, "lock", _given)


def _given(self: Any, group: str, queues: Any, client: str, now: int) -> Any:
    return list(queues)


@pytest.mark.once
@pytest.mark.sim
@pytest.mark.parametrize(
    ("mutation", "first", "within"),
    [
        (tables_not_taken, FIRST, 10),
        (no_later_version, 20_013, 10),
        (told_before_durable, 20_014, 1),
        (online_at_once, FIRST, 10),
        (acting_ones_take_messages, FIRST, 10),
        (locks_for_all, FIRST, 10),
    ],
)
def test_a_planted_defect_is_found(
    mutation: Mutation, first: int, within: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`first`: where the search begins, for a defect that few seeds find."""
    mutation(monkeypatch)
    for seed in range(first, first + within):
        result = play(seed)
        if result.failure:
            monkeypatch.undo()
            assert not play(seed).failure, f"seed {seed} fails without it, too"
            print(f"{mutation.__name__}: found by seed {seed}, from {first} on: {result.failure.splitlines()[0]}")
            return
    raise AssertionError(f"{mutation.__name__} was not found in {within} seeds: {mutation.__doc__}")
