"""How large topics are, how fast they grow, and how evenly their messages are spread over queues.

Sizes are those of bodies for topics that are read through brokers, and those of whole stored records for store folders.
Times are store times. The job makes one pass over the messages and groups them by queue and second; all results are
made from these groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from perseid.client.blocking import BlockingPullConsumer
from perseid.spark.jobs.inputs import Input, Steps, chosen
from perseid.spark.report import Page, bytes_text, ms_text, time_axis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKETS_S = (1, 2, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400)
MOST_BUCKETS = 120
"""Of the whole time, in the order of `BUCKETS_S`: the first that gives no more."""
MOST_QUEUES = 100_000
DRAWN_TOPICS = 7
"""The largest ones have a colour of their own; all others are one."""
STEPS = 3


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of a topic, at a broker or in a folder."""

    topic: str
    """Its topic."""
    source: str
    """The broker's name, or the folder."""
    queue_id: int
    """The id of the queue there."""
    records: int
    """Messages in it."""
    bytes: int
    """Bytes of their bodies; of a folder, of their records."""
    largest: int
    """Bytes of the largest message."""
    first_offset: int
    """The offset of the first one."""
    last_offset: int
    """The offset of the last one."""


@dataclass(frozen=True, slots=True)
class Topic:
    """The numbers of one topic."""

    name: str
    """Its name."""
    records: int
    """Messages in it."""
    bytes: int
    """Bytes of their bodies; of a folder, of their records."""
    largest: int
    """Bytes of the largest message."""
    queues: int
    """The number of queues. A folder knows only queues that have messages."""
    skew: float
    """Messages of the fullest queue, divided by the mean of all queues: 1 is even."""
    fullest: str
    """The queue with the most messages."""
    first_ms: int
    """The store time of the first message, in milliseconds since 1970."""
    last_ms: int
    """The store time of the last message, in milliseconds since 1970. Both are exact to the second."""
    per_second: float
    """Messages a second, from the first to the last."""
    peak_per_second: float
    """Messages a second in the part of the busiest bucket between the first and last message. Never below the mean."""


@dataclass(frozen=True, slots=True)
class Stats:
    """The result of `stats`."""

    where: str
    """The name servers or folders that were read, as text."""
    topics: tuple[Topic, ...]
    """The largest first."""
    queues: tuple[Queue, ...]
    """All queues of all topics."""
    bucket_s: int
    """The length of a bucket of `over_time`, in seconds."""
    over_time: tuple[tuple[str, int, int, int], ...]
    """Topic, beginning of the bucket (seconds since 1970), messages, bytes."""
    corrupt: int
    """Damaged rows of folders. Those without a topic are counted only here."""

    def told(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return asdict(self)


def stats(
    spark: SparkSession,
    *,
    nameserver: str | None = None,
    topics: Sequence[str] = (),
    folders: Sequence[str] = (),
    on_progress: Steps | None = None,
) -> Stats:
    """Measure topics (by default users' topics) or store folders. `ConfigError` for a topic or folder that does not
    exist."""
    source = chosen(nameserver, topics, folders)

    def step(number: int) -> None:
        if on_progress is not None:
            on_progress(number, STEPS)

    step(0)
    seconds = _seconds(source.frame(spark, ["topic", "source", "queueId", "queueOffset", "storeTimestamp", "bytes"]))
    seconds.persist()
    try:
        queues, times, corrupt = _queues(seconds)  # the one pass
        step(1)
        bucket_s, over_time = _over_time(seconds, times)
        step(2)
    finally:
        seconds.unpersist()
    found = _topics(queues, times, bucket_s, over_time, _queue_counts(source))
    step(STEPS)
    return Stats(source.said, found, tuple(queues), bucket_s, tuple(over_time), corrupt)


def _seconds(rows: DataFrame) -> DataFrame:
    """By queue and second of the store time."""
    from pyspark.sql import functions as F

    second = F.floor(F.unix_millis("storeTimestamp") / 1000).alias("second")
    return (
        rows.groupBy("topic", "source", "queueId", second)
        .agg(
            F.count("topic").alias("records"), F.sum("bytes").alias("bytes"), F.max("bytes").alias("largest"),
            F.min("queueOffset").alias("first"), F.max("queueOffset").alias("lastOffset"),
            F.count("corrupt").alias("corrupt"),
        )
    )  # fmt: skip


Times = dict[str, tuple[int, int]]
"""First and last second of topics."""


def _queues(seconds: DataFrame) -> tuple[list[Queue], Times, int]:
    """Queues, the times of their topics, and how many rows are corrupt."""
    from pyspark.sql import functions as F

    rows = (
        seconds.groupBy("topic", "source", "queueId")
        .agg(
            F.sum("records").alias("records"), F.sum("bytes").alias("bytes"), F.max("largest").alias("largest"),
            F.min("first").alias("first"), F.max("lastOffset").alias("last"), F.sum("corrupt").alias("corrupt"),
            F.min("second").alias("low"), F.max("second").alias("high"),
        )
        .orderBy("topic", "source", "queueId").limit(MOST_QUEUES).collect()
    )  # fmt: skip
    queues, times = [], Times()
    for r in rows:
        if r.topic is None:
            continue
        queues.append(
            Queue(r.topic, r.source, r.queueId, r.records, r.bytes or 0, r.largest or 0, r["first"], r["last"])
        )
        if r.low is not None:
            low, high = times.get(r.topic, (r.low, r.high))
            times[r.topic] = (min(low, r.low), max(high, r.high))
    return queues, times, sum(row.corrupt for row in rows)


def _over_time(seconds: DataFrame, times: Times) -> tuple[int, list[tuple[str, int, int, int]]]:
    """The length of a bucket, and what each topic has in each."""
    from pyspark.sql import functions as F

    if not times:
        return BUCKETS_S[0], []
    length = max(high for _, high in times.values()) - min(low for low, _ in times.values()) + 1
    bucket_s = next((s for s in BUCKETS_S if length <= s * MOST_BUCKETS), -(-length // MOST_BUCKETS))
    start = (F.floor(F.col("second") / bucket_s) * bucket_s).alias("start")
    rows = seconds.where("topic is not null and second is not null").groupBy("topic", start)
    rows = rows.agg(F.sum("records").alias("records"), F.sum("bytes").alias("bytes")).collect()
    return bucket_s, sorted((r.topic, r.start, r.records, r.bytes or 0) for r in rows)


def _queue_counts(source: Input) -> dict[str, int]:
    """How many queues topics have, from their routes; nothing is known of folders' topics."""
    if source.nameserver is None:
        return {}
    with BlockingPullConsumer(source.nameserver) as consumer:
        return {topic: len(consumer.queues(topic)) for topic in source.topics}


def _topics(
    queues: list[Queue],
    times: Times,
    bucket_s: int,
    over_time: list[tuple[str, int, int, int]],
    known: dict[str, int],
) -> tuple[Topic, ...]:
    by_topic: dict[str, list[Queue]] = {name: [] for name in known}
    for queue in queues:
        by_topic.setdefault(queue.topic, []).append(queue)
    buckets: dict[str, list[tuple[int, int]]] = {}
    for name, start, records, _ in over_time:
        buckets.setdefault(name, []).append((start, records))
    found = []
    for name, own in by_topic.items():
        records, count = sum(queue.records for queue in own), max(known.get(name, 0), len(own))
        first, last = times.get(name, (0, 0))
        mean, peak = rates(first, last, bucket_s, buckets.get(name, []))
        fullest = max(own, key=lambda queue: queue.records, default=None)
        found.append(Topic(
            name=name, records=records, bytes=sum(queue.bytes for queue in own),
            largest=max((queue.largest for queue in own), default=0), queues=count,
            skew=round(fullest.records * count / records, 3) if fullest is not None and records else 1.0,
            fullest="" if fullest is None else f"{fullest.source} {fullest.queue_id}",
            first_ms=first * 1000, last_ms=last * 1000,
            per_second=round(mean, 3), peak_per_second=round(peak, 3),
        ))  # fmt: skip
    return tuple(sorted(found, key=lambda topic: (-topic.bytes, topic.name)))


def rates(first: int, last: int, bucket_s: int, buckets: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Messages a second: the mean from the first second to the last, and that of the busiest bucket (each with its
    beginning and its messages). A bucket counts with those seconds of it alone, so the mean is never above the peak."""
    mean = sum(records for _, records in buckets) / (last - first + 1)
    peak = max(
        (records / (min(last, start + bucket_s - 1) - max(first, start) + 1) for start, records in buckets), default=0.0
    )
    return mean, max(mean, peak)  # where both are the same, fractions may differ in the last bit


# ---- for people ----


def summary(found: Stats) -> str:
    """A summary in one sentence."""
    records, size = sum(t.records for t in found.topics), sum(t.bytes for t in found.topics)
    text = f"{records:,} messages, {bytes_text(size)}, in {len(found.topics):,} topics ({found.where})"
    return text + (f"; {found.corrupt:,} corrupt rows" if found.corrupt else "")


def lines(found: Stats) -> list[str]:
    """The findings as lines of text."""
    return [summary(found)] + [
        f"  {t.name}: {t.records:,} messages, {bytes_text(t.bytes)}, {t.per_second:,.1f}/s (peak "
        f"{t.peak_per_second:,.1f}/s), {t.queues} queues, skew {t.skew:.2f}"
        for t in found.topics
    ]


def page(found: Stats) -> Page:
    """The findings as an HTML page, for `--report`."""
    made = Page("Topics: size, rate, skew", summary(found) + ".", good=False if found.corrupt else None)
    made.heading("Topics")
    made.table(
        ["topic", "messages", "size", "mean", "largest", "a second", "at its peak", "over", "queues", "skew",
         "fullest"],
        [
            [t.name, t.records, bytes_text(t.bytes), bytes_text(t.bytes / max(1, t.records)), bytes_text(t.largest),
             t.per_second, t.peak_per_second, ms_text(t.last_ms - t.first_ms), t.queues, f"{t.skew:.2f}", t.fullest]
            for t in found.topics
        ],
    )  # fmt: skip
    made.text("skew: messages of the fullest queue, divided by the mean of all queues of the topic; 1.00 is even.")
    if found.over_time:
        made.heading("Over time")
        made.picture(lambda figure: _draw_rate(figure, found), "Messages a second over time, by topic")
        made.heading("Queues")
        made.picture(lambda figure: _draw_queues(figure, found), "How full each queue is, by topic")
    made.table(
        ["topic", "broker or folder", "queue", "messages", "size", "first offset", "last offset"],
        [[q.topic, q.source, q.queue_id, q.records, bytes_text(q.bytes), q.first_offset, q.last_offset]
         for q in found.queues],
    )  # fmt: skip
    return made


def _names(found: Stats) -> list[str]:
    return [topic.name for topic in found.topics if topic.records][:DRAWN_TOPICS]


def _draw_rate(figure: Any, found: Stats) -> None:
    """Stacked steps: messages a second of the largest topics, and of all others."""
    from datetime import UTC, datetime

    axes = figure.subplots()
    starts = sorted({start for _, start, _, _ in found.over_time})
    grid = list(range(starts[0], starts[-1] + 2 * found.bucket_s, found.bucket_s))
    names = _names(found)
    rates = {name: [0.0] * len(grid) for name in [*names, "others"]}
    for name, start, records, _ in found.over_time:
        own = rates[name if name in names else "others"]
        own[(start - grid[0]) // found.bucket_s] += records / found.bucket_s
    shown = {name: values for name, values in rates.items() if any(values)}
    axes.stackplot(
        [datetime.fromtimestamp(at, UTC) for at in grid], *shown.values(), labels=list(shown), step="post", linewidth=0
    )
    axes.set_ylabel("messages a second")
    axes.set_xlabel(f"store time, UTC (each step {ms_text(found.bucket_s * 1000)})")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    time_axis(axes)


def _draw_queues(figure: Any, found: Stats) -> None:
    """A bar for each queue of the largest topics: messages, divided by the topic's mean."""
    axes = figure.subplots()
    place, ticks = 0.0, []
    for name in _names(found):
        own = [queue for queue in found.queues if queue.topic == name]
        (topic,) = (topic for topic in found.topics if topic.name == name)
        mean = topic.records / topic.queues
        axes.bar([place + number for number in range(len(own))], [queue.records / mean for queue in own], width=0.9)
        ticks.append((place + (len(own) - 1) / 2, name if len(name) < 20 else name[:18] + "…"))
        place += len(own) + 1
    axes.axhline(1, color="#7b8794", linewidth=1, linestyle="--")
    axes.set_xticks([at for at, _ in ticks], [name for _, name in ticks], rotation=20, ha="right")
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("messages, by the topic's mean")
