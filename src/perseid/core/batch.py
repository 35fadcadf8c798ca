# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""The hot path: received bytes in; records, queue units, index entries and answers out; many messages a call.

Compiled by Cython, with the C types of `batch.pxd`, where there is a C compiler. As plain Python it does the same, so
slowly that only tests use it: without a compiler `broker/fast_path/plain_sends.py` takes its place.

    begin → take … take → records, touched, entries, answers → clear

`take` ends before the first frame that it does not know as a plain send: whatever is unusual, wrong, or over a limit
is left to the ordinary handlers, which answer it. So it never refuses anything, it only stops; and a frame that it
stops at has changed nothing. Nothing is written to a disk or a socket here, and nobody can read what was taken before
the caller has written it.

Trust: nothing in a read is believed. Each length is compared with what is left, each number with its range, each
character with what a plain send may hold. `make fuzz` builds it once more with the compiler's bounds checks on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perseid.base.machine import Buffer
from perseid.core import layout
from perseid.core.layout import (
    ADDED_BYTES,
    ENTRY_BYTES,
    HEADER_BINARY,
    HEADER_BYTES,
    HEADER_JSON,
    KEY_BYTES,
    MAX_ID_BYTES,
    PART_BITS,
    UNIT_BYTES,
)
from perseid.core.sends import SendReader
from perseid.wire.batch import BODY_SIZE_AT, FLAG_AT, MAX_MESSAGES
from perseid.wire.batch import MIN_ITEM_BYTES as ITEM_BYTES
from perseid.wire.dledger import ENTRY_HEADER_BYTES as HEAD_BYTES
from perseid.wire.dledger import ENTRY_MAGIC
from perseid.wire.hashing import crc32_raw
from perseid.wire.record import BODY_CRC_AT as CRC_AT
from perseid.wire.record import FIXED_BYTES, MAGIC_V1, MAX_PROPERTIES_BYTES, QUEUE_ID_AT, SYS_FLAG_AT
from perseid.wire.record import MIN_RECORD_BYTES as MIN_BYTES

if TYPE_CHECKING:
    from perseid.core.queue import Queue
    from perseid.core.signers import Signer
    from perseid.wire.bodies import TopicConfig
    from perseid.wire.ids import UniqueIds

compiled = not __file__.endswith(".py")

INT_MAX, SIGN, MASK = 2**31 - 1, 2**31, 2**32 - 1
HOST_BYTES = 8
"""IPv4 address and port."""
NUMBERS_BYTES = 160
"""The numbers of an answer, at most, and its frame."""
START_BYTES, START_UNITS = 1 << 16, 64
KEEP_BYTES = 4 << 20
"""A buffer that a large turn made longer than this is let go after it."""
ID_BYTES = 33
"""Of a message's id and a comma."""
COUNTER_DIGITS = 4
"""Of the ids that are given here: their last ones, in hex."""
MAX_QUOTED_BYTES = 6
"""Of a byte of an id in JSON."""
OPAQUE_AT, EXT_BYTES_AT = 5, 17
"""In a binary header."""
HEX, SMALL_HEX = b"0123456789ABCDEF", b"0123456789abcdef"
UNIQUE_KEY = memoryview(b"UNIQ_KEY\x01")
SHORT_ESCAPES = b"btn-fr"
"""Of the characters 8 to 13; 11 has none."""
INDEXED_TAG = memoryview(layout.INDEXED_TAG.encode())
NOTHING = memoryview(b"")


class Target:
    """A queue that plain sends go to: what stays the same from send to send, and what this turn stored there."""

    def __init__(self, topic: str, queue_id: int, queue: Queue, row: TopicConfig) -> None:
        self.topic, self.queue_id, self.queue, self.row = topic, queue_id, queue, row
        self.key = (topic, queue_id)
        self.name = memoryview(topic.encode())
        self.seed = (_hash(self.name, 0, len(self.name), 0) * 31 + 35) & MASK
        """The hash of `topic#`, which begins all index keys."""
        self.first = self.room = self.count = 0
        """The queue offset of this turn's first message, that which has no place any more, messages of this turn."""
        self.taken = self.taken_bytes = self.requests = 0
        """Of all turns, until the caller sets them to 0."""
        self.buffer = bytearray()
        self.grow(START_UNITS)

    def grow(self, units: int) -> None:
        """Make room for so many units; what stands there stays, as far as it fits."""
        before = bytes(self.buffer[: units * UNIT_BYTES]) if self.count else b""
        self.buffer = bytearray(units * UNIT_BYTES)
        self.buffer[: len(before)] = before
        self.space = memoryview(self.buffer)

    @property
    def units(self) -> bytearray:
        """The queue units of this turn's messages."""
        return self.buffer[: self.count * UNIT_BYTES]


class Batch(SendReader):
    """The plain sends of one turn of one broker."""

    def __init__(
        self,
        store_host: bytes,
        own_properties: bytes,
        max_body_bytes: int,
        answer: tuple[bytes, ...],
        binary_answer: tuple[bytes, ...],
        sync: bool,
        signed: bool,
    ) -> None:
        """`answer`: the six texts around the five values of an answer in JSON; `binary_answer`: the five around the
        four values of one in binary, whose opaque stands in the first. `sync`: answers wait for a flush, so that sends
        which ask not to wait (WAIT=false) are not plain. `signed`: none is plain that is not signed by one of the
        `signers` of `take`."""
        assert len(store_host) == HOST_BYTES and len(answer) == 6 and len(binary_answer) == 5
        super().__init__(own_properties, sync, signed)
        self._host, self._most_bytes = memoryview(store_host), max_body_bytes
        texts: list[memoryview] = [memoryview(text) for text in answer]
        self._answer_0, self._answer_1, self._answer_2 = texts[:3]
        self._answer_3, self._answer_4, self._answer_5 = texts[3:]
        texts = [memoryview(text) for text in binary_answer]
        self._binary_0, self._binary_1, self._binary_2 = texts[:3]
        self._binary_3, self._binary_4 = texts[3:]
        self._answer_bytes = sum(map(len, answer + binary_answer)) + NUMBERS_BYTES
        self._targets: dict[int, Target] = {}
        self._rows: dict[str, TopicConfig] = {}
        self._queues: Mapping[tuple[str, int], Queue] = {}
        self._may_order = False
        self._now = self._at = self._limit = self.last = self.taken = 0
        self.took_10 = self.took_310 = self.took_320 = 0
        """Requests of each code, until the caller sets them to 0."""
        self._entry_head = self._term = self.index = self._prepared = 0
        """Bytes before each record: of an entry's head, or none. The term and the index of the next entry."""
        self.touched: list[Target] = []
        """The targets that have messages of this turn; `last`: where the last of its records will stand in the log."""
        self._records = memoryview(bytearray(START_BYTES))
        self._answers = memoryview(bytearray(START_BYTES))
        self._entries = memoryview(bytearray(START_BYTES))
        self._records_end = self._answers_end = self._entries_end = 0
        self._born_host = NOTHING
        self._id = memoryview(bytearray(MAX_ID_BYTES))
        self._id_end = 0
        """The unique key that the answer says, if there is one; of a batch it is the header's."""
        self._ids: UniqueIds | None = None
        self._id_head, self._id_counter = NOTHING, -1
        """What the ids begin with that are given in this turn, and the number of the first one; -1: none was given."""
        self.ids_given = 0
        """In this turn."""
        self._size = self._properties_at = self._properties_end = 0
        """Of a stored record."""

    # ---- targets ----

    def learn(self, target: Target, most: int) -> None:
        """Sends to this target's queue are plain from now on. At most `most` targets are known."""
        self._know(self._targets, target, most)

    def _know(self, targets: dict[int, Target], target: Target, most: int) -> None:
        if len(targets) >= most:
            targets.clear()
        targets[_target_key(target.name, 0, len(target.name), target.queue_id)] = target

    def _target(self) -> Target | None:
        """The target of the frame that is looked at, ready for this turn; None when there is none."""
        target = self._named(self._targets, self._d, self._topic_at, self._topic_end)
        if target is None or (target.count == 0 and not self._begin_target(target)):
            return None
        return target

    def _named(self, targets: dict[int, Target], d: memoryview, at: int, end: int) -> Target | None:
        """That of the targets whose topic stands there in `d`, with the queue that was read; None: there is none."""
        target = targets.get(_target_key(d, at, end, self._queue_id))
        if target is None:
            return None
        size = len(target.name)
        if target.queue_id != self._queue_id or end - at != size:
            return None
        for i in range(size):
            if d[at + i] != target.name[i]:
                return None
        return target

    def _begin_target(self, target: Target) -> bool:
        """Is the target's queue still that of its topic, the topic as it was, and the next unit's file there?"""
        if self._rows.get(target.topic) is not target.row or self._queues.get(target.key) is not target.queue:
            return False
        queue = target.queue
        if not queue.dirty or (not self._may_order and target.row.order):
            return False
        target.first, target.room = queue.end, queue.room
        return target.first < target.room

    # ---- a turn ----

    def look_into(self, rows: dict[str, TopicConfig], queues: Mapping[tuple[str, int], Queue]) -> None:
        """The tables of topics and queues as they are from now on."""
        self._rows, self._queues = rows, queues

    def give_ids(self, ids: UniqueIds) -> None:
        """Messages without a unique key are plain from now on. At the end of a turn `ids` passes over `ids_given`."""
        self._ids = ids

    def begin(self, now: int, log_end: int, limit: int, may_order: bool) -> None:
        """A turn begins. The next record stands at `log_end`; all must end before `limit`."""
        assert self._records_end == 0
        self._now, self._at, self._limit, self._may_order = now, log_end, limit, may_order

    def begin_entries(self, index: int, term: int) -> None:
        """The records of this turn are entries of a Raft group (dledger.md §7), the next of which is `index`."""
        self._entry_head, self.index, self._term = HEAD_BYTES, index, term

    def take(self, data: Buffer, at: int, born_host: bytes, signers: dict[bytes, Signer]) -> int:
        """Take the plain sends that stand in `data` from `at` on, one after the other; where the first frame begins
        that is none: the length of `data` when all are. `signers`: who may send from there what has to be signed."""
        if len(born_host) != HOST_BYTES:
            return at
        if signers is not self._signers:
            self._signers, self._signer = signers, None
        total = self._look_at(data)
        self._born_host = born_host  # type: ignore[assignment]
        while 0 <= at < total:
            end = self._frame(at, total)
            if end < 0:
                break
            at = end
            if self._code == 310:
                self.took_310 += 1
            elif self._code == 10:
                self.took_10 += 1
            else:
                self.took_320 += 1
        self._let_go()
        return at

    @property
    def records(self) -> memoryview:
        """The records of this turn, to stand at the log's end."""
        return memoryview(self._records)[: self._records_end]

    @property
    def entries(self) -> memoryview:
        """Hash and offset of each index entry of this turn, 12 bytes each."""
        return memoryview(self._entries)[: self._entries_end]

    def answers(self) -> bytes:
        """The frames that answer what was taken since this was last asked."""
        found = bytes(memoryview(self._answers)[: self._answers_end])
        self._answers_end = self.taken = 0
        if len(self._answers) > KEEP_BYTES:
            self._answers = memoryview(bytearray(START_BYTES))
        return found

    def clear(self) -> None:
        """What was taken has been written."""
        for target in self.touched:
            target.taken += target.count
            target.count = 0
            if len(target.space) > START_BYTES:
                target.grow(START_UNITS)
        self.touched.clear()
        self._records_end = self._entries_end = self.ids_given = 0
        self._id_counter = -1
        if len(self._records) > KEEP_BYTES or len(self._entries) > KEEP_BYTES:
            self._records = memoryview(bytearray(START_BYTES))
            self._entries = memoryview(bytearray(START_BYTES))

    # ---- one frame ----

    def _frame(self, at: int, total: int) -> int:
        """Take the frame at `at`, if it is plain: where it ends; -1 when it is not."""
        begin = 0
        if not self._open(at, total) or self._body >= self._end or self._end - self._body > self._most_bytes:
            return -1
        if not self._read_send() or (self._unique_at >= 0 and self._unique_end - self._unique_at > MAX_ID_BYTES):
            return -1
        target = self._target()
        if target is None or (self._must_sign and not self._is_admitted(self._topic_at, self._topic_end)):
            return -1
        begin = target.count
        if not (self._put_batch(target) if self._code == 320 else self._put_single(target)):
            return -1
        if begin == 0:
            self.touched.append(target)
        if self._flag == 0:
            self._answer(target, begin)
        target.requests += 1
        self.taken += 1
        return self._end

    def _put_single(self, target: Target) -> bool:
        """Store a message that was sent alone; False: nothing has changed."""
        is_given = self._unique_at < 0
        if is_given and not self._give_id():
            return False
        self._keep_id()
        self._append_own()
        if not self._put(target, self._body, self._end):
            return False
        self.ids_given += is_given
        return True

    def _keep_id(self) -> None:
        """Take the unique key in that the answer will say."""
        self._id_end = 0
        if self._unique_at >= 0:
            self._id_end = _copy(self._id, 0, self._q, self._unique_at, self._unique_end - self._unique_at)

    def _give_id(self) -> bool:
        """Give a message without a unique key one, as the ordinary handler would; False when that is to do it."""
        n = counter = 0
        if self._ids is None:
            return False
        if self._has_empty:
            self._leave_out_empty()
            self._read_properties()
        if self._has_repeated():
            return False
        if self._id_counter < 0:
            stem, self._id_counter = self._ids.ahead(self._now)
            self._id_head = memoryview(stem.encode())
        n = self._q_end + len(UNIQUE_KEY) + len(self._id_head) + COUNTER_DIGITS + 1
        if n + len(self._own) + ADDED_BYTES > MAX_PROPERTIES_BYTES:
            return False
        self._unique_at = _copy(self._q, self._q_end, UNIQUE_KEY, 0, len(UNIQUE_KEY))
        n = _copy(self._q, self._unique_at, self._id_head, 0, len(self._id_head))
        counter = self._id_counter + self.ids_given
        for i in range(COUNTER_DIGITS):
            self._q[n + i] = HEX[counter >> 4 * (COUNTER_DIGITS - 1 - i) & 15]
        self._unique_end = n + COUNTER_DIGITS
        self._q[self._unique_end] = 2
        self._q_end = self._unique_end + 1
        return True

    def _put(self, target: Target, body: int, end: int) -> bool:
        """Store the message whose properties stand in `_q`; False when it has no room, and nothing has changed."""
        size, head = FIXED_BYTES + (end - body) + 1 + len(target.name) + 2 + self._q_end, self._entry_head
        if self._at + head + size > self._limit or target.first + target.count >= target.room:
            return False
        crc = crc32_raw(self._raw[body:end])
        if self._records_end + head + size > len(self._records):
            self._records = _longer(self._records, self._records_end + head + size)
        self._make_room(target)
        if head:
            self._put_head(size)
        self._put_record(target, size, body, end, crc)
        self._put_unit(target, size)
        if not head:  # a group's messages get their keys when they are committed
            self._put_entries(target)
        target.count += 1
        target.taken_bytes += size
        self.last = self._at
        self._at += size
        return True

    def _make_room(self, target: Target) -> None:
        """See to it that there is room for the unit and the entries of one more message."""
        most = KEY_BYTES * (3 + (self._keys_end - self._keys_at) // 2)
        if self._entries_end + most > len(self._entries):
            self._entries = _longer(self._entries, self._entries_end + most)
        if (target.count + 1) * UNIT_BYTES > len(target.space):
            target.grow(2 * target.count)

    def _put_batch(self, target: Target) -> bool:
        """Store the messages of a batch (store.md §3.7), all or none; False when one of them is not plain."""
        at, count, taken_bytes, last, index = self._at, target.count, target.taken_bytes, self.last, self.index
        records_end, entries_end = self._records_end, self._entries_end
        p = self._body
        self._keep_id()
        while p < self._end:
            p = self._put_item(target, p)
            if p < 0 or self._at - at > self._most_bytes or target.count - count > MAX_MESSAGES:
                self._at, target.count, target.taken_bytes, self.last, self.index = at, count, taken_bytes, last, index
                self._records_end, self._entries_end = records_end, entries_end
                return False
        return True

    def _put_item(self, target: Target, at: int) -> int:
        """Store the message of a batch that stands at `at`: where the next one does; -1 when it is not plain."""
        body, left = at + BODY_SIZE_AT + 4, self._end - at
        if left < ITEM_BYTES:
            return -1
        size, body_bytes = self._int(at), self._int(at + BODY_SIZE_AT)
        if size > left or body_bytes == 0 or body_bytes > size - ITEM_BYTES:
            return -1
        p = body + body_bytes + 2
        if p + self._short(p - 2) != at + size or self._short(p - 2) > MAX_PROPERTIES_BYTES:
            return -1
        self._message_flag = self._signed(at + FLAG_AT)
        if not self._take_properties(p, at + size) or not self._end_properties() or not self._read_properties():
            return -1
        return at + size if self._put(target, body, body + body_bytes) else -1

    # ---- what it comes to ----

    def _put_head(self, size: int) -> int:
        """magic, size, index, term, pos, channel, two checksums that are always 0, size of the record"""
        at = _put_int(self._records, self._records_end, ENTRY_MAGIC)
        at = _put_int(self._records, at, HEAD_BYTES + size)
        at = _put_long(self._records, at, self.index)
        at = _put_long(self._records, at, self._term)
        at = _put_long(self._records, at, self._at)
        at = _put_int(self._records, at, 0)
        at = _put_long(self._records, at, 0)
        self._records_end = _put_int(self._records, at, size)
        self._at += HEAD_BYTES
        self.index += 1
        return self._records_end

    def _put_record(self, target: Target, size: int, body: int, end: int, crc: int) -> int:
        """The message record of format v1 (store.md §3): the layout of `wire.record`."""
        at = self._records_end
        name = len(target.name)
        at = _put_int(self._records, at, size)
        at = _put_int(self._records, at, MAGIC_V1)
        at = _put_int(self._records, at, crc & INT_MAX)
        at = _put_int(self._records, at, target.queue_id)
        at = _put_int(self._records, at, self._message_flag)
        at = _put_long(self._records, at, target.first + target.count)
        at = _put_long(self._records, at, self._at)
        at = _put_int(self._records, at, self._sys_flag)
        at = _put_long(self._records, at, self._born)
        at = _copy(self._records, at, self._born_host, 0, 8)
        at = _put_long(self._records, at, self._now)
        at = _copy(self._records, at, self._host, 0, 8)
        at = _put_int(self._records, at, self._reconsumed)
        at = _put_long(self._records, at, self._prepared)
        at = _put_int(self._records, at, end - body)
        at = _copy(self._records, at, self._d, body, end - body)
        self._records[at] = name
        at = _copy(self._records, at + 1, target.name, 0, name)
        self._records[at], self._records[at + 1] = self._q_end >> 8, self._q_end & 0xFF
        self._records_end = _copy(self._records, at + 2, self._q, 0, self._q_end)
        return self._records_end

    def _put_unit(self, target: Target, size: int) -> int:
        at = _put_long(target.space, target.count * UNIT_BYTES, self._at)
        at = _put_int(target.space, at, size)
        return _put_long(target.space, at, self._tag_code())

    def _tag_code(self) -> int:
        """The signed hash of the tag; 0 when there is none."""
        code = _hash(self._q, self._tag_at, self._tag_end, 0)
        return (code ^ SIGN) - SIGN

    def _put_entries(self, target: Target) -> int:
        """As `store.dispatch.key_hashes`: the unique key, each of the keys, the tag as `T#tag`."""
        at = self._keys_at
        if self._unique_at >= 0:
            self._put_entry(_hash(self._q, self._unique_at, self._unique_end, target.seed))
        while 0 <= at < self._keys_end:
            end = at
            while end < self._keys_end and self._q[end] != 32:
                end += 1
            if end > at:
                self._put_entry(_hash(self._q, at, end, target.seed))
            at = end + 1
        if self._tag_at >= 0:
            seed = _hash(INDEXED_TAG, 0, len(INDEXED_TAG), target.seed)
            self._put_entry(_hash(self._q, self._tag_at, self._tag_end, seed))
        return self._entries_end

    def _put_entry(self, key_hash: int) -> int:
        if key_hash & SIGN:
            key_hash = (0 - key_hash) & INT_MAX
        at = _put_int(self._entries, self._entries_end, key_hash)
        self._entries_end = _put_long(self._entries, at, self._at)
        return self._entries_end

    def _add(self, out: memoryview, at: int, data: memoryview, begin: int, end: int) -> int:
        """Write a part of `data`; where the next one goes."""
        return _copy(out, at, data, begin, end - begin)

    def _add_number(self, out: memoryview, at: int, number: int) -> int:
        return _put_digits(out, at, number)

    # ---- a record of the log ----

    def _parts(self, at: int, total: int, known_flags: int) -> bool:
        """Find the parts of the record at `at`, which says no other flags of itself than the known ones; False when it
        is not whole, or another kind of record."""
        left = total - at
        p = 0
        if left < MIN_BYTES:
            return False
        self._size = self._int(at)
        if self._size > left or self._size < MIN_BYTES or self._signed(at + 4) != MAGIC_V1:
            return False
        if self._int(at + SYS_FLAG_AT) & ~known_flags != 0:
            return False
        self._queue_id = self._signed(at + QUEUE_ID_AT)
        self._body = at + FIXED_BYTES
        p = self._int(self._body - 4)
        if p == 0 or p > self._size - MIN_BYTES:
            return False
        self._end = self._body + p
        self._topic_at = self._end + 1
        self._topic_end = self._topic_at + self._d[self._end]
        self._properties_at = self._topic_end + 2
        if self._properties_at > at + self._size:
            return False
        self._properties_end = self._properties_at + self._short(self._topic_end)
        if self._properties_end - self._properties_at > MAX_PROPERTIES_BYTES:
            return False
        return self._properties_end == at + self._size

    def _take_indexed(self, at: int, size: int, value: int, end: int) -> int:
        """Take in a property by which a stored message is found; 0: it is another one, -1: it comes once more."""
        if size == 8 and self._says(at, b"UNIQ_KEY"):
            taken = 1 if self._unique_at < 0 else -1
            self._unique_at, self._unique_end = value, end
        elif size == 4 and self._says(at, b"TAGS"):
            taken = 1 if self._tag_at < 0 else -1
            self._tag_at, self._tag_end = value, end
        elif size == 4 and self._says(at, b"KEYS"):
            taken = 1 if self._keys_at < 0 else -1
            self._keys_at, self._keys_end = value, end
        else:
            taken = 0
        return taken

    def _is_sound(self, at: int) -> bool:
        """Does the body of the record match its checksum?"""
        crc = crc32_raw(self._raw[self._body : self._end])
        return (crc & INT_MAX) == self._int(at + CRC_AT)

    # ---- answers ----

    def _answer(self, target: Target, begin: int) -> None:
        """Answer the request whose messages are those of the target from `begin` on."""
        most = self._answers_end + self._answer_bytes + MAX_QUOTED_BYTES * self._id_end
        most += ID_BYTES * (target.count - begin)
        if most > len(self._answers):
            self._answers = _longer(self._answers, most)
        if self._serializer == HEADER_JSON:
            self._put_json_answer(target, begin)
        else:
            self._put_binary_answer(target, begin)

    def _put_ids(self, target: Target, at: int, begin: int) -> int:
        """Write the ids of the messages, joined by commas: each is the broker's host, which stands before, and where
        its record is, out of its unit."""
        host = at - 16
        for number in range(begin, target.count):
            if number > begin:
                self._answers[at] = 44
                at = _copy(self._answers, at + 1, self._answers, host, 16)
            for i in range(8):
                byte = target.space[number * UNIT_BYTES + i]
                self._answers[at], self._answers[at + 1] = HEX[byte >> 4], HEX[byte & 15]
                at += 2
        return at

    def _put_handle(self, at: int) -> int:
        """Write what an answer says besides; where that ends."""
        return at

    def _put_json_answer(self, target: Target, begin: int) -> int:
        first = self._answers_end
        at = _copy(self._answers, first + 8, self._answer_0, 0, len(self._answer_0))
        at = self._put_ids(target, at, begin)
        at = _copy(self._answers, at, self._answer_1, 0, len(self._answer_1))
        at = _put_digits(self._answers, at, self._queue_id)
        at = _copy(self._answers, at, self._answer_2, 0, len(self._answer_2))
        at = _put_digits(self._answers, at, target.first + begin)
        if self._id_end:
            at = _copy(self._answers, at, self._answer_3, 0, len(self._answer_3))
            at = self._put_handle(_put_quoted(self._answers, at, self._id, self._id_end))
        at = _copy(self._answers, at, self._answer_4, 0, len(self._answer_4))
        at = _put_digits(self._answers, at, self._opaque)
        at = _copy(self._answers, at, self._answer_5, 0, len(self._answer_5))
        _put_int(self._answers, first, at - first - 4)
        _put_int(self._answers, first + 4, at - first - 8)
        self._answers_end = at
        return at

    def _put_binary_answer(self, target: Target, begin: int) -> int:
        """Each value has its length before it (4 bytes), after the text that names it."""
        first = self._answers_end
        value = _copy(self._answers, first + 8, self._binary_0, 0, len(self._binary_0)) - 16
        at = self._put_ids(target, value + 16, begin)
        _put_int(self._answers, value - 4, at - value)
        value = _copy(self._answers, at, self._binary_1, 0, len(self._binary_1))
        at = _put_digits(self._answers, value, self._queue_id)
        _put_int(self._answers, value - 4, at - value)
        value = _copy(self._answers, at, self._binary_2, 0, len(self._binary_2))
        at = _put_digits(self._answers, value, target.first + begin)
        _put_int(self._answers, value - 4, at - value)
        if self._id_end:
            value = _copy(self._answers, at, self._binary_3, 0, len(self._binary_3))
            at = _copy(self._answers, value, self._id, 0, self._id_end)
            _put_int(self._answers, value - 4, at - value)
            at = self._put_handle(at)
        at = _copy(self._answers, at, self._binary_4, 0, len(self._binary_4))
        _put_int(self._answers, first, at - first - 4)
        _put_int(self._answers, first + 4, HEADER_BINARY << 24 | (at - first - 8))
        _put_int(self._answers, first + 8 + OPAQUE_AT, self._opaque)
        _put_int(self._answers, first + 8 + EXT_BYTES_AT, at - first - 8 - HEADER_BYTES)
        self._answers_end = at
        return at


def _get_int(d: memoryview, at: int) -> int:
    first = d[at]
    return first << 24 | d[at + 1] << 16 | d[at + 2] << 8 | d[at + 3]


def _put_int(out: memoryview, at: int, number: int) -> int:
    """Write 4 bytes; where the next ones go."""
    out[at], out[at + 1] = (number >> 24) & 0xFF, (number >> 16) & 0xFF
    out[at + 2], out[at + 3] = (number >> 8) & 0xFF, number & 0xFF
    return at + 4


def _put_long(out: memoryview, at: int, number: int) -> int:
    """Write 8 bytes; where the next ones go."""
    return _put_int(out, _put_int(out, at, number >> 32), number)


def _put_digits(out: memoryview, at: int, number: int) -> int:
    """Write a number of at most 19 digits; where it ends."""
    if number < 0:
        out[at] = 45
        at += 1
        number = -number
    rest, end = number, at + 1
    while rest >= 10:
        rest //= 10
        end += 1
    at = end
    while True:
        at -= 1
        out[at] = 48 + number % 10
        number //= 10
        if number == 0:
            return end


def _copy(out: memoryview, at: int, data: memoryview, begin: int, count: int) -> int:
    """Copy bytes; where the next ones go."""
    for i in range(count):
        out[at + i] = data[begin + i]
    return at + count


def _put_quoted(out: memoryview, at: int, data: memoryview, count: int) -> int:
    """Write bytes as a text of JSON, as `wire.headers.base.quote` does; where that ends."""
    for i in range(count):
        c = data[i]
        if (c > 34 and c != 92) or c == 32 or c == 33:
            out[at] = c
            at += 1
        elif c >= 34 or (8 <= c <= 13 and c != 11):
            out[at], out[at + 1] = 92, c if c >= 34 else SHORT_ESCAPES[c - 8]
            at += 2
        else:
            out[at], out[at + 1], out[at + 2], out[at + 3] = 92, 117, 48, 48
            out[at + 4], out[at + 5] = SMALL_HEX[c >> 4], SMALL_HEX[c & 15]
            at += 6
    return at


def _longer(old: memoryview, least: int) -> memoryview:
    """A buffer of at least `least` bytes, and twice as long as the old one, with its content."""
    new = memoryview(bytearray(max(least, 2 * len(old))))
    new[: len(old)] = old
    return new


def _hash(d: memoryview, at: int, end: int, seed: int) -> int:
    """Java's `String.hashCode` of what is UTF-8, going on from that of what stands before: over units of UTF-16."""
    while at < end:
        unit = d[at]
        if unit > 127 and end - at >= 4 - (unit < 0xF0) - (unit < 0xE0):
            if unit < 0xE0:
                unit = (unit & 31) << 6 | d[at + 1] & 63
            elif unit < 0xF0:
                unit = (unit & 15) << 12 | (d[at + 1] & 63) << 6 | d[at + 2] & 63
                at += 1
            else:  # two units
                unit = (unit & 7) << 18 | (d[at + 1] & 63) << 12 | (d[at + 2] & 63) << 6 | d[at + 3] & 63
                seed = (seed * 31 + 0xD7C0 + (unit >> 10)) & MASK
                unit = 0xDC00 | unit & 0x3FF
                at += 2
            at += 1
        seed = (seed * 31 + unit) & MASK
        at += 1
    return seed


def _target_key(d: memoryview, at: int, end: int, queue_id: int) -> int:
    """FNV-1a of a queue's name. Two queues may share it: then the sends to one of them are not plain."""
    key = (queue_id & MASK) + 2166136261
    while at < end:
        key = ((key ^ d[at]) * 16777619) & MASK
        at += 1
    return key


# ---- the index ----


def insert(
    entries: memoryview, table: memoryview, changed: memoryview, first: int, diff: int, out: memoryview
) -> int:
    """Number index entries (hash and offset, 12 bytes each) from `first` on, let the slots lead to them, and write them
    to `out` as the file has them. How many slots had none before."""
    used = 0
    count = len(entries) // KEY_BYTES
    slots = len(table)
    if len(out) < count * ENTRY_BYTES or len(changed) << PART_BITS < slots or slots == 0:
        raise ValueError("no room for index entries")
    for i in range(count):
        slot = _get_int(entries, KEY_BYTES * i) % slots
        previous = table[slot]
        if not 0 < previous < first + i:  # 0, or what a damaged file held
            previous = 0
            used += 1
        at = _copy(out, ENTRY_BYTES * i, entries, KEY_BYTES * i, KEY_BYTES)
        _put_int(out, _put_int(out, at, diff), previous)
        table[slot] = first + i
        changed[slot >> PART_BITS] = 1
    return used
