"""Parquet files written by Spark's tasks: rows of ranges of a topic, or of files that are merged.

No row passes through the driver or the JVM: a task reads, decodes and writes record batches, and gives Spark one line
for each file, and one for itself. So memory is bounded by what a task gathers for a row group, whatever a batch or a
topic holds. Only files that a finished task named are ever committed: what failed attempts and killed runs wrote is
never seen. And only where the driver sees each of them, whole: executors that have another folder under the table's
path would land nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from perseid.base import extras

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ImportError as error:
    raise extras.missing("perseid.spark", error) from None

from perseid.base.errors import ConfigError
from perseid.spark import plan
from perseid.spark.jobs.archive.contents import landed
from perseid.spark.jobs.archive.folder import DAY, HOUR, NONE, Landed, sync_folder
from perseid.spark.jobs.archive.rows import CORRUPT, RowShape, Shaper, rows_of
from perseid.spark.options import SourceOptions
from perseid.spark.reading import RangeReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW_GROUP_BYTES = 32 << 20
ROW_GROUP_ROWS = 131_072
"""A row group is written when this much has been gathered for it,"""
GATHERED_BYTES = 96 << 20
"""and the largest one when a task has gathered this much for all its partitions."""
MAX_OPEN = 32
"""Files that a task has open; the one written to longest ago is ended for another."""
MERGE_ROWS = 8192
COMPRESSION = "zstd"
DICTIONARIES = ["topic", "brokerName", "queueId", "tag", "bornHost", "storeHost", "flag", "sysFlag", "reconsumeTimes"]

MAX_MISSING = 1_000
"""Stretches of missing offsets that a task tells one by one; what is more is told as one."""

TOLD = "path string, partition string, rows bigint, bytes bigint, corrupt bigint, low bigint, high bigint"
"""Of a task itself `path` is empty, and `partition` holds its `Told` as JSON."""
_FORMATS = {DAY: "%Y-%m-%d", HOUR: "%Y-%m-%d-%H"}


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a task wrote. `path` is relative to the folder, `low` and `high` the store times in milliseconds."""

    path: str
    partition: str
    rows: int
    bytes: int
    corrupt: int
    low: int
    high: int


class Missing(NamedTuple):
    """Within the offsets [start, end) so many messages are missing."""

    start: int
    end: int
    messages: int


@dataclass(frozen=True, slots=True)
class Told:
    """The report of a task: its number, the rows that it wrote, and what it left out."""

    task: int
    landed: Landed
    repeats: int = 0
    doubtful: int = 0
    """Rows whose stamps had come before, with something else, or beyond what is remembered: they are landed."""
    missing: tuple[Missing, ...] = ()
    last: tuple[int, int] | None = None
    """Offset and store time (milliseconds) of the last row."""


@dataclass(frozen=True, slots=True)
class Written:
    """The reports of all tasks of a batch; those of ranges in their order."""

    files: tuple[WrittenFile, ...]
    tasks: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """Where files go, and how."""

    folder: str
    partition_by: str
    shape: RowShape


class PartitionedFiles:
    """Writes record batches into files, each of one partition. `name` makes them unlike any other task's."""

    def __init__(self, target: Target, name: str) -> None:
        self._target = target
        self._name = name
        self._schema = target.shape.arrow()
        self._open: dict[str, _File] = {}
        self._made = 0
        self.written: list[WrittenFile] = []

    def add(self, batch: Any) -> None:
        """Take in some rows."""
        if batch.num_rows == 0:
            return
        if self._target.partition_by == NONE:
            self._file("").add(batch)
        else:
            names = pc.strftime(batch.column("storeTimestamp"), format=_FORMATS[self._target.partition_by])
            for name in pc.unique(names).to_pylist():
                self._file(name).add(batch.filter(pc.equal(names, name)))
        while sum(file.gathered_bytes for file in self._open.values()) > GATHERED_BYTES:
            max(self._open.values(), key=lambda file: file.gathered_bytes).flush()

    def finish(self) -> list[WrittenFile]:
        """End all files; they are durable."""
        for name in list(self._open):
            self._end(name)
        return self.written

    def _file(self, partition: str) -> _File:
        found = self._open.pop(partition, None)
        if found is None:
            if len(self._open) >= MAX_OPEN:
                self._end(next(iter(self._open)))
            name = f"part-{self._name}-{self._made:04d}.parquet"
            self._made += 1
            folder = f"{self._target.partition_by}={partition}/" if partition else ""
            found = _File(Path(self._target.folder), folder + name, partition, self._schema)
        self._open[partition] = found  # the last one is the one written to last
        return found

    def _end(self, partition: str) -> None:
        self.written.append(self._open.pop(partition).end())


class _File:
    """One file that is being written."""

    def __init__(self, folder: Path, path: str, partition: str, schema: Any) -> None:
        self._path, self._partition, self._schema = path, partition, schema
        self._full = folder / path
        self._full.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._full.open("wb")
        self._writer = pq.ParquetWriter(self._file, schema, compression=COMPRESSION, use_dictionary=DICTIONARIES)
        self._gathered: list[Any] = []
        self.gathered_bytes = self._gathered_rows = 0
        self._rows = self._corrupt = 0
        self._low: int | None = None
        self._high = 0

    def add(self, batch: Any) -> None:
        self._gathered.append(batch)
        self.gathered_bytes += batch.nbytes
        self._gathered_rows += batch.num_rows
        self._rows += batch.num_rows
        bounds = pc.min_max(batch.column("storeTimestamp").cast(pa.int64())).as_py()
        low, high = bounds["min"] // 1000, bounds["max"] // 1000
        self._low, self._high = low if self._low is None else min(self._low, low), max(self._high, high)
        if CORRUPT in self._schema.names:
            self._corrupt += batch.num_rows - batch.column(CORRUPT).null_count
        if self.gathered_bytes >= ROW_GROUP_BYTES or self._gathered_rows >= ROW_GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is gathered as a row group."""
        if self._gathered:
            rows = pa.Table.from_batches(self._gathered, schema=self._schema)
            self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        self._gathered = []
        self.gathered_bytes = self._gathered_rows = 0

    def end(self) -> WrittenFile:
        self.flush()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        sync_folder(self._full.parent)
        low = self._low or 0
        return WrittenFile(self._path, self._partition, self._rows, size, self._corrupt, low, self._high)


Rows = Callable[[int], "TaskRows"]


class TaskRows:
    """The rows of one task, and what has to be told of them."""

    def __init__(self, batches: Callable[[RangeReport], Iterator[Any]]) -> None:
        self.report = RangeReport()
        self.landed = Landed()
        self.last: tuple[int, int] | None = None
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches(self.report):
            self.landed = self.landed.plus(landed(batch.column("queueOffset")))
            stored_us = batch.column("storeTimestamp")[-1].cast(pa.int64()).as_py()
            self.last = None if stored_us is None else (batch.column("queueOffset")[-1].as_py(), stored_us // 1000)
            yield batch

    def told(self, task: int) -> Told:
        """When all have been taken."""
        stamped = self.report.stamped
        doubtful = stamped.differing + stamped.copied + stamped.untold
        return Told(task, self.landed, stamped.dropped, doubtful, tuple(_bounded(self.report.missing)), self.last)


def write_ranges(spark: SparkSession, parts: Sequence[plan.Range], options: SourceOptions, target: Target) -> Written:
    """Write what ranges of queues hold: a task a range."""

    def task(number: int) -> TaskRows:
        return TaskRows(lambda report: rows_of(options, parts[number], Shaper(target.shape), report))

    return _run(spark, len(parts), task, target)


def merge(spark: SparkSession, groups: Sequence[Sequence[str]], target: Target) -> Written:
    """Write the rows of each group of files (of one partition) into one file: a task a group."""

    def batches(paths: Sequence[str]) -> Iterator[Any]:
        for path in paths:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(MERGE_ROWS, columns=target.shape.arrow().names):
                    yield batch.cast(target.shape.arrow())

    return _run(spark, len(groups), lambda number: TaskRows(lambda _: batches(groups[number])), target)


def _run(spark: SparkSession, tasks: int, rows: Rows, target: Target) -> Written:
    """What the tasks wrote; nothing else is left in the folder. ConfigError when the driver does not see it there."""
    if tasks == 0:
        return Written((), ())

    def write(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.taskAttemptId() if context is not None else 0
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from write_task(number, f"{number:05d}-{attempt}", rows(number), target)

    written = told_by(spark.range(0, tasks, 1, tasks).mapInArrow(write, TOLD).collect(), tasks)
    seal(Path(target.folder), written.files)
    return written


def write_task(number: int, name: str, rows: TaskRows, target: Target) -> Iterator[Any]:
    """Write a task's rows into files whose names begin with `name`; gives what Spark is told of it."""
    files = PartitionedFiles(target, name)
    for batch in rows:
        files.add(batch)
    own = WrittenFile("", msgspec.json.encode(rows.told(number)).decode(), 0, 0, 0, 0, 0)
    yield _told([*files.finish(), own])


def told_by(rows: Iterable[Sequence[Any]], tasks: int) -> Written:
    """What the lines of all tasks say."""
    told = [WrittenFile(*row) for row in rows]
    own = sorted((msgspec.json.decode(one.partition, type=Told) for one in told if not one.path), key=lambda t: t.task)
    assert [one.task for one in own] == list(range(tasks)), "each task of Spark's is told of once"
    return Written(tuple(one for one in told if one.path), tuple(own))


def seal(folder: Path, files: Sequence[WrittenFile]) -> None:
    """See that all files are in the folder, whole, and nothing else. ConfigError when they are not."""
    named = {file.path: file for file in files}
    lost = [file for file in files if _size(folder / file.path) != file.bytes]
    if lost:
        raise ConfigError(
            f"{folder}: {len(lost)} of the {len(files)} files that Spark's tasks wrote are not here, or not whole (the"
            f" first is {lost[0].path}, of {lost[0].bytes} bytes); nothing was added. The driver and all executors need"
            " one folder under the table's path: put the table on a file system that all of them mount"
        )
    for path in folder.rglob("*.parquet"):
        if str(path.relative_to(folder)) not in named:
            path.unlink()  # of an attempt that failed
    if folder.exists():
        sync_folder(folder)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _bounded(missing: Sequence[tuple[int, int]]) -> Iterator[Missing]:
    """The first stretches as they are, and all others as one."""
    for start, end in missing[: MAX_MISSING - 1]:
        yield Missing(start, end, end - start)
    rest = missing[MAX_MISSING - 1 :]
    if rest:
        yield Missing(rest[0][0], rest[-1][1], sum(end - start for start, end in rest))


def _told(files: Sequence[WrittenFile]) -> Any:
    names = WrittenFile.__slots__
    columns = list(zip(*map(astuple, files), strict=True))
    kinds = [pa.string(), pa.string(), *[pa.int64()] * 5]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))
