"""Rows as messages: which queue, which bytes, which stamp. Without Spark and without a broker."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

from perseid.client.model import MessageQueue, key_hash
from perseid.client.producer import Packed
from perseid.client.stamps import STAMP, Stamp, home_of, layout_of
from perseid.client.stamps import parse as parse_stamp
from perseid.spark import encode, sink_options
from perseid.spark.encode import BatchPartition, Encoder, Layout, in_sequence
from perseid.spark.sink_options import SinkError
from perseid.wire import batch, properties
from perseid.wire.codes import RequestCode

QUEUES = tuple(MessageQueue("t", "a", i) for i in range(4))
Sent = tuple[MessageQueue, bytes, dict[str, str]]

KINDS = {pa.string(): "string", pa.binary(): "binary", pa.int32(): "int"}


def spark_type(kind: Any) -> str:
    if pa.types.is_list(kind):
        return "array<string>"
    return "map<string,string>" if pa.types.is_map(kind) else KINDS[kind]


def rows(**columns: Any) -> Any:
    return pa.record_batch(columns)


def encoded(*batches: Any, part: BatchPartition | None = None, **options: str) -> list[tuple[MessageQueue, Packed]]:
    """What an encoder emits, in order."""
    given = {"nameserver": "h:1", "topic": "t", **options}
    parsed = sink_options.parse({name: value for name, value in given.items() if value})
    fields = [(field.name, spark_type(field.type)) for field in batches[0].schema]
    emitted: list[tuple[MessageQueue, Packed]] = []

    def layout(topic: str) -> Layout:
        queues = tuple(queue._replace(topic=topic) for queue in QUEUES)
        return Layout(queues, tuple(range(100, 100 + len(queues))))

    encoder = Encoder(
        parsed, sink_options.columns(parsed, fields), part or BatchPartition("q", 7, 0), layout,
        lambda queue, packed: emitted.append((queue, packed)),
    )  # fmt: skip
    for one in in_sequence(batches, parsed.sequence_by) if parsed.sequence_by else batches:
        encoder.add(one)
    encoder.finish()
    return emitted


def messages(emitted: list[tuple[MessageQueue, Packed]]) -> list[Sent]:
    found: list[Sent] = []
    for queue, packed in emitted:
        if packed.code == RequestCode.SEND_BATCH_MESSAGE:
            found += [
                (queue, bytes(item.body), properties.decode(item.properties)) for item in batch.decode(packed.body)
            ]
        else:
            found.append((queue, packed.body, properties.decode(packed.properties)))
    return found


def stamps_of(sent: list[Sent]) -> list[Stamp]:
    found = [parse_stamp(props[STAMP]) for _, _, props in sent]
    assert None not in found
    return [stamp for stamp in found if stamp is not None]


def test_a_row_becomes_a_message() -> None:
    [(queue, body, props)] = messages(
        encoded(
            rows(
                value=["body"],
                tag=["new"],
                keys=pa.array([["k1", "k2"]]),
                properties=pa.array(
                    [[("i", "1"), ("TAGS", "other"), ("e", ""), (STAMP, "x")]], pa.map_(pa.string(), pa.string())
                ),
            )
        )
    )
    assert (queue, body) == (QUEUES[0], b"body")
    assert (props["TAGS"], props["KEYS"], props["i"], props["WAIT"]) == ("new", "k1 k2", "1", "true")
    assert "e" not in props
    stamp = parse_stamp(props[STAMP])
    assert stamp is not None
    assert stamp[:7] == ("q", 7, "0", layout_of(QUEUES), home_of(QUEUES[0]), 100, 0)
    assert len(props["UNIQ_KEY"]) == 32


def test_the_same_rows_give_the_same_bytes_however_they_are_cut_into_record_batches() -> None:
    values = [f"v{i}" for i in range(50)]
    whole = encoded(rows(value=values, tag=[f"t{i % 3}" for i in range(50)]))
    parts = encoded(
        *(rows(value=values[i : i + 7], tag=[f"t{j % 3}" for j in range(i, min(i + 7, 50))]) for i in range(0, 50, 7))
    )
    assert [(q, p.body, p.properties) for q, p in whole] == [(q, p.body, p.properties) for q, p in parts]


def test_sequences_count_in_each_queue_and_ids_tell_messages_apart() -> None:
    sent = messages(encoded(rows(value=[f"v{i}" for i in range(40)]), part=BatchPartition("q", 0, 3)))
    by_queue: dict[MessageQueue, list[Stamp]] = defaultdict(list)
    for (queue, _, _), stamp in zip(sent, stamps_of(sent), strict=True):
        by_queue[queue].append(stamp)
    assert {queue: [s.sequence for s in found] for queue, found in by_queue.items()} == {
        queue: list(range(10)) for queue in QUEUES
    }, "round robin"
    assert len({props["UNIQ_KEY"] for _, _, props in sent}) == 40
    assert {s.stream for s in stamps_of(sent)} == {"3"}
    assert len({s.digest for s in stamps_of(sent)}) == 40


def test_the_digest_tells_another_order() -> None:
    one = stamps_of(messages(encoded(rows(value=["a", "b"], orderingKey=["k", "k"]))))
    other = stamps_of(messages(encoded(rows(value=["b", "a"], orderingKey=["k", "k"]))))
    assert [s.sequence for s in one] == [s.sequence for s in other] == [0, 1]
    assert one[1].digest != other[1].digest


def test_sequence_by_gives_an_order_that_does_not_depend_on_how_rows_came() -> None:
    one = encoded(
        rows(value=["b", "a"], n=pa.array([2, 1], pa.int32())),
        rows(value=["c"], n=pa.array([3], pa.int32())),
        sequenceBy="N",
    )
    other = encoded(
        rows(value=["c"], n=pa.array([3], pa.int32())),
        rows(value=["a", "b"], n=pa.array([1, 2], pa.int32())),
        sequenceBy="N",
    )
    assert [(q, p.body) for q, p in one] == [(q, p.body) for q, p in other]
    assert [body for _, body, _ in messages(one)] == [b"a", b"b", b"c"]


def test_an_ordering_key_chooses_the_queue_as_the_java_client_does_and_keeps_its_order() -> None:
    keys = [f"k{i % 7}" for i in range(60)]
    sent = messages(encoded(rows(value=[str(i) for i in range(60)], orderingKey=keys), batchMessages="4"))
    order: dict[str, list[int]] = defaultdict(list)
    for queue, body, props in sent:
        key = props["__SHARDINGKEY"]
        assert queue == QUEUES[key_hash(key) % 4]
        order[key].append(int(body))
    assert dict(order) == {f"k{i}": list(range(i, 60, 7)) for i in range(7)}


def test_partitioners() -> None:
    keys = pa.array([["a", "x"], ["b"], ["a"], []])
    sent = messages(encoded(rows(value=["0", "1", "2", "3"], keys=keys), partitioner="key"))
    where = {body: queue.queue_id for queue, body, _ in sent}
    assert where[b"0"] == where[b"2"] == key_hash("a") % 4
    assert where[b"3"] == 3, "no key: its turn"
    column = rows(value=["0", "1"], seat=pa.array([6, None], pa.int32()))
    sent = messages(encoded(column, partitioner="column", partitionColumn="SEAT"))
    assert {body: queue.queue_id for queue, body, _ in sent} == {b"0": key_hash("6") % 4, b"1": 1}


def test_a_column_names_the_topic_of_each_row() -> None:
    sent = messages(encoded(rows(topic=["a", "b", "a"], value=["0", "1", "2"]), topic=""))
    assert sorted((queue.topic, body) for queue, body, _ in sent) == [("a", b"0"), ("a", b"2"), ("b", b"1")]


def test_batches_are_bounded_by_number_and_by_bytes() -> None:
    many = rows(value=["x" * 100] * 100, orderingKey=["k"] * 100)
    assert [len(batch.decode(p.body)) for _, p in encoded(many, batchMessages="30")] == [30, 30, 30, 10]
    assert all(len(p.body) <= 2000 for _, p in encoded(many, batchBytes="2000"))
    assert len(messages(encoded(many, batchBytes="2000"))) == 100
    assert [len(batch.decode(p.body)) for _, p in encoded(many, batchBytes="1")] == [1] * 100


def test_delayed_messages_go_alone_and_count_by_themselves() -> None:
    delay = pa.array([None, 3, 0, 3], pa.int32())
    emitted = encoded(rows(value=["0", "1", "2", "3"], orderingKey=["k"] * 4, delay=delay))
    assert sorted(p.code for _, p in emitted) == [RequestCode.SEND_MESSAGE_V2] * 2 + [RequestCode.SEND_BATCH_MESSAGE]
    found = {body: (props.get("DELAY"), parse_stamp(props[STAMP])) for _, body, props in messages(emitted)}
    assert {body: (delay, s and (s.stream, s.sequence)) for body, (delay, s) in found.items()} == {
        b"0": (None, ("0", 0)), b"2": (None, ("0", 1)), b"1": ("3", ("0.3", 0)), b"3": ("3", ("0.3", 1)),
    }  # fmt: skip


def test_without_stamps_there_are_none() -> None:
    [(_, _, props)] = messages(encoded(rows(value=["x"]), stamps="false"))
    assert STAMP not in props
    assert len(props["UNIQ_KEY"]) == 32


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"value": pa.array(["a", None])}, {}, "a row without a value"),
        ({"body": pa.array(["a", ""])}, {}, "empty body"),
        ({"value": pa.array([b"x" * (4 << 20)])}, {}, "a body of 4194304 bytes"),
        ({"value": ["a"], "tag": ["b\x01"]}, {}, "a tag holds"),
        ({"value": ["a"], "key": ["b\x02"]}, {}, "a key holds"),
        (
            {"value": ["a"], "properties": pa.array([[("a", "b\x02")]], pa.map_(pa.string(), pa.string()))},
            {},
            "property 'a'",
        ),
        ({"value": ["a"], "key": ["k" * 40_000]}, {}, "the limit is 32767"),
        ({"value": ["a"], "delay": pa.array([-1], pa.int32())}, {}, "delay -1"),
        ({"value": ["a"], "delay": pa.array([2], pa.int32()), "key": ["k" * 40_000]}, {}, "the limit is 32767"),
        ({"value": ["a"], "topic": pa.array([None], pa.string())}, {"topic": ""}, "a row without a topic"),
        ({"value": ["a"], "topic": ["%RETRY%g"]}, {"topic": ""}, "retry topic"),
    ],
)
def test_rows_that_cannot_be_sent_are_refused(columns: dict[str, Any], options: dict[str, str], said: str) -> None:
    with pytest.raises(SinkError, match=said):
        encoded(rows(**columns), **options)


def test_a_topic_that_no_broker_takes_is_refused() -> None:
    with pytest.raises(Exception, match="a b"):
        encoded(rows(value=["a"], topic=["a b"]), topic="")


def test_sorting_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "MAX_SORT_BYTES", 100)
    with pytest.raises(SinkError, match="more partitions"):
        encoded(rows(value=["x" * 200], n=pa.array([1], pa.int32())), sequenceBy="n")


def test_a_task_writes_to_so_many_topics_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "MAX_TOPICS", 2)
    with pytest.raises(SinkError, match="2 topics"):
        encoded(rows(value=["a"] * 3, topic=["a", "b", "c"]), topic="")
