"""The driver that is killed: it archives a topic, and copies it into another one, again and again, until it finds the
file that tells it to end. Then it brings both to their end, and writes down what Spark's readers see.

    python -m tests.spark.kills.driver NAMESRV FOLDER JOB,JOB

What it does is told as JSON lines on stdout.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perseid.spark
from perseid.spark.jobs.archive import archive, read
from perseid.spark.jobs.options import ArchiveOptions

SOURCE, TARGET = "kills-source", "kills-target"
BATCH_OFFSETS = 4000
STOP, TABLE, CHECKPOINT = "stop", "table", "checkpoint"
ARCHIVED, COPIED = "archived.parquet", "copied.parquet"
PAUSE_S = 0.2
WHY_CHARS = 400
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
}
_lock = threading.Lock()


def say(event: str, **fields: Any) -> None:
    with _lock:
        print(json.dumps({"event": event, **fields}), flush=True)


class Jobs:
    """What is done over and over."""

    def __init__(self, spark: Any, namesrv: str, folder: Path) -> None:
        self._spark, self._namesrv, self._folder = spark, namesrv, folder
        self._never = threading.Event()

    def told_to_end(self) -> bool:
        return (self._folder / STOP).exists()

    def archive(self) -> None:
        """Bring the table up to what the topic holds."""
        done = archive(
            self._spark, nameserver=self._namesrv, topic=SOURCE, table=str(self._folder / TABLE),

            options=ArchiveOptions(batch_offsets=BATCH_OFFSETS),
            on_batch=lambda batch, rows, repeats: say("batch", job="archive"),
        )  # fmt: skip
        say("archived", batches=done.batches, rows=done.rows)

    def sink(self) -> None:
        """Copy the topic until the end is told, and then to its end. Each message tells where it came from, and keeps
        its key's order."""
        query = (
            self._source(SOURCE)
            .selectExpr("value", "tag", "keys", "keys AS orderingKey",
                        "map('from', concat(queueId, ' ', queueOffset)) AS properties")
            .writeStream.format("perseid").option("nameserver", self._namesrv).option("topic", TARGET)
            .option("batchMessages", "5").option("checkpointLocation", str(self._folder / CHECKPOINT)).start()
        )  # fmt: skip
        last = None
        try:
            while not self.told_to_end():
                query.awaitTermination(0.5)
                progress = query.lastProgress
                if progress is not None and progress["batchId"] != last:
                    last = progress["batchId"]
                    say("batch", job="sink")
            query.processAllAvailable()
            say("copied")
        finally:
            query.stop()

    def again_and_again(self, name: str, job: Callable[[], None]) -> None:
        """Run a job until one run that was begun after the end was told is whole."""
        while True:
            last = self.told_to_end()
            try:
                job()
            except Exception as error:  # something was killed under it: the next run goes on
                say("failed", job=name, why=str(error)[:WHY_CHARS])
                self._never.wait(PAUSE_S)
                continue
            if last:
                say("whole", job=name)
                return
            self._never.wait(PAUSE_S)

    def write_down(self, jobs: list[str]) -> None:
        """What the readers see: the table, and the target through the source, which drops repeats."""
        if "archive" in jobs:
            rows = read(self._spark, str(self._folder / TABLE)).select("queueId", "queueOffset", "value")
            rows.write.parquet(str(self._folder / ARCHIVED))
        if "sink" in jobs:
            topic = self._spark.read.format("perseid").option("nameserver", self._namesrv).option("subscribe", TARGET)
            topic.load().selectExpr(
                "queueId", "queueOffset", "value", "keys", "properties['from'] AS came"
            ).write.parquet(str(self._folder / COPIED))

    def _source(self, topic: str) -> Any:
        reader = self._spark.readStream.format("perseid").option("nameserver", self._namesrv)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        return reader.option("maxOffsetsPerTrigger", str(BATCH_OFFSETS)).load()


def main() -> None:
    namesrv, folder, wanted = sys.argv[1], Path(sys.argv[2]), sys.argv[3].split(",")
    settings = {**SETTINGS, "spark.local.dir": str(folder / "spark")}
    spark = perseid.spark.session("kills", master="local[2,4]", config=settings)
    spark.sparkContext.setLogLevel("ERROR")
    say("up", pid=os.getpid(), jvm=int(spark._jvm.java.lang.ProcessHandle.current().pid()))
    jobs = Jobs(spark, namesrv, folder)
    beside = threading.Thread(target=jobs.again_and_again, args=("archive", jobs.archive))
    if "archive" in wanted:
        beside.start()
    if "sink" in wanted:  # in this thread: in another one Spark does not find the data source to write to
        jobs.again_and_again("sink", jobs.sink)
    if "archive" in wanted:
        beside.join()
    jobs.write_down(wanted)
    say("done")
    spark.stop()


if __name__ == "__main__":
    main()
