"""The sink's sending on a real broker: restarts, refusals, and where a batch begins. Without Spark."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pyarrow as pa
import pytest

from perseid.client import ClientError, MessageQueue, PullOptions, ReceivedMessage, ServerRefused
from perseid.client.blocking import BlockingPullConsumer
from perseid.client.pulling import Offsets
from perseid.client.stamps import STAMP, parse
from perseid.spark import sender as sender_module
from perseid.spark import sink_options
from perseid.spark.encode import BatchPartition, Encoder, Layout
from perseid.spark.sender import Ends, Sender
from perseid.spark.sink_options import SinkError, SinkOptions
from perseid.testing.embedded import EmbeddedBroker
from perseid.wire.codes import ResponseCode


def options_of(broker: EmbeddedBroker, topic: str, **more: str) -> SinkOptions:
    return sink_options.parse({"nameserver": broker.namesrv, "topic": topic, **more})


def send(
    options: SinkOptions, part: BatchPartition, values: list[str], *, planned: Ends | None = None, stop_after: int = 0
) -> Layout:
    """One task's attempt at `values`; with `stop_after` it ends there, as if killed. Gives what it spread them over."""
    topic = options.topic or ""
    found: list[Layout] = []
    batch = pa.record_batch({"value": values})
    with Sender(options) as sender:

        def layout(name: str) -> Layout:
            ends = planned if planned is not None else sender.ends(name)
            found.append(sender.layout(name, part, ends, 0, remembered=True))
            return found[-1]

        encoder = Encoder(options, {"value": "value"}, part, layout, sender.put)
        encoder.add(batch.slice(0, stop_after) if stop_after else batch)
        encoder.finish()
        sender.flush()
        if not stop_after:
            sender.remember(topic, part.writer, part.batch + 1)
    return found[0]


def everything(broker: EmbeddedBroker, topic: str, *, dedupe: bool = False) -> list[ReceivedMessage]:
    with BlockingPullConsumer(broker.namesrv, "check", options=PullOptions(dedupe=dedupe)) as consumer:
        return [
            message
            for queue in consumer.queues(topic)
            for found in consumer.read(queue, 0, consumer.max_offset(queue))
            for message in found
        ]


def test_attempts_that_end_anywhere_leave_each_message_once_for_a_reader_that_looks_at_stamps(
    perseid_broker: EmbeddedBroker,
) -> None:
    perseid_broker.create_topic("t", 3)
    options = options_of(perseid_broker, "t", batchMessages="4")
    for batch in range(3):
        values = [f"{batch}.{i}" for i in range(40)]
        for stop_after in (17, 9):
            send(options, BatchPartition("q", batch, 0), values, stop_after=stop_after)
        send(options, BatchPartition("q", batch, 0), values)
    wanted = sorted(f"{batch}.{i}".encode() for batch in range(3) for i in range(40))
    assert len(everything(perseid_broker, "t")) == 3 * (40 + 17 + 9)
    assert sorted(m.body for m in everything(perseid_broker, "t", dedupe=True)) == wanted


def test_a_batch_that_runs_again_finds_where_it_began_and_its_queues(perseid_broker: EmbeddedBroker) -> None:
    perseid_broker.create_topic("t", 2)
    options = options_of(perseid_broker, "t")
    first = send(options, BatchPartition("q", 0, 0), [str(i) for i in range(10)])
    assert first.since == (0, 0)
    killed = send(options, BatchPartition("q", 1, 0), [str(i) for i in range(10)], stop_after=4)
    assert killed.since == (5, 5), "where batch 0 ended"
    perseid_broker.create_topic("t", 4)
    again = send(options, BatchPartition("q", 1, 0), [str(i) for i in range(10)])
    assert again == killed, "the queues of the first attempt, though there are more now"
    after = send(options, BatchPartition("q", 2, 0), [str(i) for i in range(8)])
    assert (len(after.queues), after.since) == (4, (12, 12, 0, 0))
    stamps = [parse(message.properties[STAMP]) for message in everything(perseid_broker, "t")]
    assert {(s.batch, s.since) for s in stamps if s is not None} == {(0, 0), (1, 5), (2, 12), (2, 0)}


def test_a_batch_whose_commit_came_through_but_which_runs_again_keeps_its_bound(perseid_broker: EmbeddedBroker) -> None:
    perseid_broker.create_topic("t", 1)
    options = options_of(perseid_broker, "t")
    send(options, BatchPartition("q", 0, 0), ["a", "b"])
    assert send(options, BatchPartition("q", 0, 0), ["a", "b"]).since == (0,), "not 2: that is where batch 1 begins"
    assert [m.body for m in everything(perseid_broker, "t", dedupe=True)] == [b"a", b"b"]


def test_a_batch_finds_its_bound_again_though_the_end_of_the_last_one_was_never_noted(
    perseid_broker: EmbeddedBroker,
) -> None:
    perseid_broker.create_topic("t", 1)
    options = options_of(perseid_broker, "t")
    send(options, BatchPartition("q", 0, 0), ["a", "b"], stop_after=2)  # whole, but nothing was remembered
    for _ in range(2):
        assert send(options, BatchPartition("q", 1, 0), ["c", "d"]).since == (0,), "where batch 0 began"
    assert [m.body for m in everything(perseid_broker, "t", dedupe=True)] == [b"a", b"b", b"c", b"d"]


def test_a_bound_that_is_noted_for_some_queues_only_counts_for_none(perseid_broker: EmbeddedBroker) -> None:
    perseid_broker.create_topic("t", 3)
    options = options_of(perseid_broker, "t")
    first = MessageQueue("t", "embedded", 0)
    with Sender(options) as sender:
        ends, part = sender.ends("t"), BatchPartition("q", 0, 0)
        others = {queue: 7 for queue in ends if queue != first}
        sender._run(sender._commit("PERSEID_SPARK_SINK-q-0", others))  # a task that was killed here
        layout = sender.layout("t", part, ends, 0, remembered=True)
        assert (len(layout.queues), layout.since) == (3, (0, 0, 0))
        assert sender.layout("t", part, None, 0, remembered=True) == layout


def test_tasks_that_begin_a_batch_side_by_side_spread_it_over_the_same_queues(
    perseid_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    perseid_broker.create_topic("t", 3)
    options = options_of(perseid_broker, "t")
    commit = Offsets.commit

    with Sender(options) as sender, Sender(options) as other:
        ends = sender.ends("t")
        seen: list[Layout] = []

        async def slow(self: Offsets, group: str, queue: MessageQueue, offset: int) -> None:
            await commit(self, group, queue, offset)
            monkeypatch.setattr(Offsets, "commit", commit)
            seen.append(await asyncio.to_thread(other.layout, "t", BatchPartition("q", 0, 1), ends, 0, remembered=True))

        monkeypatch.setattr(Offsets, "commit", slow)
        assert sender.layout("t", BatchPartition("q", 0, 0), ends, 0, remembered=True) == seen[0]
        assert len(seen[0].queues) == 3


def test_what_the_brokers_took_of_a_bound_and_do_not_tell_is_noted_again(
    perseid_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's broker may lose an offset that is committed beside a group's first one."""
    perseid_broker.create_topic("t", 2)
    options = options_of(perseid_broker, "t")
    commit = Offsets.commit
    asked: list[str] = []

    async def losing(self: Offsets, group: str, queue: MessageQueue, offset: int) -> None:
        if queue.queue_id == 1:
            asked.append(group)
            if len(asked) == 2:  # at the first one there is no such group yet
                return
        await commit(self, group, queue, offset)

    monkeypatch.setattr(Offsets, "commit", losing)
    with Sender(options) as sender:
        layout = sender.layout("t", BatchPartition("q", 0, 0), sender.ends("t"), 0, remembered=True)
        assert sender.layout("t", BatchPartition("q", 0, 1), None, 0, remembered=True) == layout
        assert (len(layout.queues), len(asked)) == (2, 3)


def test_a_write_of_its_own_id_asks_the_broker_for_nothing(perseid_broker: EmbeddedBroker) -> None:
    perseid_broker.create_topic("t", 2)
    with Sender(options_of(perseid_broker, "t")) as sender:
        planned: Ends = {MessageQueue("t", "embedded", 1): 7, MessageQueue("t", "embedded", 0): 3}
        assert sender.layout("t", BatchPartition("q", 0, 0), planned, 0, remembered=False).since == (3, 7)
        assert sender.layout("t", BatchPartition("q", 0, 0), None, 0, remembered=False).since == (0, 0)


def test_a_broker_that_is_restarted_is_borne(perseid_broker: EmbeddedBroker) -> None:
    perseid_broker.create_topic("t", 2)
    options = options_of(perseid_broker, "t", batchMessages="10", timeoutMs="1000")
    with Sender(options) as sender:
        layout = sender.layout("t", BatchPartition("q", 0, 0), sender.ends("t"), 0, remembered=True)
        encoder = Encoder(options, {"value": "value"}, BatchPartition("q", 0, 0), lambda _: layout, sender.put)
        encoder.add(pa.record_batch({"value": [f"{i:04}" for i in range(100)]}))
        perseid_broker.stop()
        encoder.add(pa.record_batch({"value": [f"{i:04}" for i in range(100, 400)]}))
        encoder.finish()
        restart = threading.Thread(target=perseid_broker.start)
        restart.start()
        sender.flush()
        restart.join(60)
        assert sender.retries > 0
    found = everything(perseid_broker, "t", dedupe=True)
    assert sorted(m.body for m in found) == [f"{i:04}".encode() for i in range(400)]
    for queue in range(2):
        bodies = [m.body for m in found if m.queue.queue_id == queue]
        assert bodies == sorted(bodies), "in the order of the rows"


def test_a_broker_that_stays_away_fails_the_write_at_the_deadline(perseid_broker: EmbeddedBroker) -> None:
    perseid_broker.create_topic("t", 1)
    options = options_of(perseid_broker, "t", deadlineMs="300", timeoutMs="100")
    with Sender(options) as sender:
        layout = sender.layout("t", BatchPartition("q", 0, 0), sender.ends("t"), 0, remembered=False)
        encoder = Encoder(options, {"value": "value"}, BatchPartition("q", 0, 0), lambda _: layout, sender.put)
        perseid_broker.stop()
        encoder.add(pa.record_batch({"value": ["x"]}))
        encoder.finish()
        with pytest.raises(ClientError, match="not acknowledged within deadlineMs=300"):
            sender.flush()
        with pytest.raises(ClientError, match="not acknowledged"):
            encoder.add(pa.record_batch({"value": ["x"] * 1000}))
    perseid_broker.start()


def test_what_waits_to_be_sent_is_bounded(perseid_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "BUFFER_BYTES", 1000)
    perseid_broker.create_topic("t", 1)
    options = options_of(perseid_broker, "t", batchMessages="1")
    held: list[int] = []
    with Sender(options) as sender:
        layout = sender.layout("t", BatchPartition("q", 0, 0), sender.ends("t"), 0, remembered=False)
        put = sender.put

        def watched(queue: MessageQueue, packed: Any) -> None:
            put(queue, packed)
            held.append(sender._held)

        encoder = Encoder(options, {"value": "value"}, BatchPartition("q", 0, 0), lambda _: layout, watched)
        encoder.add(pa.record_batch({"value": ["x" * 100] * 50}))
        encoder.finish()
        sender.flush()
    assert max(held) < 1000 + 500
    assert len(everything(perseid_broker, "t")) == 50


def test_a_topic_that_is_not_there_is_refused_with_the_nearest_name(
    perseid_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.types import StructType

    from perseid.spark import retrying
    from perseid.spark.sink import PerseidWriter

    monkeypatch.setattr(retrying, "NO_ROUTE_MS", 200)
    perseid_broker.create_topic("flights", 1)
    schema = StructType().add("value", "string")
    with pytest.raises(SinkError, match=r"no queue of topic 'flihgts'.*did you mean 'flights'"):
        PerseidWriter(
            {"nameserver": perseid_broker.namesrv, "topic": "flihgts"}, schema, overwrite=False, streaming=False
        )
    with pytest.raises(SinkError, match="can't be overwritten"):
        PerseidWriter(
            {"nameserver": perseid_broker.namesrv, "topic": "flights"}, schema, overwrite=True, streaming=False
        )


def test_item_2_a_batch_older_than_the_last_one_that_was_begun_is_refused(perseid_broker: EmbeddedBroker) -> None:
    """As when a checkpoint is restored from an older copy. The last one may run again, as after a crash."""
    perseid_broker.create_topic("t", 2)
    options = options_of(perseid_broker, "t")
    for batch in (0, 1):
        send(options, BatchPartition("q", batch, 0), [f"{batch}.{n}" for n in range(4)])
    send(options, BatchPartition("q", 2, 0), [f"2.{n}" for n in range(4)], stop_after=1)
    perseid_broker.stop()
    perseid_broker.start()
    sent = len(everything(perseid_broker, "t"))
    for batch in (0, 1):
        with pytest.raises(SinkError) as caught:
            send(options, BatchPartition("q", batch, 0), ["other", "rows"])
        said = str(caught.value)
        assert said.startswith(f"t: batch {batch} of query q was not sent, for batch 2 was begun already:")
        assert "new checkpointLocation" in said and "queryId" in said and "\n" not in said
    with pytest.raises(SinkError, match="give a new queryId, or a higher batchId"):
        send(options_of(perseid_broker, "t", queryId="q"), BatchPartition("q", 1, 0), ["other", "rows"])
    assert len(everything(perseid_broker, "t")) == sent, "nothing of them was sent"
    for batch in (2, 2, 3):
        send(options, BatchPartition("q", batch, 0), [f"{batch}.{n}" for n in range(4)])
    send(options, BatchPartition("another", 0, 0), ["other"])
    wanted = [*sorted(f"{batch}.{n}".encode() for batch in range(4) for n in range(4)), b"other"]
    assert sorted(m.body for m in everything(perseid_broker, "t", dedupe=True)) == wanted


def test_the_last_batch_again_with_other_rows_is_handed_out(perseid_broker: EmbeddedBroker) -> None:
    """A restored checkpoint that lags by one: Spark plans the last batch anew."""
    perseid_broker.create_topic("t", 1)
    options = options_of(perseid_broker, "t")
    send(options, BatchPartition("q", 0, 0), ["a", "b"])
    send(options, BatchPartition("q", 1, 0), ["c", "d"])
    send(options, BatchPartition("q", 1, 0), ["c", "x", "y"], stop_after=2)
    send(options, BatchPartition("q", 1, 0), ["c", "x", "y"])
    send(options, BatchPartition("q", 2, 0), ["z"])
    assert [m.body for m in everything(perseid_broker, "t", dedupe=True)] == [b"a", b"b", b"c", b"d", b"x", b"y", b"z"]


def test_each_broker_knows_the_last_batch_that_was_begun(perseid_broker: EmbeddedBroker) -> None:
    perseid_broker.create_topic("t", 3)
    options = options_of(perseid_broker, "t")
    first = MessageQueue("t", "embedded", 0)
    send(options, BatchPartition("q", 7, 0), ["a"])
    with BlockingPullConsumer(perseid_broker.namesrv, sender_module.begun_group(options, "q")) as consumer:
        assert consumer.committed(first) == 7
        consumer.commit(first, 2**62)  # as if a task of a much later batch had begun
    with pytest.raises(SinkError, match=f"batch {2**62} was begun"):
        send(options, BatchPartition("q", 8, 0), ["b"])


def test_a_broker_that_takes_no_offsets_of_unknown_groups_is_written_to_all_the_same(
    perseid_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    perseid_broker.create_topic("t", 1)
    options = options_of(perseid_broker, "t")

    async def refused(self: Sender, group: str, ends: Ends) -> None:
        raise ServerRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no such group", "b:1")

    monkeypatch.setattr(Sender, "_commit", refused)
    with Sender(options) as sender:
        sender.layout("t", BatchPartition("q", 1, 0), sender.ends("t"), 0, remembered=True)
    assert "that batch 1 begins can't be noted" in caplog.text
