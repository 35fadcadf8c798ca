"""An archive's folder: what the table is, who writes to it, and which offsets each batch covers.

    TABLE/data/…                    the rows, as Parquet files
    TABLE/_perseid/table.json       what the table is of: topic, format, partitions, filter, schema (`TableInfo`)
    TABLE/_perseid/plans/N.json     which offsets the table covers once batch N is in it (`Plan`)
    TABLE/_perseid/committed.json   the last commit of ours, and which files the table had with it (`Committed`)
    TABLE/_perseid/staging          what is written before it counts
    TABLE/_perseid/lock             held by the run that writes
    TABLE/_delta_log, TABLE/metadata and TABLE/_perseid/catalog.db: Delta's and Iceberg's own

How a table's batches are numbered: the number of the last one is part of what each format commits, together with the
rows (`formats`). Plan N is on disk before batch N is committed. So a table's position is plan N of the N that it says,
whatever was killed: a plan that no commit names is written over by the next attempt. Whether the table still holds what
plan N says is another question, which a run asks first (`resuming`).
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

import msgspec

from perseid.base.errors import ConfigError
from perseid.spark.jobs.archive.bodies import BodySchema

OWN_FOLDER = "_perseid"
DATA_FOLDER = "data"
PLANS_KEPT = 100
"""Plans of earlier batches, for readers that looked at the table a moment ago."""
VERSION = 1
LOCK_TRIES = 10
"""How often a lock is tried that is removed at the same moment."""
REMOVE_TRIES = 3
MODULUS = 1 << 64
GENERATION = "generation"
"""The column that is 1, and one more each time that the topic was begun anew and its table went on."""

PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"
FORMATS = (PARQUET, DELTA, ICEBERG)
NONE, DAY, HOUR = "none", "day", "hour"
PARTITIONS = (NONE, DAY, HOUR)


@dataclass(frozen=True, slots=True)
class TableInfo:
    """The properties of a table that never change. `filter`: the source's options that choose messages."""

    topic: str
    format: str
    partition_by: str
    table_id: str
    filter: Mapping[str, str] = field(default_factory=dict)
    schema: BodySchema | None = None
    keep_value: bool = True
    version: int = VERSION
    numbered: bool = False
    """Rows have the column `generation`; tables that were made by earlier versions don't."""


@dataclass(frozen=True, slots=True)
class Landed:
    """Rows of one queue in a table: how many, and the sums of their offsets and of the squares of these, modulo 2^64.
    So one set of rows is told from another, in whatever files they lie."""

    rows: int = 0
    offsets: int = 0
    squares: int = 0

    def plus(self, other: Landed) -> Landed:
        """Of both sets together."""
        sums = (self.offsets + other.offsets) % MODULUS, (self.squares + other.squares) % MODULUS
        return Landed(self.rows + other.rows, *sums)


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages that a table does not have: within the offsets [start, end) of a queue, `messages` of them."""

    queue: str
    start: int
    end: int
    messages: int
    why: str
    batch: int
    """Since this one."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A topic that was begun anew, in a table that goes on: since batch `batch` its rows have the number `number`, and
    queues begin at `begin`. What was landed before had ended at `ended`."""

    number: int
    batch: int
    why: str
    begin: Mapping[str, int]
    ended: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """Coverage of a table: the offsets [begin, end) of each queue (`topic/brokerName/queueId`), and when the message
    before `end` was stored, by which a topic that was made anew is told from the one that was read. `earliest`: where
    queues began then, for the same end. `landed`: the rows of each queue, of all generations; None in plans of earlier
    versions."""

    begin: Mapping[str, int]
    end: Mapping[str, int]
    stored_ms: Mapping[str, int] = field(default_factory=dict)
    landed: Mapping[str, Landed] | None = None
    gaps: tuple[Gap, ...] = ()
    generations: tuple[Generation, ...] = ()
    earliest: Mapping[str, int] = field(default_factory=dict)

    @property
    def generation(self) -> int:
        """Of the rows that come next."""
        return self.generations[-1].number if self.generations else 1


@dataclass(frozen=True, slots=True)
class Committed:
    """The last commit of ours: its batch, and a digest of the files that the table had then."""

    batch: int
    files: str


class TableFolder:
    """The folder of one archive."""

    def __init__(self, table: str | Path) -> None:
        self.path = local(str(table))
        self.own = self.path / OWN_FOLDER
        self.data = self.path / DATA_FOLDER
        self.staging = self.own / "staging"

    # ---- what it is of ----

    def info(self) -> TableInfo | None:
        """The table's properties; None where there is no archive."""
        path = self.own / "table.json"
        if not path.is_file():
            return None
        try:
            info = msgspec.json.decode(path.read_bytes(), type=TableInfo)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path}: {error}: was it changed by hand?") from None
        if info.version != VERSION:
            raise ConfigError(f"{path}: a table of version {info.version}, this perseid knows {VERSION}")
        return info

    def known(self) -> TableInfo:
        """The table's properties. ConfigError where there is no archive."""
        info = self.info()
        if info is None:
            raise ConfigError(f"{self.path} is no archive: it has no {OWN_FOLDER}/table.json")
        return info

    def check_free(self) -> None:
        """ConfigError when something else is in the folder."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is no folder: name another one")
        if self.path.exists() and any(entry.name != OWN_FOLDER for entry in self.path.iterdir()):
            raise ConfigError(f"{self.path} is no archive and not empty: name another folder")

    def create(self, info: TableInfo) -> None:
        """Say what a new table is of."""
        (self.own / "plans").mkdir(parents=True, exist_ok=True)
        write_whole(self.own / "table.json", msgspec.json.encode(info))

    # ---- who writes ----

    @contextmanager
    def locked(self, name: str = "lock") -> Iterator[None]:
        """Lock the table against other writers (or whatever `name` stands for) meanwhile; a run that dies lets go.
        ConfigError when another one has the lock."""
        with self._lock(self.own / name):
            yield

    def _lock(self, path: Path) -> IO[str]:
        held = ConfigError(f"{path} is held by another run: wait until that is done")
        why: Exception = held
        for _ in range(LOCK_TRIES):
            with ExitStack() as unless_held:
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    lock = unless_held.enter_context(path.open("a"))
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    is_it = os.path.samestat(os.fstat(lock.fileno()), path.stat())
                except BlockingIOError:
                    raise held from None
                except OSError as error:
                    why = ConfigError(
                        f"{self.path}: no table can be written there: {error.strerror} ({error.filename}): name a"
                        " folder that can be written"
                    )
                    if not isinstance(error, FileNotFoundError):
                        raise why from None
                    continue  # a first run that failed has just removed it
                if is_it:
                    unless_held.pop_all()
                    return lock
        raise why

    def missing(self) -> list[Path]:
        """What of the folder, and of those around it, is not there: the innermost first."""
        return [path for path in (self.own, self.path, *self.path.parents) if not path.exists()]

    def remove(self, missing: Sequence[Path]) -> None:
        """Remove a table that was made just now, and has nothing yet: what was `missing` before. Others' stays."""
        for made in (self.data, self.path / "_delta_log", self.path / "metadata", self.own):
            for _ in range(REMOVE_TRIES):  # tasks that end just now may still write
                shutil.rmtree(made, ignore_errors=True)
        for folder in missing[1:]:
            try:
                folder.rmdir()
            except OSError:  # others put something there
                break

    def prepare(self) -> None:
        """Make the folders, and remove what killed runs had staged, which never was in the table."""
        shutil.rmtree(self.staging, ignore_errors=True)
        self.staging.mkdir(parents=True)
        self.data.mkdir(exist_ok=True)

    def beyond(self, last: int) -> list[Path]:
        """Folders with files of batches after `last`: killed runs left them, or the table is an older copy and does
        not know them any more. So they are removed when a run is through (`sweep`), not before."""
        numbered = ((folder.name.partition("-")[0], folder) for folder in sorted(self.data.glob("*-*")))
        return [folder for number, folder in numbered if number.isdecimal() and int(number) > last]

    @staticmethod
    def sweep(folders: Sequence[Path]) -> None:
        """Remove what `beyond` found before the run."""
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    # ---- what it covers ----

    def plan(self, batch: int) -> Plan | None:
        """The coverage of the table with batch `batch`; None before the first."""
        if batch < 0:
            return None
        path = self._plan(batch)
        try:
            return msgspec.json.decode(path.read_bytes(), type=Plan)
        except FileNotFoundError:
            raise ConfigError(
                f"{path} is missing: without it nobody knows what the table covers; put it back from a copy, or archive"
                " the topic into another table"
            ) from None
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path}: {error}: was it changed by hand?") from None

    def plans(self) -> list[int]:
        """The numbers of the plans that there are, those of runs that were killed among them."""
        names = (path.stem for path in (self.own / "plans").glob("*.json"))
        return sorted(int(name) for name in names if name.isdecimal())

    def write_plan(self, batch: int, plan: Plan) -> None:
        """Note what the table covers once batch `batch` is committed."""
        write_whole(self._plan(batch), msgspec.json.encode(plan))
        for old in self.plans()[:-PLANS_KEPT]:
            self._plan(old).unlink(missing_ok=True)

    def committed(self) -> Committed | None:
        """The last commit that was noted; None where there is no note."""
        try:
            return msgspec.json.decode((self.own / "committed.json").read_bytes(), type=Committed)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise ConfigError(f"{self.own / 'committed.json'}: {error}: was it changed by hand? Remove it") from None

    def note_committed(self, committed: Committed) -> None:
        """Note it. Where that did not happen, or the note is lost, the next run looks at the table's rows."""
        write_whole(self.own / "committed.json", msgspec.json.encode(committed))

    def _plan(self, batch: int) -> Path:
        return self.own / "plans" / f"{batch:08d}.json"


def local(table: str) -> Path:
    """The folder that a path or a file: address names. ConfigError for what is on no mounted file system."""
    parts = urlsplit(table)
    if parts.scheme == "file":
        return Path(unquote(parts.path)).absolute()
    if parts.scheme and "://" in table:
        raise ConfigError(
            f"{table}: tables are folders that the driver and all executors see under one path: mount {parts.scheme}"
        )
    return Path(table).absolute()


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole, or as it was, after a crash too."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
