"""The data source `perseid`: topics over the network, in batches and as streams.

Spark's checkpoint is the truth about what was read; nothing is committed to the brokers. The planner asks the
brokers for the bounds of the queues; each Spark partition is a range of offsets of one queue, read by a worker
with a client of its own. A range is handed over whole or fails: an offset is skipped only where the log has
no message of the topic any more (failOnDataLoss=false) or the tag filter does not want it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from perseid.base.errors import ConfigError, PerseidError
from perseid.client.blocking import BlockingAdmin, BlockingPullConsumer
from perseid.client.model import MessageQueue
from perseid.client.subscription import ALL
from perseid.spark import plan, schema
from perseid.spark.options import EARLIEST, LATEST, QueueOffsets, SourceOptions, parse

BATCH_MESSAGES = 4096
"""Messages in one record batch at most."""

SYSTEM_PREFIXES = ("%RETRY%", "%DLQ%", "rmq_sys_", "RMQ_SYS_")


class DataLost(PerseidError):
    """Offsets that were to be read are gone from the broker."""


class Bounds:
    """Asks brokers what there is to read. Made anew where it is needed: it holds connections."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._consumer = BlockingPullConsumer(options.nameserver, options.group)

    def __enter__(self) -> Bounds:
        self._consumer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._consumer.stop()

    def queues(self) -> list[MessageQueue]:
        """All queues of the chosen topics; ConfigError when `assign` names one that is not there."""
        options = self._options
        topics = options.topics or tuple(options.assign or ()) or self._matching(options.pattern or "")
        found = [queue for topic in topics for queue in self._consumer.queues(topic)]
        if options.assign is None:
            return found
        wanted = {
            MessageQueue(topic, broker, queue_id)
            for topic, brokers in options.assign.items()
            for broker, ids in brokers.items()
            for queue_id in ids
        }
        missing = wanted - set(found)
        if missing:
            raise ConfigError(f"assign: no such queues: {', '.join(sorted(map(str, missing)))}")
        return sorted(wanted)

    def _matching(self, pattern: str) -> tuple[str, ...]:
        with BlockingAdmin(self._options.nameserver) as admin:
            names = admin.topic_list()
        matches = re.compile(pattern).fullmatch
        return tuple(name for name in sorted(names) if matches(name) and not name.startswith(SYSTEM_PREFIXES))

    def position(self, offsets: int | QueueOffsets, timestamp_ms: int | None = None) -> plan.Position:
        """A source offset as the options say: a bound of each queue, offsets by name, or by time."""
        return {plan.name_of(queue): self._offset(queue, offsets, timestamp_ms) for queue in self.queues()}

    def _offset(self, queue: MessageQueue, offsets: int | QueueOffsets, timestamp_ms: int | None) -> int:
        if timestamp_ms is not None:
            return self._consumer.search_offset(queue, timestamp_ms)
        wanted: int = EARLIEST
        if isinstance(offsets, int):
            wanted = offsets
        else:
            wanted = offsets.get(queue.topic, {}).get(f"{queue.broker_name}:{queue.queue_id}", EARLIEST)
        if wanted == EARLIEST:
            return self._consumer.min_offset(queue)
        if wanted == LATEST:
            return self._consumer.max_offset(queue)
        return wanted


class QueueRange(InputPartition):
    """One task's share: offsets [start, end) of one queue."""

    def __init__(self, part: plan.Range) -> None:
        super().__init__((*part.queue, part.start, part.end))
        self.topic, self.broker_name, self.queue_id = part.queue
        self.start = part.start
        self.end = part.end


def read_range(options: SourceOptions, names: list[str], part: QueueRange) -> Iterator[Any]:
    """The record batches of one range. DataLost when offsets of it are gone and that is not allowed."""
    queue = MessageQueue(part.topic, part.broker_name, part.queue_id)
    consumer = BlockingPullConsumer(options.nameserver, options.group, expression=options.tags)
    with consumer:
        low, high = consumer.min_offset(queue), consumer.max_offset(queue)
        start, end = max(part.start, low), min(part.end, high)
        if options.fail_on_data_loss and (start > part.start or end < part.end):
            raise DataLost(
                f"{queue}: offsets {part.start} to {part.end - 1} were to be read, the broker has {low} to {high - 1}; "
                "set failOnDataLoss=false to go on with what is there"
            )
        expected = start
        waiting: list[Any] = []
        for messages in consumer.read(queue, start, end) if start < end else ():
            if options.fail_on_data_loss and options.tags == ALL:
                for message in messages:
                    if message.record.queue_offset != expected:
                        came = message.record.queue_offset
                        raise DataLost(f"{queue}: offset {came} came where {expected} was expected")
                    expected += 1
            waiting.extend(messages)
            if len(waiting) >= BATCH_MESSAGES:
                yield schema.batch(waiting, names)
                waiting = []
        if options.fail_on_data_loss and options.tags == ALL and expected != end and start < end:
            raise DataLost(f"{queue}: the messages end at offset {expected}, {end} was promised")
        if waiting:
            yield schema.batch(waiting, names)


class PerseidBatchReader(DataSourceReader):
    """`spark.read.format("perseid")`."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> list[QueueRange]:
        """The ranges between the starting and ending offsets, as they are now."""
        options = self._options
        with Bounds(options) as bounds:
            start = bounds.position(options.starting, options.starting_timestamp_ms)
            end = bounds.position(options.ending, options.ending_timestamp_ms)
        return [QueueRange(part) for part in plan.split(plan.ranges(start, end), options.min_partitions)]

    def read(self, partition: Any) -> Iterator[Any]:
        return read_range(self._options, self._names, partition)


class PerseidStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("perseid")`: micro-batches of at most maxOffsetsPerTrigger offsets."""

    def __init__(self, options: SourceOptions, names: list[str]) -> None:
        self._options = options
        self._names = names
        self._target: plan.Position | None = None

    def initialOffset(self) -> dict[str, int]:
        """Where a new query starts."""
        with Bounds(self._options) as bounds:
            return bounds.position(self._options.starting, self._options.starting_timestamp_ms)

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is all that the query will read."""
        self._target = self._latest()

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger, or all."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The end of the next micro-batch; `start` when there is nothing new."""
        latest = self._latest() if self._target is None else self._target
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return plan.advance(start, latest, most)

    def reportLatestOffset(self) -> dict[str, int]:
        """How far the queues go, for the query's progress report."""
        return self._latest()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[QueueRange]:
        """The ranges of one micro-batch."""
        return [QueueRange(part) for part in plan.split(plan.ranges(start, end), self._options.min_partitions)]

    def read(self, partition: Any) -> Iterator[Any]:
        return read_range(self._options, self._names, partition)

    def _latest(self) -> plan.Position:
        with Bounds(self._options) as bounds:
            return bounds.position(LATEST)


class PerseidDataSource(DataSource):
    """The source under its short name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        """What `format(…)` is given."""
        return "perseid"

    def schema(self) -> str:
        """All columns but those that have to be asked for."""
        options = parse(self.options, streaming=True)
        return schema.ddl(include_headers=options.include_headers, include_body=options.include_body)

    def reader(self, schema: StructType) -> PerseidBatchReader:
        """A batch read of some columns."""
        return PerseidBatchReader(parse(self.options, streaming=False), _names(schema))

    def streamReader(self, schema: StructType) -> PerseidStreamReader:
        """A stream of some columns."""
        return PerseidStreamReader(parse(self.options, streaming=True), _names(schema))


def _names(columns: StructType) -> list[str]:
    return schema.chosen(columns)
