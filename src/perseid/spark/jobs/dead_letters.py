"""Which messages became dead letters, and how: the topics %DLQ%GROUP, with messages that a group could not consume.

A dead letter is the message as it was sent (body, keys, tag, sender, birth time), with its origin in its properties.
Its reconsumeTimes is the number of failed deliveries. No client records why a listener failed; the job tells how a
message became a dead letter:

    used up     it was delivered as often as the limit allows (the message's own MAX_RECONSUME_TIMES, else the group's
                retryMaxTimes, 16 unless set): once, and again for each retry
    given up    less often: the listener refused it (delay level -1), or its client has a lower limit
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from perseid.base.errors import ConfigError
from perseid.spark.jobs.inputs import Input, Steps, chosen
from perseid.spark.report import Page, ms_text, time_axis
from perseid.wire.names import DLQ_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MAX_RETRIES = 16
"""A group's retryMaxTimes, unless it is set."""
SAMPLES = 20
MOST_ROWS = 1000
"""Of each table."""
SHOWN_BYTES = 120
"""Of a sample's body."""
BUCKETS = 60
"""Of the picture over time, at most."""
USED_UP, GIVEN_UP = "used up", "given up"
STEPS = 4
PARTS = ("origin", "queue", "tag", "host", "attempts")


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group's dead letters."""

    name: str
    """The consumer group."""
    records: int
    """Its dead letters."""
    used_up: int
    """Those that were delivered as often as the group allows."""
    given_up: int
    """Those that were delivered less often: refused, or the client has a lower limit."""
    attempts: float
    """The mean number of deliveries of a message."""
    lived_ms: float
    """The median time between the birth of a message and its becoming a dead letter, in milliseconds."""
    first_ms: int
    """The time at which the first one became a dead letter, in milliseconds since 1970."""
    last_ms: int
    """The time at which the last one did, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Part:
    """Dead letters of a group that have a value in common."""

    group: str
    """The consumer group."""
    value: str
    """The common value."""
    records: int
    """Their number."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One dead letter, as it is shown."""

    group: str
    """The consumer group."""
    origin: str
    """The topic that it was sent to."""
    queue: str
    """The broker or folder and the queue in which it was first stored, if that is known."""
    keys: str
    """Its keys."""
    tag: str
    """Its tag."""
    host: str
    """The client that sent it."""
    attempts: int
    """The number of its deliveries."""
    how: str
    """used up or given up."""
    lived_ms: int
    """The time between its birth and its becoming a dead letter, in milliseconds."""
    died_ms: int
    """The time at which it became a dead letter, in milliseconds since 1970."""
    msg_id: str
    """The id that its sender's client gave it."""
    origin_id: str
    """The broker's id of the first copy: its address and offset."""
    body: str
    """The beginning of its body."""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The result of `dead_letters`."""

    where: str
    """The name servers or folders that were read, as text."""
    groups: tuple[Group, ...]
    """The one with most first."""
    origins: tuple[Part, ...]
    """By the topic that they were sent to."""
    queues: tuple[Part, ...]
    """By topic and queue in which messages were first stored; only for folders that still have them."""
    tags: tuple[Part, ...]
    """By their tag."""
    hosts: tuple[Part, ...]
    """By the host that sent them, without ports."""
    attempts: tuple[Part, ...]
    """By the number of deliveries."""
    over_time: tuple[tuple[str, int, int], ...]
    """Group, seconds since 1970, number of new dead letters."""
    bucket_s: int
    """The length of a bucket of `over_time`, in seconds."""
    samples: tuple[Sample, ...]
    """The last ones."""

    @property
    def records(self) -> int:
        """The number of dead letters of all groups."""
        return sum(group.records for group in self.groups)

    def told(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {**asdict(self), "records": self.records}


def dead_letters(
    spark: SparkSession,
    *,
    nameserver: str | None = None,
    groups: Sequence[str] = (),
    folders: Sequence[str] = (),
    max_retries: int = MAX_RETRIES,
    samples: int = SAMPLES,
    on_progress: Steps | None = None,
) -> DeadLetters:
    """Examine the dead letters of some groups, or of all. `ConfigError` for a topic or folder that does not exist."""
    if max_retries < 0 or samples < 0:
        raise ConfigError(f"max_retries={max_retries}, samples={samples}: give numbers from 0 on")
    topics = tuple(group if group.startswith(DLQ_PREFIX) else DLQ_PREFIX + group for group in groups)
    source = chosen(nameserver, topics, folders, prefix=DLQ_PREFIX, may_be_none=True)
    if source.nameserver is not None and not source.topics:
        return DeadLetters(source.said, (), (), (), (), (), (), (), 1, ())

    def step(number: int) -> None:
        if on_progress is not None:
            on_progress(number, STEPS)

    step(0)
    rows = _with_queues(spark, source, _rows(spark, source, max_retries)).persist()
    try:
        found_groups = _groups(rows)  # the one pass
        step(1)
        parts = _parts(rows)
        step(2)
        bucket_s, over_time = _over_time(rows, found_groups)
        step(3)
        last = _samples(rows, samples)
    finally:
        rows.unpersist()
    step(STEPS)
    return DeadLetters(
        where=source.said, groups=found_groups, origins=parts["origin"], queues=parts["queue"], tags=parts["tag"],
        hosts=parts["host"], attempts=parts["attempts"], over_time=over_time, bucket_s=bucket_s, samples=last,
    )  # fmt: skip


def _rows(spark: SparkSession, source: Input, max_retries: int) -> DataFrame:
    """One row for each dead letter, with little of its body."""
    from pyspark.sql import functions as F

    names = ["topic", "source", "queueOffset", "storeTimestamp", "bornTimestamp", "keys", "tag", "bornHost",
             "reconsumeTimes", "properties", "value"]  # fmt: skip
    rows = source.frame(spark, names)
    if not source.topics:
        rows = rows.where(F.col("topic").startswith(DLQ_PREFIX))

    def property_(*keys: str) -> Column:
        return F.coalesce(*(F.col("properties")[key] for key in keys), F.lit(""))

    limit = F.coalesce(F.expr("try_cast(properties['MAX_RECONSUME_TIMES'] as int)"), F.lit(max_retries))
    return rows.where("topic is not null and storeTimestamp is not null").select(
        F.substring_index("topic", DLQ_PREFIX, -1).alias("group"),
        "source", "queueOffset",
        property_("DLQ_ORIGIN_TOPIC", "RETRY_TOPIC").alias("origin"),
        property_("ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID").alias("originId"),
        property_("UNIQ_KEY").alias("msgId"),
        F.coalesce("keys", F.lit("")).alias("keys"), F.coalesce("tag", F.lit("")).alias("tag"),
        F.regexp_replace("bornHost", r":\d+$", "").alias("host"),
        F.col("reconsumeTimes").alias("attempts"),
        F.when(F.col("reconsumeTimes") > limit, USED_UP).otherwise(GIVEN_UP).alias("how"),
        F.unix_millis("storeTimestamp").alias("died"),
        (F.unix_millis("storeTimestamp") - F.unix_millis("bornTimestamp")).alias("lived"),
        F.substring("value", 1, SHOWN_BYTES).alias("body"),
    )  # fmt: skip


def _with_queues(spark: SparkSession, source: Input, rows: DataFrame) -> DataFrame:
    """The same, with the queue where the message first stood: the broker's id of that copy names its offset, and a
    folder that still has it knows the queue."""
    from pyspark.sql import functions as F

    if not source.folders:
        return rows.withColumn("queue", F.lit("").cast("string"))
    first = Input(None, (), source.folders).frame(spark, ["topic", "source", "queueId", "physicalOffset"])
    first = first.where("topic is not null").select(
        F.col("topic").alias("origin"), "source", F.col("physicalOffset").alias("at"), "queueId"
    )
    place = F.expr("try_cast(conv(right(originId, 16), 16, 10) as bigint)")
    joined = rows.withColumn("at", F.when(F.length("originId") >= 32, place))
    joined = joined.join(first, ["origin", "source", "at"], "left")
    queue = F.when(F.col("queueId").isNotNull(), F.concat_ws(" ", "origin", F.col("queueId").cast("string")))
    return joined.withColumn("queue", F.coalesce(queue, F.lit(""))).drop("queueId", "at")


def _groups(rows: DataFrame) -> tuple[Group, ...]:
    from pyspark.sql import functions as F

    found = rows.groupBy("group").agg(
        F.count("*").alias("records"), F.count_if(F.col("how") == USED_UP).alias("used"),
        F.avg("attempts").alias("mean"), F.percentile("lived", 0.5).alias("lived"),
        F.min("died").alias("low"), F.max("died").alias("high"),
    ).collect()  # fmt: skip
    return tuple(sorted(
        (Group(r["group"], r.records, r.used, r.records - r.used, r["mean"], r.lived or 0.0, r.low, r.high)
         for r in found),
        key=lambda group: (-group.records, group.name),
    ))  # fmt: skip


def _parts(rows: DataFrame) -> dict[str, tuple[Part, ...]]:
    """By what dead letters may have in common: how many of each group have each value, those with most first."""
    from pyspark.sql import functions as F

    columns = [F.struct(F.lit(name).alias("name"), F.col(name).cast("string").alias("value")) for name in PARTS]
    pairs = rows.select("group", F.explode(F.array(*columns)).alias("pair")).select("group", "pair.*")
    counted = pairs.where("value <> ''").groupBy("group", "name", "value").count()
    found = counted.orderBy(F.desc("count"), "group", "value").limit(MOST_ROWS * len(PARTS)).collect()
    return {
        name: tuple(Part(row["group"], row.value, row["count"]) for row in found if row.name == name) for name in PARTS
    }


def _over_time(rows: DataFrame, groups: tuple[Group, ...]) -> tuple[int, tuple[tuple[str, int, int], ...]]:
    from pyspark.sql import functions as F

    if not groups:
        return 1, ()
    span_s = (max(g.last_ms for g in groups) - min(g.first_ms for g in groups)) // 1000 + 1
    bucket_s = -(-span_s // BUCKETS)
    start = (F.floor(F.col("died") / (1000 * bucket_s)) * bucket_s).alias("start")
    found = rows.groupBy("group", start).count().collect()
    return bucket_s, tuple(sorted((row["group"], row["start"], row["count"]) for row in found))


def _samples(rows: DataFrame, count: int) -> tuple[Sample, ...]:
    from pyspark.sql import functions as F

    found = rows.orderBy(F.desc("died"), "group", "queueOffset").limit(count).collect()
    return tuple(
        Sample(
            group=r["group"], origin=r.origin, queue=r.queue, keys=r["keys"], tag=r.tag, host=r.host,
            attempts=r.attempts, how=r.how, lived_ms=r.lived or 0, died_ms=r.died, msg_id=r.msgId,
            origin_id=r.originId, body=bytes(r.body or b"").decode("utf-8", "replace"),
        )
        for r in found
    )  # fmt: skip


# ---- for people ----


def summary(found: DeadLetters) -> str:
    """A summary in one sentence."""
    text = f"{found.records:,} dead letters of {len(found.groups):,} groups ({found.where})"
    used = sum(group.used_up for group in found.groups)
    return text + (f": {used:,} used up, {found.records - used:,} given up" if found.records else "")


def lines(found: DeadLetters) -> list[str]:
    """The findings as lines of text."""
    said = [summary(found)]
    for group in found.groups:
        said.append(
            f"  {group.name}: {group.records:,} ({group.used_up:,} used up, {group.given_up:,} given up), "
            f"{group.attempts:.1f} attempts, lived {ms_text(group.lived_ms)}"
        )
        for what, parts in (("from", found.origins), ("tag", found.tags), ("sent by", found.hosts)):
            own = [f"{part.value} {part.records:,}" for part in parts if part.group == group.name][:5]
            said += [f"    {what}: {', '.join(own)}"] if own else []
    return said


def page(found: DeadLetters) -> Page:
    """The findings as an HTML page, for `--report`."""
    made = Page("Dead letters", summary(found) + ".", good=not found.records)
    made.heading("Groups")
    made.table(
        ["group", "dead letters", "used up", "given up", "mean attempts", "median life", "first", "last"],
        [[g.name, g.records, g.used_up, g.given_up, g.attempts, ms_text(g.lived_ms), _time(g.first_ms),
          _time(g.last_ms)] for g in found.groups],
    )  # fmt: skip
    made.text(
        "used up: handed out as often as the group's limit allows. given up: less often; the listener refused the "
        "message (delay level -1), or its client has a lower limit."
    )
    if found.over_time:
        made.picture(lambda figure: _draw(figure, found), "Dead letters over time, by group")
    for title, parts in (
        ("Where they came from", found.origins), ("Queues they came from", found.queues), ("Tags", found.tags),
        ("Clients that sent them", found.hosts), ("How often they were handed out", found.attempts),
    ):  # fmt: skip
        if parts:
            made.heading(title)
            made.table(["group", "value", "dead letters"], [[p.group, p.value, p.records] for p in parts])
    if found.samples:
        made.heading("The last ones")
        made.table(
            ["died", "group", "origin", "keys", "tag", "sent by", "attempts", "life", "message", "body"],
            [[_time(s.died_ms), s.group, s.queue or s.origin, s.keys, s.tag, s.host, s.attempts, ms_text(s.lived_ms),
              s.msg_id, s.body] for s in found.samples],
        )  # fmt: skip
    return made


def _time(ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _draw(figure: Any, found: DeadLetters) -> None:
    """Stacked bars: how many died when."""
    from datetime import UTC, datetime

    axes = figure.subplots()
    starts = sorted({start for _, start, _ in found.over_time})
    lows = dict.fromkeys(starts, 0)
    width = found.bucket_s * 0.9 / 86_400
    for group in found.groups[:8]:
        own = {start: count for name, start, count in found.over_time if name == group.name}
        at = [datetime.fromtimestamp(start, UTC) for start in own]
        axes.bar(at, list(own.values()), width, bottom=[lows[s] for s in own], align="edge", label=group.name)
        for start, count in own.items():
            lows[start] += count
    axes.set_ylabel(f"dead letters in {ms_text(found.bucket_s * 1000)}")
    axes.legend(fontsize=8)
    time_axis(axes)
