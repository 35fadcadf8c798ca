"""Runs the tools of a release; a failure is one line that names the command, its last words, and the log with all."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
WORK = ROOT / "build" / "release"
"""Logs, and environments while they are in use."""
TIMEOUT_S = 900
"""Of one command; the longest compiles the core, a minute on two quiet cores."""
LAST_LINES = 5


class Failed(Exception):
    """A step that can't go on; the text says where, why, and what to look at."""


def run(
    command: Sequence[str | Path], *, log: str, cwd: Path = ROOT, environment: Mapping[str, str] | None = None
) -> str:
    """What the command prints. Failed unless it ends with 0 in time; `log`: the file's name in WORK."""
    words = [str(word) for word in command]
    WORK.mkdir(parents=True, exist_ok=True)
    path = WORK / f"{log}.log"
    try:
        done = subprocess.run(
            words, cwd=cwd, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        path.write_bytes(error.stdout or b"")
        raise Failed(f"{' '.join(words)}: no end within {TIMEOUT_S} s; see {path}") from None
    except OSError as error:
        raise Failed(f"{' '.join(words)}: {error.strerror}; `make setup` installs the tools") from None
    path.write_text(done.stdout)
    if done.returncode != 0:
        last = "\n  ".join(done.stdout.splitlines()[-LAST_LINES:])
        raise Failed(f"{' '.join(words)}: exit code {done.returncode}; see {path}\n  {last}")
    return done.stdout
