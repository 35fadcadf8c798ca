"""The commit that this Perseid was made from."""

from __future__ import annotations

import subprocess
from pathlib import Path

UNKNOWN = "unknown"
COMMIT_FILE = "commit.txt"
"""In the package, written when it is built (`setup.py`); a checkout has none."""
PACKAGE = Path(__file__).parents[1]
GIT_TIMEOUT_S = 5
DESCRIBE = ("describe", "--always", "--dirty", "--abbrev=7", "--exclude=*")
"""The short hash of the commit, with `-dirty` when files were changed since."""


def commit(package: Path = PACKAGE) -> str:
    """The short hash: written in the package, or asked of Git in a checkout; "unknown" where neither says it."""
    try:
        return (package / COMMIT_FILE).read_text(encoding="ascii").strip() or UNKNOWN
    except OSError:
        return git_commit(package.parent.parent)


def git_commit(checkout: Path) -> str:
    """The commit that is checked out there; "unknown" when it is not the root of a checkout, or there is no Git."""
    if not (checkout / ".git").exists():
        return UNKNOWN
    command = ["git", "-C", str(checkout), "--no-optional-locks", *DESCRIBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return done.stdout.strip() or UNKNOWN
