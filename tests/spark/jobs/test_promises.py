"""Faults of docs/promises.md, by real commands on a real broker: what a run does, what it says, and its status."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.combinations import Each, at_each_change
from tests.spark.conftest import fill
from tests.spark.jobs.disks import small_disk
from tests.spark.jobs.tables import FORMS, places, places_outside
from typer.testing import CliRunner

from perseid.cli.main import app
from perseid.client import Message
from perseid.client.blocking import BlockingAdmin, BlockingProducer
from perseid.client.stamps import STAMP
from perseid.spark.jobs.archive import read
from perseid.spark.jobs.archive.folder import TableFolder
from perseid.spark.jobs.archive.table import Archive
from perseid.testing.embedded import EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

Command = Callable[..., Any]


def one_line(said: Any, *parts: str) -> None:
    """It ended with status 1, and its last line on stderr has these in it."""
    last = said.stderr.rstrip("\n").rpartition("\n")[2]
    assert said.exit_code == 1 and last.startswith("perseid: ") and all(part in last for part in parts), said.stderr


def data_files(table: Path) -> list[Path]:
    return [Path(file.path) for file in Archive(str(table)).snapshot.files]


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_is_gone_or_cut_is_named_and_nothing_is_added(
    spark: Any, broker: EmbeddedBroker, command: Command, tmp_path: Path, form: str
) -> None:
    topic, table = f"file-gone-{form}", tmp_path / "t"
    fill(broker, topic, 80, queues=2)
    words = ("archive", topic, table, "-n", broker.namesrv, "--format", form, "--batch-offsets", "40")
    assert command(*words).exit_code == 0
    victim, copy = data_files(table)[0], tmp_path / "copy"
    shutil.copy(victim, copy)
    fill(broker, topic, 40, queues=2, start=80)
    victim.write_bytes(copy.read_bytes()[:-100])
    if form == "parquet":  # has no log that knows a size
        one_line(command(*words), f"{victim} can't be read", "put it back from a copy")
    else:
        one_line(command(*words), f"{victim} has {copy.stat().st_size - 100} bytes, the table says", "from a copy")
    victim.unlink()
    if form == "parquet":
        one_line(command(*words), "rows, 80 were archived, and no batch left it like this", "--accept-table")
    else:
        one_line(command(*words), f"{victim} is gone, which the table names")
    shutil.copy(copy, victim)
    said = command(*words)
    assert said.exit_code == 0 and said.stdout.startswith("40 messages in 1 batches added"), said.stderr
    assert len(places_outside(table)) == len(set(places_outside(table))) == 120


def merge(table: Path) -> None:
    """As others do: all rows into other files."""
    form = TableFolder(table).known().format
    if form == "delta":
        import deltalake

        deltalake.DeltaTable(str(table)).optimize.compact()
    elif form == "iceberg":
        found = iceberg(table)
        found.overwrite(found.scan().to_arrow())
    else:
        for path in data_files(table):
            pq.write_table(pq.read_table(path, partitioning=None), path, compression="none")


def iceberg(table: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("perseid", uri=f"sqlite:///{table}/_perseid/catalog.db", warehouse=table.as_uri())
    return catalog.load_table("perseid.archive")


@pytest.mark.parametrize("form", FORMS)
def test_a_queue_that_no_broker_has_is_named_and_read_when_it_is_back(
    spark: Any, broker: EmbeddedBroker, command: Command, tmp_path: Path, form: str
) -> None:
    """Here its topic has fewer queues for a while; a broker that is away takes all of its queues along."""
    topic, table = f"queue-away-{form}", tmp_path / "t"

    def queues(count: int) -> None:
        words = ["topic", "update", topic, "--queues", str(count), "--yes-hide", "-n", broker.namesrv]
        assert CliRunner().invoke(app, words).exit_code == 0

    words = ("archive", topic, table, "-n", broker.namesrv, "--format", form)
    fill(broker, topic, 200, queues=2)
    assert command(*words).exit_code == 0
    fill(broker, topic, 200, queues=2, start=200)
    queues(1)
    said = command(*words)
    assert said.exit_code == 3 and f"no broker has {topic}/embedded/1 now" in said.stderr, said.stdout
    assert 200 <= len(places(spark, table)) < 400
    queues(2)
    said = command(*words)
    assert said.exit_code == 0 and "no broker has" not in said.stdout + said.stderr
    assert len(places(spark, table)) == len(set(places(spark, table))) == 400


DISK_BYTES = 640 << 10


@pytest.mark.parametrize("form", FORMS)
def test_a_disk_that_gets_full_stops_a_run_and_when_there_is_room_the_next_goes_on(
    spark: Any, broker: EmbeddedBroker, command: Command, tmp_path: Path, form: str
) -> None:
    topic, count = f"full-{form}", 3000
    fill(broker, topic, count)
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        words = ("archive", topic, disk / "t", "-n", broker.namesrv, "--format", form, "--batch-offsets", "500")
        (disk / "other").write_bytes(bytes(DISK_BYTES - (110 << 10)))
        said = command(*words)
        one_line(said)
        assert re.search("No space left on device|disk is full", said.stderr), said.stderr
        (disk / "other").unlink()
        said = command(*words)
        assert said.exit_code == 0, said.stderr
        found = places_outside(disk / "t")
    assert len(found) == len(set(found)) == count


@pytest.mark.parametrize("form", FORMS)
def test_a_broker_that_stays_away_stops_a_run_and_when_it_is_back_the_next_goes_on(
    spark: Any, command: Command, tmp_path: Path, form: str
) -> None:
    with EmbeddedBroker(tmp_path / "broker") as running:
        fill(running, "away", 60)
        words = ("archive", "away", tmp_path / "t", "-n", running.namesrv, "--format", form)
        assert command(*words).exit_code == 0
        fill(running, "away", 40, start=60)
        running.stop()
        one_line(command(*words, "--option", "deadlineMs=2000"))
        running.start()
        said = command(*words)
        assert said.exit_code == 0 and said.stdout.startswith("40 messages in 1 batches added"), said.stderr
    assert len(places_outside(tmp_path / "t")) == len(set(places_outside(tmp_path / "t"))) == 100


@pytest.mark.parametrize("form", FORMS)
def test_a_topic_that_is_gone_is_told_and_its_table_stays(
    spark: Any, broker: EmbeddedBroker, command: Command, tmp_path: Path, form: str
) -> None:
    topic, table = f"deleted-{form}", tmp_path / "t"
    fill(broker, topic, 60)
    words = ("archive", topic, table, "-n", broker.namesrv, "--format", form)
    assert command(*words).exit_code == 0
    with BlockingAdmin(broker.namesrv) as admin:
        admin.delete_topic(topic)
    one_line(command(*words, "--option", "deadlineMs=2000"), f"topic {topic} is gone: it was deleted, or all of its")
    assert len(places_outside(table)) == len(places(spark, table)) == 60


@pytest.mark.parametrize("form", FORMS)
def test_files_that_others_merged_or_rewrote_are_gone_on_with(
    spark: Any, broker: EmbeddedBroker, command: Command, tmp_path: Path, form: str
) -> None:
    topic, table = f"merged-{form}", tmp_path / "t"
    fill(broker, topic, 80, queues=2)
    words = ("archive", topic, table, "-n", broker.namesrv, "--format", form, "--batch-offsets", "40")
    assert command(*words).exit_code == 0
    before = {path: path.stat().st_size for path in data_files(table)}
    merge(table)
    assert {path: path.stat().st_size for path in data_files(table)} != before
    fill(broker, topic, 40, queues=2, start=80)
    said = command(*words)
    assert said.exit_code == 0 and said.stdout.startswith("40 messages in 1 batches added"), said.stderr
    assert "read again" not in said.stdout
    assert len(places_outside(table)) == len(set(places_outside(table))) == 120


def add_again(table: Path) -> None:
    """As others do who don't know better: the rows of one file once more."""
    form, file = TableFolder(table).known().format, data_files(table)[0]
    rows = pq.read_table(file, partitioning=None)
    if form == "delta":
        import deltalake

        deltalake.write_deltalake(str(table), rows, mode="append")
    elif form == "iceberg":
        iceberg(table).append(rows)
    else:
        shutil.copy(file, file.with_name("copy.parquet"))


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_others_added_are_refused_with_their_number(
    spark: Any, broker: EmbeddedBroker, command: Command, tmp_path: Path, form: str
) -> None:
    topic, table = f"added-{form}", tmp_path / "t"
    fill(broker, topic, 50, queues=1)
    words = ("archive", topic, table, "-n", broker.namesrv, "--format", form)
    assert command(*words).exit_code == 0
    add_again(table)
    one_line(command(*words), "100 rows, 50 were archived, and no batch left it like this", "/0: 50 more")
    fill(broker, topic, 10, queues=1, start=50)
    one_line(command(*words, "--accept-table"), "/0: 50 more", "nobody knows which rows are there twice")


@pytest.mark.parametrize("form", FORMS)
def test_a_whole_folder_that_is_restored_from_a_copy_goes_on_from_there(
    spark: Any, broker: EmbeddedBroker, command: Command, tmp_path: Path, form: str
) -> None:
    topic, table, copy = f"copied-{form}", tmp_path / "t", tmp_path / "copy"
    words = ("archive", topic, table, "-n", broker.namesrv, "--format", form, "--batch-offsets", "40")
    fill(broker, topic, 80, queues=2)
    assert command(*words).exit_code == 0
    shutil.copytree(table, copy)
    fill(broker, topic, 40, queues=2, start=80)
    assert command(*words).exit_code == 0
    shutil.rmtree(table)
    copy.rename(table)
    said = command(*words)
    assert said.exit_code == 0 and said.stdout.startswith("40 messages in 1 batches added"), said.stderr
    assert len(places_outside(table)) == len(set(places_outside(table))) == 120


def test_item_4_an_older_catalog_is_gone_on_with_from_what_it_names(
    spark: Any, broker: EmbeddedBroker, command: Command, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    words = ("archive", "older-catalog", table, "-n", broker.namesrv, "--format", "iceberg", "--batch-offsets", "40")
    fill(broker, "older-catalog", 80, queues=2)
    assert command(*words).exit_code == 0
    shutil.copy(table / "_perseid" / "catalog.db", tmp_path / "catalog.db")
    fill(broker, "older-catalog", 40, queues=2, start=80)
    assert command(*words).exit_code == 0
    shutil.copy(tmp_path / "catalog.db", table / "_perseid" / "catalog.db")
    said = command(*words)
    assert said.exit_code == 0, said.stderr
    assert "it held what it held at batch 1, not at batch 2, and was read again from there" in said.stdout
    assert len(places_outside(table)) == len(set(places_outside(table))) == 120


LATER = {
    f"{later}-{form}": Each((later, form))
    for later, form in ((20, "parquet"), (200, "parquet"), (200, "delta"), (20, "iceberg"))
}


@pytest.mark.parametrize(("later", "form"), at_each_change(LATER, "20-parquet"))
def test_item_8_a_broker_that_lost_its_tail_goes_on_as_a_new_generation_behind_what_it_kept(
    spark: Any, command: Command, tmp_path: Path, later: int, form: str
) -> None:
    """It ends before the place read, or has grown beyond it."""
    table, data = tmp_path / "t", tmp_path / "broker"
    with EmbeddedBroker(data) as running:
        words = ("archive", "tail", table, "-n", running.namesrv, "--format", form)
        fill(running, "tail", 100, queues=2)
        running.stop()
        shutil.copytree(data, tmp_path / "copy")
        running.start()
        fill(running, "tail", 50, queues=2, start=100)
        assert command(*words).exit_code == 0
        running.stop()
        shutil.rmtree(data)
        (tmp_path / "copy").rename(data)
        running.start()
        fill(running, "tail", later, queues=2, start=1000)
        one_line(command(*words), "was deleted and made again, or its broker lost messages: go on with --new-gen")
        said = command(*words, "--new-generation")
        assert said.exit_code == 0 and said.stdout.startswith(f"{later} messages"), said.stdout + said.stderr
    rows = read(spark, str(table)).selectExpr("generation", "string(value) AS body").collect()
    assert sorted(row.body for row in rows if row.generation == 1) == sorted(f"body {i}" for i in range(150))
    assert sorted(row.body for row in rows if row.generation == 2) == sorted(f"body {1000 + i}" for i in range(later))


def test_item_6_a_message_with_a_conflicting_stamp_stops_no_read_and_no_table(
    spark: Any, broker: EmbeddedBroker, command: Command, tmp_path: Path
) -> None:
    """Anybody can send one."""
    table, topic = tmp_path / "t", "conflicting"
    broker.create_topic(topic, 1)
    fill(broker, "conflicting-not", 10)

    def source(option: str, value: str) -> Any:
        return spark.read.format("perseid").option("nameserver", broker.namesrv).option(option, value).load()

    rows = spark.range(0, 30, 1, 1).selectExpr("string(id) AS value")
    rows.write.format("perseid").mode("append").option("nameserver", broker.namesrv).option("topic", topic).save()
    ours = source("subscribe", topic).where("queueOffset = 29").collect()[0].properties[STAMP]
    theirs = ours.rpartition(":")[0] + ":00000000"
    assert theirs != ours
    with BlockingProducer(broker.namesrv) as producer:
        producer.send(Message(topic, b"a stranger's", properties={STAMP: theirs}))
    assert source("subscribe", topic).count() == 31
    assert source("subscribePattern", f"{topic}.*").count() == 41
    said = command("archive", topic, table, "-n", broker.namesrv)
    assert said.exit_code == 0 and said.stdout.startswith("31 messages in 1 batches added"), said.stderr
    assert "; 1 of them have stamps that came before with something else" in said.stdout
    assert len(places(spark, table)) == 31


def test_item_3_messages_that_are_forwarded_with_their_stamps_are_rows_and_are_counted(
    spark: Any, broker: EmbeddedBroker, command: Command, tmp_path: Path
) -> None:
    table, topic = tmp_path / "t", "forwarded"
    broker.create_topic(topic, 1)
    words = ("archive", topic, table, "-n", broker.namesrv)
    rows = spark.range(0, 30, 1, 1).selectExpr("string(id) AS value")
    rows.write.format("perseid").mode("append").option("nameserver", broker.namesrv).option("topic", topic).save()
    sent = spark.read.format("perseid").option("nameserver", broker.namesrv).option("subscribe", topic).load().collect()
    with BlockingProducer(broker.namesrv) as producer:
        for row in sent[:3]:
            stamp = row.properties[STAMP]
            producer.send(Message(topic, b"edited " + bytes(row.value), properties={STAMP: stamp}))
    said = command(*words)
    assert said.exit_code == 0 and said.stdout.startswith("33 messages in 1 batches added"), said.stderr
    assert "; 3 of them have stamps that came before with something else" in said.stdout
    assert len(places(spark, table)) == 33
