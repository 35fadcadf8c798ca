"""The pages of a file, mapped without a file descriptor of their own.

Python's mmap keeps a copy of the descriptor, and can be told not to only since 3.13. A broker has a mapped file for
each queue, and may have only so many files open: before 3.13 the C library is asked instead, where it is known (Linux).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

_C = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" and sys.version_info < (3, 13) else None
_FAILED = ctypes.c_void_p(-1).value
if _C is not None:
    _C.mmap.restype = ctypes.c_void_p
    _C.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    _C.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    _C.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def pages(descriptor: int, size: int, *, at_random: bool = False) -> memoryview:
    """The first `size` bytes of a file, to read and to write, as long as anyone has a view of them. `at_random`: the
    kernel is told not to read around what is touched. OSError when it can't map them."""
    if _C is None:
        return _by_python(descriptor, size, at_random)
    address = _C.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        reason = ctypes.get_errno()
        raise OSError(reason, f"mmap of {size} bytes: {os.strerror(reason)}")
    if at_random:
        _C.madvise(address, size, mmap.MADV_RANDOM)
    array = (ctypes.c_ubyte * size).from_address(address)
    array.mapping = _Mapping(address, size)  # type: ignore[attr-defined]  # a view holds the array, and so this
    return memoryview(array).cast("B")


def _by_python(descriptor: int, size: int, at_random: bool) -> memoryview:
    if sys.version_info >= (3, 13):
        mapping = mmap.mmap(descriptor, size, trackfd=False)
    else:
        mapping = mmap.mmap(descriptor, size)
    if at_random and hasattr(mmap, "MADV_RANDOM"):
        mapping.madvise(mmap.MADV_RANDOM)
    return memoryview(mapping)


class _Mapping:
    """Pages that go when the last who looks at them does."""

    __slots__ = ("_address", "_size")

    def __init__(self, address: int, size: int) -> None:
        self._address, self._size = address, size

    def __del__(self, library: ctypes.CDLL | None = _C) -> None:
        if library is not None:
            library.munmap(self._address, self._size)
