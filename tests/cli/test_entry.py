"""What the command says before it imports anything of Perseid's."""

import sys
import tomllib
from pathlib import Path

import pytest

from perseid.cli import entry

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_an_older_python_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13, "final", 0))
    monkeypatch.delitem(sys.modules, "perseid.cli.main", raising=False)
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == (
        "perseid: needs Python 3.11 or later, and this is 3.10.13: make an environment with a later one"
    )
    assert "perseid.cli.main" not in sys.modules


def test_the_oldest_python_is_the_one_that_pip_asks_for() -> None:
    oldest = ".".join(map(str, entry.OLDEST))
    assert tomllib.loads(PROJECT.read_text())["project"]["requires-python"] == f">={oldest}"
