"""Real processes of one cluster, each in a network namespace and on a small disk of its own, and what may happen to
them."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from netns import PERSEID, SMALL, Star

HERE = Path(__file__).parent
DISK_BYTES = 192 << 20
STARTS_S = 60.0
"""Until a process listens; the machine may be busy."""
ENDS_S = 30.0
POLL_S = 0.05
READY = ("boot success", "listens at")
Settings = Mapping[str, object]


def pause(seconds: float) -> None:
    """Time in which something that was done to a process takes effect."""
    threading.Event().wait(seconds)


def shim(folder: Path) -> Path:
    """The library that makes clocks wrong and disks slow, built."""
    built = folder / "shim.so"
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(built), str(HERE / "shim.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return built


class Node:
    """One process: it is started again as often as it is killed."""

    def __init__(self, name: str, kind: str, space: str, home: Path, library: Path, settings: Settings) -> None:
        self.name, self.kind, self.home = name, kind, home
        self.space, self._library, self._settings = space, library, settings
        self._told, self._ballast = home / "shim", home / "disk" / "ballast"
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.ends: list[int] = []
        """Codes of those ends that nobody ordered."""

    def mount(self, undo: ExitStack) -> None:
        """A disk of its own, in memory."""
        disk = self.home / "disk"
        disk.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)], check=True, timeout=20)
        undo.callback(subprocess.run, ["umount", "-l", str(disk)], check=False, timeout=20)
        self._tell(0, 0)
        text = "".join(f"{key}={value}\n" for key, value in self._settings.items())
        (self.home / "conf").write_text(SMALL * (self.kind == "broker") + text)

    @property
    def pid(self) -> int:
        """Of the process itself; 0: none runs."""
        return 0 if self._process is None or self._process.poll() is not None else self._process.pid

    def start(self) -> None:
        """Start it and wait until it listens."""
        self.starts += 1
        log = self.home / f"out-{self.starts}"
        environment = os.environ | {
            "HOME": str(self.home), "LD_PRELOAD": str(self._library), "PERSEID_SHIM": str(self._told),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                ["ip", "netns", "exec", self.space, *PERSEID, self.kind, "-c", str(self.home / "conf")],
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment,
            )  # fmt: skip
        end = time.monotonic() + STARTS_S
        while not any(word in log.read_text(errors="replace") for word in READY):
            if not self.pid or time.monotonic() > end:
                raise RuntimeError(f"{self.name} did not start: {log.read_text(errors='replace')[-2000:]}")
            pause(POLL_S)

    def look(self) -> bool:
        """Does it run? One that ended by itself is noted."""
        if self._process is not None and self._process.poll() is not None:
            self.ends.append(self._process.returncode)
            self._process = None
        return self._process is not None

    def signal(self, number: signal.Signals) -> None:
        if self.look():
            assert self._process is not None
            self._process.send_signal(number)

    def kill(self) -> None:
        """It ends as by `kill -9`."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """It ends as an operator ends it; what does not in time is killed."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if not self.look():
            return
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(number)
        try:
            process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(ENDS_S)

    # ---- what may happen to it ----

    def shift_clock(self, ms: int) -> None:
        self._tell(ms, self._slow_us)

    def slow_disk(self, us: int) -> None:
        """Each sync takes so much longer."""
        self._tell(self._shift_ms, us)

    def fill_disk(self, *, full: bool) -> None:
        """Leave it no room, or give it back."""
        if not full:
            self._ballast.unlink(missing_ok=True)
            return
        free = shutil.disk_usage(self.home / "disk").free
        try:
            with self._ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, free))
        except OSError:
            return  # it has become full meanwhile

    def heal(self) -> None:
        self._tell(0, 0)
        self.fill_disk(full=False)
        self.signal(signal.SIGCONT)

    def _tell(self, shift_ms: int, slow_us: int) -> None:
        self._shift_ms, self._slow_us = shift_ms, slow_us
        with self._told.open("r+b" if self._told.exists() else "wb") as file:
            file.write(struct.pack("<qq", shift_ms, slow_us))


class Cluster:
    """Nodes by their names, the star of wires between them, and where the name server is."""

    def __init__(self, star: Star, home: Path, library: Path, undo: ExitStack) -> None:
        self.star, self.home = star, home
        self.nodes: dict[str, Node] = {}
        self._library, self._undo = library, undo
        self.namesrv = f"{star.address['client']}:9876"

    def add(self, name: str, kind: str, space: str, settings: Settings) -> Node:
        node = Node(name, kind, self.star.names[space], self.home / name, self._library, settings)
        node.mount(self._undo)
        self.nodes[name] = node
        self._undo.callback(node.kill)
        return node
