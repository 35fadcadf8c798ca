"""For planted defects."""

import pytest

from perseid import core


@pytest.fixture
def without_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain Python: with the compiled core members take other turns, and other seeds find what is planted."""
    monkeypatch.setattr(core, "compiled", None)
