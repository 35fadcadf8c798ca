"""The byte-exact samples that the Java 5.5.0 classes made."""

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def vectors() -> Any:
    """The content of vectors.json."""
    return json.loads((Path(__file__).parent / "vectors.json").read_text())
