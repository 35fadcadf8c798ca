"""The commits of each format, without Spark: a batch comes in whole, and once."""

import sqlite3
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.spark.jobs.tables import FORMATS, rows_outside
from tests.spark.jobs.test_files import batch

from perseid.base.errors import ConfigError
from perseid.spark.jobs.archive import formats
from perseid.spark.jobs.archive.files import PartitionedFiles, Target, WrittenFile
from perseid.spark.jobs.archive.folder import Plan, TableFolder, TableInfo
from perseid.spark.jobs.archive.formats import Table
from perseid.spark.jobs.archive.rows import RowShape
from perseid.spark.jobs.archive.snapshot import Snapshot

HOUR_MS = 3_600_000


def table_of(path: Path, form: str, by: str = "none") -> Table:
    """A new table, or one that is there."""
    folder = TableFolder(path)
    info = folder.info() or TableInfo("orders", form, by, "id")
    folder.create(info)
    table = formats.of(folder, info)
    folder.prepare()
    return table


def written(table: Table, number: int, count: int = 10, step_ms: int = 1) -> tuple[Path, list[WrittenFile]]:
    """A batch's files, not committed."""
    place = table.place(number, "ab")
    place.mkdir(parents=True, exist_ok=True)
    files = PartitionedFiles(Target(str(place), table.info.partition_by, RowShape()), "t")
    files.add(batch(number * 1000, count, step_ms))
    return place, files.finish()


@pytest.mark.parametrize("form", FORMATS)
def test_a_batch_counts_once_it_is_committed_also_an_empty_one(tmp_path: Path, form: str) -> None:
    table = table_of(tmp_path / "t", form, "day")
    assert (table.last_batch(), table.snapshot()) == (-1, Snapshot(-1, ()))
    place, files = written(table, 0, 40, HOUR_MS // 10)
    assert len(files) == 2
    assert table.snapshot().files == (), "nothing is seen before the commit"
    table.commit(0, place, files)
    table.commit(1, table.place(1, "cd"), [])
    again = table_of(tmp_path / "t", form)
    snapshot = again.snapshot()
    assert (again.last_batch(), snapshot.batch) == (1, 1)
    assert sorted(file.partition for file in snapshot.files) == ["2026-11-20", "2026-11-21"]
    assert sorted(row["queueOffset"] for row in rows_outside(tmp_path / "t", ["queueOffset"])) == list(range(40))


def opened(table: Path, name: str) -> Any:
    """An Iceberg table, as readers open it who call its catalog so."""
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(name, type="sql", uri=f"sqlite:///{table}/_perseid/catalog.db")
    return catalog.load_table("perseid.archive")


def test_item_11_an_iceberg_table_is_read_in_a_catalog_of_another_name(tmp_path: Path) -> None:
    """pyiceberg's, and Spark's JdbcCatalog, of which this is the query."""
    from pyiceberg.exceptions import NoSuchTableError

    query = (
        "SELECT metadata_location FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
    )
    table = table_of(tmp_path / "t", "iceberg")
    table.commit(0, *written(table, 0))
    with pytest.raises(NoSuchTableError):
        opened(tmp_path / "t", "lake")
    table.name_catalogs(["lake", "spark_catalog"])
    table.name_catalogs(["lake", "perseid"])
    table.commit(1, *written(table, 1))
    place, merged = written(table, 2, 20)
    table.replace(2, place, table.snapshot().files, merged)
    for name in ("lake", "spark_catalog", "perseid"):
        found = opened(tmp_path / "t", name)
        assert (found.scan().to_arrow().num_rows, found.properties["perseid.batch"]) == (20, "2")
    with sqlite3.connect(table.folder.own / "catalog.db") as catalog:
        names = ("lake", "perseid", "other")
        rows = [catalog.execute(query, (name, "perseid", "archive")).fetchall() for name in names]
    catalog.close()
    assert rows[0] == rows[1] and len(rows[0]) == 1 and rows[2] == []


def test_a_commit_in_a_catalog_of_another_name_is_one_in_ours(tmp_path: Path) -> None:
    from pyiceberg.exceptions import CommitFailedException

    table = table_of(tmp_path / "t", "iceberg")
    table.name_catalogs(["lake"])
    assert table.last_batch() == -1
    table.commit(0, *written(table, 0))
    before = opened(tmp_path / "t", "perseid")
    with opened(tmp_path / "t", "lake").transaction() as change:
        change.delete("queueOffset < 5")
    assert opened(tmp_path / "t", "perseid").scan().to_arrow().num_rows == 5
    with pytest.raises(CommitFailedException):  # one at a time, whatever they call it
        before.delete("queueOffset = 7")
    table.commit(1, *written(table, 1))
    assert opened(tmp_path / "t", "lake").scan().to_arrow().num_rows == 15


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_two_that_began_at_the_same_state_can_not_both_commit(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_of(tmp_path / "t", form).commit(0, Path(), [])
    one, other = table_of(tmp_path / "t", form), table_of(tmp_path / "t", form)
    state: Any = other._load()  # type: ignore[attr-defined]
    monkeypatch.setattr(other, "_load", lambda: state)
    first, second = written(one, 1), written(one, 2)
    one.commit(1, *first)
    with pytest.raises(ConfigError, match="batch 1"):
        other.commit(1, *second)
    fresh = table_of(tmp_path / "t", form)
    assert (fresh.last_batch(), len(fresh.snapshot().files)) == (1, 1)
    with pytest.raises(ConfigError, match="batch 1 is there already"):
        fresh.commit(1, *first)


@pytest.mark.parametrize("form", FORMATS)
def test_a_slow_attempt_that_writes_beside_a_batch_that_is_written_lands_nothing(tmp_path: Path, form: str) -> None:
    """As a speculative copy does, or an attempt that Spark has given up: between the last look at a batch's files and
    its commit, and after it."""
    table = table_of(tmp_path / "t", form, "day")
    place, named = written(table, 0)

    def late(name: str) -> PartitionedFiles:
        files = PartitionedFiles(Target(str(place), table.info.partition_by, RowShape()), name)
        files.add(batch(0, 10, 1))
        return files

    late("ended").finish()
    open_still = late("open")
    table.commit(0, place, named)
    with suppress(FileNotFoundError):  # its folder may be gone
        open_still.finish()
    late("after").finish()
    found = table_of(tmp_path / "t", form)
    assert len(found.snapshot().files) == len(named) == 1
    assert sorted(row["queueOffset"] for row in rows_outside(tmp_path / "t", ["queueOffset"])) == list(range(10))


def test_a_parquet_batch_never_comes_in_over_another(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", "parquet")
    table.commit(0, *written(table, 0))
    place, files = written(table, 0)
    with pytest.raises(OSError, match="not empty"):
        table.commit(0, place, files)


def test_a_delta_table_with_deletion_vectors_and_an_iceberg_table_with_deletes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import deltalake

    table = table_of(tmp_path / "d", "delta")
    table.commit(0, *written(table, 0))
    deltalake.DeltaTable(str(tmp_path / "d")).alter.add_feature(
        deltalake.TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )
    with pytest.raises(ConfigError, match="deletionVectors"):
        table.snapshot()
    iceberg = table_of(tmp_path / "i", "iceberg")
    iceberg.commit(0, *written(iceberg, 0))
    deleted = SimpleNamespace(delete_files=["one that pyiceberg reads, and does not write"])
    found = SimpleNamespace(scan=lambda: SimpleNamespace(plan_files=lambda: [deleted]))
    monkeypatch.setattr(iceberg, "_load", lambda: found)
    with pytest.raises(ConfigError, match="rows were deleted from the table"):
        iceberg.snapshot()


def test_plans_of_old_batches_go(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path)
    folder.create(TableInfo("t", "parquet", "none", "id"))
    for number in range(103):
        folder.write_plan(number, Plan({}, {}))
    assert len(list((folder.own / "plans").glob("*.json"))) == 100
