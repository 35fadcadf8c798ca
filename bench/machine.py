"""What the figures were measured on: `python bench/machine.py` prints it."""

from __future__ import annotations

import mmap
import os
import platform
import subprocess
import sysconfig
import time
from pathlib import Path

TOUCHED_BYTES = 2 << 30


def _line(path: str, start: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(start):
            return line.split(":", 1)[1].strip()
    return "unknown"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return (done.stdout or done.stderr).strip().splitlines()[0]


def _python_build() -> str:
    optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return "built with PGO" if optimised else "built without PGO"


def first_touch_us() -> float:
    """µs of a page of new memory: on a virtual machine the host has to find it, and each log grows by such pages."""
    with mmap.mmap(-1, TOUCHED_BYTES) as memory:
        began = time.perf_counter()
        for at in range(0, TOUCHED_BYTES, mmap.PAGESIZE):
            memory[at] = 1
        return (time.perf_counter() - began) / (TOUCHED_BYTES // mmap.PAGESIZE) * 1e6


def describe_machine() -> dict[str, str]:
    """Name and value of each thing that a reader needs to compare the figures with others."""
    memory_kib = int(_line("/proc/meminfo", "MemTotal").split()[0])
    return {
        "date": time.strftime("%Y-%m-%d"),
        "CPU": _line("/proc/cpuinfo", "model name"),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_kib / 1024**2:.0f} GiB",
        "first touch of a page": f"{first_touch_us():.1f} µs",
        "kernel": platform.release(),
        "Python": f"{platform.python_implementation()} {platform.python_version()}, {_python_build()}",
        "Java": _output("java", "-version"),
        "C compiler": _output("cc", "--version"),
        "load average": f"{os.getloadavg()[0]:.2f}",
    }


if __name__ == "__main__":
    for name, value in describe_machine().items():
        print(f"{name}: {value}")
