"""Which of a test's many combinations `.ci/run` and `make test` play; the others are `long`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


class Each(tuple[Any, ...]):
    """Values of several arguments."""


def in_ci(kinds: Mapping[str, Any] | Iterable[str], *names: str) -> list[Any]:
    """All of `kinds` (names that stand for themselves, or what they stand for) as parameters of a test, by their names;
    those that are not in `names` are `long`."""
    kinds = kinds if isinstance(kinds, Mapping) else {name: name for name in kinds}
    assert set(names) <= set(kinds), names
    found = []
    for name, kind in kinds.items():
        values = kind if isinstance(kind, Each) else (kind,)
        found.append(pytest.param(*values, id=name, marks=() if name in names else pytest.mark.long))
    return found
