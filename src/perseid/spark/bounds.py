"""The bounds of a read: asks the brokers for queues and for their ends. Runs where Spark plans, not in its tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from perseid.base.errors import ConfigError
from perseid.client.blocking import BlockingPullConsumer
from perseid.client.errors import ClientError, NoRoute, ServerRefused
from perseid.client.model import MessageQueue
from perseid.spark import plan
from perseid.spark.options import EARLIEST, LATEST, QueueOffsets, SourceOptions, nearest
from perseid.spark.plan import DataLost
from perseid.spark.pushdown import Pushed
from perseid.spark.retrying import NO_ROUTE_MS, PAUSE_FIRST_MS, PAUSE_MAX_MS, transient
from perseid.spark.topics import like, matching
from perseid.wire.mapping import MOCK_PREFIX

log = logging.getLogger("perseid.spark")
T = TypeVar("T")


class Patience:
    """Between attempts: how long to wait, and until when. `progress()` begins anew."""

    def __init__(self, deadline_ms: int) -> None:
        self._deadline_ms = deadline_ms
        self.progress()

    def progress(self) -> None:
        """It went well: what fails now, fails for the first time."""
        self._began = time.monotonic()
        self._pause_ms = PAUSE_FIRST_MS

    def wait(self, error: Exception, *, most_ms: int | None = None) -> None:
        """Wait before another attempt; raises `error` when it is too late for one."""
        limit_ms = self._deadline_ms if most_ms is None else min(most_ms, self._deadline_ms)
        if (time.monotonic() - self._began) * 1000 + self._pause_ms >= limit_ms:
            raise error
        log.info("again in %d ms: %s", self._pause_ms, error)
        time.sleep(self._pause_ms / 1000)
        self._pause_ms = min(self._pause_ms * 2, PAUSE_MAX_MS)


def is_compacted(consumer: BlockingPullConsumer, queue: MessageQueue) -> bool:
    """Whether holes in a queue are what compaction leaves, and no lost messages. A broker that does not tell (older
    ones, and where it is forbidden) is taken to have none of that."""
    try:
        return consumer.is_compacted(queue)
    except ServerRefused as error:
        if transient(error):
            raise
        log.info("%s: its broker does not tell whether it is compacted: %s", queue, error)
        return False


class Bounds:
    """`with Bounds(options) as bounds: …`; errors that may pass are borne for deadlineMs.

    `begun`: the query has read these topics before, so that one that is not there is a broker that is away, and waited
    for as long; else it is most likely a wrong name.
    """

    def __init__(self, options: SourceOptions, *, begun: bool = False) -> None:
        self._options = options
        self._begun = begun
        self._consumer = self._new()
        self._found: list[MessageQueue] | None = None
        self._compacted: dict[tuple[str, str], bool] = {}
        """By topic and broker name, as far as it was asked for."""

    def _new(self) -> BlockingPullConsumer:
        told = self._options
        return BlockingPullConsumer(told.nameserver, told.group, expression=told.expression, **told.link())

    def __enter__(self) -> Bounds:
        self._consumer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._consumer.stop()

    # ---- queues ----

    def queues(self) -> list[MessageQueue]:
        """All queues of the chosen topics; ConfigError when `assign` names one that is not there."""
        if self._found is None:
            self._found = self._queues()
        return self._found

    def _queues(self) -> list[MessageQueue]:
        options = self._options
        topics = options.topics or tuple(options.assign or ()) or self._matching(options.pattern or "")
        found = [queue for topic in topics for queue in self._queues_of(topic)]
        if options.assign is None:
            return found
        wanted = {
            MessageQueue(topic, broker, queue_id)
            for topic, brokers in options.assign.items()
            for broker, ids in brokers.items()
            for queue_id in ids
        }
        missing = wanted - set(found)
        if missing and options.fail_on_data_loss:
            raise ConfigError(f"assign: no such queues: {', '.join(sorted(map(str, missing)))}{_known(found)}")
        return sorted(wanted - missing)

    def _queues_of(self, topic: str) -> list[MessageQueue]:
        try:
            queues = self._ask(lambda consumer: consumer.queues(topic))
            if any(queue.broker_name.startswith(MOCK_PREFIX) for queue in queues):
                raise ConfigError(f"subscribe: {topic} is a static topic: its logical queues can't be read by Spark")
            return queues
        except NoRoute as error:
            if self._begun and not self._options.fail_on_data_loss:
                log.warning("%s; it is left out, as failOnDataLoss=false allows", error)
                return []
            if self._begun:
                raise DataLost(
                    f"topic {topic} is gone: it was deleted, or all of its brokers are away; set failOnDataLoss=false"
                    f" to go on without it ({error})"
                ) from error
            close = like(self._options.nameserver, topic, self._options.link())
            raise ConfigError(f"subscribe: {error}{close}") from error

    def _matching(self, pattern: str) -> tuple[str, ...]:
        return tuple(self._ask(lambda _: matching(self._options.nameserver, pattern, self._options.link())))

    # ---- offsets ----

    def starting(self) -> plan.Position:
        """Where a read starts in each queue, as the options say."""
        options = self._options
        return self._position("starting", options.starting, options.starting_timestamp_ms, EARLIEST)

    def ending(self) -> plan.Position:
        """Where a batch read ends in each queue."""
        options = self._options
        return self._position("ending", options.ending, options.ending_timestamp_ms, LATEST)

    def latest(self) -> plan.Position:
        """Where each queue ends now."""
        return {plan.name_of(queue): self._end(queue) for queue in self.queues()}

    def earliest(self) -> plan.Position:
        """Where each queue begins now."""
        return {
            plan.name_of(queue): self._begin(queue)
            for queue in self.queues()
        }

    def _begin(self, queue: MessageQueue) -> int:
        """The first offset that a read can begin at. A compacted queue has messages that the log has lost."""
        low = self._ask(lambda consumer: consumer.min_offset(queue))
        return 0 if low and self._is_compacted(queue) else low

    def _is_compacted(self, queue: MessageQueue) -> bool:
        key = queue.topic, queue.broker_name
        if key not in self._compacted:
            self._compacted[key] = self._ask(lambda consumer: is_compacted(consumer, queue))
        return self._compacted[key]

    def _since(self, queue: MessageQueue, at_ms: int) -> int:
        """The first offset stored at or after a time, or before it: where the log has nothing older, a compacted queue
        may have, and it can't be searched by time."""
        found = self._ask(lambda consumer: consumer.search_offset(queue, at_ms))
        if found and found <= self._ask(lambda consumer: consumer.min_offset(queue)) and self._is_compacted(queue):
            return 0
        return found

    def _end(self, queue: MessageQueue) -> int:
        return self._ask(lambda consumer: consumer.max_offset(queue))

    def _position(
        self, side: str, offsets: int | QueueOffsets, times: int | QueueOffsets | None, default: int
    ) -> plan.Position:
        for name, given in ((f"{side}Offsets", offsets), (f"{side}OffsetsByTimestamp", times)):
            if isinstance(given, Mapping):
                self._check_named(name, given)
        return {plan.name_of(queue): self._offset(side, queue, offsets, times, default) for queue in self.queues()}

    def _check_named(self, option: str, given: QueueOffsets) -> None:
        known = {f"{queue.topic}/{queue.broker_name}:{queue.queue_id}" for queue in self.queues()}
        for topic, queues in given.items():
            for queue in queues:
                name = f"{topic}/{queue}"
                if name not in known and self._options.fail_on_data_loss:
                    raise ConfigError(f"{option}: this read has no queue {name}{nearest(name, known)}")

    def _offset(
        self,
        side: str,
        queue: MessageQueue,
        offsets: int | QueueOffsets,
        times: int | QueueOffsets | None,
        default: int,
    ) -> int:
        key = f"{queue.broker_name}:{queue.queue_id}"
        if times is not None:
            at_ms = times if isinstance(times, int) else times.get(queue.topic, {}).get(key)
            if at_ms is not None and side == "starting":
                return self._since(queue, at_ms)
            if at_ms is not None:
                return self._ask(lambda consumer: consumer.search_offset(queue, at_ms))
            wanted = default
        else:
            wanted = offsets if isinstance(offsets, int) else offsets.get(queue.topic, {}).get(key, default)
        if wanted == EARLIEST:
            return self._begin(queue)
        highest = self._end(queue)
        if wanted == LATEST:
            return highest
        lowest = self._begin(queue)
        if not lowest <= wanted <= highest and self._options.fail_on_data_loss:
            raise DataLost(
                f"{side}Offsets: {queue} has offsets {lowest} to {highest}, {wanted} is none of them; set"
                " failOnDataLoss=false to go on with what is there"
            )
        return min(max(wanted, lowest), highest)

    def narrowed(self, parts: list[plan.Range], pushed: Pushed) -> list[plan.Range]:
        """Ranges without the rows that the query does not want."""
        return [part for part in (self._narrowed(part, pushed) for part in parts) if part is not None]

    def _narrowed(self, part: plan.Range, pushed: Pushed) -> plan.Range | None:
        queue, start, end = part.queue, part.start, part.end
        if not pushed.wants_queue(queue):
            return None
        low, high = pushed.offsets
        start, end = max(start, low or 0), end if high is None else min(end, high + 1)
        since_ms, until_ms = pushed.times_ms
        if since_ms is not None and start < end:
            start = max(start, self._since(queue, max(0, since_ms)))
        if until_ms is not None and start < end:
            end = min(end, self._ask(lambda consumer: consumer.search_offset(queue, max(0, until_ms))))
        return plan.Range(queue, start, end) if start < end else None

    # ---- other ----

    def check_sql(self) -> None:
        """Let the brokers read the SQL expression; ConfigError with the answer of one that does not take it."""
        if self._options.sql is None:
            return
        for topic in {queue.topic for queue in self.queues()}:
            try:
                self._consumer.check_expression(topic)
            except ClientError as error:
                if not isinstance(error.__cause__, ServerRefused):
                    raise
                raise ConfigError(
                    f"sql={self._options.sql!r}: {error}. Java's brokers need enablePropertyFilter=true for SQL;"
                    " Perseid's filter by tags only: use the option tags, or .where(…)"
                ) from error

    def commit(self, position: plan.Position) -> None:
        """Commit offsets for the group, for displays of its lag. Best effort: a failure is logged."""
        for name, offset in position.items():
            queue = plan.queue_of(name)
            try:
                self._consumer.commit(queue, offset)
            except ClientError as error:
                log.warning("offset %d of %s is not committed for %s: %s", offset, queue, self._options.group, error)

    def _ask(self, ask: Callable[[BlockingPullConsumer], T]) -> T:
        patience = Patience(self._options.deadline_ms)
        while True:
            try:
                return ask(self._consumer)
            except ClientError as error:
                if not transient(error):
                    raise
                impatient = isinstance(error, NoRoute) and not self._begun
                patience.wait(error, most_ms=NO_ROUTE_MS if impatient else None)
            self._consumer.stop()  # a new one asks for routes anew
            self._consumer = self._new().start()


def stored_ms(options: SourceOptions, ends: Mapping[str, int]) -> dict[str, int]:
    """When the message before each of these offsets was stored, where the broker still has it. Best effort: what can't
    be had is left out, and not compared later."""
    found: dict[str, int] = {}
    with BlockingPullConsumer(options.nameserver, options.group, **options.link()) as consumer:
        for name, offset in ends.items():
            kept = _first_kept(consumer, name, offset - 1) if offset else None
            if kept is not None and kept[0] == offset - 1:
                found[name] = kept[1]
    return found


def first_kept(options: SourceOptions, name: str, offset: int) -> tuple[int, int] | None:
    """The first message from an offset on that a broker has: its offset, and when it was stored. Best effort: None when
    it can't be had. In a compacted topic it may be a later one."""
    with BlockingPullConsumer(options.nameserver, options.group, **options.link()) as consumer:
        return _first_kept(consumer, name, offset)


def _first_kept(consumer: BlockingPullConsumer, name: str, offset: int) -> tuple[int, int] | None:
    try:
        messages = consumer.pull(plan.queue_of(name), offset, 1).messages
    except ClientError as error:
        log.info("%s: nobody tells when offset %d was stored: %s", name, offset, error)
        return None
    return (messages[0].queue_offset, messages[0].store_timestamp) if messages else None


def _known(queues: list[MessageQueue]) -> str:
    return f"; there are {', '.join(map(str, queues[:60]))}" if queues else ""
