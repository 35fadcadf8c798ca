"""Slaves that act for a master which is away: seeds, those that once failed, and defects that are planted and found."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from perseid.broker.clients.locks import QueueLocks
from perseid.broker.consume.offsets import ConsumerOffsets
from perseid.broker.kernel.route import Route
from perseid.broker.replication.acting import Acting
from perseid.broker.replication.replicas import Replicas
from perseid.sim.models.broker.run import Result, run_acting
from perseid.sim.options import Options
from perseid.sim.selection import Selection

from .planted import Mutation, seek
from .seeds import seeds

play = run_acting
FIRST, SEEDS = 20_000, 2
"""`make sim` plays more."""
REGRESSIONS = {
    39: "a master that was still preparing itself told groups their offsets, which it then took over from a slave",
    31_000_087: "the disk refused one file of a compacted pair, and the other one, empty, refused all that came later",
    108: "files of the timer log went with old messages, and their slots stayed",
    2_039: "a slave that had not heard of it copied the old offsets of a master that was still preparing itself",
    20_014: "a slave had copied how far a group had popped; the master lost it, and took that: a message never came",
    54_000_074: "a false alarm: with TLS a slave did not reach the name server, and a master took itself for alone",
    658: "a slave that did not act, and whose table had changed more often, was asked after the one that did",
}

SWARM = Selection(swarm=True, paces=(1.0,), rarities=False)
"""As dense as all swarms were when these failed: their clients are never slowed down."""
LATE = 8_910_022
IN_SWARMS = {
    8_600_045: "a slave that took itself for the one that acts, by old notices, hid what was committed to that one",
    8_601_051: "a message came again in a retry topic that was not in the table of the next start: nobody popped it",
    8_715_710: "a slave whose full disk had let messages for a time go said that it had sent them: nobody did",
    9_600_037: "a compaction's files could not be removed, and that ended the broker",
    9_600_081: "a lite group whose offset a crash had taken began with the last message, not with the first",
    LATE: "what a slave was told before it heard that the master was back was lost with an older table of its",
}

AT_ANY_PACE = {
    731_001_013: "a false alarm: messages far from their time rolled as fast as flow control let a slave follow",
}

WITH_RARITIES = {
    722545250176: "a clock went back, then a crash and a stop: slots before the checkpoint's time counted as delivered",
    60_101: "who acted copied the tables of a master that was not back yet, told of it by its own registration",
    60_234: "a false alarm: a slave that was about to end was not asked what had been committed to it",
}


def explained(result: Result) -> str:
    return "\n".join([*result.story[-60:], f"perseid sim --seed {result.seed} --model acting", result.failure])


@pytest.mark.sim
@pytest.mark.parametrize("seed", seeds(FIRST, SEEDS))
def test_a_seed_keeps_all_promises(seed: int) -> None:
    result = play(seed)
    assert not result.failure, explained(result)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("seed", REGRESSIONS)
def test_seeds_that_once_failed(seed: int) -> None:
    result = play(seed)
    assert not result.failure, explained(result)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("seed", [*IN_SWARMS, *AT_ANY_PACE, *WITH_RARITIES])
def test_seeds_that_once_failed_in_swarms(seed: int) -> None:
    as_drawn = Selection(swarm=True, rarities=seed in WITH_RARITIES)
    result = play(seed, Options(selection=SWARM if seed in IN_SWARMS else as_drawn))
    assert not result.failure, explained(result)


# ---- planted defects ----


def tables_not_taken(patch: pytest.MonkeyPatch) -> None:
    """A master that comes back goes on with its own file."""
    patch.setattr(ConsumerOffsets, "take_over", lambda self, table, version, highest: None)


def no_later_version(patch: pytest.MonkeyPatch) -> None:
    """Who begins to act does not make its table a later one, so that the master's own counts."""
    real = Acting.min_changed

    def min_changed(self: Acting, min_id: int, address: str, ha_address: str | None, now: int) -> None:
        real(self, min_id, address, ha_address, now)
        self._offsets.later_on_commit = False

    patch.setattr(Acting, "min_changed", min_changed)


def ahead_not_told(patch: pytest.MonkeyPatch) -> None:
    """A slave does not tell which commits came to it alone."""
    real = ConsumerOffsets.for_slaves
    patch.setattr(ConsumerOffsets, "for_slaves", lambda self, ahead=False: real(self))


def told_before_durable(patch: pytest.MonkeyPatch) -> None:
    """A master tells its slaves how far groups are before that is durable."""
    patch.setattr(Replicas, "told_durably", lambda self, request, reply: reply)


def online_at_once(patch: pytest.MonkeyPatch) -> None:
    """A master shows itself without having asked anybody."""
    patch.setattr(Acting, "_prepare", lambda self, members, now: self._online(now))


def acting_ones_take_messages(patch: pytest.MonkeyPatch) -> None:
    """Who acts is taken for a master in everything."""
    real = Replicas._check

    def check(self: Replicas, route: Route) -> None:
        acting = self._mode.acting
        if not (isinstance(acting, Acting) and acting.acting):
            real(self, route)

    patch.setattr(Replicas, "_check", check)


def locks_for_all(patch: pytest.MonkeyPatch) -> None:
    """A lock is given to whoever asks."""
    patch.setattr(QueueLocks, "lock", _given)


def _given(self: Any, group: str, queues: Any, client: str, now: int) -> Any:
    return list(queues)


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.sim
@pytest.mark.parametrize(
    "mutation",
    [
        tables_not_taken,
        no_later_version,
        told_before_durable,
        online_at_once,
        acting_ones_take_messages,
        locks_for_all,
    ],
)
def test_a_planted_defect_is_found(mutation: Mutation) -> None:
    seek(mutation, partial(play, options=Options(features=())), first=FIRST)


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.sim
def test_a_planted_defect_is_found_in_swarms() -> None:
    seek(ahead_not_told, partial(play, options=Options(selection=SWARM)), first=LATE)
