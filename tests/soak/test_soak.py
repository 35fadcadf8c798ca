"""The soak itself: clocks and disks obey it, and a short one keeps what was acknowledged."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from .modes import MODES
from .nodes import shim
from .run import soak

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600, func_only=True)]

ASK = """
import os, sys, time
before = time.monotonic()
with open(sys.argv[1], "wb") as file:
    os.fsync(file.fileno())
print(time.time(), time.monotonic() - before)
"""


def test_a_clock_jumps_and_a_disk_is_slow(tmp_path: Path) -> None:
    library, told = shim(tmp_path), tmp_path / "told"

    def ask(shift_ms: int, slow_us: int) -> tuple[float, float]:
        told.write_bytes(struct.pack("<qq", shift_ms, slow_us))
        environment = os.environ | {"LD_PRELOAD": str(library), "PERSEID_SHIM": str(told)}
        command = [sys.executable, "-c", ASK, str(tmp_path / "file")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        now, took = map(float, done.stdout.split())
        return now, took

    now, _ = ask(0, 0)
    later, _ = ask(86_400_500, 0)
    assert 86_400 < later - now < 90_000
    earlier, _ = ask(-86_400_500, 0)
    assert -90_000 < earlier - now < -80_000
    _, took = ask(0, 700_000)
    assert took > 0.6, "a sync took as long as it was told"


@pytest.mark.long
def test_a_short_soak_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    found = soak(MODES["controller"], 45, 1, tmp_path)
    assert found["kept"], found
    assert found["acknowledged"] > 100 and sum(found["faults"].values()) > 0
