"""Controllers, brokers of one set and their clients under faults: many seeds, and those that once failed."""

from __future__ import annotations

import pytest

from perseid.sim import coverage
from perseid.sim.group_run import MIN_FAULTS, MIN_OPERATIONS
from perseid.sim.ha_faults import KINDS
from perseid.sim.ha_run import run
from perseid.sim.run import Result

FIRST, SEEDS, GROUPS = 1, 100, 20
"""`make sim` plays more."""


def explained(result: Result) -> str:
    return "\n".join([*result.story[-60:], f"perseid sim --model ha --seed {result.seed}", result.failure])


@pytest.mark.sim
@pytest.mark.parametrize("group", range(GROUPS))
def test_seeds_keep_all_promises(group: int) -> None:
    per_group = SEEDS // GROUPS
    for seed in range(FIRST + group * per_group, FIRST + (group + 1) * per_group):
        result = run(seed)
        assert not result.failure, explained(result)
        assert result.operations >= MIN_OPERATIONS and result.faults >= MIN_FAULTS and result.virtual_s >= 60


def test_every_kind_of_fault_is_expected() -> None:
    assert [f"fault {kind}" for kind in KINDS] == coverage.HA_EXPECTED["faults"]
