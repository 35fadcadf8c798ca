"""Which segments a folder has, and which of them, and of their bytes, are looked at."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from tests.spark.log.logs import T0, drawn, record, rows_in, segment_of, written

from perseid.base.errors import ConfigError
from perseid.spark.log import filters
from perseid.spark.log.folders import Split, data_end, logs
from perseid.spark.log.options import parse
from perseid.spark.log.reading import planned, read
from perseid.spark.log.rows import Chosen

SIZE = 8192


def classic(start: int, stored: int = T0, *, filled: bool = True) -> bytes:
    return segment_of(start, SIZE, lambda place: record(place, stored=stored), filled=filled)


def splits(path: Path, chosen: Chosen | None = None, **options: str) -> list[Split]:
    return planned(parse({"path": str(path), **options}), chosen or Chosen())


def test_a_store_folder_its_log_and_a_single_segment_are_found(tmp_path: Path) -> None:
    store = tmp_path / "store"
    log = written(store / "commitlog", [(0, classic(0)), (SIZE, classic(SIZE, filled=False))])
    (log / "notes.txt").write_text("not a segment")
    whole = rows_in(splits(store), read)
    assert len(whole) > 60 and not any(row["_corrupt"] for row in whole)
    assert [row["physicalOffset"] for row in rows_in(splits(log), read)] == [row["physicalOffset"] for row in whole]
    second = rows_in(splits(log / f"{SIZE:020d}"), read)
    assert [r["physicalOffset"] for r in second] == [r["physicalOffset"] for r in whole if r["physicalOffset"] >= SIZE]
    assert {row["folder"] for row in whole} == {str(store)}


@pytest.mark.parametrize("where", ["dledger-n0/data", "data", ""])
def test_a_groups_log_is_found_by_its_name_or_by_what_it_begins_with(tmp_path: Path, where: str) -> None:
    data = segment_of(0, SIZE, record, entries=True)
    written(tmp_path / where, [(0, data)])
    rows = rows_in(splits(tmp_path), read)
    assert len(rows) > 30 and {row["term"] for row in rows} == {3} and not any(row["_corrupt"] for row in rows)


def test_a_store_that_was_moved_into_a_group_has_both_logs(tmp_path: Path) -> None:
    written(tmp_path / "commitlog", [(0, classic(0))])
    written(tmp_path / "dledger-n1" / "data", [(SIZE, segment_of(SIZE, SIZE, record, entries=True, filled=False))])
    rows = rows_in(splits(tmp_path), read)
    assert {row["term"] for row in rows} == {None, 3} and not any(row["_corrupt"] for row in rows)


def test_files_that_nothing_was_written_into_yet_are_no_damage(tmp_path: Path) -> None:
    log = written(tmp_path, [(0, classic(0, filled=False)), (SIZE, bytes(SIZE)), (2 * SIZE, bytes(SIZE))])
    rows = rows_in(splits(log), read)
    assert len(rows) > 20 and not any(row["_corrupt"] for row in rows)
    assert all(split.end <= SIZE // 2 + 4096 for split in splits(log))
    assert splits(written(tmp_path / "empty", [(0, bytes(SIZE))])) == []


def test_a_log_that_is_being_written_is_read_as_far_as_it_was(tmp_path: Path) -> None:
    log = written(tmp_path, [(0, segment_of(0, 4 * SIZE, record, filled=False))])
    before = splits(log)
    count = len(rows_in(before, read))
    (log / f"{0:020d}").write_bytes(segment_of(0, 4 * SIZE, record))
    later = rows_in(before, read)
    assert count <= len(later) <= count + 4096 // 100 and not any(row["_corrupt"] for row in later)
    assert len(rows_in(splits(log), read)) > len(later)


def test_what_is_missing_between_two_segments_is_a_row(tmp_path: Path) -> None:
    log = written(tmp_path, [(0, classic(0)), (2 * SIZE, classic(2 * SIZE, filled=False))])
    (gap,) = [row for row in rows_in(splits(log), read) if row["_corrupt"]]
    assert gap["physicalOffset"] == SIZE
    assert f"the log's bytes {SIZE} to {2 * SIZE} are missing" in gap["_corrupt"]


def test_a_file_that_goes_away_while_it_is_read_is_a_row(tmp_path: Path) -> None:
    found = splits(written(tmp_path, [(0, classic(0)), (SIZE, classic(SIZE))]))
    (tmp_path / f"{0:020d}").unlink()
    rows = rows_in(found, read)
    assert "the file is gone since the read was planned" in rows[0]["_corrupt"]
    assert len(rows) > 30 and not any(row["_corrupt"] for row in rows[1:])


def test_a_folder_without_a_log_is_refused_and_told_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    with pytest.raises(ConfigError, match=r"no log is there; looked for .*commitlog.*dledger-\*"):
        logs(str(tmp_path))
    with pytest.raises(ConfigError, match="there is no such folder"):
        logs(str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="local or mounted file systems only"):
        logs("hdfs://host/store")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="20 digits"):
        logs(str(tmp_path / "file"))


def test_the_end_of_the_data_is_found_with_and_without_holes(tmp_path: Path) -> None:
    for size, places in ((5 << 20, [3_000_000]), (5 << 20, []), (100, [99]), (5 << 20, [0, (5 << 20) - 1]), (7, [0])):
        path = tmp_path / "f"
        with path.open("wb") as file:
            file.truncate(size)
            for place in places:
                file.seek(place)
                file.write(b"x")
        assert data_end(path, size) == max(places, default=-1) + 1
        path.write_bytes(path.read_bytes())
        assert data_end(path, size) == max(places, default=-1) + 1


def test_segments_are_left_out_by_offset_and_by_time(tmp_path: Path) -> None:
    hour = 3_600_000
    log = written(tmp_path, [(n * SIZE, classic(n * SIZE, T0 + 5 * n * hour)) for n in range(5)])

    def starts(chosen: Chosen, **options: str) -> list[int]:
        return sorted({split.segment.start // SIZE for split in splits(log, chosen, **options)})

    assert starts(Chosen()) == [0, 1, 2, 3, 4]
    assert starts(Chosen(offsets=(SIZE, 3 * SIZE - 1))) == [1, 2]
    assert starts(Chosen(times=(T0 + 11 * hour + 1, T0 + 12 * hour))) == [2]
    assert starts(Chosen(times=(T0 + 11 * hour, T0 + 12 * hour)), timeSlackMs=str(4 * hour)) == [1, 2, 3]
    assert starts(Chosen(times=(T0 + 21 * hour + 1, T0 + 99 * hour))) == [4]
    one = Chosen(offsets=(2 * SIZE + 1000, 2 * SIZE + 2000))
    rows = rows_in(splits(log, one), read, chosen=one)
    every = [row["physicalOffset"] for row in rows_in(splits(log), read)]
    assert [r["physicalOffset"] for r in rows] == [p for p in every if one.offsets[0] <= p <= one.offsets[1]]


def test_a_groups_records_are_left_out_by_their_own_offsets(tmp_path: Path) -> None:
    written(tmp_path / "data", [(0, segment_of(0, SIZE, record, entries=True))])
    every = [row["physicalOffset"] for row in rows_in(splits(tmp_path), read)]
    one = Chosen(offsets=(every[5], every[7]))
    assert [r["physicalOffset"] for r in rows_in(splits(tmp_path, one), read, chosen=one)] == every[5:8]


def test_splits_of_any_size_give_the_same_rows(tmp_path: Path) -> None:
    random = Random(2)
    log = written(tmp_path, [(n * SIZE, segment_of(n * SIZE, SIZE, lambda p: drawn(random, p))) for n in range(3)])
    whole = rows_in(splits(log), read)
    small = splits(log, splitBytes="1000", maxRecordBytes="1k")
    assert len(small) == 27 and rows_in(small, read, most_bytes=1072) == whole
    assert len(splits(log, minPartitions="10")) >= 10
    with pytest.raises(ConfigError, match="splitBytes"):
        (log / f"{2 * SIZE:020d}").write_bytes(b"\x01" * 200_000)
        splits(log, splitBytes="1")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "needs a store folder"),
        ({"path": " , "}, "needs a store folder"),
        ({"path": "/x", "splitByte": "5"}, "did you mean 'splitBytes'"),
        ({"path": "/x", "nameserver": "h:1"}, "unknown to the perseid-log source"),
        ({"path": "/x", "splitBytes": "many"}, "splitBytes='many'"),
        ({"path": "/x", "splitBytes": "0"}, "splitBytes='0'"),
        ({"path": "/x", "maxRecordBytes": "90"}, "maxRecordBytes"),
        ({"path": "/x", "maxRecordBytes": "2g"}, "maxRecordBytes"),
        ({"path": "/x", "decompress": "maybe"}, "decompress"),
        ({"path": "/x", "timeSlackMs": "-1"}, "timeSlackMs"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(given)


def test_sizes_may_have_units_and_names_any_case() -> None:
    options = parse({"PATH": "/a, /b,/a", "splitbytes": "2m", "MaxRecordBytes": "8MB"})
    assert options.folders == ("/a", "/b") and options.split_bytes == 2 << 20 and options.most_bytes == (8 << 20) + 48


def test_filters_that_spark_hands_over_say_what_is_left_out() -> None:
    when = datetime.fromtimestamp(T0 / 1000, UTC)
    found = filters.chosen([
        IsNotNull(("topic",)), In(("topic",), ("a", "b")), EqualTo(("topic",), "a"),
        GreaterThan(("storeTimestamp",), when), LessThan(("physicalOffset",), 90),
        GreaterThanOrEqual(("physicalOffset",), 7), LessThanOrEqual(("queueId",), 3), Not(EqualTo(("topic",), "b")),
    ])  # fmt: skip
    assert found == Chosen(frozenset("a"), (T0, Chosen().times[1]), (7, 90))
    assert filters.chosen([EqualTo(("storeTimestamp",), when)]).times == (T0, T0)
    assert filters.chosen([In(("topic",), tuple(f"t{n}" for n in range(99)))]).topics is None
    assert filters.chosen([IsNotNull(("_corrupt",))]).only_corrupt
    assert filters.chosen([EqualTo(("topic",), "a"), EqualTo(("topic",), "b")]).topics == frozenset()
