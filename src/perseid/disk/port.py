"""The disk as the store sees it. `real.py` is the only code that touches os and mmap.

Paths are relative to the node's root, with `/` between parts. Reads and writes are synchronous and
quick (page cache); durability is an effect (`perseid.base.machine.Flush`, `SaveState`), carried out by
the driver with `File.sync` and `Disk.sync_dir`.

What survives a power cut, and so what the simulator's disk does: a write only after `File.sync`; a
create, rename or remove only after `sync_dir` of the folder. Unsynced 4 KiB pages may be kept, lost,
torn or filled with garbage, in any combination.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from perseid.base.machine import Buffer


class Usage(NamedTuple):
    """Of one file system, in bytes."""

    total: int
    free: int


class File(Protocol):
    """A file of a fixed size, preallocated or sparse, whose unwritten parts read as zeros."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int: ...

    def write(self, offset: int, data: Buffer) -> None:
        """Put `data` at `offset`; visible to `view` at once. Beyond the size: LocalProtocolError."""

    def reserve(self, offset: int, length: int) -> None:
        """Give these bytes blocks, so that no write to them lacks room; OSError(ENOSPC) when the disk has none."""

    def view(self, offset: int, length: int) -> memoryview:
        """The bytes as they are now (shorter at the end of the file); read-only; not to be kept for long."""

    def written(self, offset: int) -> list[tuple[int, int]]:
        """Begins and ends of what may have been written from `offset` on; between them there are zeros."""

    def resident(self, offset: int, length: int) -> bool:
        """Can these bytes be viewed at once, without a wait for the disk? True as well where nobody can tell."""

    def fetch(self, offset: int, length: int) -> None:
        """Bring these bytes into memory. Runs on the driver's reader thread; OSError when they can't be read."""

    def sync(self) -> None:
        """Make everything written so far durable. Runs on the driver's I/O thread; OSError when it fails."""

    def close(self) -> None:
        """Let the file go; views that are still held stay valid."""


class Disk(Protocol):
    """One folder of the machine, with everything below it. Missing paths raise FileNotFoundError, a full
    disk OSError(ENOSPC), others OSError."""

    def open(self, path: str, size: int | None = None, *, sparse: bool = False) -> File:
        """Open a file. With `size` the file is created (and its folders) at exactly that size, with
        blocks allocated, when it is missing; `sparse` leaves the blocks to the writes, which may then
        raise ENOSPC. The size of an existing file is never changed."""

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted; empty when there is no such folder. Folders end in `/`."""

    def size(self, path: str) -> int | None:
        """The size of a file; None when it is missing."""

    def read(self, path: str) -> bytes | None:
        """A whole small file; None when it is missing."""

    def write(self, path: str, data: bytes) -> None:
        """Write a whole small file in place, with its folders. Not durable by itself."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all below it. No error when it is missing."""

    def sync_file(self, path: str) -> None:
        """fsync a file by its name. On the driver's I/O thread, or during start and stop."""

    def sync_dir(self, folder: str) -> None:
        """fsync a folder, so that creates, renames and removes in it are durable."""

    def modified_ms(self, path: str) -> int: ...

    def usage(self, path: str = "") -> Usage:
        """Of the file system that holds a path; of the root's without one."""

    def lock(self, path: str) -> None:
        """Hold `path` exclusively until `unlock` or the process ends; StoreLocked when another has it."""

    def unlock(self, path: str) -> None: ...
