"""A compiled core that is older than its sources is told as what it is."""

import os
from pathlib import Path
from types import ModuleType

import pytest

from perseid.core import older_than_its_source

SECOND_NS = 10**9


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One compiled module of a checkout, a second younger than its source and its types."""
    for at, name in enumerate(("setup.py", "scan.py", "layout.pxd", "scan.so"), start=1):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, ns=(at * SECOND_NS, at * SECOND_NS))
    return tmp_path


def said(checkout: Path) -> str:
    module = ModuleType("perseid.core.scan")
    module.__file__ = str(checkout / "scan.so")
    return older_than_its_source([module], checkout)


def test_a_core_that_was_compiled_last_has_nothing_to_say(checkout: Path) -> None:
    assert not said(checkout)


@pytest.mark.parametrize("changed", ["scan.py", "layout.pxd"])
def test_what_was_changed_since_is_named(checkout: Path, changed: str) -> None:
    (checkout / changed).touch()
    assert said(checkout) == f"scan.so is older than {checkout / changed}: `make setup` compiles it again"


def test_other_modules_sources_count_for_nothing(checkout: Path) -> None:
    (checkout / "sends.py").touch()
    assert not said(checkout)


def test_where_no_setup_is_nothing_is_compared(checkout: Path) -> None:
    (checkout / "scan.py").touch()
    (checkout / "setup.py").unlink()
    assert not said(checkout)
