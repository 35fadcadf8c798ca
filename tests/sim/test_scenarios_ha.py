"""The cases of the original's users, and those that seeds have found, one by one (`ha_scenarios`, `ha_log_scenarios`,
`ha_seed_scenarios`, `ha_pop_scenarios`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import ha_log_scenarios, ha_pop_scenarios, ha_scenarios, ha_seed_scenarios

SCENARIOS = [
    *ha_scenarios.SCENARIOS,
    *ha_log_scenarios.SCENARIOS,
    *ha_seed_scenarios.SCENARIOS,
    *ha_pop_scenarios.SCENARIOS,
]


@pytest.mark.sim
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=(pytest.mark.once, pytest.mark.slow))])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_case_that_was_suffered_from(scenario: Callable[..., None], seed: int) -> None:
    scenario(seed=seed)
