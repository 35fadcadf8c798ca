"""A file of lines that begins anew when it is long: a bounded number of older ones is kept.

`name.1` is the one before, `name.2` the one before that. Lines are written at once, in one call each, and never
synced: a power cut may take the last ones. What can't be written stops nothing: how many lines were lost
is said, once a minute at most.
"""

from __future__ import annotations

import io
import logging
import os
import time
from pathlib import Path

from perseid.disk.real import FILE_MODE, make_folders

log = logging.getLogger("perseid.audit")

TELL_S = 60.0
"""So often it is said that lines were lost."""


class RotatedFile:
    """Lines, for its owner alone."""

    def __init__(self, path: Path, file_bytes: int, files: int) -> None:
        """`files` of `file_bytes` each at the most; nothing is made before the first line."""
        self.path = path
        self._file_bytes = file_bytes
        self._files = files
        self._file: io.FileIO | None = None
        self._size = 0
        self._torn = False
        self._lost = 0
        self._told_at = float("-inf")

    def write(self, line: bytes) -> None:
        """Append a line; its end is added."""
        data = line + b"\n"
        try:
            if self._file is not None and self._size + len(data) > self._file_bytes:
                self._rotate()
            number = self._opened()
            if self._torn:  # what was cut off must not run into this line
                data = b"\n" + data
            written = os.write(number, data)
        except OSError as error:
            self._lose(error.strerror or str(error))
            return
        self._size += written
        self._torn = written < len(data)
        if self._torn:
            self._lose("the disk is full")

    def close(self) -> None:
        """Give the descriptor back."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _opened(self) -> int:
        if self._file is None:
            make_folders(self.path.parent)
            file = io.FileIO(self.path, "a+", opener=_for_its_owner)
            self._size = os.fstat(file.fileno()).st_size
            self._torn = self._size > 0 and os.pread(file.fileno(), 1, self._size - 1) != b"\n"
            self._file = file
        return self._file.fileno()

    def _rotate(self) -> None:
        self.close()
        for older in range(self._files - 1, 0, -1):
            newer = self._numbered(older - 1)
            if newer.exists():
                newer.replace(self._numbered(older))

    def _numbered(self, age: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{age}") if age else self.path

    def _lose(self, why: str) -> None:
        self._lost += 1
        now = time.monotonic()
        if now - self._told_at >= TELL_S:
            log.error("%s: %d lines could not be written: %s; make room, or name another folder in auditLogPath",
                      self.path, self._lost, why)  # fmt: skip
            self._lost, self._told_at = 0, now


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)
