"""The command imports what it needs, and has all its commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.client.fake import FakeServer, in_a_thread
from typer.main import get_command
from typer.testing import CliRunner

from perseid.cli import main

ALL = [command for commands in main.COMMANDS.values() for command in commands]


def names(*modules: str) -> list[str]:
    return list(get_command(main.command_line(*modules)).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", main.COMMANDS)
def test_a_module_registers_the_commands_that_it_is_asked_for(module: str) -> None:
    assert names(module) == list(main.COMMANDS[module])


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["brokr"], ["--version"]])
def test_what_names_no_command_has_all(words: list[str]) -> None:
    assert main.asked(words) == list(main.COMMANDS)
    assert sorted(names(*main.asked(words))) == sorted(ALL)


@pytest.mark.parametrize("words", [["--credentials", "f"], ["--credentials=f"], ["--tls", "--ca", "f"]])
def test_what_is_for_all_commands_stands_before_the_command(words: list[str]) -> None:
    assert main.asked([*words, "topic", "list"]) == ["perseid.cli.topics"]
    assert main.asked(words) == list(main.COMMANDS)


def test_a_command_signs_with_the_credentials_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSEID_CREDENTIALS", "")
    file = tmp_path / "me"
    file.write_text("accessKey: me\nsecretKey: s3cret\n")
    file.chmod(0o600)
    with in_a_thread(FakeServer({"t": 1})) as server:
        result = CliRunner().invoke(main.app, ["--credentials", str(file), "topic", "list", "-n", server.address])
    assert (result.exit_code, result.stdout) == (0, "t\n")
    assert {command.ext["AccessKey"] for command in server.seen} == {"me"}


def test_credentials_that_are_not_there_are_one_line(tmp_path: Path) -> None:
    environment = {**os.environ, "PERSEID_CREDENTIALS": str(tmp_path / "gone")}
    command = [sys.executable, "-m", "perseid.cli.main", "topic", "list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (
        f"perseid: credentials {tmp_path}/gone: No such file or directory;"
        " name a file with accessKey and secretKey\n"
    )


def test_a_command_that_there_is_not_is_refused_by_the_whole() -> None:
    result = CliRunner().invoke(main.app, ["brokr"])
    assert result.exit_code == 2 and "No such command 'brokr'" in result.output


def test_a_client_of_a_topic_imports_no_broker_and_no_simulator() -> None:
    code = (
        "import sys\nfrom perseid.cli import main\nmain.command_line(*main.asked(['topic', 'list']))\n"
        "print([name for name in sys.modules if name.startswith(('perseid.broker', 'perseid.sim', 'pyspark'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
