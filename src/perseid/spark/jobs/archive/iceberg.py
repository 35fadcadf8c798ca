"""Archives as Iceberg tables, by pyiceberg with a SQLite catalog in the table's own folder: no JVM, no jars.

The batch's number is the table property `perseid.batch`, set in the same transaction as the snapshot that adds the
batch's files. One row of the catalog names the table's metadata, and is changed only if it still names what the
transaction was based on: so files and number come in together, and a number only once. (A snapshot's summary
has it too, for people; summaries go when snapshots expire, properties stay.) Compaction is one snapshot that removes
the small files and adds the merged ones. Files of snapshots that have expired are deleted by `clean`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table import Transaction, _parquet_files_to_data_files
from pyiceberg.transforms import DayTransform, HourTransform

from perseid.base.errors import ConfigError
from perseid.spark.jobs.archive.files import WrittenFile
from perseid.spark.jobs.archive.folder import DAY, NONE, TableFolder, TableInfo
from perseid.spark.jobs.archive.formats import Table, reading
from perseid.spark.jobs.archive.rows import shape_of
from perseid.spark.jobs.archive.snapshot import DataFile, Snapshot

NAMESPACE, NAME = "perseid", "archive"
BATCH = "perseid.batch"
PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "commit.manifest-merge.enabled": "true",
    "commit.retry.num-retries": "0",
}
"""No retries: pyiceberg would put the files on top of whatever came in meanwhile, the same batch by another run too."""
CATALOG = "perseid"
"""Its name, a part of its rows' keys: who opens it under another one finds none of them, but for `name_catalogs`."""
_IN_STEP = """CREATE TRIGGER IF NOT EXISTS perseid_names AFTER UPDATE OF metadata_location ON iceberg_tables BEGIN
    UPDATE iceberg_tables SET
        metadata_location = NEW.metadata_location, previous_metadata_location = NEW.previous_metadata_location
    WHERE table_namespace = NEW.table_namespace AND table_name = NEW.table_name AND catalog_name <> NEW.catalog_name;
END"""
"""A commit under one name is one under all, in one transaction: rows of one table never differ, whoever commits."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class IcebergTable(Table):
    """An Iceberg table."""

    def __init__(self, folder: TableFolder, info: TableInfo) -> None:
        super().__init__(folder, info)
        self._database = folder.own / "catalog.db"
        with reading(folder, "catalog"):
            self._catalog = SqlCatalog(
                CATALOG, uri=f"sqlite:///{self._database}", warehouse=folder.path.as_uri()
            )  # fmt: skip

    def last_batch(self) -> int:
        table = self._load()
        return -1 if table is None else _last(table)

    def place(self, batch: int, attempt: str) -> Path:
        return self.folder.data / f"{batch:08d}-{attempt}"

    def commit(self, batch: int, place: Path, files: Sequence[WrittenFile]) -> None:
        paths = [str(place / file.path) for file in files]

        def add(change: Transaction, table: PyIcebergTable) -> None:
            if paths:
                change.add_files(paths, snapshot_properties={BATCH: str(batch)}, check_duplicate_files=False)

        self._commit(batch, self._load() or self._create(), add)

    def snapshot(self) -> Snapshot:
        table = self._load()
        if table is None:
            return Snapshot(-1, ())
        with reading(self.folder, "manifests"):
            tasks = list(table.scan().plan_files())
        files = []
        for task in tasks:
            if task.delete_files:
                raise ConfigError(f"{self.folder.path}: rows were deleted from the table: read it with Iceberg itself")
            file = task.file
            files.append(DataFile(_path(file.file_path), self._partition(file.partition), file.file_size_in_bytes))
        return Snapshot(_last(table), tuple(sorted(files, key=lambda file: file.path)))

    def replace(self, batch: int, place: Path, old: Sequence[DataFile], new: Sequence[WrittenFile]) -> None:
        gone = {file.path for file in old}
        paths = [str(place / file.path) for file in new]

        def swap(change: Transaction, table: PyIcebergTable) -> None:
            with change.update_snapshot(snapshot_properties={BATCH: str(batch)}).overwrite() as snapshot:
                for file in _parquet_files_to_data_files(table.metadata, paths, table.io):
                    snapshot.append_data_file(file)
                for task in table.scan().plan_files():
                    if _path(task.file.file_path) in gone:
                        snapshot.delete_data_file(task.file)

        table = self._load()
        assert table is not None, "there are files to merge"
        self._commit(batch, table, swap)

    def clean(self, keep_hours: int) -> None:
        """Expire snapshots that are older, and delete files that no other has and that are older."""
        table = self._load()
        if table is None:
            return
        before = datetime.fromtimestamp(time.time(), UTC) - timedelta(hours=keep_hours)
        table.maintenance.expire_snapshots().older_than(before).commit()
        table = self._load()
        assert table is not None
        kept = {_path(name) for name in table.inspect.all_files().column("file_path").to_pylist()}
        for path in self.folder.data.rglob("*.parquet"):
            if str(path) not in kept and path.stat().st_mtime < before.timestamp():
                path.unlink()

    def name_catalogs(self, names: Sequence[str]) -> None:
        if self._load() is None:
            self._create()
        with closing(sqlite3.connect(self._database)) as database, database:
            columns = [row[1] for row in database.execute("PRAGMA table_info(iceberg_tables)")]
            rest = ", ".join(column for column in columns if column != "catalog_name")
            for name in names:
                database.execute(
                    f"INSERT OR IGNORE INTO iceberg_tables (catalog_name, {rest})"
                    f" SELECT ?, {rest} FROM iceberg_tables WHERE catalog_name = ?",
                    (name, CATALOG),
                )
            database.execute(_IN_STEP)

    # ---- inside ----

    def _load(self) -> PyIcebergTable | None:
        with reading(self.folder, "catalog or metadata"):
            try:
                return self._catalog.load_table((NAMESPACE, NAME))
            except NoSuchTableError:
                return None

    def _create(self) -> PyIcebergTable:
        self._catalog.create_namespace_if_not_exists(NAMESPACE)
        schema = shape_of(self.info).arrow()
        with self._catalog.create_table_transaction(
            (NAMESPACE, NAME), schema, location=self.folder.path.as_uri(), properties=PROPERTIES
        ) as change:
            if self.info.partition_by != NONE:
                by = DayTransform() if self.info.partition_by == DAY else HourTransform()
                with change.update_spec() as spec:
                    spec.add_field("storeTimestamp", by, self.info.partition_by)
        table = self._load()
        assert table is not None
        return table

    def _partition(self, record: object) -> str:
        """The day or hour of a file, as folders are named by it."""
        if self.info.partition_by == NONE:
            return ""
        number = int(record[0])  # type: ignore[index]
        if self.info.partition_by == DAY:
            return (_EPOCH + timedelta(days=number)).strftime("%Y-%m-%d")
        return (_EPOCH + timedelta(hours=number)).strftime("%Y-%m-%d-%H")

    def _commit(self, batch: int, table: PyIcebergTable, change: Callable[[Transaction, PyIcebergTable], None]) -> None:
        """Commit a change and the batch's number together, on the state that `table` has and on no other."""
        if _last(table) >= batch:
            raise ConfigError(f"{self.folder.path}: batch {batch} is there already: is another run writing to it?")
        try:
            with table.transaction() as transaction:
                change(transaction, table)
                transaction.set_properties({BATCH: str(batch)})
        except CommitFailedException as error:
            raise ConfigError(
                f"{self.folder.path}: batch {batch} is not committed, as somebody changed the table meanwhile: run it"
                f" again ({error})"
            ) from error


def _last(table: PyIcebergTable) -> int:
    return int(table.properties.get(BATCH, "-1"))


def _path(name: str) -> str:
    """The path of a file: address."""
    parts = urlsplit(name)
    return unquote(parts.path) if parts.scheme == "file" else name
