"""The real disk: a folder of this machine. With `mapping`, the only code that touches os and mmap.

Files are mapped: a write is a copy into the page cache, a view is a window on it. A mapped page without
a block behind it would end the process (SIGBUS) when the disk is full, so blocks are allocated before
they are written: at creation, or piece by piece where a file is sparse (queues, the index, or what Java
wrote); either way a full disk is an OSError.

What is made is for its owner alone (folders 0700, files 0600): messages are nobody else's. What is there already, made
by Java or by hand, stays as it is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from threading import Lock

from perseid.base.errors import LocalProtocolError, StoreLocked
from perseid.base.machine import Buffer
from perseid.disk.mapping import pages
from perseid.disk.port import Usage

SHARED = "@"
"""Begins the name of a folder elsewhere that others may use too."""

PIECE_BITS = 16
PIECE_BYTES = 1 << PIECE_BITS
"""Sparse files get their blocks in pieces of this size."""

CALL_BYTES = 4 * 1024
"""A write of this size or more is a call, a smaller one a copy into the mapped pages (`bench/in_process.py`)."""

READ_BYTES = 1 << 20
"""A fetch reads so much in one call."""
AHEAD_BYTES = 4 << 20
"""So much behind what was fetched the kernel is asked to read ahead: who reads a cold file goes on."""
CHUNK_BYTES = 1 << 16
"""What is in memory is asked for in pieces of this size."""
WARM_S = 1.0
"""So long a chunk that was in memory is taken to be there still: the kernel drops first what nobody reads."""
FOLDER_MODE = 0o700
FILE_MODE = 0o600
_NO_WAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_SCRATCH = memoryview(bytearray(CHUNK_BYTES))

_held_locks: set[tuple[int, int]] = set()
"""(device, inode) of lock files held by this process: the kernel's locks don't exclude their own process."""


class _Descriptor:
    """A file descriptor that closes when its last user lets it go, so never under a running sync."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class RealFile:
    """One mapped file of a fixed size."""

    __slots__ = ("_descriptor", "_map", "_missing", "_view", "_warm", "path", "size")

    def __init__(self, path: str, descriptor: _Descriptor, size: int, *, allocated: bool, fresh: bool = False) -> None:
        self.path = path
        self.size = size
        self._descriptor: _Descriptor | None = descriptor
        # The first touch of a fresh page would else read around it: megabytes of zeros, milliseconds, for a unit of 20.
        self._map = pages(descriptor.number, size, at_random=fresh)
        self._view = self._map.toreadonly()
        self._warm: dict[int, float] = {}
        """Chunks that were in memory, and until when that is believed."""
        pieces = -(-size // PIECE_BYTES)
        self._missing: bytearray | None = None if allocated else bytearray(b"\1" * pieces)

    def write(self, offset: int, data: Buffer) -> None:
        end = offset + len(data)
        if offset < 0 or end > self.size:
            raise LocalProtocolError(f"{self.path}: write of [{offset}, {end}) beyond {self.size} bytes")
        missing = self._missing
        if missing is not None and (
            missing[offset >> PIECE_BITS] or missing[(end - 1) >> PIECE_BITS] or end - offset > PIECE_BYTES
        ):
            self._allocate(missing, offset, end)
        if end - offset < CALL_BYTES:
            self._map[offset:end] = data
        else:
            self._write_out(offset, data)

    def _write_out(self, offset: int, data: Buffer) -> None:
        """Write by a call: for whole pages the kernel then need not read (or zero) what is overwritten, as it does when
        a mapped page is touched first."""
        assert self._descriptor is not None, f"{self.path}: write after close"
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._descriptor.number, rest, offset)
            offset, rest = offset + written, rest[written:]

    def reserve(self, offset: int, length: int) -> None:
        if self._missing is not None:
            self._allocate(self._missing, offset, min(offset + length, self.size))

    def _allocate(self, missing: bytearray, offset: int, end: int) -> None:
        for piece in range(offset // PIECE_BYTES, -(-end // PIECE_BYTES)):
            if missing[piece]:
                assert self._descriptor is not None, f"{self.path}: write after close"
                start = piece * PIECE_BYTES
                with _named(self.path):
                    _allocate(self._descriptor.number, start, min(PIECE_BYTES, self.size - start))
                missing[piece] = 0

    def view(self, offset: int, length: int) -> memoryview:
        return self._view[offset : offset + length]

    def written(self, offset: int) -> list[tuple[int, int]]:
        """Asked of the file system, which keeps no blocks of a hole and knows those that were only reserved (Linux).
        What was viewed counts as written, too: so nothing is, before all has been asked."""
        if self._descriptor is None or not hasattr(os, "SEEK_DATA"):
            return [(offset, self.size)]
        found: list[tuple[int, int]] = []
        try:
            while offset < self.size:
                begin = max(offset, os.lseek(self._descriptor.number, offset, os.SEEK_DATA))
                offset = os.lseek(self._descriptor.number, begin, os.SEEK_HOLE)
                found.append((begin, offset))
        except OSError as error:
            if error.errno != errno.ENXIO:  # a file system that can't tell; ENXIO: no more
                found.append((offset, self.size))
        return found

    def resident(self, offset: int, length: int) -> bool:
        """Asked of the kernel by reads that do not wait (Linux), whose copies are thrown away. A chunk that was all
        there is not asked for again for WARM_S."""
        if _NO_WAIT is None or self._descriptor is None:
            return True
        now, warm = time.monotonic(), self._warm
        for chunk in range(offset // CHUNK_BYTES, -(-min(offset + length, self.size) // CHUNK_BYTES)):
            if warm.get(chunk, 0.0) <= now:
                if not self._is_there(chunk * CHUNK_BYTES, CHUNK_BYTES):
                    return self._is_there(offset, length)
                warm[chunk] = now + WARM_S
        return True

    def _is_there(self, offset: int, length: int) -> bool:
        descriptor, end = self._descriptor, min(offset + length, self.size)
        assert descriptor is not None and _NO_WAIT is not None
        try:
            while offset < end:
                got = os.preadv(descriptor.number, [_SCRATCH[: end - offset]], offset, _NO_WAIT)
                if got <= 0:
                    return True  # beyond what the file system has: nothing to wait for
                offset += got
        except BlockingIOError:
            return False
        except OSError as error:
            return error.errno in (errno.EOPNOTSUPP, errno.EINVAL)  # a file system that can't tell; or a bad disk
        return True

    def fetch(self, offset: int, length: int) -> None:
        descriptor, end = self._descriptor, min(offset + length, self.size)
        if descriptor is None:
            return
        piece = bytearray(min(READ_BYTES, max(0, end - offset)))
        while offset < end:
            got = os.preadv(descriptor.number, [memoryview(piece)[: end - offset]], offset)
            if got <= 0:
                break
            offset += got
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor.number, offset, AHEAD_BYTES, os.POSIX_FADV_WILLNEED)

    def sync(self) -> None:
        descriptor = self._descriptor
        if descriptor is not None:
            os.fdatasync(descriptor.number)

    def close(self) -> None:
        self._descriptor = None
        self._map = memoryview(b"")
        self._view = memoryview(b"")
        self.size = 0


class RealDisk:
    """The folder `root` and everything below it; a folder in it named in `elsewhere` is at another place."""

    def __init__(self, root: str, elsewhere: Mapping[str, str] | None = None) -> None:
        self.root = os.path.abspath(os.path.expanduser(root))
        self._elsewhere = {name: os.path.abspath(os.path.expanduser(at)) for name, at in (elsewhere or {}).items()}
        self._locks: dict[str, tuple[int, tuple[int, int]]] = {}
        self._held: dict[str, int] = {}
        """Folders that are elsewhere, locked: their descriptors."""
        for folder in (self.root, *self._elsewhere.values()):
            make_folders(folder)
        self._spare: _Descriptor | None = _hold()
        """Let go for what makes things durable when the process has no other descriptor left."""
        self._spare_lock = Lock()
        for name, folder in self._elsewhere.items():  # nobody syncs its parent later
            if name.startswith(SHARED):
                continue
            with self._opened(os.path.dirname(folder), os.O_RDONLY | os.O_DIRECTORY) as number:
                os.fsync(number)

    def _at(self, path: str) -> str:
        parts = PurePosixPath(path).parts
        if ".." in parts or path.startswith("/"):
            raise LocalProtocolError(f"{path!r} leaves the folder {self.root}")
        if self._elsewhere and parts and parts[0] in self._elsewhere:
            return os.path.join(self._elsewhere[parts[0]], *parts[1:])
        return os.path.join(self.root, *parts)

    # ---- mapped files ----

    def open(self, path: str, size: int | None = None, *, sparse: bool = False) -> RealFile:
        full = self._at(path)
        try:
            descriptor = _Descriptor(os.open(full, os.O_RDWR | os.O_CLOEXEC))
        except FileNotFoundError:
            if size is None:
                raise
            return self._create(path, full, size, sparse)
        status = os.fstat(descriptor.number)
        if status.st_size == 0:
            raise OSError(errno.EINVAL, "the file is empty", full)
        return RealFile(path, descriptor, status.st_size, allocated=status.st_blocks * 512 >= status.st_size)

    def _create(self, path: str, full: str, size: int, sparse: bool) -> RealFile:
        # Asked first: a kernel that can't give all gives what there is (ext4 does), and all who share the disk find it
        # full until the file is gone again.
        if not sparse and size > (free := self.usage(path).free):
            raise OSError(errno.ENOSPC, f"{size} bytes are wanted, {free} are free", full)
        make_folders(os.path.dirname(full))
        descriptor = _Descriptor(os.open(full, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        try:
            os.ftruncate(descriptor.number, size)  # first: after a crash the file is empty or whole
            if not sparse:
                with _named(full):
                    _allocate(descriptor.number, 0, size)
            return RealFile(path, descriptor, size, allocated=not sparse, fresh=True)
        except OSError:
            os.unlink(full)
            raise

    # ---- names ----

    def list(self, folder: str) -> list[str]:
        try:
            with os.scandir(self._at(folder)) as entries:
                return sorted(e.name + "/" if e.is_dir() else e.name for e in entries)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: str) -> int | None:
        try:
            status = os.stat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def read(self, path: str) -> bytes | None:
        try:
            with open(self._at(path), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, path: str, data: bytes) -> None:
        full = self._at(path)
        make_folders(os.path.dirname(full))
        with self._opened(full, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as number, _named(full):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(number, rest) :]

    def rename(self, old: str, new: str) -> None:
        os.replace(self._at(old), self._at(new))

    def remove(self, path: str) -> None:
        full = self._at(path)
        try:
            os.unlink(full)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):  # Linux says the one, macOS the other
            if not os.path.isdir(full):
                raise
            shutil.rmtree(full)

    def sync_file(self, path: str) -> None:
        with self._opened(self._at(path), os.O_RDWR) as number:
            os.fsync(number)

    def sync_dir(self, folder: str) -> None:
        with self._opened(self._at(folder), os.O_RDONLY | os.O_DIRECTORY) as number:
            os.fsync(number)

    @contextmanager
    def _opened(self, full: str, flags: int) -> Iterator[int]:
        """A descriptor for a moment: the spare one, if there is no other; OSError(EMFILE) without that one, too."""
        try:
            number = os.open(full, flags | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        else:
            try:
                yield number
            finally:
                os.close(number)
            return
        with self._spare_lock:
            self._spare = None
            try:
                number = os.open(full, flags | os.O_CLOEXEC, FILE_MODE)
                try:
                    yield number
                finally:
                    os.close(number)
            finally:
                self._spare = _hold()

    def modified_ms(self, path: str) -> int:
        return os.stat(self._at(path)).st_mtime_ns // 1_000_000

    def usage(self, path: str = "") -> Usage:
        status = os.statvfs(self._elsewhere.get(path.partition("/")[0], self.root))
        reserved = status.f_bfree - status.f_bavail  # root's share of the free blocks is no room for us
        return Usage((status.f_blocks - reserved) * status.f_frsize, status.f_bavail * status.f_frsize)

    # ---- locks ----

    def lock(self, path: str) -> None:
        full = self._at(path)
        make_folders(os.path.dirname(full))
        # The own table comes first, and by name: to close any descriptor of a file drops its lock.
        if os.path.exists(full) and _identity(os.stat(full)) in _held_locks:
            raise StoreLocked(f"{full}: this process uses the folder already; choose another")
        number = os.open(full, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)  # the first byte, as the original does
        except OSError as error:
            os.close(number)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise StoreLocked(f"{full}: another process uses the folder; stop it or choose another") from None
        os.pwrite(number, b"lock", 0)
        identity = _identity(os.fstat(number))
        _held_locks.add(identity)
        self._locks[path] = number, identity
        try:
            self._lock_elsewhere()
        except BaseException:
            self.unlock(path)
            raise

    def _lock_elsewhere(self) -> None:
        """Hold the folders that are elsewhere too: two roots may name the same one. By the folder itself, for the
        original takes any file in it for one of the log."""
        for name, folder in self._elsewhere.items():
            if name in self._held or name.startswith(SHARED):
                continue
            number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(number)
                text = f"{folder}: another store uses the folder; stop its broker or choose another"
                raise StoreLocked(text) from None
            except BaseException:
                os.close(number)
                raise
            self._held[name] = number

    def unlock(self, path: str) -> None:
        held = self._locks.pop(path, None)
        if held is not None:
            number, identity = held
            os.close(number)
            _held_locks.discard(identity)
        while not self._locks and self._held:
            os.close(self._held.popitem()[1])


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _allocate(number: int, offset: int, length: int) -> None:
    """Give a range of a file its blocks, so that no later write can find the disk full."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(number, offset, length)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
    for at in range(offset, offset + length, PIECE_BYTES):
        piece = min(PIECE_BYTES, offset + length - at)
        current = os.pread(number, piece, at)
        os.pwrite(number, current.ljust(piece, b"\0"), at)


def make_folders(full: str | os.PathLike[str]) -> None:
    """Each folder of a path that is missing, for its owner alone."""
    if os.path.isdir(full):
        return
    make_folders(os.path.dirname(full))
    try:
        os.mkdir(full, FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(full):
            raise


@contextmanager
def _named(path: str) -> Iterator[None]:
    """An error of a call that knows a descriptor only says which file it was about."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, path) from None
        raise


def _hold() -> _Descriptor | None:
    try:
        return _Descriptor(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return None
