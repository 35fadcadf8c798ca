"""One task of the source: a range of offsets of one queue, as record batches.

A broker that dies, and a change of masters, in the middle of a range are borne: the read goes on with a new client
where it stopped, for `deadlineMs` after the last message that came.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import InputPartition

from perseid.base.machine import Buffer
from perseid.client.blocking import BlockingPullConsumer
from perseid.client.deduplicator import Counts, Deduplicator
from perseid.client.errors import ClientError
from perseid.client.model import MessageQueue
from perseid.client.stamps import placed, runs
from perseid.client.subscription import Subscription
from perseid.client.surroundings import now_ms
from perseid.spark import decode, plan
from perseid.spark.bounds import Patience, is_compacted
from perseid.spark.options import SourceOptions
from perseid.spark.plan import DataLost
from perseid.spark.pulls import Pulls
from perseid.spark.pushdown import Pushed
from perseid.spark.retrying import transient

log = logging.getLogger("perseid.spark")

BATCH_MESSAGES = 8192
"""Messages in one record batch, but for what the last pull brought beyond that."""


class QueueRange(InputPartition):
    """One task's share: offsets [start, end) of one queue."""

    def __init__(self, part: plan.Range) -> None:
        super().__init__((*part.queue, part.start, part.end))
        self.topic, self.broker_name, self.queue_id = part.queue
        self.start = part.start
        self.end = part.end


@dataclass(slots=True)
class RangeReport:
    """Counts of messages that a read of a range left out."""

    missing: list[tuple[int, int]] = field(default_factory=list)
    """Offsets [start, end) that the broker did not give; with failOnDataLoss there are none. Within a range that is
    filtered by the broker only those at its ends are known, and holes of a compacted topic are none."""
    stamped: Counts = field(default_factory=Counts)
    """What came of stamped messages: the repeats too, and what was handed out although its stamp had come before."""

    def lacks(self, start: int, end: int) -> None:
        """Note that these are missing, in order."""
        if start < end:
            if self.missing and self.missing[-1][1] == start:
                start, _ = self.missing.pop()
            self.missing.append((start, end))


def read_range(
    options: SourceOptions, names: list[str], part: QueueRange, pushed: Pushed, report: RangeReport | None = None
) -> Iterator[Any]:
    """The record batches of one range. DataLost when offsets of it are gone and that is not allowed. `report` is told,
    while it is read, what is left out."""
    told = RangeReport() if report is None else report
    found = _Range(options, names, part, pushed, told)
    rows = found.rows
    for _ in found.pulls():
        if rows.full:
            yield from _batch(rows)
    yield from _batch(rows)
    if report is None and told.stamped:
        queue = MessageQueue(part.topic, part.broker_name, part.queue_id)
        log.warning("%s: offsets %d to %d: %s", queue, part.start, part.end - 1, told.stamped)


def _batch(rows: decode.Rows) -> Iterator[Any]:
    if rows.count:
        batch = rows.batch()
        if batch.num_rows:
            yield batch


class _Range:
    """A range that is being read."""

    def __init__(
        self, options: SourceOptions, names: Sequence[str], part: QueueRange, pushed: Pushed, report: RangeReport
    ) -> None:
        self._options = options
        self._report = report
        self._queue = queue = MessageQueue(part.topic, part.broker_name, part.queue_id)
        self._at, self._end = part.start, part.end
        self._first = part.start
        self._begun = False
        self._compacted: bool | None = None
        """Holes are normal; None: nobody has had to ask."""
        self._repeats = Deduplicator(queue, part.start, counts=report.stamped) if options.dedupe else None
        self._subscription = Subscription.parse(queue.topic, options.expression, now_ms())
        wanted = decode.Wanted(
            tuple(names), BATCH_MESSAGES, self._subscription.tags or None, pushed.keys, stamps=options.dedupe
        )
        self.rows = decode.rows(queue, wanted)
        """Received, and not handed on yet."""

    def pulls(self) -> Iterator[None]:
        """Pull until the range is read whole; a turn for each pull, after which there are more rows."""
        patience = Patience(self._options.deadline_ms)
        while self._at < self._end:
            try:
                for _ in self._once():
                    patience.progress()
                    yield
                return
            except (ClientError, DataLost) as error:
                passing = self._begun if isinstance(error, DataLost) else transient(error)
                if not passing:
                    raise
                patience.wait(error)
                yield

    def _once(self) -> Iterator[None]:
        options, queue = self._options, self._queue
        expression, link = options.expression, options.link()
        with BlockingPullConsumer(options.nameserver, options.group, expression=expression, **link) as consumer:
            start, end = self._bounds(consumer)
            self._begun = True
            if start < end:
                with Pulls(consumer.address(queue), options.group, queue, self._subscription, **link) as pulls:
                    for body in pulls.read(start, end):
                        self._take(consumer, body, end)
                        yield
                    if self._at < end <= pulls.reached and self._may_have_holes(consumer):
                        self._at = end
            if options.fail_on_data_loss and options.whole and start < end and self._at != end:
                raise DataLost(f"{queue}: the messages end at offset {self._at}, {end} was promised")
            self._report.lacks(self._at if options.whole else max(self._at, end), self._end)
            self._at = self._end

    def _bounds(self, consumer: BlockingPullConsumer) -> tuple[int, int]:
        low, high = consumer.min_offset(self._queue), consumer.max_offset(self._queue)
        if self._at < low and self._may_have_holes(consumer):
            low = self._at  # what the log has lost, the compacted queue still has
        start, end = max(self._at, low), min(self._end, high)
        if self._options.fail_on_data_loss and (start > self._at or end < self._end):
            raise DataLost(
                f"{self._queue}: offsets {self._first} to {self._end - 1} were to be read, the broker has {low} to"
                f" {high - 1}; set failOnDataLoss=false to go on with what is there"
            )
        self._report.lacks(self._at, min(start, self._end))
        self._at = start
        return start, end

    def _take(self, consumer: BlockingPullConsumer, body: Buffer, end: int) -> None:
        """Make rows of what a pull brought; none, when that fails."""
        offsets = self.rows.add(body, self._at, end)
        if not offsets:
            return
        try:
            holes = self._options.whole and self._has_lost(consumer, offsets)
            if self._repeats is not None:
                self._drop_repeats(consumer, self._repeats)
        except BaseException:
            self.rows.drop()
            raise
        if holes:
            for before, offset in pairwise((self._at - 1, *offsets)):
                self._report.lacks(before + 1, offset)
        self._at = offsets[-1] + 1

    def _has_lost(self, consumer: BlockingPullConsumer, offsets: Sequence[int]) -> bool:
        """Whether some are missing that no compaction took. DataLost when that is not allowed."""
        if offsets == list(range(self._at, self._at + len(offsets))) or self._may_have_holes(consumer):
            return False
        if self._options.fail_on_data_loss:
            expected = next(e for e, offset in enumerate(offsets, self._at) if e != offset)
            found = offsets[expected - self._at]
            raise DataLost(f"{self._queue}: offset {found} came where {expected} was expected")
        return True

    def _may_have_holes(self, consumer: BlockingPullConsumer) -> bool:
        if self._compacted is None:
            self._compacted = is_compacted(consumer, self._queue)
        return self._compacted

    def _drop_repeats(self, consumer: BlockingPullConsumer, repeats: Deduplicator) -> None:
        cut = self.rows.runs()
        for run in cut:
            back = repeats.look_back(run)
            if back is not None:
                for earlier in consumer.read(self._queue, *back):
                    repeats.learn(runs(placed(earlier)))
                repeats.learnt(back[0])
        again = [offset for run in cut for offset in repeats.repeated(run, self.rows.sent_on)]
        if again:
            self.rows.drop(set(again))
