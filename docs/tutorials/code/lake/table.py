"""The topic "readings" as a table: what each sensor measured."""

import os

from pyspark.sql import functions as f

import perseid.spark

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")

spark = perseid.spark.session("readings")
topic = spark.read.format("perseid").option("nameserver", NAMESRV).option("subscribe", "readings").load()
reading = f.from_json(f.col("value").cast("string"), "number INT, sensor STRING, celsius DOUBLE")
readings = topic.select(reading.alias("r"), "queueId", "queueOffset").select("r.*", "queueId", "queueOffset")
measured = readings.groupBy("sensor").agg(f.count("*").alias("readings"), f.avg("celsius").alias("celsius"))
measured.orderBy("sensor").show(3)
