"""Processes that a server process starts and ends: its shards, or the members of a cluster that is tried out."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perseid.app import process

log = logging.getLogger("perseid")

STOP_S = 60.0
"""For one to end; then it is killed."""
_PR_SET_PDEATHSIG = 1


def perseid(*args: str) -> list[str]:
    """The command that runs this very `perseid`."""
    return [sys.executable, "-c", "from perseid.cli.main import main; main()", *args]


@dataclass
class Child:
    """One process; it ends when its parent does, however that ends (Linux)."""

    name: str
    command: Sequence[str]
    running: asyncio.subprocess.Process | None = None

    async def start(self, output: Path | None = None) -> None:
        """Start it. What it prints is appended to `output`, or goes where our own output goes."""
        file = output.open("ab") if output is not None else None
        try:
            self.running = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.DEVNULL if file is not None else None,
                stdout=file,
                stderr=file,
                start_new_session=True,  # Ctrl-C in the terminal asks the parent alone
                preexec_fn=_end_with_parent,
            )
        finally:
            if file is not None:
                file.close()

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self.running is not None
        return self.running.pid

    async def wait(self) -> int:
        """Its exit code, when it has ended."""
        assert self.running is not None
        return await self.running.wait()

    async def end(self) -> int:
        """End it if it runs; its exit code, 0 when it was never started."""
        if self.running is None:
            return process.OK
        if self.running.returncode is None:
            self.running.send_signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self.running.wait(), STOP_S)
        except TimeoutError:
            log.error("%s did not end within %.0f s: killed; its next start checks its log", self.name, STOP_S)
            self.running.kill()
            return await self.running.wait()


def _end_with_parent() -> None:
    """In the child: it ends when its parent dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
