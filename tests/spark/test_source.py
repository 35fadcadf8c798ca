"""The source on a real broker: batches, streams, schemas, lost data."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.combinations import at_each_change
from tests.spark.conftest import fill

from perseid.client import Message
from perseid.client.blocking import BlockingProducer
from perseid.spark.jobs.stats import stats
from perseid.testing.embedded import EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


def reader(spark: Any, broker: EmbeddedBroker, topic: str) -> Any:
    return spark.read.format("perseid").option("nameserver", broker.namesrv).option("subscribe", topic)


def test_a_topic_is_a_table(spark: Any, broker: EmbeddedBroker) -> None:
    fill(broker, "table", 500)
    rows = reader(spark, broker, "table").load().collect()
    assert len(rows) == 500
    assert len({(row.brokerName, row.queueId, row.queueOffset) for row in rows}) == 500
    by_key = {row.keys: row for row in rows}
    row = by_key["k17"]
    assert (bytes(row.value), bytes(row.key), row.tag, row.properties["i"]) == (b"body 17", b"k17", "t2", "17")
    assert (row.topic, row.partition, row.offset) == ("table", row.queueId, row.queueOffset)
    assert row.timestamp == row.storeTimestamp
    assert abs(row.timestamp - row.bornTimestamp) < timedelta(minutes=1)  # two clocks: which is ahead is not said


def test_a_schema_of_fewer_columns_is_all_that_is_read(spark: Any, broker: EmbeddedBroker) -> None:
    fill(broker, "narrow", 60)
    frame = reader(spark, broker, "narrow").schema("tag string, queueOffset bigint, body binary").load()
    assert frame.columns == ["tag", "queueOffset", "body"]
    assert {bytes(row.body) for row in frame.collect()} == {f"body {i}".encode() for i in range(60)}


def test_tags_headers_and_offsets(spark: Any, broker: EmbeddedBroker) -> None:
    fill(broker, "chosen", 120, queues=1)
    tagged = reader(spark, broker, "chosen").option("tags", "t0 || t1").load()
    assert tagged.count() == 80
    middle = (
        reader(spark, broker, "chosen")
        .option("startingOffsets", '{"chosen": {"embedded:0": 20}}')
        .option("endingOffsets", '{"chosen": {"embedded:0": 50}}')
        .option("minPartitions", "4")
        .option("includeHeaders", "true")
        .option("includeBody", "false")
        .load()
    )
    assert "value" not in middle.columns
    assert middle.rdd.getNumPartitions() >= 4
    rows = sorted(middle.collect(), key=lambda row: row.queueOffset)
    assert [row.queueOffset for row in rows] == list(range(20, 50))
    assert {header.key: bytes(header.value) for header in rows[0].headers}["i"] == b"20"


def test_a_pattern_reads_all_topics_that_match(spark: Any, broker: EmbeddedBroker) -> None:
    fill(broker, "pattern-a", 10)
    fill(broker, "pattern-b", 20)
    source = spark.read.format("perseid").option("nameserver", broker.namesrv)
    frame = source.option("subscribePattern", "pattern-.").load()
    assert {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()} == {
        "pattern-a": 10,
        "pattern-b": 20,
    }


def test_item_9_a_pattern_reads_users_topics_alone(spark: Any, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        fill(broker, "mine", 6)
        broker.create_topic("%DLQ%mine", 1)
        with BlockingProducer(broker.namesrv) as producer:
            producer.send(Message("%DLQ%mine", b"dead"))
            for _ in range(3):
                producer.send(Message("mine", b"later", delay_level=18))
        source = spark.read.format("perseid").option("nameserver", broker.namesrv)

        def counts(option: str, value: str) -> dict[str, int]:
            rows = source.option(option, value).load().groupBy("topic").count().collect()
            return {row.topic: row["count"] for row in rows}

        assert counts("subscribePattern", ".*") == {"mine": 6}
        source = spark.read.format("perseid").option("nameserver", broker.namesrv)
        assert counts("subscribePattern", "mine|%DLQ%.*") == {"mine": 6, "%DLQ%mine": 1}
        source = spark.read.format("perseid").option("nameserver", broker.namesrv)
        assert counts("subscribe", "SCHEDULE_TOPIC_XXXX") == {"SCHEDULE_TOPIC_XXXX": 3}, "whoever names it gets it"
        assert [topic.name for topic in stats(spark, nameserver=broker.namesrv).topics] == ["mine"]
        assert [t.name for t in stats(spark, nameserver=broker.namesrv, topics=["TBW102"]).topics] == ["TBW102"]


@pytest.mark.parametrize("option", at_each_change(("endingOffsets", "endingTimestamp"), "endingOffsets"))
def test_item_10_a_stream_with_an_end_does_not_start(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path, option: str
) -> None:
    fill(broker, "endless", 10, queues=1)
    value = {"endingOffsets": '{"endless": {"embedded:0": 1}}', "endingTimestamp": "1"}[option]
    assert reader(spark, broker, "endless").option(option, value).load().count() < 10, "a batch takes it"
    stream = spark.readStream.format("perseid").option("nameserver", broker.namesrv).option("subscribe", "endless")
    rows: list[Any] = []
    writer = (
        stream.option(option, value).load().writeStream.foreachBatch(lambda frame, _: rows.extend(frame.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    )  # fmt: skip
    with pytest.raises(Exception, match=rf"{option}: a stream has no end: .*availableNow=True"):
        writer.start().awaitTermination(120)
    assert rows == []


def test_offsets_that_are_gone_fail_unless_that_is_allowed(spark: Any, broker: EmbeddedBroker) -> None:
    fill(broker, "lost", 30, queues=1)
    beyond = reader(spark, broker, "lost").option("endingOffsets", '{"lost": {"embedded:0": 90}}')
    with pytest.raises(Exception, match="failOnDataLoss"):
        beyond.load().count()
    assert beyond.option("failOnDataLoss", "false").load().count() == 30


def test_a_stream_takes_what_is_there_in_limited_batches_and_goes_on_later(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    fill(broker, "streamed", 130)
    sizes: list[int] = []
    seen: list[tuple[int, int]] = []

    def take(frame: Any, batch: int) -> None:
        rows = frame.collect()
        sizes.append(len(rows))
        seen.extend((row.queueId, row.queueOffset) for row in rows)

    def run() -> None:
        query = (
            spark.readStream.format("perseid")
            .option("nameserver", broker.namesrv)
            .option("subscribe", "streamed")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "40")
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    run()
    assert sizes == [40, 40, 40, 10]
    fill(broker, "streamed", 25, start=130)
    run()
    assert sum(sizes) == 155
    assert len(set(seen)) == len(seen) == 155
