# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""A log's records as columns: bytes of a segment in, the buffers of Arrow arrays out, many records a call.

    begin → read … take … hole … read → the buffers of `count` rows → begin

`sound` and `find` say where a record may stand, and nothing else does (`core/stored.py`): a record that is read in
order, and one that is looked for in the middle of a segment, pass the very same test (spark/log/walk.py proves its
splits by that).

    classic   magic, a size within bounds, the record's own offset is where it stands, its parts add up to its size
    DLedger   magic, a size within bounds that is the head's and the body's, the entry's own offset is where it stands

`read` takes plain records and stops before the first one that is anything else: not sound, a body that does not match
its checksum or is compressed, text that is not UTF-8, a property that stands there twice, properties that end in a
zero (nobody writes that, but a record that is being written ends so), a time that no calendar has.
The caller looks at that one, and has it taken in with what it makes of it, or puts a hole in its place.

The records of a pull answer come from all over a log: with `base` ANYWHERE they may stand where they like.

Trust: nothing is believed. Each length is compared with what is left before it is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perseid.base.machine import Buffer
from perseid.core.layout import (
    BODY,
    HOSTS,
    IDS,
    INT_COLUMNS,
    LONG_COLUMNS,
    LONG_MAX,
    LONG_MIN,
    NAMES,
    PROPERTIES,
    STAMPS,
    TIME_MAX,
    TIME_MIN,
    TOPIC,
)
from perseid.core.stored import Stored
from perseid.wire.dledger import ENTRY_HEADER_BYTES as HEAD_BYTES
from perseid.wire.dledger import ENTRY_MAGIC
from perseid.wire.record import SYS_COMPRESSED as COMPRESSED

compiled = not __file__.endswith(".py")

START_BYTES = 1 << 16
MAX_START_BYTES = 4 << 20
"""The first buffer of a column is no longer, whatever the last one came to."""
MAX_NAMES = 64
"""Properties of one message that are compared with one another; one with more is not plain."""
MAX_HOSTS = 4096
NOTHING = memoryview(b"")
ID_NAME = memoryview(b"UNIQ_KEY")
STAMP_NAME = memoryview(b"PERSEID_STAMP")


class Text:
    """One column of texts or bytes: where each ends, and all of them in one piece."""

    def __init__(self, rows: int, size: int) -> None:
        """With room for so many texts, and so many bytes."""
        self.ends = memoryview(bytearray(4 * (rows + 1))).cast("i")
        self.data = memoryview(bytearray(size + START_BYTES))
        self.count = self.size = 0

    def room(self, more: int) -> None:
        """Make room for `more` bytes, and for as many texts as that may be."""
        if self.size + more > len(self.data):
            data = memoryview(bytearray(max(self.size + more, 2 * len(self.data))))
            data[: self.size] = self.data[: self.size]
            self.data = data

    def room_for(self, texts: int) -> None:
        """Make room for the ends of so many texts."""
        if self.count + texts >= len(self.ends):
            ends = memoryview(bytearray(4 * max(self.count + texts + 1, 2 * len(self.ends)))).cast("i")
            ends[: self.count + 1] = self.ends[: self.count + 1]
            self.ends = ends

    def put(self, d: memoryview, at: int, end: int) -> None:
        """Add a text, for which there is room."""
        self.size = _copy(self.data, self.size, d, at, end - at)
        self.count += 1
        self.ends[self.count] = self.size

    def add(self, text: bytes) -> None:
        """Add a text, and make room for it."""
        size = len(text)
        self.room(size)
        for i in range(size):
            self.data[self.size + i] = text[i]
        self.size += size
        self.count += 1
        self.ends[self.count] = self.size

    def cut(self, count: int) -> None:
        """Only the first `count` texts stay."""
        self.count = count
        self.size = self.ends[count]


class Columns(Stored):
    """Rows, until the caller has taken their buffers."""

    def __init__(
        self, entries: bool, most_bytes: int, rows: int, wanted: int, host: Callable[[bytes], bytes], plain: bool
    ) -> None:
        """`entries`: records stand in a DLedger group's entries. `most_bytes`: of one record with its head. `rows`: of
        one batch, at most. `wanted`: TOPIC, BODY, …. `host`: how an address and a port are written. `plain`: compressed
        bodies are left to the caller."""
        super().__init__(most_bytes)
        self._head_bytes = HEAD_BYTES if entries else 0
        self._rows, self._wanted, self._host = rows, wanted, host
        self._compressed = COMPRESSED if plain else 0
        self._topics: list[memoryview] = []
        self._time_low, self._time_high, self._low, self._high = LONG_MIN, LONG_MAX, LONG_MIN, LONG_MAX
        self._all_topics, self._keep, self._compare = True, True, True
        self._hosts: dict[bytes, bytes] = {}
        self._born_raw = self._born_text = self._store_raw = self._store_text = b""
        """The addresses of the last row, which are likely to come again."""
        self.topics = self.bodies = self.keys = self.tags = self.born_hosts = self.store_hosts = Text(0, 0)
        self.names = self.values = self.ids = self.stamps = self.topics
        self.checked = 0
        """Records that were found good, whether they became rows or not."""
        self.begin()

    def choose(
        self, topics: Sequence[bytes] | None, times: tuple[int, int], offsets: tuple[int, int], keep: bool
    ) -> None:
        """Which records become rows: those of `topics` (None: all), stored between two times (milliseconds), standing
        between two offsets, both included. Others are not looked into. Without `keep` no plain one is a row."""
        self._all_topics, self._topics = topics is None, [memoryview(topic) for topic in topics or ()]
        self._time_low, self._time_high = times
        self._low, self._high = offsets
        self._keep = keep

    def begin(self) -> None:
        """No rows, in new buffers: those of before belong to whoever took them."""
        self.count = 0
        self.longs = memoryview(bytearray(8 * len(LONG_COLUMNS) * self._rows)).cast("q")
        self.ints = memoryview(bytearray(4 * len(INT_COLUMNS) * self._rows)).cast("i")
        self.has_keys = memoryview(bytearray((self._rows + 7) // 8))
        self.has_tags = memoryview(bytearray((self._rows + 7) // 8))
        self.has_ids = memoryview(bytearray((self._rows + 7) // 8))
        """A bit for each row."""
        self.maps = memoryview(bytearray(4 * (self._rows + 1))).cast("i")
        """Where each row's properties end, in `names` and `values`."""
        self.topics, self.bodies = self._again(self.topics), self._again(self.bodies)
        self.keys, self.tags = self._again(self.keys), self._again(self.tags)
        self.born_hosts, self.store_hosts = self._again(self.born_hosts), self._again(self.store_hosts)
        self.names, self.values = self._again(self.names), self._again(self.values)
        self.ids, self.stamps = self._again(self.ids), self._again(self.stamps)
        """The clients' ids, and what tells repeats; where a row has none, it has an empty one."""

    def _again(self, texts: Text) -> Text:
        """An empty column, with room for as much as this one has."""
        return Text(max(self._rows, texts.count), min(texts.size, MAX_START_BYTES))

    @property
    def size(self) -> int:
        """Bytes of all texts."""
        return self.topics.size + self.bodies.size + self.names.size + self.values.size + self.stamps.size

    # ---- where records stand ----

    def sound(self, data: Buffer, at: int, base: int) -> int:
        """The size, with its head, of what stands at `at`, if a record or an entry does; -1 else. `data` begins at
        `base` of the log."""
        total = self._look_at(data)
        found = -1
        if 0 <= at < total and self._sound(at, total, base):
            found = self._size
        self._let_go()
        return found

    def find(self, data: Buffer, at: int, stop: int, base: int) -> int:
        """The first place from `at` on, and before `stop`, where a record or an entry stands; -1 when there is none."""
        total = self._look_at(data)
        found = -1
        if total - stop < 8:
            stop = total - 8
        while 0 <= at < stop:
            at = self._magic_from(at, stop)
            if at < 0:
                break
            if self._sound(at, total, base):
                found = at
                break
            at += 1
        self._let_go()
        return found

    def marks(self, data: Buffer, at: int, stop: int, base: int) -> tuple[list[int], list[int]]:
        """All places in the log from `at` on, and before `stop`, where a record or an entry stands, and where each
        ends."""
        total = self._look_at(data)
        places, ends = [], []
        if total - stop < 8:
            stop = total - 8
        while 0 <= at < stop:
            at = self._magic_from(at, stop)
            if at < 0:
                break
            if self._sound(at, total, base):
                places.append(base + at)
                ends.append(base + at + self._size)
            at += 1
        self._let_go()
        return places, ends

    def _magic_from(self, at: int, stop: int) -> int:
        """The first place where a magic number stands as it does in a record or an entry; -1 when there is none."""
        d = self._d
        if self._head_bytes:
            for i in range(at, stop):
                if d[i + 3] == 1 and d[i] == 0 and d[i + 1] == 0 and d[i + 2] == 0:
                    return i
        else:
            for i in range(at, stop):
                if d[i + 4] == 0xDA and d[i + 5] == 0xA3 and d[i + 6] == 0x20 and (d[i + 7] | 0x0C) == 0xAF:
                    return i
        return -1

    def _sound(self, at: int, total: int, base: int) -> bool:
        """Is what stands at `at` a record, or an entry, by all that its head says?"""
        if self._head_bytes:
            return self._entry(at, total, base)
        return self._parts(at, total - at, base + at)

    def _entry(self, at: int, total: int, base: int) -> bool:
        if total - at < HEAD_BYTES or self._int(at) != ENTRY_MAGIC:
            return False
        self._size = self._int(at + 4)
        if self._size > self._most_bytes or self._size > total - at or self._size != HEAD_BYTES + self._int(at + 44):
            return False
        return self._long(at + 24) == base + at and self._long(at + 8) >= 0 and self._long(at + 16) >= 0

    def _stands(self, at: int, total: int, base: int) -> bool:
        """Does a record stand at `at`, or in the entry there, all of it?"""
        size = 0
        if not self._head_bytes:
            return self._parts(at, total - at, base + at)
        if not self._entry(at, total, base):
            return False
        size = self._size
        if not self._parts(at + HEAD_BYTES, size - HEAD_BYTES, base + at + HEAD_BYTES):
            return False
        if self._size != size - HEAD_BYTES:
            return False
        self._size = size
        return True

    # ---- rows ----

    def read(self, data: Buffer, at: int, stop: int, base: int) -> int:
        """Take the plain records that begin from `at` on and before `stop`, as long as there is room for rows; where
        the first one begins that was not taken. `data` begins at `base` of the log."""
        total = self._look_at(data)
        while 0 <= at < stop and self.count < self._rows:
            if not self._stands(at, total, base):
                break
            if self._chosen(base) and not self._plain(at):
                break
            self.checked += 1
            at += self._size
        self._let_go()
        return at

    def take(self, data: Buffer, at: int, base: int, topic: bytes, body: bytes, properties: bytes) -> None:
        """A row of the record at `at`, which is sound, with another topic, body and properties (each name once, none is
        empty). A time that no calendar has becomes 0."""
        texts = [memoryview(text) for text in (topic, body, properties)]
        total = self._look_at(data)
        if self.count >= self._rows or not self._stands(at, total, base):
            self._let_go()
            raise ValueError(f"no record stands at {base + at}, or {self.count} rows are all")
        self._room(len(topic), len(body), len(properties))
        if self._wanted & PROPERTIES:
            self.names.room_for(len(properties) // 4 + 1)
            self.values.room_for(len(properties) // 4 + 1)
        self._numbers(at)
        self._texts(texts[0], 0, len(topic), texts[1], 0, len(body))
        self._compare = False
        self._put_properties(texts[2], 0, len(properties))
        self._compare = True
        self._addresses()
        self.count += 1
        self._let_go()

    def hole(self, place: int) -> None:
        """A row that has nothing but its physical offset."""
        row = self.count
        if row >= self._rows:
            raise ValueError(f"{row} rows are all")
        for i in range(len(LONG_COLUMNS)):
            self.longs[i * self._rows + row] = 0
        for i in range(len(INT_COLUMNS)):
            self.ints[i * self._rows + row] = 0
        self.longs[self._rows + row] = place
        self._texts(NOTHING, 0, 0, NOTHING, 0, 0)
        self._put_properties(NOTHING, 0, 0)
        self.born_hosts.put(NOTHING, 0, 0)
        self.store_hosts.put(NOTHING, 0, 0)
        self.count += 1

    def _chosen(self, base: int) -> bool:
        """Is the record that was found one that the caller wants?"""
        stored = self._long(self._stored_at)
        if stored < self._time_low or stored > self._time_high:
            return False
        if base + self._record < self._low or base + self._record > self._high:
            return False
        if self._all_topics:
            return True
        for i in range(len(self._topics)):
            if _same(self._d, self._topic_at, self._topic_end, self._topics[i]):
                return True
        return False

    def _plain(self, at: int) -> bool:
        """Take the record that was found, unless it is none of the plain ones."""
        record = self._record
        stored, born = self._long(self._stored_at), self._long(record + 40)
        if stored < TIME_MIN or stored > TIME_MAX or born < TIME_MIN or born > TIME_MAX:
            return False
        if self._int(record + 36) & self._compressed:
            return False
        if not self._matches():
            return False
        if self._properties_end > self._properties_at and self._d[self._properties_end - 1] == 0:
            return False
        if not self._is_utf8(self._topic_at, self._topic_end):
            return False
        if not self._is_utf8(self._properties_at, self._properties_end):
            return False
        if not self._keep:
            return True
        self._room(
            self._topic_end - self._topic_at, self._end - self._body, self._properties_end - self._properties_at
        )
        if not self._put_properties(self._d, self._properties_at, self._properties_end):
            return False
        self._numbers(at)
        self._texts(self._d, self._topic_at, self._topic_end, self._d, self._body, self._end)
        self._addresses()
        self.count += 1
        return True

    def _room(self, topic: int, body: int, properties: int) -> None:
        """Make room for a row with texts of these lengths."""
        self.topics.room(topic)
        self.bodies.room(body)
        self.keys.room(properties)
        self.tags.room(properties)
        self.ids.room(properties)
        self.stamps.room(properties)
        if self._wanted & PROPERTIES:
            self.names.room(properties)
            self.values.room(properties)
            self.names.room_for(MAX_NAMES)
            self.values.room_for(MAX_NAMES)

    def _numbers(self, at: int) -> None:
        """The numbers of the record that was found."""
        record, row, rows = self._record, self.count, self._rows
        stored, born = self._long(self._stored_at), self._long(record + 40)
        self.longs[row] = self._long(record + 20)
        self.longs[rows + row] = self._long(record + 28)
        self.longs[2 * rows + row] = stored * 1000 if TIME_MIN <= stored <= TIME_MAX else 0
        self.longs[3 * rows + row] = born * 1000 if TIME_MIN <= born <= TIME_MAX else 0
        self.longs[4 * rows + row] = self._long(self._body - 12)
        self.longs[5 * rows + row] = self._long(at + 16) if self._head_bytes else 0
        self.ints[row] = self._signed(record + 12)
        self.ints[rows + row] = self._signed(record + 36)
        self.ints[2 * rows + row] = self._signed(record + 16)
        self.ints[3 * rows + row] = self._signed(self._body - 16)
        self.ints[4 * rows + row] = self._size - self._head_bytes
        self.ints[5 * rows + row] = self._signed(record + 8)

    def _texts(self, t: memoryview, topic_at: int, topic_end: int, b: memoryview, body_at: int, body_end: int) -> None:
        if self._wanted & TOPIC:
            self.topics.put(t, topic_at, topic_end)
        if self._wanted & BODY:
            self.bodies.put(b, body_at, body_end)

    def _addresses(self) -> None:
        """The addresses of the record that was found."""
        if self._wanted & HOSTS:
            if not self._is(self._record + 48, self._stored_at - self._record - 48, self._born_raw):
                self._born_raw = bytes(self._raw[self._record + 48 : self._stored_at])
                self._born_text = self._address(self._born_raw)
            if not self._is(self._stored_at + 8, self._body - self._stored_at - 24, self._store_raw):
                self._store_raw = bytes(self._raw[self._stored_at + 8 : self._body - 16])
                self._store_text = self._address(self._store_raw)
            self.born_hosts.add(self._born_text)
            self.store_hosts.add(self._store_text)

    def _address(self, raw: bytes) -> bytes:
        """An address as a text."""
        text = self._hosts.get(raw)
        if text is None:
            if len(self._hosts) >= MAX_HOSTS:
                self._hosts.clear()
            text = self._hosts[raw] = self._host(raw)
        return text

    # ---- properties ----

    def _put_properties(self, d: memoryview, at: int, end: int) -> bool:
        """Add the properties that stand between, and among them those that have columns; False, and nothing is added,
        when all are wanted and one stands there twice, or there are too many."""
        if not self._wanted & (PROPERTIES | NAMES | IDS | STAMPS):
            return True
        first, row = self.names.count, self.count
        keys_at = keys_end = tags_at = tags_end = id_at = id_end = stamp_at = stamp_end = stop = split = 0
        whole = self._wanted & PROPERTIES != 0
        while at < end:
            stop = at
            while stop < end and d[stop] != 2:
                stop += 1
            split = at
            while split < stop and d[split] != 1:
                split += 1
            if at < split < stop - 1:
                if whole:
                    if self._compare and not self._is_new(first, d, at, split):
                        self.names.cut(first)
                        self.values.cut(first)
                        return False
                    self.names.put(d, at, split)
                    self.values.put(d, split + 1, stop)
                if split - at == 4 and d[at + 3] == 83:  # S
                    if d[at] == 75 and d[at + 1] == 69 and d[at + 2] == 89:
                        keys_at, keys_end = split + 1, stop
                    elif d[at] == 84 and d[at + 1] == 65 and d[at + 2] == 71:
                        tags_at, tags_end = split + 1, stop
                elif split - at == 8 and _same(d, at, split, ID_NAME):
                    id_at, id_end = split + 1, stop
                elif split - at == 13 and _same(d, at, split, STAMP_NAME):
                    stamp_at, stamp_end = split + 1, stop
            at = stop + 1
        if whole:
            self.maps[row + 1] = self.names.count
        if keys_end:
            self.has_keys[row >> 3] |= 1 << (row & 7)
        if tags_end:
            self.has_tags[row >> 3] |= 1 << (row & 7)
        if id_end:
            self.has_ids[row >> 3] |= 1 << (row & 7)
        self.keys.put(d, keys_at, keys_end)
        self.tags.put(d, tags_at, tags_end)
        if self._wanted & IDS:
            self.ids.put(d, id_at, id_end)
        if self._wanted & STAMPS:
            self.stamps.put(d, stamp_at, stamp_end)
        return True

    def _is_new(self, first: int, d: memoryview, at: int, end: int) -> bool:
        """Is this name none of the row's before, and is there a place for it?"""
        names = self.names
        begin = 0
        if names.count - first >= MAX_NAMES:
            return False
        for i in range(first, names.count):
            begin = names.ends[i]
            if names.ends[i + 1] - begin == end - at and _equal(names.data, begin, d, at, end - at):
                return False
        return True


def _copy(out: memoryview, at: int, data: memoryview, begin: int, count: int) -> int:
    """Copy bytes; where the next ones go."""
    for i in range(count):
        out[at + i] = data[begin + i]
    return at + count


def _equal(a: memoryview, at: int, b: memoryview, begin: int, count: int) -> bool:
    for i in range(count):
        if a[at + i] != b[begin + i]:
            return False
    return True


def _same(d: memoryview, at: int, end: int, text: memoryview) -> bool:
    if end - at != len(text):
        return False
    for i in range(end - at):
        if d[at + i] != text[i]:
            return False
    return True
