"""The sink in Spark on a real broker: batches and streams, also killed and started again."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.combinations import in_ci
from tests.spark.conftest import fill

from perseid.client import PullOptions
from perseid.client.blocking import BlockingPullConsumer
from perseid.client.stamps import STAMP
from perseid.testing.embedded import EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

COPY = """
import os, signal, sys
import perseid.spark
from perseid.spark.sink import PerseidStreamWriter
from perseid.spark.source import PerseidDataSource
from perseid.client import PullOptions

namesrv, source, target, checkpoint, where = sys.argv[1:]
spark = perseid.spark.session("killed", master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
pids = [spark._jvm.java.lang.ProcessHandle.current().pid(), os.getpid()]

def kill():
    for pid in pids:
        os.kill(pid, signal.SIGKILL)

class Writer(PerseidStreamWriter):
    def write(self, iterator):
        part = self._part()
        if where == "task" and (part.batch, part.partition) == (1, 1):
            first = next(iterator)
            super().write(iter([first.slice(0, first.num_rows // 2)]))
            kill()
        return super().write(iterator)

    def commit(self, messages, batchId):
        if where == "before commit" and batchId == 1:
            kill()
        super().commit(messages, batchId)
        if where == "after commit" and batchId == 1:
            kill()

class Source(PerseidDataSource):
    def streamWriter(self, schema, overwrite):
        return Writer(self.options, schema, overwrite=overwrite, streaming=True)

spark.dataSource.register(Source)
(
    spark.readStream.format("perseid").option("nameserver", namesrv).option("subscribe", source)
    .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "40").load()
    .selectExpr("value", "tag", "keys", "keys AS orderingKey")
    .writeStream.format("perseid").option("nameserver", namesrv).option("topic", target)
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
)
"""


def consumed(broker: EmbeddedBroker, topic: str, *, dedupe: bool) -> list[bytes]:
    with BlockingPullConsumer(broker.namesrv, "check", options=PullOptions(dedupe=dedupe)) as consumer:
        return [
            message.body
            for queue in consumer.queues(topic)
            for found in consumer.read(queue, 0, consumer.max_offset(queue))
            for message in found
        ]


def test_a_table_becomes_a_topic_and_comes_back(spark: Any, broker: EmbeddedBroker) -> None:
    broker.create_topic("written", 4)
    rows = spark.range(300).selectExpr(
        "concat('body ', id) AS value", "concat('t', id % 3) AS tag", "array(concat('k', id)) AS key",
        "map('i', string(id)) AS properties", "concat('o', id % 10) AS orderingKey",
    )  # fmt: skip
    rows.write.format("perseid").mode("append").option("nameserver", broker.namesrv).option("topic", "written").save()
    read = spark.read.format("perseid").option("nameserver", broker.namesrv).option("subscribe", "written").load()
    found = {row.keys: row for row in read.collect()}
    assert len(found) == 300
    row = found["k17"]
    assert (bytes(row.value), row.tag, row.properties["i"]) == (b"body 17", "t2", "17")
    assert row.properties[STAMP]
    queues: dict[str, set[int]] = {}
    for row in found.values():
        queues.setdefault(row.properties["__SHARDINGKEY"], set()).add(row.queueId)
    assert all(len(ids) == 1 for ids in queues.values())
    pushing = spark.read.format("perseid").option("nameserver", broker.namesrv).option("pushDown", True)
    wanted = pushing.option("subscribe", "written").load().where("tag = 't1' AND offset < 10 AND partition IN (0, 1)")
    assert {row.keys for row in wanted.collect()} == {
        key for key, row in found.items() if row.tag == "t1" and row.offset < 10 and row.queueId in (0, 1)
    }


def test_a_job_that_is_started_again_under_its_query_id_repeats_its_stamps(spark: Any, broker: EmbeddedBroker) -> None:
    broker.create_topic("under-its-id", 2)
    rows = spark.range(0, 100, 1, 2).selectExpr("string(id) AS value")
    for _ in range(2):
        writer = rows.write.format("perseid").mode("append").option("nameserver", broker.namesrv)
        writer.option("topic", "under-its-id").option("queryId", "nightly").option("batchId", "4").save()
    assert len(consumed(broker, "under-its-id", dedupe=False)) == 200
    assert sorted(consumed(broker, "under-its-id", dedupe=True)) == sorted(str(i).encode() for i in range(100))
    read = spark.read.format("perseid").option("nameserver", broker.namesrv).option("subscribe", "under-its-id")
    assert (read.load().count(), read.option("dedupe", "false").load().count()) == (100, 200)


def test_wrong_columns_and_options_are_refused_by_name(spark: Any, broker: EmbeddedBroker) -> None:
    broker.create_topic("refused", 1)
    good = spark.range(1).selectExpr("string(id) AS value")
    for rows, option, said in (
        (spark.range(1).selectExpr("string(id) AS valeu"), {}, "did you mean 'value'"),
        (good, {"partitoner": "key"}, "did you mean 'partitioner'"),
        (spark.range(1).selectExpr("id AS value"), {}, "'value' is bigint"),
    ):
        writer = rows.write.format("perseid").mode("append").option("nameserver", broker.namesrv)
        with pytest.raises(Exception, match=said):
            writer.option("topic", "refused").options(**option).save()
    with pytest.raises(Exception, match="did you mean 'startingOffsets'"):
        spark.read.format("perseid").option("nameserver", broker.namesrv).option("startingOfsets", "earliest").load()


def test_a_read_that_is_used_twice_with_different_filters_loses_nothing(spark: Any, broker: EmbeddedBroker) -> None:
    """Spark keeps one set of pushed filters for it: so none are taken unless pushDown is asked for."""
    fill(broker, "twice", 60)
    read = spark.read.format("perseid").option("nameserver", broker.namesrv).option("subscribe", "twice").load()
    assert read.where("offset < 5").union(read.where("offset >= 5")).count() == 60
    assert read.where("tag = 't1'").union(read).count() == 80
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert read.where("tag = 't1'").count() == 20
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def copy(spark: Any, broker: EmbeddedBroker, source: str, target: str, checkpoint: Path, **more: str) -> None:
    """A stream from topic to topic, as far as the source goes."""
    read = spark.readStream.format("perseid").option("nameserver", broker.namesrv).option("subscribe", source)
    read = read.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", more.pop("most", "40"))
    write = read.load().selectExpr("value", "tag", "keys").writeStream.format("perseid").options(**more)
    write = write.option("nameserver", broker.namesrv).option("topic", target)
    write = write.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    write.start().awaitTermination(300)


@pytest.mark.slow
def test_item_2_a_checkpoint_that_is_restored_from_an_older_copy_loses_no_row(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    broker.create_topic("restored", 2)
    now, oldest, older = (tmp_path / name for name in ("now", "oldest", "older"))
    for batch, kept in enumerate((oldest, older, None)):
        fill(broker, "before-restored", 40, start=40 * batch)
        copy(spark, broker, "before-restored", "restored", now)
        if kept is not None:
            shutil.copytree(now, kept)

    def everything() -> list[bytes]:
        return sorted(consumed(broker, "restored", dedupe=True))

    assert everything() == sorted(f"body {i}".encode() for i in range(120))
    fill(broker, "before-restored", 40, start=120)
    with pytest.raises(Exception, match=r"restored: batch 1 of query \w+ was not sent, for batch 2 was begun already"):
        copy(spark, broker, "before-restored", "restored", oldest, most="1000")  # batch 1, with the new rows too
    assert len(consumed(broker, "restored", dedupe=False)) == 120
    copy(spark, broker, "before-restored", "restored", older, most="1000")  # batch 2, with the new rows too
    wanted = {f"body {i}".encode() for i in range(160)}
    assert set(everything()) == wanted and len(everything()) <= 200
    read = spark.read.format("perseid").option("nameserver", broker.namesrv).option("subscribe", "restored").load()
    assert {bytes(row.value) for row in read.collect()} == wanted
    copy(spark, broker, "before-restored", "restored", oldest, queryId="a-new-name")
    assert len(everything()) > 240, "under another name all of it is new"


@pytest.mark.slow
@pytest.mark.parametrize("where", in_ci(("task", "before commit", "after commit"), "task"))
def test_a_stream_that_is_killed_and_started_again_writes_each_row_once(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path, where: str
) -> None:
    source, target = f"from-{where.replace(' ', '-')}", f"to-{where.replace(' ', '-')}"
    fill(broker, source, 130)
    broker.create_topic(target, 3)
    script = [sys.executable, "-c", COPY, broker.namesrv, source, target, str(tmp_path / "checkpoint")]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    killed = subprocess.run([*script, where], env=environment, capture_output=True, timeout=500)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    (
        spark.readStream.format("perseid")
        .option("nameserver", broker.namesrv)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "40")
        .load()
        .selectExpr("value", "tag", "keys", "keys AS orderingKey")
        .writeStream.format("perseid")
        .option("nameserver", broker.namesrv)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination(300)
    )
    wanted = sorted(f"body {i}".encode() for i in range(130))
    assert len(consumed(broker, target, dedupe=False)) > 130, "something was sent twice"
    assert sorted(consumed(broker, target, dedupe=True)) == wanted
    read = spark.read.format("perseid").option("nameserver", broker.namesrv).option("subscribe", target).load()
    assert sorted(bytes(row.value) for row in read.collect()) == wanted
