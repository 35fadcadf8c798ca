"""The data source `perseid-log`: store folders as tables, with no broker running.

Spark's driver looks at the folders' file names, and at the end of the last file; each task reads its split alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from perseid.base import extras

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
    from pyspark.sql.types import StructType
except ImportError as error:
    raise extras.missing("perseid.spark", error) from None

from perseid.spark.log import filters, folders
from perseid.spark.log.options import LogOptions, parse
from perseid.spark.log.reading import planned, read
from perseid.spark.log.rows import COLUMNS, Chosen, RowOptions, ddl


class LogSplit(InputPartition):
    """One task's share."""

    def __init__(self, split: folders.Split) -> None:
        super().__init__((split.segment.path, split.begin, split.end))
        self.split = split


class LogReader(DataSourceReader):
    """`spark.read.format("perseid-log")`, with all filters left to Spark."""

    def __init__(self, options: LogOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names
        self._chosen = Chosen()

    def partitions(self) -> list[LogSplit]:
        """The splits, as the folders are now."""
        return [LogSplit(split) for split in planned(self._options, self._chosen)]

    def read(self, partition: Any) -> Iterator[Any]:
        if not isinstance(partition, LogSplit):  # Spark's own, where there is none of ours
            return iter(())
        options = self._options
        return read(
            partition.split,
            RowOptions(self._names, self._chosen, options.decompress, options.most_bytes),
        )


class FilteringLogReader(LogReader):
    """The same with `pushDown`, where Spark hands its filters over (and raises where it may not).

    Not the default: Spark 4.3 keeps what was pushed with the DataFrame that was loaded, not with each use of it, so
    that one that a query uses twice with different filters would lose rows.
    """

    def pushFilters(self, filters_: list[Filter]) -> Iterable[Filter]:
        """Take note of what can be left out; Spark applies all of them to what comes."""
        self._chosen = filters.chosen(filters_)
        return filters_


class PerseidLogDataSource(DataSource):
    """The source under its short name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        """For `format(…)`."""
        return "perseid-log"

    def schema(self) -> str:
        """All columns but those that have to be asked for. The folders are looked at, so that a wrong one is an error
        before anything runs."""
        options = parse(self.options)
        for folder in options.folders:
            folders.logs(folder)
        return ddl(include_body=options.include_body, include_folder=options.include_folder)

    def reader(self, schema: StructType) -> LogReader:
        """A read of some columns."""
        options = parse(self.options)
        names = tuple(field.name for field in schema.fields)
        unknown = [name for name in names if name not in COLUMNS]
        if unknown:
            raise ValueError(f"no such column: {', '.join(unknown)}; there are {', '.join(COLUMNS)}")
        return FilteringLogReader(options, names) if options.push_down else LogReader(options, names)
