"""What clients did and were told, and the promises that follow from it, checked with every new fact.

The history knows nothing of how a broker works. A *value* is 8 unique bytes at the head of a message's body;
a *place* is (topic, queue id, queue offset). The checks:

- a place never changes its value: what was acknowledged there or read there is what is read there later;
- what is read was sent, to this topic and queue, with these very bytes;
- a value is at no more places than it was sent times;
- a pull answers consecutive offsets from where it began, never beyond the maximum that it names;
- a queue's maximum never falls;
- a group's committed offset is one that was committed, and none older than what was promised;
- a message of a transaction is read in its topic only when its producer has said that it is to be committed.

After a power cut, and then only, what had not become durable may be forgotten; `perseid.sim.models.broker.checkers`
decides what that is. Topics whose names begin with `LOOSE` are deleted and made again during a run: of those only the
bytes are checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from perseid.sim.queues import Queues
from perseid.wire.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, retry_topic
from perseid.wire.record import Record

LOOSE = "churn"
HALVES = (HALF_TOPIC, CHECK_MAX_TIME_TOPIC)
VALUE_BYTES = 8
TIMER_LATE_MS = 6_000
"""So long after its time at the latest a message comes, once a broker serves."""
POP_RETRY = retry_topic("poppers")
"""What was popped and not acknowledged stands there, too."""


class Violation(AssertionError):
    """A promise was broken. `invariant` names it."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


def require_linearizable(queues: Queues, counts: Counter[str]) -> None:
    """One order of all that happened explains what clients were told; `counts` gets what was looked at."""
    why = queues.explain()
    counts.update(queues.counts)
    if why:
        raise Violation("linearizable", why)


class Place(NamedTuple):
    """Where a message stands for its readers."""

    topic: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id}@{self.offset}"


@dataclass(slots=True)
class Sent:
    """A message as its producer made it. `queue_id` −1: the broker chose. `ordinal` counts in its order."""

    value: bytes
    body: bytes
    topic: str
    queue_id: int
    producer: str
    ordinal: int
    tag: str | None = None
    key: str | None = None
    delayed: bool = False
    deliver_at: int | None = None
    """By the broker's clock, in milliseconds; None: at once, or after a level's delay."""
    sent_back: bool = False
    """A consumer asked for it again, so it stands in a retry topic, too."""
    commit: bool | None = None
    """Of a message of a transaction: what is to become of it."""
    told: bool = False
    """Its producer has said so."""
    repeats: int = 0
    """How often it may come again, besides: a crash may forget that it was committed."""
    attempts: int = 0
    places: set[Place] = field(default_factory=set)
    acked_at_us: int | None = None

    def may_wait(self, clock_ms: int) -> bool:
        """Is this a message for a time that is not long over?"""
        return self.deliver_at is not None and self.deliver_at + TIMER_LATE_MS >= clock_ms

    def __str__(self) -> str:
        return f"{self.value.decode()} of {self.producer}"


@dataclass(slots=True)
class Stored:
    """A message at a place, and where in the log that is. `sure`: acknowledged with all that the mode has."""

    sent: Sent
    physical: int
    at_us: int
    sure: bool = False


QueueKey: TypeAlias = tuple[str, int]


@dataclass(slots=True)
class Commits:
    """The offsets that one group committed in one queue, in the order of its attempts."""

    attempts: list[int] = field(default_factory=list)
    times_us: list[int] = field(default_factory=list)
    unanswered: set[int] = field(default_factory=set)
    acked: int = -1
    """The last attempt that was answered in the broker's present life."""
    durable: int = -1
    """The last attempt that a completed save holds."""
    ahead: set[int] = field(default_factory=set)
    """Offsets that the client itself took from before a loss, and so beyond its queue's end."""

    def may_be(self, offset: int) -> bool:
        floor = max(self.acked, self.durable)
        return offset in self.attempts[max(floor, 0) :] or any(self.attempts[i] == offset for i in self.unanswered)


class History:
    """All facts of one run."""

    def __init__(self) -> None:
        self.sent: dict[bytes, Sent] = {}
        self.acked: dict[Place, Stored] = {}
        self.read: dict[Place, Stored] = {}
        self.delayed: dict[bytes, Stored] = {}
        """Acknowledged messages with a delay that must come to their topic."""
        self.transactions: list[Sent] = []
        self.halves: dict[bytes, Stored] = {}
        """Acknowledged halves that are to be committed."""
        self.committed_values: set[bytes] = set()
        """Of halves whose commit was acknowledged with all that the mode has."""
        self.max_offsets: dict[QueueKey, int] = {}
        self.commits: dict[tuple[str, str, int], Commits] = {}
        self.takeovers = 0
        self.queues = Queues()
        self._numbers = 0

    # ---- sends ----

    def new(self, topic: str, queue_id: int, producer: str, ordinal: int, size: int, *, tag: str | None = None) -> Sent:
        """A message with a value of its own and a body of `size` bytes."""
        self._numbers += 1
        value = b"%08d" % self._numbers
        body = (value * (size // VALUE_BYTES + 1))[: max(size, VALUE_BYTES)]
        sent = self.sent[value] = Sent(value, body, topic, queue_id, producer, ordinal, tag)
        return sent

    def transaction(self, sent: Sent, *, commit: bool) -> None:
        """A message is about to be sent as a half."""
        sent.commit = commit
        self.transactions.append(sent)

    def acknowledged(self, sent: Sent, place: Place, physical: int, now_us: int, *, sure: bool) -> None:
        """A producer was told where its message is."""
        sent.acked_at_us = now_us if sent.acked_at_us is None else sent.acked_at_us
        stored = Stored(sent, physical, now_us, sure)
        if sent.delayed:
            self.delayed[sent.value] = stored
        elif sent.commit is not None:
            if sent.commit:
                self.halves[sent.value] = stored
        elif not place.topic.startswith(LOOSE):
            if sent.queue_id not in (-1, place.queue_id):
                raise Violation("right queue", f"{sent} was sent to queue {sent.queue_id} and acknowledged at {place}")
            self._at(place, stored)
            before = self.acked.get(place)
            if before is None:
                self.acked[place] = stored
            else:
                before.sure = before.sure or sure
            self.saw_max(place.topic, place.queue_id, place.offset + 1, 0)

    # ---- reads ----

    def saw(self, record: Record, now_us: int) -> Sent:
        """A reader was given a record, wherever it asked for it."""
        value = bytes(record.body[:VALUE_BYTES])
        sent = self.sent.get(value)
        if sent is None:
            raise Violation("nothing invented", f"{value!r} at {record.topic}/{record.queue_id}@{record.queue_offset}")
        if record.body != sent.body:
            raise Violation("exact bytes", f"{sent}: the body of {len(record.body)} bytes is another one")
        if record.topic != sent.topic:
            if record.topic == TIMER_TOPIC and sent.deliver_at is not None:
                return sent
            if record.topic == SCHEDULE_TOPIC and (sent.delayed or sent.sent_back):
                return sent
            if record.topic.startswith(RETRY_PREFIX) and (sent.sent_back or record.topic.startswith(POP_RETRY)):
                return sent
            if record.topic in HALVES and sent.commit is not None:
                return sent
            raise Violation("right topic", f"{sent} was sent to {sent.topic} and read in {record.topic}")
        if sent.commit is not None and not (sent.commit and sent.told):
            what = "rolled back" if sent.told else "open"
            raise Violation("only what is committed is read", f"{sent} is {what}, and read in {record.topic}")
        if sent.queue_id not in (-1, record.queue_id):
            raise Violation("right queue", f"{sent} was sent to queue {sent.queue_id} and read in {record.queue_id}")
        if sent.tag != (record.tag or None):
            raise Violation("exact bytes", f"{sent} was sent with tag {sent.tag} and read with {record.tag}")
        if sent.deliver_at is not None and record.store_timestamp < sent.deliver_at:
            early = sent.deliver_at - record.store_timestamp
            raise Violation("never early", f"{sent} was delivered {early} ms before its time {sent.deliver_at}")
        if not record.topic.startswith(LOOSE):
            place = Place(record.topic, record.queue_id, record.queue_offset)
            stored = Stored(sent, record.physical_offset, now_us)
            self._at(place, stored)
            self.read.setdefault(place, stored)
            if not sent.delayed and len(sent.places) > sent.attempts + sent.repeats:
                places = ", ".join(map(str, sorted(sent.places)))
                raise Violation("no duplicates but by retries", f"{sent}: sent {sent.attempts} times, is at {places}")
        return sent

    def pulled(
        self,
        topic: str,
        queue_id: int,
        asked: int,
        records: Sequence[Record],
        following: int,
        *,
        all_tags: bool,
        log_start: int,
    ) -> None:
        """A pull from `asked` on was answered with these records and the next offset to ask for. What retention
        took away meanwhile (the log begins at `log_start`) may be left out."""
        expected = asked
        for record in records:
            where = f"{topic}/{queue_id}"
            if record.queue_id != queue_id or record.topic != topic:
                raise Violation("right queue", f"a pull of {where} answered {record.topic}/{record.queue_id}")
            if record.queue_offset < expected:
                raise Violation("offsets ascend", f"{where}: {record.queue_offset} after {expected}")
            if all_tags:
                self._left_out(topic, queue_id, expected, record.queue_offset, log_start)
            expected = record.queue_offset + 1
        if records and (following < expected or (all_tags and following != expected)):
            raise Violation("offsets are contiguous", f"{topic}/{queue_id}: next is {following}, read up to {expected}")

    def _left_out(self, topic: str, queue_id: int, begin: int, end: int, log_start: int) -> None:
        """Messages were left out of an answer: they have to be old ones."""
        for offset in range(begin, end):
            place = Place(topic, queue_id, offset)
            stored = self.acked.get(place) or self.read.get(place)
            if not log_start or (stored is not None and stored.physical >= log_start):
                raise Violation("offsets are contiguous", f"{place} is left out; the log begins at {log_start}")

    def known_max(self, topic: str, queue_id: int) -> int:
        """A queue's maximum as far as any client knows: what a request that begins now must be told at least."""
        return self.max_offsets.get((topic, queue_id), 0)

    def saw_max(self, topic: str, queue_id: int, offset: int, floor: int) -> None:
        """A maximum was named, to a request that began when `floor` was known."""
        if topic.startswith(LOOSE):
            return
        known = self.max_offsets.get((topic, queue_id), 0)
        if offset < min(floor, known):
            raise Violation("the maximum never falls", f"{topic}/{queue_id}: {offset} after {floor}")
        self.max_offsets[topic, queue_id] = max(known, offset)

    # ---- offsets of groups ----

    def commit(self, group: str, topic: str, queue_id: int, offset: int, now_us: int) -> tuple[Commits, int]:
        """A group is about to commit; the number of the attempt."""
        commits = self.commits.setdefault((group, topic, queue_id), Commits())
        commits.attempts.append(offset)
        commits.times_us.append(now_us)
        if offset > self.known_max(topic, queue_id):
            commits.ahead.add(offset)
        number = len(commits.attempts) - 1
        commits.unanswered.add(number)
        return commits, number

    def committed(self, group: str, topic: str, queue_id: int, offset: int | None) -> None:
        """The broker told a group's offset (None: there is none)."""
        commits = self.commits.get((group, topic, queue_id))
        if commits is None or topic.startswith(LOOSE):
            return
        floor = max(commits.acked, commits.durable)
        if floor < 0 and offset in (None, 0):
            return
        if offset is None or not commits.may_be(offset):
            allowed = commits.attempts[max(floor, 0) :]
            raise Violation(
                "committed offsets last", f"{group} in {topic}/{queue_id}: {offset}, should be of {allowed}"
            )

    def saved(self, table: dict[str, dict[str, int]], takeovers: int = 0) -> None:
        """A save of the offsets, keyed `topic@group` and queue id, is durable, which began after so many takeovers."""
        if takeovers != self.takeovers:
            return
        for joined, queues in table.items():
            topic, _, group = joined.partition("@")
            for queue_id, offset in queues.items():
                commits = self.commits.get((group, topic, int(queue_id)))
                if commits is not None:
                    for number in range(len(commits.attempts) - 1, commits.durable, -1):
                        if commits.attempts[number] == offset:
                            commits.durable = number
                            break

    def taken_over(self, place: Callable[[str, str, int], tuple[int | None, int]], now_us: int) -> None:
        """The broker goes on with the offsets of another one, which may be older. `place`: topic, group, queue → where
        the group is now, and where the queue ends, which no group is beyond."""
        for (group, topic, queue_id), commits in self.commits.items():
            offset, end = place(topic, group, queue_id)
            if offset not in (*commits.attempts, None, 0, end):
                raise Violation("committed offsets last", f"{group} in {topic}/{queue_id}: {offset} never was")
            if offset is not None:
                commits.attempts.append(offset)
                commits.times_us.append(now_us)
            commits.acked = commits.durable = -1
        self.takeovers += 1

    def life_ended(self, *, crashed: bool = True) -> None:
        """The broker's process is gone, and with it what was acknowledged of commits but not saved."""
        for commits in self.commits.values():
            commits.acked = -1
        if crashed:
            for sent in self.transactions:
                sent.repeats += 1

    # ---- forgetting ----

    def forget(self, places: Iterable[Place], *, lost: bool = True) -> None:
        """These places are gone: with a power cut, so that others may take them, or deleted with their old files."""
        for place in list(places):
            if lost:
                self.queues.lost([(place.topic, place.queue_id)])
            for table in (self.acked, self.read):
                stored = table.pop(place, None)
                if stored is not None and lost:
                    stored.sent.places.discard(place)

    def _at(self, place: Place, stored: Stored) -> None:
        for table in (self.acked, self.read):
            before = table.get(place)
            if before is not None and (before.sent is not stored.sent or before.physical != stored.physical):
                raise Violation(
                    "a place never changes",
                    f"{place}: {before.sent} at {before.physical}, now {stored.sent} at {stored.physical}",
                )
        stored.sent.places.add(place)
