"""Which tests and seeds execute which statements: played once on sources that leave marks, kept in `.cache/mutants`."""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from . import marks
from .plugin import OUT, unpacked

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "mutants"
FOLDERS = ["broker", "raft", "controller", "replication", "store", "badinput", "golden", "core"]
"""Of tests that are asked."""
SEEDS = {"broker": 25, "acting": 8, "raft": 20, "group": 6, "ha": 15}
FIRST = 4_000_000
PYTEST = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:randomly", "-p", "no:cacheprovider"]
PYTEST += ["-p", "tests.mutants.plugin", "-m", "not interop and not sim and not spark"]
PLAIN = {"PERSEID_CORE": "off"}


@dataclass(frozen=True, slots=True)
class Check:
    """A test, or a seed of a model, with what it executes."""

    name: str
    seconds: float
    executes: bytes

    @property
    def is_seed(self) -> bool:
        return "::" not in self.name

    @property
    def group(self) -> str:
        """Its file, or its model."""
        return self.name.partition("::")[0] if not self.is_seed else self.name.split()[0]


class Copy:
    """A copy of sources and tests that may be changed, and that changes of the checkout do not reach."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.folder, self.sources = folder, folder / "src"
        ignored = shutil.ignore_patterns("__pycache__", "*.c", "*.egg-info")
        for name in ("src", "tests"):
            shutil.copytree(root / name, folder / name, ignore=ignored)
        for path in root.iterdir():
            if path.name not in ("src", "tests", ".cache", ".git", ".hypothesis") and not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)
        self.environment = os.environ | {"PYTHONPATH": str(self.sources)}

    def compile(self) -> None:
        """Once, so that each process has less to do."""
        compileall.compile_dir(self.sources, quiet=2)


def _digest(paths: list[Path]) -> str:
    whole = hashlib.sha1()
    for path in paths:
        whole.update(path.read_bytes())
    return whole.hexdigest()[:12]


class Map:
    """Who executes what. What it knows is made again for test files that changed. Of functions that changed since, it
    knows who executed some of them, which counts for all of them."""

    def __init__(self, packages: list[str]) -> None:
        self.packages = packages
        self._anchors = marks.statements(ROOT / "src", packages).anchors
        text = json.dumps(self._anchors)
        self._state = hashlib.sha1(text.encode()).hexdigest()[:10]
        self.folder = CACHE / "map"
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{self._state}.json").write_text(text)

    def _lines(self) -> dict[str, Path]:
        """Of each test file and each model the file of lines for what it is now, there or to be made."""
        tests = [path for name in FOLDERS for path in sorted((ROOT / "tests" / name).rglob("test_*.py"))]
        found = {str(path.relative_to(ROOT)): _digest([path]) for path in tests}
        found |= {model: str(count) for model, count in SEEDS.items()}
        lines = {}
        for word, state in found.items():
            name = f"{word.replace('/', '.')}-{state}"
            known = sorted(self.folder.glob(f"{name}-*.jsonl"), key=lambda path: path.stat().st_mtime)
            lines[word] = known[-1] if known else self.folder / f"{name}-{self._state}.jsonl"
        return lines

    def make(self, base: Path) -> None:
        """Play what is missing."""
        missing = {word: path for word, path in self._lines().items() if not path.exists()}
        if not missing:
            return
        copy = Copy(base / "marked")
        shared, out = base / "marks", base / "lines"
        shared.write_bytes(bytes(marks.mark(copy.sources, self.packages)))
        copy.compile()
        environment = copy.environment | {marks.VARIABLE: str(shared), OUT: str(out)}
        tests = [word for word in missing if word not in SEEDS]
        commands = [[*PYTEST, *(t for t in tests if t.startswith(f"tests/{folder}/"))] for folder in FOLDERS]
        commands = [command for command in commands if len(command) > len(PYTEST)]
        for model in SEEDS.keys() & missing.keys():
            seeds = [str(FIRST + n) for n in range(SEEDS[model])]
            commands.append([sys.executable, "-m", "tests.mutants.play", model, *seeds])
        for at, command in enumerate(commands, 1):
            print(f"what executes what: {at} of {len(commands)}", flush=True)
            out.write_text("")
            with (base / "output").open("w") as output:
                subprocess.run(command, cwd=copy.folder, env=environment, stdout=output, stderr=output, timeout=3600)
            self._part(out, missing)

    @staticmethod
    def _part(lines: Path, missing: dict[str, Path]) -> None:
        """Each line to the file of its test file or model."""
        parts: dict[str, list[str]] = defaultdict(list)
        for line in lines.read_text().splitlines():
            name = json.loads(line)["test"]
            parts[name.partition("::")[0] if "::" in name else name.split()[0]].append(line)
        for word, found in parts.items():
            missing[word].write_text("\n".join(found))

    def checks(self) -> list[Check]:
        """All that passed."""
        found = []
        for path in self._lines().values():
            translated = self._translation(path.stem.rpartition("-")[2])
            for line in path.read_text().splitlines() if path.exists() else ():
                one = json.loads(line)
                if one["ok"]:
                    found.append(Check(one["test"], one["s"], translated(unpacked(one["marks"]))))
        return found

    @cache  # noqa: B019 - one map in a process
    def _translation(self, state: str) -> Callable[[bytes], bytes]:
        """From the numbers of other sources to those of today."""
        if state == self._state:
            return lambda taken: taken
        today = {anchor: number for number, anchor in enumerate(self._anchors)}
        functions: dict[tuple[str, str], list[int]] = defaultdict(list)
        for number, (path, where, _, _) in enumerate(self._anchors):
            functions[path, where].append(number)
        told = json.loads((self.folder / f"{state}.json").read_text())
        into = [[today[one]] if (one := tuple(words)) in today else functions[one[0], one[1]] for words in told]

        def translated(taken: bytes) -> bytes:
            found = bytearray(len(today))
            at = taken.find(1)
            while at >= 0:
                for number in into[at]:
                    found[number] = 1
                at = taken.find(1, at + 1)
            return bytes(found)

        return translated


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        Map(sys.argv[1].split(",") if sys.argv[1:] else ["broker", "raft", "controller", "replication", "store"]).make(
            Path(folder)
        )
