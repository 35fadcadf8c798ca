"""The tests of replication run with the compiled core, with its source as plain Python, and without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perseid import core
from perseid.testing.cores import core_from

WAYS = {"plain": None, "source": core_from(Path(core.__file__).parent)}
if core.is_compiled:
    WAYS["compiled"] = core.installed


@pytest.fixture(params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Which of the ways is taken."""
    monkeypatch.setattr(core, "compiled", WAYS[request.param])
    yield str(request.param)
