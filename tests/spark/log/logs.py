"""Logs made for tests: segments of records or entries, also with bodies that hold records, and damage."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from perseid import core
from perseid.spark.log.folders import Split
from perseid.spark.log.rows import COLUMNS, CoreRows, PlainRows, RowOptions, Rows
from perseid.spark.log.walk import Segment, SegmentBytes, Walk
from perseid.testing.cores import core_from
from perseid.wire import properties as props
from perseid.wire.dledger import Entry
from perseid.wire.host import host_from
from perseid.wire.record import Message, blank, encode, patch

HEAD = 48
SOURCE = core_from(Path(core.__file__).parent).columns
ALL = tuple(COLUMNS)
T0 = 1_700_000_000_000

WAYS: dict[str, Callable[[RowOptions, bool], Rows]] = {
    "plain": PlainRows,
    "source": lambda options, entries: CoreRows(options, entries, SOURCE),
}
if core.is_compiled:
    WAYS["compiled"] = lambda options, entries: CoreRows(options, entries, core.installed.columns)
QUICKEST = list(WAYS)[-1] if core.is_compiled else "plain"


def record(place: int, **more: Any) -> bytes:
    """A record that stands at `place`."""
    values: dict[str, Any] = {
        "topic": "orders", "body": b"hello", "queue_id": 1, "born_timestamp": T0, "properties": b"TAGS\x01t\x02",
        "born_host": host_from("10.0.0.1:4000"), "store_host": host_from("10.0.0.2:10911"),
    } | more  # fmt: skip
    stored, offset = values.pop("stored", T0 + 1), values.pop("queue_offset", 7)
    found = encode(Message(**values))
    patch(found, offset, place, stored)
    return bytes(found)


def drawn(random: Random, place: int, most: int = 400) -> bytes:
    """Some record: texts of several kinds, hosts of both, none or some properties."""
    names = ["KEYS", "TAGS", "UNIQ_KEY", "a", "ключ", "KEYS"]
    pairs = {random.choice(names): random.choice(["v", "два слова", "x" * 30]) for _ in range(random.randrange(4))}
    host = random.choice(["10.0.0.1:4000", "[2001:db8::1]:65535", "255.255.255.255:1"])
    return record(
        place,
        topic=random.choice(["orders", "payments", "%RETRY%группа", "long" * 40]),
        body=random.randbytes(random.randrange(most)),
        queue_id=random.randrange(4),
        flag=random.choice([0, -1, 5]),
        properties=random.choice([props.encode(pairs), b"", b"a\x01b", b"a\x01\x02b\x01c\x02\x02", b"a\x01b\x01c\x02"]),
        born_host=host_from(host),
        store_host=host_from(random.choice([host, "127.0.0.1:10911"])),
        queue_offset=random.randrange(1 << 40),
        stored=T0 + random.randrange(10_000),
    )


def nest(random: Random, place: int, most: int) -> bytes:
    """A record with records in its body that say that they stand where they stand. Some reach to its end or beyond it,
    or merge into what follows."""
    body_at = place + 88
    body, count = bytearray(random.randbytes(random.randrange(20))), random.randrange(1, 4)
    for _ in range(count):
        inner = bytearray(drawn(random, body_at + len(body), most // 8))
        if random.random() < 0.3:  # it claims more than is there: its properties, which no checksum covers, go on
            more = random.randrange(1, most // 2)
            size, old = struct.unpack_from(">i", inner)[0], struct.unpack_from(">h", inner, _length_at(inner))[0]
            struct.pack_into(">i", inner, 0, size + more)
            struct.pack_into(">h", inner, _length_at(inner), old + more)
        body += inner
        if random.random() < 0.3:
            body += random.randbytes(random.randrange(9))
    return record(place, body=bytes(body), properties=random.choice([b"", b"a\x01b\x02"]))


def _length_at(inner: bytearray) -> int:
    """Where a record has the length of its properties."""
    flags = inner[39]
    at = 88 + (12 if flags & 0x10 else 0) + (12 if flags & 0x20 else 0)
    at += struct.unpack_from(">i", inner, at - 4)[0]
    if inner[7] == 0xA7:
        return at + 1 + inner[at]
    return at + 2 + struct.unpack_from(">h", inner, at)[0]


def segment_of(
    start: int, size: int, make: Callable[[int], bytes], *, entries: bool = False, filled: bool = True, index: int = 0
) -> bytes:
    """A segment's bytes: what `make` gives for each place, then a blank and zeros (not `filled`: zeros)."""
    found = bytearray()
    while True:
        at = start + len(found)
        one = make(at + HEAD) if entries else make(at)
        if entries:
            one = b"".join(map(bytes, Entry(index, 3, at, one, size=HEAD + len(one)).encode()))
        if len(found) + len(one) + 8 > size:
            break
        found += one
        index += 1
        if not filled and len(found) > size // 2:
            break
    left = size - len(found)
    if filled:
        found += struct.pack(">ii", -1, left) if entries else blank(left)
    return bytes(found) + bytes(size - len(found))


def damaged(random: Random, data: bytes, times: int) -> bytes:
    """The same with a few bytes, bits, or stretches changed."""
    found = bytearray(data)
    for _ in range(times):
        at, count = random.randrange(len(found)), random.choice([1, 1, 4, 90, 700])
        end = min(at + count, len(found))
        kind = random.randrange(3)
        found[at:end] = bytes(end - at) if kind == 0 else random.randbytes(end - at)
        if kind == 2:  # a stretch of it comes from elsewhere, as after a mix-up of pages
            other = random.randrange(len(found) - (end - at) + 1)
            found[at:end] = data[other : other + end - at]
    return bytes(found)


def written(folder: Path, parts: Sequence[tuple[int, bytes]]) -> Path:
    """A folder with segments; itself."""
    folder.mkdir(parents=True, exist_ok=True)
    for start, data in parts:
        (folder / f"{start:020d}").write_bytes(data)
    return folder


def one_segment(
    path: Path, start: int, data: bytes, *, entries: bool = False, is_last: bool = False, limit: int | None = None
) -> Segment:
    """A segment in a file of its own."""
    path.write_bytes(data)
    end = start + len(data)
    return Segment(str(path), start, end, end if limit is None else limit, entries, is_last)


def rows_of(segment: Segment, cuts: Sequence[int] = (), way: str = QUICKEST, **more: Any) -> list[dict[str, Any]]:
    """The rows of a segment, read in splits that end at `cuts`."""
    options = RowOptions(names=ALL, **more)
    found: list[dict[str, Any]] = []
    bounds = [segment.start, *sorted(cuts), segment.limit]
    for begin, end in pairwise(bounds):
        with SegmentBytes(segment) as data:
            walk = Walk(segment, data, WAYS[way](options, segment.entries), options.most_bytes)
            for batch in walk.batches(begin, end):
                batch.validate(full=True)
                found += batch.to_pylist()
    return found


def rows_in(splits: Sequence[Split], read: Callable[..., Any], **more: Any) -> list[dict[str, Any]]:
    """The rows of some splits, by the source's own reader."""
    options = RowOptions(**{"names": ALL, **more})
    batches = [batch for split in splits for batch in read(split, options)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []
