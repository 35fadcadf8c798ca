"""A short turn of every target, with the same inputs each time."""

import random

import pytest
from tests.combinations import at_each_change

from .mutate import inputs
from .targets import SEEDS, TARGETS

INPUTS = 3000
FEWER = {"pops": 150, "ha_master": 600, "ha_slave": 400, "tls": 400}
"""Of those that begin with a store, or a handshake, of their own each time."""
EXPENSIVE = {"core", "signed_core", "pops", "columns", "pulled", "sink", "slave"}
"""They compare two ways for each input."""


@pytest.mark.fuzz
@pytest.mark.parametrize("name", at_each_change(tuple(TARGETS), *(TARGETS.keys() - EXPENSIVE)))
def test_nothing_but_declared_errors(name: str) -> None:
    target = TARGETS[name]
    for seed in SEEDS[name]:
        target(seed)
    draw = inputs(SEEDS[name], random.Random(20261121))
    for _ in range(FEWER.get(name, INPUTS)):
        data = draw()
        try:
            target(data)
        except Exception as error:
            raise AssertionError(f"{name} is broken by {data!r}") from error
