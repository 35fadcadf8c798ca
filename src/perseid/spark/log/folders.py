"""Which segments a store folder has, and how they are cut into splits.

    FOLDER/commitlog/<20 digits>            a broker's log
    FOLDER/dledger-<id>/data/<20 digits>    that of a broker in a DLedger group
    FOLDER/<20 digits>                      a folder of either, by what its files begin with
    FILE                                    one such file

A folder may have both logs: one that was moved into a group. What no longer is there, or not yet, is no damage; a gap
between two files is, and has a row.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from perseid.base.errors import ConfigError
from perseid.spark.log.rows import Chosen
from perseid.spark.log.walk import PAGE_BYTES, Segment
from perseid.wire import dledger
from perseid.wire.record import BLANK_MAGIC, BORN_HOST_AT, MAGIC_V1, MAGIC_V2, SYS_BORN_HOST_V6, SYS_FLAG_AT

_NAME = re.compile(r"\d{20}")
_BLOCK_BYTES = 1 << 20
_ZEROS = bytes(_BLOCK_BYTES)
_PAIR = Struct(">ii")
_LONG = Struct(">q")
HEAD_BYTES = 256
"""Of a segment, to see what it is and when its first record was stored."""
MOST_ZEROS = 2
"""At the end of a record: the length of its properties, where it has none."""
MAX_SPLITS = 100_000
"""Of one read."""


@dataclass(frozen=True, slots=True)
class Log:
    """The segments of one log, and what is missing between them: place and words."""

    folder: str
    segments: tuple[Segment, ...]
    gaps: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """The events of one segment that begin in [begin, end), and the gaps of its log that are told with them."""

    folder: str
    segment: Segment
    begin: int
    end: int
    gaps: tuple[tuple[int, str], ...] = ()


def logs(folder: str) -> list[Log]:
    """The logs of a store folder. ConfigError when there is none; it names what was looked for."""
    path = Path(folder.removeprefix("file://") if folder.startswith("file:///") else folder).expanduser()
    if re.match(r"[a-z][a-z0-9+.-]+://", str(folder)) and not folder.startswith("file:///"):
        raise ConfigError(f"path {folder!r}: store folders are read from local or mounted file systems only")
    if path.is_file():
        if not _NAME.fullmatch(path.name):
            raise ConfigError(f"path {folder!r}: a segment has 20 digits for a name, the offset where it begins")
        return [_log(folder, [path], None)]
    if not path.is_dir():
        raise ConfigError(f"path {folder!r}: there is no such folder")
    places = [(path / "commitlog", False), *((p, True) for p in sorted(path.glob("dledger-*/data")))]
    if path.name != "data" and (path / "data").is_dir():
        places.append((path / "data", True))
    found = [(_files(place), entries) for place, entries in places if place.is_dir()]
    known: list[tuple[list[Path], bool | None]] = [(files, entries) for files, entries in found if files]
    if not known and _files(path):
        known = [(_files(path), None)]
    if not known:
        raise ConfigError(
            f"path {folder!r}: no log is there; looked for files with 20 digits for a name in {path / 'commitlog'}, "
            f"{path / 'dledger-*' / 'data'}, {path / 'data'} and {path} itself"
        )
    return [_log(folder, files, entries) for files, entries in known]


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if _NAME.fullmatch(p.name) and p.is_file() and p.stat().st_size > 0)


def _log(folder: str, files: list[Path], entries: bool | None) -> Log:
    sizes = {path: path.stat().st_size for path in files}
    used = {}
    for path in reversed(files):  # behind the end there are files that nothing was written into yet
        used[path] = data_end(path, sizes[path])
        if used[path]:
            break
    last = next((path for path in files if used.get(path)), None)
    if entries is None:
        entries = any(_begins_with_entry(path) for path in files[:2])
    segments: list[Segment] = []
    gaps: list[tuple[int, str]] = []
    for number, path in enumerate(files):
        start = int(path.name)
        end = start + sizes[path]
        if number + 1 < len(files):
            after = int(files[number + 1].name)
            if end < after and path != last:
                gaps.append((end, f"{path}: the log's bytes {end} to {after} are missing: no file has them"))
            elif end > after:
                gaps.append((after, f"{path}: its last {end - after} bytes are the next file's, by that one's name"))
                end = after
        limit = end
        if path == last:
            limit = min(end, start + -(-(used[path] + MOST_ZEROS) // PAGE_BYTES) * PAGE_BYTES)
        segments.append(Segment(str(path), start, end, limit, entries, path == last))
        if path == last:
            break
    return Log(folder, tuple(segments) if last else (), tuple(gaps))


def _begins_with_entry(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(8)
    if len(head) < 8:
        return False
    first, second = _PAIR.unpack(head)
    return first in (dledger.ENTRY_MAGIC, dledger.BLANK_MAGIC) and second not in (MAGIC_V1, MAGIC_V2, BLANK_MAGIC)


def data_end(path: Path, size: int) -> int:
    """Behind the last byte of a file that is not zero; 0 when all are. Holes are not read."""
    with path.open("rb", buffering=0) as file:
        for low, high in reversed(_extents(file.fileno(), size)):
            while high > low:
                count = min(_BLOCK_BYTES, high - low)
                block = os.pread(file.fileno(), count, high - count)
                if block != _ZEROS[: len(block)]:
                    return high - count + len(block.rstrip(b"\0"))
                high -= count
    return 0


def _extents(fd: int, size: int) -> list[tuple[int, int]]:
    """Where a file has data, as far as the system tells."""
    found, at = [], 0
    try:
        while at < size:
            low = os.lseek(fd, at, os.SEEK_DATA)
            high = min(os.lseek(fd, low, os.SEEK_HOLE), size)
            found.append((low, high))
            at = high
    except OSError as error:
        if error.errno != errno.ENXIO:  # no data behind `at`
            return [(0, size)]
    return found


def first_time(segment: Segment) -> int | None:
    """When the first record of a segment was stored (milliseconds); None when it does not begin with one."""
    with open(segment.path, "rb") as file:
        head = file.read(HEAD_BYTES)
    at = dledger.ENTRY_HEADER_BYTES if segment.entries else 0
    if len(head) < HEAD_BYTES or _PAIR.unpack_from(head, at)[1] not in (MAGIC_V1, MAGIC_V2):
        return None
    v6 = head[at + SYS_FLAG_AT + 3] & SYS_BORN_HOST_V6
    return int(_LONG.unpack_from(head, at + BORN_HOST_AT + (20 if v6 else 8))[0])


def pruned(log: Log, chosen: Chosen, slack_ms: int) -> list[Segment]:
    """The segments that may have a record that is wanted: by their names, and by the times of their first records. A
    clock may have been set back: `slack_ms` is how far at most."""
    low, high = chosen.offsets
    first, last = chosen.times
    wanted = [s for s in log.segments if s.limit > low and s.start <= high]
    if chosen.times == Chosen().times:
        return wanted
    times = {s.start: first_time(s) for s in log.segments}
    ends = dict(zip(times, [*list(times.values())[1:], None], strict=True))
    kept = []
    for segment in wanted:
        begin, end = times[segment.start], ends[segment.start]
        if begin is not None and begin - slack_ms > last:
            continue
        if end is not None and end + slack_ms < first:
            continue
        kept.append(segment)
    return kept


def splits(
    found: Sequence[Log], chosen: Chosen, *, slack_ms: int, split_bytes: int, min_partitions: int
) -> list[Split]:
    """All splits of what is wanted of some logs: none is longer than `split_bytes`, and at least so many, if there is
    enough to be cut."""
    wanted = [(log, pruned(log, chosen, slack_ms)) for log in found]
    low, high = chosen.offsets
    total = sum(s.limit - s.start for _, segments in wanted for s in segments)
    if min_partitions:
        split_bytes = max(1, min(split_bytes, -(-total // min_partitions)))
    if total // split_bytes > MAX_SPLITS:
        raise ConfigError(f"splitBytes {split_bytes}: {total} bytes would be more than {MAX_SPLITS} partitions")
    result: list[Split] = []
    for log, segments in wanted:
        gaps = log.gaps
        for segment in segments:
            head = dledger.ENTRY_HEADER_BYTES if segment.entries else 0  # the event begins with it, before the record
            begin, end = max(segment.start, low - head), min(segment.limit, high + 1)
            for at, stop in _pieces(begin, end, split_bytes):
                result.append(Split(log.folder, segment, at, stop, gaps))
                gaps = ()
    return result


def _pieces(begin: int, end: int, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of about the same length, none longer than `most`."""
    count = -(-(end - begin) // most)
    for number in range(count):
        yield begin + (end - begin) * number // count, begin + (end - begin) * (number + 1) // count
