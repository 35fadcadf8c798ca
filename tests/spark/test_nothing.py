"""Reads of nothing are empty frames (issue 20, number 7): Spark makes a partition itself where a source plans none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.combinations import at_each_change
from tests.spark.conftest import fill
from tests.spark.log.logs import record, written

from perseid.spark.jobs.archive import archive, read
from perseid.spark.jobs.dead_letters import dead_letters
from perseid.spark.jobs.dead_letters import lines as dead_letter_lines
from perseid.spark.jobs.dead_letters import page as dead_letter_page
from perseid.spark.jobs.replay import replay
from perseid.spark.jobs.stats import lines, page, stats
from perseid.spark.jobs.trace import lines as trace_lines
from perseid.spark.jobs.trace import page as trace_page
from perseid.spark.jobs.trace import trace
from perseid.testing.embedded import EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

FUTURE_MS = str(1 << 42)


@pytest.fixture(scope="module", autouse=True)
def topics(broker: EmbeddedBroker) -> None:
    broker.create_topic("nothing", 2)
    fill(broker, "something", 20, queues=1)


def of(topic: str, **more: str) -> Callable[[Any], Any]:
    return lambda source: source.option("subscribe", topic).options(**more).load()


READS: dict[str, Callable[[Any], Any]] = {
    "an empty topic": of("nothing"),
    "a pattern that no topic matches": lambda source: source.option("subscribePattern", "no-such-.*").load(),
    "a time range without messages": of("something", startingTimestamp=FUTURE_MS),
    "an end before the start": of("something", endingTimestamp="1"),
    "a pushed filter": lambda source: of("something", pushDown="true")(source).where("queueId = 77"),
    "a pushed time": lambda source: (
        of("something", pushDown="true")(source).where("storeTimestamp > timestamp'2100-01-01'")
    ),
    "no offsets between": of(
        "something", startingOffsets='{"something": {"embedded:0": 5}}',
        endingOffsets='{"something": {"embedded:0": 5}}',
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", at_each_change(tuple(READS), "an empty topic", "a pushed filter"))
def test_item_7_a_batch_read_of_nothing_is_an_empty_frame(spark: Any, broker: EmbeddedBroker, kind: str) -> None:
    source = lambda: spark.read.format("perseid").option("nameserver", broker.namesrv)  # noqa: E731 - a new one each
    frame = READS[kind](source())
    assert frame.columns == of("something")(source()).columns and "value" in frame.columns
    assert (frame.collect(), frame.count()) == ([], 0)
    narrow = READS[kind](source().schema("queueId int, storeTimestamp timestamp, tag string"))
    assert narrow.columns == ["queueId", "storeTimestamp", "tag"]
    assert (narrow.select("tag").collect(), narrow.count(), narrow.groupBy("tag").count().collect()) == ([], 0, [])
    assert frame.unionByName(of("something")(source())).count() == 20


def test_item_7_a_stream_of_nothing_ends_and_goes_on_later(spark: Any, broker: EmbeddedBroker, tmp_path: Path) -> None:
    broker.create_topic("not-yet", 2)
    seen: list[int] = []

    def run() -> None:
        (
            spark.readStream.format("perseid").option("nameserver", broker.namesrv).option("subscribe", "not-yet")
            .option("startingOffsets", "earliest").load()
            .writeStream.foreachBatch(lambda frame, _: seen.append(frame.count()))
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        ).awaitTermination(120)  # fmt: skip

    run()
    assert sum(seen) == 0
    fill(broker, "not-yet", 7, queues=2)
    run()
    assert sum(seen) == 7


def test_item_7_a_log_of_nothing_is_an_empty_frame(spark: Any, tmp_path: Path) -> None:
    empty = written(tmp_path / "empty" / "commitlog", [(0, bytes(4096))])
    full = written(tmp_path / "full" / "commitlog", [(0, record(0, topic="a") + bytes(4096))])
    source = lambda: spark.read.format("perseid-log").option("pushDown", "true")  # noqa: E731
    nothing = {
        "no record": source().load(str(empty.parent)),
        "a filter": source().load(str(full.parent)).where("physicalOffset > 1000000000"),
    }
    for kind, frame in nothing.items():
        assert frame.columns == source().load(str(full.parent)).columns, kind
        assert (frame.collect(), frame.count(), frame.select("_corrupt").collect()) == ([], 0, []), kind
    narrow = source().schema("topic string, _corrupt string").load(str(empty.parent))
    assert (narrow.columns, narrow.collect(), narrow.count()) == (["topic", "_corrupt"], [], 0)
    assert source().load(str(full.parent)).count() == 1


@pytest.mark.slow
def test_item_7_jobs_over_nothing_say_so(spark: Any, broker: EmbeddedBroker, tmp_path: Path) -> None:
    broker.create_topic("jobless", 3)
    broker.create_topic("%DLQ%jobless", 1)
    given = {"nameserver": broker.namesrv}
    found = stats(spark, **given, topics=["jobless"])
    assert [(t.name, t.records, t.queues) for t in found.topics] == [("jobless", 0, 3)] and lines(found)
    assert "jobless" in page(found).html()
    traced = trace(spark, **given, topic="jobless")
    assert (traced.traces, traced.latencies) == (0, ()) and trace_lines(traced) and trace_page(traced).html()
    dead = dead_letters(spark, **given, groups=["jobless"])
    assert dead_letter_lines(dead) and dead_letter_page(dead).html() and dead.records == 0
    table = str(tmp_path / "table")
    done = archive(spark, **given, topic="jobless", table=table)
    assert done.rows == 0 and read(spark, table).count() == 0
    assert replay(spark, **given, topic="jobless", table=table).rows == 0
