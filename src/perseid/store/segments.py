"""A byte sequence cut into files of one size, each named by the offset of its first byte.

Invariants: the files are consecutive; all have the same size; only the last one is written to. Files are
opened when they are touched, and older ones are let go again.
"""

from __future__ import annotations

from perseid.base.errors import CorruptLog, StoreError
from perseid.disk.port import Disk, File

NAME_DIGITS = 20
MAX_OPEN_FILES = 8
"""Of one sequence; the least recently opened one but the last is closed."""


Part = tuple[File, int, int]
"""A file, an offset in it, and a length."""


class FolderSync:
    """A folder in a `Flush`: makes the creates, renames and removes in it durable."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path

    def sync(self) -> None:
        try:
            self._disk.sync_dir(self.path)
        except FileNotFoundError:
            pass  # removed meanwhile, with its topic: its parent is what has to be synced now


class Folders:
    """The folders whose entries changed since they were last handed out to be synced."""

    __slots__ = ("_disk", "_given", "_known", "changed")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._known: set[str] = set()
        self._given: set[str] = set()
        self.changed: set[str] = set()

    def known(self, folder: str) -> None:
        """A folder that was there when the store was loaded."""
        self._known.add(folder)

    def touch(self, folder: str) -> None:
        """An entry came to `folder` or left it; for a new folder, its parents have a new entry too."""
        self.changed.add(folder)
        self._touch_parents(folder)

    def take_again(self) -> list[FolderSync]:
        """All that ever changed, also what was handed out: the syncs may not have been carried out."""
        self.changed |= self._given
        return self.take()

    def distrust(self) -> None:
        """All folders that are known, and their parents, may hold entries of an earlier life never synced."""
        self.changed.add("")
        for folder in self._known:
            while folder:
                self.changed.add(folder)
                folder = folder.rpartition("/")[0]

    def _touch_parents(self, folder: str) -> None:
        while folder and folder not in self._known:
            self._known.add(folder)
            folder = folder.rpartition("/")[0]
            self.changed.add(folder)

    def forget(self, folder: str) -> None:
        """A folder that was removed, with all below it."""
        for names in (self._known, self._given, self.changed):
            for name in [n for n in names if n == folder or n.startswith(folder + "/")]:
                names.discard(name)
        self.changed.add(folder.rpartition("/")[0])

    def take(self, under: str | None = None) -> list[FolderSync]:
        """What is to be synced now: all, or only a folder with its parents. Parents come last."""
        if under is None:
            taken = self.changed
        else:
            taken = {f for f in self.changed if not f or f == under or under.startswith(f + "/")}
        self.changed = self.changed - taken
        self._given |= taken
        return [FolderSync(self._disk, f) for f in sorted(taken, key=lambda f: (-len(f), f))]


class Segments:
    """The files of one sequence, in one folder."""

    __slots__ = ("_disk", "_folders", "_open", "_sparse", "file_bytes", "folder", "starts")

    def __init__(
        self, disk: Disk, folders: Folders, folder: str, file_bytes: int, *, sparse: bool = False
    ) -> None:
        """`sparse`: files get their blocks when they are reserved or written, not at once."""
        self._disk = disk
        self._sparse = sparse
        self._folders = folders
        self._open: dict[int, File] = {}
        self.folder = folder
        self.file_bytes = file_bytes
        self.starts: list[int] = []

    # ---- loading ----

    def load(self, key: str) -> list[int]:
        """Take in the folder's files and return the starts that are missing between them.

        Files of no length are what a crash leaves of a create: removed, as if they were not there.
        CorruptLog for any other length than the configured one (`key` names the setting).
        """
        self.starts = []
        for name in self._disk.list(self.folder):
            if name.endswith("/") or not (name.isascii() and name.isdigit() and len(name) == NAME_DIGITS):
                continue
            path = f"{self.folder}/{name}"
            size = self._disk.size(path)
            if size == 0:
                self._disk.remove(path)
                self._folders.touch(self.folder)
            elif size != self.file_bytes:
                why = f"the file has {size} bytes, {key} says {self.file_bytes}: correct the one or the other"
                raise CorruptLog(path, min(size or 0, self.file_bytes), why)
            else:
                self.starts.append(int(name))
        if self.starts:
            self._folders.known(self.folder)
        step = self.file_bytes
        return [a + step for a, b in zip(self.starts, self.starts[1:], strict=False) if b != a + step]

    # ---- files ----

    @property
    def end(self) -> int:
        """Where the next file begins; 0 when there is none."""
        return self.starts[-1] + self.file_bytes if self.starts else 0

    def path(self, start: int) -> str:
        return f"{self.folder}/{start:0{NAME_DIGITS}d}"

    def start_of(self, offset: int) -> int | None:
        """The start of the file that holds `offset`; None when no file does."""
        starts = self.starts
        if not starts or offset < starts[0]:
            return None
        index = (offset - starts[0]) // self.file_bytes
        return starts[index] if index < len(starts) else None

    def file(self, start: int) -> File:
        """A file of the sequence, opened if need be; StoreError when it can't be."""
        file = self._open.get(start)
        if file is None:
            path = self.path(start)
            try:
                file = self._remember(start, self._disk.open(path))
            except OSError as error:
                raise StoreError(f"{path}: can't be opened: {error}") from error
        return file

    def create(self, start: int) -> File:
        """Append a file. OSError when it can't be made, and nothing has changed then."""
        assert not self.starts or start == self.end, f"{self.folder}: {start} is not the end"
        file = self._disk.open(self.path(start), self.file_bytes, sparse=self._sparse)
        self._folders.touch(self.folder)
        self.starts.append(start)
        return self._remember(start, file)

    def _remember(self, start: int, file: File) -> File:
        self._open[start] = file
        if len(self._open) > MAX_OPEN_FILES:
            oldest = next(s for s in self._open if s != start and s != self.starts[-1])
            del self._open[oldest]  # not closed: a flush may still hold it; its last user lets it go
        return file

    def remove(self, start: int) -> None:
        """Take away the first or the last file; OSError when it can't be, and nothing has changed then."""
        assert start in (self.starts[0], self.starts[-1]), f"{self.folder}: {start} is in the middle"
        self._disk.remove(self.path(start))
        self.starts.remove(start)
        self._open.pop(start, None)
        self._folders.touch(self.folder)

    def remove_from(self, start: int) -> None:
        """Take away `start` and all files after it, the last one first."""
        while self.starts and self.starts[-1] >= start:
            self.remove(self.starts[-1])

    def remove_folder(self) -> None:
        """Take away everything."""
        self._disk.remove(self.folder)
        self.starts.clear()
        self._open.clear()
        self._folders.forget(self.folder)

    # ---- bytes ----

    def view(self, offset: int, length: int) -> memoryview:
        """Bytes of one file, fewer at its end; empty when no file holds `offset`."""
        starts = self.starts  # as `start_of` and `file`, without two calls: nothing is asked for as often
        index = (offset - starts[0]) // self.file_bytes if starts else -1
        if not 0 <= index < len(starts):
            return memoryview(b"")
        start = starts[index]
        file = self._open.get(start)
        return (self.file(start) if file is None else file).view(offset - start, length)

    def cold(self, offset: int, length: int) -> list[Part]:
        """Those of these bytes that can't be viewed without waiting for the disk, as parts of files."""
        found: list[Part] = []
        end = offset + length
        while offset < end:
            start = self.start_of(offset)
            if start is None:
                break
            file, size = self.file(start), min(end, start + self.file_bytes) - offset
            if not file.resident(offset - start, size):
                found.append((file, offset - start, size))
            offset += size
        return found

    def files_between(self, begin: int, end: int) -> list[File]:
        """The files that hold bytes of [begin, end)."""
        step = self.file_bytes
        return [self.file(s) for s in self.starts if s < end and s + step > begin]

    def zero_from(self, offset: int) -> int:
        """Make all bytes from `offset` on zeros, by removing files and by writing. Returns how many were in use.

        The next bytes are written even when they are zeros: an earlier life's sync of them may have failed,
        and then only what is written again reaches the disk. What was never written is zeros there, too: so this needs
        no room on the disk.
        """
        changed = sum(written_bytes(self.file(start)) for start in self.starts if start > offset)
        self.remove_from(offset + 1)
        last = self.start_of(offset)
        if last is not None:
            changed += zero(self.file(last), offset - last)
        return changed


CHUNK_BYTES = 1 << 16
_ZEROS = bytes(CHUNK_BYTES)
COMPARED_BYTES = 256
"""So many zeros are looked at one by one."""


def zero(file: File, offset: int) -> int:
    """Write zeros from `offset` to the file's end where something was written before: in the first chunk always, behind
    it where there is something else; returns the bytes up to the last that was not zero."""
    last = offset
    for begin, end in file.written(offset):
        for at in range(begin, end, CHUNK_BYTES):
            chunk = bytes(file.view(at, min(CHUNK_BYTES, end - at)))
            used = used_bytes(chunk)
            if used:
                last = at + used
            if used or at < offset + CHUNK_BYTES:
                file.write(at, _ZEROS[: len(chunk)])
    return last - offset


def used_bytes(data: bytes) -> int:
    """One past the last byte of `data` that is not zero. Halves are compared whole: `rstrip` looks at each byte."""
    low, high = 0, len(data)
    while high - low > COMPARED_BYTES:
        middle = (low + high) // 2
        if data[middle:high] == bytes(high - middle):
            high = middle
        else:
            low = middle
    return low + len(data[low:high].rstrip(b"\0"))


def write_again(file: File, begin: int, end: int) -> None:
    """Write bytes that are there already: a sync that failed takes its pages for clean, so a later sync would
    promise what it does not do."""
    for at in range(begin, end, CHUNK_BYTES):
        file.write(at, bytes(file.view(at, min(CHUNK_BYTES, end - at))))


def written_bytes(file: File) -> int:
    """One past its last byte that is not zero; what was never written is not looked at."""
    for begin, end in reversed(file.written(0)):
        for at in range(end, begin, -CHUNK_BYTES):
            low = max(begin, at - CHUNK_BYTES)
            used = used_bytes(bytes(file.view(low, at - low)))
            if used:
                return low + used
    return 0
