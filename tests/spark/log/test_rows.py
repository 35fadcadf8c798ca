"""Rows by the compiled core, by its source, and by plain Python: the same, and what the records say."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.spark.log.logs import ALL, HEAD, T0, WAYS, damaged, drawn, one_segment, record, rows_of, segment_of

from perseid.spark.log.rows import Chosen, RowOptions
from perseid.spark.log.walk import SegmentBytes, Walk
from perseid.wire import properties as props
from perseid.wire.compression import LZ4, ZLIB, ZSTD, compress, flag_of
from perseid.wire.dledger import ENTRY_HEADER
from perseid.wire.record import decode

KINDS = [LZ4, ZSTD, ZLIB]
BODY = b"a body that is worth to be compressed " * 5


def odd(random: Random, place: int) -> bytes:
    """A record that is none of the plain ones, or nearly."""
    kind = random.randrange(9)
    if kind == 8:
        return record(place, properties=b"a\x01b\x02c\0")
    if kind == 0:
        return record(place, body=compress(BODY, random.choice(KINDS)), sys_flag=flag_of(random.choice(KINDS)))
    if kind == 1:
        return record(place, properties=b"a\x01b\x02c\x01d\x02a\x01e\x02KEYS\x01k\x02")
    if kind == 2:
        return record(place, properties=b"a\x01\xff\xfe\x02\xc3\x28\x01x\x02TAGS\x01\xed\xa0\x80\x02")
    if kind == 3:
        return record(place, born_timestamp=random.choice([-(2**63), 2**63 - 1, -1, 253_402_300_800_000]))
    if kind == 4:
        return record(place, stored=random.choice([2**62, 253_402_300_799_999]))
    if kind == 5:
        many = {f"name {n}": "v" for n in range(random.choice([63, 64, 65, 300]))}
        return record(place, properties=props.encode(many))
    found = bytearray(record(place, topic="abcdef", body=b"" if kind == 6 else b"x"))
    found[found.index(b"abcdef") + 2] = 0xC3
    return bytes(found)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), entries=st.booleans(), harm=st.integers(0, 2), unpack=st.booleans())
def test_all_ways_give_the_same_rows(tmp_path: Path, seed: int, entries: bool, harm: int, unpack: bool) -> None:
    random = Random(seed)
    make = lambda place: (odd if random.random() < 0.3 else drawn)(random, place)  # noqa: E731
    data = damaged(random, segment_of(4096, 8000, make, entries=entries), harm)
    segment = one_segment(tmp_path / "s", 4096, data, entries=entries)
    chosen = random.choice(
        [
            Chosen(),
            Chosen(topics=frozenset(["orders", "%RETRY%группа"])),
            Chosen(times=(T0 + 1000, T0 + 5000), offsets=(5000, 9000)),
            Chosen(only_corrupt=True),
        ]
    )
    found = {way: rows_of(segment, way=way, decompress=unpack, chosen=chosen) for way in WAYS}
    first = found.pop("plain")
    assert all(first == other for other in found.values())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("entries", [False, True], ids=["classic", "dledger"])
def test_a_row_has_what_the_record_says(tmp_path: Path, way: str, entries: bool) -> None:
    random = Random(3)
    data = segment_of(1000, 9000, lambda place: drawn(random, place), entries=entries)
    rows = rows_of(one_segment(tmp_path / "s", 1000, data, entries=entries), way=way, folder="here")
    assert len(rows) > 20
    at = 0
    for number, row in enumerate(rows):
        at += HEAD if entries else 0
        told = decode(data, at)
        at += told.size
        assert list(row) == list(ALL)
        assert (row["topic"], row["queueId"], row["queueOffset"]) == (told.topic, told.queue_id, told.queue_offset)
        assert (row["physicalOffset"], row["size"]) == (told.physical_offset, told.size)
        assert row["storeTimestamp"].timestamp() * 1000 == told.store_timestamp
        assert row["bornTimestamp"].timestamp() * 1000 == told.born_timestamp
        assert (row["storeHost"], row["bornHost"]) == (str(told.store_host), str(told.born_host))
        assert (row["sysFlag"], row["flag"], row["bodyCrc"]) == (told.sys_flag, told.flag, told.body_crc)
        assert (row["body"], dict(row["properties"])) == (told.body, told.props)
        assert (row["keys"], row["tags"]) == (told.props.get("KEYS"), told.tag)
        assert (row["reconsumeTimes"], row["preparedTransactionOffset"]) == (0, 0)
        assert row["term"] == (3 if entries else None) and row["_corrupt"] is None and row["folder"] == "here"
        assert number or row["physicalOffset"] == (1048 if entries else 1000)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_bodies_come_as_a_consumer_gets_them(tmp_path: Path, way: str, kind: int) -> None:
    packed = compress(BODY, kind)
    segment = one_segment(tmp_path / "s", 0, record(0, body=packed, sys_flag=flag_of(kind)) + bytes(99), is_last=True)
    (row,) = rows_of(segment, way=way)
    assert (row["body"], row["sysFlag"], row["_corrupt"]) == (BODY, flag_of(kind), None)
    (row,) = rows_of(segment, way=way, decompress=False)
    assert (row["body"], row["_corrupt"]) == (packed, None)


@pytest.mark.parametrize("way", WAYS)
def test_what_does_not_decode_is_a_row_that_says_so(tmp_path: Path, way: str) -> None:
    makes = [
        lambda place: record(place, body=b"no zlib", sys_flag=flag_of(ZLIB)),
        lambda place: record(place, stored=2**62),
        lambda place: record(place, born_timestamp=-(2**63)),
        lambda place: record(place, topic="abc").replace(b"\x03abc", b"\x03a\xffc"),
        lambda place: record(place, body=b"", properties=b"\xff\x01x\x02"),
    ]
    data = b""
    for make in makes:
        data += make(len(data))
    rows = rows_of(one_segment(tmp_path / "s", 0, data + bytes(50), is_last=True), way=way)
    words = [
        "a body that can't be decompressed", "storeTimestamp 4611686018427387904 is no time",
        "bornTimestamp -9223372036854775808 is no time", "the topic's name is not UTF-8",
    ]  # fmt: skip
    for row, word in zip(rows[:4], words, strict=True):
        assert word in row["_corrupt"] and f": at byte {row['physicalOffset']}: " in row["_corrupt"]
    assert rows[0]["body"] == b"no zlib" and rows[3]["topic"] == "a\ufffdc"
    assert rows[1]["storeTimestamp"] is None and rows[1]["bornTimestamp"] is not None
    assert rows[2]["bornTimestamp"] is None and rows[2]["storeTimestamp"] is not None
    assert rows[4]["_corrupt"] is None and rows[4]["properties"] == [("\ufffd", "x")]


@pytest.mark.parametrize("way", WAYS)
def test_an_entry_that_is_no_message_is_a_row_and_the_next_one_is_read(tmp_path: Path, way: str) -> None:
    bodies = [lambda at: b"an event of a controller", lambda at: record(at), lambda at: record(at + 1), lambda at: b""]
    bodies.append(lambda at: record(at) + b"more")
    data = b""
    for index, body in enumerate(bodies):
        found = body(len(data) + HEAD)
        data += ENTRY_HEADER.pack(1, HEAD + len(found), index, 9, len(data), 0, 0, 0, len(found)) + found
    rows = rows_of(one_segment(tmp_path / "s", 0, data + bytes(99), entries=True, is_last=True), way=way)
    assert [row["_corrupt"] is None for row in rows] == [False, True, False, False, False]
    assert "entry 0 of term 9: its body is no message" in rows[0]["_corrupt"]
    assert "its message says that it stands at" in rows[2]["_corrupt"]
    assert "has a message of" in rows[4]["_corrupt"]


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_ends_when_it_is_full(way: str) -> None:
    data = segment_of(0, 5000, lambda place: record(place))
    options = RowOptions(("physicalOffset", "properties"), most_rows=8)
    found = WAYS[way](options, False)
    at, sizes = 0, []
    while (at := found.read(data, at, len(data), 0)) and found.count:
        sizes.append(found.batch().num_rows)
    assert len(sizes) > 3 and set(sizes[:-1]) == {8} and at == sum(sizes) * len(record(0))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("names", [("physicalOffset",), ("keys", "_corrupt"), ("body", "topic"), ("bornHost", "term")])
def test_fewer_columns_are_the_same_columns(tmp_path: Path, way: str, names: tuple[str, ...]) -> None:
    random = Random(8)
    data = damaged(random, segment_of(0, 6000, lambda place: drawn(random, place)), 2)
    segment = one_segment(tmp_path / "s", 0, data)
    whole: list[dict[str, Any]] = rows_of(segment, way=way)
    options = RowOptions(names)
    with SegmentBytes(segment) as raw:
        batches = list(Walk(segment, raw, WAYS[way](options, False), options.most_bytes).batches(0, segment.limit))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [{name: row[name] for name in names} for row in whole]
