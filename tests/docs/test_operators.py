"""The how-to pages for operators: their commands, and their files."""

import configparser
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import DOCS, Reader
from tests.output import Output
from typer.main import get_command

from perseid.cli.main import COMMANDS, command_line
from perseid.testing.ports import free_port

PAGES = sorted([*(DOCS / "how-to").glob("*.md"), *(DOCS / "tutorials").glob("*.md")])
COMMAND = re.compile(r"\bperseid((?: [a-z][a-z0-9-]*)+)((?: [^\n`|;&#)]*)?)")
FLAG = re.compile(r"(?<= )--?[a-z][a-z-]*")
DEADLINE_S = 60.0


@pytest.mark.parametrize("page", ["backup", "secure", "watch"])
def test_a_page_is_what_happens(page: str, tmp_path: Path) -> None:
    with Reader(f"how-to/{page}.md", tmp_path) as reader:
        if page == "watch":
            reader.start_broker()
        assert reader.follow() >= 3


def test_the_service_starts_with_its_files_and_ends_at_sigterm(tmp_path: Path) -> None:
    with Reader("how-to/run-as-a-service.md", tmp_path) as reader:
        assert reader.follow() == 0
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(tmp_path / "perseid-broker.service")
    _, *words = shlex.split(unit["Service"]["ExecStart"])
    conf = tmp_path / "broker.conf"
    text = conf.read_text().replace("/var/lib/perseid", str(tmp_path))
    text = re.sub(r"(?m)^listenPort=.*$", f"listenPort={free_port((0, 1))}", text)
    conf.write_text(text + "mappedFileSizeCommitLog=1048576\n")
    words[words.index("/etc/perseid/broker.conf")] = str(conf)
    with (tmp_path / "log").open("w") as log:
        broker = subprocess.Popen(
            ["perseid", *words], env=reader.environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert "boot success" in Output(broker, tmp_path / "log").line(DEADLINE_S)
        broker.send_signal(signal.SIGTERM)
        broker.communicate(timeout=float(unit["Service"]["TimeoutStopSec"]))
    finally:
        if broker.poll() is None:
            broker.kill()
            broker.communicate()
    assert broker.returncode == 0


@cache
def whole() -> Any:
    """The command with all its commands."""
    return get_command(command_line(*COMMANDS))


def commands(page: Path) -> Iterator[tuple[list[str], set[str]]]:
    """The commands that a page names, and their flags."""
    for line in page.read_text().splitlines():
        for words, rest in COMMAND.findall(line) if "pip " not in line else ():
            yield words.split(), set(FLAG.findall(" " + rest))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_each_command_that_a_page_names_exists(page: Path) -> None:
    for words, flags in commands(page):
        command: Any = whole()
        path = ["perseid"]
        while words and hasattr(command, "commands"):
            name = words.pop(0)
            assert name in command.commands, f"{page.name}: {' '.join(path)} has no command {name}"
            command = command.commands[name]
            path.append(name)
        known = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
        assert flags - {"--help"} <= known, f"{page.name}: {' '.join(path)} has no {flags - known}"
