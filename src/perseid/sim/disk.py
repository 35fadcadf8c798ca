"""A disk in memory that forgets what was not synced, in the worst ways that a real one may.

Reads see all writes. `cut_power` then decides, for each 4 KiB page that was written since its file's last
sync, whether the new bytes are kept, dropped, torn (each 512-byte sector old or new) or garbage; and for
each create, rename and remove since its folder's last `sync_dir`, whether it happened. A new folder is
itself an entry of its parent. A file whose size was never synced may come back empty.

Garbage replaces only bytes that were being changed: a sector's other bytes are safe ("powersafe overwrite",
as SQLite assumes too); a log without padding between records can't be kept safe from anything less.

How it is kept: `data` is the page cache; `undo` holds, for each page written since the last sync began,
what it held before. A sync that runs moves `undo` to `syncing` when it begins and forgets it when it ends,
so what is written meanwhile stays unsynced. A sync that fails leaves its pages in `lost`: they look clean,
and a later sync does not bring them back, unless they are written again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from random import Random

from perseid.base.errors import LocalProtocolError, StoreLocked
from perseid.base.machine import Buffer, Millis
from perseid.disk.port import Usage
from perseid.sim.powercut import Cut, Files, Namespace, cut_pages

PAGE_BITS = 12
PAGE = 1 << PAGE_BITS
TOTAL_BYTES = 1 << 28
BIG_BYTES = 1 << 20
"""Of files whose zeros take no memory and no time until something is written there."""


class CrashPoint(BaseException):
    """The process dies within a call to the disk. Not an `Exception`: no node may catch it."""


def _zeros(size: int) -> bytearray | mmap:
    """The contents of a new file."""
    return bytearray(size) if size < BIG_BYTES else mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)


def _equal_bytes(one: bytes, other: bytes) -> int:
    """So many bytes are equal from the start on, of two that differ somewhere."""
    equal, differs = 0, len(one)  # up to `equal` they are equal, up to `differs` they are not
    while differs - equal > 1:
        middle = (equal + differs) // 2
        if one[equal:middle] == other[equal:middle]:
            equal = middle
        else:
            differs = middle
    return equal


class SimFile:
    """A file; also what is left of it on the disk when no node has it open."""

    __slots__ = (
        "_view",
        "blocks",
        "data",
        "disk",
        "evicted",
        "lost",
        "modified",
        "pages",
        "path",
        "replaced",
        "sized",
        "small",
        "syncing",
        "undo",
    )

    def __init__(self, disk: SimDisk, path: str, data: bytearray | mmap) -> None:
        self.disk = disk
        self.path = path
        self.data = data
        self._view = memoryview(data).toreadonly()
        self.undo: dict[int, bytes] = {}
        self.syncing: dict[int, bytes] | None = None
        self.lost: dict[int, bytes] = {}
        self.pages = 0
        """Of a sparse file."""
        self.blocks: set[int] | None = None
        """Those of them that have a block by now; None: all have."""
        self.evicted: set[int] = set()
        """Those that are not in memory."""
        self.sized = False
        self.small = False
        self.replaced = b""
        self.modified: Millis = disk.now

    @property
    def size(self) -> int:
        return len(self.data)

    def write(self, offset: int, data: Buffer) -> None:
        length = len(data)
        end = offset + length
        if offset < 0 or end > len(self.data):
            raise LocalProtocolError(f"{self.path}: write of {length} bytes at {offset} of {len(self.data)}")
        if not length:
            return
        if self.disk.crash_in:
            length = self.disk.crash_in_write(self, length)
            data, end = memoryview(data)[:length], offset + length
        if self.blocks is not None:
            self._allocate(self.blocks, offset, end)
        undo = self.undo
        for page in range(offset >> PAGE_BITS, (end + PAGE - 1) >> PAGE_BITS):
            if page not in undo:
                before = self.lost.pop(page, None) if self.lost else None
                undo[page] = before or bytes(self._view[page << PAGE_BITS : (page + 1) << PAGE_BITS])
        self.data[offset:end] = data
        if self.disk.wrote is not None:
            self.disk.wrote(self.path, offset)
        self.modified = self.disk.now
        if self.disk.crashing:
            raise CrashPoint(f"write of {self.path}")

    def reserve(self, offset: int, length: int) -> None:
        if self.blocks is not None and len(self.blocks) < self.pages:
            self.disk.may_fail("create", self.path)
            self._allocate(self.blocks, offset, min(offset + length, len(self.data)))

    def _allocate(self, blocks: set[int], offset: int, end: int) -> None:
        pages = {page for page in range(offset >> PAGE_BITS, (end + PAGE - 1) >> PAGE_BITS) if page not in blocks}
        if pages:
            self.disk.need(len(pages) * PAGE, self.path)
            before = self.allocated
            blocks |= pages
            self.disk.grew(self, self.allocated - before)

    @property
    def allocated(self) -> int:
        """Bytes of the disk that the file takes."""
        missing = 0 if self.blocks is None else self.pages - len(self.blocks)
        return max(0, len(self.data) - missing * PAGE)

    def view(self, offset: int, length: int) -> memoryview:
        return self._view[offset : offset + length]

    def written(self, offset: int) -> list[tuple[int, int]]:
        if self.blocks is None:
            return [(offset, self.size)] if offset < self.size else []
        found: list[tuple[int, int]] = []
        for page in sorted(self.blocks):
            begin, end = max(offset, page << PAGE_BITS), min(self.size, (page + 1) << PAGE_BITS)
            if begin >= end:
                continue
            if found and found[-1][1] == begin:
                found[-1] = found[-1][0], end
            else:
                found.append((begin, end))
        return found

    def resident(self, offset: int, length: int) -> bool:
        pages = range(offset >> PAGE_BITS, (offset + length + PAGE - 1) >> PAGE_BITS)
        return not self.evicted or self.evicted.isdisjoint(pages)

    def fetch(self, offset: int, length: int) -> None:
        self.disk.may_fail("read", self.path)
        self.evicted -= set(range(offset >> PAGE_BITS, (offset + length + PAGE - 1) >> PAGE_BITS))

    def begin_sync(self) -> None:
        """What was written so far is what `end_sync` makes durable."""
        self.syncing = {**self.undo, **(self.syncing or {})}
        self.undo = {}

    def end_sync(self) -> None:
        """The sync that `begin_sync` began is over: durable, or OSError."""
        pages, self.syncing = self.syncing, None
        try:
            self.disk.about_to("sync", self.path)
        except OSError:
            for page, before in (pages or {}).items():
                if page in self.undo:
                    self.undo[page] = before  # written again meanwhile: it is dirty still
                else:
                    self.lost.setdefault(page, before)
            raise
        except CrashPoint:
            self.syncing = pages
            raise
        self.sized = True
        self.replaced = b""

    def sync(self) -> None:
        self.begin_sync()
        self.end_sync()

    def close(self) -> None:
        """Nothing to let go: the bytes are the disk's."""

    def replace(self, data: bytes) -> None:
        """Take on other contents whole, as truncate and write in place do; not durable by itself."""
        if self.sized:
            self.replaced = self.durable()
        before = self.allocated
        self.data = bytearray(data)
        self.disk.grew(self, self.allocated - before)
        self._view = memoryview(self.data).toreadonly()
        self.undo, self.syncing, self.lost = {}, None, {}
        self.modified = self.disk.now
        self.sized = False
        self.small = True

    def durable(self) -> bytes:
        """What is safe: the contents if every unsynced page were dropped."""
        pages: dict[int, bytes] = {**self.undo, **(self.syncing or {}), **self.lost}
        if not self.sized:
            return self.replaced
        image = bytearray(self.data)
        for page, before in pages.items():
            image[page << PAGE_BITS : (page << PAGE_BITS) + len(before)] = before
        return bytes(image)

    def durable_bytes(self) -> int:
        """How many bytes from the start on survive any power cut as they are now."""
        if not self.sized:
            return 0
        for page in sorted({*self.undo, *(self.syncing or {}), *self.lost}):
            start = page << PAGE_BITS
            now = bytes(self._view[start : start + PAGE])
            different = PAGE
            for pages in (self.undo, self.syncing or {}, self.lost):
                before = pages.get(page)
                if before is not None and before != now:
                    different = min(different, _equal_bytes(before, now))
            if different < PAGE:
                return start + different
        return len(self.data)

    def cut_power(self, cut: Cut) -> None:
        """Decide what is left of the unsynced pages."""
        self.disk.resized()
        if not self.sized and self.small:
            self.data = bytearray(cut.whole(self.replaced, bytes(self.data)))
        elif not self.sized and cut.loses_size():
            self.data = bytearray()
        else:
            cut_pages(self.data, self.undo, self.syncing or {}, self.lost, cut)
        self._view = memoryview(self.data).toreadonly()
        self.undo, self.syncing, self.lost, self.replaced = {}, None, {}, b""
        self.sized = True


class SimDisk:
    """The disk of one machine; it outlives the nodes that run on it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.names = Namespace()
        self.locks: set[str] = set()
        self.now: Millis = 0
        self._used: int | None = None
        """What all files take; None: they have to be asked."""
        self.other_bytes = 0
        """What others take of `TOTAL_BYTES`; set it to bring the disk under pressure."""
        self.failing: dict[str, int] = {}
        """How many of the next calls fail with EIO: of sync, create, write, rename, remove, sync_dir, read."""
        self.failures: dict[str, int] = {}
        self.crash_in = 0
        """The process dies in the so-manieth change from now; 0: it does not."""
        self.crashing = False
        self.wrote: Callable[[str, int], None] | None = None
        """Told of each write of a part of a file: its path, and where it began."""

    # ---- the port ----

    def open(self, path: str, size: int | None = None, *, sparse: bool = False) -> SimFile:
        file = self._file(path)
        if file is None:
            if size is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.about_to("create", path)
            if not sparse:
                self.need(size, path)
            file = SimFile(self, path, _zeros(size))
            if sparse:
                file.blocks, file.pages = set(), (size + PAGE - 1) >> PAGE_BITS
            self.names.link(path, file)
            self.grew(file, file.allocated)
        elif not file.data:
            raise OSError(errno.EINVAL, "the file is empty", path)
        return file

    def list(self, folder: str) -> list[str]:
        return self.names.names_in(folder)

    def size(self, path: str) -> int | None:
        file = self._file(path)
        return None if file is None else file.size

    def read(self, path: str) -> bytes | None:
        file = self._file(path)
        return None if file is None else bytes(file.data)

    def write(self, path: str, data: bytes) -> None:
        file = self._file(path)
        if file is None:
            self.about_to("create", path)
            file = SimFile(self, path, bytearray())
            self.names.link(path, file)
        try:
            self.need(len(data) - file.size, path)
            self.about_to("write", path)
        except BaseException:
            file.replace(data[: self.random.randrange(len(data) + 1)])
            raise
        file.replace(data)

    def rename(self, old: str, new: str) -> None:
        file = self._file(old)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self.about_to("rename", new)
        replaced = self._file(new)
        if replaced is not None and replaced is not file:
            self.grew(replaced, -replaced.allocated)
        self.names.rename(old, new, file)
        file.path = new

    def remove(self, path: str) -> None:
        path = path.rstrip("/")
        if self.names.get(path) is not None or self.names.names_in(path):
            self.about_to("remove", path)
            self.resized()
            self.names.remove(path)

    def sync_file(self, path: str) -> None:
        file = self._file(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        file.sync()

    def sync_dir(self, folder: str) -> None:
        self.about_to("sync_dir", folder)
        self.names.sync(folder)

    def modified_ms(self, path: str) -> int:
        file = self._file(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return file.modified

    def usage(self, path: str = "") -> Usage:
        return Usage(TOTAL_BYTES, max(0, TOTAL_BYTES - self._taken() - self.other_bytes))

    def _taken(self) -> int:
        if self._used is None:
            self._used = sum(file.allocated for file in self.files())
        return self._used

    def resized(self) -> None:
        """Files went, or have other sizes."""
        self._used = None

    def grew(self, file: SimFile, size: int) -> None:
        """A file that is there takes so much more."""
        if self._used is not None and self.names.get(file.path) is file:
            self._used += size

    def lock(self, path: str) -> None:
        if path in self.locks:
            raise StoreLocked(f"{path}: another process holds it")
        if self._file(path) is None:
            self.write(path, b"")
        self.locks.add(path)

    def unlock(self, path: str) -> None:
        self.locks.discard(path)

    # ---- faults ----

    def fill(self, ratio: float) -> None:
        """Let others take so much that `ratio` of the disk is used; 0: nothing."""
        self.other_bytes = max(0, int(TOTAL_BYTES * ratio) - self._taken()) if ratio else 0

    def kill(self) -> None:
        """The process that used the disk is dead: its locks are free, the page cache stays."""
        self.locks.clear()
        self.crash_in, self.crashing = 0, False

    def cut_power(self) -> Cut:
        """The machine is off: unsynced bytes and names go the way that the random generator chooses."""
        self.kill()
        self.resized()
        cut = Cut(self.random)
        kept: set[int] = set()
        for file in self.names.cut_power(cut):
            if id(file) not in kept:
                kept.add(id(file))
                file.cut_power(cut)
        return cut

    def files(self) -> Files:
        """All files, whatever their folder."""
        return self.names.files()

    def about_to(self, kind: str, path: str) -> None:
        """Each change passes here: it may fail, and the process may die just before it."""
        if self.crash_in:
            self.crash_in -= 1
            if not self.crash_in:
                raise CrashPoint(f"{kind} of {path}")
        self.may_fail(kind, path)

    def may_fail(self, kind: str, path: str) -> None:
        """OSError(EIO) when a call of this kind is to fail."""
        left = self.failing.get(kind, 0)
        if left:
            self.failing[kind] = left - 1
            self.failures[kind] = self.failures.get(kind, 0) + 1
            raise OSError(errno.EIO, f"{kind} fails", path)

    def evict(self) -> None:
        """Drop all pages from memory, durable or not: mapped files have to be fetched again."""
        for file in self.names.files():
            file.evicted = set(range((file.size + PAGE - 1) >> PAGE_BITS))

    def crash_in_write(self, file: SimFile, length: int) -> int:
        """How many of the bytes of a write come to the page cache before the process dies."""
        self.crash_in -= 1
        if self.crash_in:
            return length
        self.crashing = True
        return self.random.choice((length, self.random.randrange(1, length + 1)))

    def need(self, size: int, path: str) -> None:
        """OSError(ENOSPC) when `size` more bytes are not free."""
        if size > 0 and size > self.usage().free:
            self.failures["ENOSPC"] = self.failures.get("ENOSPC", 0) + 1
            raise OSError(errno.ENOSPC, "no space left on device", path)

    def _file(self, path: str) -> SimFile | None:
        return self.names.get(path)
