"""The cases of the original's users, one by one (`ha_scenarios`, `ha_log_scenarios`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from . import ha_log_scenarios, ha_scenarios

SCENARIOS = [*ha_scenarios.SCENARIOS, *ha_log_scenarios.SCENARIOS]


@pytest.mark.sim
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_case_that_users_suffered_from(scenario: Callable[..., None], seed: int) -> None:
    scenario(seed=seed)
