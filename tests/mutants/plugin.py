"""A plugin of pytest: notes what each test executes, or runs only what it is told, in the order that it is told."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .marks import VARIABLE, Marks

OUT = "PERSEID_MUTANTS_OUT"
"""The file for lines of what was executed."""
ONLY = "PERSEID_MUTANTS_ONLY"
"""A file with the names of tests, one a line."""
FAILED = "PERSEID_MUTANTS_FAILED"
"""The file for the name of what failed."""
ENDED = "it was ended"
"""What is said of one that took too long."""
FUNCTION_S = 2
"""When so much was spent on a test function, no more of its parameters are recorded."""


def packed(marks: bytes) -> str:
    """Marks as text."""
    return base64.b85encode(zlib.compress(marks, 1)).decode()


def unpacked(text: str) -> bytes:
    """The marks again."""
    return zlib.decompress(base64.b85decode(text))


WAITING = 4
"""So many seconds of waiting cost as much as one of work."""


def spent() -> float:
    """Seconds of the CPU, those of children that ended among them, and something for each that passed."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + times.elapsed / WAITING


class Recorder:
    """Appends a line for each test: its name, its seconds, whether it passed, and what it executed."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._marks = Marks(Path(os.environ[VARIABLE]))
        self._passed = True
        self._spent: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        self._marks.take()
        self._passed, begin = True, spent()
        function = item.nodeid.partition("[")[0]
        if self._spent[function] > FUNCTION_S:
            item.add_marker(pytest.mark.skip("others of its parameters told enough"))
        result = yield
        took = spent() - begin
        self._spent[function] += took
        record = {"test": item.nodeid.partition("@")[0], "s": round(took, 4), "ok": self._passed}
        with self._path.open("a") as file:
            file.write(json.dumps(record | {"marks": packed(self._marks.take())}) + "\n")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed &= report.passed


class Chosen:
    """Deselects whatever is not asked for."""

    def __init__(self, path: str) -> None:
        self._order = {name: at for at, name in enumerate(Path(path).read_text().split("\n"))}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = [item for item in items if item.nodeid.partition("@")[0] in self._order]
        items[:] = sorted(found, key=lambda item: self._order[item.nodeid.partition("@")[0]])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            ended = "Timeout (>" in str(report.longrepr)
            Path(os.environ[FAILED]).write_text(f"{report.nodeid}{f' {ENDED}' if ended else ''}")


def pytest_configure(config: Any) -> None:
    if OUT in os.environ:
        config.pluginmanager.register(Recorder(os.environ[OUT]))
    if ONLY in os.environ:
        config.pluginmanager.register(Chosen(os.environ[ONLY]))
