"""Pull answers as record batches: the core's way and the plain one give the same, from whatever a broker sends."""

from __future__ import annotations

import zlib
from random import Random
from typing import Any

import pytest

from perseid import core
from perseid.base.errors import RemoteProtocolError, StoreError
from perseid.client.model import MessageQueue
from perseid.client.stamps import STAMP, Run, id_prefix
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
HOME = "0000000a"


def stamped(
    sequence: int | str, digest: str = "0000000d", *, stream: str = "0", more: str = "", own: str = ""
) -> bytes:
    number = sequence if isinstance(sequence, int) else 0
    own = own or f"{id_prefix(('w', 0, stream, 'l'), HOME)}{number:012X}"
    return f"UNIQ_KEY\x01{own}\x02{STAMP}\x01w:0:{stream}:l:{HOME}:7:{sequence}:{digest}\x02{more}".encode()


STAMPED = (
    stamped(2**62), stamped(2**63 - 1), stamped(2**63), stamped("x"), stamped(3, "0000000D"), stamped(4, "d"),
    stamped(5, own="another"), stamped(6, stream="1"), stamped(7, more="ORIGIN_MESSAGE_ID\x01o\x02"),
    stamped(8, "00000\u00e9"), b"TAGS\x01a\x02",
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
    assert rows.add(b"".join(record(n) for n in range(3)), 0, 9) == [0, 1, 2]
    assert rows.runs() == [] and rows.sent_on() == set()
    assert rows.add(record(3) + record(4, stamped(1)) + record(5, stamped(2)), 3, 9) == [3, 4, 5]
    assert [(run.own, list(run.sequences), list(run.offsets)) for run in rows.runs()] == [(True, [1, 2], [4, 5])]
    rows.drop({4})
    assert rows.add(record(6) + record(7), 6, 9) == [6, 7]
    rows.drop()
    assert [row["offset"] for row in rows.batch().to_pylist()] == [0, 1, 2, 3, 5]
    assert rows.add(record(8), 8, 9) == [8]
    assert [row["offset"] for row in rows.batch().to_pylist()] == [8], "a new batch drops nothing"


def looked_at(found: list[Run]) -> list[tuple[Any, ...]]:
    """The messages of runs, one by one."""
    return [
        (run.batch, run.home, run.since, run.own, sequence, offset, run.digests[4 * at : 4 * at + 4],
         run.crcs[4 * at : 4 * at + 4])
        for run in found
        for at, (sequence, offset) in enumerate(zip(run.sequences, run.offsets, strict=True))
    ]  # fmt: skip


@pytest.mark.parametrize("way", [way for way in WAYS if way != "plain"])
@pytest.mark.parametrize("seed", range(20))
def test_both_ways_give_the_same_stamped_messages(way: str, seed: int) -> None:
    random = Random(seed)
    rows, plain = (WAYS[name](QUEUE, Wanted(("offset",), 1000)) for name in (way, "plain"))
    at = sequence = 0
    for _ in range(12):
        found = []
        for offset in range(at, at + random.randrange(1, 9)):
            sequence = 0 if random.random() < 0.1 else sequence + random.choice([1, 1, 1, 2])
            raw = random.choice(STAMPED) if seed % 2 and random.random() < 0.3 else stamped(sequence)
            found.append(record(offset, raw, random.randbytes(9)))
        body, end = b"".join(found), at + len(found) - random.randrange(2)
        assert rows.add(body, at, end) == plain.add(body, at, end)
        told = plain.runs()
        assert looked_at(rows.runs()) == looked_at(told)
        assert rows.sent_on() >= plain.sent_on()
        gone = {offset for run in told for offset in run.offsets if random.random() < 0.2}
        rows.drop(gone)
        plain.drop(gone)
        at = max(at, end)
    assert rows.batch().to_pylist() == plain.batch().to_pylist()


@pytest.mark.parametrize("way", WAYS)
def test_who_was_sent_on_is_told(way: str) -> None:
    rows: Rows = WAYS[way](QUEUE, Wanted(("offset",), 100))
    raw = [stamped(0), stamped(1, more="ORIGIN_MESSAGE_ID\x01o\x02"), stamped(2, more="MIN_OFFSET\x010\x02")]
    rows.add(b"".join(record(n, one, b"ORIGIN_MESSAGE_ID\x01") for n, one in enumerate(raw)), 0, 9)
    assert rows.sent_on() == {1, 2}


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
