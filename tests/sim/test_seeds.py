"""Whole clusters under faults: many seeds, those that once failed, and that a seed always gives the same run."""

import os
import subprocess
import sys
from typing import Any

import pytest
from tests.combinations import at_each_change

from perseid.sim import coverage
from perseid.sim.models.broker.faults import KINDS, MIN_FAULTS, ON_TOP
from perseid.sim.models.broker.run import Result, run
from perseid.sim.models.broker.slaves import KINDS as SLAVES_KINDS
from perseid.sim.models.registry import MODELS
from perseid.sim.options import Options
from perseid.sim.pace import MIN_OPERATIONS
from perseid.sim.scheduler import US_PER_S
from perseid.sim.selection import Selection

from .regressions import IN_TRANSACTIONS, OF_SLAVES_IN_SWARMS, REGRESSIONS, REPLICATED
from .seeds import seeds

FIRST, SEEDS = 10_000, 2
"""`make sim` plays more."""


def explained(result: Result) -> str:
    return "\n".join([*result.story[-60:], f"perseid sim --seed {result.seed}", result.failure])


@pytest.mark.sim
@pytest.mark.parametrize("seed", seeds(FIRST, SEEDS))
def test_a_seed_keeps_all_promises(seed: int) -> None:
    result = run(seed)
    assert not result.failure, explained(result)
    assert result.operations >= MIN_OPERATIONS and result.faults >= MIN_FAULTS and result.virtual_s >= 60


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("seed", OF_SLAVES_IN_SWARMS)
def test_seeds_of_swarms_that_once_failed(seed: int) -> None:
    result = MODELS["broker"].run(seed, Options(selection=Selection(swarm=True)))
    assert not result.failure, result.failure


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("seed", [*REGRESSIONS, *REPLICATED])
def test_seeds_that_once_failed(seed: int) -> None:
    as_it_was: dict[str, Any] = {"transactions": False, "timed": False, "features": ()}
    result = run(seed, Options(slaves=REPLICATED.get(seed, 0), **as_it_was))
    assert not result.failure, explained(result)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("seed", IN_TRANSACTIONS)
def test_a_seed_that_once_failed_with_transactions(seed: int) -> None:
    result = run(seed, Options(slaves=0, transactions=True, features=()))
    assert not result.failure, explained(result)


SHORT = "Selection(until_us=20_000_000)"
DIGEST = f"from perseid.sim.models.registry import play, Selection; print(play({{!r}}, 3, {SHORT}).digest)"


@pytest.mark.sim
@pytest.mark.once
@pytest.mark.parametrize("model", at_each_change([model for model in MODELS if model != "acting"], "broker"))
def test_the_same_seed_gives_the_same_run_under_any_hash_seed(model: str) -> None:
    digests = set()
    for hash_seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", DIGEST.format(model)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=True)
        digests.add(done.stdout)
    assert len(digests) == 1 and digests.pop().strip()


def test_a_run_that_misses_a_fault_has_failed() -> None:
    counts = run(3, Options(selection=Selection(until_us=5 * US_PER_S))).counts
    missing = coverage.missing(counts)
    assert missing and all(not counts[name] for name in missing)
    for name in missing:
        counts[name] += 1
    assert not coverage.missing(counts)
    assert str(counts["answer SUCCESS"]) in coverage.table(counts)


def test_every_kind_of_fault_is_expected() -> None:
    assert len(KINDS) + len(ON_TOP) + len(SLAVES_KINDS) == len(coverage.FAULTS)
