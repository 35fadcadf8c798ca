"""The messages of a store folder, with no broker running."""

import sys

import perseid.spark

spark = perseid.spark.session("dead broker")
log = spark.read.format("perseid-log").load(sys.argv[1])
messages = log.where("topic = 'orders'")
messages.selectExpr("topic", "keys", "cast(body as string) as body").show()
