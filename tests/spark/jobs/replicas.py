"""Replicas for tests: the same log in several folders, and what can go wrong in one of them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.spark.log.logs import T0, record, segment_of

from perseid.wire import properties as props
from perseid.wire.dledger import ENTRY_HEADER, ENTRY_HEADER_BYTES
from perseid.wire.ha_auto import EpochEntry, encode_epoch_file
from perseid.wire.record import Message, decode, encode, patch

SIZE = 8192
"""Of a segment."""
SEGMENTS = 3
Parts = dict[int, bytearray]
"""Segments by their first offset."""


def one(place: int, **more: Any) -> bytes:
    """The record at a place: what it holds depends on the place alone."""
    values: dict[str, Any] = {
        "topic": ("orders", "paid", "orders-eu")[place % 3], "queue_id": place % 4, "queue_offset": place // 100,
        "body": b"body %05d" % place, "stored": T0 + place,
        "properties": props.encode({"TAGS": "t", "UNIQ_KEY": f"ID{place:05d}"}),
    }  # fmt: skip
    return record(place, **(values | more))


def parts(*, entries: bool = False, make: Callable[[int], bytes] = one) -> Parts:
    """A log of three segments, the last one half full."""
    found = {}
    for number in range(SEGMENTS):
        start = number * SIZE
        last = number == SEGMENTS - 1
        found[start] = bytearray(segment_of(start, SIZE, make, entries=entries, filled=not last, index=number * 1000))
    return found


def written(folder: Path, found: Parts, *, entries: bool = False, epochs: list[tuple[int, int]] | None = None) -> Path:
    """A store folder with these segments."""
    log = folder / ("dledger-n0/data" if entries else "commitlog")
    log.mkdir(parents=True)
    for start, data in found.items():
        (log / f"{start:020d}").write_bytes(bytes(data))
    if epochs is not None:
        (folder / "epochFileCheckpoint").write_bytes(encode_epoch_file([EpochEntry(*e) for e in epochs]))
    return folder


def places(found: Parts, *, entries: bool = False) -> list[int]:
    """Where the records of a sound log begin (their entries, if they have some)."""
    result = []
    for start, data in sorted(found.items()):
        at = 0
        while at + 8 <= len(data):
            first, second = struct.unpack_from(">ii", data, at)
            size = second if entries else first
            if not (first == 1 if entries else second in (-626843481, -626843477)):
                break
            result.append(start + at)
            at += size
    return result


def at(found: Parts, place: int) -> tuple[bytearray, int]:
    """A segment and where in it a place is."""
    start = place // SIZE * SIZE
    return found[start], place - start


def size_at(found: Parts, place: int) -> int:
    data, offset = at(found, place)
    return int(struct.unpack_from(">i", data, offset)[0])


def rebuilt(found: Parts, place: int, **more: Any) -> None:
    """Another record of the same size in the stead of that at `place`, sound in itself."""
    data, offset = at(found, place)
    old = decode(data, offset)
    values = {
        name: getattr(old, name)
        for name in (
            "topic", "body", "queue_id", "flag", "sys_flag", "born_timestamp", "born_host", "store_host",
            "reconsume_times", "prepared_transaction_offset", "properties",
        )
    }  # fmt: skip
    stored = more.pop("store_timestamp", old.store_timestamp)
    queue_offset = more.pop("queue_offset", old.queue_offset)
    new = encode(Message(**(values | more)))
    patch(new, queue_offset, place, stored)
    assert len(new) == old.size, "of the same size"
    data[offset : offset + old.size] = new


def spoilt(found: Parts, place: int, by: int, bit: int = 1) -> None:
    """A bit of a record, or of what else stands there, is another."""
    data, offset = at(found, place)
    data[offset + by] ^= bit


def body_at(found: Parts, place: int) -> int:
    """Where in a record its body begins."""
    data, offset = at(found, place)
    return bytes(data[offset : offset + 200]).index(b"body ")


def inserted(found: Parts, place: int) -> None:
    """One record more at `place`; all behind it in that segment stand later, and say so."""
    data, offset = at(found, place)
    tail = [p for p in places({place - offset: data}) if p >= place]
    _moved(data, place, tail, one(place, body=b"besides"))


def removed(found: Parts, place: int) -> None:
    """The record at `place` is not there; all behind it in that segment stand earlier, and say so."""
    data, offset = at(found, place)
    tail = [p for p in places({place - offset: data}) if p > place]
    _moved(data, place, tail, b"")


def swapped(found: Parts, place: int, after: int) -> None:
    """Two neighbours in the other order."""
    data, offset = at(found, place)
    tail = [p for p in places({place - offset: data}) if p >= place]
    assert tail[1] == after
    _moved(data, place, [after, place, *tail[2:]], b"")


def _moved(data: bytearray, place: int, tail: list[int], first: bytes) -> None:
    """From `place` on: `first`, then the records of `tail`, as many as have room, and a blank."""
    start = place // SIZE * SIZE
    fresh = bytearray(data[: place - start]) + first
    for old in tail:
        size = struct.unpack_from(">i", data, old - start)[0]
        raw = bytearray(data[old - start : old - start + size])
        if len(fresh) + size + 8 > SIZE:
            break
        struct.pack_into(">q", raw, 28, start + len(fresh))
        fresh += raw
    left = SIZE - len(fresh)
    data[:] = fresh + struct.pack(">ii", left, -875286124) + bytes(left - 8)


def retermed(found: Parts, place: int, term: int) -> None:
    """An entry is of another term."""
    data, offset = at(found, place)
    head = list(ENTRY_HEADER.unpack_from(data, offset))
    head[3] = term
    data[offset : offset + ENTRY_HEADER_BYTES] = ENTRY_HEADER.pack(*head)
