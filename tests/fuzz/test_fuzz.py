"""A short turn of every target, with the same inputs each time."""

import random

import pytest

from .mutate import inputs
from .targets import SEEDS, TARGETS

INPUTS = 3000


@pytest.mark.fuzz
@pytest.mark.parametrize("name", TARGETS)
def test_nothing_but_declared_errors(name: str) -> None:
    target = TARGETS[name]
    for seed in SEEDS[name]:
        target(seed)
    draw = inputs(SEEDS[name], random.Random(20261121))
    for _ in range(INPUTS):
        data = draw()
        try:
            target(data)
        except Exception as error:
            raise AssertionError(f"{name} is broken by {data!r}") from error
