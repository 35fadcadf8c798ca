"""Which groups of seeds are played: all by `make test`, the first ones again by `make test-plain`."""

import pytest

PLAIN = 2
"""Groups of each model that are played without the compiled core, too."""


def groups(count: int) -> list[object]:
    """The numbers of so many groups, as parameters of a test."""
    return [pytest.param(n, marks=() if n < PLAIN else (pytest.mark.once,)) for n in range(count)]
