"""The command imports what it needs, and has all its commands."""

import subprocess
import sys

import pytest
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
