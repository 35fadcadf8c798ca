"""Landing a topic, as it is asked for: what the table is, what is told of the run (`run`), and the brokers behind it.

An offset is a place: a table has each (generation, brokerName, queueId, queueOffset) once. So a topic that was deleted
and made anew is another topic, and refused, unless that is to begin a generation: where its queues end before the
table's position, and, as plans keep when the last message of each queue was stored, also where they have grown beyond.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perseid.base.errors import ConfigError
from perseid.spark import plan as planning
from perseid.spark.bounds import Bounds, first_kept, stored_ms
from perseid.spark.jobs import failures
from perseid.spark.jobs.archive import bodies, formats
from perseid.spark.jobs.archive.anew import begun_anew
from perseid.spark.jobs.archive.compaction import compact_locked
from perseid.spark.jobs.archive.files import Target, Written, write_ranges
from perseid.spark.jobs.archive.folder import FORMATS, ICEBERG, NONE, PARQUET, PARTITIONS, Plan, TableFolder, TableInfo
from perseid.spark.jobs.archive.run import Allowed, Archived, Looked, Run
from perseid.spark.jobs.options import ARCHIVE_DEFAULTS, ArchiveOptions
from perseid.spark.options import ALIASES as SOURCE_ALIASES
from perseid.spark.options import ENDING, SourceOptions, nearest, normal, parse
from perseid.spark.options import NAMES as SOURCE_NAMES
from perseid.spark.plan import DataLost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("perseid.spark")

FILTER = ("tags", "sql", "dedupe")
"""The source's options that choose messages: a table has one choice."""
NOT_HERE = ("subscribe", "subscribePattern", "assign", "nameserver", "includeHeaders", "includeBody", *ENDING)
"""The source's options that the job sets itself."""
CATALOG_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def archive(
    spark: SparkSession,
    *,
    nameserver: str,
    topic: str,
    table: str,
    options: ArchiveOptions = ARCHIVE_DEFAULTS,
    on_start: Callable[[int], None] | None = None,
    on_batch: Callable[[int, int, int], None] | None = None,
) -> Archived:
    """Bring the table at `table` up to what the topic holds now; returns what this run added.

    `on_start(offsets)` is called with what there is to read, `on_batch(batch, rows, repeats)` after each batch. Run it
    again to go on. ConfigError: it can't be done as asked; TableChanged: the table is not as it was left; DataLost:
    messages are gone; TaskFailed: see the text.
    """
    folder = TableFolder(table)
    keep_value = None if options.drop_value is None else not options.drop_value
    shape = _Shape(options.format, options.partition_by, None, keep_value)
    schema = options.schema
    if schema is None and options.message is not None:
        raise ConfigError("message names what a schema (.desc) holds: give schema too")
    given = _source_options(options.for_source())
    parse({"nameserver": nameserver, "subscribe": topic, **given}, streaming=True)  # wrong ones are told at once
    before = folder.info()
    if before is None:
        folder.check_free()
    else:
        _check_same(folder, before, topic, shape, given)
    if schema is not None:
        if bodies.needs_session(schema):
            log.debug("the schema is read by Spark %s", spark.version)  # a session that has not begun yet begins
        shape = replace(shape, bodies=bodies.load(schema, options.message))
    missing = folder.missing()
    with folder.locked(), undone(folder, missing), failures.told():
        info = folder.info()
        if info is None:
            info = _new_info(topic, shape, given)
        else:
            _check_same(folder, info, topic, shape, given)
        source = parse(
            {"nameserver": nameserver, "subscribe": topic, **_starting(given), **info.filter}, streaming=True
        )
        _check_catalogs(folder, info, options.catalogs)
        found = formats.of(folder, info)
        allowed = Allowed(not source.fail_on_data_loss, options.new_generation, options.accept_table)
        run = Run(found, Brokers(spark, source), allowed, options.batch_offsets, on_start, on_batch)
        run.all()
        if options.catalogs:
            found.name_catalogs(options.catalogs)
        compacted = None
        if options.compact:
            compacted = compact_locked(spark, found, options.target_mb << 20, options.keep_hours)
    return replace(run.done, compacted=compacted)


def _check_catalogs(folder: TableFolder, info: TableInfo, names: Sequence[str]) -> None:
    if names and info.format != ICEBERG:
        raise ConfigError(f"{folder.path}: a table of {info.format} is in no catalog: --catalog is for iceberg")
    for name in names:
        if not name or not set(name) <= CATALOG_CHARS:
            raise ConfigError(f"a catalog's name has letters, digits, '_', '-': not {name!r}")


@contextmanager
def undone(folder: TableFolder, missing: Sequence[Path]) -> Iterator[None]:
    """A run that fails before its first commit leaves nothing of a table that was not there. `missing`: what of its
    folder was not. The run holds the table's lock."""
    try:
        yield
    except BaseException:
        if folder.own in missing and not _has_landed(folder):
            folder.remove(missing)
        raise


def _has_landed(folder: TableFolder) -> bool:
    try:
        info = folder.info()
        return info is not None and formats.of(folder, info).last_batch() >= 0
    except Exception as error:  # whatever its format's library says: who can't look does not remove
        log.warning("%s is left as it is, as it can't be read: %s", folder.path, error)
        return True


@dataclass(frozen=True, slots=True)
class _Shape:
    """The properties asked of the table; None: as it is."""

    format: str | None
    partition_by: str | None
    bodies: bodies.BodySchema | None
    keep_value: bool | None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("format", self.format, FORMATS), ("partition-by", self.partition_by, PARTITIONS),
        ):  # fmt: skip
            if value is not None and value not in known:
                raise ConfigError(f"{name}={value!r} is unknown{nearest(value, known)}")


def _source_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their own names. ConfigError for an unknown one, or one that is the job's."""
    spelled = {name.lower(): name for name in SOURCE_NAMES}
    found = normal(options, SOURCE_NAMES, SOURCE_ALIASES, "the perseid source")
    result = {spelled[name]: value for name, value in found.items()}
    for name in NOT_HERE:
        if name in result:
            raise ConfigError(f"the archive sets the option {name} itself")
    return result


def _starting(given: Mapping[str, str]) -> dict[str, str]:
    """The options but the filters; a new table begins at the earliest offsets if they don't say where."""
    result = {name: value for name, value in given.items() if name not in FILTER}
    if not any(name.startswith("starting") for name in result):
        result["startingOffsets"] = "earliest"
    return result


def _new_info(topic: str, shape: _Shape, given: Mapping[str, str]) -> TableInfo:
    if shape.keep_value is False and shape.bodies is None:
        raise ConfigError("drop_value (--drop-value) leaves decoded bodies only: give a schema")
    return TableInfo(
        topic=topic,
        format=shape.format or PARQUET,
        partition_by=shape.partition_by or NONE,
        table_id=os.urandom(8).hex(),
        filter={name: given[name] for name in FILTER if name in given},
        schema=shape.bodies,
        keep_value=shape.keep_value is not False,
        numbered=True,
    )


def _check_same(folder: TableFolder, info: TableInfo, topic: str, shape: _Shape, given: Mapping[str, str]) -> None:
    """ConfigError when a table is of another topic, or is not made as asked."""
    where = f"{folder.path} holds"
    if info.topic != topic:
        raise ConfigError(f"{where} topic {info.topic}, not {topic}: give each topic a table of its own")
    asked = (
        ("format", shape.format, info.format), ("partitions", shape.partition_by, info.partition_by),
        ("values beside decoded bodies", shape.keep_value, info.keep_value),
        *((name, given.get(name), info.filter.get(name)) for name in FILTER),
    )  # fmt: skip
    for name, wanted, has in asked:
        if wanted is not None and wanted != has:
            raise ConfigError(f"{where} {name}={has}, not {wanted}: leave it out, or begin another table")
    if shape.bodies is not None and shape.bodies != info.schema:
        raise ConfigError(f"{where} bodies of {'another' if info.schema else 'no'} schema: begin another table")


class Brokers:
    """A topic at its brokers, and Spark's tasks that write its rows."""

    def __init__(self, spark: SparkSession, source: SourceOptions) -> None:
        self._spark, self._source = spark, source

    def look(self, *, begun: bool) -> Looked:
        """Where its queues begin and end."""
        with Bounds(self._source, begun=begun) as bounds:
            bounds.check_sql()
            return Looked(bounds.earliest(), bounds.latest(), {} if begun else bounds.starting())

    def stored_ms(self, ends: Mapping[str, int]) -> dict[str, int]:
        """When the message before each of these offsets was stored; what can't be had is left out."""
        return stored_ms(self._source, ends)

    def first_kept(self, name: str, offset: int) -> tuple[int, int] | None:
        """The first message from there on that a broker has: its offset, and when it was stored."""
        return first_kept(self._source, name, offset)

    def write(self, parts: Sequence[planning.Range], target: Target) -> Written:
        """Have Spark's tasks write the rows of these ranges."""
        return write_ranges(self._spark, parts, self._source, target)


def check_not_another(source: SourceOptions, known: Plan, latest: Mapping[str, int]) -> None:
    """DataLost when a topic's queues are not those that were read up to a plan: the topic was made anew."""
    anew = begun_anew(known, {}, latest, lambda ends: stored_ms(source, ends))
    if anew:
        raise DataLost(
            f"{next(iter(anew.values()))}: the topic was deleted and made again, or its broker lost messages"
        )
