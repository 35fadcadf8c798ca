"""Takes a running broker's files out of the page cache, so that the next read of them goes to the disk.

Pages that a process has mapped stay where they are when the cache is dropped, so first each broker is told to give
up its own (process_madvise with MADV_PAGEOUT, Linux 5.10; needs CAP_SYS_NICE, which root has).
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from servers import BenchError

_PIDFD_OPEN, _PROCESS_MADVISE = 434, 440
"""System calls; these numbers are the same on all architectures."""
_MADV_PAGEOUT = 21
_MOST_RESIDENT = 0.05
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_libc.syscall.restype = ctypes.c_long


class _Range(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def evict(pids: Sequence[int], folder: Path) -> None:
    """Nothing of the files below `folder` is in memory afterwards; BenchError when the system does not let go."""
    # but those of config/: they are small, and replaced by a rename at any time
    files = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "config"]
    os.sync()
    for pid in pids:
        _unmap(pid, folder)
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    size = sum(path.stat().st_blocks * 512 for path in files)
    stayed = sum(resident_bytes(path) for path in files)
    if stayed > _MOST_RESIDENT * size:
        raise BenchError(
            f"{stayed >> 20} of {size >> 20} MiB of {folder} stay in memory, so a read of them is not cold: "
            "run this as root on Linux 5.10 or later, or leave the row `cold` out (--rows)"
        )


def _unmap(pid: int, folder: Path) -> None:
    """Have a process give up its pages of files below a folder. What that did not do, `resident_bytes` shows."""
    pidfd = _libc.syscall(_PIDFD_OPEN, pid, 0)
    if pidfd < 0:
        return
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if f" {folder}/" not in line:
            continue
        low, high = (int(x, 16) for x in line.split()[0].split("-"))
        part = _Range(low, high - low)
        _libc.syscall(_PROCESS_MADVISE, pidfd, ctypes.byref(part), ctypes.c_size_t(1), _MADV_PAGEOUT, 0)
    os.close(pidfd)


def resident_bytes(path: Path) -> int:
    """How much of a file is in memory."""
    size = path.stat().st_size
    if not size:
        return 0
    with path.open("rb") as file:
        at = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if at == ctypes.c_void_p(-1).value:
        raise BenchError(f"{path} can't be mapped: {os.strerror(ctypes.get_errno())}")
    pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    try:
        if _libc.mincore(at, size, pages):
            raise BenchError(f"what is in memory of {path} is not told: {os.strerror(ctypes.get_errno())}")
    finally:
        _libc.munmap(at, size)
    return pages.raw.count(b"\1") * mmap.PAGESIZE
