"""The CPythons of this machine that Perseid supports: those of pyenv, and those on the path."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from shutil import which

OLDEST = (3, 11)
NEWEST_TRIED = 20
"""`python3.N` is looked for up to this N."""
PYENV = Path.home() / ".pyenv" / "versions"
TIMEOUT_S = 30
_ASKED = (
    "import ensurepip, sys, sysconfig; print(sys.version.split()[0], sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
)


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter, and its version like 3.13.0."""

    path: Path
    version: str
    free_threaded: bool = False

    @property
    def tag(self) -> str:
        """As in a wheel's name: cp313, cp314t."""
        major, minor = self.version.split(".")[:2]
        return f"cp{major}{minor}{'t' if self.free_threaded else ''}"

    @property
    def abi(self) -> str:
        """As in a wheel's name, behind the tag: wheels of a free-threaded CPython have cp314-cp314t."""
        return f"{self.tag.removesuffix('t')}-{self.tag}"


def ask(path: Path) -> Python | None:
    """The interpreter there; None where it doesn't run, or can't make environments (Debian's without python3-venv)."""
    try:
        done = subprocess.run([path, "-c", _ASKED], capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"(\d+\.\d+\.\d+)\S* ([01])", done.stdout)
    return None if found is None else Python(path, found[1], found[2] == "1")


def installed() -> list[Python]:
    """One of each minor version, oldest first; pyenv's before those on the path."""
    places = sorted(PYENV.glob("3.*/bin/python"))
    places += [Path(there) for minor in range(OLDEST[1], NEWEST_TRIED) if (there := which(f"python3.{minor}"))]
    found: dict[str, Python] = {}
    for python in filter(None, map(ask, places)):
        if tuple(map(int, python.version.split(".")[:2])) >= OLDEST:
            found.setdefault(python.tag, python)
    return sorted(found.values(), key=lambda one: [int(part) for part in one.version.split(".")])
