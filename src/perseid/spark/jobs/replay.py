"""An archive's rows back into a topic: at a rate, in order for each key, restartable.

    TABLE/_perseid/replays/NAME/plan.json   which rows are replayed, and how they are cut into batches
    TABLE/_perseid/replays/NAME/done        how many batches are stored

A batch is a range of offsets of each queue that was archived; the ranges follow the store times, so that queues stay
abreast. A place in a queue never changes what it holds, also when files are merged: so a batch has the same rows
whenever it is read. It goes through the sink `perseid` under the replay's id and its own number, sorted. A batch that
was cut short is sent again with the same stamps, and readers that look at them drop what came already (decision 13).

Order: the rows of one archived queue are sent by one task, in order of their offsets, and go to queues by the sharding
key that they had, or else all to one queue. With `order_by` the rows with one value of a column are, in order of their
store times.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from perseid.base.errors import ConfigError
from perseid.base.options import milliseconds
from perseid.client.blocking import BlockingAdmin
from perseid.client.errors import ClientError
from perseid.client.model import check_topic
from perseid.spark.jobs import failures
from perseid.spark.jobs.archive.folder import write_whole
from perseid.spark.jobs.archive.table import Archive
from perseid.spark.jobs.options import REPLAY_DEFAULTS, ReplayOptions
from perseid.spark.options import nearest
from perseid.wire.properties import SHARDING_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("perseid.spark")

BATCH_MESSAGES = 100_000
"""Rows of a batch at most, about: how much may be sent twice after a crash."""
RATE_S = 2
"""With a rate, a batch is what may be sent in so many seconds."""
MAX_BATCHES = 100_000
TASKS = 4
SOURCE = "_source"
"""The queue that a row was archived from."""
NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-%.")

Ranges = dict[str, tuple[int, int]]
"""`brokerName/queueId` → offsets [begin, end)."""


@dataclass(frozen=True, slots=True)
class Request:
    """Which rows are replayed, and where to: it must be the same when a replay goes on."""

    table_id: str
    """The archive's table."""
    topic: str
    """The topic that rows are sent to."""
    since_ms: int | None
    """Only rows that were stored at this time or later, in milliseconds since 1970."""
    until_ms: int | None
    """Only rows that were stored before this time."""
    order_by: str | None
    """The column whose values keep rows in order; None: queues stay in order."""


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """A replay that has begun."""

    query_id: str
    """The replay's name in the stamps of its messages."""
    request: Request
    """What is replayed."""
    batches: list[Ranges]
    """The ranges of queues that each batch sends."""
    rows: list[int]
    """How many rows each batch has."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The outcome of one run. `done` of `batches` are stored, with those of earlier runs."""

    rows: int
    """Messages that this run sent."""
    batches: int
    """Batches of the whole replay."""
    done: int
    """Batches that are stored, those of earlier runs too."""
    seconds: float
    """How long this run took."""


def replay(
    spark: SparkSession,
    *,
    table: str,
    nameserver: str,
    topic: str,
    options: ReplayOptions = REPLAY_DEFAULTS,
    on_start: Callable[[int], None] | None = None,
    on_batch: Callable[[int, int], None] | None = None,
) -> Replayed:
    """Send the rows of the archive at `table`, as it is when the replay begins, to `topic`; returns what this run sent.

    The rate is kept on the average of a batch (RATE_S seconds). A replay that is done is not sent again under the same
    name, which is the topic's if none is given. `on_start(rows)` is called with what there is to send,
    `on_batch(batch, rows)` after each batch.
    ConfigError: it can't be done as asked; TaskFailed: rows could not be sent. Readers that dedupe see each row once,
    however often this is killed.
    """
    check_topic(topic)
    rate = options.rate
    if rate is not None and rate < 1:
        raise ConfigError(f"rate={rate}: at least one message a second")
    archive = Archive(table)
    place = _place(archive, options.name or topic)
    since_ms, until_ms = (None if at is None else milliseconds(at) for at in (options.since, options.until))
    request = Request(archive.info.table_id, topic, since_ms, until_ms, options.order_by)
    _check(archive, request)
    _check_there(nameserver, topic)
    with archive.folder.locked(name=f"replay-{place.name}"), failures.told():
        place.mkdir(parents=True, exist_ok=True)
        plan = _plan(spark, archive, request, place, rate)
        done = _done(place)
        if on_start is not None:
            on_start(sum(plan.rows[done:]))
        return _Run(spark, archive, plan, place, nameserver, options.sink_options).all(done, rate, on_batch)


class _Run:
    """One run of a replay, from its first batch that is not done."""

    def __init__(
        self,
        spark: SparkSession,
        archive: Archive,
        plan: ReplayPlan,
        place: Path,
        nameserver: str,
        options: Mapping[str, str],
    ) -> None:
        self._plan = plan
        self._place = place
        self._options = {
            **options, "nameserver": nameserver, "topic": plan.request.topic, "queryId": plan.query_id,
            "partitioner": "column", "partitionColumn": SOURCE,
        }  # fmt: skip
        self._frame = to_send(_wanted(archive.frame(spark), plan.request), plan.request.order_by)

    def all(self, done: int, rate: int | None, on_batch: Callable[[int, int], None] | None) -> Replayed:
        began, sent = time.monotonic(), 0
        for number in range(done, len(self._plan.batches)):
            if rate is not None:
                time.sleep(max(0.0, began + sent / rate - time.monotonic()))
            self._send(number)
            write_whole(self._place / "done", str(number + 1).encode())
            sent += self._plan.rows[number]
            if on_batch is not None:
                on_batch(number, self._plan.rows[number])
        if rate is not None:
            time.sleep(max(0.0, began + sent / rate - time.monotonic()))
        count = len(self._plan.batches)
        return Replayed(sent, count, count, round(time.monotonic() - began, 3))

    def _send(self, number: int) -> None:
        writer = self._frame.where(_within(self._plan.batches[number])).write.format("perseid").mode("append")
        writer.options(**self._options).option("batchId", str(number)).save()


def to_send(rows: DataFrame, order_by: str | None) -> DataFrame:
    """Rows of an archive with the sink's columns, and those by which a task sorts them."""
    from pyspark.sql import functions as F

    source = F.concat_ws("/", "brokerName", "queueId")
    if order_by is None:
        tasks, key, own = source, F.col("properties")[SHARDING_KEY], ["brokerName", "queueId", "queueOffset"]
    else:
        key = F.col(order_by).cast("string")
        tasks, own = F.coalesce(key, source), ["storeTimestamp", "brokerName", "queueId", "queueOffset"]
    return (
        rows.withColumn("_tasks", tasks)
        .repartition(TASKS, "_tasks")
        .sortWithinPartitions(*own)
        .select("value", "tag", "keys", "properties", key.alias("orderingKey"), source.alias(SOURCE))
    )


# ---- inside ----


def _place(archive: Archive, name: str) -> Path:
    if not name or not set(name) <= NAME_CHARS or name.startswith("."):
        raise ConfigError(f"a replay's name has letters, digits, '_', '-', '.', '%': not {name!r}")
    return archive.folder.own / "replays" / name


def _check_there(nameserver: str, topic: str) -> None:
    """ConfigError where the topic does not exist; a name server that is away is left to the sink, which bears that."""
    try:
        with BlockingAdmin(nameserver) as admin:
            known = admin.topic_list()
    except ClientError as error:
        log.info("whether there is a topic %s is not known yet: %s", topic, error)
        return
    if topic not in known:
        raise ConfigError(f"{nameserver} knows no topic {topic!r}{nearest(topic, known)}")


def _check(archive: Archive, request: Request) -> None:
    if not archive.info.keep_value:
        raise ConfigError(f"{archive.folder.path} has no raw bodies (--drop-value): there is nothing to send again")
    if request.order_by is not None and request.order_by not in archive.shape.arrow().names:
        names = archive.shape.arrow().names
        raise ConfigError(
            f"order_by: {archive.folder.path} has no column {request.order_by!r}{nearest(request.order_by, names)}"
        )
    since, until = request.since_ms, request.until_ms
    if since is not None and until is not None and since >= until:
        raise ConfigError("the time range is empty: since has to come before until")


def _plan(spark: SparkSession, archive: Archive, request: Request, place: Path, rate: int | None) -> ReplayPlan:
    """The plan of a replay that goes on, or a new one, on disk."""
    path = place / "plan.json"
    if path.is_file():
        plan = msgspec.json.decode(path.read_bytes(), type=ReplayPlan)
        if plan.request != request:
            raise ConfigError(
                f"the replay {place.name} was begun with {plan.request}, not {request}: give this one another name"
            )
        return plan
    most = BATCH_MESSAGES if rate is None else max(1, min(BATCH_MESSAGES, rate * RATE_S))
    batches, rows = cut(_wanted(archive.frame(spark), request), most)
    plan = ReplayPlan(os.urandom(16).hex(), request, batches, rows)
    write_whole(path, msgspec.json.encode(plan))
    return plan


def _done(place: Path) -> int:
    path = place / "done"
    return int(path.read_text()) if path.is_file() else 0


def _wanted(rows: DataFrame, request: Request) -> DataFrame:
    from pyspark.sql import functions as F

    if request.since_ms is not None:
        rows = rows.where(F.col("storeTimestamp") >= F.timestamp_millis(F.lit(request.since_ms)))
    if request.until_ms is not None:
        rows = rows.where(F.col("storeTimestamp") < F.timestamp_millis(F.lit(request.until_ms)))
    return rows


def _within(ranges: Ranges) -> Any:
    """The rows of a batch."""
    from pyspark.sql import functions as F

    found = F.lit(False)
    for name, (begin, end) in ranges.items():
        broker, _, queue = name.rpartition("/")
        offset = F.col("queueOffset")
        found |= (F.col("brokerName") == broker) & (F.col("queueId") == int(queue)) & (offset >= begin) & (offset < end)
    return found


def cut(rows: DataFrame, most: int) -> tuple[list[Ranges], list[int]]:
    """Batches of about `most` rows: ranges of offsets of each queue, cut where the store times are the same; and how
    many rows each has."""
    from pyspark.sql import functions as F

    places = rows.select(
        F.concat_ws("/", "brokerName", "queueId").alias("queue"), "queueOffset",
        F.unix_millis("storeTimestamp").alias("at"),
    )  # fmt: skip
    total = places.count()
    pieces = -(-total // most)
    if pieces > MAX_BATCHES:
        raise ConfigError(
            f"{total} rows at that rate are {pieces} batches; {MAX_BATCHES} at most: raise the rate, or cut the time"
        )
    if total == 0:
        return [], []
    shares = [n / pieces for n in range(1, pieces)]
    cuts: list[int] = []
    if shares:
        accuracy = max(10_000, 10 * pieces)
        found = places.agg(F.percentile_approx("at", shares, accuracy)).collect()[0][0]
        cuts = sorted(set(found))
    counted = places.mapInArrow(_Slices(cuts), "queue string, slice int, first bigint, last bigint, rows bigint")
    slices = (
        counted.groupBy("queue", "slice")
        .agg(F.min("first").alias("first"), F.max("last").alias("last"), F.sum("rows").alias("rows"))
        .collect()
    )
    return _ranges(
        [(row["queue"], row["slice"], row["first"], row["last"], row["rows"]) for row in slices], len(cuts) + 1
    )


@dataclass(frozen=True)
class _Slices:
    """Counts rows of each queue between the times at which batches are cut."""

    cuts: list[int]

    def __call__(self, batches: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            at = batch.column("at").to_numpy(zero_copy_only=False)
            slices = np.searchsorted(np.array(self.cuts, dtype=np.int64), at, side="right").astype(np.int32)
            found = pa.Table.from_arrays(
                [batch.column("queue"), pa.array(slices), batch.column("queueOffset")],
                names=["queue", "slice", "offset"],
            )
            told = found.group_by(["queue", "slice"]).aggregate(
                [("offset", "min"), ("offset", "max"), ("offset", "count")]
            )
            named = told.select(["queue", "slice", "offset_min", "offset_max", "offset_count"])
            yield from named.rename_columns(["queue", "slice", "first", "last", "rows"]).to_batches()


def _ranges(found: Sequence[tuple[str, int, int, int, int]], slices: int) -> tuple[list[Ranges], list[int]]:
    """Ranges that follow each other in each queue: a slice begins at the lowest offset that is as late or later, so
    that a clock that was set back leaves nothing out and takes nothing twice."""
    batches: list[Ranges] = [{} for _ in range(slices)]
    for queue in sorted({row[0] for row in found}):
        own = {row[1]: row for row in found if row[0] == queue}
        edge = max(row[3] for row in own.values()) + 1
        lowest = edge
        for number in reversed(range(slices)):
            if number in own:
                lowest = min(lowest, own[number][2])
            if lowest < edge:
                batches[number][queue] = (lowest, edge)
            edge = lowest
    counts = [sum(row[4] for row in found if row[1] == number) for number in range(slices)]
    kept: list[Ranges] = []
    rows: list[int] = []
    left = 0
    for ranges, count in zip(batches, counts, strict=True):
        left += count
        if ranges:
            kept.append(ranges)
            rows.append(left)
            left = 0
    if left:
        rows[-1] += left
    return kept, rows
