"""Which test files a change can reach, by the graph of imports.

    python tests/impact.py [REVISION]     what differs from there, by default from where this branch left main
                                          (on main itself: from the commit before)

`make test CHANGED=1` and `make test-slow CHANGED=1` run these; CI runs all. A file reaches what imports it, what names
it (`perseid.cli.main` in a command line, the name of a folder of scripts), and, as a conftest.py, all tests beneath;
what is no Python in a folder of tests reaches what stands in that folder. What configures all of them (pyproject.toml,
setup.py, Makefile, tests/conftest.py, …) reaches every test. Documents reach the tidy tests; pages that are run, and
their code, reach tests/docs, too.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
EVERYTHING = ("pyproject.toml", "setup.py", "Makefile", "tests/conftest.py", ".importlinter")
SCRIPTS = ("bench", "demo", "examples", "release")
"""Folders that tests name, and do not import."""
PLUGIN = re.compile(r"\bperseid_(session_)?(broker|virtual)\b")
NAMED = re.compile(r"\bperseid(?:\.\w+)+")
TIDY = "tests/tidy"
PAGES = ("docs/tutorials/", "docs/how-to/")
"""What tests/docs runs."""


def sources(root: Path) -> dict[str, Path]:
    """All Python files that imports are looked for in, by their paths beneath the root."""
    folders = ("src", "tests", *SCRIPTS)
    return {str(p.relative_to(root)): p for folder in folders for p in sorted((root / folder).rglob("*.py"))}


class Graph:
    """What each file needs, directly."""

    def __init__(self, root: Path) -> None:
        self.files = sources(root)
        self._known: dict[tuple[str, str], list[str]] = {}
        self.needs = {name: set(self._needs(name, path.read_text())) for name, path in self.files.items()}

    def _found(self, folder: str, name: str) -> list[str]:
        """The files that `import` runs for a dotted name which begins in this folder; none where it isn't there."""
        key = folder, name
        if key not in self._known:
            self._known[key] = list(self._find(folder, name.split(".")))
        return self._known[key]

    def _find(self, folder: str, parts: list[str]) -> Iterator[str]:
        for count in range(len(parts), 0, -1):
            base = str(Path(folder, *parts[:count]))
            if f"{base}.py" in self.files or f"{base}/__init__.py" in self.files:
                packages = [str(Path(folder, *parts[:n], "__init__.py")) for n in range(1, count + 1)]
                yield from (name for name in (f"{base}.py", *packages) if name in self.files)
                return

    def _needs(self, name: str, text: str) -> Iterator[str]:
        here = Path(name).parent
        roots = ("src", ".", "tests", str(here))
        a_test = name.startswith("tests/")
        nodes = list(ast.walk(ast.parse(text)))
        told = {node.value for node in nodes if isinstance(node, ast.Expr)}  # docstrings
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    for root in roots:
                        yield from self._found(root, alias.name)
            elif isinstance(node, ast.ImportFrom):
                own = [os.path.normpath(here.joinpath(*[".."] * (node.level - 1)))]
                for root in own if node.level else roots:
                    for alias in node.names:
                        yield from self._found(root, f"{node.module}.{alias.name}" if node.module else alias.name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in told:
                whole = NAMED.fullmatch(node.value)  # in sources, where others only speak of a module
                for word in NAMED.findall(node.value) if a_test or whole else ():
                    yield from self._found("src", word)
        if a_test:
            if PLUGIN.search(text):
                yield "src/perseid/testing/plugin.py"
            for folder in SCRIPTS:
                if f'"{folder}"' in text:
                    yield from (other for other in self.files if other.startswith(f"{folder}/"))
            above = {f"{folder}/conftest.py" for folder in (here, *here.parents)}
            yield from (above & self.files.keys()) - {name}

    def reached(self, changed: Iterable[str]) -> set[str]:
        """All files that need one of these, or need what needs it."""
        needed_by: dict[str, set[str]] = defaultdict(set)
        for name, needs in self.needs.items():
            for other in needs:
                needed_by[other].add(name)
        found, waiting = set(), list(changed)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += needed_by[name]
        return found


def is_test(name: str) -> bool:
    return name.startswith("tests/") and Path(name).name.startswith("test_")


def reached(root: Path, changed: Iterable[str]) -> list[str]:
    """The test files, and folders of them, that a change of these paths can reach, in their order."""
    graph = Graph(root)
    begin: set[str] = set()
    found = {TIDY} if changed else set()
    for name in changed:
        if name in EVERYTHING or (name.startswith("src/") and name not in graph.files):
            return ["tests"]  # what configures all of them; a header of the core, or a module that is gone
        if name in graph.files:
            begin.add(name)
        elif name.startswith("tests/"):  # data, or a file that is gone
            folder = str(Path(name).parent)
            begin |= {other for other in graph.files if other.startswith(f"{folder}/")}
        elif name.startswith(PAGES):
            begin |= {other for other in graph.files if other.startswith("tests/docs/")}
    found |= {name for name in graph.reached(begin) if is_test(name) and not name.startswith(f"{TIDY}/")}
    return sorted(found)


def changed(root: Path, revision: str | None) -> set[str]:
    """Paths that differ from a revision, in commits or in the folder itself."""

    def git(*words: str) -> list[str]:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.split("\n")

    if revision is None:
        (base, *_), (head, *_) = git("merge-base", "main", "HEAD"), git("rev-parse", "HEAD")
        revision = base if base != head else "HEAD~"
    names = git("diff", "--name-only", revision) + git("ls-files", "--others", "--exclude-standard")
    return {name for name in names if name}


if __name__ == "__main__":
    print(*reached(ROOT, changed(ROOT, *(sys.argv[1:2] or [None]))))
