"""The end of a log: what is only not written yet, and what is damage (issue 20, number 10)."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark.log.logs import HEAD, QUICKEST, WAYS, one_segment, record, rows_of, written
from tests.store.harness import Node, message
from tests.store.test_recovery import FIRST, filled, spoil

from perseid.spark.log import torn
from perseid.spark.log.folders import Split, logs
from perseid.spark.log.options import parse
from perseid.spark.log.reading import planned, read
from perseid.spark.log.rows import COLUMNS, Chosen, RowOptions
from perseid.wire.dledger import ENTRY_HEADER
from perseid.wire.record import blank

GOLDEN = Path(__file__).parents[2] / "golden"
STORES = [
    ("store_plain/store", "b0/store"), ("store_logs/controller", "b1/store"), ("store_logs/dledger", "b2/store"),
]  # fmt: skip
MOST_BYTES = 16 << 10
"""Of the records there."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torn, "AGAIN_MS", 0)


def two(entries: bool) -> tuple[bytes, bytes]:
    """Two records, one behind the other; those of a group in their entries."""
    if not entries:
        return record(0), record(len(record(0)), body=bytes(range(1, 200)))
    first = HEAD + len(record(HEAD))
    bodies = [(0, record(HEAD)), (first, record(first + HEAD, body=bytes(range(1, 200))))]
    made = [
        bytes(ENTRY_HEADER.pack(1, HEAD + len(body), number, 1, place, 0, 0, 0, len(body))) + body
        for number, (place, body) in enumerate(bodies)
    ]
    return made[0], made[1]


def table(folder: Path) -> list[dict[str, Any]]:
    """The rows of a store folder."""
    options = parse({"path": str(folder)})
    return [
        row
        for split in planned(options, Chosen())
        for batch in read(split, RowOptions(tuple(COLUMNS), most_bytes=options.most_bytes))
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("entries", [False, True], ids=["classic", "dledger"])
def test_item_10_a_record_that_is_cut_anywhere_is_told_once_its_size_and_magic_are_there(
    tmp_path: Path, way: str, entries: bool
) -> None:
    one, last = two(entries)
    for cut in [*range(0, len(last), 1 if way == QUICKEST and not entries else 9), len(last)]:
        data = one + last[:cut]
        data += bytes(5000 - len(data))
        segment = one_segment(tmp_path / "s", 0, data, entries=entries, is_last=True)
        rows = rows_of(segment, [len(one) - 3, len(one) + 1], way)
        assert rows[0]["_corrupt"] is None
        left = len(last[:cut].rstrip(b"\0"))
        if left < 8:
            assert len(rows) == 1, (cut, "the end")
        else:
            (told,) = rows[1:]
            assert (told["_corrupt"] is None) == (cut == len(last)), (cut, told["_corrupt"])
            assert cut == len(last) or f"at byte {len(one)}: " in told["_corrupt"]


def test_item_10_the_rows_that_are_good_are_those_that_a_brokers_recovery_keeps(tmp_path: Path) -> None:
    size = 0
    for cut in [*range(0, 160, 3), None]:
        node = filled(3)
        flushed = node.store.log.end
        appended = node.store.appends.append(message(body=b"torn" * 20, A="b"), node.now)
        size = appended.size
        assert appended.physical_offset == flushed and (cut is None or cut < size)
        node.kill()
        if cut is not None:
            spoil(node.disk, FIRST, flushed + cut, bytes(size - cut))
        raw = node.disk.read(FIRST)
        assert raw is not None
        rows = table(written(tmp_path / f"{cut}" / "commitlog", [(0, raw)]).parent)
        node.load()
        good = [row for row in rows if row["_corrupt"] is None]
        assert max(row["physicalOffset"] + row["size"] for row in good) == node.store.log.end, cut
        assert node.store.log.end == flushed + (size if cut is None else 0)
        assert len(rows) - len(good) == (cut is not None and cut >= 8), "what recovery cuts off is told, or nothing was"
    assert size > 160 and isinstance(node, Node)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    found: dict[str, Path] = {}

    def folder(name: str, store: str) -> Path:
        if name not in found:
            found[name] = tmp_path_factory.mktemp("golden")
            with tarfile.open(GOLDEN / f"{name}.tar.gz") as tar:
                tar.extractall(found[name], filter="data")
        return found[name] / store

    return folder


@pytest.mark.parametrize(("name", "store"), STORES)
def test_item_10_no_byte_of_the_last_record_that_java_wrote_is_damaged_in_silence(
    golden: Callable[[str, str], Path], name: str, store: str
) -> None:
    folder = golden(name, store)
    before = table(folder)
    last = max(before, key=lambda row: row["physicalOffset"])
    (log,) = [log for log in logs(str(folder)) if log.segments]
    segment = next(one for one in log.segments if one.is_last)
    path, head = Path(segment.path), HEAD if segment.entries else 0
    options = RowOptions(tuple(COLUMNS), most_bytes=MOST_BYTES)
    end = Split(str(folder), segment, before[-4]["physicalOffset"] - head, segment.limit)

    def tail() -> list[dict[str, Any]]:
        return [row for batch in read(end, options) for row in batch.to_pylist()]

    before = tail()
    assert len(before) == 4 and before[-1] == last
    sound, at = path.read_bytes(), last["physicalOffset"] - segment.start
    body_at = 88 + (12 if last["sysFlag"] & 16 else 0) + (12 if last["sysFlag"] & 32 else 0)
    covered = {*range(12), *range(28, 36)}  # size, magic, checksum, its own place
    unseen = set()
    if head:
        covered |= {*range(-48, -40), *range(-24, -16), *range(-4, 0)}  # magic, size, its own place, the body's size
        unseen = {*range(-40, -32), *range(-16, -4)}  # index, channel, checksums of a group's own: in no column
    covered |= {*range(body_at - 4, body_at + 1)}  # the body's length, and its beginning
    try:
        for byte in range(-head, last["size"]):
            with path.open("r+b") as file:
                file.seek(at + byte)
                file.write(bytes([sound[at + byte] ^ 0x55]))
            rows = tail()
            with path.open("r+b") as file:
                file.seek(at + byte)
                file.write(sound[at + byte : at + byte + 1])
            assert len(rows) == len(before), byte
            assert rows[:-1] == before[:-1], byte
            assert (rows[-1] == last) <= (byte in unseen), byte
            if byte in covered:
                assert rows[-1]["_corrupt"], byte
    finally:
        path.write_bytes(sound)


@pytest.mark.parametrize("entries", [False, True], ids=["classic", "dledger"])
def test_item_10_what_is_being_written_is_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: bool
) -> None:
    one, last = two(entries)
    path, whole = tmp_path / "s", one + last + bytes(5000)
    pauses: list[float] = []
    for cut in (9, 60, 150, len(last) - 1):
        half = one + last[:cut]
        segment = one_segment(path, 0, half + bytes(len(whole) - len(half)), entries=entries, is_last=True)
        assert len(rows_of(segment)) == 2, "nobody writes on"

        def goes_on(seconds: float) -> None:
            pauses.append(seconds)
            path.write_bytes(whole)

        with monkeypatch.context() as patch:
            patch.setattr(torn.time, "sleep", goes_on)
            assert [row["_corrupt"] for row in rows_of(segment)] == [None], cut
    assert len(pauses) == 4
    for limit in range(len(one) + 1, len(one) + len(last)):
        segment = one_segment(path, 0, whole, entries=entries, is_last=True, limit=limit)
        assert [row["_corrupt"] for row in rows_of(segment)] == [None], "it was written after the read was planned"


@pytest.mark.parametrize("tail", ["zeros", "blank", "seven bytes", "nothing"])
def test_item_10_what_a_log_ends_with_is_no_damage(tmp_path: Path, tail: str) -> None:
    one, last = two(False)
    data = one + {
        "zeros": bytes(5000), "blank": blank(5000) + bytes(4992), "seven bytes": last[:7] + bytes(4993), "nothing": b"",
    }[tail]  # fmt: skip
    folder = written(tmp_path / "commitlog", [(0, data), (len(data), bytes(len(data)))]).parent
    assert [row["_corrupt"] for row in table(folder)] == [None]


def test_a_last_record_without_properties_is_read_where_a_page_ends_within_its_last_zeros(tmp_path: Path) -> None:
    for more in (1, 2):
        first = record(0, properties=b"")
        body = bytes([7]) * (4096 - 2 * len(first) + more + 5)
        second = record(len(first), properties=b"", body=body)
        data = first + second
        assert len(data) == 4096 + more and data[4096:] == bytes(more)
        folder = written(tmp_path / f"{more}" / "commitlog", [(0, data + bytes(8192))]).parent
        assert [row["body"] for row in table(folder)] == [b"hello", body]
