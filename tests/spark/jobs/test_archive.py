"""The archive on a real broker: each message once, in each format, also when it is killed anywhere."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import fill
from tests.spark.jobs.killed import COMPACTION_POINTS, POINTS, SOAK_TOPIC, TOPIC
from tests.spark.jobs.tables import FORMATS, files_of, places, places_outside, rows_outside

from perseid.base.errors import ConfigError
from perseid.client import Message, PullOptions
from perseid.client.blocking import BlockingAdmin, BlockingProducer, BlockingPullConsumer
from perseid.spark.jobs.archive import Archived, archive, compact, read
from perseid.spark.jobs.archive.compaction import Compacted
from perseid.spark.jobs.archive.folder import TableFolder
from perseid.spark.jobs.options import ArchiveOptions
from perseid.spark.jobs.replay import replay
from perseid.spark.plan import DataLost
from perseid.testing.embedded import EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


@pytest.mark.parametrize(("form", "by"), [("parquet", "hour"), ("delta", "day"), ("iceberg", "hour")])
def test_a_topic_lands_once_goes_on_and_is_compacted(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path, form: str, by: str
) -> None:
    topic, table = f"landed-{form}", tmp_path / "table"
    fill(broker, topic, 100)
    given = {"nameserver": broker.namesrv, "topic": topic, "table": str(table)}
    shape = ArchiveOptions(format=form, partition_by=by, batch_offsets=60)
    began: list[int] = []
    batches: list[tuple[int, int, int]] = []
    done = archive(
        spark, **given, options=shape, on_start=began.append, on_batch=lambda *told: batches.append(told)
    )
    assert (done.batches, done.rows, done.corrupt, began, batches) == (2, 100, 0, [100], [(0, 60, 0), (1, 40, 0)])
    assert (done.files, done.bytes > 0) == (files_of(table), True)
    fill(broker, topic, 30, start=100)
    done = archive(spark, **given)
    assert (done.batches, done.rows) == (1, 30)
    assert archive(spark, **given) == Archived(0, 0, 0, 0, 0)
    found = places(spark, table)
    assert len(found) == len(set(found)) == 130
    assert places_outside(table) == found
    row = read(spark, str(table)).where("keys = 'k17'").collect()[0]
    assert (bytes(row.value), row.tag, row.properties["i"], row.topic) == (b"body 17", "t2", "17", topic)
    outside = {each["keys"]: each for each in rows_outside(table)}
    assert outside["k17"]["storeTimestamp"].timestamp() == row.storeTimestamp.timestamp()
    before = files_of(table)
    told = compact(spark, table=str(table), keep_hours=0)
    assert told.before > told.after and told.before == before
    assert places(spark, table) == places_outside(table) == found
    again = archive(spark, **given, options=ArchiveOptions(compact=True, keep_hours=0))
    assert (again.rows, again.compacted) == (0, Compacted(told.after, told.after))
    assert files_of(table) == told.after, "what nobody reads any more is deleted"


@pytest.fixture(scope="module")
def killed(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Tables whose runs were killed, and how each ended."""
    fill(broker, TOPIC, 100, queues=2)
    broker.create_topic("kills-replayed", 3)
    return run_killed(broker, tmp_path_factory.mktemp("killed"), "points")


def run_killed(broker: EmbeddedBroker, folder: Path, how: str) -> tuple[Path, dict[str, Any]]:
    script = Path(__file__).with_name("killed.py")
    ended = subprocess.run(
        [sys.executable, str(script), broker.namesrv, str(folder), how, *FORMATS],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        timeout=1800,
    )
    assert ended.returncode == 0, ended.stderr.decode()[-4000:]
    return folder, json.loads(ended.stdout.decode().splitlines()[-1])


@pytest.mark.skipif(not os.environ.get("PERSEID_SOAK"), reason="PERSEID_SOAK=1: some minutes")
@pytest.mark.timeout(3600)
def test_runs_that_are_killed_at_random_times_fifty_times_leave_the_topic(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    kills, seed, count = 0, int(os.environ.get("SEED", "1")), 3000
    fill(broker, SOAK_TOPIC, count, queues=2)
    for attempt in range(20):
        folder, told = run_killed(broker, tmp_path / str(attempt), str(seed + attempt))
        kills += sum(told.values())
        print(f"seed {seed + attempt}: killed {told}")
        for form in FORMATS:
            found = places(spark, folder / form)
            assert len(found) == len(set(found)) == count, (form, seed + attempt)
            assert places_outside(folder / form) == found, (form, seed + attempt)
        if kills >= 50:
            return
    raise AssertionError(f"{kills} kills only")


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_a_run_that_is_killed_anywhere_leaves_nothing_half_and_nothing_twice(
    spark: Any, broker: EmbeddedBroker, killed: tuple[Path, dict[str, Any]], form: str
) -> None:
    folder, told = killed
    for point in POINTS:
        assert told[f"{form}-{point}"] == "SIGKILL", point
        table = folder / f"{form}-{point}"
        if point == "tasks":
            known = TableFolder(table).info()
            visible = places(spark, table) if known is not None else []
            assert len(visible) == len(set(visible)) and len(visible) in (0, 40, 80, 100), "whole batches"
        else:
            visible = places(spark, table)
            wanted = {"before": (40,), "after": (80,), "in": (80,) if form == "parquet" else (40, 80)}[point]
            assert len(visible) == len(set(visible)) in wanted, point
        archive(spark, nameserver=broker.namesrv, topic=TOPIC, table=str(table))
        found = places(spark, table)
        assert len(found) == len(set(found)) == 100, point
        assert places_outside(table) == found, point
    if form != "delta":  # which vacuums what no log names by itself
        named = set(_files(folder / f"{form}-before"))
        assert {str(path) for path in (folder / f"{form}-before" / "data").rglob("*.parquet")} == named


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_a_compaction_that_is_killed_anywhere_changes_no_row(
    spark: Any, killed: tuple[Path, dict[str, Any]], form: str
) -> None:
    folder, told = killed
    for point in COMPACTION_POINTS:
        table = folder / f"{form}-compact-{point}"
        assert told[table.name] == "SIGKILL", point
        found = places(spark, table)
        assert len(found) == len(set(found)) == 100, point
        assert places_outside(table) == found
        compact(spark, table=str(table))
        assert len(_files(table)) == 1
        assert places(spark, table) == found, point


@pytest.mark.slow
def test_a_replay_that_is_killed_and_started_again_sends_each_message_once(
    spark: Any, broker: EmbeddedBroker, killed: tuple[Path, dict[str, Any]]
) -> None:
    folder, told = killed
    assert told["replay"] == "SIGKILL"
    done = replay(
        spark, table=str(folder / f"{FORMATS[-1]}-compact-after"), nameserver=broker.namesrv, topic="kills-replayed"
    )
    assert 0 < done.rows < 100
    wanted = sorted(f"body {i}".encode() for i in range(100))
    with BlockingPullConsumer(broker.namesrv, "check", options=PullOptions(dedupe=True)) as consumer:
        queues = consumer.queues("kills-replayed")
        assert sum(consumer.max_offset(queue) for queue in queues) > 100, "something was sent twice"
        found = [
            message.body
            for queue in queues
            for messages in consumer.read(queue, 0, consumer.max_offset(queue))
            for message in messages
        ]
    assert sorted(found) == wanted


def _files(table: Path) -> list[str]:
    from perseid.spark.jobs.archive.table import Archive

    return [file.path for file in Archive(str(table)).snapshot.files]


def test_bodies_become_columns_and_what_does_not_decode_is_a_row_with_the_reason(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    broker.create_topic("decoded", 2)
    good = [json.dumps({"id": i, "name": f"n{i}", "tags": {"a": 1}, "more": "x"}).encode() for i in range(20)]
    bad = [b"{", b'{"id": "x"}', b"\xff", b'{"id": 1} {"id": 2}', b'{"name": "no id"}']
    with BlockingProducer(broker.namesrv) as producer:
        producer.send_batch([Message("decoded", body) for body in good + bad])
    (tmp_path / "order.json").write_text(
        json.dumps({
            "type": "object", "required": ["id"],
            "properties": {
                "id": {"type": "integer"}, "name": {"type": ["string", "null"]},
                "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
            },
        })
    )  # fmt: skip
    for form in FORMATS:
        table = tmp_path / form
        done = archive(
            spark, nameserver=broker.namesrv, topic="decoded", table=str(table),
            options=ArchiveOptions(format=form, schema=str(tmp_path / "order.json"), drop_value=True),
        )  # fmt: skip
        assert (done.rows, done.corrupt) == (25, 5)
        rows = read(spark, str(table)).select("payload.*", "value", "_corrupt").collect()
        whole = sorted((row.id, row.name, row.tags, row.value) for row in rows if row["_corrupt"] is None)
        assert whole == [(i, f"n{i}", {"a": 1}, None) for i in range(20)]
        corrupt = {bytes(row.value): row["_corrupt"] for row in rows if row["_corrupt"]}
        assert corrupt.keys() == set(bad)
        assert "$.id" in corrupt[bad[1]] and "id" in corrupt[bad[4]]
    with pytest.raises(ConfigError, match="no raw bodies"):
        replay(spark, table=str(table), nameserver=broker.namesrv, topic="decoded")


# ---- bad input ----


def test_another_format_partition_filter_or_schema_than_the_tables_is_refused(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    fill(broker, "shaped", 20)
    given: dict[str, Any] = {"nameserver": broker.namesrv, "topic": "shaped", "table": str(tmp_path / "t")}
    archive(spark, **given, options=ArchiveOptions(tags="t1"))
    assert len(places(spark, tmp_path / "t")) == 7
    for more, said in (
        ({"format": "delta"}, "format=parquet, not delta"),
        ({"partition_by": "day"}, "partitions=none, not day"),
        ({"source_options": {"tags": "t2"}}, "tags=t1, not t2"),
        ({"schema": "id bigint, b string"}, "no schema"),
    ):
        with pytest.raises(ConfigError, match=said):
            archive(spark, **given, options=ArchiveOptions(**more))
    fill(broker, "shaped", 10, start=20)
    archive(spark, **given)
    assert len(places(spark, tmp_path / "t")) == 10, "the table's filter is kept"


def test_wrong_options_are_refused_by_name(spark: Any, tmp_path: Path) -> None:
    given: dict[str, Any] = {"nameserver": "127.0.0.1:1", "topic": "x", "table": str(tmp_path / "t")}
    for more, said in (
        ({"format": "parket"}, "did you mean 'parquet'"),
        ({"partition_by": "days"}, "did you mean 'day'"),
        ({"source_options": {"startingOfsets": "earliest"}}, "did you mean 'startingOffsets'"),
        ({"source_options": {"subscribe": "y"}}, "sets the option subscribe itself"),
        ({"drop_value": True}, "give a schema"),
        ({"schema": "nowhere.avsc"}, "neither a file"),
        ({"message": "a.B"}, "give schema too"),
    ):
        with pytest.raises(ConfigError, match=said):
            archive(spark, **given, options=ArchiveOptions(**more))
    with pytest.raises(ConfigError, match="mount s3"):
        archive(spark, **{**given, "table": "s3://bucket/t"})
    assert not (tmp_path / "t" / "_perseid" / "table.json").exists()


def test_a_table_of_another_topic_and_a_folder_of_something_else_are_refused(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    fill(broker, "one", 10)
    fill(broker, "two", 10)
    archive(spark, nameserver=broker.namesrv, topic="one", table=str(tmp_path / "t"))
    with pytest.raises(ConfigError, match="holds topic one, not two"):
        archive(spark, nameserver=broker.namesrv, topic="two", table=str(tmp_path / "t"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    with pytest.raises(ConfigError, match="no archive and not empty"):
        archive(spark, nameserver=broker.namesrv, topic="two", table=str(tmp_path / "other"))
    with pytest.raises(ConfigError, match="no archive"):
        read(spark, str(tmp_path / "other"))
    with pytest.raises(ConfigError, match="did you mean 'one'"):
        archive(spark, nameserver=broker.namesrv, topic="onee", table=str(tmp_path / "new"))
    archive(spark, nameserver=broker.namesrv, topic="two", table=str(tmp_path / "new"))


def test_two_runs_at_once_on_one_table_are_refused(spark: Any, broker: EmbeddedBroker, tmp_path: Path) -> None:
    fill(broker, "busy", 10)
    table = tmp_path / "t"
    archive(spark, nameserver=broker.namesrv, topic="busy", table=str(table))
    with TableFolder(table).locked(), pytest.raises(ConfigError, match="held by another run"):
        archive(spark, nameserver=broker.namesrv, topic="busy", table=str(table))


def test_a_topic_that_was_deleted_and_made_again_is_noticed_also_when_it_has_grown_beyond(
    spark: Any, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    fill(broker, "anew", 100, queues=1)
    archive(spark, nameserver=broker.namesrv, topic="anew", table=str(table))
    with BlockingAdmin(broker.namesrv) as admin:
        admin.delete_topic("anew")
    fill(broker, "anew", 50, queues=1)
    with pytest.raises(DataLost, match="ends at 50 now: the topic was deleted and made again"):
        archive(spark, nameserver=broker.namesrv, topic="anew", table=str(table))
    fill(broker, "anew", 100, queues=1, start=50)
    with pytest.raises(DataLost, match="offset 99 is not the one that was read"):
        archive(spark, nameserver=broker.namesrv, topic="anew", table=str(table))
    assert len(places(spark, table)) == 100
