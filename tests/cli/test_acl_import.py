"""`perseid admin acl import` without PyYAML, which an extra brings."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perseid.base.extras import MissingExtra
from perseid.cli.main import app


def test_without_its_extra_it_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts: []\n")
    result = CliRunner().invoke(app, ["admin", "acl", "import", str(file)])
    assert isinstance(result.exception, MissingExtra)
    assert str(result.exception) == "perseid admin acl import needs yaml: pip install 'perseid[acl]'"
