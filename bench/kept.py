"""Figures that are kept by commit, so that a page can be measured in pieces: build/bench/COMMIT/ROW.json.

Only what a clean tree gave is kept: the commit then says what was measured. The page is written from these files, so
all of its rows are of one commit.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import Rounds, Summary, summarise
from servers import BenchError

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "bench"
OUTPUTS = ("docs/benchmarks.md", "docs/img/")
"""What --write makes: these may differ from the commit."""
DIGITS = 12
"""Of a commit's name, in folders and on the page."""


def git(*arguments: str, root: Path = ROOT) -> str:
    """What git says; BenchError when it fails."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def clean_commit(root: Path = ROOT) -> str:
    """The commit that the tree is of; BenchError where files differ from it, but for what --write makes."""
    commit = git("rev-parse", "HEAD", root=root).strip()
    changed = [line[3:] for line in git("status", "--porcelain", root=root).splitlines()]
    if others := [path for path in changed if not path.strip('"').startswith(OUTPUTS)]:
        raise BenchError(
            f"{len(others)} files differ from commit {commit[:DIGITS]} ({', '.join(others[:3])}): commit them first, "
            "so that the figures belong to a commit"
        )
    git("cat-file", "-e", f"{commit}^{{commit}}", root=root)
    return commit[:DIGITS]


@dataclass(frozen=True)
class Settings:
    """What has to be the same for figures to stand on one page."""

    seconds: float
    rounds: int
    warm: float
    title: str
    """Of the row, which has its sizes in it."""


class Kept:
    """The figures of one commit."""

    def __init__(self, commit: str, folder: Path = FOLDER) -> None:
        self.commit, self.folder = commit, folder / commit

    def save(self, rows: Mapping[str, Settings], results: Rounds, machine: Mapping[str, str], took_s: float) -> None:
        """Keep rows that were measured together, in turn."""
        self.folder.mkdir(parents=True, exist_ok=True)
        together = f"{time.time_ns()}"
        for name, settings in rows.items():
            found = {"settings": vars(settings), "together": together, "took_s": took_s / len(rows)}
            found |= {"machine": machine, "rounds": results[name]}
            fresh = self._path(name).with_suffix(".new")
            fresh.write_text(json.dumps(found, indent=1) + "\n")
            fresh.rename(self._path(name))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def row(self, name: str) -> dict[str, Any] | None:
        """What was kept of a row; None where it was not measured."""
        try:
            found: dict[str, Any] = json.loads(self._path(name).read_text())
        except FileNotFoundError:
            return None
        return found

    def rounds(self, name: str) -> dict[str, list[dict[str, float]]]:
        """The rounds of each server; none where the row was not measured."""
        found = self.row(name)
        return found["rounds"] if found else {}

    def have(self, rows: Mapping[str, Settings]) -> bool:
        """Whether these rows were measured, together and with these settings."""
        found = [self.row(name) for name in rows]
        if not all(found):
            return False
        same = all(one and one["settings"] == vars(rows[name]) for name, one in zip(rows, found, strict=True))
        return same and len({one["together"] for one in found if one}) == 1

    def summary(self, names: Iterable[str]) -> Summary:
        """Of those of these rows that were measured."""
        found = {name: kept for name in names if (kept := self.row(name))}
        titles = {name: kept["settings"]["title"] for name, kept in found.items()}
        return summarise({name: kept["rounds"] for name, kept in found.items()}, titles)

    def machine(self, names: Iterable[str]) -> dict[str, str]:
        """Of the first of these rows, with the first and the last day on which one was measured."""
        found = [kept["machine"] for name in names if (kept := self.row(name))]
        days = sorted({machine["date"] for machine in found})
        return {**found[0], "date": " to ".join(dict.fromkeys((days[0], days[-1])))}

    def keep_figures(self, name: str, figures: Mapping[str, Any]) -> None:
        """What another program measured, for it to read again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path(name).write_text(json.dumps(figures, indent=1) + "\n")

    def figures(self, name: str) -> dict[str, Any] | None:
        """That; None where it was not measured."""
        return self.row(name)

    def keep_text(self, part: str, text: str) -> None:
        """A part of the page that another program measures."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{part}.md").write_text(text)

    def text(self, part: str) -> str | None:
        """That part; None where it was not measured."""
        path = self.folder / f"{part}.md"
        return path.read_text() if path.exists() else None


def seconds_of(names: Sequence[str], folder: Path = FOLDER) -> float | None:
    """How long these rows took the last time, of whichever commit; None where one was never kept."""
    total = 0.0
    for name in names:
        found = sorted(folder.glob(f"*/{name}.json"), key=lambda path: path.stat().st_mtime)
        if not found:
            return None
        total += float(json.loads(found[-1].read_text())["took_s"])
    return total
