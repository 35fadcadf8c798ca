"""The compiled core, where there is one.

`compiled` is the module `perseid.core.batch` when it was compiled; None when there was no C compiler at the
installation, or when PERSEID_CORE=off asks for plain Python. Everything works without it, slower.
"""

from __future__ import annotations

import os
from typing import Protocol

from perseid.base.machine import Buffer
from perseid.core import batch


class Queue(Protocol):
    """What the core asks of a consume queue; the caller writes to it."""

    end: int
    """The offset of the next message."""
    room: int
    """The first offset that the file of the next one has no place for."""
    dirty: bool
    """It is in the books as written to."""

    def put_many(self, units: Buffer) -> None: ...


SWITCH = "PERSEID_CORE"

compiled = batch if batch.compiled and os.environ.get(SWITCH) != "off" else None
