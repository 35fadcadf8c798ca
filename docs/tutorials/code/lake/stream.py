"""Follow the topic "readings": each batch of new messages is appended to a Parquet table. Ends when all is read."""

import os

from pyspark.sql import functions as f

import perseid.spark

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")

spark = perseid.spark.session("follow")
topic = (
    spark.readStream.format("perseid")
    .option("nameserver", NAMESRV)
    .option("subscribe", "readings")
    .option("startingOffsets", "earliest")
    .load()
)
reading = f.from_json(f.col("value").cast("string"), "number INT, sensor STRING, celsius DOUBLE")
hot = topic.select(reading.alias("r")).select("r.*").where("celsius > 22")
query = (
    hot.writeStream.format("parquet")
    .option("path", "lake/hot")
    .option("checkpointLocation", "lake/hot-checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print(spark.read.parquet("lake/hot").count(), "hot readings")
