"""Stamps, by which a reader of a queue tells a message from its repeat. Pure: no I/O, no clock.

A writer that starts over after a crash sends again what it does not know to be stored. The stamp is one property:

    PERSEID_STAMP = writer:batch:lane:layout:home:since:sequence:digest

    writer, batch  what is written: a query and its micro-batch
    lane           the part of the batch: a Spark partition, with `.level` for delayed messages
    layout         CRC of the names of all queues that the batch is spread over
    home           CRC of the name of the queue; elsewhere the stamp says nothing (the message was copied)
    since          an offset of this queue; nothing of the batch is stored below it
    sequence       0, 1, 2, … for the (writer, batch, lane, layout) in this queue
    digest         CRC over the bodies and properties of all of these up to and with this one

What writers promise: each attempt at a batch sends the same messages in the same order, sequence 0 first, and the
next batch begins when all lanes of this one are stored whole. Then the first copies of a queue's messages come in
the order of (batch, sequence), whatever attempts interleave: one that stands at or below the highest (batch,
sequence) seen is a repeat, and one *mark* for each (writer, lane, layout) is all that a reader has to remember.

A reader that begins in the middle of a queue knows no marks. It learns them by reading back from where it began
(its *floor*) to the stamp's `since`, and only if that is lower. So nothing has to be kept when a reader ends.

The digest finds a writer that broke its promise: another order gives another digest at the same sequence.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar
from zlib import crc32

from perseid.client.errors import ClientError
from perseid.client.model import DLQ_PREFIX, RETRY_PREFIX, MessageQueue, ReceivedMessage

STAMP = "PERSEID_STAMP"
MAX_WRITER_CHARS = 64
MAX_STAMP_CHARS = 256
MAX_NUMBER = 2**63 - 1
MAX_MARKS = 10_000
"""Writers' lanes remembered for each queue; the one that was silent for longest is forgotten first, and its marks
are read back if it speaks again."""
MAX_LOOK_BACK = 1_000_000
"""Offsets below its floor that a reader reads back at most; a repeat of something older is not recognised."""


class RepeatsDiffer(ClientError):
    """A batch was written again with other messages, or in another order: repeats can't be told from new messages."""


class Stamp(NamedTuple):
    """What a stamp says."""

    writer: str
    batch: int
    lane: str
    layout: str
    home: str
    since: int
    sequence: int
    digest: str


class Placed(NamedTuple):
    """What of a message tells whether it is a repeat: its place in its queue, and its stamp."""

    queue_offset: int
    stamp: str | None


M = TypeVar("M", ReceivedMessage, Placed)
Lane = tuple[str, str, str]
"""writer, lane, layout"""


def home_of(queue: MessageQueue) -> str:
    """The short name of a queue in stamps."""
    return f"{crc32(str(queue).encode()):08x}"


def layout_of(queues: Iterable[MessageQueue]) -> str:
    """The short name of a set of queues in stamps."""
    return f"{crc32(' '.join(sorted(map(str, queues))).encode()):08x}"


def parse(text: str) -> Stamp | None:
    """A stamp; None for what is none (anyone may set a property of that name)."""
    parts = text.split(":") if len(text) <= MAX_STAMP_CHARS else []
    if len(parts) != len(Stamp._fields):
        return None
    writer, batch, lane, layout, home, since, sequence, digest = parts
    if not (batch.isdecimal() and since.isdecimal() and sequence.isdecimal() and batch.isascii()):
        return None
    stamp = Stamp(writer, int(batch), lane, layout, home, int(since), int(sequence), digest)
    return None if max(stamp.batch, stamp.since, stamp.sequence) > MAX_NUMBER else stamp


def runs(messages: Iterable[Placed]) -> list[list[Placed]]:
    """Messages in their order, cut into runs: of one lane and batch, each with a higher sequence than the one before.

    Of a run the first is fresh only if all of it is, and its last leaves the mark. So a reader has to look at the
    others only where the first is a repeat.
    """
    found: list[list[Placed]] = []
    prefix, highest = "", -1
    for one in messages:
        text = one.stamp or ""
        if prefix and text.startswith(prefix) and len(text) <= MAX_STAMP_CHARS:
            sequence, _, digest = text[len(prefix) :].partition(":")
            number = int(sequence) if sequence.isascii() and sequence.isdecimal() and ":" not in digest else -1
            if highest < number <= MAX_NUMBER:
                highest = number
                found[-1].append(one)
                continue
        stamp = parse(text)
        prefix, highest = "", -1
        if stamp is not None:
            prefix, highest = text[: text.rindex(":", 0, text.rindex(":")) + 1], stamp.sequence
        found.append([one])
    return found


class _Mark(NamedTuple):
    """The highest place of a lane that was seen; `differs` once its repeats were found to be something else."""

    batch: int
    sequence: int
    digest: str
    differs: bool = False


class Repeats:
    """One reader's view of one queue: which messages came already.

    For each list of messages, in order: read what `look_back` names, give it to `learn` and `learnt`, then ask for
    what is `fresh`.
    `begin` is the offset at which the reader begins. Retry topics and dead letters hold copies in an order of their
    own: nothing is dropped there.
    """

    def __init__(self, queue: MessageQueue, begin: int, *, strict: bool = False, max_marks: int = MAX_MARKS) -> None:
        self._home = "" if queue.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else home_of(queue)
        self._queue = queue
        self._strict = strict
        self._max_marks = max_marks
        self._marks: OrderedDict[Lane, _Mark] = OrderedDict()
        self._wanted: set[Lane] = set()
        """The lanes that are being looked back for."""
        self._floor = begin
        """No message from here on is of a lane that was met and has no mark."""
        self._seen = begin
        self._whole = True
        """No lane was passed over while looking back."""
        self._lowest = max(0, begin - MAX_LOOK_BACK)
        self.dropped = 0
        self.differing = 0
        """Messages that stood where another one is remembered."""

    def look_back(self, messages: Sequence[ReceivedMessage] | Sequence[Placed]) -> tuple[int, int] | None:
        """Offsets [start, end) that have to be learnt before `fresh(messages)`; None: nothing."""
        if self._floor <= self._lowest:
            return None
        lowest = self._floor
        self._wanted, self._whole = set(), True
        for message in messages:
            stamp = self._stamp(message)
            if stamp is not None and stamp.since < self._floor:
                lane = (stamp.writer, stamp.lane, stamp.layout)
                mark = self._marks.get(lane)
                if mark is None or mark.batch < stamp.batch:
                    lowest = min(lowest, stamp.since)
                    self._wanted.add(lane)
        if lowest == self._floor:
            return None
        return max(lowest, self._lowest), self._floor

    def learn(self, messages: Iterable[ReceivedMessage]) -> None:
        """Take in messages from before the floor; with the last of them, `learnt` says how far back they reach."""
        for message in messages:
            stamp = self._stamp(message)
            if stamp is not None:
                lane = (stamp.writer, stamp.lane, stamp.layout)
                mark = self._marks.get(lane)
                if mark is None and lane not in self._wanted and len(self._marks) >= self._max_marks:
                    self._whole = False
                elif mark is None or (mark.batch, mark.sequence) < (stamp.batch, stamp.sequence):
                    self._remember(lane, _Mark(stamp.batch, stamp.sequence, stamp.digest))

    def learnt(self, start: int) -> None:
        """All messages from `start` to the floor have been given to `learn`."""
        if self._whole:
            self._floor = min(self._floor, start)

    def fresh(self, messages: Sequence[M]) -> list[M]:
        """The messages that did not come already; RepeatsDiffer with `strict` when that can't be told."""
        found = []
        for message in messages:
            if self._is_fresh(message):
                found.append(message)
            self._seen = message.queue_offset + 1
        return found

    def repeated(self, cut: Iterable[Sequence[Placed]]) -> set[int]:
        """The offsets of those messages of `runs` that came already. As `fresh`, but a run that is new costs little."""
        found: set[int] = set()
        for run in cut:
            if self.fresh(run[:1]):
                if len(run) > 1:
                    self.fresh(run[-1:])
            else:
                found |= {one.queue_offset for one in run} - {one.queue_offset for one in self.fresh(run[1:])}
        return found

    def _is_fresh(self, message: ReceivedMessage | Placed) -> bool:
        stamp = self._stamp(message)
        if stamp is None:
            return True
        lane = (stamp.writer, stamp.lane, stamp.layout)
        mark = self._marks.get(lane)
        if mark is None or (stamp.batch, stamp.sequence) > (mark.batch, mark.sequence):
            differs = mark is not None and mark.differs and mark.batch == stamp.batch
            self._remember(lane, _Mark(stamp.batch, stamp.sequence, stamp.digest, differs))
            return True
        if (stamp.batch, stamp.sequence) == (mark.batch, mark.sequence) and stamp.digest != mark.digest:
            self.differing += 1
            self._marks[lane] = mark._replace(differs=True)
            if self._strict:
                raise RepeatsDiffer(
                    f"{self._queue}: offset {message.queue_offset} is message {stamp.sequence} of lane {stamp.lane} of"
                    f" batch {stamp.batch} of {stamp.writer}, as was an earlier one, but what was sent differs: the"
                    " batch was run again in another order. Write with the option sequenceBy, and read this with"
                    " dedupe=false"
                )
        elif not (mark.differs and mark.batch == stamp.batch):
            self.dropped += 1
            return False
        return True

    def _remember(self, lane: Lane, mark: _Mark) -> None:
        self._marks[lane] = mark
        self._marks.move_to_end(lane)
        if len(self._marks) > self._max_marks:
            self._marks.popitem(last=False)
            self._whole = False
            self._floor = max(self._floor, self._seen)
            self._lowest = max(self._lowest, self._floor - MAX_LOOK_BACK)

    def _stamp(self, message: ReceivedMessage | Placed) -> Stamp | None:
        text = message.stamp if isinstance(message, Placed) else message.record.props.get(STAMP)
        if text is None:
            return None
        stamp = parse(text)
        return stamp if stamp is not None and stamp.home == self._home else None
