"""Pull answers as record batches: the core's way and the plain one give the same, from whatever a broker sends."""

from __future__ import annotations

import zlib
from random import Random
from typing import Any

import pytest

from perseid import core
from perseid.base.errors import RemoteProtocolError, StoreError
from perseid.client.model import MessageQueue
from perseid.client.stamps import STAMP, Placed
from perseid.core import columns as plain_columns
from perseid.spark import schema
from perseid.spark.decode import CoreRows, PlainRows, Rows, Wanted
from perseid.spark.pulls import MOST_MESSAGES
from perseid.wire import properties as props
from perseid.wire.host import host_from
from perseid.wire.record import MIN_RECORD_BYTES, SYS_COMPRESSED, Message, encode, patch

QUEUE = MessageQueue("t", "broker-a", 3)
ALL = tuple(schema.BY_NAME)
WAYS = {
    "plain": PlainRows,
    "core as Python": lambda queue, wanted: CoreRows(queue, wanted, plain_columns),
    **(
        {"core": lambda queue, wanted: CoreRows(queue, wanted, core.installed.columns)} if core.is_compiled else {}
    ),
}  # fmt: skip
RAW = (
    b"", b"TAGS\x01a\x02", b"KEYS\x01k1 k2\x02TAGS\x01b\x02UNIQ_KEY\x01ID7\x02", b"x\x01\x02\x01y\x02z\x02",
    b"a\x01b\x01c\x02KEYS\x01\xc3\xa4\x02", b"TAGS\x01one\x02TAGS\x01two\x02", b"n\x01\xff\xfe\x02TAGS\x01a\x02",
    b"TAGS\x01last has no end", f"{STAMP}\x01w:0:0:l:h:0:5:d\x02TAGS\x01a\x02".encode(), b"UNIQ_KEY\x01q\x02\0",
)  # fmt: skip


def record(offset: int, raw: bytes = b"", body: bytes = b"body", **more: Any) -> bytes:
    made = {"queue_id": 3, "born_timestamp": 1_700_000_000_000, "flag": -7, "born_host": host_from("10.0.0.1:99"),
            "store_host": host_from("10.0.0.2:10911"), "reconsume_times": 2, **more}  # fmt: skip
    found = encode(Message(topic="t", body=body, properties=raw, **made))
    patch(found, offset, 1000 * offset + 7, 1_700_000_001_234)
    return bytes(found)


def drawn(random: Random, count: int, start: int = 100) -> bytes:
    """Messages of all kinds, one after the other."""
    found = []
    for offset in range(start, start + count):
        more: dict[str, Any] = {}
        body = random.randbytes(random.randrange(1, 60))
        if random.random() < 0.2:
            more["sys_flag"] = SYS_COMPRESSED
            body = zlib.compress(body * 10)
        if random.random() < 0.2:
            more["store_host"] = host_from("[2001:db8::1]:10911")
        found.append(record(offset, random.choice(RAW), body, **more))
    return b"".join(found)


def batch(way: str, body: bytes, wanted: Wanted, start: int = 0, end: int = 2**40) -> list[dict[str, Any]]:
    rows: Rows = WAYS[way](QUEUE, wanted)
    rows.add(body, start, end)
    found: list[dict[str, Any]] = rows.batch().to_pylist()
    return found


@pytest.mark.parametrize("way", [way for way in WAYS if way != "plain"])
@pytest.mark.parametrize("seed", range(5))
def test_both_ways_give_the_same(way: str, seed: int) -> None:
    body = drawn(Random(seed), 60)
    for names in (ALL, ("tag", "value"), ("msgId",), ("headers", "topic"), ("key", "offset", "bornHost")):
        wanted = Wanted(names, 1000)
        found = batch(way, body, wanted)
        assert found == batch("plain", body, wanted)
        assert len(found) == 60


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_those_that_are_wanted(way: str) -> None:
    body = b"".join(record(n, b"TAGS\x01%b\x02KEYS\x01k%d\x02" % (b"ab"[n % 2 : n % 2 + 1], n)) for n in range(20))
    wanted = Wanted(("offset",), 100, tags=frozenset("a"), keys=frozenset(["k4", "k6", "k7", "k16"]))
    assert [row["offset"] for row in batch(way, body, wanted, 5, 15)] == [6]
    assert [row["offset"] for row in batch(way, body, Wanted(("offset",), 100), 5, 15)] == list(range(5, 15))


@pytest.mark.parametrize("way", WAYS)
def test_what_was_added_last_can_be_dropped(way: str) -> None:
    rows: Rows = WAYS[way](QUEUE, Wanted(("offset",), 100))
    stamp = f"{STAMP}\x01w:0:0:l:h:0:{{}}:d\x02"
    assert rows.add(b"".join(record(n) for n in range(3)), 0, 9) == [0, 1, 2]
    assert rows.placed() == []
    stamped = record(4, stamp.format(1).encode()) + record(5, stamp.format(2).encode())
    assert rows.add(record(3) + stamped, 3, 9) == [3, 4, 5]
    assert rows.placed() == [Placed(4, "w:0:0:l:h:0:1:d"), Placed(5, "w:0:0:l:h:0:2:d")]
    rows.drop({4})
    assert rows.add(record(6) + record(7), 6, 9) == [6, 7]
    rows.drop()
    assert [row["offset"] for row in rows.batch().to_pylist()] == [0, 1, 2, 3, 5]
    assert rows.add(record(8), 8, 9) == [8]
    assert [row["offset"] for row in rows.batch().to_pylist()] == [8], "a new batch drops nothing"


@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_message_fails_and_leaves_no_row(way: str) -> None:
    rows: Rows = WAYS[way](QUEUE, Wanted(ALL, 100))
    good, bad = record(0), bytearray(record(1))
    bad[MIN_RECORD_BYTES] ^= 0xFF
    for body in (good + bytes(bad), good + b"\0" * 200, good + good[:50]):
        with pytest.raises(StoreError):
            rows.add(body, 0, 9)
    assert rows.batch().num_rows == 0
    with pytest.raises(RemoteProtocolError, match="more than"):
        rows.add(b"".join(record(n) for n in range(MOST_MESSAGES + 101)), 0, 10_000)


@pytest.mark.parametrize("way", WAYS)
def test_a_time_that_no_calendar_has_is_null(way: str) -> None:
    (row,) = batch(way, record(0, born_timestamp=2**62), Wanted(("bornTimestamp", "timestamp"), 10))
    assert row["bornTimestamp"] is None and row["timestamp"] is not None


def test_properties_are_those_of_the_client() -> None:
    for raw in RAW:
        (row,) = batch("plain", record(0, raw), Wanted(("properties", "headers", "tag"), 10))
        assert dict(row["properties"]) == props.decode(raw)
        assert {one["key"]: one["value"].decode() for one in row["headers"]} == props.decode(raw)
