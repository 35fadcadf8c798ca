"""Topics as Spark tables: `spark.read.format("perseid")` and `spark.readStream.format("perseid")`. Store folders
without a broker: `spark.read.format("perseid-log")`. Jobs: `perseid.spark.jobs`.

    import perseid.spark
    spark = perseid.spark.session()
    spark.read.format("perseid").option("nameserver", "127.0.0.1:9876").option("subscribe", "flights").load()
    spark.read.format("perseid-log").load("/store").where("_corrupt is not null").show()
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perseid.base import extras
from perseid.spark.java import NoJava, java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from perseid.spark.jvm import Jvm

__all__ = ["NoJava", "register", "session"]

PACKAGES = ("pyspark", "pyarrow")
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
STREAM_SETTINGS = ("SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME")
"""What Spark 4.3 puts into a source's environment when a stream of it begins."""


def session(
    app_name: str = "perseid",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    jvm: Jvm | None = None,
) -> SparkSession:
    """A Spark session in which Perseid's sources and sink are registered. `NoJava` if no Java is found, `MissingExtra`
    without PySpark or pyarrow.

    `master` is Spark's master, or `sc://host:port` for a Connect server. Default: SPARK_REMOTE, spark-submit's master
    or SPARK_MASTER, else a local session on all cores. `config` is added to Spark's settings. `jvm` starts the JVM, if
    this process has to start one.
    """
    extras.require("perseid.spark.session()", *PACKAGES)
    remote = (master or "").startswith("sc://") or (master is None and "SPARK_REMOTE" in os.environ)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not (remote or submitted or "SPARK_HOME" in os.environ):
        os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers that plan take python3 from PATH otherwise
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    settings = {"spark.sql.session.timeZone": "UTC", **(config or {})}
    if remote:
        builder = builder.remote(master) if master else builder
    else:
        settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", **settings}
        chosen = master or os.environ.get("SPARK_MASTER")
        if chosen or not submitted:
            settings = {**settings, "spark.master": chosen or "local[*]"}
        if jvm is not None:
            jvm.start({"spark.app.name": app_name, **settings})
    for key, value in settings.items():
        builder = builder.config(key, value)
    return register(builder.getOrCreate())


def register(spark: SparkSession) -> SparkSession:
    """Register the source and sink `perseid` and the source `perseid-log` in a session of your own, and return it.

    It also sets `spark.sql.python.filterPushdown.enabled`, which the option `pushDown` needs.
    """
    extras.require("perseid.spark.register()", *PACKAGES)
    from perseid.spark.log.source import PerseidLogDataSource
    from perseid.spark.source import PerseidDataSource

    with _environment(spark):
        spark.dataSource.register(PerseidDataSource)
        spark.dataSource.register(PerseidLogDataSource)
    spark.conf.set(PUSH_DOWN, "true")
    return spark


@contextmanager
def _environment(spark: SparkSession) -> Iterator[None]:
    """Register sources so that two streams may begin at the same time.

    A source's environment is one java.util.HashMap, made at its registration. Each stream that begins puts its settings
    into it (PythonStreamingSourceRunner), without a lock: two at once break the map, and from then on each task of that
    source fails to read it (OptionalDataException). Settings that are there already are only replaced.
    """
    from pyspark.sql import SparkSession as Classic

    environment = spark.sparkContext.environment if type(spark).__module__ == Classic.__module__ else {}
    added = [name for name in STREAM_SETTINGS if name not in environment]
    environment.update(dict.fromkeys(added, ""))
    try:
        yield
    finally:
        for name in added:
            del environment[name]
