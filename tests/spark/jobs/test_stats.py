"""Size, rate and skew are what they are, of topics and of folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.conftest import fill
from tests.spark.log.logs import T0, record, written

from perseid.base.errors import ConfigError
from perseid.client import Message
from perseid.client.blocking import BlockingProducer
from perseid.spark.jobs.stats import Stats, Topic, rates, stats
from perseid.testing.embedded import EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

SECONDS = 100
START_S = T0 // 1000


def one_a_second(place: int, number: int) -> bytes:
    """Four of "even" in queues 0 and 1, then one of "skewed": three of four of those in queue 2."""
    if number % 5 == 4:
        queue = 2 if number % 20 != 4 else 0
        return record(place, topic="skewed", queue_id=queue, stored=T0 + number * 200, body=bytes(50))
    return record(place, topic="even", queue_id=number % 5 % 2, stored=T0 + number * 200)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = bytearray()
    for number in range(SECONDS * 5):
        data += one_a_second(len(data), number)
    damaged = len(data)
    data += record(len(data), topic="even", queue_id=0, stored=T0 + 1000, body=b"hello")
    data[damaged + 90] ^= 1  # its body
    return written(tmp_path_factory.mktemp("store") / "commitlog", [(0, bytes(data) + bytes(1000))]).parent


def by_name(found: Stats) -> dict[str, Topic]:
    return {topic.name: topic for topic in found.topics}


def test_a_folder_is_counted_by_queue_and_second(spark: Any, folder: Path) -> None:
    steps: list[tuple[int, int]] = []
    found = stats(spark, folders=[str(folder)], on_progress=lambda *at: steps.append(at))
    topics = by_name(found)
    even, skewed = topics["even"], topics["skewed"]
    assert (even.records, skewed.records, found.corrupt) == (401, 100, 1)
    size = len(record(0, topic="even"))
    assert (even.bytes, even.largest) == (401 * size, size)
    assert (even.queues, skewed.queues, skewed.fullest) == (2, 2, f"{folder} 2")
    assert even.skew == pytest.approx(201 / 200.5, abs=0.001) and skewed.skew == 1.5
    assert {(q.topic, q.queue_id): q.records for q in found.queues} == {
        ("even", 0): 201, ("even", 1): 200, ("skewed", 0): 25, ("skewed", 2): 75,
    }  # fmt: skip
    assert (even.first_ms, even.last_ms) == (T0, T0 + (SECONDS - 1) * 1000)
    assert (even.per_second, even.peak_per_second) == (4.01, 5.0) and found.bucket_s == 1
    buckets = {(name, start): count for name, start, count, _ in found.over_time}
    assert buckets["even", START_S + 1] == 5 and buckets["even", START_S + 50] == 4
    assert sum(count for _, _, count, _ in found.over_time) == 501
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_topics_are_asked_of_their_brokers(spark: Any, broker: EmbeddedBroker) -> None:
    fill(broker, "stats-even", 200, queues=4)
    broker.create_topic("stats-one", 8)
    broker.create_topic("stats-none", 2)
    with BlockingProducer(broker.namesrv) as producer:
        queue = next(q for q in producer.queues("stats-one") if q.queue_id == 3)
        for number in range(10):
            producer.send(Message("stats-one", b"x" * number + b"y"), queue=queue)
    found = stats(spark, nameserver=broker.namesrv, topics=["stats-even", "stats-one", "stats-none"])
    topics = by_name(found)
    assert topics["stats-even"].records == 200 and topics["stats-even"].queues == 4
    assert topics["stats-even"].bytes == sum(len(f"body {number}") for number in range(200))
    one = topics["stats-one"]
    assert (one.records, one.bytes, one.largest, one.queues, one.skew) == (10, 55, 10, 8, 8.0)
    assert one.fullest.endswith(" 3")
    assert (topics["stats-none"].records, topics["stats-none"].queues) == (0, 2)


@given(
    bucket_s=st.sampled_from([1, 2, 5, 10, 60]),
    seconds=st.dictionaries(st.integers(-70, 200), st.integers(1, 50), min_size=1, max_size=30),
)
def test_item_10_the_mean_is_never_above_the_peak(bucket_s: int, seconds: dict[int, int]) -> None:
    buckets: dict[int, int] = {}
    for second, records in seconds.items():
        start = second // bucket_s * bucket_s
        buckets[start] = buckets.get(start, 0) + records
    first, last = min(seconds), max(seconds)
    mean, peak = rates(first, last, bucket_s, list(buckets.items()))
    assert mean == sum(seconds.values()) / (last - first + 1)
    assert mean <= peak <= max(seconds.values())
    assert round(mean, 3) <= round(peak, 3)


def test_item_10_a_topic_at_the_edge_of_two_buckets_has_a_peak(spark: Any, tmp_path: Path) -> None:
    """4 seconds of which each bucket of 5 has two; others make buckets of 5 seconds."""
    data = bytearray()
    edge_s = (START_S // 5 + 1) * 5
    for number in range(8):
        data += record(len(data), topic="edge", stored=(edge_s - 2) * 1000 + number * 500)
    for at in (0, 500):
        data += record(len(data), topic="long", stored=(edge_s + at) * 1000)
    data += record(len(data), topic="long", stored=1 << 62)  # no time: it counts as a message, and in no rate
    folder = written(tmp_path / "commitlog", [(0, bytes(data) + bytes(1000))]).parent
    found = stats(spark, folders=[str(folder)])
    edge, long = by_name(found)["edge"], by_name(found)["long"]
    assert found.bucket_s == 5 and (edge.records, edge.per_second, edge.peak_per_second) == (8, 2.0, 2.0)
    assert (long.records, found.corrupt, long.per_second) == (3, 1, round(2 / 501, 3))
    assert long.per_second <= long.peak_per_second


@pytest.mark.slow
def test_the_command_makes_a_report(command: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = command("stats", "--folder", folder, "--json", "--report", report)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["event"] == "done" and {topic["name"] for topic in told["topics"]} == {"even", "skewed"}
    text = report.read_text()
    assert text.count("<picture>") == 2 and "501 messages" in text and "skewed" in text
    said = command("stats", "--folder", folder, "skewed").stdout
    assert "100 messages" in said and "skew 1.50" in said and "even" not in said


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "either a name server"),
        ({"nameserver": "", "folders": ["/x"]}, "either a name server"),
        ({"folders": ["/nowhere"]}, "there is no such folder"),
        ({"folders": ["/a,/b"]}, "can't have a comma"),
        ({"nameserver": "", "topics": ["stats-evem"]}, "knows no topic 'stats-evem': did you mean 'stats-even'"),
    ],
)
def test_what_is_not_there_is_said(spark: Any, broker: EmbeddedBroker, more: dict[str, Any], words: str) -> None:
    broker.create_topic("stats-even", 4)
    if "nameserver" in more:
        more = {**more, "nameserver": broker.namesrv}
    with pytest.raises(ConfigError, match=words):
        stats(spark, **more)
