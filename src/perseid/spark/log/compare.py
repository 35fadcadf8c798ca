"""What several replicas' logs hold between two places: whose records differ, are missing, or are there besides.

Replicas have the same bytes. A classic slave and one under a controller get their master's as they stand; members of a
DLedger group get whole entries, heads and all. So no field of a record may differ, not even the storeHost, which is the
address of the master that stored it; and what makes two records the same one is their place. What may rightly differ
is where a log begins (retention is each broker's own; a slave may be told to begin with its master's last file), where
it ends (a replica that is behind), and what is no record: zeros behind the end, the rest of a file behind its blank.

    Side    one replica's log: where it begins, and where its last sound record ends
    Share   a range of places, with what each replica has of it: the work of one task
    Told    what a task found: counts by topic, and the first differences in words

**The join.** It is a full outer join by place; a share's task has all sides of it, as it reads the same range of each
folder, so nothing is shuffled: a record is a place and a digest of its stored bytes (entry head, record, properties)
in the task's memory, and bodies leave the reader's buffer only for the few differences that are told in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations
from typing import Any

import msgspec
import numpy as np

from perseid.base import extras

try:
    import pyarrow as pa
except ImportError as error:
    raise extras.missing("perseid.spark", error) from None

from perseid.base.errors import ConfigError
from perseid.spark.log import folders
from perseid.spark.log.folders import Log, Split
from perseid.spark.log.reading import read
from perseid.spark.log.rows import RowOptions, rows
from perseid.spark.log.walk import CHUNK_BYTES, Segment, SegmentBytes, Walk
from perseid.wire.dledger import ENTRY_HEADER, ENTRY_HEADER_BYTES
from perseid.wire.record import Record, RecordError, decode

DIFFERING, MISSING, EXTRA = "differing", "missing", "extra"
"""Both have a record there, and they are not the same; the second replica has none; only it has one."""
KINDS = (DIFFERING, MISSING, EXTRA)
_NAMES = ("physicalOffset", "size", "topic", "_corrupt")
_FIELDS = {
    "topic": "topic", "queueId": "queue_id", "queueOffset": "queue_offset", "storeTimestamp": "store_timestamp",
    "bornTimestamp": "born_timestamp", "body": "body", "bodyCrc": "body_crc", "properties": "properties",
    "sysFlag": "sys_flag", "flag": "flag", "reconsumeTimes": "reconsume_times", "storeHost": "store_host",
    "bornHost": "born_host", "preparedTransactionOffset": "prepared_transaction_offset", "size": "size",
}  # fmt: skip
"""The columns of the source, and a record's own names."""
_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Side:
    """One replica's log, as it was when it was looked at."""

    folder: str
    logs: tuple[Log, ...]
    begin: int
    """The first place that a file stands for."""
    end: int
    """Behind its last sound record."""

    @property
    def segments(self) -> list[Segment]:
        """The files of all its logs, in order."""
        return sorted((s for log in self.logs for s in log.segments), key=lambda s: s.start)

    @property
    def gaps(self) -> list[tuple[int, str]]:
        """Ranges that no file has, and why."""
        return [gap for log in self.logs for gap in log.gaps]


@dataclass(frozen=True, slots=True)
class Share:
    """The events that begin between two places: for each replica the pieces of its segments, in order."""

    begin: int
    end: int
    pieces: tuple[tuple[Split, ...], ...]

    @property
    def read_bytes(self) -> int:
        """Of all replicas together."""
        return sum(split.end - split.begin for pieces in self.pieces for split in pieces)


class Stored(msgspec.Struct, frozen=True, rename="camel"):
    """A record, so that people find it."""

    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    """Milliseconds since 1970."""
    size: int
    """Of the record, without an entry's head."""
    msg_id: str | None = None
    """The id that its sender gave it."""
    term: int | None = None
    """Of a group's entry."""


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """One difference between two replicas."""

    kind: str
    place: int
    left: Stored | None
    right: Stored | None
    fields: tuple[str, ...] = ()
    """The differences, where both have a record."""


class Compared(msgspec.Struct, frozen=True):
    """Two replicas, in one share."""

    counts: dict[str, tuple[int, int, int]]
    """By topic, in the order of `KINDS`."""
    findings: list[Finding]
    """The first ones, in order."""


class Told(msgspec.Struct, frozen=True):
    """The findings of one task. Lists have an item for each replica, or for each pair in the order of `pairs`."""

    begin: int
    topics: list[dict[str, int]]
    """Records by topic."""
    corrupt: list[int]
    damage: list[list[tuple[int, str]]]
    """The first of what is corrupt: place, and what is wrong."""
    compared: list[Compared]


def pairs(count: int) -> list[tuple[int, int]]:
    """Pairs of replicas to compare: each with all later ones."""
    return list(combinations(range(count), 2))


# ---- planning ----


def side(folder: str, most_bytes: int) -> Side:
    """A folder's log. ConfigError when there is none, or nothing in it."""
    logs = tuple(folders.logs(folder))
    found = Side(folder, logs, 0, 0)
    for segment in reversed(found.segments):
        end = _end_in(folder, segment, most_bytes)
        if end is not None:
            return Side(folder, logs, found.segments[0].start, end)
    raise ConfigError(f"path {folder!r}: its log holds no record: there is nothing to compare")


def _end_in(folder: str, segment: Segment, most_bytes: int) -> int | None:
    """Behind the last sound record that begins in a segment, looked for from its end backwards; None: it has none."""
    back = most_bytes
    options = RowOptions(_NAMES, decompress=False, most_bytes=most_bytes)
    while segment.limit > segment.start:
        begin, found = max(segment.start, segment.limit - back), None
        for batch in read(Split(folder, segment, begin, segment.limit), options, torn_is_end=True):
            places, sizes = batch.column(0).to_pylist(), batch.column(1).to_pylist()
            ends = [place + size for place, size in zip(places, sizes, strict=True) if size is not None]
            found = max(ends, default=found)
        if found is not None or begin == segment.start:
            return found
        back *= 2
    return None


def _head_bytes(segment: Segment) -> int:
    """What stands before each of a segment's records."""
    return ENTRY_HEADER_BYTES if segment.entries else 0


def shares(sides: Sequence[Side], share_bytes: int) -> list[Share]:
    """The places of all logs, cut at multiples of `share_bytes`, in order."""
    found: dict[int, list[list[Split]]] = {}
    for number, one in enumerate(sides):
        for segment in one.segments:
            at = segment.start
            while at < segment.limit:
                index = at // share_bytes
                stop = min(segment.limit, (index + 1) * share_bytes)
                found.setdefault(index, [[] for _ in sides])[number].append(Split(one.folder, segment, at, stop))
                at = stop
    return [
        Share(index * share_bytes, (index + 1) * share_bytes, tuple(map(tuple, pieces)))
        for index, pieces in sorted(found.items())
    ]


# ---- one share ----


@dataclass(frozen=True, slots=True)
class _Events:
    """The records of one replica in a share, by place, and what is corrupt."""

    places: Any
    sizes: Any
    """Of the event: an entry's head is part of it."""
    digests: Any
    topics: Any
    corrupt: list[tuple[int, str]]
    pieces: tuple[Split, ...]

    def within(self, low: int, high: int) -> tuple[Any, Any]:
        """Places and digests of the records that begin in [low, high)."""
        first, last = np.searchsorted(self.places, (low, high))
        return self.places[first:last], self.digests[first:last]

    def raw(self, place: int) -> tuple[bytes, int]:
        """The stored bytes of the record at a place, and how long its entry's head is."""
        size = int(self.sizes[np.searchsorted(self.places, place)])
        (split,) = (split for split in self.pieces if split.begin <= place < split.end)
        with SegmentBytes(split.segment) as data:
            return bytes(data.read(place, size)), _head_bytes(split.segment)


def compare(share: Share, ranges: Sequence[tuple[int, int]], *, most_bytes: int, samples: int) -> Told:
    """Hold the replicas against one another in one share. `ranges`: where each log begins and ends: two are compared
    where both are. At most `samples` differences of a pair, and as much damage of each replica, are told in words."""
    options = RowOptions(_NAMES, decompress=False, most_bytes=most_bytes)
    found = [_events(pieces, options) for pieces in share.pieces]
    compared = []
    for left, right in pairs(len(found)):
        low = max(ranges[left][0], ranges[right][0])
        high = min(ranges[left][1], ranges[right][1])
        compared.append(_compared(found[left], found[right], low, max(low, high), samples))
    return Told(
        begin=share.begin,
        topics=[_counted(events.topics) for events in found],
        corrupt=[len(events.corrupt) for events in found],
        damage=[events.corrupt[:samples] for events in found],
        compared=compared,
    )


def _events(pieces: tuple[Split, ...], options: RowOptions) -> _Events:
    places: list[Any] = [np.empty(0, np.int64)]
    sizes: list[Any] = [np.empty(0, np.int64)]
    digests: list[Any] = [np.empty(0, np.uint64)]
    topics: list[Any] = [pa.array([], pa.string())]
    corrupt: list[tuple[int, str]] = []
    for split in pieces:
        head = _head_bytes(split.segment)
        try:
            data = SegmentBytes(split.segment)
        except FileNotFoundError:
            corrupt.append((split.begin, f"{split.segment.path}: the file is gone since the audit began"))
            continue
        with data:
            found = rows(options, split.segment.entries)
            walk = Walk(split.segment, data, found, options.most_bytes, torn_is_end=True)  # it is behind, no more
            for batch in walk.batches(split.begin, split.end):
                bad = batch.filter(batch.column(3).is_valid())
                corrupt += zip(bad.column(0).to_pylist(), bad.column(3).to_pylist(), strict=True)
                sound = batch.filter(batch.column(1).is_valid())
                places.append(sound.column(0).to_numpy() - head)
                sizes.append(sound.column(1).to_numpy().astype(np.int64) + head)
                digests.append(_digests(data, places[-1], sizes[-1]))
                topics.append(sound.column(2))
    return _Events(
        np.concatenate(places), np.concatenate(sizes), np.concatenate(digests), pa.concat_arrays(topics), corrupt,
        pieces,
    )  # fmt: skip


def _digests(data: SegmentBytes, places: Any, sizes: Any) -> Any:
    """Of the stored bytes of some events, which are in order."""
    found = []
    base, near = 0, memoryview(b"")
    for place, size in zip(places.tolist(), sizes.tolist(), strict=True):
        if not base <= place <= place + size <= base + len(near):
            base, near = place, memoryview(data.read(place, max(size, CHUNK_BYTES)))
        found.append(blake2b(near[place - base : place - base + size], digest_size=_DIGEST_BYTES).digest())
    return np.frombuffer(b"".join(found), np.uint64)


def _counted(topics: Any) -> dict[str, int]:
    return {item["values"]: item["counts"] for item in topics.value_counts().to_pylist()}


def _compared(left: _Events, right: _Events, low: int, high: int, samples: int) -> Compared:
    places, digests = left.within(low, high)
    other_places, other_digests = right.within(low, high)
    if np.array_equal(places, other_places) and np.array_equal(digests, other_digests):
        return Compared({}, [])
    both, at, other_at = np.intersect1d(places, other_places, assume_unique=True, return_indices=True)
    found = {
        DIFFERING: both[digests[at] != other_digests[other_at]],
        MISSING: np.setdiff1d(places, both, assume_unique=True),
        EXTRA: np.setdiff1d(other_places, both, assume_unique=True),
    }
    counts: dict[str, list[int]] = {}
    for number, kind in enumerate(KINDS):
        owner = right if kind == EXTRA else left
        chosen = owner.topics.take(pa.array(np.searchsorted(owner.places, found[kind])))
        for topic, count in _counted(chosen).items():
            counts.setdefault(topic, [0, 0, 0])[number] += count
    first = sorted((int(place), kind) for kind in KINDS for place in found[kind][:samples])[:samples]
    findings = [_finding(kind, place, left, right) for place, kind in first]
    return Compared({topic: (c[0], c[1], c[2]) for topic, c in counts.items()}, findings)


def _finding(kind: str, place: int, left: _Events, right: _Events) -> Finding:
    """A difference in words."""
    one = None if kind == EXTRA else left.raw(place)
    other = None if kind == MISSING else right.raw(place)
    fields: tuple[str, ...] = ()
    if one is not None and other is not None:
        fields = _differing(one, other)
    return Finding(kind, place, _stored(one), _stored(other), fields)


def _differing(one: tuple[bytes, int], other: tuple[bytes, int]) -> tuple[str, ...]:
    """Names of what differs between two records, as far as they can be decoded."""
    left, right = _record(one), _record(other)
    if left is None or right is None:
        return ()
    found = [name for name, own in _FIELDS.items() if getattr(left, own) != getattr(right, own)]
    if _term(one) != _term(other):
        found.append("term")
    elif one[0][: one[1]] != other[0][: other[1]]:
        found.append("the entry's head")
    return tuple(found)


def _record(raw: tuple[bytes, int]) -> Record | None:
    """None: a log that is being written was cut since it was compared."""
    try:
        return decode(raw[0], raw[1], check_crc=False, errors="replace")
    except RecordError:
        return None


def _term(raw: tuple[bytes, int]) -> int | None:
    return int(ENTRY_HEADER.unpack_from(raw[0])[3]) if raw[1] else None


def _stored(raw: tuple[bytes, int] | None) -> Stored | None:
    record = None if raw is None else _record(raw)
    if raw is None or record is None:
        return None
    return Stored(
        topic=record.topic, queue_id=record.queue_id, queue_offset=record.queue_offset,
        store_timestamp=record.store_timestamp, size=record.size, msg_id=record.unique_key, term=_term(raw),
    )  # fmt: skip
