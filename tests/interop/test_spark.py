"""The Spark source and sink on a Java 5.5.0 cluster, without Spark: what its tasks and its planner do there."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
import rig

from perseid.base.errors import ConfigError
from perseid.client import Message
from perseid.client.blocking import BlockingAdmin, BlockingProducer
from perseid.spark import plan, sink_options
from perseid.spark.bounds import Bounds
from perseid.spark.encode import BatchPartition, Encoder, Layout
from perseid.spark.options import parse
from perseid.spark.plan import DataLost
from perseid.spark.pushdown import Pushed
from perseid.spark.reading import QueueRange, read_range
from perseid.spark.sender import Sender
from perseid.spark.sink_options import SinkError
from perseid.spark.source import PerseidStreamReader

pytestmark = pytest.mark.interop
BATCHES, ROWS = 3, 50


def attempt(namesrv: str, topic: str, batch: int, stop_after: int | None = None) -> Layout:
    """A task's attempt at a batch; with `stop_after` it ends there."""
    options = sink_options.parse({"nameserver": namesrv, "topic": topic, "batchMessages": "8"})
    part, found = BatchPartition("q", batch, 0), []
    with Sender(options) as sender:
        ends = sender.ends(topic)

        def layout(name: str) -> Layout:
            found.append(sender.layout(name, part, ends, 0, remembered=True))
            return found[-1]

        encoder = Encoder(options, {"value": "value", "key": "key"}, part, layout, sender.put)
        values = [f"{batch}.{i}" for i in range(ROWS)]
        encoder.add(pa.record_batch({"value": values, "key": values}).slice(0, stop_after))
        encoder.finish()
        sender.flush()
        if stop_after is None:
            sender.remember(topic, part.writer, batch + 1)
    return found[0]


def read(namesrv: str, topic: str, **more: str) -> list[str]:
    options = parse({"nameserver": namesrv, "subscribe": topic, **more}, streaming=False)
    with Bounds(options) as bounds:
        bounds.check_sql()
        parts = plan.ranges_between(bounds.starting(), bounds.ending())
    return sorted(
        row["value"].decode()
        for part in parts
        for batch in read_range(options, ["value"], QueueRange(part), Pushed())
        for row in batch.to_pylist()
    )


def test_rows_come_once_whatever_attempts_there_were(java: rig.Client, name: str) -> None:
    namesrv = java.cluster.namesrv
    with BlockingAdmin(namesrv) as admin:
        admin.create_topic(name, 3)
    wanted = sorted(f"{batch}.{i}" for batch in range(BATCHES) for i in range(ROWS))
    for batch in range(BATCHES):
        layouts = [attempt(namesrv, name, batch, stop_after) for stop_after in (23, 9, None)]
        assert layouts[0] == layouts[1] == layouts[2], "an attempt finds where the first one began"
    assert read(namesrv, name) == wanted
    with pytest.raises(SinkError, match=rf"batch 0 of query q was not sent, for batch {BATCHES - 1} was begun"):
        attempt(namesrv, name, 0, None)  # of a checkpoint that was put back
    sent = BATCHES * (ROWS + 23 + 9)
    assert len(read(namesrv, name, dedupe="false")) == sent
    got = java.consume(name, f"g_{name}", sent)
    ids = Counter(message["msgId"] for message in got)
    assert len(ids) == len(wanted), "a stock consumer sees copies, which have one id"
    assert {len({m["body"] for m in got if m["msgId"] == one}) for one in ids} == {1}


def test_sql_is_refused_where_it_is_off(cluster: rig.Cluster, name: str) -> None:
    with BlockingAdmin(cluster.namesrv) as admin:
        admin.create_topic(name, 1)
    with pytest.raises(ConfigError, match="sql='price > 6'"):
        read(cluster.namesrv, name, sql="price > 6")


def test_sql_is_filtered_by_the_broker(sql_cluster: rig.Cluster, name: str) -> None:
    namesrv = sql_cluster.namesrv
    with BlockingAdmin(namesrv) as admin:
        admin.create_topic(name, 2)
    with BlockingProducer(namesrv) as producer:
        for number in range(10):
            producer.send(Message(name, b"%d" % number, properties={"price": str(number)}))
    assert read(namesrv, name, sql="price > 6") == ["7", "8", "9"]
    with pytest.raises(ConfigError, match="sql='price > '"):
        read(namesrv, name, sql="price > ")


def test_what_java_clients_wrote_is_read_as_a_consumer_reads_it(
    transactional_cluster: rig.Cluster, java_agent: rig.Agent, name: str
) -> None:
    """Transactions only once they are committed, bodies unpacked, batches message by message."""
    java, namesrv = rig.Client(java_agent, transactional_cluster), transactional_cluster.namesrv
    with BlockingAdmin(namesrv) as admin:
        admin.create_topic(name, 2)
    java("transaction", message={"topic": name, "body": "committed"})
    java("transaction", message={"topic": name, "body": "rolled back"}, state="ROLLBACK_MESSAGE")
    long = {kind: kind * 5000 for kind in ("LZ4", "ZSTD", "ZLIB")}
    for kind, body in long.items():
        java("send", messages=[{"topic": name, "body": body}], compress=kind)
    java("send", mode="batch", messages=[{"topic": name, "body": f"b{number}"} for number in range(3)])
    wanted = sorted(["committed", *long.values(), "b0", "b1", "b2"])
    rig.until("the committed message", lambda: len(read(namesrv, name)) >= len(wanted))
    assert read(namesrv, name) == wanted


def test_a_stream_notices_a_topic_that_was_made_again_and_has_grown_beyond(cluster: rig.Cluster, name: str) -> None:
    options = parse({"nameserver": cluster.namesrv, "subscribe": name, "startingOffsets": "earliest"}, streaming=True)

    def made(count: int) -> None:
        with BlockingAdmin(cluster.namesrv) as admin:
            admin.create_topic(name, 1)
        rig.until("route", lambda: rig.call(cluster.namesrv, 105, {"topic": name}).code == 0)
        with BlockingProducer(cluster.namesrv) as producer:
            for number in range(count):
                producer.send(Message(name, b"%d" % number))

    made(5)
    reader = PerseidStreamReader(options, ["value"])
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)
    read, marks = plan.parted(end)
    assert list(read.values()) == [5] and marks.keys() == read.keys()
    assert PerseidStreamReader(options, ["value"]).latestOffset(end, limit) == end, "it is the one that was read"
    with BlockingAdmin(cluster.namesrv) as admin:
        admin.delete_topic(name)
    made(7)
    with pytest.raises(DataLost, match="the message at offset 4 is not the one that was read"):
        PerseidStreamReader(options, ["value"]).latestOffset(end, limit)
