"""What operators do to tables and topics, on a real broker with real Spark: nothing is lost without a word."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.combinations import Each, at_each_change
from tests.spark.conftest import fill
from tests.spark.jobs.tables import FORMATS, FORMS, places, places_outside

from perseid.base.errors import ConfigError, PerseidError
from perseid.client.blocking import BlockingAdmin
from perseid.spark.jobs.archive import archive, compact, read
from perseid.spark.jobs.archive.folder import TableFolder
from perseid.spark.jobs.options import ArchiveOptions
from perseid.spark.plan import DataLost
from perseid.testing.embedded import SMALL_STORE, EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

SEGMENT = 16 << 10


@pytest.fixture
def aging(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker with small segments, for topics that lose their beginning."""
    store = replace(SMALL_STORE, commit_log_file_bytes=SEGMENT)
    with EmbeddedBroker(tmp_path / "broker", store=store) as running:
        yield running


def forget_beginning(broker: EmbeddedBroker) -> None:
    """As retention does: the older half of the log is gone."""
    broker.stop()
    segments = sorted(broker.data.rglob("commitlog/0*"))
    assert len(segments) > 1
    for segment in segments[: len(segments) // 2]:
        segment.unlink()
    broker.start()


def landed(spark: Any, broker: EmbeddedBroker, topic: str, table: Path, form: str | None = None, **more: Any) -> Any:
    options = ArchiveOptions(format=form, batch_offsets=40, **more)
    return archive(spark, nameserver=broker.namesrv, topic=topic, table=str(table), options=options)


def restored(table: Path, *, rollback: bool = False) -> None:
    """Back to what the table held with its first batch, by the means of its format: of Iceberg an older catalog, or a
    rollback."""
    folder = TableFolder(table)
    form = folder.known().format
    if rollback:
        found = iceberg(table)
        first = next(one for one in found.snapshots() if one.summary and one.summary["total-records"] != "0")
        found.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    elif form == "parquet":
        for path in sorted(folder.data.iterdir())[1:]:
            shutil.rmtree(path)
    elif form == "delta":
        import deltalake

        found = deltalake.DeltaTable(str(table))
        versions = [deltalake.DeltaTable(str(table), version=number) for number in range(found.version())]
        found.restore(next(one.version() for one in versions if one.file_uris()))
    else:
        import sqlite3

        first = sorted((table / "metadata").glob("*.metadata.json"))[1]
        with sqlite3.connect(folder.own / "catalog.db") as catalog:
            catalog.execute("UPDATE iceberg_tables SET metadata_location = ?", (first.as_uri(),))
        catalog.close()


def iceberg(table: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("perseid", uri=f"sqlite:///{table}/_perseid/catalog.db", warehouse=table.as_uri())
    return catalog.load_table("perseid.archive")


PUT_BACK = {f"{form}-False": Each((form, False)) for form in FORMATS} | {"iceberg-True": Each(("iceberg", True))}


@pytest.mark.parametrize(("form", "rollback"), at_each_change(PUT_BACK, "parquet-False"))
def test_item_4_a_table_that_was_put_back_is_read_again_from_there(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path, form: str, rollback: bool
) -> None:
    topic, table = f"put-back-{form}-{rollback}", tmp_path / "t"
    fill(broker, topic, 120)
    assert landed(spark, broker, topic, table, form).rows == 120
    restored(table, rollback=rollback)
    assert len(places(spark, table)) == 40
    done = landed(spark, broker, topic, table, form)
    found = places(spark, table)
    assert len(found) == len(set(found)) == 120 and places_outside(table) == found
    assert (done.rows, done.rewound, done.gaps) == (80, (2, 0), ())
    assert landed(spark, broker, topic, table, form).batches == 0, "and that is noted"


@pytest.mark.parametrize("form", FORMS)
def test_item_4_a_table_that_was_put_back_when_the_topic_lost_what_it_held_is_refused_and_keeps_its_files(
    spark: Any, aging: EmbeddedBroker, tmp_path: Path, form: str
) -> None:
    table = tmp_path / "t"
    fill(aging, "aged", 300, queues=1)
    landed(spark, aging, "aged", table, form)
    files = {path for path in (table / "data").rglob("*.parquet") if form != "parquet"}
    restored(table)
    forget_beginning(aging)
    with pytest.raises(PerseidError) as told:
        landed(spark, aging, "aged", table, form)
    assert all(path.exists() for path in files), "the newer files are there still"
    assert re.search(r"offsets 40 to \d+ are gone.* held at batch 0, though batch 7 was committed", str(told.value))
    assert isinstance(told.value, DataLost)
    if form != "delta":  # whose own number of the last batch is never put back by restore()
        with pytest.raises(Exception, match="an older copy was put back"):
            compact(spark, table=str(table))
    done = landed(spark, aging, "aged", table, form, fail_on_data_loss=False)
    assert sum(gap.messages for gap in done.gaps) + 40 + done.rows == 300


@pytest.mark.parametrize("form", at_each_change(("delta", "iceberg"), "delta"))
def test_item_4_rows_that_others_deleted_are_told_and_taken_for_gone_only_when_that_is_said(
    spark: Any, broker: EmbeddedBroker, command: Callable[..., Any], tmp_path: Path, form: str
) -> None:
    topic, table = f"deleted-from-{form}", tmp_path / "t"
    fill(broker, topic, 80)
    landed(spark, broker, topic, table, form)
    if form == "delta":
        import deltalake

        deltalake.DeltaTable(str(table)).delete("queueOffset < 10")
    else:
        iceberg(table).delete("queueOffset < 10")
    with pytest.raises(ConfigError, match=f"60 rows, 80 were archived.*{topic}/embedded/.: 10 are missing"):
        landed(spark, broker, topic, table, form)
    words = ("archive", topic, table, "-n", broker.namesrv)
    said = command(*words)
    assert said.exit_code == 1 and "--accept-table" in said.stderr
    said = command(*words, "--accept-table")
    assert said.exit_code == 3 and "20 messages are missing, and noted as gaps" in said.stderr
    assert "removed from the table by others" in said.stderr
    fill(broker, topic, 40, start=80)
    said = command(*words, "--json")
    assert said.exit_code == 0, "nothing new is missing"
    told = json.loads(said.stdout.splitlines()[-1])
    assert (told["rows"], told["gaps"]) == (40, [])
    said = command("time-travel", topic, "--as-of", "4000000000000", "--table", table, "-n", broker.namesrv)
    assert said.exit_code == 3 and "held 100 messages" in said.stdout and "20 messages are missing" in said.stderr


def test_item_5_what_a_topic_lost_before_it_was_read_is_a_gap_with_a_status(
    spark: Any, aging: EmbeddedBroker, command: Callable[..., Any], tmp_path: Path
) -> None:
    table = tmp_path / "t"
    fill(aging, "gone", 50, queues=1)
    landed(spark, aging, "gone", table)
    fill(aging, "gone", 300, queues=1, start=50)
    forget_beginning(aging)
    words = ("archive", "gone", table, "-n", aging.namesrv)
    refused = command(*words)
    assert refused.exit_code == 1
    said = command(*words, "--no-fail-on-data-loss", "--json")
    assert said.exit_code == 3, said.stdout
    assert "offsets 50 to" in refused.stderr and "--no-fail-on-data-loss" in refused.stderr
    told = json.loads(said.stdout.splitlines()[-1])
    (gap,) = told["gaps"]
    assert (gap["queue"], gap["start"]) == ("gone/embedded/0", 50)
    assert gap["messages"] == gap["end"] - 50 > 0 and 50 + gap["messages"] + told["rows"] == 350
    assert TableFolder(table).plan(TableFolder(table).plans()[-1]).gaps[0].messages == gap["messages"]  # type: ignore[union-attr]
    assert command(*words).exit_code == 0
    said = command("time-travel", "gone", "--as-of", "4000000000000", "--table", table, "-n", aging.namesrv)
    assert said.exit_code == 3 and f"{gap['messages']} messages are missing" in said.stderr.replace("\n", " ")


@pytest.mark.parametrize("form", FORMS)
def test_item_5_a_topic_that_lost_everything_is_a_gap_too(
    spark: Any, aging: EmbeddedBroker, tmp_path: Path, form: str
) -> None:
    table = tmp_path / "t"
    fill(aging, "empty", 20, queues=1)
    landed(spark, aging, "empty", table, form)
    fill(aging, "empty", 300, queues=1, start=20)
    fill(aging, "other", 400, queues=1)
    forget_beginning(aging)
    forget_beginning(aging)
    done = landed(spark, aging, "empty", table, fail_on_data_loss=False)
    assert sum(gap.messages for gap in done.gaps) + done.rows == 300 and done.gaps
    assert landed(spark, aging, "empty", table).gaps == (), "it is noted"


@pytest.mark.parametrize("form", FORMS)
def test_item_8_a_topic_that_was_made_again_goes_on_as_a_new_generation(
    spark: Any, broker: EmbeddedBroker, command: Callable[..., Any], tmp_path: Path, form: str
) -> None:
    topic, table = f"again-{form}", tmp_path / "t"
    fill(broker, topic, 80, queues=2)
    landed(spark, broker, topic, table, form)
    with BlockingAdmin(broker.namesrv) as admin:
        admin.delete_topic(topic)
    fill(broker, topic, 120, queues=2, start=1000)
    words = ("archive", topic, table, "-n", broker.namesrv)
    said = command(*words)
    assert said.exit_code == 1 and "--new-generation" in said.stderr
    said = command(*words, "--new-generation")
    assert said.exit_code == 0 and "120 messages" in said.stdout
    rows = read(spark, str(table)).groupBy("generation").count().collect()
    assert {row["generation"]: row["count"] for row in rows} == {1: 80, 2: 120}
    fill(broker, topic, 10, queues=2, start=2000)
    assert landed(spark, broker, topic, table).rows == 10
    (generation,) = TableFolder(table).plan(TableFolder(table).plans()[-1]).generations  # type: ignore[union-attr]
    assert generation.number == 2 and sum(generation.ended.values()) == 80 and set(generation.begin.values()) == {0}
    said = command("time-travel", topic, "--as-of", "4000000000000", "--table", table, "-n", broker.namesrv)
    assert said.exit_code == 0 and "held 210 messages" in said.stdout
    compact(spark, table=str(table))
    assert read(spark, str(table)).count() == 210
