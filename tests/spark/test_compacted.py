"""Compacted topics are read over the holes that compaction made (issue 20, number 8), without Spark's Java."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark import compacted as made
from tests.spark.compacted import QUEUE, TOPIC
from tests.spark.conftest import fill
from tests.spark.test_reading import NAMES, options_of, rows, rows_of

from perseid.client import ServerRefused
from perseid.client.blocking import BlockingPullConsumer
from perseid.spark import plan, pushdown, reading
from perseid.spark.bounds import Bounds
from perseid.spark.plan import DataLost
from perseid.spark.pushdown import Pushed
from perseid.spark.reading import QueueRange, RangeReport, read_range
from perseid.testing.embedded import EmbeddedBroker

KEYS, COUNT = 7, 200


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with made.broker_in(tmp_path_factory.mktemp("compacted")) as running:
        made.make(running)
        made.send(running, COUNT, KEYS)
        made.compacted(running, 60)
        yield running


@pytest.mark.parametrize("strict", ["true", "false"])
def test_item_8_holes_of_a_compacted_topic_are_read_over(broker: EmbeddedBroker, strict: str) -> None:
    offsets = made.there(broker)
    assert offsets[0] > 0 and len(offsets) < 60 and set(range(COUNT - KEYS, COUNT)) <= set(offsets)
    options = options_of(broker, TOPIC, failOnDataLoss=strict, deadlineMs="2000")
    found = rows(options)
    assert [row["queueOffset"] for row in found] == offsets
    assert [row["value"] for row in found] == [b"%d" % offset for offset in offsets]
    for start, end in ((0, COUNT), (0, offsets[0]), (offsets[0] - 1, offsets[1]), (0, 1), (1, COUNT - 1)):
        part, report = QueueRange(plan.Range(QUEUE, start, end)), RangeReport()
        batches = list(read_range(options, NAMES, part, Pushed(), report))
        got = [row["queueOffset"] for batch in batches for row in batch.to_pylist()]
        assert got == [offset for offset in offsets if start <= offset < end]
        assert report.missing == [], "a hole that compaction made is no gap"
    split = [
        row["queueOffset"]
        for part in plan.split([plan.Range(QUEUE, 0, COUNT)], 23)
        for row in rows_of(options, QueueRange(part))
    ]
    assert split == offsets, "each piece alone"


def test_item_8_ends_that_are_not_there_are_lost_in_a_compacted_topic_too(broker: EmbeddedBroker) -> None:
    part = QueueRange(plan.Range(QUEUE, 0, COUNT + 5))
    with pytest.raises(DataLost, match=f"offsets 0 to {COUNT + 4} were to be read"):
        rows_of(options_of(broker, TOPIC), part)
    report = RangeReport()
    list(read_range(options_of(broker, TOPIC, failOnDataLoss="false"), NAMES, part, Pushed(), report))
    assert report.missing == [(COUNT, COUNT + 5)]


def test_item_8_a_compacted_queue_that_is_behind_is_waited_for(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files follow the log: an answer that ends early is no hole."""
    read, times = reading.Pulls.read, [0]

    def short(self: reading.Pulls, start: int, end: int) -> Iterator[object]:
        times[0] += 1
        return read(self, start, end if times[0] > 1 else min(end, COUNT - 3))

    monkeypatch.setattr(reading.Pulls, "read", short)
    found = rows_of(options_of(broker, TOPIC), QueueRange(plan.Range(QUEUE, COUNT - 6, COUNT)))
    assert [row["queueOffset"] for row in found] == list(range(COUNT - 6, COUNT)) and times == [2]


def test_item_8_a_hole_in_any_other_topic_is_a_lost_message(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, "plain", 20, queues=1)
    read = reading.Pulls.read
    monkeypatch.setattr(reading.Pulls, "read", lambda self, start, end: read(self, max(start, 5), end))
    part = QueueRange(plan.Range(QUEUE._replace(topic="plain"), 0, 20))
    with pytest.raises(DataLost, match="offset 5 came where 0 was expected"):
        rows_of(options_of(broker, "plain", deadlineMs="300"), part)
    report = RangeReport()
    list(read_range(options_of(broker, "plain", failOnDataLoss="false"), NAMES, part, Pushed(), report))
    assert report.missing == [(0, 5)]


def test_item_8_a_broker_that_does_not_tell_has_no_compacted_topics(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: BlockingPullConsumer, queue: object) -> bool:
        raise ServerRefused(3, "request type 351 not supported", "h:1")

    monkeypatch.setattr(BlockingPullConsumer, "is_compacted", refuse)
    with pytest.raises(DataLost, match="came where 0 was expected"):
        rows_of(options_of(broker, TOPIC, deadlineMs="300"), QueueRange(plan.Range(QUEUE, 0, COUNT)))


def test_item_8_what_the_log_has_lost_is_read_from_the_compacted_queue(tmp_path: Path) -> None:
    with made.broker_in(tmp_path) as broker:
        made.make(broker)
        made.send(broker, 3, 3, name="once")
        made.send(broker, COUNT, KEYS)
        made.compacted(broker, 60)
        broker.stop()
        segments = sorted(broker.data.rglob("commitlog/0*"))
        assert len(segments) > 1
        segments[0].unlink()
        broker.start()
        with BlockingPullConsumer(broker.namesrv, "look") as consumer:
            low = consumer.min_offset(QUEUE)
            assert low > 3 and consumer.is_compacted(QUEUE)
        offsets = made.there(broker)
        assert offsets[:3] == [0, 1, 2]
        for more in ({}, {"failOnDataLoss": "false"}, {"startingTimestamp": "5"},
                     {"startingOffsets": '{"keyed": {"embedded:0": 1}}'}):  # fmt: skip
            options = options_of(broker, TOPIC, deadlineMs="2000", **more)
            wanted = offsets[1:] if "startingOffsets" in more else offsets
            assert [row["queueOffset"] for row in rows(options)] == wanted, more
        options = options_of(broker, TOPIC)
        with Bounds(options) as found:
            assert (found.earliest(), found.starting()) == ({"keyed/embedded/0": 0},) * 2
        kept = rows(options, pushdown.Pushed(times_ms=(5, 2**42)))
        assert [row["queueOffset"] for row in kept] == offsets, "a pushed time drops nothing that only it has"
        report = RangeReport()
        part = QueueRange(plan.Range(QUEUE, 0, COUNT + 3))
        list(read_range(options_of(broker, TOPIC, failOnDataLoss="false"), NAMES, part, Pushed(), report))
        assert report.missing == []
