"""Land a topic as Parquet, each message once, restartable at any point.

    table/batch=00000007/*.parquet      one folder a micro-batch, in place by one rename
    table/_perseid/checkpoint           Spark's: which offsets each batch covers
    table/_perseid/staging              what a batch writes before it is whole

Why it is exactly once: Spark writes the offsets of a batch into the checkpoint before it runs it, and runs it
again after a crash with the very same offsets. The batch writes into staging and is renamed as its last step.
So a batch is either visible whole or not at all, and one that is visible is not written again. Readers (Spark,
pyarrow, DuckDB) pass over names that begin with `_`. A batch that finds messages gone fails, unless told not to.

The rename has to be atomic: it is on local disks and HDFS, not on object stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_COLUMN = "batch"
OWN_FOLDER = "_perseid"


@dataclass(frozen=True, slots=True)
class Archived:
    """What one run did."""

    batches: int
    rows: int


class _Files:
    """The few file operations that are needed, on whatever file system the path names."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._fs = self._path(root).getFileSystem(spark._jsc.hadoopConfiguration())

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._path(path)))

    def remove(self, path: str) -> None:
        self._fs.delete(self._path(path), True)

    def make(self, path: str) -> None:
        self._fs.mkdirs(self._path(path))

    def rename(self, old: str, new: str) -> None:
        if not self._fs.rename(self._path(old), self._path(new)):
            raise OSError(f"{old} could not be renamed to {new}")


def archive(
    spark: SparkSession,
    *,
    nameserver: str,
    topic: str,
    table: str,
    max_offsets_per_trigger: int | None = None,
    options: Mapping[str, str] | None = None,
    on_batch: Callable[[int, int], None] | None = None,
) -> Archived:
    """Bring the Parquet table at `table` up to what the topic holds now; returns what this run added.

    `options` go to the source (tags, failOnDataLoss, …). `on_batch(batch id, rows)` is called after each batch.
    Run it again to go on; two runs at once on one table are refused by Spark's checkpoint.
    """
    files = _Files(spark, table)
    staging = f"{table}/{OWN_FOLDER}/staging"
    files.remove(staging)
    done = {"batches": 0, "rows": 0}

    def write(rows: DataFrame, batch_id: int) -> None:
        final, temporary = f"{table}/{BATCH_COLUMN}={batch_id:08d}", f"{staging}/{batch_id:08d}"
        if files.exists(final):
            return
        rows.write.mode("overwrite").parquet(temporary)
        files.rename(temporary, final)
        count = rows.sparkSession.read.parquet(final).count()
        done["batches"] += 1
        done["rows"] += count
        if on_batch is not None:
            on_batch(batch_id, count)

    reader = spark.readStream.format("perseid").option("nameserver", nameserver).option("subscribe", topic)
    for name, value in {"startingOffsets": "earliest", **(options or {})}.items():
        reader = reader.option(name, value)
    if max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(max_offsets_per_trigger))
    files.make(staging)
    query = (
        reader.load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{table}/{OWN_FOLDER}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return Archived(done["batches"], done["rows"])


def read(spark: SparkSession, table: str) -> DataFrame:
    """The archived table, without the column that only tells the batches apart."""
    return spark.read.parquet(table).drop(BATCH_COLUMN)
