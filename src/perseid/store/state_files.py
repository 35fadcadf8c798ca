"""The small files of `config/`: a file and its `.bak` (store.md §9).

The original copies the old content to `X.bak` and then overwrites `X`, so that one of them is whole whatever
happens. A `SaveState` replaces `X` at once, which needs no second file; a `.bak` that the original left is read
where `X` is of no use. What can't be read as JSON counts as missing, as there.
"""

from __future__ import annotations

from perseid.disk.port import Disk
from perseid.wire import fastjson

BACKUP = ".bak"


def read(disk: Disk, path: str) -> bytes | None:
    """The text of a state file; that of its `.bak` when it is missing, empty or no JSON; None: there is neither."""
    for candidate in (path, path + BACKUP):
        text = disk.read(candidate)
        if text is not None and _readable(text):
            return text
    return None


def _readable(text: bytes) -> bool:
    if not text.strip():
        return False
    try:
        fastjson.loads(text)
    except ValueError:
        return False
    return True
