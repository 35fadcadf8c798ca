"""Disks that get full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size_bytes: int) -> Iterator[Path]:
    """A disk of that size, mounted at a folder that it makes; the test is skipped where nobody may mount one."""
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, timeout=20, check=False).returncode:
        pytest.skip("a small disk needs the right to mount one")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True, timeout=20)
