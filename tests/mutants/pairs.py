"""The same small defects in the sources of a commit and in those of today: what was only moved is still noticed.

    python -m tests.mutants.pairs COMMIT --count 60 --seed 1

A pair is one change of one line, which stands once in both, in whatever file. Nobody records which tests execute it:
by one rule, each tree's tests are asked that are nearest to it by their words (words.py), for so many seconds, the
nearest first; once more, without the compiled core, if nothing noticed it. So tests elsewhere may notice what is told
to be missed; what counts is that a pair's ends are told the same. A change of the core's sources is met without what
was compiled of them. A test that fails with the sources as they are is left out. Results are JSON lines, and a run goes
on where the last one ended.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from .draw import Mutant, draw_pairs
from .executed import CACHE, FOLDERS, PLAIN, PYTEST, ROOT, Copy
from .plugin import ENDED, FAILED, LEFT_OUT, SECONDS, WORDS
from .run import MEMORY_BYTES, NO_TESTS, NOBODY, Key, Known, Row
from .words import Nearby

PACKAGES = "broker,raft,controller,store,core,replication,spark"
TESTS_S, CORE_S, PLAIN_S, ONE_TEST_S = 12, 20, 6, 30
"""Of the CPU: for the nearest tests, for those of the core, for those without it, for a test that failed."""
TEST_LIMIT_S, LIMIT_S = 60, 330
"""Of the wall clock: for a test, for all of them."""
OF_THE_CORE = {"columns": "test_rows", "items": "test_items"}
"""What plays the core's sources as plain Python, where it is not `test_fast`."""


class Tree:
    """Sources that are changed, one place at a time, and their tests."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._sources = folder, folder / "src"
        self._of_spark, self._others = Nearby(folder, ["spark"]), Nearby(folder, FOLDERS)
        self._failing: list[str] = []
        self._written = time.time()

    def meet(self, mutant: Mutant) -> Row:
        """What noticed it."""
        path, began = self._sources / mutant.path, time.monotonic()
        whole, times = path.read_text(), path.stat()
        compiled = sorted((self._sources / "perseid" / "core").glob("*.so")) if "/core/" in mutant.path else []
        for one in compiled:
            one.rename(one.with_suffix(".off"))
        try:
            found = self._notice(mutant, path, whole)
        finally:
            path.write_text(whole)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # or the core would be older than its source
            for one in compiled:
                one.with_suffix(".off").rename(one)
        return {"file": mutant.path, "line": mutant.line, "by": found, "seconds": round(time.monotonic() - began)}

    def _notice(self, mutant: Mutant, path: Path, whole: str) -> str:
        of_core = "/core/" in mutant.path
        of_spark = mutant.path.startswith("perseid/spark/")
        tests = self._of_spark if of_spark else self._others
        files, words = tests.nearest(mutant), tests.words(mutant)
        if of_core:
            stem = OF_THE_CORE.get(Path(mutant.path).stem, "test_fast")
            files = files[:3] + [str(one.relative_to(self._folder)) for one in self._folder.rglob(f"{stem}.py")]
        stages = [(files, CORE_S if of_core else TESTS_S, of_core)]
        if not of_core and not of_spark:
            stages.append((files[:3], PLAIN_S, True))
        for names, seconds, plain in stages:
            if found := self._failed(mutant, path, whole, (list(dict.fromkeys(names)), words, seconds, plain)):
                return found
        return ""

    def _failed(self, mutant: Mutant, path: Path, whole: str, stage: tuple[list[str], Any, int, bool]) -> str:
        """What fails, and does not fail with the sources as they are."""
        _, words, _, plain = stage
        while True:
            self._write(path, mutant.source)
            found = self._run(*stage)
            if "::" not in found:
                return found
            self._write(path, whole)
            name = found.removesuffix(ENDED).strip()
            if not self._run([name], words, ONE_TEST_S, plain):
                return found
            self._failing.append(name)

    def _write(self, path: Path, text: str) -> None:
        """With a time that no compiled file of it has."""
        path.write_text(text)
        self._written += 2
        os.utime(path, (self._written, self._written))

    def _run(self, names: list[str], words: dict[str, float], seconds: int, plain: bool) -> str:
        """What failed, "" if nothing did."""
        environment = os.environ | {"PYTHONPATH": str(self._sources)} | (PLAIN if plain else {})
        environment |= {WORDS: json.dumps(words), SECONDS: str(seconds), LEFT_OUT: json.dumps(self._failing)}
        with tempfile.TemporaryDirectory() as base, (Path(base) / "output").open("wb+") as output:
            failed = Path(base) / "failed"
            process = subprocess.Popen(
                [*PYTEST, "-x", "--timeout", str(TEST_LIMIT_S), *names],
                cwd=self._folder, env=environment | {FAILED: str(failed)}, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
            try:
                code = process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                return f"{ENDED} after {LIMIT_S} s"
            finally:
                with suppress(ProcessLookupError):  # it ended, and left nothing behind
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if code in (0, NO_TESTS):
                return ""
            output.seek(0)
            last = output.read().decode(errors="replace").strip().splitlines()[-1:]
            return failed.read_text() if failed.exists() else f"exit code {code}: {' '.join(last)[:150]}"


def summary(rows: list[Row]) -> list[str]:
    """A table by package, then the pairs of which one end alone was noticed."""
    lines = ["| package | pairs | noticed before | noticed after |", "|---|---:|---:|---:|"]
    packages = list(dict.fromkeys(row["package"] for row in rows))
    for package in [*packages, "all"]:
        of = [row for row in rows if package in (row["package"], "all")]
        noticed = [sum(row[side]["by"] != "" for row in of) for side in ("before", "after")]
        lines.append(f"| {package} | {len(of)} | {noticed[0]} | {noticed[1]} |")
    for row in rows:
        before, after = row["before"], row["after"]
        if (before["by"] == "") != (after["by"] == ""):
            told = f"before by {before['by']}" if before["by"] else f"after by {after['by']}"
            lines.append(f"{after['file']}:{after['line']} {row['where']}: {row['change']}  [only {told}]")
    return lines


def _prepared(commit: str, folder: Path) -> Path:
    """A worktree of the commit, with its core compiled, and with these files in place of its own."""
    subprocess.run(["git", "worktree", "add", "-q", "--detach", folder, commit], cwd=ROOT, check=True)
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=folder, check=True)
    shutil.copytree(Path(__file__).parent, folder / "tests" / "mutants", dirs_exist_ok=True)
    return folder


def play(options: argparse.Namespace, rows: dict[Key, Row], results: Path) -> None:
    """Each pair goes to the file when both of its ends are known."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as base, results.open("a") as file:
        before = Path(base, "before")
        try:
            folders = _prepared(options.commit, before), Copy(Path(base, "after")).folder
            trees = [Tree(folder) for folder in folders]
            old, new = (folder / "src" for folder in folders)
            drawn = draw_pairs(old, new, options.packages.split(","), options.count, options.seed)
            for pair in drawn:
                _, mutant = pair
                row: Row = {"package": mutant.path.split("/")[1], "where": mutant.where, "text": mutant.text}
                row |= {"change": mutant.what}
                if mutant.key in rows or Known().why({"file": mutant.path} | row):
                    continue
                with ThreadPoolExecutor(len(trees)) as pool:
                    row["before"], row["after"] = pool.map(Tree.meet, trees, pair)
                rows[mutant.key] = row
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()
                noticed = [row[side]["by"] or NOBODY for side in ("before", "after")]
                print(f"{len(rows):4}/{len(drawn)} {mutant.path}:{mutant.line} {mutant.what}", noticed, flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", before], cwd=ROOT)


def main() -> int:
    """Play what is left of the drawn ones, and print the whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="of the sources before")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1, help="which ones are drawn")
    parser.add_argument("--packages", default=PACKAGES)
    parser.add_argument("--results", type=Path, help="JSON lines; by default in .cache/mutants, for commit and seed")
    options = parser.parse_args()
    results = options.results or CACHE / f"{options.commit}-{options.seed}.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    lines = results.read_text().splitlines() if results.exists() else []
    rows = {(row["after"]["file"], row["where"], row["text"], row["change"]): row for row in map(json.loads, lines)}
    play(options, rows, results)
    print("\n".join(summary(list(rows.values()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
