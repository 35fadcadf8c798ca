"""Pull answers become record batches: by the compiled core, column by column, or by plain Python that gives the same.

A row can be dropped after it was taken in: what lies outside of the range, what the broker let through by a tag's hash
only, rows with keys that the query does not want, and repeats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from perseid import core
from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Buffer
from perseid.client import stamps
from perseid.client.model import MessageQueue, ReceivedMessage
from perseid.client.pulled import AnswerReader
from perseid.client.stamps import SENT_ON, Column, Placed, Run
from perseid.core import layout
from perseid.core.layout import ANYWHERE, INT_COLUMNS, TIME_MAX, TIME_MIN
from perseid.spark import schema
from perseid.spark.buffers import Buffers, bits
from perseid.spark.log.rows import host_text
from perseid.spark.pulls import MOST_MESSAGES
from perseid.wire import inner
from perseid.wire import properties as props
from perseid.wire import record as records
from perseid.wire.ids import offset_message_id

MOST_RECORD_BYTES = 1 << 24
"""Of one record: what fits into a frame."""
MAX_BATCH_BYTES = 16 << 20
"""Texts of one batch; more end it."""

NUMBERS = {
    "partition": "queueId", "queueId": "queueId", "offset": "queueOffset", "queueOffset": "queueOffset",
    "timestamp": "storeTimestamp", "storeTimestamp": "storeTimestamp", "bornTimestamp": "bornTimestamp",
    "flag": "flag", "sysFlag": "sysFlag", "reconsumeTimes": "reconsumeTimes", "physicalOffset": "physicalOffset",
}  # fmt: skip
TEXTS = {
    "topic": "topics", "value": "bodies", "body": "bodies", "key": "keys", "keys": "keys", "tag": "tags",
    "bornHost": "born_hosts", "storeHost": "store_hosts",
}  # fmt: skip
GIVEN = {"key": "has_keys", "keys": "has_keys", "tag": "has_tags"}
"""The names of the columns in `core.columns`, and which of them have nulls."""
NEEDS = (
    (layout.TOPIC, {"topic"}), (layout.BODY, {"value", "body"}), (layout.PROPERTIES, {"properties", "headers"}),
    (layout.NAMES, {"key", "keys", "tag"}), (layout.HOSTS, {"bornHost", "storeHost"}), (layout.IDS, {"msgId"}),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which columns and rows are read; None: all. `stamps`: repeats are to be recognized."""

    names: tuple[str, ...]
    most_rows: int
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    stamps: bool = True


class Rows(ABC):
    """The rows of one queue's messages, until they are taken as a batch."""

    def __init__(self, queue: MessageQueue, wanted: Wanted) -> None:
        self._queue, self._wanted = queue, wanted

    @property
    @abstractmethod
    def count(self) -> int:
        """Rows since the last batch, the dropped ones among them."""

    @property
    @abstractmethod
    def full(self) -> bool:
        """It is time for a batch."""

    @abstractmethod
    def add(self, body: Buffer, start: int, end: int) -> list[int]:
        """Take in a pull answer, which is to be no more than MOST_MESSAGES records; the offsets of those from `start`
        to before `end`. RecordError when it is not records and nothing else."""

    @abstractmethod
    def runs(self) -> list[Run]:
        """Of what was added last, all that have a stamp."""

    @abstractmethod
    def sent_on(self) -> set[int]:
        """The offsets of forwarded messages among those added last. Ask before the pull answer is gone."""

    @abstractmethod
    def drop(self, offsets: Collection[int] | None = None) -> None:
        """Drop these of what was added last; without `offsets` all of it."""

    @abstractmethod
    def batch(self) -> Any:
        """The rows since the last batch, as one."""


class CoreRows(Rows):
    """By `core.columns`, compiled or not."""

    def __init__(self, queue: MessageQueue, wanted: Wanted, module: Any) -> None:
        super().__init__(queue, wanted)
        names = set(wanted.names)
        names |= ({"tag"} if wanted.tags is not None else set()) | ({"keys"} if wanted.keys is not None else set())
        flags = sum(flag for flag, needing in NEEDS if names & needing)
        flags |= layout.STAMPS | layout.IDS if wanted.stamps else 0
        if "msgId" in names:
            flags |= layout.HOSTS
        self._room = wanted.most_rows + MOST_MESSAGES
        self._columns = module.Columns(False, MOST_RECORD_BYTES, self._room, flags, host_text, True)
        self._first_stamp = 0
        self._body: Buffer = b""
        self._begin()

    def _begin(self) -> None:
        self._offsets = memoryview(self._columns.longs)
        self._dropped: set[int] = set()
        self._timeless: dict[str, set[int]] = {}
        self._first = 0

    @property
    def count(self) -> int:
        return int(self._columns.count)

    @property
    def full(self) -> bool:
        return self.count >= self._wanted.most_rows or self._columns.size >= MAX_BATCH_BYTES

    def add(self, body: Buffer, start: int, end: int) -> list[int]:
        columns = self._columns
        self._first, self._first_stamp = columns.count, columns.stamps.size
        try:
            self._body = body = inner.expanded(body, start, end)
            at, total = 0, len(body)
            while True:
                at = columns.read(body, at, total, ANYWHERE)
                if at >= total:
                    break
                at += self._odd(body, at)
        except BaseException:
            self.drop()
            raise
        offsets: list[int] = self._offsets[self._first : columns.count].tolist()
        if offsets and (min(offsets) < start or max(offsets) >= end):
            self._dropped |= {row for row, o in enumerate(offsets, self._first) if not start <= o < end}
            offsets = [offset for offset in offsets if start <= offset < end]
        return offsets

    def _odd(self, body: Buffer, at: int) -> int:
        """Take in a message that is out of the ordinary; its size."""
        if self.count >= self._room:
            raise RemoteProtocolError(f"{self._queue}: the broker sent more than {MOST_MESSAGES} messages for a pull")
        message = ReceivedMessage(records.decode(body, at), self._queue.broker_name)
        record = message.record
        for name, time in (("storeTimestamp", record.store_timestamp), ("bornTimestamp", record.born_timestamp)):
            if not TIME_MIN <= time <= TIME_MAX:
                self._timeless.setdefault(name, set()).add(self.count)
        raw = props.encode(message.properties)
        self._columns.take(body, at, ANYWHERE, record.topic.encode(), message.body, raw)
        return record.size

    def runs(self) -> list[Run]:
        columns, first, last = self._columns, self._first, self.count
        if columns.stamps.size == self._first_stamp:
            return []
        texts, ids = _column(columns.stamps, first, last), _column(columns.ids, first, last)
        offsets = self._offsets[first:last].tolist()
        begin = INT_COLUMNS.index("bodyCrc") * self._room
        crcs = memoryview(columns.ints)[begin + first : begin + last]
        if self._dropped.isdisjoint(range(first, last)):
            found = stamps.runs_of(texts, ids, offsets, crcs.tobytes())
            if found is not None:
                return found
        return stamps.runs(
            Placed(offset, texts.text(at).decode("utf-8", "replace"), ids.text(at).decode("utf-8", "replace"), crcs[at])
            for at, offset in enumerate(offsets)
            if texts.text(at) and first + at not in self._dropped
        )

    def sent_on(self) -> set[int]:
        raw = bytes(self._body)
        if not any(b"%b\x01" % name.encode() in raw for name in SENT_ON):
            return set()
        return stamps.sent_on(AnswerReader(self._queue.broker_name).messages(raw, 0))

    def drop(self, offsets: Collection[int] | None = None) -> None:
        rows = range(self._first, self.count)
        if offsets is None:
            self._dropped.update(rows)
        else:
            self._dropped.update(row for row in rows if self._offsets[row] in offsets)

    def batch(self) -> Any:
        found, names = Buffers(self._columns, self._room), self._wanted.names
        made = pa.RecordBatch.from_arrays(
            [self._array(name, found) for name in names], schema=schema.arrow_schema(names)
        )
        kept = self._kept(found)
        self._columns.begin()
        self._begin()
        return made if kept is None else made.filter(kept)

    def _array(self, name: str, found: Buffers) -> Any:
        kind, rows = schema.BY_NAME[name][2], found.rows
        if name in NUMBERS:
            nulls = self._timeless.get(NUMBERS[name])
            return found.number(NUMBERS[name], kind, bits(rows, nulls) if nulls else None)
        if name in TEXTS:
            return found.text(TEXTS[name], kind, found.given(GIVEN[name]) if name in GIVEN else None)
        if name == "brokerName":
            return pa.repeat(pa.scalar(self._queue.broker_name, kind), rows)
        if name == "timestampType":
            return pa.repeat(pa.scalar(schema.LOG_APPEND_TIME, kind), rows)
        if name == "msgId":
            return self._ids(found)
        assert name in ("properties", "headers"), name
        return found.maps(kind) if name == "properties" else found.lists(kind)

    def _ids(self, found: Buffers) -> Any:
        """The clients' ids; where there is none, the place in the broker's log."""
        ids = found.text("ids", pa.string(), found.given("has_ids"))
        if not ids.null_count:
            return ids
        places = found.number("physicalOffset", pa.int64())
        hosts = found.text("store_hosts", pa.string())
        values = [
            own if own is not None else offset_message_id(records.host_from(host), place)
            for own, host, place in zip(ids.to_pylist(), hosts.to_pylist(), places.to_pylist(), strict=True)
        ]
        return pa.array(values, pa.string())

    def _kept(self, found: Buffers) -> Any:
        """Which rows are wanted; None: all of them."""
        kept = None
        for name, texts, values in (("has_tags", "tags", self._wanted.tags), ("has_keys", "keys", self._wanted.keys)):
            if values is not None:
                column = found.text(texts, pa.string(), found.given(name))
                these = pc.is_in(column, value_set=pa.array(sorted(values), pa.string()))
                kept = these if kept is None else pc.and_(kept, these)
        if self._dropped:
            there = pa.array([row not in self._dropped for row in range(found.rows)])
            kept = there if kept is None else pc.and_(kept, there)
        return kept


class PlainRows(Rows):
    """By `wire.record`, one message after the other."""

    def __init__(self, queue: MessageQueue, wanted: Wanted) -> None:
        super().__init__(queue, wanted)
        self._reader = AnswerReader(queue.broker_name)
        self._messages: list[ReceivedMessage] = []
        self._bytes = self._first = 0

    @property
    def count(self) -> int:
        return len(self._messages)

    @property
    def full(self) -> bool:
        return self.count >= self._wanted.most_rows or self._bytes >= MAX_BATCH_BYTES

    def add(self, body: Buffer, start: int, end: int) -> list[int]:
        self._first = self.count
        found = self._reader.messages(body, start)
        if self._first + len(found) > self._wanted.most_rows + MOST_MESSAGES:
            raise RemoteProtocolError(f"{self._queue}: the broker sent more than {MOST_MESSAGES} messages for a pull")
        self._messages += [message for message in found if start <= message.queue_offset < end]
        self._bytes += len(body)
        return [message.queue_offset for message in self._messages[self._first :]]

    def runs(self) -> list[Run]:
        return stamps.runs(stamps.placed(self._messages[self._first :]))

    def sent_on(self) -> set[int]:
        return stamps.sent_on(self._messages[self._first :])

    def drop(self, offsets: Collection[int] | None = None) -> None:
        last = self._messages[self._first :]
        self._messages[self._first :] = [m for m in last if offsets is not None and m.queue_offset not in offsets]

    def batch(self) -> Any:
        tags, keys = self._wanted.tags, self._wanted.keys
        found, self._messages, self._bytes, self._first = self._messages, [], 0, 0
        rows = [
            message
            for message in found
            if (tags is None or message.tag in tags) and (keys is None or message.properties.get(props.KEYS) in keys)
        ]
        return schema.batch(rows, self._wanted.names)


def _column(column: Any, first: int, last: int) -> Column:
    """Some texts of a column."""
    ends = memoryview(column.ends)[first : last + 1].tolist()
    return Column(bytes(memoryview(column.data)[ends[0] : ends[-1]]), ends)


def rows(queue: MessageQueue, wanted: Wanted) -> Rows:
    """Rows by the quicker way that there is."""
    if core.compiled is None:
        return PlainRows(queue, wanted)
    return CoreRows(queue, wanted, core.compiled.columns)
