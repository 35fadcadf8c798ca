"""Which seeds are played: a few of each model by `make test`, the same again by `make test-plain`. All the
regressions are played by `make test-slow` and by `make test-plain`; `.ci/run` and `make sim` play seeds that nobody has
seen."""

import pytest

PLAIN = 2
"""Seeds of each model that are played without the compiled core, too."""


def seeds(first: int, count: int) -> list[object]:
    """So many seeds, as parameters of a test."""
    return [pytest.param(first + n, marks=() if n < PLAIN else (pytest.mark.once,)) for n in range(count)]
