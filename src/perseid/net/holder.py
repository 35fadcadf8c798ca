"""Which process of this machine listens on a port: for the error of another one that wants it."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
MAX_PROCESSES = 20_000
"""Processes whose open files are looked through."""
MAX_COMMAND = 120
"""Characters of a command line that are shown."""
_LISTENING = "0A"
_CODE = "from perseid.cli.main import main; main()"
"""How Perseid starts its own processes."""


def holder(port: int, proc: Path = PROC) -> str:
    """The process that listens on a TCP port, as in `process 4711 (perseid up --data d)`; "another process" where the
    system does not say which one it is (another user's, or no Linux)."""
    inodes = {f"socket:[{inode}]" for table in ("tcp", "tcp6") for inode in _inodes(proc / "net" / table, port)}
    if inodes:
        pids = [path.name for path in proc.iterdir() if path.name.isdecimal()]
        for pid in pids[:MAX_PROCESSES]:
            if not inodes.isdisjoint(_open_files(proc / pid)):
                return f"process {pid} ({_command(proc / pid)})"
    return "another process"


def _inodes(table: Path, port: int) -> list[str]:
    """The sockets that listen on the port, in a table of the kernel's."""
    try:
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return []
    return [row[9] for row in rows if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port]


def _open_files(process: Path) -> list[str]:
    found = []
    try:
        for file in (process / "fd").iterdir():
            with suppress(FileNotFoundError):  # it was closed meanwhile
                found.append(os.readlink(file))
    except OSError:  # the process has ended, or is another user's
        return []
    return found


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_text(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return "it has ended by now"
    if _CODE in words:
        words = ["perseid", *words[words.index(_CODE) + 1 :]]
    elif len(words) > 1 and Path(words[1]).name == "perseid":
        words = ["perseid", *words[2:]]
    text = shlex.join(words)
    return text if len(text) <= MAX_COMMAND else text[:MAX_COMMAND] + "…"
