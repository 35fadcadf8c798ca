"""Archives as Delta tables, by deltalake (delta-rs): no JVM, no jars.

The batch's number is an application transaction (`txn`) in the same commit as its files: the log's own way to exactly
once. Delta's optimistic concurrency refuses a second commit of it. Compaction is Delta's own (`optimize`), one
commit that changes no rows; old files stay until `clean` vacuums them. The day or hour is a partition column,
which the files do not hold.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, CommitProperties, Transaction

from perseid.base.errors import ConfigError
from perseid.spark.jobs.archive.files import WrittenFile
from perseid.spark.jobs.archive.folder import DAY, NONE, TableFolder, TableInfo
from perseid.spark.jobs.archive.formats import Table, reading
from perseid.spark.jobs.archive.rows import shape_of
from perseid.spark.jobs.archive.snapshot import DataFile, Snapshot

TRANSACTION = "perseid-archive"
READABLE = {"appendOnly", "columnMapping", "timestampNtz"}


class DeltaTable(Table):
    """A Delta table."""

    def __init__(self, folder: TableFolder, info: TableInfo) -> None:
        super().__init__(folder, info)
        by = info.partition_by
        self._partitions = [] if by == NONE else [by]
        fields = list(shape_of(info).arrow())
        if self._partitions:
            fields.append(pa.field(by, pa.date32() if by == DAY else pa.string()))
        self._schema = pa.schema(fields)

    def last_batch(self) -> int:
        return _last(self._load()) if self._exists() else -1

    def place(self, batch: int, attempt: str) -> Path:
        return self.folder.data / f"{batch:08d}-{attempt}"

    def commit(self, batch: int, place: Path, files: Sequence[WrittenFile]) -> None:
        table = self._load() if self._exists() else self._create()
        actions = [self._added(place, file) for file in files]
        if _last(table) >= batch:
            raise ConfigError(
                f"{self.folder.path}: batch {batch} is there already: is another run writing to this table?"
            )
        try:
            table.create_write_transaction(
                actions, "append", deltalake.Schema.from_arrow(self._schema), self._partitions,
                commit_properties=CommitProperties(
                    custom_metadata={"perseid": f"batch {batch} of {self.info.topic}"},
                    app_transactions=[Transaction(TRANSACTION, batch)],
                ),
            )  # fmt: skip
        except DeltaError as error:
            raise ConfigError(f"{self.folder.path}: batch {batch} could not be committed: {error}") from error

    def snapshot(self) -> Snapshot:
        if not self._exists():
            return Snapshot(-1, ())
        table = self._load()
        with reading(self.folder, "log"):
            files = pa.table(table.get_add_actions(flatten=True))
        by = f"partition.{self.info.partition_by}"
        found = [
            DataFile(str(self.folder.path / row["path"]), str(row.get(by, "")), row["size_bytes"])
            for row in files.to_pylist()
        ]
        return Snapshot(_last(table), tuple(sorted(found, key=lambda file: file.path)))

    def replace(self, batch: int, place: Path, old: Sequence[DataFile], new: Sequence[WrittenFile]) -> None:
        raise AssertionError("Delta compacts by itself")

    def optimize(self, target_bytes: int) -> tuple[int, int]:
        """Merge small files in one commit; how many were removed and added."""
        told = self._load().optimize.compact(target_size=target_bytes)
        return int(told["numFilesRemoved"]), int(told["numFilesAdded"])

    def clean(self, keep_hours: int) -> None:
        """Delete files that no version of the last `keep_hours` has, and the log of older versions."""
        table = self._load()
        table.vacuum(retention_hours=keep_hours, dry_run=False, enforce_retention_duration=False)
        table.create_checkpoint()
        table.cleanup_metadata()

    # ---- inside ----

    def _exists(self) -> bool:
        return bool(deltalake.DeltaTable.is_deltatable(str(self.folder.path)))

    def _load(self) -> deltalake.DeltaTable:
        with reading(self.folder, "log"):
            table = deltalake.DeltaTable(str(self.folder.path))
        foreign = set(table.protocol().reader_features or ()) - READABLE
        if foreign:
            raise ConfigError(
                f"{self.folder.path}: the table has {', '.join(sorted(foreign))}: read it with Delta itself"
            )
        return table

    def _create(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable.create(
            str(self.folder.path),
            deltalake.Schema.from_arrow(self._schema),
            mode="ignore",
            partition_by=self._partitions,
            name=self.info.topic,
            description=f"the topic {self.info.topic}, archived by perseid",
        )

    def _added(self, place: Path, file: WrittenFile) -> AddAction:
        path = (place / file.path).relative_to(self.folder.path)
        values: dict[str, str | None] = {self.info.partition_by: file.partition} if self._partitions else {}
        stats = {
            "numRecords": file.rows,
            "minValues": {"storeTimestamp": _time(file.low)},
            "maxValues": {"storeTimestamp": _time(file.high)},
            "nullCount": {"storeTimestamp": 0},
        }
        modified = (place / file.path).stat().st_mtime_ns // 1_000_000
        return AddAction(str(path), file.bytes, values, modified, True, json.dumps(stats))


def _last(table: deltalake.DeltaTable) -> int:
    found = table.transaction_version(TRANSACTION)
    return -1 if found is None else int(found)


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
