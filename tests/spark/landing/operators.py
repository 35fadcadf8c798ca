"""What operators and their tools do to a table by the means of its format, behind the archive's back."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from perseid.spark.jobs.archive import formats
from perseid.spark.jobs.archive.folder import TableFolder

Act = Callable[[Path, Random], bool]
"""Changes the table in a folder; False: there was nothing to do."""


def remove_newest(table: Path, random: Random) -> bool:
    """Parquet: the folders of the last batches are removed."""
    found = sorted((table / "data").glob("batch=*"))
    for path in found[-random.randint(1, 3) :]:
        shutil.rmtree(path)
    return bool(found)


def delete_file(table: Path, random: Random) -> bool:
    """Parquet: a file is removed, whichever."""
    found = sorted((table / "data").rglob("*.parquet"))
    if found:
        random.choice(found).unlink()
    return bool(found)


# ---- Delta ----


def _delta(table: Path) -> Any:
    import deltalake

    return deltalake.DeltaTable(str(table)) if deltalake.DeltaTable.is_deltatable(str(table)) else None


def restore(table: Path, random: Random) -> bool:
    """Delta: RESTORE to an earlier version, if its files are there still."""
    from deltalake.exceptions import DeltaError

    found = _delta(table)
    if found is None or found.version() == 0:
        return False
    try:
        found.restore(random.randrange(found.version()))
    except DeltaError:  # vacuumed, or its log is cleaned up
        return False
    return True


def optimize(table: Path, random: Random) -> bool:
    """Delta: others merge its files, and vacuum what is left over."""
    found = _delta(table)
    if found is None or not found.optimize.compact()["numFilesRemoved"]:
        return False
    if random.random() < 0.5:
        found.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    return True


def delete_delta(table: Path, random: Random) -> bool:
    """Delta: DELETE of some rows."""
    found = _delta(table)
    return found is not None and found.delete(_where(random))["num_deleted_rows"] > 0


def older_log(table: Path, copy: Path, random: Random) -> bool:
    """Delta: an older copy of its log is put back."""
    if not (copy / "_delta_log").exists() or _delta(table) is None:
        return False
    shutil.move(table / "_delta_log", copy / "newer")
    shutil.copytree(copy / "_delta_log", table / "_delta_log")
    if all(Path(name).exists() for name in _delta(table).file_uris()):
        shutil.rmtree(copy / "newer")
        return True
    shutil.rmtree(table / "_delta_log")  # its files were vacuumed: the newer one is brought back
    shutil.move(copy / "newer", table / "_delta_log")
    return False


# ---- Iceberg ----


def iceberg(table: Path) -> Any:
    info = TableFolder(table).info()
    return None if info is None else formats.of(TableFolder(table), info)._load()  # type: ignore[attr-defined]


def _whole(table: Path) -> bool:
    info = TableFolder(table).info()
    assert info is not None
    return all(Path(file.path).exists() for file in formats.of(TableFolder(table), info).snapshot().files)


def _named(table: Path, location: str | None = None) -> str:
    """The metadata that the catalog names; `location`: from now on."""
    catalog = sqlite3.connect(table / "_perseid" / "catalog.db")
    try:
        (was,) = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
        if location is not None:
            catalog.execute("UPDATE iceberg_tables SET metadata_location = ?", (location,))
            catalog.commit()
    finally:
        catalog.close()
    return str(was)


def roll_back(table: Path, random: Random) -> bool:
    """Iceberg: the table is registered with an earlier metadata file, if the files that it names are there still."""
    if iceberg(table) is None:
        return False
    newest = _named(table)
    found = [path.as_uri() for path in sorted((table / "metadata").glob("*.metadata.json")) if path.as_uri() < newest]
    if not found:
        return False
    _named(table, random.choice(found))
    try:
        if _whole(table):
            return True
    except FileNotFoundError:
        pass  # its manifests are gone: as with files, the newer one is brought back
    _named(table, newest)
    return False


def delete_iceberg(table: Path, random: Random) -> bool:
    """Iceberg: rows are deleted, by files that are written anew."""
    found = iceberg(table)
    if found is None or found.current_snapshot() is None:
        return False
    before = found.scan().to_arrow().num_rows
    found.delete(_where(random).replace(" AND ", " and "))
    after: Any = iceberg(table)
    return bool(after.scan().to_arrow().num_rows < before)


def older_catalog(table: Path, copy: Path, random: Random) -> bool:
    """Iceberg: an older copy of the catalog is put back."""
    kept, own = copy / "_perseid" / "catalog.db", table / "_perseid" / "catalog.db"
    if not kept.exists() or iceberg(table) is None:
        return False
    newest = _named(table)
    catalog = sqlite3.connect(kept)
    try:
        row = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
    except sqlite3.OperationalError:  # a copy from before the table was made
        row = None
    finally:
        catalog.close()
    if row is None or not Path(str(row[0]).removeprefix("file://")).exists():
        return False
    shutil.copy(kept, own)
    try:
        if _whole(table):
            return True
    except FileNotFoundError:
        pass  # as above
    _named(table, newest)
    return False


def _where(random: Random) -> str:
    return f"queueOffset >= {random.randrange(6)} AND queueId = {random.randrange(2)}"


ACTS: dict[str, dict[str, tuple[int, Act]]] = {
    "parquet": {"newest rows removed": (2, remove_newest), "rows deleted by others": (2, delete_file)},
    "delta": {
        "restored": (5, restore), "merged by others": (3, optimize), "rows deleted by others": (7, delete_delta),
    },
    "iceberg": {"rolled back": (5, roll_back), "rows deleted by others": (7, delete_iceberg)},
}  # fmt: skip
"""What can be done to a table of each format, and how likely it is."""
PUT_BACK: dict[str, tuple[str, Callable[[Path, Path, Random], bool]]] = {
    "delta": ("older log put back", older_log),
    "iceberg": ("older catalog put back", older_catalog),
}
"""What can be done with a copy of the table's folder."""
