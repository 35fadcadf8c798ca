"""The source in Spark: a store folder that a broker of ours wrote, and damaged ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import fill
from tests.spark.log.logs import T0, record, segment_of, written

from perseid.testing.embedded import EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

COLUMNS = [
    "topic", "queueId", "queueOffset", "physicalOffset", "storeTimestamp", "bornTimestamp", "keys", "tags", "body",
    "properties", "sysFlag", "flag", "reconsumeTimes", "storeHost", "bornHost", "_corrupt",
]  # fmt: skip


def test_a_running_brokers_folder_is_a_table(spark: Any, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        fill(broker, "orders", 300)
        store = next(path.parent for path in (tmp_path / "broker").rglob("commitlog"))
        frame = spark.read.format("perseid-log").option("path", str(store)).option("splitBytes", "16k").load()
        assert frame.columns == COLUMNS
        rows = frame.where("topic = 'orders'").collect()
        assert frame.where("_corrupt is not null").count() == 0
    assert len({(row.queueId, row.queueOffset) for row in rows}) == len(rows) == 300
    row = {row["keys"]: row for row in rows}["k17"]
    assert (bytes(row.body), row.tags, row.properties["i"]) == (b"body 17", "t2", "17")
    assert (row.reconsumeTimes, row["_corrupt"]) == (0, None) and ":" in row.storeHost


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two replicas of 1,200 records, an hour a segment; one is damaged in two places."""

    def one(place: int) -> bytes:
        return record(place, topic="ab"[place % 2], stored=T0 + place // 65_536 * 3_600_000, body=bytes(40))

    parts = [(n * 65_536, segment_of(n * 65_536, 65_536, one, filled=n < 2)) for n in range(3)]
    good = written(tmp_path_factory.mktemp("logs") / "good" / "commitlog", parts)
    bad = written(good.parent.parent / "bad" / "commitlog", parts)
    path = bad / f"{65_536:020d}"
    spoilt = bytearray(path.read_bytes())
    spoilt[5000:5200] = bytes(200)
    spoilt[30_000] ^= 1
    path.write_bytes(bytes(spoilt))
    return good.parent, bad.parent


def test_damage_is_rows_and_all_else_is_read(spark: Any, folders: tuple[Path, Path]) -> None:
    good, bad = folders
    whole = spark.read.format("perseid-log").load(str(good)).select("physicalOffset").collect()
    frame = spark.read.format("perseid-log").option("splitBytes", "16k").option("maxRecordBytes", "4k").load(str(bad))
    rows = frame.select("physicalOffset", "topic", "_corrupt").collect()
    damage = [row for row in rows if row["_corrupt"]]
    assert 1 <= len(damage) <= 3 and all(str(bad) in row["_corrupt"] for row in damage)
    kept = {row.physicalOffset for row in rows if row.topic}
    lost = {row.physicalOffset for row in whole} - kept
    assert 1 <= len(lost) <= 4 and all(65_536 + 4800 < place < 65_536 + 30_000 for place in lost)
    assert sorted(map(str, damage)) == sorted(map(str, frame.where("_corrupt is not null").select(
        "physicalOffset", "topic", "_corrupt").collect()))  # fmt: skip


def test_several_folders_are_told_apart(spark: Any, folders: tuple[Path, Path]) -> None:
    good, bad = folders
    frame = spark.read.format("perseid-log").option("path", f"{good},{bad}").option("includeFolder", "true").load()
    assert frame.columns == [*COLUMNS, "folder"]
    counts = {row.folder: row["count"] for row in frame.where("topic is not null").groupBy("folder").count().collect()}
    assert counts.keys() == {str(good), str(bad)} and counts[str(bad)] < counts[str(good)]


def test_filters_reach_the_source(spark: Any, folders: tuple[Path, Path]) -> None:
    source = spark.read.format("perseid-log").option("timeSlackMs", "1000").option("pushDown", True)
    frame = source.schema("topic string, storeTimestamp timestamp, physicalOffset bigint").load(str(folders[0]))
    every = frame.collect()
    hour = "timestamp_millis(1700003600000)"
    for words, wanted in {
        "topic = 'a'": lambda row: row.topic == "a",
        f"storeTimestamp >= {hour} and storeTimestamp < {hour} + interval 1 minute": lambda row: (
            65_536 <= row.physicalOffset < 131_072
        ),
        "physicalOffset between 70000 and 90000 and topic in ('b', 'c')": lambda row: (
            70_000 <= row.physicalOffset <= 90_000 and row.topic == "b"
        ),
    }.items():
        chosen = frame.where(words)
        found = chosen.collect()
        assert sorted(found) == sorted(filter(wanted, every)) and found
        if "topic =" not in words:
            assert chosen.rdd.getNumPartitions() < frame.rdd.getNumPartitions() == 3


def test_a_session_that_hands_over_no_filters_reads_the_same(spark: Any, folders: tuple[Path, Path]) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        frame = spark.read.format("perseid-log").load(str(folders[0]))
        assert 0 < frame.where("topic = 'a'").count() < frame.count()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_a_read_that_is_used_twice_with_different_filters_loses_nothing(spark: Any, folders: tuple[Path, Path]) -> None:
    """Spark keeps one set of pushed filters for it: so none are taken unless pushDown is asked for."""
    frame = spark.read.format("perseid-log").load(str(folders[0]))
    count = frame.count()
    assert frame.where("topic = 'a'").union(frame.where("topic <> 'a' or topic is null")).count() == count > 0
    assert frame.where("topic = 'nothing'").union(frame).count() == count


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "/nowhere/at/all"}, "there is no such folder"),
        ({"path": "/"}, "no log is there; looked for"),
        ({"path": "/", "splitByte": "1"}, "did you mean 'splitBytes'"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(spark: Any, options: dict[str, str], words: str) -> None:
    with pytest.raises(Exception, match=words):
        spark.read.format("perseid-log").options(**options).load().count()
