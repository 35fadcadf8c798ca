"""Reading an archive, of whatever format, as it is at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perseid.spark.jobs.archive import formats
from perseid.spark.jobs.archive.folder import Plan, TableFolder, TableInfo
from perseid.spark.jobs.archive.rows import RowShape, shape_of
from perseid.spark.jobs.archive.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Archive:
    """An archive as it is now: what it is of, its files, and which offsets they cover."""

    def __init__(self, table: str) -> None:
        self.folder = TableFolder(table)
        self.info: TableInfo = self.folder.known()
        self.snapshot: Snapshot = formats.of(self.folder, self.info).snapshot()
        self.plan = self.folder.plan(self.snapshot.batch) or Plan({}, {})

    @property
    def shape(self) -> RowShape:
        """What its rows hold."""
        return shape_of(self.info, self.plan.generation)

    def frame(self, spark: SparkSession) -> DataFrame:
        """All rows."""
        return parquet(spark, [file.path for file in self.snapshot.files], self.shape.spark())


def read(spark: SparkSession, table: str) -> DataFrame:
    """The archive at `table` as it is now; without what only says where its files lie. ConfigError: it is none."""
    return Archive(table).frame(spark)


def parquet(spark: SparkSession, files: list[str], schema: Any) -> DataFrame:
    """The rows of some Parquet files."""
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).option("recursiveFileLookup", "true").parquet(*files)
