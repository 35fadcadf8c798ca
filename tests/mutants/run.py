"""Plants small defects, one at a time, into a copy of the sources, and tells which ones the tests notice.

    python -m tests.mutants.run --count 200 --seed 1 --packages broker,raft,controller,replication,store

It is known which tests and which seeds of the simulator execute which statement (executed.py), so a mutant is met by
these alone, until something fails, cheapest first: the tests of its own module by name, other tests, tests without the
compiled core, seeds of each model; of each of these as many as fit into so many seconds. What lasts ten times as long
as it does with the sources as they are is an endless loop, and counts as noticed.

One that nothing notices is printed with its file, its line and its change: it shows a missing check, or it changes
nothing that anybody could see; a person has to say which, and equivalent.json keeps what was said. Results are
written as they come, and a run goes on where the last one ended; `--again` plays what was missed once more.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from .draw import Mutant, draw
from .executed import CACHE, PLAIN, PYTEST, ROOT, SEEDS, Check, Copy, Map
from .marks import statements
from .plugin import ENDED, FAILED, ONLY

PACKAGES = "broker,raft,controller,replication,store"
EQUIVALENT = Path(__file__).with_name("equivalent.json")
OWN_S, OTHERS_S, PLAIN_S, SEEDS_S = 15, 12, 4, 5
"""What a stage may take with the sources as they are; seeds: of each model."""
MIN_LIMIT_S, TEST_LIMIT_S = 30, 40
ENDLESS = 10
"""So many times what it takes with the sources as they are, and it does not end."""
MEMORY_BYTES = 4 << 30
"""A loop may not take more than this, of the memory of others."""
NO_TESTS = 5
"""Pytest's exit code when it was left with nothing to run."""
NOBODY, NEVER = "MISSED", "never executed"
Row = dict[str, Any]
Key = tuple[str, str, str, str]


class Stage:
    """Some checks that are run in one go."""

    def __init__(self, name: str, checks: list[Check], *, plain: bool = False) -> None:
        self.name, self.checks, self.plain = name, checks, plain
        self.seconds = sum(check.seconds for check in checks)

    def command(self, only: Path) -> list[str]:
        if self.checks[0].is_seed:
            model, *_ = self.checks[0].name.split()
            seeds = [check.name.split()[1] for check in self.checks]
            return [sys.executable, "-m", "tests.mutants.play", model, *seeds]
        only.write_text("\n".join(check.name for check in self.checks))
        return [*PYTEST, "-x", "--timeout", str(TEST_LIMIT_S), *dict.fromkeys(check.group for check in self.checks)]


def stages(mutant: Mutant, checks: list[Check], of_file: set[int]) -> Iterator[Stage]:
    """Those that execute what was changed, cheapest and likeliest first."""
    checks = sorted(checks, key=lambda check: check.seconds)
    met = [check for check in checks if any(check.executes[n] for n in mutant.executing)]
    words = [word.removesuffix("s") for word in Path(mutant.path).with_suffix("").parts[2:]]
    tests = [check for check in met if not check.is_seed]
    own = [check for check in tests if any(word in Path(check.group).stem for word in words)]
    yield Stage("the module's tests", _within(own, OWN_S))
    yield Stage("other tests", _within(_mixed([check for check in tests if check not in own]), OTHERS_S))
    for model in SEEDS:
        yield Stage(f"seeds of {model}", _within([check for check in met if check.group == model], SEEDS_S))
    if not tests:  # perhaps it is only executed where there is no core
        tests = [check for check in checks if not check.is_seed and any(check.executes[n] for n in of_file)]
    yield Stage("tests without the core", _within(_mixed(tests), PLAIN_S), plain=True)


def _within(checks: list[Check], seconds: float) -> list[Check]:
    """The first ones, as many as there is time for, and what still fits of the others; one at least."""
    found: list[Check] = []
    for check in checks:
        if check.seconds <= seconds or not found:
            seconds -= check.seconds
            found.append(check)
    return found


def _mixed(checks: list[Check]) -> list[Check]:
    """One of each file before more of any, the cheap ones first; of a file those that execute least, which look most
    closely."""
    by_file: dict[str, list[Check]] = {}
    for check in sorted(checks, key=lambda check: check.executes.count(1)):
        by_file.setdefault(check.group, []).append(check)
    turns = [(at, check) for of in by_file.values() for at, check in enumerate(of)]
    return [check for _, check in sorted(turns, key=lambda turn: (turn[0], turn[1].seconds))]


class Player:
    """Meets mutants, one at a time, in a copy of its own."""

    def __init__(self, folder: Path, checks: list[Check], of_file: dict[str, set[int]]) -> None:
        self._copy, self._checks, self._of_file = Copy(folder / "copy"), checks, of_file
        self._copy.compile()
        self._only, self._failed = folder / "only", folder / "failed"
        self._written = time.time()

    def meet(self, mutant: Mutant) -> Row:
        """What noticed it."""
        path, began = self._copy.sources / mutant.path, time.monotonic()
        whole, tried = path.read_text(), []
        by, check = NOBODY, ""
        try:
            for stage in stages(mutant, self._checks, self._of_file[mutant.path]):
                if stage.checks:
                    self._write(path, mutant.source)
                    tried.append(f"{stage.name}: {len(stage.checks)}")
                    if found := self._notice(stage, path, whole, mutant.source):
                        by, check = stage.name, found
                        break
        finally:
            self._write(path, whole)
        if by == NOBODY and not self._is_executed(mutant):
            by = NEVER
        where = {"file": mutant.path, "line": mutant.line, "where": mutant.where, "text": mutant.text}
        took = round(time.monotonic() - began, 1)
        return where | {"change": mutant.what, "by": by, "check": check, "tried": tried, "seconds": took}

    def _is_executed(self, mutant: Mutant) -> bool:
        return any(check.executes[n] for check in self._checks for n in mutant.executing)

    def _write(self, path: Path, text: str) -> None:
        """With a time that no compiled file of it has."""
        path.write_text(text)
        self._written += 2
        os.utime(path, (self._written, self._written))

    def _notice(self, stage: Stage, path: Path, whole: str, changed: str) -> str:
        """What failed, or ""."""
        limit_s = MIN_LIMIT_S + ENDLESS * stage.seconds
        failed, took_s = self._run(stage, limit_s)
        if not failed.endswith(ENDED):
            return failed
        self._write(path, whole)
        as_it_is, needs_s = self._run(stage, ENDLESS * limit_s)
        self._write(path, changed)
        if as_it_is:
            return ""  # it fails with the sources as they are, too
        if took_s < ENDLESS * needs_s and not failed.startswith("tests/"):
            failed, took_s = self._run(stage, ENDLESS * needs_s)
        return f"an endless loop: {took_s:.0f} s for {needs_s:.0f} s, {failed}" if failed.endswith(ENDED) else failed

    def _run(self, stage: Stage, limit_s: float) -> tuple[str, float]:
        """What failed, "" if nothing did, ENDED if it took too long; and what it took."""
        self._failed.unlink(missing_ok=True)
        command, began = stage.command(self._only), time.monotonic()
        environment = self._copy.environment | {FAILED: str(self._failed)} | (PLAIN if stage.plain else {})
        if not stage.checks[0].is_seed:
            environment |= {ONLY: str(self._only)}
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command, cwd=self._copy.folder, env=environment, stdout=output, stderr=output, start_new_session=True
            )
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return ENDED, limit_s
            if code in (0, NO_TESTS):
                return "", time.monotonic() - began
            output.seek(0)
            last = output.read().decode(errors="replace").strip().splitlines()[-1:]
        name = self._failed.read_text() if self._failed.exists() else f"exit code {code}: {' '.join(last)[:150]}"
        return name, time.monotonic() - began


class Known:
    """Mutants that nobody could notice, with the reason."""

    def __init__(self, path: Path = EQUIVALENT) -> None:
        self._why = {_key(row): row["why"] for row in json.loads(path.read_text())}

    def why(self, row: Row) -> str:
        return self._why.get(_key(row), "")


def summary(rows: list[Row], known: Known) -> list[str]:
    """A table of what noticed how many, in how many seconds, then what was missed."""
    stage: dict[str, list[float]] = {}
    for row in rows:
        by = "equivalent" if row["by"] in (NOBODY, NEVER) and known.why(row) else row["by"]
        stage.setdefault(by, []).append(row["seconds"])
    lines = ["| noticed by | mutants | seconds each |", "|---|---:|---:|"]
    for by, took in sorted(stage.items(), key=lambda item: -len(item[1])):
        lines.append(f"| {by} | {len(took)} | {sum(took) / len(took):.0f} |")
    missed = [row for row in rows if row["by"] in (NOBODY, NEVER)]
    same = [row for row in missed if known.why(row)]
    noticed, of = len(rows) - len(missed), len(rows) - len(same)
    lines.append(f"{noticed} of {of} were noticed ({100 * noticed / max(of, 1):.1f} %); {len(same)} more can't be")
    for row in missed:
        told = f"{row['file']}:{row['line']} {row['where']}: {row['text']}: {row['change']}"
        lines.append(f"{told}  [{known.why(row) or row['by']}]")
    return lines


def _key(row: Row) -> Key:
    return row["file"], row["where"], row["text"], row["change"]


def main() -> int:
    """Play what is left of the drawn ones, and print the whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="which ones are drawn")
    parser.add_argument("--packages", default=PACKAGES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, help="JSON lines; by default in .cache/mutants, for the seed")
    parser.add_argument("--again", action="store_true", help="play only what was missed, and could be noticed")
    parser.add_argument("--only", default="", help="those with these words in file, line, function or change")
    parser.add_argument("--summary", action="store_true", help="play nothing, print what was played")
    options = parser.parse_args()
    results = options.results or CACHE / f"{options.seed}.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    lines = results.read_text().splitlines() if results.exists() else []
    rows = {_key(row): row for row in map(json.loads, lines)}
    if not options.summary:
        play(options, rows, results)
    print("\n".join(summary(list(rows.values()), Known())))
    return 0


def _wanted(options: argparse.Namespace, rows: dict[Key, Row]) -> list[Mutant]:
    packages = options.packages.split(",")
    drawn = draw(ROOT / "src", packages, options.count, options.seed)
    drawn = [one for one in drawn if options.only in f"{one.path}:{one.line} {one.where}: {one.what}"]
    known = Known()
    missed = {key for key, row in rows.items() if row["by"] in (NOBODY, NEVER) and not known.why(row)}
    if options.again:
        return [one for one in drawn if one.key in missed]
    return [one for one in drawn if one.key not in rows or (options.only and one.key in missed)]


def play(options: argparse.Namespace, rows: dict[Key, Row], results: Path) -> None:
    """Each result goes to the file when it is known."""
    drawn = _wanted(options, rows)
    with tempfile.TemporaryDirectory(prefix="mutants-") as base, results.open("a") as file:
        executed = Map(options.packages.split(","))
        executed.make(Path(base))
        checks, of_file = executed.checks(), statements(ROOT / "src", executed.packages).of_file
        players: SimpleQueue[Player] = SimpleQueue()
        for number in range(options.jobs):
            (folder := Path(base, str(number))).mkdir()
            players.put(Player(folder, checks, of_file))

        def meet(mutant: Mutant) -> Row:
            player = players.get()
            try:
                return player.meet(mutant)
            finally:
                players.put(player)

        with ThreadPoolExecutor(options.jobs) as pool:
            for number, (mutant, row) in enumerate(zip(drawn, pool.map(meet, drawn), strict=True), 1):
                rows[mutant.key] = row
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()
                told = f"{mutant.path}:{mutant.line} {mutant.where}: {mutant.what}"
                print(f"{number:4}/{len(drawn)} {row['seconds']:5.0f} s  {told}  [{row['by']}]", flush=True)


if __name__ == "__main__":
    sys.exit(main())
