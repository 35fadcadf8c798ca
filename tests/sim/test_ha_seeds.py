"""Controllers, brokers of one set and their clients under faults: many seeds, and those that once failed."""

from __future__ import annotations

import pytest

from perseid.sim import coverage
from perseid.sim.models.broker.run import Result
from perseid.sim.models.ha.faults import KINDS
from perseid.sim.models.ha.run import run
from perseid.sim.models.raft.run import MIN_FAULTS
from perseid.sim.models.registry import MODELS
from perseid.sim.options import Options
from perseid.sim.pace import MIN_OPERATIONS
from perseid.sim.selection import Selection

from .regressions import DRAWN, IN_SWARMS, TIMED, WHOLE, WITH_RARITIES
from .seeds import seeds

FIRST, SEEDS = 250, 2
"""`make sim` plays more."""


def explained(result: Result) -> str:
    return "\n".join([*result.story[-60:], f"perseid sim --model ha --seed {result.seed}", result.failure])


@pytest.mark.sim
@pytest.mark.parametrize("seed", seeds(FIRST, SEEDS))
def test_a_seed_keeps_all_promises(seed: int) -> None:
    result = run(seed)
    assert not result.failure, explained(result)
    assert result.operations >= MIN_OPERATIONS and result.faults >= MIN_FAULTS and result.virtual_s >= 60


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("seed", WHOLE)
def test_a_seed_that_once_failed(seed: int) -> None:
    result = run(seed, Options(transactions=False, timed=False, features=()))
    assert not result.failure, explained(result)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("seed", [*DRAWN, *TIMED])
def test_a_seed_that_once_failed_as_it_is_drawn(seed: int) -> None:
    result = run(seed, Options(features=()))
    assert not result.failure, explained(result)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("seed", [*IN_SWARMS, *WITH_RARITIES])
def test_a_seed_that_once_failed_in_a_swarm(seed: int) -> None:
    result = MODELS["ha"].run(seed, Options(selection=Selection(swarm=True, rarities=seed in WITH_RARITIES)))
    assert not result.failure, explained(result)


def test_every_kind_of_fault_is_expected() -> None:
    assert [f"fault {kind}" for kind in KINDS] == coverage.HA_EXPECTED["faults"]
