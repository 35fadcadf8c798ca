"""A plugin of pytest: notes what each test executes, or runs only what it is told, in the order that it is told, or
begins with what uses most of some words, for some seconds."""

from __future__ import annotations

import base64
import inspect
import json
import os
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .marks import VARIABLE, Marks
from .words import likeness, words_of

OUT = "PERSEID_MUTANTS_OUT"
"""The file for lines of what was executed."""
ONLY = "PERSEID_MUTANTS_ONLY"
"""A file with the names of tests, one a line."""
WORDS = "PERSEID_MUTANTS_WORDS"
"""Words with their weights, as JSON: tests that use them come first."""
SECONDS = "PERSEID_MUTANTS_SECONDS"
"""Of the CPU, for all tests that are chosen by words."""
LEFT_OUT = "PERSEID_MUTANTS_LEFT_OUT"
"""The names of tests that fail with the sources as they are, as JSON."""
FAILED = "PERSEID_MUTANTS_FAILED"
"""The file for the name of what failed."""
ENDED = "it was ended"
"""What is said of one that took too long."""
LONG_TEST = 6000
"""A test of so many characters counts for half of what it names."""
WALL = 12
"""So many seconds may pass for one of the CPU, on a machine that others use."""
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


class Telling:
    """Tells what failed."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            ended = "Timeout (>" in str(report.longrepr)
            Path(os.environ[FAILED]).write_text(f"{report.nodeid}{f' {ENDED}' if ended else ''}")


class Chosen(Telling):
    """Deselects whatever is not asked for."""

    def __init__(self, path: str) -> None:
        self._order = {name: at for at, name in enumerate(Path(path).read_text().split("\n"))}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = [item for item in items if item.nodeid.partition("@")[0] in self._order]
        items[:] = sorted(found, key=lambda item: self._order[item.nodeid.partition("@")[0]])


class Nearest(Telling):
    """Has each file's tests that use most of some words first, and leaves out what there are no seconds for: a file
    has half of them, a function FUNCTION_S."""

    def __init__(self) -> None:
        self._words: dict[str, float] = json.loads(os.environ[WORDS])
        self._seconds = float(os.environ[SECONDS])
        self._left_out = json.loads(os.environ[LEFT_OUT])
        self._spent: Counter[str] = Counter()
        self._began = time.monotonic()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        files = list(dict.fromkeys(item.path for item in items))
        items.sort(key=lambda item: (files.index(item.path), -self._likeness(item)))

    def _likeness(self, item: pytest.Item) -> float:
        text = inspect.getsource(item.function) if isinstance(item, pytest.Function) else item.name
        return likeness(words_of(text), self._words) / (1 + len(text) / LONG_TEST)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        file, function = item.nodeid.partition("::")[0], item.nodeid.partition("[")[0]
        limits = {function: FUNCTION_S, file: self._seconds / 2, "": self._seconds}
        late = time.monotonic() - self._began > WALL * self._seconds
        if late or item.nodeid in self._left_out or any(self._spent[key] > most for key, most in limits.items()):
            item.add_marker(pytest.mark.skip("there is no time for it"))
        begin = _cpu()
        result = yield
        took = _cpu() - begin
        for key in limits:
            self._spent[key] += took
        return result


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def pytest_configure(config: Any) -> None:
    if OUT in os.environ:
        config.pluginmanager.register(Recorder(os.environ[OUT]))
    if ONLY in os.environ:
        config.pluginmanager.register(Chosen(os.environ[ONLY]))
    if WORDS in os.environ:
        config.pluginmanager.register(Nearest())
