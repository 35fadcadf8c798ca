"""Which of a test's many combinations are played when: at each change (`make test`), in each CI run (`make test-slow`),
or seldom (`long`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


class Each(tuple[Any, ...]):
    """Values of several arguments."""


Kinds = Mapping[str, Any] | Iterable[str]
"""Names that stand for themselves, or what they stand for."""


def in_ci(kinds: Kinds, *names: str) -> list[Any]:
    """All of `kinds` as parameters of a test, by their names; those that are not in `names` are `long`."""
    return _marked(kinds, names, pytest.mark.long)


def at_each_change(kinds: Kinds, *names: str) -> list[Any]:
    """All of `kinds` as parameters of a test, by their names; those that are not in `names` are `slow`."""
    return _marked(kinds, names, pytest.mark.slow)


def _marked(kinds: Kinds, names: tuple[str, ...], mark: pytest.MarkDecorator) -> list[Any]:
    kinds = kinds if isinstance(kinds, Mapping) else {name: name for name in kinds}
    assert set(names) <= set(kinds), names
    found = []
    for name, kind in kinds.items():
        values = kind if isinstance(kind, Each) else (kind,)
        found.append(pytest.param(*values, id=name, marks=() if name in names else mark))
    return found
