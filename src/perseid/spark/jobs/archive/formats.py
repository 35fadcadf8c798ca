"""The interface of tables of any format, and the plain Parquet table.

A batch's files are written where they will stay (`place`), by tasks; then one commit makes them count, together with
the batch's number (`commit`). After a crash the number says whether that happened. Compaction is a commit too.

Parquet has no log: what is in `data/` is the table. A batch is staged, taken from where tasks could still write, and
comes in by one rename, to `data/batch=N`, so it is there whole or not at all. Compaction builds another `data` beside
it, of the merged files and links to those that stay, and swaps the two folders in one step (Linux' RENAME_EXCHANGE):
whoever lists `data` sees the old files or the new. A reader that listed the old ones and has not opened them all finds
them gone, and fails.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from perseid.base import extras
from perseid.base.errors import ConfigError, PerseidError
from perseid.spark.jobs.archive.files import WrittenFile, seal
from perseid.spark.jobs.archive.folder import DELTA, ICEBERG, NONE, TableFolder, TableInfo, sync_folder
from perseid.spark.jobs.archive.snapshot import DataFile, Snapshot

log = logging.getLogger("perseid.spark")

BATCH_COLUMN = "batch"
MAX_LOOKS = 10
"""How often a folder is listed that changes meanwhile."""
RENAME_EXCHANGE = 2
AT_FDCWD = -100


@contextmanager
def reading(folder: TableFolder, what: str) -> Iterator[None]:
    """A format's own files are read; ConfigError, in one line, when they are damaged or gone."""
    try:
        yield
    except PerseidError:
        raise
    except Exception as error:
        told = next(iter(str(error).splitlines()), "")
        raise ConfigError(
            f"{folder.path}: its {what} can't be read ({type(error).__name__}: {told}): put the table's files back"
            " from a copy, or archive the topic into another table"
        ) from error


class Table(ABC):
    """A table of some format; one run at a time writes to it."""

    def __init__(self, folder: TableFolder, info: TableInfo) -> None:
        self.folder = folder
        self.info = info

    @abstractmethod
    def last_batch(self) -> int:
        """The number of the last batch that counts; -1 before the first."""

    @abstractmethod
    def place(self, batch: int, attempt: str) -> Path:
        """Where an attempt at a batch writes its files."""

    @abstractmethod
    def commit(self, batch: int, place: Path, files: Sequence[WrittenFile]) -> None:
        """Make a batch's files count, all at once, and `batch` the last batch."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """The table as it is now. ConfigError when others changed it in a way that can't be read here."""

    @abstractmethod
    def replace(self, batch: int, place: Path, old: Sequence[DataFile], new: Sequence[WrittenFile]) -> None:
        """Make merged files count in place of those they were made of, all at once, and `batch` the last batch."""

    @abstractmethod
    def clean(self, keep_hours: int) -> None:
        """Delete what no reader of the last `keep_hours` needs."""

    def name_catalogs(self, names: Sequence[str]) -> None:
        """Have the table in catalogs of these names too: a catalog is opened under one. Iceberg's alone are in any."""
        raise AssertionError(f"a table of {self.info.format} is in no catalog")


def of(folder: TableFolder, info: TableInfo) -> Table:
    """The table of an archive. MissingExtra when its format's library is missing."""
    try:
        if info.format == DELTA:
            from perseid.spark.jobs.archive.delta import DeltaTable

            return DeltaTable(folder, info)
        if info.format == ICEBERG:
            from perseid.spark.jobs.archive.iceberg import IcebergTable

            return IcebergTable(folder, info)
    except ImportError as error:
        raise extras.missing(f"a table of {info.format}", error) from None
    return ParquetTable(folder, info)


class ParquetTable(Table):
    """Files in `data/batch=N/`, and nothing else."""

    def last_batch(self) -> int:
        numbers = [int(path.name.partition("=")[2]) for path in self.folder.data.glob(f"{BATCH_COLUMN}=*")]
        return max(numbers, default=-1)

    def place(self, batch: int, attempt: str) -> Path:
        return self.folder.staging / f"{batch:08d}-{attempt}"

    def commit(self, batch: int, place: Path, files: Sequence[WrittenFile]) -> None:
        place.mkdir(exist_ok=True)  # a batch may have no rows
        taken(place, files).rename(self._visible(self.folder.data, batch))
        sync_folder(self.folder.data)

    def snapshot(self) -> Snapshot:
        for _ in range(MAX_LOOKS):
            batch = self.last_batch()
            try:
                files = tuple(self._files())
            except FileNotFoundError as error:
                log.info("%s was swapped while it was listed: %s", self.folder.data, error)
                continue
            if self.last_batch() == batch:
                return Snapshot(batch, files)
        raise ConfigError(f"{self.folder.data}: it changed {MAX_LOOKS} times while it was listed")

    def _files(self) -> Iterator[DataFile]:
        for path in sorted(self.folder.data.rglob("*.parquet")):
            partition = "" if self.info.partition_by == NONE else path.parent.name.partition("=")[2]
            yield DataFile(str(path), partition, path.stat().st_size)

    def replace(self, batch: int, place: Path, old: Sequence[DataFile], new: Sequence[WrittenFile]) -> None:
        another = self.folder.staging / f"data-{batch:08d}"
        merged = {file.path for file in old}
        for path in self.folder.data.rglob("*.parquet"):
            if str(path) not in merged:
                link = another / path.relative_to(self.folder.data)
                link.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, link)
        another.mkdir(exist_ok=True)
        taken(place, new).rename(self._visible(another, batch))
        for folder in [another, *(path for path in another.rglob("*") if path.is_dir())]:
            sync_folder(folder)
        exchange(another, self.folder.data)
        sync_folder(self.folder.path)
        shutil.rmtree(another)

    def clean(self, keep_hours: int) -> None:
        """Nothing is left behind: a plain folder has no earlier versions."""

    def _visible(self, data: Path, batch: int) -> Path:
        return data / f"{BATCH_COLUMN}={batch:08d}"


def taken(place: Path, files: Sequence[WrittenFile]) -> Path:
    """A staged folder under a name that no task knows, with these files in it and nothing else. Speculative copies and
    attempts that Spark has given up may begin files in `place` when its batch is written already."""
    found = place.with_name(f"{place.name}-taken")
    place.rename(found)
    seal(found, files)
    return found


def exchange(one: Path, other: Path) -> None:
    """Swap two folders in one step. ConfigError where the system or the file system can't."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise ConfigError("this system can't swap two folders in one step: compact on Linux, or use delta or iceberg")
    if rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
        reason = os.strerror(ctypes.get_errno())
        raise ConfigError(
            f"{other}: its file system can't swap two folders in one step ({reason}): use delta or iceberg"
        )
