"""Bytes in memory for a library that takes nothing but the name of a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lent(data: bytes) -> Iterator[str]:
    """A name by which this process can open a file of these bytes, until the block ends. It is on no disk, where the
    system has files without one (Linux); else it is a temporary one, its owner's alone."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("lent", os.MFD_CLOEXEC)
        try:
            os.write(number, data)
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
    else:
        with tempfile.NamedTemporaryFile(mode="wb") as file:
            file.write(data)
            file.flush()
            yield file.name
