"""The data source `perseid`: topics over the network, in batches and as streams; and the sink of the same name.

Spark's checkpoint is the truth about what was read. The planner asks the brokers for the bounds of the queues
(`bounds`); each Spark partition is a range of offsets of one queue, read by a worker with a client of its own
(`reading`). A range is handed over whole or fails: an offset is skipped only where the log has no message of the
topic any more (failOnDataLoss=false), compaction took it, the filter does not want it, or it is a repeat of a stamped
writer's message.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from perseid.base import extras

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
    from pyspark.sql.types import StructType
except ImportError as error:
    raise extras.missing("perseid.spark", error) from None

from perseid.spark import plan, pushdown, schema
from perseid.spark.bounds import Bounds, stored_ms
from perseid.spark.options import SourceOptions, parse
from perseid.spark.plan import DataLost
from perseid.spark.pushdown import Pushed
from perseid.spark.reading import QueueRange, read_range
from perseid.spark.sink import PerseidStreamWriter, PerseidWriter

log = logging.getLogger("perseid.spark")
LOOK_S = 1.0
"""How often a stream at work looks whether the brokers still have what was read."""
__all__ = ["DataLost", "PerseidBatchReader", "PerseidDataSource", "PerseidStreamReader"]


class PerseidBatchReader(DataSourceReader):
    """`spark.read.format("perseid")`, with all filters left to Spark."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        self._options = options
        self._names = names
        self.pushed = Pushed()

    def partitions(self) -> list[QueueRange]:
        """The ranges between the starting and ending offsets, as they are now."""
        if self._options.whole and self.pushed.expression is not None:
            self._options = replace(self._options, tags=self.pushed.expression)
        options = self._options
        with Bounds(options) as bounds:
            bounds.check_sql()
            parts = bounds.narrowed(plan.ranges_between(bounds.starting(), bounds.ending()), self.pushed)
        return [QueueRange(part) for part in plan.split(parts, options.min_partitions)]

    def read(self, partition: Any) -> Iterator[Any]:
        return _read(self._options, self._names, partition, self.pushed)


class FilteringBatchReader(PerseidBatchReader):
    """The same with `pushDown`, where Spark hands its filters over (and raises where it may not).

    Not the default: Spark 4.3 keeps what was pushed with the DataFrame that was loaded, not with each use of it, so
    that one that a query uses twice with different filters would lose rows.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take note of the queues, offsets, times, tags and keys that are wanted; Spark looks at each row again."""
        self.pushed = pushdown.of(filters)
        return filters


class PerseidStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("perseid")`: micro-batches of at most maxOffsetsPerTrigger offsets."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        self._options = options
        self._names = names
        self._target: plan.Position | None = None
        self._look_at_s = 0.0
        """When the brokers are asked again whether what was read before is still what they have (monotonic)."""
        self._pace = plan.Pace(options.min_offsets_per_trigger, options.max_trigger_delay_ms)

    def initialOffset(self) -> dict[str, int]:
        """Where a new query starts."""
        with Bounds(self._options) as bounds:
            bounds.check_sql()
            return bounds.starting()

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is all that the query will read."""
        self._target = self._latest()

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger, or all."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The end of the next micro-batch; `start` when there is nothing new, or not enough (minOffsetsPerTrigger)."""
        read, marks = plan.parted(start)
        self._check(read)
        latest = self._latest() if self._target is None else self._target
        if self._options.fail_on_data_loss:
            plan.check_not_begun_anew(read, latest)
        self._check_marks(read, {name: marks[name] for name in marks if latest.get(name, 0) >= read[name]})
        paced = self._target is None and self._options.min_offsets_per_trigger > 0
        if paced and not self._pace.is_time(plan.lag(read, latest), time.time_ns() // 1_000_000):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = plan.advance(plan.followed(read, latest), latest, most)
        changed = {name: at for name, at in end.items() if at != read.get(name, 0)}
        if not changed:
            return start
        kept = {name: at_ms for name, at_ms in marks.items() if name not in changed}
        return plan.marked(end, kept | stored_ms(self._options, changed))

    def _check_marks(self, read: Mapping[str, int], marks: Mapping[str, int]) -> None:
        """DataLost when other messages are where some were read before: now and then, and before the first batch."""
        now_s = time.monotonic()
        if not marks or now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_S
        differs = plan.differing(read, marks, stored_ms(self._options, {name: read[name] for name in marks}))
        if differs and self._options.fail_on_data_loss:
            raise DataLost(f"{differs}; set failOnDataLoss=false to go on behind that offset")
        if differs:
            log.warning("%s; it is gone on with behind that offset, as failOnDataLoss=false allows", differs)

    def reportLatestOffset(self) -> dict[str, int]:
        """How far the queues go, for the query's progress report."""
        return self._latest()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[QueueRange]:
        """The ranges of one micro-batch."""
        read, until = plan.parted(start)[0], plan.parted(end)[0]
        self._check(read)
        return [QueueRange(part) for part in plan.split(plan.ranges(read, until), self._options.min_partitions)]

    def read(self, partition: Any) -> Iterator[Any]:
        return _read(self._options, self._names, partition, Pushed())

    def commit(self, end: dict[str, int]) -> None:
        """A micro-batch is done up to `end`: the brokers are told, if commitOffsets says so."""
        if self._options.commit_offsets:
            with Bounds(self._options, begun=True) as bounds:
                bounds.commit(plan.parted(end)[0])

    def _latest(self) -> plan.Position:
        with Bounds(self._options, begun=True) as bounds:
            return bounds.latest()

    def _check(self, start: dict[str, int]) -> None:
        plan.check_checkpoint(start, self._reads, strict=self._options.fail_on_data_loss)

    def _reads(self, topic: str) -> bool:
        options = self._options
        if options.pattern is not None:
            return re.fullmatch(options.pattern, topic) is not None
        return topic in options.topics or topic in (options.assign or {})


class PerseidDataSource(DataSource):
    """The source and the sink under their short name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        """For `format(…)`."""
        return "perseid"

    def schema(self) -> str:
        """All columns but those that have to be asked for."""
        options = parse(self.options, streaming=False)  # whether it is a stream is not known yet
        return schema.ddl(include_headers=options.include_headers, include_body=options.include_body)

    def reader(self, schema: StructType) -> PerseidBatchReader:
        """A batch read of some columns."""
        options = parse(self.options, streaming=False)
        reader = FilteringBatchReader if options.push_down else PerseidBatchReader
        return reader(options, _names(schema))

    def streamReader(self, schema: StructType) -> PerseidStreamReader:
        """A stream of some columns."""
        return PerseidStreamReader(parse(self.options, streaming=True), _names(schema))

    def writer(self, schema: StructType, overwrite: bool) -> PerseidWriter:
        """A batch write of rows."""
        return PerseidWriter(self.options, schema, overwrite=overwrite, streaming=False)

    def streamWriter(self, schema: StructType, overwrite: bool) -> PerseidStreamWriter:
        """A stream of rows, a batch at a time."""
        return PerseidStreamWriter(self.options, schema, overwrite=overwrite, streaming=True)


def _read(options: SourceOptions, names: list[str], partition: Any, pushed: Pushed) -> Iterator[Any]:
    """The batches of one partition; none of the one that Spark makes itself where `partitions()` gave none."""
    return read_range(options, names, partition, pushed) if isinstance(partition, QueueRange) else iter(())


def _names(columns: StructType) -> list[str]:
    return schema.chosen(columns)
