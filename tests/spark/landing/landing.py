"""A table on disk, and the runs over it: the archive's own code from the lock to the commit, without Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from perseid.base.errors import PerseidError
from perseid.spark.jobs.archive import compaction, files, formats
from perseid.spark.jobs.archive.folder import NONE, TableFolder, TableInfo
from perseid.spark.jobs.archive.run import Allowed, Archived, Run

from .hooks import Hooks, Killed
from .topic import TOPIC, ModelTopic, Seen, World, run_tasks

DONE, REFUSED, KILLED = "done", "refused", "killed"

REFUSALS = {
    "begun anew": "--new-generation",
    "messages gone": "--no-fail-on-data-loss",
    "messages gone while they were read": "were to be read, the broker has others",
    "a hole": "another offset came where",
    "no broker": "all of its brokers are away|no broker has it",
    "held by another run": "is held by another run",
    "changed by others": "--accept-table",
    "rows of nobody": "no batch of it",
    "a file is gone": "is gone, which the table names",
    "a file is cut": "parquet.* put it back from a copy",
    "rows of others": "nobody knows which rows are there twice",
    "executors elsewhere": "all executors need one folder",
    "a damaged file": "was it changed by hand|can't be read|is missing: without it",
    "compaction of an older copy": "Run perseid spark archive first",
}
"""What a run may say when it refuses: each names a way on, or what has to come back. The first that fits counts."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    how: str
    done: Archived | None = None
    error: str = ""
    refusal: str = ""


@dataclass(frozen=True)
class Asked:
    """What a run is asked for."""

    allowed: Allowed = field(default_factory=Allowed)
    batch_offsets: int | None = None
    latest: bool = False
    elsewhere: bool = False


class Failure(AssertionError):
    """A promise is broken."""


class Landing:
    """The table of a history."""

    def __init__(self, path: Path, form: str, world: World, hooks: Hooks) -> None:
        self.path, self.form, self.world, self.hooks = path, form, world, hooks
        self.topic: Seen | None = None
        """Of the last run that came as far."""

    # ---- runs ----

    def archive(self, asked: Asked, at: dict[int, Callable[[], None]] | None = None) -> Outcome:
        """A run, as `perseid spark archive` makes it (`job.archive`)."""
        elsewhere = str(self.path.with_name("elsewhere")) if asked.elsewhere else None
        topic = ModelTopic(
            self.world, self.hooks, strict=not asked.allowed.gaps, latest=asked.latest, elsewhere=elsewhere
        )  # fmt: skip

        def job() -> Archived:
            folder = TableFolder(self.path)
            if folder.info() is None:
                folder.check_free()
            with folder.locked():
                info = folder.info() or TableInfo(TOPIC, self.form, NONE, "id", numbered=True)
                run = Run(formats.of(folder, info), topic, asked.allowed, asked.batch_offsets)
                run.all()
            return run.done

        self.topic = topic
        return self._outcome(job, at)

    def compact(self, keep_hours: int, at: dict[int, Callable[[], None]] | None = None) -> Outcome:
        """A compaction, as `perseid spark compact` makes it."""
        nobody: Any = None

        def job() -> Archived:
            return Archived(compacted=compaction.compact(nobody, table=str(self.path), keep_hours=keep_hours))

        return self._outcome(job, at)

    def _outcome(self, job: Callable[[], Archived], at: dict[int, Callable[[], None]] | None) -> Outcome:
        with self.hooks.run(at or {}):
            try:
                return Outcome(DONE, job())
            except Killed:
                return Outcome(KILLED)
            except PerseidError as error:
                text = str(error)
        return refused(text)

    # ---- what is there ----

    @property
    def folder(self) -> TableFolder:
        return TableFolder(self.path)

    def table(self) -> formats.Table | None:
        """The table; None: there is none yet."""
        info = self.folder.info()
        return None if info is None else formats.of(self.folder, info)

    def named(self) -> list[Path]:
        """The files of the table, as the format's own readers find them."""
        if self.form == "parquet":
            return sorted((self.path / "data").rglob("*.parquet"))
        if self.form == "delta":
            import deltalake

            if not deltalake.DeltaTable.is_deltatable(str(self.path)):
                return []
            return [Path(uri) for uri in deltalake.DeltaTable(str(self.path)).file_uris()]
        table = self.table()
        return [] if table is None else [Path(file.path) for file in table.snapshot().files]

    def on_disk(self) -> list[Path]:
        """All files with rows where batches are, of the table or not."""
        return sorted((self.path / "data").rglob("*.parquet"))


def refused(text: str, known: Mapping[str, str] = REFUSALS) -> Outcome:
    """A run that refused with this line; Failure when it says nothing of what is known."""
    for name, words in known.items():
        if "\n" not in text and re.search(words, text):
            return Outcome(REFUSED, error=text, refusal=name)
    raise Failure(f"a refusal that nobody knows: {text}")


def rows_in(path: Path) -> list[tuple[int, str, int, int]]:
    """uid, queue, offset and generation of the rows of a file."""
    found = path.stat()
    return _rows_in(path, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=2000)
def _rows_in(path: Path, *version: int) -> list[tuple[int, str, int, int]]:
    with pq.ParquetFile(path, pre_buffer=False) as file:
        table = file.read(["value", "brokerName", "queueId", "queueOffset", "generation"], use_threads=False)
    columns = [column.to_pylist() for column in table.columns]
    rows = zip(*columns, strict=True)
    return [(int(uid), f"{TOPIC}/{broker}/{queue}", at, number) for uid, broker, queue, at, number in rows]


@contextmanager
def without_spark() -> Iterator[None]:
    """What `files` has Spark run is run here."""
    real = files._run
    files._run = lambda spark, tasks, rows, target: run_tasks(tasks, rows, target)
    try:
        yield
    finally:
        files._run = real
