"""What tasks write, what is merged, and folders that are swapped, without Spark."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from perseid.base.errors import ConfigError
from perseid.spark.jobs.archive import files
from perseid.spark.jobs.archive.compaction import grouped
from perseid.spark.jobs.archive.files import PartitionedFiles, Target
from perseid.spark.jobs.archive.folder import Plan, TableFolder, TableInfo, local
from perseid.spark.jobs.archive.formats import exchange
from perseid.spark.jobs.archive.rows import RowShape
from perseid.spark.jobs.archive.snapshot import DataFile

HOUR_MS = 3_600_000
BEGIN_MS = int(datetime(2026, 11, 20, 22, tzinfo=UTC).timestamp() * 1000)


def batch(first: int, count: int, step_ms: int) -> Any:
    """Rows whose store times are `step_ms` apart."""
    schema = RowShape().arrow()
    values: dict[str, list[Any]] = {name: [None] * count for name in schema.names}
    values["queueOffset"] = list(range(first, first + count))
    values["storeTimestamp"] = [(BEGIN_MS + (first + i) * step_ms) * 1000 for i in range(count)]
    values["value"] = [b"x" * 100] * count
    return pa.record_batch([pa.array(values[field.name], field.type) for field in schema], schema=schema)


@pytest.mark.parametrize(("by", "names"), [("none", {""}), ("day", {"2026-11-20", "2026-11-21"})])
def test_each_file_is_of_one_partition(tmp_path: Path, by: str, names: set[str]) -> None:
    out = PartitionedFiles(Target(str(tmp_path), by, RowShape()), "t")
    for first in range(0, 40, 10):
        out.add(batch(first, 10, HOUR_MS // 10))
    written = out.finish()
    assert {file.partition for file in written} == names
    assert sum(file.rows for file in written) == 40
    for file in written:
        table = pq.read_table(tmp_path / file.path, partitioning=None)
        assert table.num_rows == file.rows and table.schema.equals(RowShape().arrow())
        times = [at.timestamp() * 1000 for at in table.column("storeTimestamp").to_pylist()]
        assert (min(times), max(times)) == (file.low, file.high)
        assert (tmp_path / file.path).stat().st_size == file.bytes


def test_what_is_gathered_is_bounded_however_many_partitions_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_OPEN", 3)
    monkeypatch.setattr(files, "GATHERED_BYTES", 20_000)
    out = PartitionedFiles(Target(str(tmp_path), "hour", RowShape()), "t")
    for first in range(0, 400, 20):
        out.add(batch(first, 20, HOUR_MS))
        assert len(out._open) <= 3
        assert sum(file.gathered_bytes for file in out._open.values()) <= 20_000
    out.add(batch(0, 20, HOUR_MS))  # back to hours whose files have ended
    written = out.finish()
    assert len(written) == 420 and sum(file.rows for file in written) == 420
    assert len({file.path for file in written}) == 420


def test_small_files_of_one_partition_are_merged_up_to_the_target() -> None:
    found = [
        DataFile(f"{p}{n}", p, size)
        for p, sizes in (("a", (10, 40, 60, 30, 20)), ("b", (5,)))
        for n, size in enumerate(sizes)
    ]
    assert [[file.path for file in group] for group in grouped(found, 100)] == [["a0", "a1", "a3", "a4"]]
    assert [[file.path for file in group] for group in grouped(found, 90)] == [["a0", "a1", "a3"]]
    assert grouped(found[:1], 100) == []


def test_two_folders_are_swapped_in_one_step(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    exchange(tmp_path / "a", tmp_path / "b")
    assert ((tmp_path / "a" / "file").read_text(), (tmp_path / "b" / "file").read_text()) == ("b", "a")
    with pytest.raises(ConfigError, match="No such file"):
        exchange(tmp_path / "a", tmp_path / "nowhere")


def test_a_folders_table_and_plans_are_read_back_and_damage_is_named(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path / "t")
    assert folder.info() is None
    info = TableInfo("orders", "delta", "day", "ab", {"tags": "a"}, None, False)
    folder.create(info)
    assert folder.info() == info
    folder.write_plan(0, Plan({"q": 1}, {"q": 2}, {"q": 3}))
    assert folder.plan(0) == Plan({"q": 1}, {"q": 2}, {"q": 3})
    assert folder.plan(-1) is None
    with pytest.raises(ConfigError, match=r"00000007\.json is missing"):
        folder.plan(7)
    (folder.own / "table.json").write_text("{")
    with pytest.raises(ConfigError, match="changed by hand"):
        folder.info()


def test_what_killed_runs_left_is_swept(tmp_path: Path) -> None:
    folder = TableFolder(tmp_path)
    for name in ("00000003-aa", "00000004-bb", "batch=00000009"):
        (folder.data / name).mkdir(parents=True)
    (folder.staging / "x").mkdir(parents=True)
    left = folder.beyond(3)
    folder.prepare()
    assert left == [folder.data / "00000004-bb"] and left[0].is_dir(), "not before all is in the table"
    folder.sweep(left)
    assert sorted(path.name for path in folder.data.iterdir()) == ["00000003-aa", "batch=00000009"]
    assert list(folder.staging.iterdir()) == []


def test_addresses_of_folders(tmp_path: Path) -> None:
    assert local(tmp_path.as_uri()) == local(str(tmp_path)) == tmp_path
    with pytest.raises(ConfigError, match="mount hdfs"):
        local("hdfs://host/t")
