"""The cases of the original's users, one by one (`ha_scenarios`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .ha_scenarios import SCENARIOS, joiner_dies_with_its_proposal


@pytest.mark.sim
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_case_that_users_suffered_from(scenario: Callable[..., None], seed: int) -> None:
    scenario(seed=seed)


@pytest.mark.sim
@pytest.mark.xfail(
    strict=True, reason="as in the original, what was proposed without an answer is waited for until the set changes"
)
def test_a_joiner_that_dies_with_its_proposal_holds_nobody_up() -> None:
    joiner_dies_with_its_proposal()
