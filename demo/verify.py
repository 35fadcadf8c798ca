"""Checks in Spark that the table holds what was sent: every flight, once, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FLIGHT = (
    "sequence long, order_key string, flight_id string, carrier string, hour int, dep_delay double, arr_delay double"
)


@dataclass(slots=True)
class Checked:
    """What the table holds, of so many flights that were `wanted`."""

    wanted: int
    rows: int
    flights: int
    duplicates: int
    out_of_order: int
    split_keys: int
    repeated_offsets: int

    @property
    def faults(self) -> list[str]:
        """What is wrong, in words; empty when all is well."""
        faults = []
        if self.flights != self.wanted:
            faults.append(f"{self.wanted - self.flights} of {self.wanted} flights are missing")
        if self.out_of_order:
            faults.append(f"{self.out_of_order} flights stand before an earlier flight of their aircraft")
        if self.split_keys:
            faults.append(f"{self.split_keys} aircraft have flights in more than one queue")
        if self.repeated_offsets:
            faults.append(f"{self.repeated_offsets} rows repeat a queue offset: the archive is not exactly once")
        return faults


def unique_flights(table: DataFrame) -> DataFrame:
    """The table's flights with their place, without the repeats of a retrying producer: the first of each counts."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    parsed = table.select(
        "brokerName", "queueId", "queueOffset", F.from_json(F.col("value").cast("string"), FLIGHT).alias("f")
    ).select("brokerName", "queueId", "queueOffset", "f.*")
    first = Window.partitionBy("flight_id").orderBy("brokerName", "queueId", "queueOffset")
    return parsed.withColumn("copy", F.row_number().over(first)).where("copy = 1").drop("copy")


def check(table: DataFrame, flights: DataFrame, wanted: int) -> Checked:
    """Count what is there and what is wrong, of so many `wanted`. `flights`: what `unique_flights` made of `table`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rows = table.count()
    places = table.select("brokerName", "topic", "queueId", "queueOffset").distinct().count()
    order = Window.partitionBy("order_key").orderBy("brokerName", "queueId", "queueOffset")
    before = flights.withColumn("before", F.lag("sequence").over(order)).where("before > sequence").count()
    found: Any = flights.select(F.count("flight_id"), F.count_distinct("flight_id")).first()
    queues = flights.groupBy("order_key").agg(F.count_distinct("brokerName", "queueId").alias("queues"))
    return Checked(
        wanted=wanted, rows=rows, flights=found[1], duplicates=rows - found[0], out_of_order=before,
        split_keys=queues.where("queues > 1").count(), repeated_offsets=rows - places,
    )  # fmt: skip


def delays(flights: DataFrame) -> list[tuple[str, int, float]]:
    """Mean departure delay in minutes by carrier and hour."""
    from pyspark.sql import functions as F

    means = flights.groupBy("carrier", "hour").agg(F.avg("dep_delay").alias("delay"))
    return [(row["carrier"], row["hour"], row["delay"]) for row in means.where("delay is not null").collect()]
