"""Small files into larger ones, as a commit of its own: readers have the old ones or the new (`formats`: how)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.errors import ConfigError
from perseid.spark.jobs import failures
from perseid.spark.jobs.archive import formats
from perseid.spark.jobs.archive.contents import state
from perseid.spark.jobs.archive.files import Target, merge
from perseid.spark.jobs.archive.folder import DELTA, TableFolder
from perseid.spark.jobs.archive.formats import Table
from perseid.spark.jobs.archive.rows import shape_of
from perseid.spark.jobs.archive.snapshot import DataFile, Snapshot
from perseid.spark.jobs.options import KEEP_HOURS, TARGET_MB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Compacted:
    """The outcome of a compaction: so many files became so many."""

    before: int
    """Data files before it."""
    after: int
    """Data files after it."""


def compact(
    spark: SparkSession, *, table: str, target_mb: int = TARGET_MB, keep_hours: int = KEEP_HOURS
) -> Compacted:
    """Merge an archive's files that are smaller than half of `target_mb`, within their partitions.

    Before that, files that no version of the last `keep_hours` has are deleted. Killed at any point, run it again.
    """
    folder = TableFolder(table)
    info = folder.known()
    with folder.locked(), failures.told():
        found = formats.of(folder, info)
        committed, last = folder.committed(), found.last_batch()
        if committed is not None and committed.batch > last:
            raise ConfigError(
                f"{folder.path} is at batch {last}, though batch {committed.batch} was committed: an older copy was put"
                " back. Run perseid spark archive first, which reads again what is missing, or bring back the newer one"
            )
        folder.prepare()
        return compact_locked(spark, found, target_mb << 20, keep_hours)


def compact_locked(spark: SparkSession, table: Table, target_bytes: int, keep_hours: int) -> Compacted:
    """The same, for a caller that holds the lock."""
    before = table.snapshot()
    if not before.files:
        return Compacted(0, 0)
    known = table.folder.committed() == state(before)
    table.clean(keep_hours)  # first: what is merged now stays until another compaction, for those who read it now
    if table.info.format == DELTA:
        from perseid.spark.jobs.archive.delta import DeltaTable

        assert isinstance(table, DeltaTable)
        table.optimize(target_bytes)
        return _compacted(table, before, known=known)
    bins = grouped(before.files, target_bytes)
    if bins:
        batch = before.batch + 1
        place = table.place(batch, os.urandom(4).hex())
        target = Target(str(place), table.info.partition_by, shape_of(table.info))
        new = merge(spark, [[file.path for file in each] for each in bins], target).files
        plan = table.folder.plan(before.batch)
        assert plan is not None, "there are files, so there was a batch"
        table.folder.write_plan(batch, plan)
        table.replace(batch, place, [file for each in bins for file in each], new)
    return _compacted(table, before, known=known)


def _compacted(table: Table, before: Snapshot, *, known: bool) -> Compacted:
    """The end of it; a table that was as we had left it is so again."""
    after = table.snapshot()
    if known:
        table.folder.note_committed(state(after))
    return Compacted(len(before.files), len(after.files))


def grouped(files: Sequence[DataFile], target_bytes: int) -> list[list[DataFile]]:
    """Which files to merge: small ones of one partition, in order, up to `target_bytes` together; two at least."""
    by_partition: dict[str, list[DataFile]] = {}
    for file in files:
        if file.bytes < target_bytes // 2:
            by_partition.setdefault(file.partition, []).append(file)
    found: list[list[DataFile]] = []
    for _, small in sorted(by_partition.items()):
        group: list[DataFile] = []
        for file in small:
            if group and sum(each.bytes for each in group) + file.bytes > target_bytes:
                found.append(group)
                group = []
            group.append(file)
        found.append(group)
    return [group for group in found if len(group) > 1]
