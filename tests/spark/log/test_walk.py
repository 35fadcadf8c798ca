"""Splits of a segment: every record once, in exactly one, whatever the bytes are."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.spark.log.logs import HEAD, QUICKEST, WAYS, damaged, drawn, nest, one_segment, record, rows_of, segment_of

from perseid.spark.log import walk as module
from perseid.spark.log.rows import RowOptions
from perseid.spark.log.walk import Segment, SegmentBytes, Walk
from perseid.wire.dledger import ENTRY_HEADER
from perseid.wire.record import BLANK_MAGIC, RecordError, decode, size_and_magic

MOST = 700
START = 8192
SIZE = 6000


def sound(segment: Segment, data: bytes, at: int) -> int:
    """By the book, and another book than the source's."""
    if segment.entries:
        if len(data) - at < HEAD:
            return -1
        magic, size, index, term, pos, _, _, _, body = ENTRY_HEADER.unpack_from(data, at)
        good = magic == 1 and pos == segment.start + at and size == HEAD + body and index >= 0 and term >= 0
        return size if good and HEAD <= size <= min(MOST, len(data) - at) else -1
    try:
        found = decode(data, at, check_crc=False, errors="replace")
    except RecordError:
        return -1
    return found.size if found.physical_offset == segment.start + at and found.size <= MOST else -1


def events(segment: Segment, data: bytes) -> list[tuple[int, bool]]:
    """Where the events of a segment that is not the last begin, and whether each is a record: byte by byte."""
    at, found = 0, []
    while at < len(data):
        size = sound(segment, data, at)
        if size > 0:
            found.append((segment.start + at, True))
            at += size
            continue
        if len(data) - at >= 8:
            first, second = size_and_magic(data, at)
            blank = first == -1 and second >= len(data) - at
            if blank if segment.entries else second == BLANK_MAGIC and first >= len(data) - at:
                break
        found.append((segment.start + at, False))
        at += 1
        while at < len(data) and sound(segment, data, at) < 0:
            at += 1
    return found


def made(random: Random, entries: bool, fakes: bool, harm: int) -> bytes:
    def one(place: int) -> bytes:
        if fakes and random.random() < 0.4:
            found = nest(random, place, MOST)
            if len(found) + HEAD <= MOST:
                return found
        return drawn(random, place, MOST - 500)

    return damaged(random, segment_of(START, SIZE, one, entries=entries), harm)


def place_of(row: dict[str, Any], entries: bool) -> int:
    """Where the event of a row begins."""
    is_record = row["size"] is not None and entries
    return int(row["physicalOffset"]) - (HEAD if is_record else 0)


@pytest.mark.parametrize("entries", [False, True], ids=["classic", "dledger"])
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), fakes=st.booleans(), harm=st.integers(0, 3), count=st.integers(0, 9))
def test_each_event_is_read_by_exactly_one_split(
    tmp_path: Path, entries: bool, seed: int, fakes: bool, harm: int, count: int
) -> None:
    random = Random(seed)
    data = made(random, entries, fakes, harm)
    segment = one_segment(tmp_path / f"{START:020d}", START, data, entries=entries)
    cuts = [random.randrange(START, START + SIZE) for _ in range(count)]
    rows = rows_of(segment, cuts, most_bytes=MOST)
    wanted = events(segment, data)
    assert [place_of(row, entries) for row in rows] == [place for place, _ in wanted]
    if not entries:  # an entry that is no message is a row without one
        assert [row["size"] is not None for row in rows] == [is_record for _, is_record in wanted]
    assert rows == rows_of(segment, most_bytes=MOST), "the same rows as in one piece"


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_every_place_may_be_a_splits_first(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    entries = random.random() < 0.3
    data = made(random, entries, True, random.randrange(3))
    segment = one_segment(tmp_path / f"{START:020d}", START, data, entries=entries)
    begins = [place for place, _ in events(segment, data)]
    with SegmentBytes(segment) as raw:
        walk = Walk(segment, raw, WAYS[QUICKEST](RowOptions(("topic",), most_bytes=MOST), entries), MOST)
        for place in random.sample(range(START, START + SIZE), 60):
            later = [at for at in begins if at >= place]
            found = walk.begin(place)
            found = segment.limit if walk.is_blank(found) else found
            assert found == (later[0] if later else segment.limit)


def test_a_false_record_is_not_followed_although_it_passes_every_check(tmp_path: Path) -> None:
    """Two chains in the window of a split: the right one and one within a body, which ends where that record ends."""
    fake_at = START + 300 + 88 + 8
    fakes = bytearray()
    for _ in range(3):
        fakes += record(fake_at + len(fakes), body=b"fake")
    first = record(START, body=bytes(300 - 91 - 6 - 7))
    assert len(first) == 300
    second = record(START + 300, body=b"x" * 8 + bytes(fakes))
    third = record(START + 300 + len(second))
    data = first + second + third
    segment = one_segment(tmp_path / "s", START, data + bytes(4000), is_last=True)
    size = len(fakes) // 3
    for cut in range(fake_at - 3, fake_at + len(fakes), 11):
        rows = rows_of(segment, [cut], most_bytes=len(second) + 1)
        assert [row["physicalOffset"] for row in rows] == [START, START + 300, START + 300 + len(second)], cut
    assert size > 91


def test_the_usual_split_reads_one_window_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(1)
    data = segment_of(0, 400_000, lambda place: drawn(random, place, 100))
    segment = one_segment(tmp_path / "s", 0, data)
    asked: list[int] = []
    read = SegmentBytes.read

    def told(self: SegmentBytes, place: int, count: int) -> Any:
        asked.append(place)
        return read(self, place, count)

    monkeypatch.setattr(SegmentBytes, "read", told)
    with SegmentBytes(segment) as raw:
        walk = Walk(segment, raw, WAYS[QUICKEST](RowOptions(("topic",), most_bytes=2000), False), 2000)
        found = walk.begin(300_000)
    assert 300_000 <= found < 301_000
    assert min(asked) == 298_000


@pytest.mark.parametrize("entries", [False, True], ids=["classic", "dledger"])
def test_a_record_longer_than_a_chunk_is_read(tmp_path: Path, entries: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    sizes = [10, 990, 5000, 20, 1000, 3]
    left = iter(sizes)
    data = segment_of(0, 9000, lambda place: record(place, body=bytes(next(left, 9000))), entries=entries)
    segment = one_segment(tmp_path / "s", 0, data, entries=entries)
    for cuts in ([], [100], [2500, 4000, 7000]):
        rows = rows_of(segment, cuts)
        assert [len(row["body"]) for row in rows] == sizes and not any(row["_corrupt"] for row in rows)


@pytest.mark.parametrize("way", WAYS)
def test_a_bad_stretch_is_a_row_that_says_what_and_where(tmp_path: Path, way: str) -> None:
    parts = [record(0)]
    parts += [record(len(parts[0]))]
    size = len(parts[0])
    parts += [record(2 * size), record(3 * size)]
    data = bytearray(b"".join(parts) + bytes(100))
    data[size + 4] ^= 1  # the second one's magic
    data[2 * size + 88] ^= 1  # the third one's body
    segment = one_segment(tmp_path / "s", 0, bytes(data), is_last=True)
    good, stretch, body, last = rows_of(segment, way=way)
    assert good["_corrupt"] is None and last["_corrupt"] is None
    assert stretch["_corrupt"] == f"{segment.path}: at byte {size}: {size} bytes are no record: magic dba320a7"
    assert {name for name, value in stretch.items() if value is not None} == {"physicalOffset", "_corrupt", "folder"}
    assert body["_corrupt"] == f"{segment.path}: at byte {2 * size}: the body does not match its checksum"
    assert body["topic"] == "orders" and body["body"] != b"hello"


@pytest.mark.parametrize(
    ("spoilt", "why"),
    [
        (lambda d: d[:4] + b"\0\0\0\0" + d[8:], "magic 00000000"),
        (lambda d: b"\0\0\0\x07" + d[4:], "a size of 7 bytes"),
        (lambda d: b"\x7f" + d[1:], "a size of 21"),
        (lambda d: d[:28] + b"\x11" + d[29:], "it says that it stands at"),
        (lambda d: d[:84] + b"\0\0\0\x06" + d[88:], "its parts don't add up to its size of"),
        (lambda d: bytes(len(d)), "zeros, and the log goes on behind them"),
    ],
)
def test_the_words_for_what_is_wrong(tmp_path: Path, spoilt: Any, why: str) -> None:
    one, two = record(0), record(len(record(0)))
    segment = one_segment(tmp_path / "s", 0, spoilt(one) + two + bytes(50), is_last=True)
    bad, good = rows_of(segment)
    assert f"at byte 0: {len(one)} bytes are no record: {why}" in bad["_corrupt"] and good["_corrupt"] is None


@pytest.mark.parametrize("end", ["garbage", "cut off", "not the last"])
def test_an_end_that_nobody_is_writing_is_damage(tmp_path: Path, end: str) -> None:
    one, two = record(0), record(len(record(0)))
    tail = {
        "garbage": b"\xff" * 70 + bytes(5000),
        "cut off": two[:-3],
        "not the last": bytes(500),
    }[end]
    segment = one_segment(tmp_path / "s", 0, one + tail, is_last=end != "not the last")
    good, bad = rows_of(segment)
    assert good["_corrupt"] is None
    size = {"garbage": 70, "cut off": len(tail), "not the last": 500}[end]
    assert bad["_corrupt"].startswith(f"{segment.path}: at byte {len(one)}: {size} bytes are no record: ")


def test_what_the_disk_cannot_read_is_a_row_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(5)
    data = segment_of(0, 40_000, lambda place: drawn(random, place, 300))
    segment = one_segment(tmp_path / "s", 0, data)
    before = rows_of(segment)
    pread = SegmentBytes._pread

    def failing(self: SegmentBytes, into: memoryview, at: int) -> int:
        if at < 12_288 and at + len(into) > 8192:
            raise OSError(5, os.strerror(5))
        return pread(self, into, at)

    monkeypatch.setattr(SegmentBytes, "_pread", failing)
    after = rows_of(segment)
    bad = [row for row in after if row["_corrupt"]]
    assert any("bytes 8192 to 12288 can't be read from the disk" in row["_corrupt"] for row in bad)
    away = [row for row in before if not 8192 <= row["physicalOffset"] + row["size"] < 12_288 + row["size"]]
    assert [row for row in after if not row["_corrupt"]] == away


def test_the_first_thing_that_looks_like_a_record_may_be_none(tmp_path: Path) -> None:
    """What the windows are for: without them the drawn logs above would be read wrongly."""
    wrong = 0
    for seed in range(30):
        random = Random(seed)
        data = made(random, False, True, 0)
        segment = one_segment(tmp_path / f"{seed}", START, data)
        with SegmentBytes(segment) as raw:
            walk = Walk(segment, raw, WAYS[QUICKEST](RowOptions(("topic",), most_bytes=MOST), False), MOST)
            for place in random.sample(range(START, START + SIZE), 40):
                naive = walk.search(place)
                wrong += (segment.limit if naive is None else naive) != walk.begin(place) and naive is not None
    assert wrong > 30
