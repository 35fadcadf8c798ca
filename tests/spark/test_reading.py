"""Bounds and ranges of the source on a real broker, without Spark's Java."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.client.stamped import forwarded

from perseid.base.errors import ConfigError, PerseidError
from perseid.client import ClientError, Message, MessageQueue, ProducerOptions, deduplicator
from perseid.client.blocking import BlockingAdmin, BlockingProducer, BlockingPullConsumer
from perseid.client.deduplicator import Counts
from perseid.client.stamps import STAMP, home_of, id_prefix, layout_of
from perseid.spark import bounds as bounds_module
from perseid.spark import plan, pushdown, reading
from perseid.spark.bounds import Bounds
from perseid.spark.options import SourceOptions, parse
from perseid.spark.plan import DataLost
from perseid.spark.pushdown import Pushed
from perseid.spark.reading import QueueRange, RangeReport, read_range
from perseid.spark.source import PerseidStreamReader
from perseid.testing.embedded import SMALL_STORE, EmbeddedBroker

from .conftest import fill

NAMES = ["value", "queueOffset", "tag"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds_module, "NO_ROUTE_MS", 200)


def options_of(broker: EmbeddedBroker, topic: str, *, streaming: bool = False, **more: str) -> SourceOptions:
    return parse({"nameserver": broker.namesrv, "subscribe": topic, **more}, streaming=streaming)


def rows(options: SourceOptions, pushed: Pushed | None = None) -> list[dict[str, Any]]:
    """A batch read of all that `options` say."""
    pushed = pushed or Pushed()
    with Bounds(options) as bounds:
        parts = bounds.narrowed(plan.ranges_between(bounds.starting(), bounds.ending()), pushed)
    return [
        row
        for part in parts
        for batch in read_range(options, NAMES, QueueRange(part), pushed)
        for row in batch.to_pylist()
    ]


def rows_of(options: SourceOptions, part: QueueRange) -> list[dict[str, Any]]:
    """A read of one range."""
    return [row for batch in read_range(options, NAMES, part, Pushed()) for row in batch.to_pylist()]


def test_times_for_all_queues_and_for_each(perseid_broker: EmbeddedBroker) -> None:
    fill(perseid_broker, "t", 100, queues=2)
    with BlockingPullConsumer(perseid_broker.namesrv) as consumer:
        stored = [m.store_timestamp for q in consumer.queues("t") for found in consumer.read(q, 0, 99) for m in found]
    late = str(max(stored) + 60_000)
    assert len(rows(options_of(perseid_broker, "t", startingTimestamp=str(min(stored))))) == 100
    assert rows(options_of(perseid_broker, "t", startingTimestamp=late)) == []
    assert rows(options_of(perseid_broker, "t", endingTimestamp=str(min(stored) - 1))) == []
    half = options_of(perseid_broker, "t", startingOffsetsByTimestamp=f'{{"t": {{"embedded:0": {late}}}}}')
    with BlockingPullConsumer(perseid_broker.namesrv) as consumer:
        other = consumer.max_offset(MessageQueue("t", "embedded", 1))
    assert len(rows(half)) == other, "queue 1 was not named: from its beginning"
    ended = options_of(perseid_broker, "t", endingOffsetsByTimestamp='{"t": {"embedded:0": 5}}')
    assert len(rows(ended)) == other, "queue 1 was not named: to its end"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"startingOffsets": '{"t": {"embedded:0": 101}}'}, "startingOffsets: t/embedded/0 has offsets 0 to 100, 101"),
        ({"endingOffsets": '{"t": {"embedded:0": 5000}}'}, "5000 is none of them; set failOnDataLoss=false"),
        ({"startingOffsets": '{"t": {"embeded:0": 1}}'}, "no queue t/embeded:0: did you mean 't/embedded:0'"),
        ({"startingOffsetsByTimestamp": '{"u": {"embedded:0": 1}}'}, "no queue u/embedded:0"),
    ],
)
def test_offsets_out_of_range_are_refused(perseid_broker: EmbeddedBroker, more: dict[str, str], said: str) -> None:
    fill(perseid_broker, "t", 100, queues=1)
    with pytest.raises(PerseidError, match=said):
        rows(options_of(perseid_broker, "t", **more))
    rows(options_of(perseid_broker, "t", failOnDataLoss="false", **more))


def test_a_topic_that_is_not_there_is_refused_with_the_nearest_name(perseid_broker: EmbeddedBroker) -> None:
    perseid_broker.create_topic("flights", 1)
    with pytest.raises(ConfigError, match=r"'flihgts'.*did you mean 'flights'"):
        rows(options_of(perseid_broker, "flihgts"))
    with pytest.raises(ConfigError, match="no such queues: flights/embedded/3; there are flights/embedded/0"):
        rows(parse({"nameserver": perseid_broker.namesrv, "assign": '{"flights": {"embedded": [3]}}'}, streaming=False))


def test_item_9_no_pattern_matches_a_topic_of_the_system(perseid_broker: EmbeddedBroker) -> None:
    names = ("one", "two", "%RETRY%g", "%DLQ%g")
    for name in names:
        perseid_broker.create_topic(name, 1)
    with BlockingAdmin(perseid_broker.namesrv) as admin:
        everything = admin.topic_list()
        assert admin.user_topics() == ["one", "two"]
    assert len(everything) >= len(names) + 8 and "SCHEDULE_TOPIC_XXXX" in everything
    for pattern, wanted in {
        ".*": {"one", "two"}, "o.*": {"one"}, "%.*": {"%RETRY%g", "%DLQ%g"}, "%DLQ%.*|one": {"%DLQ%g", "one"},
        "|".join(map(re.escape, everything)): set(names), "SCHEDULE_TOPIC_XXXX": set(), "TBW.*": set(),
    }.items():  # fmt: skip
        options = parse({"nameserver": perseid_broker.namesrv, "subscribePattern": pattern}, streaming=False)
        with Bounds(options) as bounds:
            assert {queue.topic for queue in bounds.queues()} == wanted, pattern
    with Bounds(options_of(perseid_broker, "SCHEDULE_TOPIC_XXXX")) as bounds:
        assert len(bounds.queues()) == 18, "whoever names it gets it"


def test_item_9_a_checkpoint_that_has_a_topic_of_the_system_goes_on_without_it(perseid_broker: EmbeddedBroker) -> None:
    fill(perseid_broker, "mine", 5, queues=1)
    options = parse({"nameserver": perseid_broker.namesrv, "subscribePattern": ".*"}, streaming=True)
    reader = PerseidStreamReader(options, NAMES)
    start = {"mine/embedded/0": 2, "SCHEDULE_TOPIC_XXXX/embedded/0": 0}
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert places(end) == {"mine/embedded/0": 5, "SCHEDULE_TOPIC_XXXX/embedded/0": 0}
    assert [(part.topic, part.start, part.end) for part in reader.partitions(start, end)] == [("mine", 2, 5)]


def test_sql_is_refused_by_a_broker_without_it(perseid_broker: EmbeddedBroker) -> None:
    fill(perseid_broker, "t", 10)
    with (
        Bounds(options_of(perseid_broker, "t", sql="i > 5")) as bounds,
        pytest.raises(ConfigError, match="sql='i > 5'"),
    ):
        bounds.check_sql()


def test_filters_leave_out_what_nobody_wants(perseid_broker: EmbeddedBroker) -> None:
    fill(perseid_broker, "t", 200, queues=2)
    options = options_of(perseid_broker, "t")
    with Bounds(options) as bounds:
        parts = plan.ranges_between(bounds.starting(), bounds.ending())
        chosen = pushdown.Pushed(offsets=(10, 19), queues=(("queueid", frozenset([1])),))
        assert bounds.narrowed(parts, chosen) == [plan.Range(MessageQueue("t", "embedded", 1), 10, 20)]
        assert bounds.narrowed(parts, pushdown.Pushed(times_ms=(2**42, None))) == []
        assert bounds.narrowed(parts, pushdown.Pushed(times_ms=(None, 5))) == []
        assert bounds.narrowed(parts, pushdown.Pushed(times_ms=(5, 2**42))) == parts
    assert [row["value"] for row in rows(options, pushdown.Pushed(keys=frozenset(["k17"])))] == [b"body 17"]


def test_compressed_and_batch_messages_are_read_as_a_consumer_reads_them(perseid_broker: EmbeddedBroker) -> None:
    perseid_broker.create_topic("t", 1)
    with BlockingProducer(perseid_broker.namesrv, options=ProducerOptions(compress_above_bytes=100)) as producer:
        producer.send(Message("t", b"z" * 5000))
        producer.send_batch([Message("t", b"b%d" % i) for i in range(3)])
    assert [row["value"] for row in rows(options_of(perseid_broker, "t"))] == [b"z" * 5000, b"b0", b"b1", b"b2"]


def stamped(queue: MessageQueue, sequence: int, *, batch: int = 0, plan: int = 0) -> Message:
    layout, home = layout_of([queue]), home_of(queue)
    stamp = f"q:{batch}:0:{layout}:{home}:0:{sequence}:{plan:08x}"
    unique = f"{id_prefix(('q', batch, '0', layout), home)}{sequence:012X}"
    return Message("t", b"%d of %d" % (sequence, plan), properties={"UNIQ_KEY": unique, STAMP: stamp})


def test_repeats_of_a_stamped_writer_are_dropped_in_each_range(perseid_broker: EmbeddedBroker) -> None:
    perseid_broker.create_topic("t", 1)
    queue = MessageQueue("t", "embedded", 0)

    with BlockingProducer(perseid_broker.namesrv) as producer:
        producer.send_batch([stamped(queue, n) for n in [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]], queue=queue)
        assert [row["queueOffset"] for row in rows(options_of(perseid_broker, "t"))] == [0, 1, 2, 3, 8, 9]
        assert len(rows(options_of(perseid_broker, "t", dedupe="false"))) == 10
        options, report = options_of(perseid_broker, "t"), RangeReport()
        assert len(list(read_range(options, NAMES, QueueRange(plan.Range(queue, 0, 10)), Pushed(), report))) == 1
        assert (report.stamped.dropped, report.missing) == (4, [])
        cut = [
            [row["queueOffset"] for batch in read_range(options, NAMES, part, Pushed()) for row in batch.to_pylist()]
            for part in (QueueRange(plan.Range(queue, a, b)) for a, b in ((0, 3), (3, 6), (6, 10)))
        ]
        assert cut == [[0, 1, 2], [3], [8, 9]], "as when it is read whole: ranges read back"


def test_whatever_is_no_repeat_is_read_counted_and_warned_of(
    perseid_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """One message of a stranger with a conflicting stamp blocks no read."""
    deduplicator._warned.clear()
    perseid_broker.create_topic("t", 1)
    queue = MessageQueue("t", "embedded", 0)
    options = options_of(perseid_broker, "t")
    with BlockingProducer(perseid_broker.namesrv) as producer, BlockingPullConsumer(perseid_broker.namesrv) as consumer:
        producer.send_batch([stamped(queue, n) for n in [0, 1, 2, 0, 1, 2, 3]], queue=queue)
        (messages,) = consumer.read(queue, 0, 3)
        producer.send_batch([forwarded(m, b"edited " + m.body) for m in messages], queue=queue)
        producer.send_batch([forwarded(m, ORIGIN_MESSAGE_ID="dead letter") for m in messages], queue=queue)
        producer.send(forwarded(messages[0], UNIQ_KEY="another"), queue=queue)
        producer.send_batch([stamped(queue, n, plan=1) for n in [0, 1, 0, 1, 2]], queue=queue)
        producer.send_batch([stamped(queue, 2**62, batch=2**62), stamped(queue, 2**63 - 1)], queue=queue)
        producer.send_batch([stamped(queue, n) for n in [1, 2, 3, 4]], queue=queue)
    kept = [0, 1, 2, *range(6, 16), 18, 19, 20, 24]
    report, part = reading.RangeReport(), QueueRange(plan.Range(queue, 0, 25))
    caplog.clear()
    got = [row["queueOffset"] for b in read_range(options, NAMES, part, Pushed(), report) for row in b.to_pylist()]
    assert got == kept
    assert report.stamped == Counts(dropped=8, differing=6, copied=4)
    assert len(caplog.messages) == 2 and any("sequenceBy" in told for told in caplog.messages)
    for cut in range(26):
        parts = [QueueRange(plan.Range(queue, a, b)) for a, b in ((0, cut), (cut, 25)) if a < b]
        assert [row["queueOffset"] for p in parts for row in rows_of(options, p)] == kept, "as when it is read whole"
    assert "t/embedded/0: offsets 0 to 24: 8 repeats dropped, 6 differing ones handed out, 4 copied" in caplog.text
    assert len([told for told in caplog.messages if "sequenceBy" in told]) == 1, "once for each queue"


def test_a_pull_that_fails_while_it_is_looked_back_for_loses_nothing(
    perseid_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    perseid_broker.create_topic("t", 1)
    queue = MessageQueue("t", "embedded", 0)
    with BlockingProducer(perseid_broker.namesrv) as producer:
        producer.send_batch([stamped(queue, n, batch=b) for b in (0, 1) for n in range(4)], queue=queue)
        producer.send_batch([stamped(queue, n, batch=b) for b in (2, 0, 3, 1) for n in range(4)], queue=queue)
    read, asked = BlockingPullConsumer.read, []

    def failing(self: BlockingPullConsumer, *given: Any) -> Any:
        asked.append(given)
        if len(asked) == 1:
            raise ClientError("away for a moment")
        return read(self, *given)

    monkeypatch.setattr(BlockingPullConsumer, "read", failing)
    got = rows_of(options_of(perseid_broker, "t"), QueueRange(plan.Range(queue, 8, 24)))
    assert [row["queueOffset"] for row in got] == [8, 9, 10, 11, 16, 17, 18, 19]
    assert len(asked) == 2


def test_a_broker_that_dies_in_the_middle_of_a_range_is_borne(
    perseid_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(perseid_broker, "t", 500, queues=1)
    monkeypatch.setattr(reading, "BATCH_MESSAGES", 50)
    options = options_of(perseid_broker, "t")
    queue = MessageQueue("t", "embedded", 0)
    batches: Iterator[Any] = read_range(options, NAMES, QueueRange(plan.Range(queue, 0, 500)), Pushed())
    got = next(batches).to_pylist()
    perseid_broker.stop()
    restart = threading.Timer(0.5, perseid_broker.start)
    restart.start()
    got += [row for batch in batches for row in batch.to_pylist()]
    restart.join(60)
    assert [row["queueOffset"] for row in got] == list(range(500))


def test_a_broker_that_stays_away_fails_the_task_at_the_deadline(perseid_broker: EmbeddedBroker) -> None:
    fill(perseid_broker, "t", 10, queues=1)
    options = options_of(perseid_broker, "t", deadlineMs="300")
    perseid_broker.stop()
    with pytest.raises(PerseidError):
        list(read_range(options, NAMES, QueueRange(plan.Range(MessageQueue("t", "embedded", 0), 0, 10)), Pushed()))
    perseid_broker.start()


def test_offsets_that_are_gone_fail_the_task_unless_that_is_allowed(perseid_broker: EmbeddedBroker) -> None:
    fill(perseid_broker, "t", 10, queues=1)
    part = QueueRange(plan.Range(MessageQueue("t", "embedded", 0), 0, 20))
    with pytest.raises(DataLost, match="offsets 0 to 19 were to be read, the broker has 0 to 9; set failOnDataLoss"):
        list(read_range(options_of(perseid_broker, "t"), NAMES, part, Pushed()))
    allowed = options_of(perseid_broker, "t", failOnDataLoss="false")
    report = RangeReport()
    assert sum(batch.num_rows for batch in read_range(allowed, NAMES, part, Pushed(), report)) == 10
    assert report.missing == [(10, 20)]


def test_what_a_read_left_out_is_told(perseid_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(perseid_broker, "t", 40, queues=1)
    options = options_of(perseid_broker, "t", failOnDataLoss="false")
    part = QueueRange(plan.Range(MessageQueue("t", "embedded", 0), 5, 45))
    monkeypatch.setattr(BlockingPullConsumer, "min_offset", lambda self, queue: 9)
    read = reading.Pulls.read
    monkeypatch.setattr(reading.Pulls, "read", lambda self, start, end: read(self, max(start, 20), end))
    report = RangeReport()
    found = [row for batch in read_range(options, NAMES, part, Pushed(), report) for row in batch.to_pylist()]
    assert [row["queueOffset"] for row in found] == list(range(20, 40))
    assert report.missing == [(5, 20), (40, 45)]


# ---- streams ----


def stream(broker: EmbeddedBroker, topic: str, **more: str) -> PerseidStreamReader:
    return PerseidStreamReader(options_of(broker, topic, streaming=True, **more), NAMES)


def places(offset: dict[str, int]) -> dict[str, int]:
    """Without when the messages before them were stored."""
    return plan.parted(offset)[0]


def test_queues_that_are_new_are_found_and_read_from_0(perseid_broker: EmbeddedBroker) -> None:
    fill(perseid_broker, "t", 40, queues=1)
    reader = stream(perseid_broker, "t", startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    fill(perseid_broker, "t", 200, queues=3)
    after = reader.latestOffset(end, reader.getDefaultReadLimit())
    parts = reader.partitions(end, after)
    assert {part.queue_id: part.start for part in parts} == {0: 40, 1: 0, 2: 0}
    assert sum(part.end - part.start for part in parts) == 200


def test_a_topic_that_was_deleted_and_made_again_is_noticed(perseid_broker: EmbeddedBroker) -> None:
    fill(perseid_broker, "t", 40, queues=1)
    reader = stream(perseid_broker, "t", startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    with BlockingAdmin(perseid_broker.namesrv) as admin:
        admin.delete_topic("t")
    with pytest.raises(DataLost, match="topic t is gone"):
        stream(perseid_broker, "t", deadlineMs="300").latestOffset(end, reader.getDefaultReadLimit())
    allowed = stream(perseid_broker, "t", deadlineMs="300", failOnDataLoss="false")
    assert allowed.latestOffset(end, reader.getDefaultReadLimit()) == end, "left out until it comes back"
    fill(perseid_broker, "t", 10, queues=1)
    with pytest.raises(DataLost, match="the topic was deleted and made again"):
        reader.latestOffset(end, reader.getDefaultReadLimit())
    again = allowed.latestOffset(end, reader.getDefaultReadLimit())
    assert [(part.start, part.end) for part in allowed.partitions(end, again)] == [(0, 10)]


def test_a_topic_that_was_made_again_is_noticed_also_when_it_has_grown_beyond(
    perseid_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fill(perseid_broker, "t", 40, queues=1)
    reader = stream(perseid_broker, "t", startingOffsets="earliest")
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)
    assert reader.latestOffset(end, limit) == end
    with BlockingAdmin(perseid_broker.namesrv) as admin:
        admin.delete_topic("t")
    fill(perseid_broker, "t", 60, queues=1)
    again = stream(perseid_broker, "t")  # started again, from its checkpoint
    with pytest.raises(DataLost, match="the message at offset 39 is not the one that was read"):
        again.latestOffset(end, limit)
    allowed = stream(perseid_broker, "t", failOnDataLoss="false")
    after = allowed.latestOffset(end, limit)
    assert [(part.start, part.end) for part in allowed.partitions(end, after)] == [(40, 60)]
    assert "gone on with behind that offset" in caplog.text
    assert stream(perseid_broker, "t").latestOffset(after, limit) == after, "these are the messages that were read"


def test_a_checkpoint_that_says_nothing_of_times_goes_on_and_so_does_one_whose_last_message_is_gone(
    tmp_path: Path,
) -> None:
    with EmbeddedBroker(tmp_path / "broker", store=replace(SMALL_STORE, commit_log_file_bytes=16 << 10)) as aging:
        fill(aging, "t", 400, queues=1)
        reader = stream(aging, "t")
        limit = reader.getDefaultReadLimit()
        old = {"t/embedded/0": 10}
        end = reader.latestOffset(old, limit)
        assert set(end) == {"t/embedded/0", "t/embedded/0@"} and places(end) == {"t/embedded/0": 400}
        aging.stop()
        for segment in sorted(aging.data.rglob("commitlog/0*"))[:-1]:
            segment.unlink()
        aging.start()
        gone = {"t/embedded/0": 11, "t/embedded/0@": 1}
        assert places(stream(aging, "t").latestOffset(gone, limit)) == {"t/embedded/0": 400}


def test_a_checkpoint_of_another_topic_is_refused(perseid_broker: EmbeddedBroker) -> None:
    fill(perseid_broker, "t", 10, queues=1)
    reader = stream(perseid_broker, "t")
    for call in (
        lambda: reader.latestOffset({"other/embedded/0": 5}, reader.getDefaultReadLimit()),
        lambda: reader.partitions({"other/embedded/0": 5}, {"other/embedded/0": 9}),
    ):
        with pytest.raises(ConfigError, match="the checkpoint is of other"):
            call()


def test_a_batch_is_held_back_until_it_is_worth_it(perseid_broker: EmbeddedBroker) -> None:
    fill(perseid_broker, "t", 40, queues=1)
    reader = stream(perseid_broker, "t", startingOffsets="earliest", minOffsetsPerTrigger="30", maxTriggerDelay="1h")
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)
    assert places(end) == {"t/embedded/0": 40}
    fill(perseid_broker, "t", 10, queues=1)
    assert reader.latestOffset(end, limit) == end
    fill(perseid_broker, "t", 20, queues=1)
    assert places(reader.latestOffset(end, limit)) == {"t/embedded/0": 70}
    fill(perseid_broker, "t", 5, queues=1)
    reader.prepareForTriggerAvailableNow()
    assert places(reader.latestOffset({"t/embedded/0": 70}, limit)) == {"t/embedded/0": 75}, "all that is there"


def test_group_offsets_are_committed_when_asked_for(perseid_broker: EmbeddedBroker) -> None:
    fill(perseid_broker, "t", 40, queues=1)
    queue = MessageQueue("t", "embedded", 0)
    for more, wanted in (({}, None), ({"commitOffsets": "true"}, 40)):
        reader = stream(perseid_broker, "t", startingOffsets="earliest", group="shown", **more)
        end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        for part in reader.partitions({"t/embedded/0": 0}, end):
            assert sum(batch.num_rows for batch in reader.read(part)) == 40
        reader.commit(end)
        with BlockingPullConsumer(perseid_broker.namesrv, "shown") as consumer:
            assert consumer.committed(queue) == wanted
