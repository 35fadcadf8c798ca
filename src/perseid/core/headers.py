# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""What the header of a send says, in both forms: as `wire.command` and `wire.headers.send` would read it.

Members and fields may stand in any order, with white space between them; unknown ones are passed over. A header that
the ordinary decoder looks at twice (a field stands there twice, a number has a plus) is none of a plain send.
"""

from __future__ import annotations

from perseid.core.layout import APART, HEADER_BYTES, PLAIN_SYS_FLAGS
from perseid.core.texts import TextReader
from perseid.wire.headers.send import SEND_FIELDS

compiled = not __file__.endswith(".py")

INT_MIN, INT_MAX = -(2**31), 2**31 - 1

LONG_NAMES = tuple([name.encode() for _, name, _ in SEND_FIELDS])
"""The fields of code 10, in the order of their letters in code 310."""
FIRST_LETTER, FIELDS = ord("a"), len(SEND_FIELDS)
REQUIRED = sum(1 << at for at, (_, _, required) in enumerate(SEND_FIELDS) if required)
"""Bits of the fields that each send has."""
TOPIC, QUEUE_ID, SYS_FLAG, BORN, FLAG, PROPERTIES, RECONSUMED, MANY, QUEUE_NUMS, MOST_RECONSUMED = [
    LONG_NAMES.index(name)
    for name in (
        b"topic", b"queueId", b"sysFlag", b"bornTimestamp", b"flag", b"properties", b"reconsumeTimes", b"batch",
        b"defaultTopicQueueNums", b"maxReconsumeTimes",
    )
]  # fmt: skip
"""Numbers of those that are looked at."""
assert "".join([letter for letter, _, _ in SEND_FIELDS]) == "abcdefghijklmn"[:FIELDS], "letters in a row"
NULL, WORDS = 4, (b"true", b"false", b"null")
"""The length of this one, which says that a field is not there."""


class HeaderReader(TextReader):
    """Reads one send's header after the other."""

    def __init__(self, own_properties: bytes, signed: bool) -> None:
        super().__init__(own_properties, signed)
        self._code = self._flag = self._opaque = self._fields = 0
        self._topic_at = self._topic_end = self._queue_id = self._sys_flag = 0
        self._born = self._message_flag = self._reconsumed = self._is_batch = 0

    def _read_header(self) -> bool:
        """Read the header of the frame that was opened; False when it is no plain send's."""
        self._code = self._flag = self._opaque = self._fields = 0
        self._q_end = self._said_end = self._reconsumed = self._is_batch = 0
        self._begin_pieces()
        if not (self._read_binary() if self._serializer else self._read_json(self._head, self._body)):
            return False
        if (self._flag != 0 and self._flag != 2) or self._fields & REQUIRED != REQUIRED:
            return False
        return self._is_batch == (self._code == 320)

    def _is_send(self) -> bool:
        """Is the code that of a send?"""
        return self._code == 310 or self._code == 10 or self._code == 320

    # ---- JSON ----

    def _read_json(self, at: int, end: int) -> bool:
        """Read the JSON header; False when it is none of a send."""
        fields = fields_end = 0
        """Where the ext fields stand, when the code comes behind them."""
        p = self._past_spaces(at, end)
        if p >= end or self._d[p] != 123:  # {
            return False
        while True:
            name = self._past_spaces(p + 1, end)
            p = self._member(name, end)
            if p < 0:
                return False
            name += 1
            size = self._stop - name
            if self._is(name, size, b"extFields"):
                if self._code == 0 and fields == 0:
                    fields = p
                    p = fields_end = self._past_fields(p, end)
                elif fields != 0 or not self._is_send():
                    return False
                else:
                    p = self._read_fields(p, end)
            else:
                p = self._read_member(name, size, p, end)
            p = self._past_spaces(p, end) if p > 0 else end
            if p >= end:
                return False
            if self._d[p] == 125:  # }
                break
            if self._d[p] != 44:
                return False
        if fields != 0 and (not self._is_send() or self._read_fields(fields, end) != fields_end):
            return False
        return self._past_spaces(p + 1, end) == end

    def _member(self, at: int, end: int) -> int:
        """Where the value of the member begins whose name stands at `at`, or -1; `_stop` is the name's end."""
        stop = p = 0
        if at >= end or self._d[at] != 34:
            return -1
        stop = self._text_end(at + 1, end)
        if stop <= at + 1:
            return -1
        p = self._past_spaces(stop + 1, end)
        if p >= end or self._d[p] != 58:
            return -1
        p = self._past_spaces(p + 1, end)
        self._stop = stop
        return p if p < end else -1

    def _read_member(self, name: int, size: int, p: int, end: int) -> int:
        """Take in a member of the header other than its fields; one past its value, or -1."""
        number = 0
        is_code = self._is(name, size, b"code")
        is_number = is_code or self._is(name, size, b"opaque") or self._is(name, size, b"flag")
        if not is_number and not self._is(name, size, b"version"):
            if self._d[p] == 34:
                return self._value_end(p + 1, end) + 1
            if self._is(name, size, b"remark"):
                return p + NULL if self._word(p, end) == NULL and self._d[p] == 110 else -1
            return self._bare_end(p, end)
        number = self._number(p, end)
        p = self._stop
        if p < 0 or number < INT_MIN or number > INT_MAX:
            return -1
        if is_code:
            if self._code:
                return -1
            self._code = number
        elif is_number:
            if self._d[name] == 111:  # o
                self._opaque = number
            else:
                self._flag = number
        return p

    def _word(self, at: int, end: int) -> int:
        """How long the word is that stands at `at`: true, false or null; 0: there is none."""
        for word in WORDS:
            if end - at >= len(word) and self._is(at, len(word), word):
                return len(word)
        return 0

    def _bare_end(self, at: int, end: int) -> int:
        """One past the number or the word that stands at `at`, or -1."""
        size = self._word(at, end)
        if size:
            return at + size
        self._number(at, end)
        return self._stop

    def _past_fields(self, at: int, end: int) -> int:
        """One past the object of texts that stands at `at`, or -1."""
        while at < end:
            if self._d[at] == 125:
                return at + 1
            if self._d[at] == 34:
                at = self._value_end(at + 1, end)
                if at < 0:
                    return -1
            at += 1
        return -1

    def _read_fields(self, p: int, end: int) -> int:
        """Read the ext fields, whose object begins at `p`: one past its end, -1 when a plain send has other ones."""
        if self._d[p] != 123 or self._fields or self._pieces_count:
            return -1
        while True:
            name = self._past_spaces(p + 1, end)
            p = self._member(name, end)
            if p < 0:
                return -1
            p = self._read_json_field(name + 1, self._stop, p, end)
            p = self._past_spaces(p, end) if p > 0 else end
            if p >= end:
                return -1
            if self._d[p] == 125:
                return p + 1
            if self._d[p] != 44:
                return -1

    def _read_json_field(self, name: int, name_end: int, at: int, end: int) -> int:
        """Take in the field of this name, whose value begins at `at`: one past that, -1 when it is not plain."""
        letter = self._letter(name, name_end)
        stop = begin = at
        if not self._first(letter):
            return -1
        if self._d[at] == 34:
            begin = at + 1
            stop = self._unescape(begin, end) if letter == PROPERTIES else self._value_end(begin, end)
            at = stop + 1
            if letter == PROPERTIES:
                begin = APART
            elif self._must_sign and self._is_escaped:
                return -1
        else:
            at = stop = self._bare_end(at, end)
            if stop < 0 or letter == PROPERTIES:
                return -1
            if self._d[begin] == 110:  # null: it is not there
                return -1 if letter < FIELDS and REQUIRED & (1 << letter) else stop
        if stop < 0 or not self._read_field(letter, begin, stop):
            return -1
        return at if not self._must_sign or self._add_piece(name, name_end, begin, stop) else -1

    # ---- the binary form ----

    def _read_binary(self) -> bool:
        """Read the binary header; False when it is none of a send."""
        at = self._head
        if not self._pairs():
            return False
        self._code, self._opaque, self._flag = self._short(at), self._signed(at + 5), self._signed(at + 9)
        if not self._is_send():
            return False
        at += HEADER_BYTES
        while at < self._body:
            value = self._pair(at)
            if value < 0:
                return False
            end = self._stop
            if value < end:  # else it is not there
                if self._must_sign and not self._add_piece(at + 2, value - 4, value, end):
                    return False
                letter = self._letter(at + 2, value - 4)
                if not self._first(letter) or (letter == PROPERTIES and not self._take_properties(value, end)):
                    return False
                if not self._read_field(letter, value, end):
                    return False
            at = end
        return True

    # ---- fields ----

    def _first(self, letter: int) -> bool:
        """Has this field not been there yet?"""
        if letter < FIELDS:
            if self._fields & (1 << letter):
                return False
            self._fields |= 1 << letter
        return True

    def _read_field(self, letter: int, at: int, end: int) -> bool:
        """Take in the value of a field; False when a plain send has another one."""
        number = 0
        if letter == TOPIC:
            self._topic_at, self._topic_end = at, end
        elif letter == MANY:
            self._is_batch = self._is(at, end - at, b"true")
            return self._is_batch or self._is(at, end - at, b"false")
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
