"""Latencies and failures, from the traces that clients write (`perseid.wire.trace` has their format).

    send        from the call to the broker's answer: Pub.cost, by the topic and the sending client
    end to end  from the send to the first delivery: SubBefore.time - Pub.time of one message, by the topic and the
                consuming client. Two clocks are compared: a negative difference is counted as such
    consume     the listener's time for one message: SubAfter.cost, by the topic and the consuming client

A consume trace names no topic: the job takes it from the send trace of the message, if there is one. A client is the
host that sent the trace. Percentiles are exact, of all values and not of samples (`percentile`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from perseid.base.errors import RemoteProtocolError
from perseid.spark.jobs.inputs import Input, Steps, chosen
from perseid.spark.report import Page, ms_text, time_axis
from perseid.wire import trace as wire
from perseid.wire.names import TRACE_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SEND, END_TO_END, CONSUME = "send", "end to end", "consume"
KINDS = (SEND, END_TO_END, CONSUME)
QUANTILES = (0.5, 0.9, 0.99, 0.999)
UNKNOWN = "(not traced)"
MOST_ROWS = 10_000
"""Of each table."""
BUCKETS = 60
CURVE = (*(number / 100 for number in range(1, 100)), 0.995, 0.999, 1.0)
DRAWN = 6
STEPS = 4

_SCHEMA = (
    "kind string, time bigint, `group` string, topic string, msgId string, tags string, cost bigint, ok boolean, "
    "requestId string, retries int, code string, client string, wrong string"
)


@dataclass(frozen=True, slots=True)
class Latency:
    """One kind of latency, for one topic and client, in milliseconds."""

    kind: str
    """send, end to end or consume."""
    topic: str
    """The topic."""
    client: str
    """The producer or consumer."""
    count: int
    """The number of measurements."""
    p50: float
    """The median."""
    p90: float
    """The 90th percentile."""
    p99: float
    """The 99th percentile."""
    p999: float
    """The 99.9th percentile."""
    most: float
    """The longest."""
    failures: int
    """Failed sends or deliveries; 0 for end to end."""
    negative: int
    """For end to end: measurements at which the consumer's clock was behind the sender's."""


@dataclass(frozen=True, slots=True)
class Failures:
    """Sends or deliveries of one group and client that failed in the same way."""

    kind: str
    """send or consume."""
    topic: str
    """The topic."""
    group: str
    """The producer or consumer group."""
    client: str
    """The client in it."""
    how: str
    """How they failed, as the trace says."""
    count: int
    """Their number."""


@dataclass(frozen=True, slots=True)
class Traced:
    """The result of `trace`."""

    where: str
    """The name servers or folders that were read, as text."""
    traces: int
    """The number of traces that were read."""
    kinds: dict[str, int]
    """Kind → number of traces."""
    undecodable: int
    """Messages of the topic that are no traces."""
    why: str
    """Why one of them is none."""
    latencies: tuple[Latency, ...]
    """By kind, topic and client."""
    failures: tuple[Failures, ...]
    """Sends and deliveries that failed."""
    bucket_s: int
    """The length of a bucket of `over_time`, in seconds."""
    over_time: tuple[tuple[str, int, float, float], ...]
    """Kind, seconds since 1970, median and 99th percentile of that bucket."""
    curves: tuple[tuple[str, str, tuple[float, ...]], ...]
    """Kind, topic, latency at each quantile of `CURVE`."""
    untraced: int
    """Deliveries of messages whose send was not traced."""

    def told(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return asdict(self)


def trace(
    spark: SparkSession,
    *,
    nameserver: str | None = None,
    folders: Sequence[str] = (),
    topic: str = TRACE_TOPIC,
    on_progress: Steps | None = None,
) -> Traced:
    """Read a trace topic. `ConfigError` if there is none."""
    source = chosen(nameserver, [topic], folders)

    def step(number: int) -> None:
        if on_progress is not None:
            on_progress(number, STEPS)

    step(0)
    traces = _traces(spark, source).persist()
    try:
        kinds, undecodable, why = _kinds(traces)  # the one pass
        step(1)
        values = _values(traces).persist()
        try:
            latencies, span = _latencies(values)
            step(2)
            failures = _failures(values)
            bucket_s, over_time = _over_time(values, span)
            step(3)
            curves = _curves(values, latencies)
        finally:
            values.unpersist()
    finally:
        traces.unpersist()
    step(STEPS)
    untraced = sum(one.count for one in latencies if (one.kind, one.topic) == (CONSUME, UNKNOWN))
    return Traced(
        source.said, sum(kinds.values()), kinds, undecodable, why, latencies, failures, bucket_s, over_time, curves,
        untraced,
    )  # fmt: skip


def _kinds(traces: DataFrame) -> tuple[dict[str, int], int, str]:
    """Traces of each kind; messages that hold none, and why one of them does not."""
    from pyspark.sql import functions as F

    rows = traces.groupBy("kind").agg(F.count("*").alias("n"), F.max("wrong").alias("wrong")).collect()
    bad = next((row for row in rows if row.kind is None), None)
    kinds = {row.kind: row.n for row in rows if row.kind is not None}
    return dict(sorted(kinds.items())), 0 if bad is None else bad.n, "" if bad is None else bad.wrong


def _traces(spark: SparkSession, source: Input) -> DataFrame:
    """A row for each trace, and one with `wrong` for each message that holds none."""
    from pyspark.sql import functions as F

    rows = source.frame(spark, ["topic", "bornHost", "value"]).where("topic is not null")
    return rows.select(F.col("value"), F.regexp_replace("bornHost", r":\d+$", "").alias("client")).mapInArrow(
        _decoder(), _SCHEMA
    )


def _decoder() -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Bodies in, traces out."""

    def decode(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        text, long = pa.string(), pa.int64()
        kinds = (text, long, text, text, text, text, long, pa.bool_(), text, pa.int32(), text, text, text)
        for batch in batches:
            rows: list[tuple[Any, ...]] = []
            for body, client in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                rows += rows_of(body or b"", client)
            columns = zip(*rows, strict=True) if rows else [[] for _ in kinds]
            arrays = [pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=NAMES)

    return decode


NAMES = [
    "kind", "time", "group", "topic", "msgId", "tags", "cost", "ok", "requestId", "retries", "code", "client", "wrong",
]  # fmt: skip


def rows_of(body: bytes, client: str) -> list[tuple[Any, ...]]:
    """The rows, in the order of `NAMES`, of one message of a trace topic."""
    try:
        found = wire.decode(body)
    except RemoteProtocolError as error:
        return [(*(None,) * 11, client, str(error))]
    return [
        (t.kind, t.time_ms, t.group, t.topic, t.msg_id, t.tags, t.cost_ms, t.ok, t.request_id, t.retries, t.code,
         client, None)
        for t in found
    ]  # fmt: skip


def _values(traces: DataFrame) -> DataFrame:
    """A row for each latency: kind, topic, group, client, when, milliseconds, ok, how."""
    from pyspark.sql import functions as F

    pubs = traces.where(f"kind = '{wire.PUB}'")
    sends = pubs.select(
        F.lit(SEND).alias("kind"), "topic", "group", "client", "time", F.col("cost").alias("ms"), "ok",
        F.when(~F.col("ok"), "not SEND_OK").alias("how"),
    )  # fmt: skip
    # One send may be told more than once (a retry of the trace's own send): its first time counts.
    sent = pubs.where("msgId is not null").groupBy("msgId").agg(
        F.min("time").alias("sentAt"), F.min_by("topic", "time").alias("sentTo")
    )
    handed = _handed(traces).join(sent, "msgId", "left")
    first = F.when(F.expr("retries = 0"), F.col("time") - F.col("sentAt"))
    nothing = F.lit(None).cast("string")
    both = F.array(
        _value(END_TO_END, first, F.lit(True), nothing),
        _value(CONSUME, F.col("cost"), F.col("ok"), F.when(~F.col("ok"), F.coalesce("code", F.lit("failed")))),
    )
    taken = handed.select(
        F.explode(both).alias("value"), F.coalesce("sentTo", F.lit(UNKNOWN)).alias("topic"),
        F.coalesce("group", F.lit("")).alias("group"), "client", "time",
    ).select("value.*", "topic", "group", "client", "time")  # fmt: skip
    return sends.unionByName(taken.where("ms is not null"))


def _value(kind: str, ms: Column, ok: Column, how: Column) -> Column:
    from pyspark.sql import functions as F

    return F.struct(F.lit(kind).alias("kind"), ms.alias("ms"), ok.alias("ok"), how.alias("how"))


def _handed(traces: DataFrame) -> DataFrame:
    """A row for each time that a message was given to a listener: of what was told before it and after it."""
    from pyspark.sql import functions as F

    before, after = F.col("kind") == wire.BEFORE, F.col("kind") == wire.AFTER
    return traces.where(before | after).groupBy("requestId", "msgId").agg(
        F.min(F.when(before, F.col("time"))).alias("time"), F.min(F.when(before, F.col("retries"))).alias("retries"),
        F.max("group").alias("group"), F.max("client").alias("client"),
        F.max(F.when(after, F.col("cost"))).alias("cost"), F.min(F.when(after, F.col("ok"))).alias("ok"),
        F.max(F.when(after, F.col("code"))).alias("code"),
    )  # fmt: skip


def _latencies(values: DataFrame) -> tuple[tuple[Latency, ...], tuple[int, int] | None]:
    """All of them, and the first and last time."""
    from pyspark.sql import functions as F

    rows = values.groupBy("kind", "topic", "client").agg(
        F.count("ms").alias("n"), F.percentile("ms", list(QUANTILES)).alias("q"), F.max("ms").alias("most"),
        F.count_if(~F.col("ok")).alias("failures"), F.count_if(F.col("ms") < 0).alias("negative"),
        F.min("time").alias("low"), F.max("time").alias("high"),
    ).orderBy("kind", "topic", "client").limit(MOST_ROWS).collect()  # fmt: skip
    found = []
    for r in rows:
        p50, p90, p99, p999 = (round(float(q), 3) for q in r.q or [0] * len(QUANTILES))
        found.append(Latency(
            r.kind, r.topic, r.client, r.n, p50, p90, p99, p999, float(r.most or 0), r.failures, r.negative
        ))  # fmt: skip
    times = [(row.low, row.high) for row in rows if row.low is not None]
    span = (min(low for low, _ in times), max(high for _, high in times)) if times else None
    return tuple(sorted(found, key=lambda one: (KINDS.index(one.kind), one.topic, one.client))), span


def _failures(values: DataFrame) -> tuple[Failures, ...]:
    from pyspark.sql import functions as F

    rows = values.where("how is not null").groupBy("kind", "topic", "group", "client", "how").count()
    rows = rows.orderBy(F.desc("count"), "kind", "topic", "group", "client").limit(MOST_ROWS)
    return tuple(
        Failures(r.kind, r.topic, r["group"], r.client, r.how, r["count"]) for r in rows.collect()
    )


def _over_time(
    values: DataFrame, span: tuple[int, int] | None
) -> tuple[int, tuple[tuple[str, int, float, float], ...]]:
    from pyspark.sql import functions as F

    if span is None:
        return 1, ()
    bucket_s = max(1, -(-(span[1] - span[0] + 1) // (1000 * BUCKETS)))
    start = (F.floor(F.col("time") / (1000 * bucket_s)) * bucket_s).alias("start")
    rows = values.where("time is not null").groupBy("kind", start).agg(F.percentile("ms", [0.5, 0.99]).alias("q"))
    return bucket_s, tuple(sorted((r.kind, r.start, float(r.q[0]), float(r.q[1])) for r in rows.collect()))


def _curves(values: DataFrame, latencies: Sequence[Latency]) -> tuple[tuple[str, str, tuple[float, ...]], ...]:
    """The distributions, for the topics with most values of each kind."""
    from pyspark.sql import functions as F

    counts: dict[tuple[str, str], int] = {}
    for one in latencies:
        counts[one.kind, one.topic] = counts.get((one.kind, one.topic), 0) + one.count
    largest = [key for kind in KINDS for key in sorted(
        (k for k in counts if k[0] == kind), key=lambda k: (-counts[k], k[1]))[:DRAWN]]  # fmt: skip
    rows = values.groupBy("kind", "topic").agg(F.percentile("ms", list(CURVE)).alias("q"))
    found = {(r.kind, r.topic): tuple(map(float, r.q)) for r in rows.collect() if r.q is not None}
    return tuple((kind, topic, found[kind, topic]) for kind, topic in largest)


# ---- for people ----


def summary(found: Traced) -> str:
    """A summary in one sentence."""
    failed = sum(one.failures for one in found.latencies)
    text = f"{found.traces:,} traces ({found.where}): " + ", ".join(
        f"{sum(one.count for one in found.latencies if one.kind == kind):,} {kind}" for kind in KINDS
    )
    text += f"; {failed:,} failures"
    if found.undecodable:
        text += f"; {found.undecodable:,} messages hold no traces ({found.why})"
    return text


def lines(found: Traced) -> list[str]:
    """The findings as lines of text."""
    said = [summary(found)]
    for one in found.latencies:
        said.append(
            f"  {one.kind:<10} {one.topic} {one.client}: {one.count:,}, p50 {one.p50:g} ms, p90 {one.p90:g} ms, "
            f"p99 {one.p99:g} ms, max {one.most:g} ms"
            + (f", {one.failures:,} failures" if one.failures else "")
            + (f", {one.negative:,} negative: the clocks differ" if one.negative else "")
        )
    said += [f"  failed: {f.count:,} {f.kind} {f.topic} {f.group} at {f.client}: {f.how}" for f in found.failures]
    return said


def page(found: Traced) -> Page:
    """The findings as an HTML page, for `--report`."""
    failed = sum(one.failures for one in found.latencies)
    made = Page("Message traces", summary(found) + ".", good=False if failed or found.undecodable else None)
    for kind in KINDS:
        own = [one for one in found.latencies if one.kind == kind]
        if not own:
            continue
        made.heading({SEND: "Sends", END_TO_END: "From send to hand-out", CONSUME: "Listeners"}[kind])
        made.table(
            ["topic", "client", "count", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms", "failures", "negative"],
            [[one.topic, one.client, one.count, one.p50, one.p90, one.p99, one.p999, one.most, one.failures,
              one.negative] for one in own],
        )  # fmt: skip
        made.picture(
            lambda figure, kind=kind: _draw(figure, found, kind),  # type: ignore[misc]
            f"Latency of {kind}: by quantile for each topic, and over time",
        )
    if found.failures:
        made.heading("Failures")
        made.table(
            ["kind", "topic", "group", "client", "how", "count"],
            [[f.kind, f.topic, f.group, f.client, f.how, f.count] for f in found.failures],
        )
    if found.untraced:
        made.text(f"{found.untraced:,} hand-outs are of messages whose send was not traced: their topic is not known.")
    return made


def _draw(figure: Any, found: Traced, kind: str) -> None:
    """Left the distribution of each topic, right the median and the 99th percentile over time."""
    from datetime import UTC, datetime

    curves, time = figure.subplots(1, 2)
    for name, topic, values in found.curves:
        if name == kind:
            curves.plot([max(0.1, value) for value in values], [100 * q for q in CURVE], label=topic)
    curves.set_xscale("log")
    curves.set_xlabel("milliseconds")
    curves.set_ylabel("% are quicker")
    curves.legend(fontsize=8)
    own = [(datetime.fromtimestamp(at, UTC), p50, p99) for name, at, p50, p99 in found.over_time if name == kind]
    if own:
        at, p50s, p99s = zip(*own, strict=True)
        time.plot(at, p50s, label="p50", marker=".", linewidth=1)
        time.plot(at, p99s, label="p99", marker=".", linewidth=1)
        time.set_ylabel("milliseconds")
        time.legend(fontsize=8)
        time_axis(time)
    time.set_title(f"each {ms_text(found.bucket_s * 1000)}")
