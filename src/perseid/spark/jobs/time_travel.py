"""A topic as of a store time, from its archive and its live log together: each place in a queue once.

The archive's last commit says which offsets [begin, end) of each queue it covers (`archive.folder.Plan`). What it
covers comes from it alone, all else from the log: what was stored before it began, as far as brokers have it, and
what came after it. So there is no overlap whatever happens meanwhile, and a gap is seen: where the log begins after
the archive's end, messages are gone, and that is an error, unless all that is missing is later than the time asked for.

The log is the brokers' (a name server is given), or store folders of them, with no broker running.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseid.base.errors import ConfigError
from perseid.base.options import Moment, milliseconds
from perseid.spark import plan as planning
from perseid.spark.bounds import Bounds
from perseid.spark.jobs import failures
from perseid.spark.jobs.archive.folder import Gap, Plan
from perseid.spark.jobs.archive.job import check_not_another
from perseid.spark.jobs.archive.rows import RowShape, Shaper, rows_of
from perseid.spark.jobs.archive.table import Archive
from perseid.spark.jobs.log_rows import LogFolder, without_repeats
from perseid.spark.options import ALIASES as SOURCE_ALIASES
from perseid.spark.options import ENDING, STARTING, SourceOptions, normal, parse, switch
from perseid.spark.options import NAMES as SOURCE_NAMES
from perseid.spark.plan import DataLost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_OFFSETS = 100_000
"""Offsets that one task reads at most."""


@dataclass(frozen=True, slots=True)
class Travelled:
    """A topic's state at a time. `archived` of its rows came from the archive, which has noted `gaps`."""

    topic: str
    """The topic."""
    as_of_ms: int
    """The time, in milliseconds since 1970."""
    rows: int
    """Messages that it held then."""
    archived: int
    """How many of them came from the archive."""
    out: str | None
    """Where they were written; None: nowhere."""
    gaps: tuple[Gap, ...] = ()
    """What the archive has noted as missing."""


def time_travel(
    spark: SparkSession,
    *,
    topic: str,
    as_of: Moment,
    nameserver: str | None = None,
    stores: Mapping[str, str] | None = None,
    table: str | None = None,
    source_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The messages of `topic` that were stored at `as_of` (a time, or milliseconds since 1970) or before.

    From the archive at `table`, if one is given, and the live log: of the brokers that `nameserver` knows, or in
    `stores` (broker name → store folder). Its columns are the archive's; with `stores` `_corrupt` too, where damage
    of the log is a row. `source_options` go to the source. ConfigError: it can't be done as asked; DataLost: messages
    between archive and log are gone (failOnDataLoss=false shows what is there).
    """
    return _parts(spark, topic, as_of, nameserver, stores, table, source_options).frame()


def travel(
    spark: SparkSession,
    *,
    topic: str,
    as_of: Moment,
    nameserver: str | None = None,
    stores: Mapping[str, str] | None = None,
    table: str | None = None,
    source_options: Mapping[str, str] | None = None,
    out: str | None = None,
) -> Travelled:
    """The same as a job: counts the rows, and writes them as Parquet into the folder `out`, which must be new."""
    from pyspark.sql import functions as F

    if out is not None and Path(out).exists():
        raise ConfigError(f"{out} is there already: name another folder")
    parts = _parts(spark, topic, as_of, nameserver, stores, table, source_options)
    with failures.told():
        archived = 0 if parts.archived is None else parts.archived.count()
        if out is None:
            rows = parts.frame().count()
        else:
            with _whole(Path(out)):
                parts.frame().write.parquet(out)
            rows = int(spark.read.parquet(out).agg(F.count("*")).collect()[0][0])
    return Travelled(topic, milliseconds(as_of), rows, archived, out, parts.gaps)


@contextmanager
def _whole(out: Path) -> Iterator[None]:
    """A folder that is new is written whole, or is not there: else the next run would refuse it."""
    try:
        yield
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise


@dataclass(frozen=True)
class _Parts:
    """The rows by where they come from."""

    archived: DataFrame | None
    live: DataFrame
    gaps: tuple[Gap, ...] = ()

    def frame(self) -> DataFrame:
        if self.archived is None:
            return self.live
        return self.archived.unionByName(self.live, allowMissingColumns=True)


def _parts(
    spark: SparkSession,
    topic: str,
    as_of: Moment,
    nameserver: str | None,
    stores: Mapping[str, str] | None,
    table: str | None,
    source_options: Mapping[str, str] | None,
) -> _Parts:
    from pyspark.sql import functions as F

    given = source_options or {}
    if (nameserver is None) == (not stores):
        raise ConfigError("say where the live log is: a name server, or store folders")
    archive = None if table is None else Archive(table)
    if archive is not None and archive.info.topic != topic:
        raise ConfigError(f"{table} holds topic {archive.info.topic}, not {topic}")
    at_ms = milliseconds(as_of)
    covered = Plan({}, {}) if archive is None else archive.plan
    shape = RowShape() if archive is None else archive.shape
    if nameserver is not None:
        _check_no_place(given)
        filters = {} if archive is None else archive.info.filter
        source = parse({"nameserver": nameserver, "subscribe": topic, **given, **filters}, streaming=True)
        live = _live(spark, source, shape, covered, at_ms)
    else:
        if archive is not None and {"tags", "sql"} & archive.info.filter.keys():
            raise ConfigError(f"{table} has a filter that only brokers apply: give a name server")
        live = _in_stores(spark, topic, stores or {}, archive, shape, covered, at_ms, given)
    until = F.timestamp_millis(F.lit(at_ms))
    kept = live.where(F.col("storeTimestamp").isNull() | (F.col("storeTimestamp") <= until))
    archived = None if archive is None else archive.frame(spark).where(F.col("storeTimestamp") <= until)
    return _Parts(archived, kept, covered.gaps)


def _check_no_place(options: Mapping[str, str]) -> None:
    """ConfigError when they say where to start or to end: the log says the first, the time asked for the other."""
    given = normal(options, SOURCE_NAMES, SOURCE_ALIASES, "the perseid source")
    told = [name for name in (*STARTING, *ENDING) if name.lower() in given]
    if told:
        raise ConfigError(f"time travel sets the option {told[0]} itself: it goes from the log's beginning to the time")


def _live(spark: SparkSession, source: SourceOptions, shape: RowShape, covered: Plan, at_ms: int) -> DataFrame:
    """Rows that the brokers have and the archive does not cover."""
    with Bounds(source, begun=bool(covered.end)) as bounds:
        bounds.check_sql()
        first, latest = bounds.earliest(), bounds.latest()
    if covered.end:
        check_not_another(source, covered, latest)
    parts = missing(first, latest, covered, at_ms, strict=source.fail_on_data_loss)
    offsets = sum(part.end - part.start for part in parts)
    return ranges_frame(spark, planning.split(parts, -(-offsets // TASK_OFFSETS)), source, shape)


def _in_stores(
    spark: SparkSession,
    topic: str,
    stores: Mapping[str, str],
    archive: Archive | None,
    shape: RowShape,
    covered: Plan,
    at_ms: int,
    options: Mapping[str, str],
) -> DataFrame:
    """Rows that the store folders have and the archive does not cover."""
    given = normal(options, ("dedupe", "failOnDataLoss"), {}, "time travel over store folders")
    strict = switch("failOnDataLoss", given.get("failondataloss"), True)
    has = "true" if archive is None else archive.info.filter.get("dedupe", "true")
    dedupe = switch("dedupe", given.get("dedupe", has), True)
    logs = {broker: LogFolder(spark, topic, broker, folder) for broker, folder in stores.items()}
    if covered.end:
        with failures.told():
            first, latest = {}, {}
            for log in logs.values():
                for name, (low, high) in log.bounds().items():
                    first[name], latest[name] = low, high
        missing(first, latest, covered, at_ms, strict=strict)
    found = None
    for log in logs.values():
        rows = log.rows(shape, covered)
        found = rows if found is None else found.unionByName(rows)
    assert found is not None
    earlier = None if archive is None else archive.frame(spark)
    return without_repeats(found, earlier) if dedupe else found


def missing(
    first: Mapping[str, int], latest: Mapping[str, int], covered: Plan, at_ms: int, *, strict: bool
) -> list[planning.Range]:
    """Ranges between the ends of queues that are not covered. DataLost with `strict` when something between what is
    covered and what is there has gone."""
    found = []
    for name in sorted(latest):
        low, high = first[name], latest[name]
        begin, end = covered.begin.get(name, 0), covered.end.get(name)
        if end is None:
            begin = end = low
        queue = planning.queue_of(name)
        if low < begin:
            found.append(planning.Range(queue, low, begin))
        if covered.stored_ms.get(name, at_ms) > at_ms:
            continue  # all that follows is later
        if low > end and strict:
            raise DataLost(
                f"{name}: the archive ends at offset {end}, the log begins at {low}: what was between them is gone; set"
                " failOnDataLoss=false to see what is there"
            )
        if max(low, end) < high:
            found.append(planning.Range(queue, max(low, end), high))
    return found


def ranges_frame(
    spark: SparkSession, parts: Sequence[planning.Range], source: SourceOptions, shape: RowShape
) -> DataFrame:
    """The rows of ranges of queues: a task a range."""
    if not parts:
        return spark.createDataFrame([], shape.spark())

    def read(batches: Any) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from rows_of(source, parts[number], Shaper(shape))

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, shape.spark())
