# cython: language_level=3, annotation_typing=False, infer_types=True
# cython: wraparound=False, initializedcheck=False, cdivision=True, embedsignature=True
"""Answers to pulls: from the frames of a read to the bytes that answer them, in one call.

`take` answers the pulls that stand one behind the other, as far as each repeats a prepared one whose checks still
count: it finds the queue's units, chooses by tag and by properties, and puts the records behind an answer's header. At
the first frame of another kind, and at each pull that needs more (it has to wait, to be refused, or to be fetched), it
stops, and has changed nothing for it.

    begin (what holds for all pulls until something else is handled) → take … take → let_go

Up to COPY_BYTES the records are copied behind the header. Above it, an answer is a list of pieces of the log's pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

from perseid.base.machine import Buffer
from perseid.core.layout import EXTENDED_MAX, HEADER_BINARY, LOW, NEXT, OPAQUE, TERM_WORK, UNIT_BYTES
from perseid.core.properties import Properties
from perseid.core.pulls import Pulls

compiled = not __file__.endswith(".py")

MAX_PLACES = 1024
"""Records of one answer."""
COPY_BYTES = 32 * 1024
"""Records of up to this size together are copied; above it, pieces of the log cost less (docs/performance.md)."""
PIECES_BYTES = 8 * 1024 * 1024
"""Records of one answer, whatever the limits are; what is larger is left to the ordinary handler."""
MAX_HEAD_BYTES = 2048
"""Of an answer up to its records, in front of its numbers."""
NUMBER_BYTES = 24
"""What a number needs at most, with its length."""
SPAN_BYTES = 1 << 20
"""Where properties are looked at, the records of one answer stand within so much of the log, if it may be on disk."""
NO_VIEW = memoryview(b"")

Wants = Callable[[Callable[[str], str | None]], bool]
"""Whether a message is wanted, whose properties can be asked for by name."""


class Head:
    """An answer up to its records: texts, with a number behind each but the last one."""

    def __init__(self, texts: Sequence[bytes], numbers: Sequence[int], ext_at: int) -> None:
        """`numbers`: which stands behind which text. `ext_at`: where a binary header has the length of its ext fields,
        in which the three offsets' digits are not counted yet; there the opaque is 4 bytes, and an offset has its
        length before it. 0: the header is JSON."""
        assert len(texts) == len(numbers) + 1, f"{len(texts)} texts around {len(numbers)} numbers"
        assert sum(map(len, texts)) <= MAX_HEAD_BYTES, "too long a header for an answer"
        self._data = memoryview(b"".join(texts))
        self._ends = memoryview(bytearray(8 * len(texts))).cast("q")
        self._numbers = memoryview(bytearray(8 * len(texts))).cast("q")
        self._count = len(numbers)
        self._ext_at = ext_at
        end = 0
        for i, text in enumerate(texts):
            end += len(text)
            self._ends[i] = end
        for i, number in enumerate(numbers):
            self._numbers[i] = number

    def put(self, out: memoryview, opaque: int, next_offset: int, low: int, high: int, total: int) -> int:
        """Write it, for an answer with `total` bytes of records; its length."""
        at = 8
        begin = ext = value = 0
        binary = self._ext_at > 0
        for i in range(self._count):
            at = _copy(out, at, self._data, begin, self._ends[i] - begin)
            begin = self._ends[i]
            number = self._numbers[i]
            if number == OPAQUE:
                at = _put_int(out, at, opaque) if binary else _put_digits(out, at, opaque)
                continue
            value = next_offset if number == NEXT else low if number == LOW else high
            start = at + 4 if binary else at
            at = _put_digits(out, start, value)
            if binary:
                _put_int(out, start - 4, at - start)
                ext += at - start
        at = _copy(out, at, self._data, begin, self._ends[self._count] - begin)
        _put_int(out, 0, at - 4 + total)
        _put_int(out, 4, at - 8)
        if binary:
            out[4] = HEADER_BINARY
            ext += _int_at(out, self._ext_at)
            _put_int(out, self._ext_at, ext)
        return at


class Prepared:
    """What the checks of one pull came to. Pulls like it count themselves here until the statistics hear of them."""

    def __init__(
        self, generation: int, until: int, queue: Any, topic: Any, group: Any, names: tuple[str, str, int],
        found: Head, missed: Head,
    ) -> None:  # fmt: skip
        """`topic` and `group`: the rows of tables. `names`: topic, group, queue id. `until`: when the checks have to be
        made again."""
        self.generation, self.until = generation, until
        self.queue, self.topic, self.group = queue, topic, group
        self.topic_name, self.group_name, self.queue_id = names
        self.key = self.topic_name, self.queue_id
        self.found, self.missed = found, missed
        self.code = 0
        """Of the request."""
        self.commits = False
        """Does each pull tell how far the group has consumed?"""
        self.most = self.most_bytes = self.scan = 0
        """Messages and bytes of an answer, and units that are looked at for it."""
        self.codes: Set[int] | None = None
        """Of tags; None: all."""
        self.wants: Wants | None = None
        """Of properties; None: all."""
        self.terms = 0
        """Of which `wants` is made."""
        self.signed: Any = None
        """Where pulls have to be signed: by whom, and what."""
        self.pulls = self.messages = self.misses = 0
        """Answered with messages, those messages, and answered without; since they were last told."""


class Limits:
    """What holds for all pulls of a turn: `hot_from` and `memory_from` are offsets of the log, from which on nobody is
    asked what is in memory, and from which on the limits of what is in memory count."""

    def __init__(self, hot_from: int, memory_from: int, log_end: int, most: int, most_bytes: int) -> None:
        self.hot_from, self.memory_from, self.log_end = hot_from, memory_from, log_end
        self.most, self.most_bytes = most, most_bytes


class Answers(Pulls):
    """The answers of one broker."""

    def __init__(
        self, signed: bool, queues: dict[Any, Any], topics: dict[str, Any], groups: dict[str, Any],
        admits: Callable[[Prepared], bool], commit: Callable[[Prepared, int], Any],
        pulled: Callable[[str, str, int, int], Any],
    ) -> None:  # fmt: skip
        """`queues`, `topics`, `groups`: always the same tables. `admits`: may the one who signed the pull that was
        found? `commit`: its group has consumed up to an offset. `pulled`: it was given the messages below one."""
        super().__init__(signed)
        self._queues, self._topics, self._groups = queues, topics, groups
        self._admits, self._commit, self._pulled = admits, commit, pulled
        self.out: list[Buffer] = []
        """The answers of the last `take`, in their order."""
        self.uncounted: list[Prepared] = []
        """Those whose pulls the statistics have not heard of."""
        self._generation = self._now = 0
        self._log: Any = None
        self._limits = Limits(0, 0, 0, 0, 0)
        self._view: Any = NO_VIEW
        self._window = NO_VIEW
        self._base = 0
        """Of the window, in the log."""
        self._units = NO_VIEW
        self.count = self.scanned = self.total = self.reach = 0
        """Records that were gathered, units that were looked at for them, the records' bytes, and where in the log they
        end."""
        self.work = 0
        """What looking at their properties cost (`broker.consume.filter.Work`)."""
        self._properties = Properties()
        self._places = memoryview(bytearray(8 * MAX_PLACES)).cast("q")
        self._sizes = memoryview(bytearray(8 * MAX_PLACES)).cast("q")
        self._head_bytes = bytearray(MAX_HEAD_BYTES + 4 * NUMBER_BYTES)
        self._made = memoryview(self._head_bytes)

    def begin(self, generation: int, now: int, log: Any, limits: Limits) -> None:
        """Pulls come, for which this holds. `log`: the segments of the log."""
        self._generation, self._now = generation, now
        self._log, self._limits = log, limits

    def let_go(self) -> None:
        """Something else comes: the log's pages belong to it."""
        self._properties.let_go()
        self._view, self._window = NO_VIEW, NO_VIEW
        self._units = NO_VIEW
        self._base = 0

    def take(self, data: Buffer, at: int, work_left: int, most_work: int) -> int:
        """Answer the pulls that stand one behind the other from `at` on: where the first one is that has to be looked
        at otherwise, whose `keys` there are; or the end of the read. Their answers are in `out`. `work_left`: what
        looking at properties may cost for all, `most_work`: for one."""
        total = self._look_at(data)
        self.work = 0
        self.out = []
        self.keys = ()
        try:
            while at < total:
                found = self._find(at, total)
                if found is None or not self._answer(found, min(most_work, work_left - self.work)):
                    break
                at = self.end
                self.keys = ()
        finally:
            self._let_go()
        return at

    # ---- one pull ----

    def _answer(self, one: Prepared, most_work: int) -> bool:
        """Answer the pull that was found; False when that can't be done here, and nothing has changed."""
        queue: Any = one.queue
        low, high, limit = queue.min, queue.end, queue.limit
        if limit < high:
            high = limit
        if (
            one.generation != self._generation
            or self._now >= one.until
            or self._queues.get(one.key) is not queue
            or self._topics.get(one.topic_name) is not one.topic
            or self._groups.get(one.group_name) is not one.group
            or (one.wants is not None and most_work <= 0)
            or (self._must_sign and not self._admits(one))
        ):
            return False
        offset = self.queue_offset
        if not low <= offset < high or not self._find_records(one, offset, min(one.scan, high - offset), most_work):
            return False
        if one.commits and self.commit_offset >= 0:
            self._commit(one, self.commit_offset)
        if not one.pulls and not one.misses:
            self.uncounted.append(one)
        offset += self.scanned
        if self.count:
            one.pulls += 1
            one.messages += self.count
            self._pulled(one.topic_name, one.group_name, one.queue_id, offset)
            self._put(one.found.put(self._made, self.opaque, offset, low, high, self.total))
        else:
            one.misses += 1
            self._put(one.missed.put(self._made, self.opaque, offset, low, high, self.total))
        return True

    def _find_records(self, one: Prepared, offset: int, count: int, most_work: int) -> bool:
        """Find what answers a pull among the units from this one on; False when they are not in memory, or not
        sound."""
        limits, segments = self._limits, one.queue.segments
        is_hot = limits.hot_from <= 0
        if not is_hot and segments.cold(offset * UNIT_BYTES, count * UNIT_BYTES):
            return False
        self._units = segments.view(offset * UNIT_BYTES, count * UNIT_BYTES)
        if len(self._units) < UNIT_BYTES:
            return False
        first = _long_at(self._units, 0)
        if not limits.memory_from <= first < limits.log_end or not self._open_window(first):
            return False
        room = len(self._window)
        if one.wants is not None and first < limits.hot_from:  # any of them may be looked at
            room = min(room, first - self._base + SPAN_BYTES)
            if self._log.cold(first, room - (first - self._base)):
                return False
        most, most_bytes = min(one.most, limits.most), min(one.most_bytes, limits.most_bytes)
        if not self._gather(one, first, room, most, most_bytes, most_work):
            return False
        return is_hot or not self.count or first >= limits.hot_from or not self._log.cold(first, self.reach - first)

    def _open_window(self, first: int) -> bool:
        """Look at the log's file that has the record at this offset; False when none has it."""
        if self._base <= first < self._base + len(self._window):
            return True
        start = self._log.start_of(first)
        if start is None:
            return False
        self._properties.let_go()
        self._view = self._log.view(start, self._limits.log_end - start)
        self._window = self._view
        self._base = start
        return first < self._base + len(self._window)

    def _gather(self, one: Prepared, first: int, room: int, most: int, most_bytes: int, most_work: int) -> bool:
        """Choose records by their units, and by their properties, as many as the limits allow; the first one comes
        whatever they are. False when a unit does not fit the log, or they are more than one answer may have here."""
        end = first
        base = self._base
        spent = 0
        codes, wants = one.codes, one.wants
        self.count = self.scanned = self.total = 0
        if wants is not None:
            self._properties.look_into(self._view)
        for at in range(0, len(self._units) - UNIT_BYTES + 1, UNIT_BYTES):
            start, size = _long_at(self._units, at), _int_at(self._units, at + 8)
            if self.count and (self.count >= most or self.total + size > most_bytes):
                break
            self.scanned += 1
            if codes is not None:
                code = _long_at(self._units, at + 12)
                if code > EXTENDED_MAX and code not in codes:
                    continue
            if start < end or size == 0 or size > PIECES_BYTES - self.total or start - base > room - size:
                return False
            if self.count >= MAX_PLACES:
                return False
            if wants is not None:
                if spent >= most_work and self.scanned > 1:
                    self.scanned -= 1
                    break
                if not self._properties.record(start - base, size):
                    return False
                spent += one.terms * (TERM_WORK + self._properties.size())
                if not wants(self._properties):
                    continue
            self._places[self.count], self._sizes[self.count] = start - base, size
            self.count += 1
            self.total += size
            end = start + size
        self.reach = end
        self.work += spent
        return self.scanned > 0

    # ---- the bytes ----

    def _put(self, size: int) -> int:
        """Put the records behind the header that was written, and the whole to `out`."""
        if self.total > COPY_BYTES:
            self.out.append(bytes(self._head_bytes[:size]))
            return self._put_pieces()
        made: Any = bytearray(size + self.total)
        self._fill(made, size)
        self.out.append(made)
        return 1

    def _fill(self, out: memoryview, size: int) -> int:
        """Copy the header and the records."""
        at = _copy(out, 0, self._made, 0, size)
        for number in range(self.count):
            at = _copy(out, at, self._window, self._places[number], self._sizes[number])
        return at

    def _put_pieces(self) -> int:
        """Records that are neighbours in the log are one piece."""
        begin = end = self._places[0]
        for number in range(self.count):
            if self._places[number] != end:
                self.out.append(self._view[begin:end])
                begin = self._places[number]
            end = self._places[number] + self._sizes[number]
        self.out.append(self._view[begin:end])
        return self.count


def _int_at(data: memoryview, at: int) -> int:
    """4 bytes, without a sign."""
    first = data[at]
    return first << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]


def _long_at(data: memoryview, at: int) -> int:
    """8 bytes, with a sign."""
    number = _int_at(data, at)
    if number >= 1 << 31:
        number -= 1 << 32
    return number << 32 | _int_at(data, at + 4)


def _put_int(out: memoryview, at: int, number: int) -> int:
    """Write 4 bytes; where the next ones go."""
    out[at], out[at + 1] = (number >> 24) & 0xFF, (number >> 16) & 0xFF
    out[at + 2], out[at + 3] = (number >> 8) & 0xFF, number & 0xFF
    return at + 4


def _put_digits(out: memoryview, at: int, number: int) -> int:
    """Write a number; where it ends."""
    if number < 0:
        out[at] = 45
        at += 1
        number = -number
    rest, end = number, at + 1
    while rest >= 10:
        rest //= 10
        end += 1
    for i in range(end - 1, at - 1, -1):
        out[i] = 48 + number % 10
        number //= 10
    return end


def _copy(out: memoryview, at: int, data: memoryview, begin: int, count: int) -> int:
    """Put `count` bytes of `data` to `at`; where they end."""
    for i in range(count):
        out[at + i] = data[begin + i]
    return at + count
