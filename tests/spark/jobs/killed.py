"""Runs jobs in processes of their own and kills each with SIGKILL at a chosen point; Spark's JVM lives on, and with it
what the killed job's tasks were doing.

    python killed.py NAMESRV FOLDER points FORMAT...
    python killed.py NAMESRV FOLDER SEED FORMAT...

points: for each format and each point there is a table FOLDER/FORMAT-POINT of the topic `kills`. A seed: one table
FOLDER/FORMAT a format, of the topic `soak`, whose runs are killed at times drawn from the seed, and started again until
one comes to its end. Says one JSON object: what became of each.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import perseid.spark
from perseid.spark.jobs import replay as replaying
from perseid.spark.jobs.archive import archive, compact, files, formats
from perseid.spark.jobs.archive.formats import Table
from perseid.spark.jobs.options import ArchiveOptions

DEADLINE_S = 120
TOPIC = "kills"
SOAK_TOPIC = "soak"
MAX_KILLS = 200
POINTS = ("tasks", "before", "in", "after")
COMPACTION_POINTS = ("in", "after")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dies_soon(function: Callable[..., Any], after_s: float) -> Callable[..., Any]:
    def run(*args: Any, **options: Any) -> Any:
        threading.Timer(after_s, die).start()
        return function(*args, **options)

    return run


def dies_before(
    function: Callable[..., Any], when: Callable[..., bool] = lambda *args, **options: True
) -> Callable[..., Any]:
    def run(*args: Any, **options: Any) -> Any:
        if when(*args, **options):
            die()
        return function(*args, **options)

    return run


def dies_after(
    function: Callable[..., Any], when: Callable[..., bool] = lambda *args, **options: True
) -> Callable[..., Any]:
    def run(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        if when(*args, **options):
            die()
        return result

    return run


def table_class(form: str) -> type[Table]:
    if form == "delta":
        from perseid.spark.jobs.archive.delta import DeltaTable

        return DeltaTable
    if form == "iceberg":
        from perseid.spark.jobs.archive.iceberg import IcebergTable

        return IcebergTable
    return formats.ParquetTable


def plant(form: str, point: str, method: str, batch: int) -> None:
    """Make `method` of a format's table die around batch `batch`, or in it."""

    def this(table: Any, number: int, *rest: Any) -> bool:
        return number == batch

    kind: Any = table_class(form)
    if point == "tasks":
        files._run = dies_soon(files._run, 0.3)
    elif point == "before":
        setattr(kind, method, dies_before(getattr(kind, method), this))
    elif point == "after":
        setattr(kind, method, dies_after(getattr(kind, method), this))
    elif form == "iceberg":  # the new metadata is written, and no catalog names it yet
        from pyiceberg.catalog.sql import SqlCatalog

        named: Any = SqlCatalog
        named._write_metadata = staticmethod(
            dies_after(
                named._write_metadata, lambda metadata, **rest: metadata.properties.get("perseid.batch") == str(batch)
            )
        )
    elif form == "delta":  # somewhere in it
        plain = getattr(kind, method)
        setattr(kind, method, lambda *args: dies_soon(plain, 0.002 if this(*args) else DEADLINE_S)(*args))
    elif method == "commit":  # visible, and its folder is not yet durable
        plain_rename = Path.rename
        Path.rename = dies_after(plain_rename, lambda path, to: to.name == f"batch={batch:08d}")  # type: ignore[method-assign]
    else:  # swapped, and the old files are still there
        formats.exchange = dies_after(formats.exchange)


def in_a_process(job: Callable[[], Any]) -> str:
    """Run a job in a child; how it ended."""
    child = os.fork()
    if child == 0:
        signal.alarm(DEADLINE_S)

        def run() -> None:
            spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
            try:
                job()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)

        thread = threading.Thread(target=run)  # a thread has a connection of its own to the JVM
        thread.start()
        thread.join()
    _, status = os.waitpid(child, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"


def archived(table: Path, form: str, point: str) -> str:
    def job() -> None:
        plant(form, point, "commit", 1)
        archive(
            spark, nameserver=namesrv, topic=TOPIC, table=str(table),
            options=ArchiveOptions(format=form, partition_by="day", batch_offsets=40),
        )  # fmt: skip

    return in_a_process(job)


def compacted(table: Path, form: str, point: str) -> str:
    whole = in_a_process(
        lambda: archive(
            spark, nameserver=namesrv, topic=TOPIC, table=str(table),
            options=ArchiveOptions(format=form, batch_offsets=60),
        )
    )
    assert whole == "exit 0", whole

    def job() -> None:
        if form == "delta":
            plant(form, point, "optimize", 1 << 20)
            compact(spark, table=str(table), target_mb=1)
        else:
            plant(form, point, "replace", 2)
            compact(spark, table=str(table))

    return in_a_process(job)


def replayed(table: Path, topic: str) -> str:
    """Killed when batch 1 is stored and nobody has noted that."""

    def job() -> None:
        replaying.write_whole = dies_before(replaying.write_whole, lambda path, data: data == b"2")
        replaying.BATCH_MESSAGES = 30
        replaying.replay(spark, table=str(table), nameserver=namesrv, topic=topic)

    return in_a_process(job)


def soaked(table: Path, form: str, random: Random) -> int:
    """Archive and compact until it is done; how often it was killed."""

    def job() -> None:
        threading.Timer(random.uniform(0.1, 4), die).start()
        archive(
            spark, nameserver=namesrv, topic=SOAK_TOPIC, table=str(table),
            options=ArchiveOptions(
                format=form, partition_by="hour", batch_offsets=60, compact=True, target_mb=1, keep_hours=0
            ),
        )  # fmt: skip

    for kills in range(MAX_KILLS):
        random.random()
        if in_a_process(job) == "exit 0":
            return kills
    raise AssertionError(f"{table} is not done after {MAX_KILLS} runs")


if __name__ == "__main__":
    namesrv, folder, how, chosen = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
    spark = perseid.spark.session("killed", master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
    for form in chosen:
        table_class(form)  # imported once, not in each child
    told: dict[str, Any] = {}
    if how == "points":
        for form in chosen:
            for point in POINTS:
                told[f"{form}-{point}"] = archived(folder / f"{form}-{point}", form, point)
            for point in COMPACTION_POINTS:
                told[f"{form}-compact-{point}"] = compacted(folder / f"{form}-compact-{point}", form, point)
        told["replay"] = replayed(folder / f"{chosen[-1]}-compact-after", "kills-replayed")
    else:
        drawn = Random(int(how))
        for form in chosen:
            told[form] = soaked(folder / form, form, drawn)
    print(json.dumps(told))
    spark.stop()
