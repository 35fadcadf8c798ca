"""Which of a test's many combinations `.ci/run` and `make test` play; the others are `long`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest


class Each(tuple[Any, ...]):
    """Values of several arguments."""


def in_ci(kinds: Mapping[str, Any], *names: str) -> list[Any]:
    """All of `kinds` as parameters of a test, by their names; those that are not in `names` are `long`."""
    assert set(names) <= set(kinds), names
    found = []
    for name, kind in kinds.items():
        values = kind if isinstance(kind, Each) else (kind,)
        found.append(pytest.param(*values, id=name, marks=() if name in names else pytest.mark.long))
    return found
