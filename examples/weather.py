"""What the weather does to departures: the stream of flights, joined with the tables of airports and of weather."""

from __future__ import annotations

from typing import Any

from common import main, stream, table

BAR_MINUTES = 2.0


def run(spark: Any, namesrv: str, topic: str) -> None:
    """Print mean delays by weather, and the destinations that had the worst."""
    from pyspark.sql import functions as f

    airports = f.broadcast(table(spark, "airports").select(f.col("faa").alias("dest"), f.col("name").alias("airport")))
    weather = f.broadcast(
        table(spark, "weather").select(
            "origin", f.to_timestamp("time_hour").alias("time_hour"), f.col("visib").cast("double").alias("miles"),
            f.col("wind_speed").cast("double").alias("wind"), f.col("precip").cast("double").alias("rain"),
        )
    )  # fmt: skip
    joined = (
        stream(spark, namesrv, topic).join(weather, ["origin", "time_hour"], "left").join(airports, ["dest"], "left")
        .withColumn("sky", f.when(f.col("miles").isNull(), "not known").when(f.col("miles") < 3, "fog")
                    .when(f.col("rain") > 0, "rain").when(f.col("wind") > 20, "wind").otherwise("fair"))
    )  # fmt: skip
    joined.writeStream.format("memory").queryName("weather").outputMode("append").trigger(
        availableNow=True
    ).start().awaitTermination()
    rows = spark.table("weather")
    mean = f.avg("dep_delay").alias("delay")
    print("mean delay of departures")
    for row in rows.groupBy("sky").agg(mean, f.count("*").alias("flights")).orderBy(f.desc("delay")).collect():
        minutes = row.delay or 0.0
        bar = "█" * round(max(0.0, minutes) / BAR_MINUTES)
        print(f"  {row.sky:10} {row.flights:6,} flights {minutes:6.1f} minutes {bar}")
    worst = rows.groupBy("dest", "airport").agg(mean, f.count("*").alias("flights")).where("flights >= 10")
    print("where one waits longest for, of the destinations with ten flights at least")
    for row in worst.orderBy(f.desc("delay")).limit(8).collect():
        airport = row.airport or "not in the table of airports"
        print(f"  {row.dest}  {airport:32} {row.flights:5,} flights {row.delay:6.1f} minutes")
    print(f"{rows.count():,} flights, each joined once")


if __name__ == "__main__":
    main(run, __doc__)
