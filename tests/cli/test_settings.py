"""`perseid settings`."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from perseid.app import settings
from perseid.cli import main


def said(*words: str) -> str:
    result = CliRunner().invoke(main.app, ["settings", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_one_setting_is_told_whole() -> None:
    lines = said("brokerPermission").splitlines()
    assert lines[0] == "brokerPermission"
    text = " ".join(line.strip() for line in lines[1:])
    assert "What clients may do: 4 for reading plus 2 for writing." in text
    for fact in ("default  6", "takes    0 to 7", "changed  while the node runs", "of       broker"):
        assert fact in text


def test_a_setting_of_several_nodes_is_told_for_each() -> None:
    text = said("checkPeerAddresses")
    assert text.count("checkPeerAddresses\n") == 2 and text.count("RocketMQ has no such setting") == 2


def test_all_settings_have_a_line() -> None:
    lines = said().splitlines()
    for one in settings.described():
        assert any(line.startswith(f"    {one.option.key} ") for line in lines), one.option.key


def test_programs_get_json() -> None:
    (one,) = json.loads(said("fileReservedTime", "--json"))
    assert (one["default"], one["unit"], one["live"], one["nodes"]) == (72, "h", True, ["broker"])
    assert len(json.loads(said("--json"))) == len(list(settings.described()))


@pytest.mark.parametrize("name", ["brokerPermision", "aclEnable"])
def test_a_name_that_there_is_not_is_one_line(name: str) -> None:
    command = [sys.executable, "-m", "perseid.cli.main", "settings", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith(f"perseid: {name}: ")
