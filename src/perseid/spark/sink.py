"""The sink `perseid`: rows become messages, exactly once for readers that look at their stamps.

    batch    df.write.format("perseid").mode("append").option("topic", …).save()
    stream   df.writeStream.format("perseid").option("topic", …).option("checkpointLocation", …).start()

Each task encodes its rows in their order (`encode`) and sends them itself (`sender`). A failed task, its retry, a
speculative copy and a batch that runs again after a crash send the same messages with the same stamps; readers drop
what came already (`perseid.client.stamps`: why that is enough). Nothing is taken back: an aborted batch leaves a
beginning of what it sends, and when it runs again that beginning is what readers drop.

The writer in the stamps is the streaming query's id, which lives in its checkpoint, or an id made for each batch
write; `queryId` (and `batchId`) name one of your own, so that a job that is started again repeats its stamps, or
that `foreachBatch` can hand on its batch.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perseid.base import extras

try:
    from pyspark import TaskContext
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
    from pyspark.sql.types import StructType
except ImportError as error:
    raise extras.missing("perseid.spark", error) from None

from perseid.base.errors import PerseidError
from perseid.client.model import MessageQueue
from perseid.spark import sink_options
from perseid.spark.encode import BatchPartition, Encoder, in_sequence
from perseid.spark.sender import Ends, Sender
from perseid.spark.sink_options import SinkError, SinkOptions
from perseid.spark.topics import like

log = logging.getLogger("perseid.spark")

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Set by Spark's streaming engine for its tasks."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The outcome of a task."""

    writer: str
    partition: int
    messages: int
    batches: int
    retries: int
    topics: tuple[str, ...]


class _Writer:
    """What both kinds of writer have in common. Made on the driver for each batch, then sent to the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool, streaming: bool) -> None:
        self._options = sink_options.parse(options)
        if overwrite and not streaming:
            raise SinkError('a topic can\'t be overwritten: write with .mode("append")')
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        self._columns = sink_options.columns(self._options, fields)
        self._streaming = streaming
        self._own_id = os.urandom(16).hex()
        self._planned_ms = time.time_ns() // 1_000_000
        self._planned: Ends | None = None
        if self._options.topic is not None:
            self._planned = _ends(self._options, self._options.topic)

    def write(self, iterator: Iterator[Any]) -> Written:
        """Send a task's rows; all of them are stored when it returns."""
        options, part = self._options, self._part()
        rows: Iterable[Any] = in_sequence(iterator, options.sequence_by) if options.sequence_by else iterator
        first = next((batch for batch in rows if batch.num_rows), None)
        if first is None:
            return Written(part.writer, part.partition, 0, 0, 0, ())
        remembered = self._streaming or options.query_id is not None
        with Sender(options) as sender:
            encoder = Encoder(
                options,
                self._columns,
                part,
                lambda topic: sender.layout(topic, part, self._planned, self._planned_ms, remembered=remembered),
                sender.put,
            )
            encoder.add(first)
            for batch in rows:
                encoder.add(batch)
            encoder.finish()
            sender.flush()
            return Written(
                part.writer, part.partition, encoder.messages, sender.batches, sender.retries, tuple(encoder.topics)
            )

    def _part(self) -> BatchPartition:
        context = TaskContext.get()
        if context is None:
            raise SinkError("the perseid sink writes inside of Spark's tasks only")
        options, writer, batch = self._options, self._own_id, 0
        if self._streaming:
            query, number = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
            if not query or not number:
                raise SinkError(f"Spark tells no {QUERY_ID} and {BATCH_ID}: give queryId and batchId, or stamps=false")
            writer, batch = query.replace("-", ""), int(number)
        if options.query_id is not None:
            writer, batch = options.query_id, options.batch_id if options.batch_id is not None else batch
        return BatchPartition(writer, batch, context.partitionId())

    def _done(self, messages: Iterable[Any], batch_id: int) -> None:
        """A batch is whole: the next one begins here at the earliest. Best effort: an older bound is as right."""
        written = [message for message in messages if isinstance(message, Written)]
        topics = {topic for message in written for topic in message.topics}
        if self._options.topic is not None:
            topics.add(self._options.topic)
        log.info("batch %d: %d messages", batch_id, sum(message.messages for message in written))
        if not written or not topics or not self._options.stamps:
            return
        try:
            with Sender(self._options) as sender:
                for topic in sorted(topics):
                    sender.remember(topic, written[0].writer, batch_id + 1)
        except PerseidError as error:
            log.warning("batch %d is stored; where the next one begins could not be noted: %s", batch_id, error)


class PerseidWriter(_Writer, DataSourceArrowWriter):
    """`df.write.format("perseid")`."""

    def commit(self, messages: list[Any]) -> None:
        """All tasks have stored their rows."""
        if self._options.query_id is not None:
            self._done(messages, self._options.batch_id or 0)

    def abort(self, messages: list[Any]) -> None:
        """A task failed: what the others have stored stays, and counts if the job runs again with the same queryId."""
        log.warning("the write failed; %d tasks had stored their rows", sum(m is not None for m in messages))


class PerseidStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("perseid")`."""

    def commit(self, messages: list[Any], batchId: int) -> None:
        """All tasks of a micro-batch have stored their rows."""
        self._done(messages, batchId if self._options.batch_id is None else self._options.batch_id)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """A task failed: Spark runs the batch again when the query is started anew."""
        log.warning("batch %d failed; %d tasks had stored their rows", batchId, sum(m is not None for m in messages))


def _ends(options: SinkOptions, topic: str) -> Mapping[MessageQueue, int]:
    with Sender(options) as sender:
        try:
            return sender.ends(topic)
        except SinkError as error:
            raise SinkError(f"{error}{like(options.nameserver, topic, options.link())}") from error
