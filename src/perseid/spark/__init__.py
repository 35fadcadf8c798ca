"""Topics as Spark tables: `spark.read.format("perseid")`, `spark.readStream.format("perseid")`, and jobs; store folders
without a broker: `spark.read.format("perseid-log")`.

    import perseid.spark
    spark = perseid.spark.session()
    spark.read.format("perseid").option("nameserver", "127.0.0.1:9876").option("subscribe", "flights").load()
    spark.read.format("perseid-log").load("/store").where("_corrupt is not null").show()
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from perseid.spark.java import NoJava, java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NoJava", "register", "session"]

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def session(
    app_name: str = "perseid", *, master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session with the sources registered, on a Java that was found (`NoJava` when there is none).

    `master` is Spark's; without it a local session on all cores. `config` is added to the settings.
    """
    if "SPARK_HOME" not in os.environ and "SPARK_REMOTE" not in os.environ:
        os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers that plan take python3 from PATH otherwise
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name).master(master or os.environ.get("SPARK_MASTER", "local[*]"))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        **(config or {}),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return register(builder.getOrCreate())


def register(spark: SparkSession) -> SparkSession:
    """Add the data source and sink `perseid` and the source `perseid-log` to a session of your own; gives it back.
    Spark is told to hand filters over to them: what a `.where(…)` does not want is neither pulled nor decoded."""
    from perseid.spark.log.source import PerseidLogDataSource
    from perseid.spark.source import PerseidDataSource

    spark.dataSource.register(PerseidDataSource)
    spark.dataSource.register(PerseidLogDataSource)
    spark.conf.set(PUSH_DOWN, "true")
    return spark
