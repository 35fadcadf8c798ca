"""The small files of `config/`: read with the original's fallback (store.md §9)."""

from __future__ import annotations

from perseid.disk.port import Disk
from perseid.wire import fastjson

BACKUP = ".bak"


def read(disk: Disk, path: str) -> bytes | None:
    """The text of a state file, or that of its `.bak` when it is missing, empty or no JSON; None: there is neither."""
    for candidate in (path, path + BACKUP):
        text = disk.read(candidate)
        if text and text.strip():
            try:
                fastjson.loads(text)
            except ValueError:
                continue
            return text
    return None
