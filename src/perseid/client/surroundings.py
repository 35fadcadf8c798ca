"""Where a client runs: its clock and what tells it apart from other clients.

That is this machine. A simulated event loop brings surroundings of its own (`testing/loop.py`), so that the same
client runs there in virtual time and does the same in each run.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol


class Surroundings(Protocol):
    """What a client has to know of the machine and the process that it runs in."""

    simulated: bool
    """Time is virtual: nothing may wait for real time."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970."""

    def ip(self) -> str:
        """The address that this machine uses towards others."""

    def pid(self) -> int:
        """The number of this process."""

    def seed(self) -> int:
        """Another number for each session of this process."""

    def home(self) -> Path:
        """The folder for files that clients keep."""


class _Machine:
    """This machine and this process."""

    simulated = False

    def __init__(self) -> None:
        self._counter = itertools.count(time.time_ns() & 0xFFFFFFFF)

    def wall_ns(self) -> int:
        return time.time_ns()

    def ip(self) -> str:
        """No packet is sent."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))
                return str(probe.getsockname()[0])
            except OSError:
                return "127.0.0.1"

    def pid(self) -> int:
        return os.getpid()

    def seed(self) -> int:
        return next(self._counter)

    def home(self) -> Path:
        return Path.home() / ".perseid"


MACHINE = _Machine()
SIMULATED_LOOPS: set[type[asyncio.AbstractEventLoop]] = set()
"""Kinds of event loops that have surroundings of their own. Where there are none the clock is this machine's, without
a look at the loop, which costs more than the clock does; each send reads it four times."""
OUTSIDE: ContextVar[Surroundings] = ContextVar("OUTSIDE", default=MACHINE)
"""Of clients that are made while no event loop runs."""


def here() -> Surroundings:
    """Those of the running event loop if it has its own, else this machine's."""
    loop = asyncio._get_running_loop()  # noqa: SLF001 - None where no loop runs, and quick
    return OUTSIDE.get() if loop is None else getattr(loop, "surroundings", MACHINE)


def now_ms() -> int:
    """Milliseconds since 1970."""
    wall_ns = here().wall_ns if SIMULATED_LOOPS else time.time_ns
    return wall_ns() // 1_000_000
