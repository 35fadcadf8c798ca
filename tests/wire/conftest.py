"""The byte-exact samples that the Java 5.5.0 classes made."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # a busy machine is no defect
settings.load_profile("untimed")



@pytest.fixture(scope="session")
def vectors() -> Any:
    """The content of vectors.json."""
    return json.loads((Path(__file__).parent / "vectors.json").read_text())
