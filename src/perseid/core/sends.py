# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""What a send's frame says: its header, in both forms, and the properties of its messages.

A send is plain when nothing of it has to be looked at by the ordinary handler: known fields of the usual kinds, in
ASCII, each once; properties of which none changes what is stored (`wire.properties.CHANGING_NAMES`).
"""

from __future__ import annotations

from perseid.core.layout import APART, HEADER_BYTES, HEADER_JSON, MAX_TEXT_BYTES, PLAIN_SYS_FLAGS
from perseid.core.signers import SignedReader
from perseid.wire import properties as props
from perseid.wire.headers.send import SEND_FIELDS
from perseid.wire.record import MAX_PROPERTIES_BYTES

compiled = not __file__.endswith(".py")

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
MAX_DIGITS = 15

CHANGING_NAMES = tuple([name.encode() for name in props.CHANGING_NAMES])

LONG_NAMES = tuple([name.encode() for _, name, _ in SEND_FIELDS])
"""The fields of code 10, in the order of their letters in code 310."""
FIRST_LETTER, FIELDS = ord("a"), len(SEND_FIELDS)
REQUIRED = sum(1 << at for at, (_, _, required) in enumerate(SEND_FIELDS) if required)
"""Bits of the fields that each send has."""
TOPIC, QUEUE_ID, SYS_FLAG, BORN, FLAG, PROPERTIES, RECONSUMED, UNIT_MODE, MANY, QUEUE_NUMS, MOST_RECONSUMED = [
    LONG_NAMES.index(name)
    for name in (
        b"topic", b"queueId", b"sysFlag", b"bornTimestamp", b"flag", b"properties", b"reconsumeTimes", b"unitMode",
        b"batch", b"defaultTopicQueueNums", b"maxReconsumeTimes",
    )
]  # fmt: skip
"""Numbers of those that are looked at."""
assert "".join([letter for letter, _, _ in SEND_FIELDS]) == "abcdefghijklmn"[:FIELDS], "letters in a row"


class SendReader(SignedReader):
    """Reads one send after the other. `_q` holds properties: those of the header, then those of a batch's messages."""

    def __init__(self, own_properties: bytes, sync: bool, signed: bool) -> None:
        super().__init__(signed)
        self._own, self._sync = memoryview(own_properties), sync
        self._q = memoryview(bytearray(MAX_PROPERTIES_BYTES + 1))
        self._q_end = self._code = self._flag = self._opaque = self._fields = 0
        self._topic_at = self._topic_end = self._queue_id = self._sys_flag = 0
        self._born = self._message_flag = self._reconsumed = self._is_batch = 0
        self._unique_at = self._unique_end = self._tag_at = self._tag_end = self._keys_at = self._keys_end = 0

    def _read_send(self) -> bool:
        """Read the header of the frame that was opened, and its properties; False when it is no plain send's."""
        if not (self._read_json(self._head, self._body) if self._serializer == HEADER_JSON else self._read_binary()):
            return False
        if (self._flag != 0 and self._flag != 2) or self._fields & REQUIRED != REQUIRED:
            return False
        return self._is_batch == (self._code == 320) and self._read_properties()

    def _read_json(self, at: int, end: int) -> bool:
        """Read the JSON header; False when it is none of a send. `code` comes before `extFields`, as in all clients."""
        p = at + 1
        number = 0
        self._code = self._flag = self._opaque = self._fields = 0
        self._begin_pieces()
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
                if self._code != 310 and self._code != 10 and self._code != 320:
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
        return p + 1 == end

    def _read_binary(self) -> bool:
        """Read the binary header; False when it is none of a send."""
        at = self._head
        if not self._pairs():
            return False
        self._fields = self._q_end = self._reconsumed = self._is_batch = 0
        self._code, self._opaque, self._flag = self._short(at), self._signed(at + 5), self._signed(at + 9)
        if self._code != 310 and self._code != 10 and self._code != 320:
            return False
        at += HEADER_BYTES
        self._begin_pieces()
        while at < self._body:
            value = self._pair(at)
            if value < 0:
                return False
            end = self._stop
            if self._must_sign and not self._add_piece(at + 2, value - 4, value, end):
                return False
            letter = self._letter(at + 2, value - 4)
            if not self._first(letter) or (letter == PROPERTIES and not self._take_properties(value, end)):
                return False
            if not self._read_field(letter, value, end):
                return False
            at = end
        return True

    def _first(self, letter: int) -> bool:
        """Has this field not been there yet?"""
        if letter < FIELDS:
            if self._fields & (1 << letter):
                return False
            self._fields |= 1 << letter
        return True

    def _read_fields(self, p: int, end: int) -> int:
        """Read the ext fields, whose object begins at `p`: one past its end, -1 when a plain send has other ones."""
        self._q_end = self._reconsumed = self._is_batch = 0
        if self._d[p] != 123 or self._fields or self._pieces_count:
            return -1
        while True:
            name = p + 2
            p = self._name_end(p + 1, end)
            if p < 0 or self._d[p + 2] != 34:
                return -1
            letter = self._letter(name, p)
            p += 3
            if not self._first(letter):
                return -1
            stop = self._unescape(p, end) if letter == PROPERTIES else self._text_end(p, end)
            if stop < 0 or not self._read_field(letter, p, stop):
                return -1
            if self._must_sign and not self._add_piece(name, p - 3, APART if letter == PROPERTIES else p, stop):
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
        if letter == TOPIC:
            self._topic_at, self._topic_end = at, end
        elif letter == MANY:
            self._is_batch = self._is(at, end - at, b"true")
            return self._is_batch or self._is(at, end - at, b"false")
        elif letter == UNIT_MODE:
            return self._is(at, end - at, b"false")
        elif letter == BORN:
            self._born = self._number(at, end)
            return self._stop == end
        elif QUEUE_NUMS <= letter <= FLAG or letter in (RECONSUMED, MOST_RECONSUMED):
            number = self._number(at, end)
            if self._stop != end or number < INT_MIN or number > INT_MAX:
                return False
            if letter == QUEUE_ID:
                self._queue_id = number
            elif letter == SYS_FLAG:
                self._sys_flag = number
                return number & ~PLAIN_SYS_FLAGS == 0
            elif letter == FLAG:
                self._message_flag = number
            elif letter == RECONSUMED:
                self._reconsumed = number
        return True

    def _letter(self, at: int, end: int) -> int:
        """Which of the fields a name says, by the request's code; FIELDS for none of them."""
        size = end - at
        if self._code != 10:
            if size != 1 or self._d[at] < FIRST_LETTER or self._d[at] >= FIRST_LETTER + FIELDS:
                return FIELDS
            return self._d[at] - FIRST_LETTER
        for i in range(FIELDS):
            if self._is(at, size, LONG_NAMES[i]):
                return i
        return FIELDS

    # ---- properties ----

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

    def _take_properties(self, at: int, end: int) -> bool:
        """Copy the properties that stand between into `_q`; False when they are too long or not ASCII."""
        n = 0
        if end - at > MAX_PROPERTIES_BYTES - len(self._own):
            return False
        while at < end:
            if self._d[at] > 126:
                return False
            self._q[n] = self._d[at]
            n += 1
            at += 1
        self._q_end = n
        return True

    def _put_apart(self, at: int) -> int:
        """The properties, whose JSON has escapes."""
        if self._q_end > MAX_TEXT_BYTES - at:
            return -1
        for i in range(self._q_end):
            self._text_space[at + i] = self._q[i]
        return at + self._q_end

    def _append_own(self) -> None:
        """Put the broker's own properties behind those of a message that was sent alone."""
        n = self._q_end
        for i in range(len(self._own)):
            self._q[n + i] = self._own[i]
        self._q_end = n + len(self._own)

    def _end_properties(self) -> bool:
        """End the last property of a batch's message, as the store would (store.md §3.7)."""
        if self._q_end == 0:
            return False
        if self._q[self._q_end - 1] != 2:
            self._q[self._q_end] = 2
            self._q_end += 1
        return True

    def _read_properties(self) -> bool:
        """Find unique key, tag and keys; False when they are not plain."""
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
        return self._unique_at >= 0

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
        elif size == 18 and self._says(at, b"_SYS_MSG_PRIORITY_"):
            return False
        elif size >= 5 and 67 <= self._q[at] <= 84:  # C to T
            for i in range(len(CHANGING_NAMES)):
                changing: bytes = CHANGING_NAMES[i]
                if size == len(changing) and self._says(at, changing):
                    return False
        return True

    def _digits(self, at: int, end: int) -> int:
        """The number that the value of a property is; -1 when it is none, or a long one."""
        number = 0
        if at == end or end - at > MAX_DIGITS:
            return -1
        for i in range(at, end):
            if not 48 <= self._q[i] <= 57:
                return -1
            number = number * 10 + (self._q[i] - 48)
        return number

    def _says(self, at: int, text: bytes) -> bool:
        for i in range(len(text)):
            if self._q[at + i] != text[i]:
                return False
        return True


def _hex(c: int) -> int:
    """The value of a hex digit; 64 for what is none."""
    return c - 48 if 48 <= c <= 57 else c - 87 if 97 <= c <= 102 else c - 55 if 65 <= c <= 70 else 64
