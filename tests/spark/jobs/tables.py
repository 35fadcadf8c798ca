"""What tests of the jobs share: the places that a table holds, also as the format's own readers see them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from tests.combinations import at_each_change

from perseid.spark.jobs.archive import read
from perseid.spark.jobs.archive.folder import FORMATS as FORMATS
from perseid.spark.jobs.archive.folder import TableFolder

Place = tuple[str, int, int]
FORMS = at_each_change(FORMATS, "parquet")
"""Of what each format has to do; that a topic lands in each of them is tested at each change (`test_archive.py`)."""


def places(spark: Any, table: Path) -> list[Place]:
    """The places of all rows, by our own reader."""
    return _sorted(read(spark, str(table)).select("brokerName", "queueId", "queueOffset").collect())


def places_outside(table: Path) -> list[Place]:
    """The same by a reader that knows nothing of us."""
    return _sorted(tuple(row.values()) for row in rows_outside(table, ["brokerName", "queueId", "queueOffset"]))


def rows_outside(table: Path, columns: list[str] | None = None) -> list[dict[str, Any]]:
    """Rows as deltalake, pyiceberg or pyarrow read them."""
    info = TableFolder(table).known()
    if info.format == "delta":
        import deltalake

        files = deltalake.DeltaTable(str(table)).to_pyarrow_dataset()
        return list(files.to_table(columns=columns).to_pylist())
    if info.format == "iceberg":
        from pyiceberg.table import StaticTable

        # by time: a run that was killed may have left one with the same number that no catalog ever named
        newest = max((table / "metadata").glob("*.metadata.json"), key=lambda path: path.stat().st_mtime_ns)
        chosen = ("*",) if columns is None else tuple(columns)
        return list(StaticTable.from_metadata(str(newest)).scan(selected_fields=chosen).to_arrow().to_pylist())
    return list(ds.dataset(table / "data", format="parquet", partitioning="hive").to_table(columns=columns).to_pylist())


def files_of(table: Path) -> int:
    """How many Parquet files of rows lie in a table's folder."""
    return sum(1 for path in table.rglob("*.parquet") if "_delta_log" not in path.parts)


def _sorted(rows: Iterable[Any]) -> list[Place]:
    return sorted((str(row[0]), int(row[1]), int(row[2])) for row in rows)
