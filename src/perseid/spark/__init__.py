"""Topics as Spark tables: `spark.read.format("perseid")`, `spark.readStream.format("perseid")`, and jobs.

    import perseid.spark
    spark = perseid.spark.session()
    spark.read.format("perseid").option("nameserver", "127.0.0.1:9876").option("subscribe", "flights").load()
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
        "spark.sql.python.filterPushdown.enabled": "true",  # reads leave out what .where(…) does not want
        **(config or {}),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return register(builder.getOrCreate())


def register(spark: SparkSession) -> SparkSession:
    """Add the data source and sink `perseid` to a session of your own; gives it back."""
    from perseid.spark.source import PerseidDataSource

    spark.dataSource.register(PerseidDataSource)
    return spark
