"""Rows of an archive's shape from store folders, with no broker running.

A store does not say its broker's name, so the caller that gives the folders does. Damage is a row with `_corrupt`, as
`perseid-log` gives it, as long as it may be of the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from perseid.client.stamps import SENT_ON, STAMP, Stamp
from perseid.spark import schema
from perseid.spark.jobs.archive.folder import Plan
from perseid.spark.jobs.archive.rows import COLUMNS, CORRUPT, PAYLOAD, RowShape, Shaper
from perseid.wire.host import host_from
from perseid.wire.ids import offset_message_id
from perseid.wire.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG_COLUMNS = (
    "topic string, queueId int, queueOffset bigint, physicalOffset bigint, storeTimestamp timestamp,"
    " bornTimestamp timestamp, keys string, tags string, body binary, properties map<string,string>, sysFlag int,"
    " flag int, reconsumeTimes int, storeHost string, bornHost string, _corrupt string"
)
_RENAMED = {"tag": "tags", "value": "body"}


class LogFolder:
    """One broker's store folder, and a topic in it."""

    def __init__(self, spark: SparkSession, topic: str, broker: str, folder: str) -> None:
        self._spark = spark
        self._topic = topic
        self._broker = broker
        self._folder = folder

    def rows(self, shape: RowShape, covered: Plan) -> DataFrame:
        """Rows of the topic that the log holds and a plan does not cover; and stretches of damage."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType

        damage = self._log(LOG_COLUMNS).where(F.col(CORRUPT).isNotNull() & F.col("topic").isNull())
        found = self._log(LOG_COLUMNS).where(F.col("topic") == self._topic).unionByName(damage)  # each has its filters
        columns = shape.spark()
        if shape.bodies is None:
            columns = columns.add(CORRUPT, StringType())
        return found.mapInArrow(_Converted(self._topic, self._broker, shape, covered), columns)

    def bounds(self) -> dict[str, tuple[int, int]]:
        """Where the topic's queues begin and end in the log."""
        from pyspark.sql import functions as F

        log = self._log("topic string, queueId int, queueOffset bigint, _corrupt string")
        told = (
            log.where((F.col("topic") == self._topic) & F.col(CORRUPT).isNull())
            .groupBy("queueId")
            .agg(F.min("queueOffset").alias("low"), F.max("queueOffset").alias("high"))
            .collect()
        )
        return {f"{self._topic}/{self._broker}/{row['queueId']}": (row["low"], row["high"] + 1) for row in told}

    def _log(self, columns: str) -> DataFrame:
        return self._spark.read.format("perseid-log").option("pushDown", True).schema(columns).load(self._folder)


@dataclass(frozen=True)
class _Converted:
    """Makes archive rows of the log's."""

    topic: str
    broker: str
    shape: RowShape
    covered: Plan

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        shaper = Shaper(self.shape)
        for batch in batches:
            fresh = batch.filter(pa.array(self._fresh(batch)))
            if fresh.num_rows:
                yield self._row_batch(fresh, shaper)

    def _fresh(self, batch: Any) -> list[bool]:
        """Which rows the archive does not cover."""
        spans: dict[int | None, tuple[int, int]] = {}
        found = []
        for topic, queue, offset in zip(
            *(batch.column(name).to_pylist() for name in ("topic", "queueId", "queueOffset")), strict=True
        ):
            if queue not in spans:
                name = f"{self.topic}/{self.broker}/{queue}"
                spans[queue] = (self.covered.begin.get(name, 0), self.covered.end.get(name, 0))
            begin, end = spans[queue]
            found.append(topic is None or not begin <= offset < end)
        return found

    def _row_batch(self, batch: Any, shaper: Shaper) -> Any:
        count = batch.num_rows
        made = {"brokerName": pa.array([self.broker] * count), "msgId": pa.array(_ids(batch), pa.string())}
        kinds = schema.arrow_schema(COLUMNS)
        columns = [
            (made[name] if name in made else batch.column(_RENAMED.get(name, name))).cast(kinds.field(name).type)
            for name in COLUMNS
        ]
        shaped = shaper.shaped(pa.RecordBatch.from_arrays(columns, schema=kinds))
        names, arrays = shaped.schema.names, list(shaped.columns)
        damage = batch.column(CORRUPT)
        if CORRUPT in names:
            arrays[names.index(CORRUPT)] = pc.coalesce(damage, arrays[names.index(CORRUPT)])
        else:
            names, arrays = [*names, CORRUPT], [*arrays, damage]
        return pa.RecordBatch.from_arrays(arrays, names=names)


def _ids(batch: Any) -> list[str | None]:
    """Message ids, as clients tell them."""
    found: list[str | None] = []
    for properties, host, offset in zip(
        *(batch.column(name).to_pylist() for name in ("properties", "storeHost", "physicalOffset")), strict=True
    ):
        own = dict(properties or ()).get("UNIQ_KEY")
        found.append(own or (None if host is None else offset_message_id(host_from(host), offset)))
    return found


def without_repeats(rows: DataFrame, earlier: DataFrame | None) -> DataFrame:
    """Rows of a log without what a stamped writer sent again: of those with one stamp, id and body in one queue the
    first stays, and none that is among `earlier` rows. Store folders are read in parallel, so that what is remembered
    in order (`client.deduplicator`) has no place here; the rows are the same."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    stamped = _with_stamp(rows)
    first = F.row_number().over(Window.partitionBy("_stamp").orderBy("queueOffset"))
    kept = stamped.where("_stamp IS NOT NULL").withColumn("_nth", first).where("_nth = 1").drop("_nth")
    if earlier is not None:
        seen = _with_stamp(earlier).where("_stamp IS NOT NULL").select("_stamp")
        kept = kept.join(seen, "_stamp", "left_anti")
    return stamped.where("_stamp IS NULL").unionByName(kept).drop("_stamp")


def _with_stamp(rows: DataFrame) -> DataFrame:
    """With `_stamp`: what a row shares with its repeats; null for one that has none."""
    from pyspark.sql import functions as F

    parts = F.split(F.col("properties")[STAMP], ":")
    names = Stamp._fields
    same = [parts[names.index(name)] for name in names if name not in ("home", "since")]
    body = F.crc32("value")
    if PAYLOAD in rows.columns:  # where bodies decode, a table may be without their bytes
        body = F.coalesce(body, F.crc32(F.encode(F.to_json(F.struct(PAYLOAD)), "UTF-8")))
    queue = F.concat_ws("/", "topic", "brokerName", "queueId")  # as str(MessageQueue), which stamps are made of
    home = F.lpad(F.lower(F.hex(F.crc32(F.encode(queue, "UTF-8")))), 8, "0")
    valid = (F.size(parts) == len(names)) & (parts[names.index("home")] == home)
    plain = F.col("topic").startswith(RETRY_PREFIX) | F.col("topic").startswith(DLQ_PREFIX)
    for name in SENT_ON:
        plain |= F.col("properties")[name].isNotNull()
    told = valid & ~plain & body.isNotNull() & F.col("msgId").isNotNull()
    return rows.withColumn("_stamp", F.when(told, F.concat_ws(":", queue, *same, "msgId", body)))
