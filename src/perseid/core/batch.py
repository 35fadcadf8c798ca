# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""The hot path: received bytes in; records, queue units, index entries and answers out; many messages a call.

Compiled by Cython, with the C types of `batch.pxd`, where there is a C compiler. As plain Python it does the same, so
slowly that only tests use it: without a compiler `broker.fast` takes its place.

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
from perseid.core.layout import ENTRY_BYTES, KEY_BYTES, PART_BITS, PLAIN_SYS_FLAGS, UNIT_BYTES
from perseid.wire.hashing import crc32_raw
from perseid.wire.record import MAGIC_V1, MAX_PROPERTIES_BYTES

if TYPE_CHECKING:
    from perseid.core import Queue
    from perseid.wire.bodies import TopicConfig

compiled = not __file__.endswith(".py")

INT_MIN, INT_MAX, SIGN, MASK = -(2**31), 2**31 - 1, 2**31, 2**32 - 1
MAX_DIGITS = 18
HOST_BYTES = 8
"""IPv4 address and port."""
FIXED_BYTES = 88
"""Of a record before its body."""
NUMBERS_BYTES = 160
"""The numbers of an answer, at most, and its frame."""
START_BYTES, START_UNITS = 1 << 16, 64
KEEP_BYTES = 4 << 20
"""A buffer that a large turn made longer than this is let go after it."""
REQUIRED = 0xFF
"""Bits of the fields a to h of a send's header."""

ODD_NAMES = tuple([name.encode() for name in layout.ODD_NAMES])

LONG_NAMES = (
    b"producerGroup", b"topic", b"defaultTopic", b"defaultTopicQueueNums", b"queueId", b"sysFlag", b"bornTimestamp",
    b"flag", b"properties", b"reconsumeTimes", b"unitMode", b"maxReconsumeTimes", b"batch", b"bname",
)  # fmt: skip
"""The fields of code 10, in the order of their letters in code 310."""

HEX = b"0123456789ABCDEF"
INDEXED_TAG = memoryview(b"T#")
NOTHING = memoryview(b"")


class Lane:
    """One queue of one topic: what stays the same from send to send, and what this turn stored there."""

    def __init__(self, topic: str, queue_id: int, queue: Queue, row: TopicConfig) -> None:
        self.topic, self.queue_id, self.queue, self.row = topic, queue_id, queue, row
        self.key = (topic, queue_id)
        self.name = memoryview(topic.encode())
        self.seed = (_hash(self.name, 0, len(self.name), 0) * 31 + 35) & MASK
        """The hash of `topic#`, which begins all index keys."""
        self.first = self.room = self.count = 0
        """The queue offset of this turn's first message, that which has no place any more, messages of this turn."""
        self.taken = self.taken_bytes = 0
        """Of all turns, until the caller sets them to 0."""
        self.space = memoryview(bytearray(START_UNITS * UNIT_BYTES))

    @property
    def units(self) -> memoryview:
        """The queue units of this turn's messages."""
        return memoryview(self.space)[: self.count * UNIT_BYTES]


class Batch:
    """The plain sends of one turn of one broker."""

    def __init__(
        self, store_host: bytes, own_properties: bytes, max_body_bytes: int, answer: tuple[bytes, ...], sync: bool
    ) -> None:
        """`answer`: the six texts around the five numbers of an answer. `sync`: answers wait for a flush, so that sends
        which ask not to wait (WAIT=false) are not plain."""
        assert len(store_host) == HOST_BYTES and len(answer) == 6
        self._host, self._own, self._most_bytes = memoryview(store_host), memoryview(own_properties), max_body_bytes
        texts: list[memoryview] = [memoryview(text) for text in answer]
        self._answer_0, self._answer_1, self._answer_2 = texts[:3]
        self._answer_3, self._answer_4, self._answer_5 = texts[3:]
        self._answer_bytes = sum(map(len, answer)) + NUMBERS_BYTES
        self._lanes: dict[int, Lane] = {}
        self._rows: dict[str, TopicConfig] = {}
        self._queues: Mapping[tuple[str, int], Queue] = {}
        self._sync, self._may_order = sync, False
        self._now = self._at = self._limit = self.last = self.taken = 0
        self.touched: list[Lane] = []
        """The lanes that have messages of this turn; `last`: where the last of its records will stand in the log."""
        self._records = memoryview(bytearray(START_BYTES))
        self._answers = memoryview(bytearray(START_BYTES))
        self._entries = memoryview(bytearray(START_BYTES))
        self._records_end = self._answers_end = self._entries_end = 0
        # What the frame says that is looked at; `_q`: its properties, and the broker's own behind them.
        self._raw: Buffer = b""
        self._d = self._born_host = NOTHING
        self._q = memoryview(bytearray(MAX_PROPERTIES_BYTES + 1))
        self._q_end = self._stop = self._code = self._flag = self._opaque = self._fields = 0
        self._topic_at = self._topic_end = self._queue_id = self._sys_flag = 0
        self._born = self._message_flag = self._reconsumed = 0
        self._unique_at = self._unique_end = self._tag_at = self._tag_end = self._keys_at = self._keys_end = 0

    # ---- lanes ----

    def learn(self, lane: Lane, most: int) -> None:
        """Sends to this lane's queue are plain from now on. At most `most` lanes are known."""
        if len(self._lanes) >= most:
            self._lanes.clear()
        self._lanes[_lane_key(lane.name, 0, len(lane.name), lane.queue_id)] = lane

    def _lane(self) -> Lane | None:
        """The lane of the frame that is looked at, ready for one more message; None when there is none."""
        lane = self._lanes.get(_lane_key(self._d, self._topic_at, self._topic_end, self._queue_id))
        if lane is None:
            return None
        size = len(lane.name)
        if lane.queue_id != self._queue_id or self._topic_end - self._topic_at != size:
            return None
        for i in range(size):
            if self._d[self._topic_at + i] != lane.name[i]:
                return None
        if lane.count == 0 and not self._begin_lane(lane):
            return None
        if lane.first + lane.count >= lane.room:
            return None
        if (lane.count + 1) * UNIT_BYTES > len(lane.space):
            lane.space = _longer(lane.space, len(lane.space) + UNIT_BYTES)
        return lane

    def _begin_lane(self, lane: Lane) -> bool:
        """Is the lane's queue still that of its topic, the topic as it was, and the next unit's file there?"""
        if self._rows.get(lane.topic) is not lane.row or self._queues.get(lane.key) is not lane.queue:
            return False
        queue = lane.queue
        if not queue.dirty or (not self._may_order and lane.row.order):
            return False
        lane.first, lane.room = queue.end, queue.room
        return lane.first < lane.room

    # ---- a turn ----

    def look_into(self, rows: dict[str, TopicConfig], queues: Mapping[tuple[str, int], Queue]) -> None:
        """The tables of topics and queues as they are from now on."""
        self._rows, self._queues = rows, queues

    def begin(self, now: int, log_end: int, limit: int, may_order: bool) -> None:
        """A turn begins. The next record stands at `log_end`; all must end before `limit`."""
        assert self._records_end == 0
        self._now, self._at, self._limit, self._may_order = now, log_end, limit, may_order

    def take(self, data: Buffer, at: int, born_host: bytes) -> int:
        """Take the plain sends that stand in `data` from `at` on, one after the other; where the first frame begins
        that is none: the length of `data` when all are."""
        if len(born_host) != HOST_BYTES:
            return at
        self._raw, self._d, self._born_host = data, data, born_host  # type: ignore[assignment]
        total = len(self._d)
        while 0 <= at < total:
            end = self._frame(at, total)
            if end < 0:
                break
            at = end
        self._raw, self._d = b"", NOTHING
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
        for lane in self.touched:
            lane.taken += lane.count
            lane.count = 0
            if len(lane.space) > START_BYTES:
                lane.space = memoryview(bytearray(START_UNITS * UNIT_BYTES))
        self.touched.clear()
        self._records_end = self._entries_end = 0
        if len(self._records) > KEEP_BYTES or len(self._entries) > KEEP_BYTES:
            self._records = memoryview(bytearray(START_BYTES))
            self._entries = memoryview(bytearray(START_BYTES))

    # ---- one frame ----

    def _frame(self, at: int, total: int) -> int:
        """Take the frame at `at`, if it is plain: where it ends; -1 when it is not."""
        if total - at < 8:
            return -1
        length = _get_int(self._d, at)
        header = _get_int(self._d, at + 4)
        body, end = at + 8 + header, at + 4 + length
        if end > total or body >= end:  # or a header that is not JSON: its word is larger
            return -1
        if end - body > self._most_bytes or not self._read_header(at + 8, body):
            return -1
        lane = self._lane() if self._read_properties() else None
        if lane is None:
            return -1
        name = len(lane.name)
        size = FIXED_BYTES + (end - body) + 1 + name + 2 + self._q_end
        if self._at + size > self._limit:
            return -1
        crc = crc32_raw(self._raw[body:end])
        if self._records_end + size > len(self._records):
            self._records = _longer(self._records, self._records_end + size)
        most = KEY_BYTES * (3 + (self._keys_end - self._keys_at) // 2)
        if self._entries_end + most > len(self._entries):
            self._entries = _longer(self._entries, self._entries_end + most)
        self._put_record(lane, size, body, end, crc)
        self._put_unit(lane, size)
        self._put_entries(lane)
        if self._flag == 0:
            if self._answers_end + self._answer_bytes + self._q_end > len(self._answers):
                self._answers = _longer(self._answers, self._answers_end + self._answer_bytes + self._q_end)
            self._put_answer(lane)
        if lane.count == 0:
            self.touched.append(lane)
        lane.count += 1
        lane.taken_bytes += size
        self.taken += 1
        self.last = self._at
        self._at += size
        return end

    # ---- the header ----

    def _read_header(self, at: int, end: int) -> bool:
        """Is the JSON header that of a plain send? `code` has to come before `extFields`, as with all clients."""
        p = at + 1
        number = 0
        self._code = self._flag = self._opaque = self._fields = 0
        if at >= end or self._d[at] != 123:  # {
            return False
        while True:
            name = p + 1
            p = self._name_end(p, end)
            if p < 0:
                return False
            size = p - name
            p += 2
            if self._is(name, size, b"extFields"):
                if self._code != 310 and self._code != 10:
                    return False
                p = self._read_fields(p, end)
            elif self._d[p] == 34:  # a text
                if not self._is(name, size, b"language") and not self._is(name, size, b"serializeTypeCurrentRPC"):
                    return False
                p = self._text_end(p + 1, end) + 1
            else:
                number = self._number(p, end)
                p = self._stop
                if p < 0 or number < INT_MIN or number > INT_MAX:
                    return False
                if self._is(name, size, b"code"):
                    if self._code:
                        return False
                    self._code = number
                elif self._is(name, size, b"opaque"):
                    self._opaque = number
                elif self._is(name, size, b"flag"):
                    self._flag = number
                elif not self._is(name, size, b"version") and not self._is(name, size, b"language"):
                    return False
            if p <= 0 or p >= end:
                return False
            if self._d[p] == 125:  # }
                break
            if self._d[p] != 44:
                return False
            p += 1
        return p + 1 == end and (self._flag == 0 or self._flag == 2) and self._fields & REQUIRED == REQUIRED

    def _read_fields(self, p: int, end: int) -> int:
        """Read the ext fields, whose object begins at `p`: one past its end, -1 when a plain send has other ones."""
        self._q_end = self._reconsumed = 0
        if self._d[p] != 123 or self._fields:
            return -1
        while True:
            name = p + 2
            p = self._name_end(p + 1, end)
            if p < 0 or self._d[p + 2] != 34:
                return -1
            letter = self._letter(name, p)
            p += 3
            if letter < 14:
                if self._fields & (1 << letter):
                    return -1
                self._fields |= 1 << letter
            stop = self._unescape(p, end) if letter == 8 else self._text_end(p, end)
            if stop < 0 or not self._read_field(letter, p, stop):
                return -1
            p = stop + 1
            if p >= end:
                return -1
            if self._d[p] == 125:
                return p + 1
            if self._d[p] != 44:
                return -1

    def _read_field(self, letter: int, at: int, end: int) -> bool:
        """Take in the value of a field; False when a plain send has another one."""
        number = 0
        if letter == 1:
            self._topic_at, self._topic_end = at, end
        elif letter == 12 or letter == 10:  # batch, unitMode
            return self._is(at, end - at, b"false")
        elif letter == 6:
            self._born = self._number(at, end)
            return self._stop == end
        elif 3 <= letter <= 7 or letter == 9 or letter == 11:
            number = self._number(at, end)
            if self._stop != end or number < INT_MIN or number > INT_MAX:
                return False
            if letter == 4:
                self._queue_id = number
            elif letter == 5:
                self._sys_flag = number
                return number & ~PLAIN_SYS_FLAGS == 0
            elif letter == 7:
                self._message_flag = number
            elif letter == 9:
                self._reconsumed = number
        return True

    def _letter(self, at: int, end: int) -> int:
        """Which of the 14 fields a name says, by the requests's code; 14 for none of them."""
        size = end - at
        if self._code == 310:
            return self._d[at] - 97 if size == 1 and 97 <= self._d[at] < 111 else 14
        for i in range(14):
            if self._is(at, size, LONG_NAMES[i]):
                return i
        return 14

    # ---- JSON ----

    def _name_end(self, at: int, end: int) -> int:
        """The closing quote of the member's name that begins at `at`; then follow a colon and a value. Or -1."""
        if at >= end or self._d[at] != 34:
            return -1
        p = self._text_end(at + 1, end)
        return p if p > at + 1 and p + 3 < end and self._d[p + 1] == 58 else -1

    def _text_end(self, at: int, end: int) -> int:
        """The closing quote of a text of ASCII without escapes that begins at `at`, or -1."""
        while at < end:
            c = self._d[at]
            if c == 34:
                return at
            if c < 32 or c > 126 or c == 92:
                return -1
            at += 1
        return -1

    def _number(self, at: int, end: int) -> int:
        """The number that begins at `at`, as JSON writes it; `_stop` says where it ends, -1 when there is none."""
        number = 0
        begin = at
        negative = at < end and self._d[at] == 45
        if negative:
            at += 1
            begin += 1
        while at < end and 48 <= self._d[at] <= 57 and at - begin < MAX_DIGITS:
            number = number * 10 + (self._d[at] - 48)
            at += 1
        self._stop = at
        if at == begin or (self._d[begin] == 48 and (at > begin + 1 or negative)):
            self._stop = -1
        return -number if negative else number

    def _unescape(self, at: int, end: int) -> int:
        """Write the text of ASCII that begins at `at` into `_q`; its closing quote, or -1."""
        n = 0
        most = MAX_PROPERTIES_BYTES - len(self._own)
        while at < end and n < most:
            c = self._d[at]
            if c == 34:
                self._q_end = n
                return at
            if c < 32 or c > 126:
                return -1
            if c == 92:
                if end - at < 7 or self._d[at + 1] != 117 or self._d[at + 2] != 48 or self._d[at + 3] != 48:
                    return -1  # other escapes than \u00..: not in plain properties
                if _hex(self._d[at + 4]) > 7 or _hex(self._d[at + 5]) > 15:
                    return -1
                c = _hex(self._d[at + 4]) << 4 | _hex(self._d[at + 5])
                at += 5
            self._q[n] = c
            n += 1
            at += 1
        return -1

    def _is(self, at: int, size: int, text: bytes) -> bool:
        """Do these bytes of the read say `text`?"""
        if size != len(text):
            return False
        for i in range(size):
            if self._d[at + i] != text[i]:
                return False
        return True

    # ---- properties ----

    def _read_properties(self) -> bool:
        """Find unique key, tag and keys, and add the broker's own; False when they are not plain."""
        n = self._q_end
        at = 0
        self._unique_at = self._tag_at = self._tag_end = self._keys_at = self._keys_end = -1
        if n == 0 or self._q[n - 1] != 2:
            return False
        while at < n:
            value = end = at
            while self._q[end] != 2:  # the last byte is one
                end += 1
            while value < end and self._q[value] != 1:
                value += 1
            if value == at or value + 1 >= end:
                return False
            if not self._read_property(at, value - at, value + 1, end):
                return False
            at = end + 1
        if self._unique_at < 0:
            return False
        for at in range(len(self._own)):
            self._q[n + at] = self._own[at]
        self._q_end = n + len(self._own)
        return True

    def _read_property(self, at: int, size: int, value: int, end: int) -> bool:
        """Take in a property, whose name begins at `at`; False when a plain send has another one."""
        if size == 8 and self._says(at, b"UNIQ_KEY"):
            if self._unique_at >= 0:
                return False
            self._unique_at, self._unique_end = value, end
            for i in range(value, end):
                if not (48 <= self._q[i] <= 57 or 65 <= self._q[i] <= 90 or 97 <= self._q[i] <= 122):
                    return False
        elif size == 4 and self._says(at, b"TAGS"):
            self._tag_at, self._tag_end = value, end
        elif size == 4 and self._says(at, b"KEYS"):
            self._keys_at, self._keys_end = value, end
        elif size == 4 and self._sync and self._says(at, b"WAIT"):
            return end - value != 5 or not self._says(value, b"false")
        elif size >= 5 and 67 <= self._q[at] <= 84:  # C to T
            for i in range(len(ODD_NAMES)):
                odd: bytes = ODD_NAMES[i]
                if size == len(odd) and self._says(at, odd):
                    return False
        return True

    def _says(self, at: int, text: bytes) -> bool:
        for i in range(len(text)):
            if self._q[at + i] != text[i]:
                return False
        return True

    # ---- what it comes to ----

    def _put_record(self, lane: Lane, size: int, body: int, end: int, crc: int) -> int:
        """The message record of format v1 (store.md §3): the layout of `wire.record`."""
        at = self._records_end
        name = len(lane.name)
        at = _put_int(self._records, at, size)
        at = _put_int(self._records, at, MAGIC_V1)
        at = _put_int(self._records, at, crc & INT_MAX)
        at = _put_int(self._records, at, self._queue_id)
        at = _put_int(self._records, at, self._message_flag)
        at = _put_long(self._records, at, lane.first + lane.count)
        at = _put_long(self._records, at, self._at)
        at = _put_int(self._records, at, self._sys_flag)
        at = _put_long(self._records, at, self._born)
        at = _copy(self._records, at, self._born_host, 0, 8)
        at = _put_long(self._records, at, self._now)
        at = _copy(self._records, at, self._host, 0, 8)
        at = _put_int(self._records, at, self._reconsumed)
        at = _put_long(self._records, at, 0)
        at = _put_int(self._records, at, end - body)
        at = _copy(self._records, at, self._d, body, end - body)
        self._records[at] = name
        at = _copy(self._records, at + 1, lane.name, 0, name)
        self._records[at], self._records[at + 1] = self._q_end >> 8, self._q_end & 0xFF
        self._records_end = _copy(self._records, at + 2, self._q, 0, self._q_end)
        return self._records_end

    def _put_unit(self, lane: Lane, size: int) -> int:
        at = _put_long(lane.space, lane.count * UNIT_BYTES, self._at)
        at = _put_int(lane.space, at, size)
        code = _hash(self._q, self._tag_at, self._tag_end, 0)  # 0 when there is no tag
        return _put_long(lane.space, at, (code ^ SIGN) - SIGN)  # signed

    def _put_entries(self, lane: Lane) -> int:
        """As `store.dispatch.key_hashes`: the unique key, each of the keys, the tag as `T#tag`."""
        at = self._keys_at
        self._put_entry(_hash(self._q, self._unique_at, self._unique_end, lane.seed))
        while 0 <= at < self._keys_end:
            end = at
            while end < self._keys_end and self._q[end] != 32:
                end += 1
            if end > at:
                self._put_entry(_hash(self._q, at, end, lane.seed))
            at = end + 1
        if self._tag_at >= 0:
            seed = _hash(INDEXED_TAG, 0, len(INDEXED_TAG), lane.seed)
            self._put_entry(_hash(self._q, self._tag_at, self._tag_end, seed))
        return self._entries_end

    def _put_entry(self, key_hash: int) -> int:
        if key_hash & SIGN:
            key_hash = (0 - key_hash) & INT_MAX
        at = _put_int(self._entries, self._entries_end, key_hash)
        self._entries_end = _put_long(self._entries, at, self._at)
        return self._entries_end

    def _put_answer(self, lane: Lane) -> int:
        begin = self._answers_end
        at = _copy(self._answers, begin + 8, self._answer_0, 0, len(self._answer_0))
        for shift in range(60, -4, -4):
            self._answers[at] = HEX[(self._at >> shift) & 15]
            at += 1
        at = _copy(self._answers, at, self._answer_1, 0, len(self._answer_1))
        at = _put_digits(self._answers, at, self._queue_id)
        at = _copy(self._answers, at, self._answer_2, 0, len(self._answer_2))
        at = _put_digits(self._answers, at, lane.first + lane.count)
        at = _copy(self._answers, at, self._answer_3, 0, len(self._answer_3))
        at = _copy(self._answers, at, self._q, self._unique_at, self._unique_end - self._unique_at)
        at = _copy(self._answers, at, self._answer_4, 0, len(self._answer_4))
        at = _put_digits(self._answers, at, self._opaque)
        at = _copy(self._answers, at, self._answer_5, 0, len(self._answer_5))
        _put_int(self._answers, begin, at - begin - 4)
        _put_int(self._answers, begin + 4, at - begin - 8)
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


def _longer(old: memoryview, least: int) -> memoryview:
    """A buffer of at least `least` bytes, and twice as long as the old one, with its content."""
    new = memoryview(bytearray(max(least, 2 * len(old))))
    new[: len(old)] = old
    return new


def _hash(d: memoryview, at: int, end: int, seed: int) -> int:
    """Java's `String.hashCode` of ASCII, going on from that of what stands before."""
    while at < end:
        seed = (seed * 31 + d[at]) & MASK
        at += 1
    return seed


def _lane_key(d: memoryview, at: int, end: int, queue_id: int) -> int:
    """FNV-1a of a queue's name. Two queues may share it: then the sends to one of them are not plain."""
    key = (queue_id & MASK) + 2166136261
    while at < end:
        key = ((key ^ d[at]) * 16777619) & MASK
        at += 1
    return key


def _hex(c: int) -> int:
    """The value of a hex digit; 64 for what is none."""
    return c - 48 if 48 <= c <= 57 else c - 87 if 97 <= c <= 102 else c - 55 if 65 <= c <= 70 else 64


# ---- index and pulls ----


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


def gather(
    units: memoryview, window: memoryview, base: int, most: int, most_bytes: int, piece_bytes: int
) -> tuple[int, int, bytearray] | None:
    """The records of consume queue units in one piece: how many, where the last one begins, and their bytes. The first
    one comes whatever the limits are. `window` shows the log from `base` on. None when that is more than `piece_bytes`,
    or a unit does not fit the window."""
    count = total = 0
    last = end = base
    for at in range(0, len(units) - UNIT_BYTES + 1, UNIT_BYTES):
        offset, size = _get_int(units, at) << 32 | _get_int(units, at + 4), _get_int(units, at + 8)
        if count and (count >= most or total + size > most_bytes):
            break
        if offset < end or size <= 0 or size > piece_bytes - total or offset - base > len(window) - size:
            return None
        last, end = offset, offset + size
        total += size
        count += 1
    found = bytearray(total)
    _fill(memoryview(found), units, window, base, count)
    return count, last, found


def _fill(out: memoryview, units: memoryview, window: memoryview, base: int, count: int) -> int:
    """Copy the records of the first `count` units."""
    at = 0
    for i in range(count):
        offset = _get_int(units, UNIT_BYTES * i) << 32 | _get_int(units, UNIT_BYTES * i + 4)
        at = _copy(out, at, window, offset - base, _get_int(units, UNIT_BYTES * i + 8))
    return at
