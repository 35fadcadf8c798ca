"""What Spark's processes cost: CPU seconds, and memory over the time of a run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
SAMPLE_S = 0.5
not_counted: set[int] = set()
"""Children that are no part of Spark: they, and all below them, do not count."""


@dataclass
class Process:
    """One process, as /proc tells of it. CPU is its own and that of its children that have ended."""

    pid: int
    parent: int
    cpu_s: float
    command: str


def below(root: int) -> list[Process]:
    """A process and all below it, without those that are not counted."""
    every: dict[int, Process] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has just ended
                continue
            pid = int(entry.name)
            every[pid] = Process(pid, int(words[1]), sum(map(int, words[11:15])) / CLOCK_TICKS, command)
    mine, more = {root}, True
    while more:
        found = {pid for pid, one in every.items() if one.parent in mine} - mine - not_counted
        mine |= found
        more = bool(found)
    return [every[pid] for pid in mine if pid in every]


def cpu_s() -> float:
    """CPU seconds of this process, Spark's JVM, and its Python workers, those that have ended too."""
    return sum(one.cpu_s for one in below(os.getpid()))


def measured(work: Callable[[], Any]) -> dict[str, float]:
    """Do it once: seconds, and CPU seconds."""
    cpu, begin = cpu_s(), time.perf_counter()
    work()
    return {"s": time.perf_counter() - begin, "cpu_s": cpu_s() - cpu}


def rss_bytes(pids: Iterable[int]) -> int:
    """Memory that processes have in RAM; what they share with one another counts for each."""
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:  # it has just ended
            continue
    return total


@dataclass
class Memory:
    """What Spark's processes have in RAM, sampled by a thread while in `with`."""

    samples: list[tuple[float, int, int]] = field(default_factory=list)
    """Seconds since the beginning; bytes of the JVM; bytes of all Python workers."""
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Memory:
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="memory")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def until(self, seconds: float) -> tuple[int, int]:
        """The most of JVM and workers up to then."""
        there = [one for one in self.samples if one[0] <= seconds] or self.samples[:1]
        return max(jvm for _, jvm, _ in there), max(workers for _, _, workers in there)

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begun

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            found = [one for one in below(os.getpid()) if one.pid != os.getpid()]
            jvm = rss_bytes(one.pid for one in found if "java" in one.command.split(" ", 1)[0])
            workers = rss_bytes(one.pid for one in found if "python" in one.command.split(" ", 1)[0])
            self.samples.append((self.elapsed(), jvm, workers))
