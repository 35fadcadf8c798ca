"""Controllers, brokers of one set and their clients under faults: many seeds, and those that once failed."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from perseid.sim import coverage
from perseid.sim.group_run import MIN_FAULTS, MIN_OPERATIONS
from perseid.sim.ha_faults import KINDS
from perseid.sim.ha_run import run
from perseid.sim.run import Result

from .regressions import TIMED, WHOLE
from .seeds import groups

FIRST, SEEDS, GROUPS = 250, 66, 22
"""`make sim` plays more."""


def explained(result: Result) -> str:
    return "\n".join([*result.story[-60:], f"perseid sim --model ha --seed {result.seed}", result.failure])


@pytest.fixture(scope="session")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of one test run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "ha-counts"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.sim
@pytest.mark.parametrize("group", groups(GROUPS))
def test_seeds_keep_all_promises(group: int, counted: Path) -> None:
    """Whichever group is the last one sees to it that everything that may happen did, in all of them together."""
    per_group, counts = SEEDS // GROUPS, Counter[str]()
    for seed in range(FIRST + group * per_group, FIRST + (group + 1) * per_group):
        result = run(seed)
        assert not result.failure, explained(result)
        assert result.operations >= MIN_OPERATIONS and result.faults >= MIN_FAULTS and result.virtual_s >= 60
        counts += result.counts
    (counted / f"{group}.json.new").write_text(json.dumps(counts))
    (counted / f"{group}.json.new").rename(counted / f"{group}.json")
    found = list(counted.glob("*.json"))
    if len(found) == GROUPS:
        total = sum((Counter(json.loads(one.read_text())) for one in found), Counter[str]())
        assert not coverage.missing(total, coverage.HA_EXPECTED), coverage.table(total, coverage.HA_EXPECTED)


@pytest.mark.sim
@pytest.mark.parametrize("seed", WHOLE)
def test_a_seed_that_once_failed(seed: int) -> None:
    result = run(seed, transactions=False, timed=False)
    assert not result.failure, explained(result)


@pytest.mark.sim
@pytest.mark.parametrize("seed", TIMED)
def test_a_seed_that_once_lost_a_message_for_a_time(seed: int) -> None:
    result = run(seed)
    assert not result.failure, explained(result)


def test_every_kind_of_fault_is_expected() -> None:
    assert [f"fault {kind}" for kind in KINDS] == coverage.HA_EXPECTED["faults"]
