"""Where the seconds of a test run go: by folder, by file, by test, by fixture, and by what is waited for.

`make test`, `make test-slow`, `make test-plain` and `make interop` each leave their times in a folder of `.cache/times`
(a run replaces what its predecessor left there); `make test-times` prints the pages of the last runs:

    python tests/times.py [FOLDER ...]

Seconds are of the wall clock, and of CPU: those of this process, of children that ended, and of those that still run.
On a machine that others use as well, the CPU's are what counts. A test's seconds are those of its set-up, its call and
its tear-down; fixtures are listed by themselves, too, each without those that it asked for.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "PERSEID_TIMES"
"""Names the folder; without it nothing is measured."""
FOLDER = Path(__file__).parents[1] / ".cache" / "times"
TOP = 40
WORKER = "PYTEST_XDIST_WORKER"
Spent = tuple[float, float]
"""Seconds of the wall clock, and of CPU."""


def _descendants(process: str) -> float:
    """Ticks of the CPU of all that a process started and that still runs, with what their own children took."""
    ticks = 0.0
    try:
        for thread in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{thread}/children") as file:
                children = file.read().split()
            for child in children:
                with open(f"/proc/{child}/stat") as file:
                    ticks += sum(map(int, file.read().rpartition(")")[2].split()[11:15]))
                ticks += _descendants(child)
    except (OSError, IndexError):  # it has ended meanwhile, or there is no such folder on this system
        return ticks
    return ticks


def now() -> Spent:
    """The clock, and the CPU that this process and all that it started took until now."""
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return time.monotonic(), own + _descendants("self") / os.sysconf("SC_CLK_TCK")


class Recorder:
    """A plugin of pytest that appends what it measures to a file of its worker."""

    def __init__(self, folder: Path) -> None:
        self._worker = os.environ.get(WORKER, "")
        if not self._worker:
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{self._worker or 'all'}.jsonl").open("w")
        self._begin = now()
        self._inner: list[Spent] = []
        """Of each fixture that is being made: what those took that it asked for meanwhile."""

    def add(self, kind: str, name: str, begin: Spent, less: Spent = (0.0, 0.0)) -> Spent:
        """Note what was spent since `begin`; gives it."""
        wall, cpu = (max(0.0, b - a) for a, b in zip(begin, now(), strict=True))
        record = {"kind": kind, "name": name, "wall": round(wall - less[0], 4), "cpu": round(cpu - less[1], 4)}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        return wall, cpu

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begin = now()
        result = yield
        self.add("test", item.nodeid.partition("@")[0], begin)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        begin = now()
        self._inner.append((0.0, 0.0))
        try:
            return (yield)
        finally:
            spent = self.add("fixture", f"{fixturedef.baseid}::{fixturedef.argname}", begin, self._inner.pop())
            if self._inner:
                self._inner[-1] = (self._inner[-1][0] + spent[0], self._inner[-1][1] + spent[1])

    def pytest_sessionfinish(self) -> None:
        if not self._worker:
            self.add("all", "all", self._begin)


_recorder: Recorder | None = None


def plugin() -> Recorder | None:
    """What measures, if anybody asked for it."""
    global _recorder
    if VARIABLE in os.environ:
        _recorder = Recorder(Path(os.environ[VARIABLE]))
    return _recorder


@contextmanager
def measured(kind: str, name: str) -> Iterator[None]:
    """What a test spends meanwhile goes to the page under this kind and name."""
    begin = now() if _recorder else (0.0, 0.0)
    try:
        yield
    finally:
        if _recorder:
            _recorder.add(kind, name, begin)


# ---- the page ----


def read(folder: Path) -> list[dict[str, Any]]:
    """All that a run left."""
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def table(title: str, records: Sequence[dict[str, Any]], by: Callable[[str], str], top: int = TOP) -> list[str]:
    """The most expensive first: CPU, wall clock, how many, and what."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
    for record in records:
        entry = sums[by(record["name"])]
        for at, value in enumerate((record["cpu"], record["wall"], 1)):
            entry[at] += value
    if not sums:
        return []
    lines = [f"\n{title}", "   CPU-s   wall-s   count"]
    first = sorted(sums.items(), key=lambda item: item[1][0] + item[1][1], reverse=True)
    lines += [f"{cpu:8.1f} {wall:8.1f} {count:7.0f}  {name}" for name, (cpu, wall, count) in first[:top]]
    return lines


def page(folder: Path) -> str:
    """All tables of a run."""
    records = read(folder)
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        kinds[record["kind"]].append(record)
    tests, whole = kinds.pop("test", []), kinds.pop("all", [])
    lines = [f"{folder.name}: {len(tests)} tests, {sum(r['cpu'] for r in tests):.0f} CPU-s in them"]
    lines += [f"the whole run: {r['wall']:.0f} s, {r['cpu']:.0f} CPU-s" for r in whole]
    lines += table("By folder", tests, lambda name: "/".join(name.split("::")[0].split("/")[:2]))
    lines += table("By file", tests, lambda name: name.split("::")[0])
    lines += table("By function, all parameters", tests, lambda name: name.split("[")[0])
    lines += table("By test", tests, str)
    for kind, of_kind in sorted(kinds.items()):
        lines += table(f"By {kind}", of_kind, str)
    return "\n".join(lines)


if __name__ == "__main__":
    folders = [Path(word) for word in sys.argv[1:]] or sorted(FOLDER.glob("*"))
    if not folders:
        sys.exit(f"no times in {FOLDER}: run `make test` first")
    print("\n\n".join(map(page, folders)))
