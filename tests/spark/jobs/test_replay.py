"""Replays on a real broker: in order, filtered by time, at a rate, continued."""

from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import fill

from perseid.base.errors import ConfigError, PerseidError
from perseid.client import Message, PullOptions
from perseid.client.blocking import BlockingProducer, BlockingPullConsumer
from perseid.client.model import ReceivedMessage
from perseid.spark.jobs import replay as module
from perseid.spark.jobs.archive import archive, read
from perseid.spark.jobs.options import ArchiveOptions, ReplayOptions
from perseid.spark.jobs.replay import _ranges, replay
from perseid.testing.embedded import EmbeddedBroker


def consumed(broker: EmbeddedBroker, topic: str) -> dict[int, list[ReceivedMessage]]:
    """What is in each queue, without repeats."""
    with BlockingPullConsumer(broker.namesrv, "check", options=PullOptions(dedupe=True)) as consumer:
        return {
            queue.queue_id: [
                message
                for found in consumer.read(queue, 0, consumer.max_offset(queue))
                for message in found
            ]
            for queue in consumer.queues(topic)
        }  # fmt: skip


def test_ranges_follow_each_other_also_where_a_clock_was_set_back() -> None:
    # queue a: offsets 0-9 in slice 0, 10-14 in slice 2, 15-19 in slice 1 (the clock went back), 20-29 in slice 2
    found = [("a", 0, 0, 9, 10), ("a", 2, 10, 29, 15), ("a", 1, 15, 19, 5), ("b", 1, 7, 9, 3)]
    batches, rows = _ranges(found, 3)
    assert batches == [{"a": (0, 10)}, {"b": (7, 10)}, {"a": (10, 30)}]
    assert sum(rows) == 33
    assert _ranges([("a", 0, 4, 4, 1)], 1) == ([{"a": (4, 5)}], [1])


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
def test_a_replay_keeps_the_order_of_keys_goes_on_where_it_was_and_is_done_once(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("first", 3)
    broker.create_topic("again", 5)
    with BlockingProducer(broker.namesrv) as producer:
        queues = producer.queues("first")
        for i in range(120):
            key = f"o{i % 7}"
            message = Message(
                "first", f"{key} {i}".encode(), tag="t", keys=[key], properties={"__SHARDINGKEY": key, "i": "x"}
            )
            producer.send(message, queue=queues[i % 7 % 3])
    table = tmp_path / "t"
    archive(spark, nameserver=broker.namesrv, topic="first", table=str(table), options=ArchiveOptions(batch_offsets=50))
    monkeypatch.setattr(module, "BATCH_MESSAGES", 50)
    given: dict[str, Any] = {"table": str(table), "nameserver": broker.namesrv, "topic": "again"}
    batches: list[int] = []

    def stop(batch: int, rows: int) -> None:
        batches.append(rows)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(spark, **given, on_batch=stop)
    done = replay(spark, **given)
    assert done.rows + batches[0] == 120 and done.done == done.batches >= 2
    assert replay(spark, **given).rows == 0, "it is done"
    found = consumed(broker, "again")
    by_key: dict[str, list[int]] = {}
    for messages in found.values():
        for message in messages:
            key, number = message.body.decode().split()
            assert (message.tag, message.keys, message.properties["i"]) == ("t", [key], "x")
            by_key.setdefault(key, []).append(int(number))
    assert by_key == {f"o{k}": [i for i in range(120) if i % 7 == k] for k in range(7)}
    with pytest.raises(ConfigError, match="give this one another name"):
        replay(spark, **given, options=ReplayOptions(since=5))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
def test_a_replay_of_a_time_range_by_a_column_at_a_rate(spark: Any, broker: EmbeddedBroker, tmp_path: Path) -> None:
    fill(broker, "timed", 60, queues=2)
    broker.create_topic("slow", 3)
    table = tmp_path / "t"
    archive(spark, nameserver=broker.namesrv, topic="timed", table=str(table))
    times = sorted({int(row.storeTimestamp.timestamp() * 1000) for row in read(spark, str(table)).collect()})
    since, until = times[len(times) // 3], times[-1]
    rows = read(spark, str(table)).collect()
    wanted = [row for row in rows if since <= int(row.storeTimestamp.timestamp() * 1000) < until]
    given: dict[str, Any] = {"table": str(table), "nameserver": broker.namesrv, "topic": "slow"}
    options = ReplayOptions(since=since, until=until, order_by="tag", rate=1000)
    done = replay(spark, **given, options=options)
    assert done.rows == len(wanted) and done.seconds >= len(wanted) / 1000
    found = consumed(broker, "slow")
    assert sorted(m.body for queue in found.values() for m in queue) == sorted(bytes(row.value) for row in wanted)
    homes: dict[str | None, set[int]] = {}
    for queue, messages in found.items():
        for message in messages:
            homes.setdefault(message.tag, set()).add(queue)
    assert all(len(queues) == 1 for queues in homes.values()), "equal values go to one queue"
    for more, said in (
        ({"order_by": "tags", "name": "a"}, "did you mean 'tag'"),
        ({"since": 5, "until": 5, "name": "b"}, "range is empty"),
        ({"name": "../x"}, "a replay's name"),
        ({"rate": 0}, "at least one message"),
    ):
        with pytest.raises(PerseidError, match=said):
            replay(spark, **given, options=ReplayOptions(**more))
    for topic, said in (("slow er", "slow er"), ("sloow", "did you mean 'slow'")):
        with pytest.raises(PerseidError, match=said):
            replay(spark, **{**given, "topic": topic}, options=ReplayOptions(name="c"))
