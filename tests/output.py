"""What a process prints, a line at a time."""

from __future__ import annotations

import os
import selectors
import subprocess
from pathlib import Path

CHUNK = 65_536


class Output:
    """The lines of a process; one that came together with another is not lost from sight in a buffer."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        assert process.stdout is not None
        self._at = process.stdout.fileno()
        self.log = log
        self._held = b""

    def line(self, deadline: float) -> str:
        """The next line without its end; AssertionError with the log when none comes in time (s)."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._at, selectors.EVENT_READ)
            while b"\n" not in self._held:
                assert selector.select(deadline), self.log.read_text()
                more = os.read(self._at, CHUNK)
                assert more, self.log.read_text()
                self._held += more
        line, _, self._held = self._held.partition(b"\n")
        return line.decode()
