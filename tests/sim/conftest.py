"""For what is played."""

import pytest

from perseid import core
from perseid.cli.campaign import leave_garbage


@pytest.fixture(scope="session", autouse=True)
def _garbage_is_left() -> None:
    """As campaigns do it."""
    leave_garbage()


@pytest.fixture
def without_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain Python: with the compiled core members take other turns, and other seeds find what is planted."""
    monkeypatch.setattr(core, "compiled", None)
