"""The command imports what it needs, and has all its commands."""

import os
import socket
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
def test_what_names_no_command_needs_no_module(words: list[str]) -> None:
    assert main.needed(words) == []


@pytest.mark.parametrize("words", [["--credentials", "f"], ["--credentials=f"], ["--tls", "--ca", "f"]])
def test_what_is_for_all_commands_stands_before_the_command(words: list[str]) -> None:
    assert main.needed([*words, "topic", "list"]) == ["perseid.cli.topics"]
    assert main.needed(words) == []


def test_help_is_the_same_with_all_modules_and_with_none() -> None:
    assert sorted(ALL) == sorted(get_command(main.with_names()).commands)  # type: ignore[attr-defined]
    whole, names_alone = (CliRunner().invoke(app, ["--help"]) for app in (main.app, main.with_names()))
    assert whole.exit_code == names_alone.exit_code == 0
    assert sorted(whole.output.splitlines()) == sorted(names_alone.output.splitlines())
    assert "perseid up --data DIR" in whole.output


def imported(words: list[str], beginnings: tuple[str, ...]) -> str:
    """The modules that a command line imports, of those that begin so."""
    code = (
        "import sys\nfrom perseid.cli import main\n"
        f"main.run({words})\n"
        f"print('imported', sorted(name for name in sys.modules if name.startswith({beginnings})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()[-1].removeprefix("imported ")


@pytest.mark.parametrize("words", [[], ["--version"], ["tpoic"]])
def test_what_runs_no_command_imports_no_client_and_no_server(words: list[str]) -> None:
    assert imported(words, ("perseid.client", "perseid.broker", "perseid.sim", "perseid.spark", "pyspark")) == "[]"


def test_a_client_of_a_topic_imports_no_broker_and_no_simulator() -> None:
    assert imported(["topic", "list", "-n", "127.0.0.1:1"], ("perseid.broker", "perseid.sim", "pyspark")) == "[]"


def test_up_imports_no_client(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ["up", "--data", str(tmp_path), "--namesrv-port", str(taken.getsockname()[1])]
        assert imported(words, ("perseid.client", "perseid.sim", "rich.table", "pyspark")) == "[]"


@pytest.mark.parametrize("words", [["topic", "list"], ["send", "t", "x"], ["consume", "t"]])
def test_what_prints_no_table_imports_no_tables(words: list[str]) -> None:
    assert imported([*words, "-n", "127.0.0.1:1"], ("rich.", "perseid.broker")) == "[]"


MISTAKES = (
    (["tpoic"], "perseid: No such command 'tpoic'. Did you mean 'topic'? Help: perseid --help"),
    (["topic", "lst"], "perseid topic: No such command 'lst'. Did you mean 'list'? Help: perseid topic --help"),
    (["send", "t", "--tga", "x"], "perseid send: No such option: --tga. Did you mean --tag? Help: perseid send --help"),
    (["up"], "perseid up: Missing option '--data'; Help: perseid up --help"),
)


@pytest.mark.parametrize(("words", "told"), MISTAKES)
def test_a_mistake_in_a_command_line_is_one_line_with_what_was_meant(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(words) == 2
    assert capsys.readouterr() == ("", told + "\n")


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
