"""One task of the source: a range of offsets of one queue, as record batches.

A broker that dies, and a change of masters, in the middle of a range are borne: the read goes on with a new client
where it stopped, for `deadlineMs` after the last message that came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from perseid.client.blocking import BlockingPullConsumer
from perseid.client.errors import ClientError
from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.client.stamps import Repeats, RepeatsDiffer
from perseid.spark import plan, schema
from perseid.spark.bounds import Patience
from perseid.spark.options import SourceOptions
from perseid.spark.plan import DataLost
from perseid.spark.pushdown import Pushed
from perseid.spark.retrying import transient

BATCH_MESSAGES = 4096
"""Messages in one record batch at most."""


class QueueRange(InputPartition):
    """One task's share: offsets [start, end) of one queue."""

    def __init__(self, part: plan.Range) -> None:
        super().__init__((*part.queue, part.start, part.end))
        self.topic, self.broker_name, self.queue_id = part.queue
        self.start = part.start
        self.end = part.end


def read_range(options: SourceOptions, names: list[str], part: QueueRange, pushed: Pushed) -> Iterator[Any]:
    """The record batches of one range. DataLost when offsets of it are gone and that is not allowed."""
    waiting: list[ReceivedMessage] = []
    for messages in _Range(options, part).messages():
        waiting.extend(message for message in messages if pushed.wants(message))
        if len(waiting) >= BATCH_MESSAGES:
            yield schema.batch(waiting, names)
            waiting = []
    if waiting:
        yield schema.batch(waiting, names)


class _Range:
    """A range that is being read."""

    def __init__(self, options: SourceOptions, part: QueueRange) -> None:
        self._options = options
        self._queue = MessageQueue(part.topic, part.broker_name, part.queue_id)
        self._at, self._end = part.start, part.end
        self._first = part.start
        self._begun = False
        self._repeats = Repeats(self._queue, part.start, strict=True) if options.dedupe else None

    def messages(self) -> Iterator[list[ReceivedMessage]]:
        """The messages in order, without repeats."""
        patience = Patience(self._options.deadline_ms)
        while self._at < self._end:
            try:
                for found in self._once():
                    patience.progress()
                    yield found
                return
            except (ClientError, DataLost) as error:
                passing = self._begun if isinstance(error, DataLost) else transient(error)
                if not passing or isinstance(error, RepeatsDiffer):
                    raise
                patience.wait(error)

    def _once(self) -> Iterator[list[ReceivedMessage]]:
        options, queue = self._options, self._queue
        with BlockingPullConsumer(options.nameserver, options.group, expression=options.expression) as consumer:
            start, end = self._bounds(consumer)
            self._begun = True
            checked = options.fail_on_data_loss and options.whole
            for found in consumer.read(queue, start, end) if start < end else ():
                if checked:
                    self._check_whole(found)
                fresh = self._fresh(consumer, found)
                self._at = found[-1].queue_offset + 1
                if fresh:
                    yield fresh
            if checked and start < end and self._at != end:
                raise DataLost(f"{queue}: the messages end at offset {self._at}, {end} was promised")
            self._at = self._end

    def _bounds(self, consumer: BlockingPullConsumer) -> tuple[int, int]:
        low, high = consumer.min_offset(self._queue), consumer.max_offset(self._queue)
        start, end = max(self._at, low), min(self._end, high)
        if self._options.fail_on_data_loss and (start > self._at or end < self._end):
            raise DataLost(
                f"{self._queue}: offsets {self._first} to {self._end - 1} were to be read, the broker has {low} to"
                f" {high - 1}; set failOnDataLoss=false to go on with what is there"
            )
        self._at = start
        return start, end

    def _check_whole(self, found: Sequence[ReceivedMessage]) -> None:
        expected = self._at
        for message in found:
            if message.queue_offset != expected:
                raise DataLost(f"{self._queue}: offset {message.queue_offset} came where {expected} was expected")
            expected += 1

    def _fresh(self, consumer: BlockingPullConsumer, found: list[ReceivedMessage]) -> list[ReceivedMessage]:
        repeats = self._repeats
        if repeats is None:
            return found
        back = repeats.look_back(found)
        if back is not None:
            for earlier in consumer.read(self._queue, *back):
                repeats.learn(earlier)
            repeats.learnt(back[0])
        return repeats.fresh(found)
