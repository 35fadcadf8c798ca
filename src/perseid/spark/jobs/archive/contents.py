"""Which rows a table holds, told by sums: cheap to gather while rows are written, and to be had again from any files.

Others may merge, rewrite and move a table's files; who restores, rolls back or deletes changes its rows. The sums of
each queue's offsets tell one from the other, and one batch's table from another's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from perseid.base.errors import ConfigError
from perseid.spark.jobs.archive.folder import GENERATION, MODULUS, Committed, Generation, Landed
from perseid.spark.jobs.archive.snapshot import DataFile, Snapshot
from perseid.spark.plan import queue_of

QUEUE = ["brokerName", "queueId"]
BATCH_ROWS = 1 << 17


def landed(offsets: Any) -> Landed:
    """Of the rows with these offsets (an Arrow array)."""
    squares = pc.multiply(offsets, offsets)  # wraps, as the sums do
    return Landed(len(offsets), _sum(offsets), _sum(squares))


def total(parts: Iterable[Mapping[str, Landed]]) -> dict[str, Landed]:
    """Of all of these together."""
    found: dict[str, Landed] = {}
    for part in parts:
        for name, one in part.items():
            if one.rows:
                found[name] = found.get(name, Landed()).plus(one)
    return found


def contents(topic: str, files: Sequence[DataFile]) -> dict[str, Landed]:
    """Of the rows of a topic in some files, by queue: reads their places."""
    return total(_of_file(topic, file.path) for file in files)


def stored(
    name: str, files: Sequence[DataFile], generations: Sequence[Generation], low: int, high: int
) -> tuple[Any, Any]:
    """The offsets from `low` to before `high` that a table has of a queue as it is since it was last begun anew, in
    order, and when those messages were stored (milliseconds): two Arrow arrays. `generations`: of the table's plan."""
    queue = queue_of(name)
    last = generations[-1].number if generations else 1
    found = []
    for one in files:
        with _opened(one.path) as file:
            numbered = GENERATION in file.schema_arrow.names
            columns = [*QUEUE, "queueOffset", "storeTimestamp", *([GENERATION] if numbered else [])]
            for rows in _rows(file, columns):
                wanted = (
                    (pc.field("brokerName") == queue.broker_name) & (pc.field("queueId") == queue.queue_id)
                    & (pc.field("queueOffset") >= low) & (pc.field("queueOffset") < high)
                )  # fmt: skip
                for number in range(1, last if numbered else 1):  # what later generations have begun again is not it
                    end = min(
                        (one.begin[name] for one in generations if one.number > number and name in one.begin),
                        default=high,
                    )
                    wanted &= (pc.field(GENERATION) != number) | (pc.field("queueOffset") < end)
                found.append(rows.filter(wanted).select(["queueOffset", "storeTimestamp"]))
    if not found:
        return pa.array([], pa.int64()), pa.array([], pa.int64())
    rows = pa.concat_tables(found).sort_by("queueOffset")
    return rows.column("queueOffset"), pc.divide(rows.column("storeTimestamp").cast(pa.int64()), 1000)


def digest(files: Sequence[DataFile]) -> str:
    """A name for this set of files."""
    lines = sorted(f"{file.path.rpartition('/')[2]} {file.bytes}" for file in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def state(snapshot: Snapshot) -> Committed:
    """How a table is at a moment. Noted after a commit of ours, it spares the next run a look at the rows."""
    return Committed(snapshot.batch, digest(snapshot.files))


def check_there(files: Sequence[DataFile]) -> None:
    """ConfigError when files that the table names are gone, or cut."""
    for file in files:
        try:
            size = Path(file.path).stat().st_size
        except FileNotFoundError:
            raise ConfigError(
                f"{file.path} is gone, which the table names: put it back from a copy, or let the format's own tools"
                " repair the table"
            ) from None
        if size != file.bytes:
            raise ConfigError(f"{file.path} has {size} bytes, the table says {file.bytes}: put it back from a copy")


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    """A Parquet file. ConfigError when it is none, or is cut."""
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigError(f"{path} can't be read ({error}): put it back from a copy") from None


def _rows(file: Any, columns: Sequence[str]) -> Iterator[Any]:
    """Some columns of a file's rows, as Arrow tables."""
    for batch in file.iter_batches(BATCH_ROWS, columns=columns):
        rows = pa.table(batch)
        at = rows.schema.get_field_index("brokerName")
        names = rows.column(at).cast(pa.string())  # delta-rs rewrites files with string views, which nothing compares
        yield rows.set_column(at, "brokerName", names)


def _of_file(topic: str, path: str) -> dict[str, Landed]:
    found: list[dict[str, Landed]] = []
    with _opened(path) as file:
        for rows in _rows(file, [*QUEUE, "queueOffset"]):
            offsets = rows.column("queueOffset")
            rows = rows.append_column("squares", pc.multiply(offsets, offsets))
            sums = rows.group_by(QUEUE).aggregate(
                [("queueOffset", "count"), ("queueOffset", "sum"), ("squares", "sum")]
            )
            found.append({
                f"{topic}/{row['brokerName']}/{row['queueId']}": Landed(
                    row["queueOffset_count"], row["queueOffset_sum"] % MODULUS, row["squares_sum"] % MODULUS
                )
                for row in sums.to_pylist()
            })  # fmt: skip
    return total(found)


def _sum(numbers: Any) -> int:
    return int(pc.sum(numbers).as_py() or 0) % MODULUS
