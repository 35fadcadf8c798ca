"""Clean environments: installed, a message sent and read back, the pytest fixture used, uninstalled, nothing left."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from release.build import the_sdist, the_wheel
from release.pythons import Python
from release.report import Report, size
from release.running import DIST, WORK, Failed, run

FIRST_MESSAGE = Path(__file__).with_name("first_message.py")
FIXTURE_TEST = """
from perseid.client import Message
from perseid.client.blocking import BlockingProducer

def test_the_fixture_gives_a_broker(perseid_broker):
    perseid_broker.create_topic("orders", 1)
    with BlockingProducer(perseid_broker.namesrv) as producer:
        assert producer.send(Message("orders", b"one")).queue_offset == 0
"""
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}
MAX_SITE_BYTES = 75_000_000
"""Of all that `pip install perseid` installs, itself included."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment that a trial has made for itself."""

    folder: Path
    name: str
    """In the names of logs."""

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def pip(self, *words: str | Path, log: str, compiler: bool = True) -> None:
        """Run its pip; `compiler=False`: as on a machine that has none."""
        command = [self.python, "-m", "pip", "--disable-pip-version-check", *words]
        run(command, log=f"{log}-{self.name}", cwd=self.folder, environment={} if compiler else NO_COMPILER)

    def files(self) -> set[Path]:
        """All that is in it, byte code aside."""
        return {path for path in self.folder.rglob("*") if "__pycache__" not in path.parts}

    def bytes(self) -> int:
        """Of its files."""
        return sum(path.stat().st_size for path in self.files() if path.is_file() and not path.is_symlink())


def make(python: Python, name: str) -> Environment:
    """A new one, empty but for pip."""
    folder = WORK / f"venv-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    run([python.path, "-m", "venv", folder], log=f"venv-{name}")
    return Environment(folder, name)


def install(report: Report, pythons: Iterable[Python]) -> None:
    """Try each Python's wheel, and with the first of them the sdist on a machine without a compiler."""
    tried = list(pythons)
    for python in tried:
        _try(report, python, the_wheel(python), compiled=True)
    _try(report, tried[0], the_sdist(), compiled=False)


def _try(report: Report, python: Python, file: Path, *, compiled: bool) -> None:
    what = f"{'wheel' if compiled else 'sdist, no compiler,'} on {python.version}"
    room = make(python, python.tag if compiled else f"{python.tag}-plain")
    before, empty = room.files(), room.bytes()
    with report.timed("install", what) as row:
        room.pip("install", file, log="install", compiler=compiled)
        row.bytes = room.bytes() - empty
        if row.bytes > MAX_SITE_BYTES:
            raise Failed(f"{what}: {size(row.bytes)} are installed, and MAX_SITE_BYTES is {size(MAX_SITE_BYTES)}")
    with report.timed("first message", what) as row:
        row.result = _first_message(room, compiled=compiled)
    room.pip("check", log="pip-check")
    with report.timed("pytest fixture", what):
        _use_fixture(room)
    with report.timed("uninstall", what):
        room.pip("uninstall", "--yes", "perseid", log="uninstall")
        left = [path for path in room.files() - before if re.search("perseid", path.name, re.IGNORECASE)]
        if left:
            raise Failed(f"{what}: left behind: {', '.join(map(str, sorted(left)))}")
    shutil.rmtree(room.folder)


def _first_message(room: Environment, *, compiled: bool) -> str:
    """What the user saw, in a few words. Failed when a message was not read, or another core was there."""
    folder = room.folder / "first"
    folder.mkdir()
    text = run([room.python, "-I", FIRST_MESSAGE, folder], log=f"first-{room.name}", cwd=folder)
    told = json.loads(text)
    state = "compiled core" if compiled else "uncompiled core"
    for said in (told["version"], told["first_line"]):
        if f", {state})" not in said:
            raise Failed(f"{room.python}: {state} was expected, and it says: {said}")
    if not compiled and "install a C compiler" not in told["first_line"]:
        raise Failed(f"{room.python}: the first line of `perseid up` has no next step: {told['first_line']}")
    return f"ready after {told['ready_s']:.1f} s, read after {told['read_s']:.1f} s; {told['version']}"


def _use_fixture(room: Environment) -> None:
    folder = room.folder / "fixture"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")  # else the checkout above would configure it
    (folder / "test_fixture.py").write_text(FIXTURE_TEST)
    room.pip("install", "pytest", log="pytest-install")
    run([room.python, "-m", "pytest", "-q", folder], log=f"pytest-{room.name}", cwd=folder)


def sbom(report: Report, pythons: Iterable[Python]) -> None:
    """What an installed Perseid consists of, in CycloneDX, beside the wheels: of the newest Python's environment."""
    python = list(pythons)[-1]
    with report.timed("sbom", f"CycloneDX, of an environment of {python.version}") as row:
        wheel = the_wheel(python)
        room = make(python, "sbom")
        room.pip("install", wheel, log="sbom-install")
        room.pip("uninstall", "--yes", "pip", log="sbom-without-pip")
        out = DIST / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json"
        tool = Path(sys.executable).parent / "cyclonedx-py"
        run([tool, "environment", "--output-reproducible", "-o", out, room.python], log="sbom")
        components = {one["name"] for one in json.loads(out.read_text())["components"]}
        if not {"perseid", "msgspec"} <= components:
            raise Failed(f"{out}: perseid or what it needs is not in it: {sorted(components)}")
        row.bytes, row.result = out.stat().st_size, f"{len(components)} components"
        shutil.rmtree(room.folder)
