"""Rows as they are sent: which queue, which bytes, which stamp. No I/O; the same rows give the same bytes each time.

A *stream* is the messages that one task sends to one queue (delayed ones: for each delay level), in order. They are
gathered until they fill a batch. Delayed messages go alone: brokers don't take them in batches.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from struct import Struct
from typing import Any
from zlib import crc32

from perseid.base import extras

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise extras.missing("perseid.spark", error) from None

from perseid import core
from perseid.client.model import MAX_BODY_BYTES, MAX_PROPERTIES_BYTES, MessageQueue, check_topic, key_hash
from perseid.client.producer import Packed
from perseid.client.stamps import STAMP, home_of, id_prefix, layout_of
from perseid.spark.sink_options import BY_COLUMN, BY_KEY, SinkError, SinkOptions
from perseid.wire import properties
from perseid.wire.batch import MIN_ITEM_BYTES
from perseid.wire.codes import RequestCode
from perseid.wire.names import RETRY_PREFIX

MAX_SORT_BYTES = 1 << 30
"""How much one task gathers to sort by `sequenceBy`."""
MAX_TOPICS = 1000
"""Topics that one task writes to."""

OWN_PROPERTIES = frozenset(
    value for name, value in vars(properties).items() if name.isupper() and isinstance(value, str)
) | {STAMP}
"""Left out of `properties`: what brokers and clients say of a message themselves."""

_HEAD = Struct(">iiiii").pack
_LENGTH = Struct(">h").pack
_WAIT = b"\x02WAIT\x01true\x02"


@dataclass(frozen=True, slots=True)
class BatchPartition:
    """A Spark partition of a micro-batch of a writer."""

    writer: str
    batch: int
    partition: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The queues that the rows of a batch are spread over, and where the batch begins in each at the earliest."""

    queues: tuple[MessageQueue, ...]
    since: tuple[int, ...]


class _Stream:
    """The messages that a task sends to one queue with one delay level, in order."""

    def __init__(self, part: BatchPartition, layout: Layout, name: str, at: int, level: int, stamped: bool) -> None:
        self.queue = layout.queues[at]
        stream = f"{part.partition}.{level}" if level else str(part.partition)
        place = f"{part.writer}:{part.batch}:{stream}:{name}:{home_of(self.queue)}"
        prefix = id_prefix((part.writer, part.batch, stream, name), home_of(self.queue))
        self.unique = f"UNIQ_KEY\x01{prefix}".encode()
        self.stamp = f"{STAMP}\x01{place}:{layout.since[at]}:".encode() if stamped else b""
        self._sequence = self._digest = 0

    def properties(self, body: bytes, tail: bytes) -> bytes:
        """The next message's properties; counts it."""
        sequence = self._sequence
        self._sequence = sequence + 1
        self._digest = digest = crc32(tail, crc32(body, self._digest))
        if self.stamp:
            return b"%b%012X%b%b%b%d:%08x\x02" % (self.unique, sequence, _WAIT, tail, self.stamp, sequence, digest)
        return b"%b%012X%b%b" % (self.unique, sequence, _WAIT, tail)

    def packed(self, items: bytes, first: int) -> Packed:
        """A batch of items, the first of which has this sequence."""
        own = f"{self.unique.decode()}{first:012X}\x02WAIT\x01true\x02"  # a batch has an id too, as Java's have
        packed = Packed(self.queue.topic, items, own, [""])
        packed.code = RequestCode.SEND_BATCH_MESSAGE
        return packed


class _PlainStream(_Stream):
    """One that gathers messages until they fill a batch."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._parts: list[bytes] = []
        self._first = self._bytes = self.waiting = 0

    def put(self, body: bytes, tail: bytes, most: int, room: int) -> bool:
        """Add a message, unless `most` of them or `room` bytes would be passed."""
        sequence, digest = self._sequence, self._digest
        props = self.properties(body, tail)
        length, size = len(props), len(body)
        total = MIN_ITEM_BYTES + size + length
        if length > MAX_PROPERTIES_BYTES:
            raise _too_long(self.queue.topic, length)
        if self.waiting and (self.waiting >= most or self._bytes + total > room):
            self._sequence, self._digest = sequence, digest
            return False
        if not self.waiting:
            self._first = sequence
        self._parts += (_HEAD(total, 0, 0, 0, size), body, _LENGTH(length), props)
        self._bytes += total
        self.waiting += 1
        return True

    def take(self) -> Packed:
        """The messages gathered, as one batch."""
        items = b"".join(self._parts)
        self._parts = []
        self.waiting = self._bytes = 0
        return self.packed(items, self._first)


class _CoreStream(_Stream):
    """The same by the compiled core, which takes many rows at once (`spread`)."""

    def __init__(self, *given: Any, module: Any) -> None:
        super().__init__(*given)
        self.items = module.Lane(self.unique, self.stamp)

    @property
    def waiting(self) -> int:
        return int(self.items.waiting)

    def put(self, body: bytes, tail: bytes, most: int, room: int) -> bool:
        """Add a message, unless `most` of them or `room` bytes would be passed."""
        return bool(self.items.put(body, body, 0, len(body), tail, 0, len(tail), most, room)) or self.check(tail)

    def check(self, tail: bytes) -> bool:
        """SinkError when it is for the length of its properties that a message was not taken; False."""
        self._sequence = int(self.items.sequence)
        length = len(self.properties(b"", tail))
        if length > MAX_PROPERTIES_BYTES:
            raise _too_long(self.queue.topic, length)
        assert self.waiting, "a stream with nothing in it takes any message"
        return False

    def take(self) -> Packed:
        """The messages gathered, as one batch."""
        first = self.items.first
        return self.packed(self.items.take(), first)


class _Topic:
    """One topic's streams."""

    def __init__(self, part: BatchPartition, layout: Layout, stamped: bool, module: Any) -> None:
        self._part, self._layout, self._stamped = part, layout, stamped
        self._name = layout_of(layout.queues)
        self.size = len(layout.queues)
        self.rows = 0
        given = [(part, layout, self._name, at, 0, stamped) for at in range(self.size)]
        self.plain: list[_PlainStream] | list[_CoreStream] = (
            [_PlainStream(*one) for one in given]
            if module is None
            else [_CoreStream(*one, module=module) for one in given]
        )
        self.delayed: dict[tuple[int, int], _Stream] = {}

    def delayed_stream(self, at: int, level: int) -> _Stream:
        found = self.delayed.get((at, level))
        if found is None:
            found = _Stream(self._part, self._layout, self._name, at, level, self._stamped)
            self.delayed[at, level] = found
        return found


class Encoder:
    """Makes batches of rows: give it record batches (`add`), then `finish`.

    `layout` tells the queues of a topic, `emit` gets what is ready, in order for each queue. SinkError names a row
    that can't be sent.
    """

    def __init__(
        self,
        options: SinkOptions,
        columns: Mapping[str, str],
        part: BatchPartition,
        layout: Callable[[str], Layout],
        emit: Callable[[MessageQueue, Packed], None],
        module: Any = core.compiled.items if core.compiled is not None else None,
    ) -> None:
        self._options = options
        self._columns = columns
        self._part = part
        self._find = layout
        self._emit = emit
        self._module = module
        self._topics: dict[str, _Topic] = {}
        self.messages = 0

    @property
    def topics(self) -> list[str]:
        """The topics written to so far."""
        return sorted(self._topics)

    def add(self, batch: Any) -> None:
        """Take in a record batch."""
        if batch.num_rows == 0:
            return
        if self._options.topic is not None:
            self._add(self._options.topic, batch)
            return
        for topic, rows in _by_topic(batch, self._columns["topic"]):
            self._add(topic, rows)

    def finish(self) -> None:
        """Emit what waits."""
        for topic in self._topics.values():
            for stream in topic.plain:
                if stream.waiting:
                    self._emit(stream.queue, stream.take())

    # ---- inside ----

    def _add(self, name: str, batch: Any) -> None:
        topic = self._topics.get(name) or self._open(name)
        bodies = self._bodies(name, batch)
        tails = self._tails(name, batch)
        where = self._where(topic, batch)
        topic.rows += batch.num_rows
        self.messages += batch.num_rows
        if "delay" in self._columns:
            levels = batch.column(self._columns["delay"]).fill_null(0).to_pylist()
            if any(levels):
                self._add_some_delayed(topic, where, bodies.to_pylist(), _listed(tails), levels)
                return
        if self._module is not None:
            self._spread(topic.plain, where, bodies, tails)
            return
        for at, body, tail in zip(where, bodies.to_pylist(), _listed(tails), strict=False):
            self._put(topic.plain[at], body, tail)

    def _open(self, name: str) -> _Topic:
        if name.startswith(RETRY_PREFIX):
            raise SinkError(f"topic {name!r}: a retry topic belongs to the brokers")
        check_topic(name)
        if len(self._topics) >= MAX_TOPICS:
            raise SinkError(f"one task writes to {MAX_TOPICS} topics at most: is the column topic what you meant?")
        found = self._topics[name] = _Topic(self._part, self._find(name), self._options.stamps, self._module)
        return found

    def _put(self, stream: _PlainStream | _CoreStream, body: bytes, tail: bytes) -> None:
        most, room = self._options.batch_messages, self._options.batch_bytes
        while not stream.put(body, tail, most, room):
            self._emit(stream.queue, stream.take())

    def _spread(self, streams: Sequence[Any], where: Sequence[int], bodies: Any, tails: Any) -> None:
        """All rows of a batch to their streams, by the core."""
        most, room, rows = self._options.batch_messages, self._options.batch_bytes, len(bodies)
        own = [stream.items for stream in streams]
        chosen = array("i", where)
        body_ends, body_data = _buffers(bodies)
        tail_ends, tail_data = (memoryview(bytes(4 * (rows + 1))).cast("i"), b"") if tails is None else _buffers(tails)
        at = 0
        while True:
            at = self._module.spread(own, chosen, body_ends, body_data, tail_ends, tail_data, at, rows, most, room)
            if at == rows:
                return
            stream = streams[chosen[at]]
            stream.check(b"" if tails is None else tails[at].as_py())
            self._emit(stream.queue, stream.take())

    def _add_some_delayed(
        self, topic: _Topic, where: Iterable[int], bodies: list[bytes], tails: Iterable[bytes], levels: list[int]
    ) -> None:
        for at, body, tail, level in zip(where, bodies, tails, levels, strict=False):
            if level == 0:
                self._put(topic.plain[at], body, tail)
                continue
            if level < 0:
                raise SinkError(f"delay {level}: 0 is at once, 1 to 18 are the brokers' delay levels")
            stream = topic.delayed_stream(at, level)
            props = stream.properties(body, tail) + b"DELAY\x01%d\x02" % level
            if len(props) > MAX_PROPERTIES_BYTES:
                raise _too_long(stream.queue.topic, len(props))
            self._emit(stream.queue, Packed(stream.queue.topic, body, props.decode(), [""]))

    def _bodies(self, topic: str, batch: Any) -> Any:
        column = batch.column(self._columns["value"]).cast(pa.binary())
        if column.null_count:
            raise SinkError(f"topic {topic}: a row without a {self._columns['value']}: a message needs a body")
        bounds = pc.min_max(pc.binary_length(column)).as_py()
        if bounds["min"] == 0:
            raise SinkError(f"topic {topic}: a row with an empty {self._columns['value']}: a body has a byte at least")
        if bounds["max"] > MAX_BODY_BYTES - MIN_ITEM_BYTES - MAX_PROPERTIES_BYTES:
            raise SinkError(
                f"topic {topic}: a body of {bounds['max']} bytes; with its properties a message has at most"
                f" {MAX_BODY_BYTES} bytes: store it elsewhere and send where"
            )
        return column

    def _tails(self, topic: str, batch: Any) -> Any:
        """The encoded properties that the columns give; None: none."""
        found: list[Any] = []
        for meaning, name in (("tag", b"TAGS"), ("key", b"KEYS"), ("orderingKey", properties.SHARDING_KEY.encode())):
            if meaning in self._columns:
                found.append(_property(topic, self._columns[meaning], name, batch.column(self._columns[meaning])))
        if "properties" in self._columns:
            maps = batch.column(self._columns["properties"]).to_pylist()
            found.append(pa.array([_map(topic, pairs) for pairs in maps], pa.binary()))
        return pc.binary_join_element_wise(*found, pa.scalar(b"", pa.binary())) if found else None

    def _where(self, topic: _Topic, batch: Any) -> Sequence[int]:
        """Which queue each row goes to."""
        options, columns = self._options, self._columns
        size, first = topic.size, topic.rows + self._part.partition
        chosen: list[str] = []
        if "orderingKey" in columns:
            chosen.append(columns["orderingKey"])
        if options.partitioner == BY_KEY:
            chosen.append(columns["key"])
        elif options.partitioner == BY_COLUMN:
            chosen.append(_name_in(batch, options.partition_column or ""))
        turns: list[int] = [at % size for at in range(first, first + batch.num_rows)]
        for name in reversed(chosen):
            numbers = _hashed(batch.column(name), size)
            turns = [turn if number is None else number for turn, number in zip(turns, numbers, strict=True)]
        return turns


def in_sequence(batches: Iterable[Any], names: Sequence[str]) -> Iterator[Any]:
    """The same rows, sorted by some columns: an order that does not depend on how they came. SinkError: too many."""
    gathered: list[Any] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size > MAX_SORT_BYTES:
            raise SinkError(
                f"sequenceBy: a task has more than {MAX_SORT_BYTES} bytes to sort: spread the rows over more partitions"
            )
    if gathered:
        table = pa.Table.from_batches(gathered)
        keys = [(_name_in(table, name), "ascending") for name in names]
        yield from table.sort_by(keys).to_batches(max_chunksize=max(batch.num_rows for batch in gathered) or None)


def _name_in(rows: Any, name: str) -> str:
    """A column's own spelling: Spark's names have no case."""
    names: list[str] = rows.schema.names
    return next(own for own in names if own.lower() == name.lower())


def _listed(tails: Any) -> Iterable[bytes]:
    listed: Iterable[bytes] = repeat(b"") if tails is None else tails.to_pylist()
    return listed


def _buffers(column: Any) -> tuple[Any, Any]:
    """Where the texts of a column begin and end, and the bytes that hold them."""
    _, ends, data = column.buffers()
    numbers = memoryview(ends).cast("B").cast("i")[column.offset : column.offset + len(column) + 1]
    return numbers, b"" if data is None else memoryview(data).cast("B")


def _by_topic(batch: Any, name: str) -> Iterator[tuple[str, Any]]:
    column = batch.column(name)
    if column.null_count:
        raise SinkError(f"a row without a {name}: give every row one, or set the option topic")
    for topic in pc.unique(column).to_pylist():
        yield topic, batch.filter(pc.equal(column, pa.scalar(topic, column.type)))


def _property(topic: str, column: str, name: bytes, values: Any) -> Any:
    """`name \\x01 value \\x02` for each row, nothing for null and for an empty text."""
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        values = pc.binary_join(values.cast(pa.list_(pa.string())), " ")
    values = values.cast(pa.binary())
    for separator in (b"\x01", b"\x02"):
        if pc.any(pc.match_substring(values, separator.decode())).as_py():
            raise SinkError(f"topic {topic}: a {column} holds {separator!r}, which separates properties on the wire")
    there = pc.fill_null(pc.greater(pc.binary_length(values), 0), False)
    ends = [pa.scalar(text, pa.binary()) for text in (name + b"\x01", b"\x02", b"")]
    text = pc.binary_join_element_wise(ends[0], values, ends[1], ends[2])
    return pc.if_else(there, text, pa.scalar(b"", pa.binary()))


def _map(topic: str, pairs: Iterable[tuple[str, str | None]] | None) -> bytes:
    parts = []
    for name, value in pairs or ():
        if not name or not value or name in OWN_PROPERTIES:
            continue
        text = f"{name}\x01{value}\x02"
        if text.count("\x01") != 1 or text.count("\x02") != 1:
            raise SinkError(f"topic {topic}: property {name!r} holds \\x01 or \\x02, which separate properties")
        parts.append(text)
    return "".join(parts).encode()


def _hashed(values: Any, size: int) -> list[int | None]:
    """The queue of each value, as the Java client's SelectMessageQueueByHash chooses it; None for null."""
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        values = pc.list_element(pc.if_else(pc.greater(pc.list_value_length(values), 0), values, None), 0)
    coded = values.dictionary_encode()
    queues = [None if key is None else key_hash(_text(key)) % size for key in coded.dictionary.to_pylist()]
    return [None if at is None else queues[at] for at in coded.indices.to_pylist()]


def _text(key: Any) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


def _too_long(topic: str, size: int) -> SinkError:
    return SinkError(
        f"topic {topic}: the key, tag and properties of a row have {size} bytes, the limit is {MAX_PROPERTIES_BYTES}"
    )
