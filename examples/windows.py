"""Departures and their delays by airport and six hours, as a stream with a watermark.

A window is told once, when the watermark has passed its end: no flight that is at most three hours late in the stream
is missed, and later ones are dropped, and counted.
"""

from __future__ import annotations

from typing import Any

from common import main, stream

WINDOW, LATE = "6 hours", "3 hours"
BAR = 40


def run(spark: Any, namesrv: str, topic: str) -> None:
    """Print the windows that are closed."""
    from pyspark.sql import functions as f

    counts = (
        stream(spark, namesrv, topic).withWatermark("at", LATE)
        .groupBy(f.window("at", WINDOW), "origin")
        .agg(f.count("*").alias("departures"), f.avg("dep_delay").alias("delay"),
             f.sum(f.when(f.col("dep_delay").isNull(), 1).otherwise(0)).alias("cancelled"))
    )  # fmt: skip
    query = counts.writeStream.format("memory").queryName("windows").outputMode("append")
    query = query.trigger(availableNow=True).start()
    query.awaitTermination()
    rows = spark.table("windows").orderBy("window.start", "origin").collect()
    most = max((row.departures for row in rows), default=1)
    print(f"{'from (UTC)':17} {'':4} departures, cancelled, mean delay in minutes")
    for row in rows:
        bar = "█" * round(BAR * row.departures / most)
        delay = "" if row.delay is None else f"{row.delay:+6.1f}"
        counts_told = f"{row.departures:4} {row.cancelled:4} {delay:>7} {bar}"
        print(f"{row.window.start:%Y-%m-%d %H:%M}  {row.origin:4} {counts_told}")
    late = sum(op["numRowsDroppedByWatermark"] for p in query.recentProgress for op in p["stateOperators"])
    print(f"{len(rows)} windows closed; {late} flights came more than {LATE} late; windows after that are still open")


if __name__ == "__main__":
    main(run, __doc__)
