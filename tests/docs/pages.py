"""The commands, files and outputs of a page of the site, run as a reader would run them.

A page's fenced blocks are read in order:

- `console`: lines that begin with `$ ` are commands, and lines that begin with `> ` go on with the one above. What
  follows a command is what it prints. All of these run in one shell, in an empty folder.
- `console title="Terminal N…"`: a shell of this name. Its last command stays: the test goes on when it has printed the
  lines that the page shows. A later block of the same name shows what it prints then, or begins with `^C`.
- any language with `title="NAME"`: the reader saves the block as this file.

`--8<-- "FILE"` and `--8<-- "FILE:SECTION"` are filled in as the site does it. In an output `…` stands for any text, and
ids and times may differ (`MASKS`). A page names the default ports; free ones are used in their place.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from perseid.testing.ports import free_port

DOCS = Path(__file__).parents[2] / "docs"
DEADLINE_S = 180.0
END_DEADLINE_S = 90.0
CHUNK = 65_536
NAMESRV_PORT, BROKER_PORT = "9876", "10911"
INSTALLING = re.compile(r"(python3? -m venv|pip install|(\.|source) \S*activate|make wheel)\b")
"""Done already where the tests run; `make release-dry` installs into clean environments."""
MASKS = [
    (re.compile(r"(?<=│ clustering │ )\d+( +)"), r"LAG\1"),
    (re.compile(r"(?<=│ broker-a │ )\d+( +)│ \d+( +)(?=│ \d{4}-)"), r"QUEUE\1│ OFFSET\2"),
    (re.compile(r"\b[0-9A-F]{32}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(,\d+)?"), "TIME"),
    (re.compile(r"\b\d{13}\b"), "MS"),
    (re.compile(r"(/[\w.-]+)/\d+(@\d+)?$"), r"\1/QUEUE"),
    (re.compile(r"\S*/data\b"), "DATA"),
    (re.compile(r"\b\d+\.\d\ds\b"), "SECONDS"),
    (re.compile(r"={8,}| {3,}"), " "),
    (re.compile(r"^\d+ (?=(acknowledged|read)$)"), "COUNT "),
    (re.compile(r"SECONDS (call|setup|teardown) +"), "SECONDS PHASE "),
]
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
SNIPPET = re.compile(r'^(?P<indent> *)--8<-- "(?P<file>[^":]+)(:(?P<section>\w+))?"\n', re.MULTILINE)
MARK = re.compile(r"^ *(#|--) --8<-- \[(start|end):\w+\]\n", re.MULTILINE)


@dataclass
class Step:
    """A command, and what it prints."""

    command: str
    output: list[str] = field(default_factory=list)


@dataclass
class Block:
    """A fenced block with all its snippets filled in."""

    language: str
    title: str
    text: str

    @property
    def stays(self) -> bool:
        """Does its last command go on while the reader reads on?"""
        return self.language == "console" and self.title.startswith("Terminal")

    @property
    def interrupts(self) -> bool:
        """Does it begin with Ctrl-C?"""
        return self.text.startswith("^C\n")

    def steps(self) -> list[Step]:
        """The commands of a console."""
        found: list[Step] = []
        for line in self.text.splitlines():
            if line == "^C":
                assert self.stays and not found, "Ctrl-C ends what a terminal runs"
            elif line.startswith("$ "):
                found.append(Step(line[2:]))
            elif line.startswith("> ") and found and not found[-1].output:
                found[-1].command += "\n" + line[2:]
            else:
                if not found:  # more of the output of what runs in this terminal
                    assert self.stays, f"a console begins with a command, not with {line!r}"
                    found.append(Step(""))
                found[-1].output.append(line)
        return found


def snippet(file: str, section: str | None) -> str:
    """A file beneath docs/, or the section of it between its marks."""
    text = (DOCS / file).read_text()
    if section:
        begin, end = (re.search(rf"^.*--8<-- \[{word}:{section}\]\n", text, re.MULTILINE) for word in ("start", "end"))
        assert begin and end, f"{file} has no section {section}"
        text = textwrap.dedent(text[begin.end() : end.start()])
    return MARK.sub("", text)


def filled(text: str) -> str:
    """A page with its snippets in it."""
    return SNIPPET.sub(lambda found: textwrap.indent(snippet(found["file"], found["section"]), found["indent"]), text)


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    for found in FENCE.finditer(filled(page.read_text())):
        language, _, attributes = found["info"].strip().partition(" ")
        title = re.search(r'title="([^"]*)"', attributes)
        yield Block(language, title[1] if title else "", textwrap.dedent(found["text"]))


def masked(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, word in MASKS:
        line = pattern.sub(word, line)
    return line.rstrip()


def agrees(shown: str, printed: str) -> bool:
    """Is this what the page shows? `…` stands for any text."""
    pattern = ".*".join(re.escape(part) for part in masked(shown).split("…"))
    return re.fullmatch(pattern, masked(printed)) is not None


def ported(text: str, ports: dict[str, str]) -> str:
    """A text of a page with our ports in it."""
    for name, port in ports.items():
        text = re.sub(rf"\b{name}\b", port, text)
    return text


class Shell:
    """A shell, and the lines that it and its commands print."""

    def __init__(self, folder: Path, environment: dict[str, str], ports: dict[str, str]) -> None:
        self.ports = ports
        self.process = subprocess.Popen(
            ["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd=folder, env=environment, text=True, start_new_session=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._held = b""

    def begin(self, command: str) -> None:
        """Let it run a command; the page's ports are ours."""
        assert self.process.stdin is not None
        command = ported(command, self.ports)
        if re.match(r"perseid up\b(?!.*--namesrv-port)", command):
            command += f" --namesrv-port {self.ports[NAMESRV_PORT]} --broker-port {self.ports[BROKER_PORT]}"
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def line(self, deadline: float) -> str:
        """The next line, with the page's ports in it."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._held:
                left = deadline - time.monotonic()
                assert left > 0 and selector.select(left), f"nothing more came in time after {self.lines}"
                more = os.read(self.process.stdout.fileno(), CHUNK)
                assert more, f"it ended after {self.lines} {self._held!r}"
                self._held += more
        line, _, self._held = self._held.partition(b"\n")
        text = line.decode()
        for name, port in self.ports.items():
            text = re.sub(rf"\b{port}\b", name, text)
        self.lines.append(text)
        return text

    def run(self, step: Step) -> None:
        """Run a command to its end; it prints exactly what the page shows."""
        end = "the command has ended:"
        self.begin(f"{step.command}\nprintf '\\n{end}%s\\n' $?")
        deadline = time.monotonic() + DEADLINE_S
        printed: list[str] = []
        while not (line := self.line(deadline)).startswith(end):
            printed.append(line)
        while printed and not printed[-1]:
            printed.pop()
        told = "\n".join(["$ " + step.command, *printed])
        assert line == end + "0" or step.output, f"{line}\n{told}"
        assert len(printed) == len(step.output), f"the page shows {step.output}, and this is what happens:\n{told}"
        for shown, line in zip(step.output, printed, strict=True):
            assert agrees(shown, line), f"the page shows {shown!r}, and this is what happens:\n{told}"

    def skip(self) -> None:
        """Forget what it has printed until now."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while selector.select(0) and (more := os.read(self.process.stdout.fileno(), CHUNK)):
                self._held += more
        self._held = self._held.rpartition(b"\n")[2]

    def expect(self, shown: list[str]) -> None:
        """Wait until it has printed all of these lines, in whatever order, and with others between them. After `…` what
        it has printed until now does not count."""
        deadline = time.monotonic() + DEADLINE_S
        missing = list(shown)
        if missing and missing[0] == "…":
            self.skip()
            missing.pop(0)
        while missing:
            printed = self.line(deadline)
            missing = [line for line in missing if not agrees(line, printed)]

    def end(self) -> None:
        """Press Ctrl-C until nothing runs any more, the shell neither."""
        os.killpg(self.process.pid, signal.SIGINT)
        try:
            self.process.communicate(timeout=END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.communicate()
            raise


class Reader:
    """A reader who does what a page says, from its first line to its last."""

    def __init__(self, page: str, folder: Path) -> None:
        self.page = DOCS / page
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.ports = {name: str(free_port()) for name in (NAMESRV_PORT, BROKER_PORT)}
        bin_folder = Path(sys.executable).parent
        self.environment = {
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "COLUMNS": "120",
            "NAMESRV_ADDR": f"127.0.0.1:{self.ports[NAMESRV_PORT]}",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path.endswith("src")),
        }
        self.shells: dict[str, Shell] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for shell in reversed(self.shells.values()):
            shell.end()

    def shell(self, name: str) -> Shell:
        """The terminal of this name; opened when it is first used."""
        if name not in self.shells:
            self.shells[name] = Shell(self.folder, self.environment, self.ports)
        return self.shells[name]

    def save(self, block: Block) -> None:
        """Save a file as the page names it."""
        path = self.folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(ported(block.text, self.ports))

    def save_files(self, page: str) -> None:
        """Have the files that another page has its reader save."""
        for block in blocks(DOCS / page):
            if block.title and block.language != "console":
                self.save(block)

    def start_broker(self) -> None:
        """Have a broker that runs, as most pages suppose."""
        shell = self.shell("Terminal: a broker")
        shell.begin("perseid up --data data")
        shell.expect(["ready namesrv=…"])

    def follow(self) -> int:
        """Do all that the page says; how many commands that were."""
        count = 0
        for block in blocks(self.page):
            if block.language != "console":
                if block.title:
                    self.save(block)
                continue
            steps = [step for step in block.steps() if not INSTALLING.match(step.command)]
            count += len(steps)
            if block.interrupts:
                self.shells.pop(block.title).end()
                if not steps:
                    continue
            shell = self.shell(block.title)
            staying = steps.pop() if block.stays else None
            for step in steps:
                shell.run(step)
            if staying is not None:
                if staying.command:
                    shell.begin(staying.command)
                shell.expect(staying.output)
        return count
