"""What the examples share: their arguments, a Spark session, and flights in a topic.

`python examples/NAME.py [--namesrv 127.0.0.1:9876] [--flights 5000]`, with `perseid up` running beside it. The flights
are sent once, the first so many of 2013, in the order of their file and of each aircraft.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the flights are those of the demo

from demo.flights import archive_path, flights

import perseid.spark
from perseid.client import Admin, OrderedProducer
from perseid.client.errors import NoRoute

QUEUES = 4
FLIGHT = "carrier string, flight int, tailnum string, origin string, dest string, distance int, dep_delay double, \
minute int, time_hour timestamp"
"""Of each message's JSON, what the examples look at."""
Example = Callable[[Any, str, str], None]
"""Given a session, name servers and a topic of flights: prints what it finds."""


async def send(namesrv: str, topic: str, count: int) -> int:
    """Send the first flights to a topic, unless there are some in it; how many it holds."""
    async with Admin(namesrv) as admin:
        try:
            there = sum(queue.max_offset - queue.min_offset for queue in await admin.topic_stats(topic))
        except NoRoute:
            await admin.create_topic(topic, QUEUES)
            there = 0
    if there:
        return there
    async with OrderedProducer(namesrv, "examples") as producer:
        for flight in islice(flights(), count):
            await producer.put(flight.message(topic), flight.order_key)
        await producer.flush()
    return count


def stream(spark: Any, namesrv: str, topic: str) -> Any:
    """The flights of a topic as a stream, with `at`, when each was to depart."""
    from pyspark.sql import functions as f

    raw = (
        spark.readStream.format("perseid").option("nameserver", namesrv).option("subscribe", topic)
        .option("startingOffsets", "earliest").schema("value binary").load()
    )  # fmt: skip
    rows = raw.select(f.from_json(raw.value.cast("string"), FLIGHT).alias("flight")).select("flight.*")
    return rows.withColumn("at", f.expr("time_hour + make_dt_interval(0, 0, minute)"))


def table(spark: Any, name: str) -> Any:
    """A table that comes with the flights: airlines, airports, planes, weather. What is NA there is null."""
    with (archive_path().parent / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = [{key: None if value == "NA" else value for key, value in row.items()} for row in csv.DictReader(file)]
    return spark.createDataFrame(rows, ", ".join(f"`{column}` string" for column in rows[0]))


def main(example: Example, text: str | None) -> None:
    """Run one example from the command line."""
    options = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--namesrv", default="127.0.0.1:9876")
    options.add_argument("--topic", default="flights")
    options.add_argument("--flights", type=int, default=5000, help="sent if the topic is empty")
    given = options.parse_args()
    count = asyncio.run(send(given.namesrv, given.topic, given.flights))
    print(f"{count:,} flights in topic {given.topic}")
    spark = perseid.spark.session("example", config={"spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("ERROR")
    try:
        example(spark, given.namesrv, given.topic)
    finally:
        spark.stop()
