"""Records as Arrow batches: by the compiled core, or by plain Python that gives the same.

A row is a record, or a stretch of the log where none stands. `_corrupt` says what is wrong with either, and where; it
is null in all rows that are good.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from perseid.base import extras

try:
    import pyarrow as pa
except ImportError as error:
    raise extras.missing("perseid.spark", error) from None

from perseid import core
from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Buffer
from perseid.core import columns as plain_columns
from perseid.core import layout
from perseid.core.layout import INT_COLUMNS, LONG_COLUMNS, LONG_MAX, LONG_MIN, TIME_MAX, TIME_MIN
from perseid.spark.buffers import Buffers, bits
from perseid.wire import properties as props
from perseid.wire.compression import decompress
from perseid.wire.dledger import ENTRY_HEADER, ENTRY_HEADER_BYTES, ENTRY_MAGIC
from perseid.wire.hashing import crc32
from perseid.wire.host import Host
from perseid.wire.record import MAX_RECORD_BYTES, SYS_COMPRESSED, Record, RecordError, decode

MAX_ROWS = 16384
"""Rows of one batch."""
MAX_BATCH_BYTES = 16 << 20
"""A batch whose texts are longer than this ends."""
MOST_BYTES = MAX_RECORD_BYTES + ENTRY_HEADER_BYTES
"""Of one record with its head, unless an option says otherwise: the store's own limit."""

_MAP = pa.map_(pa.string(), pa.string())
_TIME = pa.timestamp("us", tz="UTC")

COLUMNS: dict[str, tuple[str, Any]] = {
    "topic": ("string", pa.string()),
    "queueId": ("int", pa.int32()),
    "queueOffset": ("bigint", pa.int64()),
    "physicalOffset": ("bigint", pa.int64()),
    "storeTimestamp": ("timestamp", _TIME),
    "bornTimestamp": ("timestamp", _TIME),
    "keys": ("string", pa.string()),
    "tags": ("string", pa.string()),
    "body": ("binary", pa.binary()),
    "properties": ("map<string,string>", _MAP),
    "sysFlag": ("int", pa.int32()),
    "flag": ("int", pa.int32()),
    "reconsumeTimes": ("int", pa.int32()),
    "storeHost": ("string", pa.string()),
    "bornHost": ("string", pa.string()),
    "_corrupt": ("string", pa.string()),
    "folder": ("string", pa.string()),
    "size": ("int", pa.int32()),
    "bodyCrc": ("int", pa.int32()),
    "preparedTransactionOffset": ("bigint", pa.int64()),
    "term": ("bigint", pa.int64()),
}
"""Spark's type and Arrow's of each column."""
ONLY_WHEN_ASKED = {"folder", "size", "bodyCrc", "preparedTransactionOffset", "term"}
TEXTS = {
    "topic": "topics", "body": "bodies", "keys": "keys", "tags": "tags", "storeHost": "store_hosts",
    "bornHost": "born_hosts",
}  # fmt: skip
"""What `core.columns` calls them."""
KEPT_IN_HOLES = {"physicalOffset", "_corrupt", "folder"}


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which records become rows, as far as that can be said before they are decoded. Times are in milliseconds, bounds
    are included. Rows with `_corrupt` may come all the same."""

    topics: frozenset[str] | None = None
    times: tuple[int, int] = (LONG_MIN, LONG_MAX)
    offsets: tuple[int, int] = (LONG_MIN, LONG_MAX)
    only_corrupt: bool = False


@dataclass(frozen=True, slots=True)
class RowOptions:
    """Which columns rows have."""

    names: tuple[str, ...]
    chosen: Chosen = field(default_factory=Chosen)
    decompress: bool = True
    most_bytes: int = MOST_BYTES
    most_rows: int = MAX_ROWS
    """Of one batch."""
    folder: str = ""


def arrow_schema(names: Sequence[str]) -> Any:
    """The Arrow schema of some columns."""
    return pa.schema([pa.field(name, COLUMNS[name][1]) for name in names])


def ddl(*, include_body: bool, include_folder: bool) -> str:
    """The schema of a read that names no columns."""
    left_out = ONLY_WHEN_ASKED - ({"folder"} if include_folder else set())
    if not include_body:
        left_out = left_out | {"body"}
    return ", ".join(f"`{name}` {kind}" for name, (kind, _) in COLUMNS.items() if name not in left_out)


def host_text(raw: bytes) -> bytes:
    """`ip:port` of 8 or 20 bytes of a record."""
    return str(Host(raw[:-4], int.from_bytes(raw[-4:], "big", signed=True))).encode()


class Rows(ABC):
    """Shared by both ways: rows that are out of the ordinary. `entries`: records stand in a group's entries."""

    def __init__(self, options: RowOptions, entries: bool) -> None:
        self.options = options
        self._head_bytes = ENTRY_HEADER_BYTES if entries else 0
        self._notes: dict[int, str] = {}
        self._nulls: dict[str, set[int]] = {}

    @property
    @abstractmethod
    def count(self) -> int:
        """Rows since the last batch."""

    @property
    @abstractmethod
    def full(self) -> bool:
        """It is time for a batch."""

    @abstractmethod
    def sound(self, data: Buffer, at: int, base: int) -> int:
        """The size of the record or entry at `at`, with its head; -1 when none stands there. `data` begins at `base` of
        the log."""

    @abstractmethod
    def find(self, data: Buffer, at: int, stop: int, base: int) -> int:
        """The first place from `at` on, and before `stop`, where a record or an entry stands; -1 when there is none."""

    @abstractmethod
    def marks(self, data: Buffer, at: int, stop: int, base: int) -> tuple[list[int], list[int]]:
        """All such places, in the log, and where each record or entry ends."""

    @abstractmethod
    def read(self, data: Buffer, at: int, stop: int, base: int) -> int:
        """Take the plain records that begin from `at` on and before `stop`, as long as there is room; where the first
        one begins that was not taken."""

    @abstractmethod
    def batch(self) -> Any:
        """The rows since the last batch, as one."""

    @abstractmethod
    def _put(
        self, data: Buffer, at: int, base: int, record: Record, topic: bytes, body: bytes, raw: bytes
    ) -> None: ...

    @abstractmethod
    def _put_hole(self, place: int) -> None: ...

    def hole(self, place: int, why: str) -> None:
        """A row that only says what is wrong at this place."""
        self._notes[self.count] = why
        for name in COLUMNS.keys() - KEPT_IN_HOLES:
            self._nulls.setdefault(name, set()).add(self.count)
        self._put_hole(place)

    def odd(self, data: Buffer, at: int, base: int, where: str) -> int:
        """A row of what stands at `at`, which is sound, with all that is wrong with it; its size."""
        size = self.sound(data, at, base)
        assert size > 0
        begin = at + self._head_bytes
        why, notes = "", []
        try:
            record = decode(memoryview(data)[begin : at + size], check_crc=False, errors="replace")
            if "\ufffd" in record.topic and not _is_text(memoryview(data)[begin : at + size]):
                notes.append("the topic's name is not UTF-8")
            if record.size != size - self._head_bytes:
                why = f"its body of {size - self._head_bytes} bytes has a message of {record.size}"
            elif record.physical_offset != base + begin:
                why = f"its message says that it stands at {record.physical_offset}, not at {base + begin}"
        except RecordError as error:
            why = f"its body is no message: {error}"
        if why:
            _, _, index, term, *_ = ENTRY_HEADER.unpack_from(data, at)
            self.hole(base + at, f"{where}: entry {index} of term {term}: {why}")
            return size
        body = record.body
        notes += self._times(record)
        if record.properties.endswith(b"\0"):
            notes.append("its properties end in a zero: they are not whole")
        if record.body and crc32(record.body) != record.body_crc:
            notes.append("the body does not match its checksum")
        elif self.options.decompress and record.sys_flag & SYS_COMPRESSED:
            try:
                body = decompress(record.body, record.sys_flag)
            except RemoteProtocolError as error:
                notes.append(str(error))
        if not notes and self.options.chosen.only_corrupt:
            return size
        if notes:
            self._notes[self.count] = f"{where}: {'; '.join(notes)}"
        raw = props.encode(props.decode(record.properties))
        self._put(data, at, base, record, record.topic.encode(), body, raw)
        return size

    def _times(self, record: Record) -> list[str]:
        """Note the times that no calendar has: they become nulls."""
        notes = []
        for name, time in (("storeTimestamp", record.store_timestamp), ("bornTimestamp", record.born_timestamp)):
            if not TIME_MIN <= time <= TIME_MAX:
                self._nulls.setdefault(name, set()).add(self.count)
                notes.append(f"{name} {time} is no time between the years 1 and 9999")
        return notes

    def _notes_array(self, rows: int) -> Any:
        if not self._notes:
            return pa.nulls(rows, pa.string())
        return pa.array([self._notes.get(row) for row in range(rows)], pa.string())


class CoreRows(Rows):
    """By `core.columns`, compiled or not."""

    def __init__(self, options: RowOptions, entries: bool, module: Any = plain_columns) -> None:
        super().__init__(options, entries)
        wanted = 0
        for flag, names in (
            (layout.TOPIC, {"topic"}), (layout.BODY, {"body"}), (layout.PROPERTIES, {"properties"}),
            (layout.NAMES, {"keys", "tags"}), (layout.HOSTS, {"storeHost", "bornHost"}),
        ):  # fmt: skip
            wanted |= flag if names & set(options.names) else 0
        self._columns = module.Columns(
            entries, options.most_bytes, options.most_rows, wanted, host_text, options.decompress
        )
        chosen = options.chosen
        topics = None if chosen.topics is None else [topic.encode() for topic in sorted(chosen.topics)]
        self._columns.choose(topics, chosen.times, chosen.offsets, not chosen.only_corrupt)

    @property
    def count(self) -> int:
        return int(self._columns.count)

    @property
    def full(self) -> bool:
        return self.count >= self.options.most_rows or self._columns.size >= MAX_BATCH_BYTES

    def sound(self, data: Buffer, at: int, base: int) -> int:
        return int(self._columns.sound(data, at, base))

    def find(self, data: Buffer, at: int, stop: int, base: int) -> int:
        return int(self._columns.find(data, at, stop, base))

    def marks(self, data: Buffer, at: int, stop: int, base: int) -> tuple[list[int], list[int]]:
        places, ends = self._columns.marks(data, at, stop, base)
        return places, ends

    def read(self, data: Buffer, at: int, stop: int, base: int) -> int:
        return int(self._columns.read(data, at, stop, base))

    def _put(self, data: Buffer, at: int, base: int, record: Record, topic: bytes, body: bytes, raw: bytes) -> None:
        self._columns.take(data, at, base, topic, body, raw)

    def _put_hole(self, place: int) -> None:
        self._columns.hole(place)

    def batch(self) -> Any:
        names, found = self.options.names, Buffers(self._columns, self.options.most_rows)
        arrays = [self._array(name, found) for name in names]
        self._columns.begin()
        self._notes, self._nulls = {}, {}
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(names))

    def _array(self, name: str, found: Buffers) -> Any:
        kind, rows = COLUMNS[name][1], found.rows
        if name == "_corrupt":
            return self._notes_array(rows)
        if name == "folder":
            return pa.repeat(pa.scalar(self.options.folder, pa.string()), rows)
        if name == "term" and not self._head_bytes:
            return pa.nulls(rows, kind)
        if name in LONG_COLUMNS or name in INT_COLUMNS:
            return found.number(name, kind, self._valid(name, found))
        if name == "properties":
            return found.maps(kind, self._valid(name, found))
        return found.text(TEXTS[name], kind, self._valid(name, found))

    def _valid(self, name: str, found: Buffers) -> Any:
        """Which rows are not null in this column; None when all are."""
        if name in ("keys", "tags"):
            return found.given("has_keys" if name == "keys" else "has_tags")
        nulls = self._nulls.get(name)
        return bits(found.rows, nulls) if nulls else None


class PlainRows(Rows):
    """By `wire.record`, one record after the other."""

    def __init__(self, options: RowOptions, entries: bool) -> None:
        super().__init__(options, entries)
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    @property
    def count(self) -> int:
        return len(self._rows)

    @property
    def full(self) -> bool:
        return self.count >= self.options.most_rows or self._bytes >= MAX_BATCH_BYTES

    def sound(self, data: Buffer, at: int, base: int) -> int:
        if self._head_bytes:
            if len(data) - at < self._head_bytes:
                return -1
            magic, size, index, term, pos, _, _, _, body_bytes = ENTRY_HEADER.unpack_from(data, at)
            fits = self._head_bytes <= size <= min(self.options.most_bytes, len(data) - at)
            told = magic == ENTRY_MAGIC and size == self._head_bytes + body_bytes and pos == base + at
            return size if fits and told and index >= 0 and term >= 0 else -1
        try:
            record = decode(data, at, check_crc=False, errors="replace")
        except RecordError:
            return -1
        return record.size if record.physical_offset == base + at and record.size <= self.options.most_bytes else -1

    def find(self, data: Buffer, at: int, stop: int, base: int) -> int:
        assert isinstance(data, bytes | bytearray)
        magics = (b"\0\0\0\x01",) if self._head_bytes else (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")
        ahead = 0 if self._head_bytes else 4
        best = stop
        for magic in magics:
            found = data.find(magic, at + ahead, best + ahead + len(magic) - 1)
            while found >= 0:
                if self.sound(data, found - ahead, base) > 0:
                    best = found - ahead
                    break
                found = data.find(magic, found + 1, best + ahead + len(magic) - 1)
        return best if best < stop else -1

    def marks(self, data: Buffer, at: int, stop: int, base: int) -> tuple[list[int], list[int]]:
        places, ends = [], []
        at = self.find(data, at, stop, base)
        while at >= 0:
            places.append(base + at)
            ends.append(base + at + self.sound(data, at, base))
            at = self.find(data, at + 1, stop, base)
        return places, ends

    def read(self, data: Buffer, at: int, stop: int, base: int) -> int:
        while 0 <= at < stop and self.count < self.options.most_rows:
            size = self.sound(data, at, base)
            begin = at + self._head_bytes
            record = None if size < 0 else self._record_in(data, begin, at + size)
            if record is None or record.size != at + size - begin or record.physical_offset != base + begin:
                break
            if self._chosen(record):
                if not self._is_plain(record, data, begin, at + size):
                    break
                if not self.options.chosen.only_corrupt:
                    self._put(data, at, base, record, record.topic.encode(), record.body, record.properties)
            at += size
        return at

    def _record_in(self, data: Buffer, begin: int, end: int) -> Record | None:
        try:
            return decode(memoryview(data)[begin:end], check_crc=False, errors="replace")
        except RecordError:
            return None

    def _is_plain(self, record: Record, data: Buffer, begin: int, end: int) -> bool:
        return (
            TIME_MIN <= record.store_timestamp <= TIME_MAX
            and TIME_MIN <= record.born_timestamp <= TIME_MAX
            and not (self.options.decompress and record.sys_flag & SYS_COMPRESSED)
            and not (record.body and crc32(record.body) != record.body_crc)
            and not record.properties.endswith(b"\0")
            and ("\ufffd" not in record.topic or _is_text(memoryview(data)[begin:end]))
        )

    def _chosen(self, record: Record) -> bool:
        chosen = self.options.chosen
        return (
            (chosen.topics is None or record.topic in chosen.topics)
            and chosen.times[0] <= record.store_timestamp <= chosen.times[1]
            and chosen.offsets[0] <= record.physical_offset <= chosen.offsets[1]
        )

    def _put(self, data: Buffer, at: int, base: int, record: Record, topic: bytes, body: bytes, raw: bytes) -> None:
        self._bytes += len(topic) + len(body) + len(raw)
        pairs = props.decode(raw)
        self._rows.append({
            "topic": topic.decode(), "queueId": record.queue_id, "queueOffset": record.queue_offset,
            "physicalOffset": record.physical_offset, "storeTimestamp": record.store_timestamp * 1000,
            "bornTimestamp": record.born_timestamp * 1000, "keys": pairs.get(props.KEYS),
            "tags": pairs.get(props.TAGS), "body": body, "properties": list(pairs.items()),
            "sysFlag": record.sys_flag, "flag": record.flag, "reconsumeTimes": record.reconsume_times,
            "storeHost": str(record.store_host), "bornHost": str(record.born_host), "size": record.size,
            "bodyCrc": record.body_crc, "preparedTransactionOffset": record.prepared_transaction_offset,
            "term": ENTRY_HEADER.unpack_from(data, at)[3] if self._head_bytes else None,
        })  # fmt: skip

    def _put_hole(self, place: int) -> None:
        self._rows.append({"physicalOffset": place})

    def batch(self) -> Any:
        for name, rows in self._nulls.items():
            for row in rows:
                self._rows[row][name] = None
        arrays = []
        for name in self.options.names:
            kind = COLUMNS[name][1]
            if name == "_corrupt":
                arrays.append(self._notes_array(self.count))
            elif name == "folder":
                arrays.append(pa.array([self.options.folder] * self.count, kind))
            else:
                arrays.append(pa.array([row.get(name) for row in self._rows], kind))
        self._rows, self._bytes, self._notes, self._nulls = [], 0, {}, {}
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self.options.names))


def _is_text(data: Buffer) -> bool:
    """Is the topic of this record UTF-8?"""
    try:
        decode(data, check_crc=False)
    except RecordError:
        return False
    return True


def rows(options: RowOptions, entries: bool) -> Rows:
    """Rows by the quicker way that there is."""
    if core.compiled is None:
        return PlainRows(options, entries)
    return CoreRows(options, entries, core.compiled.columns)
