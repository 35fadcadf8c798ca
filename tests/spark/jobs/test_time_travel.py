"""A topic as of a time: archive and log together, each place once."""

from pathlib import Path
from typing import Any

import pytest
from tests.client.stamped import forwarded
from tests.combinations import in_ci
from tests.spark.conftest import fill

from perseid.base.errors import ConfigError
from perseid.client.blocking import BlockingProducer, BlockingPullConsumer
from perseid.client.model import MessageQueue
from perseid.spark.jobs.archive import archive
from perseid.spark.jobs.archive.folder import Plan
from perseid.spark.jobs.options import ArchiveOptions
from perseid.spark.jobs.time_travel import missing, time_travel, travel
from perseid.spark.plan import DataLost, Range
from perseid.testing.embedded import EmbeddedBroker

Q = MessageQueue("t", "b", 0)


def test_what_is_missing_is_what_the_archive_does_not_cover() -> None:
    covered = Plan({"t/b/0": 10}, {"t/b/0": 20}, {"t/b/0": 1000})
    first, latest = {"t/b/0": 0}, {"t/b/0": 30}
    assert missing(first, latest, covered, 2000, strict=True) == [Range(Q, 0, 10), Range(Q, 20, 30)]
    assert missing({"t/b/0": 15}, latest, covered, 2000, strict=True) == [Range(Q, 20, 30)]
    assert missing({"t/b/0": 20}, {"t/b/0": 20}, covered, 2000, strict=True) == []
    assert missing(first, latest, Plan({}, {}), 2000, strict=True) == [Range(Q, 0, 30)]
    with pytest.raises(DataLost, match="ends at offset 20, the log begins at 25"):
        missing({"t/b/0": 25}, latest, covered, 2000, strict=True)
    assert missing({"t/b/0": 25}, latest, covered, 2000, strict=False) == [Range(Q, 25, 30)]
    assert missing({"t/b/0": 25}, latest, covered, 999, strict=True) == [], "all that is gone is later"


def truth(broker: EmbeddedBroker, topic: str) -> list[tuple[int, str, int, int]]:
    """Store time and place of each message, from the broker."""
    with BlockingPullConsumer(broker.namesrv, "truth") as consumer:
        return sorted(
            (message.store_timestamp, queue.broker_name, queue.queue_id, message.queue_offset)
            for queue in consumer.queues(topic)
            for found in consumer.read(queue, 0, consumer.max_offset(queue))
            for message in found
        )


def found_in(rows: Any) -> list[tuple[int, str, int, int]]:
    return sorted(
        (round(row.storeTimestamp.timestamp() * 1000), row.brokerName, row.queueId, row.queueOffset)
        for row in rows.collect()
    )


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", in_ci(("parquet", "iceberg"), "parquet"))
def test_archive_and_log_together_have_each_message_once_at_any_time(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path, form: str
) -> None:
    topic, table = f"travel-{form}", str(tmp_path / "t")
    fill(broker, topic, 60)
    archive(spark, nameserver=broker.namesrv, topic=topic, table=table, options=ArchiveOptions(format=form))
    fill(broker, topic, 40, start=60)
    told = truth(broker, topic)
    store = str(next(path.parent for path in broker.data.rglob("commitlog")))
    middle, archived_to = told[30][0], max(at for at, *_ in told[:60])
    for at in (told[0][0] - 1, middle, archived_to, told[-1][0]):
        wanted = [row for row in told if row[0] <= at]
        given: dict[str, Any] = {"topic": topic, "as_of": at, "table": table}
        assert found_in(time_travel(spark, nameserver=broker.namesrv, **given)) == wanted
        if at in (middle, told[-1][0]):
            assert found_in(time_travel(spark, stores={"embedded": store}, **given)) == wanted
    assert found_in(time_travel(spark, nameserver=broker.namesrv, topic=topic, as_of=told[-1][0])) == told
    rows = time_travel(spark, stores={"embedded": store}, topic=topic, as_of=told[-1][0])
    live = time_travel(spark, nameserver=broker.namesrv, topic=topic, as_of=told[-1][0])
    assert rows.columns == [*live.columns, "_corrupt"]
    assert sorted(map(str, rows.drop("_corrupt", "properties").collect())) == sorted(
        map(str, live.drop("properties").collect())
    )
    out = tmp_path / "out"
    done = travel(spark, nameserver=broker.namesrv, topic=topic, table=table, as_of=told[-1][0], out=str(out))
    assert (done.rows, done.archived) == (100, 60)
    assert spark.read.parquet(str(out)).count() == 100
    with pytest.raises(ConfigError, match="there already"):
        travel(spark, nameserver=broker.namesrv, topic=topic, as_of=0, out=str(out))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
def test_what_a_stamped_writer_sent_twice_is_there_once_from_folders_too(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    broker.create_topic("stamped", 2)

    def write(first: int = 0) -> None:
        rows = spark.range(first, first + 50, 1, 2).selectExpr("string(id) AS value")
        writer = rows.write.format("perseid").mode("append").option("nameserver", broker.namesrv)
        writer.option("topic", "stamped").option("queryId", "twice").option("batchId", "1").save()

    write()
    write()
    table, store = str(tmp_path / "t"), str(next(path.parent for path in broker.data.rglob("commitlog")))
    later = 1 << 42
    assert archive(spark, nameserver=broker.namesrv, topic="stamped", table=table).rows == 50
    write()
    given: dict[str, Any] = {"topic": "stamped", "as_of": later}
    for more in ({}, {"table": table}):
        assert time_travel(spark, stores={"embedded": store}, **given, **more).count() == 50
        assert time_travel(spark, nameserver=broker.namesrv, **given, **more).count() == 50
    options = {"dedupe": "false"}
    assert time_travel(spark, stores={"embedded": store}, source_options=options, **given).count() == 150
    write(1000)  # the same batch with other rows
    with BlockingPullConsumer(broker.namesrv, "handler") as consumer, BlockingProducer(broker.namesrv) as producer:
        queue = consumer.queues("stamped")[0]
        one = next(iter(consumer.read(queue, 0, 5)))[0]
        for again in (
            forwarded(one, b"edited"), forwarded(one, ORIGIN_MESSAGE_ID="x"), forwarded(one, UNIQ_KEY="x")
        ):  # fmt: skip
            producer.send(again, queue=queue)
    for more in ({}, {"table": table}):
        assert time_travel(spark, stores={"embedded": store}, **given, **more).count() == 103
        assert time_travel(spark, nameserver=broker.namesrv, **given, **more).count() == 103


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
def test_what_cannot_be_asked_is_refused(spark: Any, broker: EmbeddedBroker, tmp_path: Path) -> None:
    fill(broker, "asked", 10)
    archive(spark, nameserver=broker.namesrv, topic="asked", table=str(tmp_path / "t"))
    given: dict[str, Any] = {"topic": "asked", "as_of": 0}
    for more, said in (
        ({}, "say where the live log is"),
        ({"nameserver": "x:1", "stores": {"b": "/x"}}, "say where the live log is"),
        ({"nameserver": broker.namesrv, "table": str(tmp_path / "u")}, "is no archive"),
        (
            {"nameserver": broker.namesrv, "table": str(tmp_path / "t"), "topic": "other"},
            "holds topic asked, not other",
        ),
        ({"stores": {"b": str(tmp_path)}, "source_options": {"dedup": "true"}}, "did you mean 'dedupe'"),
        ({"nameserver": broker.namesrv, "topic": "aasked"}, "did you mean 'asked'"),
        (
            {"nameserver": broker.namesrv, "source_options": {"endingOffset": "latest"}},
            "sets the option endingOffsets itself",
        ),
        (
            {"nameserver": broker.namesrv, "source_options": {"startingtimestamp": "1"}},
            "sets the option startingTimestamp",
        ),
    ):
        with pytest.raises(ConfigError, match=said):
            time_travel(spark, **{**given, **more})
    options = ArchiveOptions(source_options={"endingTimestamp": "1"})
    with pytest.raises(ConfigError, match="the archive sets the option endingTimestamp itself"):
        archive(spark, nameserver="h:1", topic="t", table=str(tmp_path / "v"), options=options)
