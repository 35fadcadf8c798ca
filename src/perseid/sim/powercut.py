"""What a power cut leaves behind: the choices about pages (`cut_pages`) and about names (`Namespace`)."""

from __future__ import annotations

from collections.abc import Sequence
from mmap import mmap
from random import Random
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from perseid.sim.disk import SimFile

PAGE_BITS = 12
SECTOR = 512

MOODS = ("keep", "drop", "hole", "mixed", "mixed")
"""A whole cut keeps or drops everything, drops the first page of each file only, or decides page by page."""

FATES = ("keep", "drop", "torn", "garbage")


class Cut:
    """The choices of one power cut, and how often each was made."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.pages = random.choice(MOODS)
        self.names = random.choice(("keep", "drop", "prefix", "any"))
        self.counts: dict[str, int] = {}

    def fate(self, first: bool = True) -> str:
        """What becomes of one page; `first`: of its file's unsynced pages."""
        fate = self.random.choice(FATES) if self.pages == "mixed" else self.pages
        if fate == "hole":
            fate = "drop" if first else "keep"
        self.count(f"page {fate}")
        return fate

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def whole(self, before: bytes, after: bytes) -> bytes:
        """What becomes of a small file that was written in place and not synced."""
        fate = self.fate()
        if fate == "keep":
            return after
        if fate == "drop":
            return before
        part = after[: self.random.randrange(len(after) + 1)]
        return part + (self.random.randbytes(len(after) - len(part)) if fate == "garbage" else b"")

    def loses_size(self) -> bool:
        """Does a file that was created and never synced come back empty?"""
        lost = self.pages not in ("keep", "hole") and self.random.random() < 0.5
        if lost:
            self.count("size lost")
        return lost


def cut_pages(
    data: bytearray | mmap,
    undo: dict[int, bytes],
    syncing: dict[int, bytes],
    lost: dict[int, bytes],
    cut: Cut,
) -> None:
    """Choose for each unsynced page; `undo`, `syncing` and `lost` hold what pages were before."""
    pages = sorted({*undo, *syncing, *lost})
    for page in pages:
        start = page << PAGE_BITS
        oldest = lost.get(page) or syncing.get(page) or undo[page]
        newest = bytes(data[start : start + len(oldest)])
        if page in undo and page in syncing and cut.random.random() < 0.3:
            newest = undo[page]  # the sync that ran had written it, what came later is gone
        fate = cut.fate(page == pages[0])
        if fate == "drop":
            data[start : start + len(oldest)] = oldest
        elif fate == "keep":
            data[start : start + len(oldest)] = newest
        else:
            data[start : start + len(oldest)] = _sectors(oldest, newest, fate == "garbage", cut.random)


def _sectors(old: bytes, new: bytes, garbage: bool, random: Random) -> bytes:
    """A page of which each sector is old, new, or (`garbage`) spoilt where it was being changed."""
    page = bytearray(old)
    for at in range(0, len(old), SECTOR):
        before, after = old[at : at + SECTOR], new[at : at + SECTOR]
        if before == after:
            continue
        choice = random.randrange(3 if garbage else 2)
        if choice == 0:
            page[at : at + SECTOR] = after
        elif choice == 2:
            differ = (int.from_bytes(before, "big") ^ int.from_bytes(after, "big")).to_bytes(len(before), "big")
            first, end = len(differ) - len(differ.lstrip(b"\0")), len(differ.rstrip(b"\0"))
            page[at + first : at + end] = random.randbytes(end - first)
    return bytes(page)


class Folder:
    """An entry that is a folder."""


FOLDER = Folder()

Entry: TypeAlias = "SimFile | Folder"
Change: TypeAlias = "list[tuple[str, Entry | None, Entry | None]]"
"""(path, entry, entry before), all of which happens or nothing of it."""
Changes: TypeAlias = "list[Change]"
Files: TypeAlias = "list[SimFile]"
Names: TypeAlias = list[str]


class Namespace:
    """Which path leads to which file: now, and after a power cut.

    `log` holds the changes since their folder's last sync, oldest first.
    """

    def __init__(self) -> None:
        self.now: dict[str, Entry] = {}
        self.log: Changes = []
        self._listed: dict[str, Names] = {}
        """What is in folders that were asked for since the last change."""

    def get(self, path: str) -> SimFile | None:
        entry = self.now.get(path)
        return None if entry is None or isinstance(entry, Folder) else entry

    def files(self) -> Files:
        return [entry for entry in self.now.values() if not isinstance(entry, Folder)]

    def names_in(self, folder: str) -> Names:
        """Names in a folder, sorted; folders end in `/`."""
        listed = self._listed.get(folder)
        if listed is None:
            prefix = folder.rstrip("/") + "/" if folder.strip("/") not in ("", ".") else ""
            start, names = len(prefix), []
            for path, entry in self.now.items():
                if path.startswith(prefix) and path.find("/", start) < 0:
                    names.append(path[start:] + ("/" if isinstance(entry, Folder) else ""))
            listed = self._listed[folder] = sorted(names)
        return listed.copy()

    def missing_folders(self, path: str) -> Names:
        """The folders that a file at `path` needs and that are not there, outermost first."""
        missing: Names = []
        at = path.find("/")
        while at >= 0:
            if path[:at] not in self.now:
                missing.append(path[:at])
            at = path.find("/", at + 1)
        return missing

    def link(self, path: str, file: SimFile) -> None:
        """Create a file, and its folders."""
        for folder in self.missing_folders(path):
            self._change([(folder, FOLDER)])
        self._change([(path, file)])

    def rename(self, old: str, new: str, file: SimFile) -> None:
        self._change([(old, None), (new, file)])

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all below it, deepest first."""
        below = [name for name in self.now if name.startswith(path + "/")]
        for name in sorted(below, reverse=True):
            self._change([(name, None)])
        if path in self.now:
            self._change([(path, None)])

    def is_durable(self, path: str) -> bool:
        """Is the path sure to lead to the same file after a power cut?"""
        if not self.log:
            return True
        below = path + "/"
        return not any(below.startswith(name + "/") for change in self.log for name, _, _ in change)

    def sync(self, folder: str) -> None:
        """The changes of names in `folder` are durable."""
        folder = "" if folder.strip("/") in ("", ".") else folder.rstrip("/")
        self.log = [change for change in self.log if parent(change[-1][0]) != folder]

    def cut_power(self, cut: Cut) -> Files:
        """Choose which unsynced changes happened; the files that are left, in the order of their paths."""
        undone, kept = self._undone(cut)
        self._listed.clear()
        cut.counts["name kept"] = cut.counts.get("name kept", 0) + kept
        cut.counts["name lost"] = cut.counts.get("name lost", 0) + len(undone)
        for change in reversed(undone):
            for path, entry, before in change:
                if self.now.get(path) is entry:
                    if before is None:
                        self.now.pop(path, None)
                    else:
                        self.now[path] = before
                        if not isinstance(before, Folder):
                            before.path = path
        self.log.clear()
        for path in sorted(self.now):
            if parent(path) and parent(path) not in self.now:
                del self.now[path]  # its folder is gone, and it with it
        return [entry for _, entry in sorted(self.now.items()) if not isinstance(entry, Folder)]

    def _undone(self, cut: Cut) -> tuple[Changes, int]:
        """The changes that did not happen, and how many did."""
        count = len(self.log)
        if cut.names == "keep":
            return [], count
        if cut.names == "drop":
            return list(self.log), 0
        if cut.names == "prefix":
            kept = cut.random.randrange(count + 1)
            return self.log[kept:], kept
        undone = [change for change in self.log if cut.random.random() < 0.5]
        return undone, count - len(undone)

    def _change(self, entries: Sequence[tuple[str, Entry | None]]) -> None:
        self._listed.clear()
        change: Change = []
        for path, entry in entries:
            change.append((path, entry, self.now.get(path)))
            if entry is None:
                self.now.pop(path, None)
            else:
                self.now[path] = entry
        self.log.append(change)


def parent(path: str) -> str:
    """The folder that holds `path`; "" at the top."""
    return path.rpartition("/")[0]
