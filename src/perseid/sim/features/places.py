"""What stands in queues, as clients were told: who sends it, and who reads it, of whatever feature.

A place (queue, offset) keeps its message, as long as nothing of what was acknowledged may be lost. Whoever reads from a
place on gets what stands there, in order and without gaps. In the end each message that was acknowledged is where the
answer said; each is there as often as it was sent at most.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence

from perseid.sim.facts import VALUE_BYTES, Sent
from perseid.sim.features.stage import Maker, Member, Stage
from perseid.sim.history import History
from perseid.sim.promises import Violation
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse
from perseid.wire.record import Record, decode_all

GROUP = "feature-readers"
SUBSCRIPTION = 4
READ = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED)  # fmt: skip

Place = tuple[int, int]
"""Queue, offset."""


class Places:
    """What was sent to one topic, and where it is."""

    def __init__(self, stage: Stage, topic: str) -> None:
        self.stage, self.topic = stage, topic
        self.history = History()
        self._at: dict[Place, tuple[bytes, int, int]] = {}
        """Value, mark, and how often what is only read had gone, as somebody was told."""
        self.acked: dict[Place, int] = {}
        """Places of answers to sends; the mark."""

    def new(self, queue_id: int, size: int, key: str | None = None) -> Sent:
        """A message to send."""
        sent = self.history.new(self.topic, queue_id, "", 0, size)
        sent.key = key
        return sent

    def sent_of(self, record: Record) -> Sent:
        """What a record was sent as. Violation when it was not."""
        sent = self.history.sent.get(bytes(record.body[:VALUE_BYTES]))
        wrong = sent is None or sent.body != record.body or record.topic != self.topic
        if sent is None or wrong or self.is_astray(sent, record.queue_id):
            what = f"{self.topic}/{record.queue_id}@{record.queue_offset}: {bytes(record.body[:16])!r}"
            raise Violation("nothing invented", what)
        return sent

    def is_astray(self, sent: Sent, queue_id: int) -> bool:
        """Is it in another queue than the one that it was sent to?"""
        return sent.queue_id != queue_id

    def observed(self, place: Place, value: bytes, mark: int) -> None:
        """A message stands there."""
        known, unread = self._at.get(place), self.stage.unread
        certain = known is not None and known[1] == mark and (known[2] == unread or place in self.acked)
        if known is not None and certain and known[0] != value and self.stage.holds(mark):
            what = f"{self.topic}/{place[0]}@{place[1]}: {known[0].decode()}, then {value.decode()}"
            raise Violation("a place keeps its message", what)
        self._at[place] = value, mark, unread

    def acknowledged(self, place: Place, sent: Sent, mark: int) -> None:
        """A send was answered."""
        self.observed(place, sent.value, mark)
        self.acked[place] = mark

    def may_have_gone(self, queue_id: int, offsets: range) -> bool:
        """Has the log lost its first files, and nothing is known to stay at these places?"""
        stay = any(self.stage.holds(self.acked.get((queue_id, offset), -1)) for offset in offsets)
        return self.stage.log_start() > 0 and not stay

    def certain(self) -> dict[Place, bytes]:
        """What has to be there: that was acknowledged, and of which nothing may be lost."""
        return {place: self._at[place][0] for place, mark in self.acked.items() if self.stage.holds(mark)}


class Producer(Member, ABC):
    """Sends to the topic, over and over."""

    def __init__(self, stage: Stage, name: str, places: Places, pause_ms: float) -> None:
        super().__init__(stage, name)
        self.places = places
        self.pause_ms = pause_ms * stage.scheduler.pace
        self.ending = self.idle = False

    def work(self) -> None:
        """Send one, up to twice; then the next one, until it has to end."""
        self.idle = self.ending
        if not self.ending:
            self.send()

    @abstractmethod
    def send(self) -> None:
        """Send one; `next` when that is over."""

    def next(self) -> None:
        """Go on with the next one, after a while."""
        self.later(0, 2 * self.pause_ms, self.work)


class Reader(Member):
    """Reads queues in order, over and over."""

    def __init__(
        self, stage: Stage, name: str, places: Places, queues: int, pause_ms: float,
        unwrap: Callable[[Record], list[Record]] = lambda record: [record],
    ) -> None:  # fmt: skip
        """`unwrap`: the messages of a record."""
        super().__init__(stage, name)
        self.places, self.pause_ms, self._unwrap = places, pause_ms * stage.scheduler.pace, unwrap
        self.next = dict.fromkeys(range(queues), 0)
        self.gaps = False
        """Messages may be left out: a compacted topic."""
        self.whole: dict[int, dict[int, bytes]] = {}
        """Queue → offset → value: of the last look from the beginning to the end, when all is well."""
        self.auditing = False

    def begin(self) -> None:
        self.later(0, 2 * self.pause_ms, self.work)

    def work(self) -> None:
        if not self.auditing:
            queue_id = self.random.choice(list(self.next))
            self._pull(queue_id, self.next[queue_id], self.random.choice((1, 4, 32)))

    def audit(self) -> None:
        """From now on read all once from the beginning to the end."""
        self.auditing = True
        for queue_id in self.next:
            self.whole.pop(queue_id, None)
            self.later(0, 1, lambda queue_id=queue_id: self._pull(queue_id, 0, 32, {}))  # type: ignore[misc]

    @property
    def audited(self) -> bool:
        return self.auditing and len(self.whole) == len(self.next)

    def _pull(self, queue_id: int, asked: int, most: int, seen: dict[int, bytes] | None = None) -> None:
        """`seen`: what the last look has met until now; None: this is none."""
        header = PullMessageRequest(
            consumer_group=GROUP, topic=self.places.topic, queue_id=queue_id, queue_offset=asked, max_msg_nums=most,
            sys_flag=SUBSCRIPTION, commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0,
            expression_type="TAG",
        )  # fmt: skip
        master = self.stage.master()
        if seen is None:
            self.asks(header)
        elif master is not None:  # a slave may have begun late, and lack what was before
            self.address = self.stage.address_of(master)

        def answered(reply: Command | None, mark: int) -> None:
            if reply is None or reply.code not in READ:
                self.later(100, 500, self.work if seen is None else lambda: self._pull(queue_id, asked, most, seen))
                return
            found = reply.header(PullMessageResponse)
            raw = decode_all(reply.body) if reply.code == ResponseCode.SUCCESS else []
            records = self.records_of(queue_id, raw, found)
            read = self._read(queue_id, asked, records, mark)
            following = found.next_begin_offset
            if records and not self.gaps and following != max(read) + 1:
                raise Violation("offsets are contiguous", f"{self.places.topic}/{queue_id}: next {following} of {read}")
            self.next[queue_id] = following
            if seen is None:
                self.later(0, 2 * self.pause_ms, self.work)
                return
            seen.update(read)
            due = max((offset for queue, offset in self.places.certain() if queue == queue_id), default=-1)
            goes_on = reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY  # where the next part of the queue begins
            if following >= found.max_offset and following > due and not goes_on:
                self.whole[queue_id] = seen
                return
            # there is more, or this broker does not show all yet
            self.later(10, 100, lambda: self._pull(queue_id, following, most, seen))

        self.call(RequestCode.PULL_MESSAGE, header, answered)

    def asks(self, header: PullMessageRequest) -> None:
        """A pull is about to be sent, none of the last look: it may be changed."""

    def records_of(self, queue_id: int, raw: list[Record], found: PullMessageResponse) -> list[Record]:
        """What an answer brought, as its reader takes it."""
        return raw

    def _read(self, queue_id: int, asked: int, records: Sequence[Record], mark: int) -> dict[int, bytes]:
        """Look at what a pull brought: offset → value."""
        read: dict[int, bytes] = {}
        following = asked
        for number, record in enumerate(records):
            messages = self._unwrap(record)
            begins = messages[0].queue_offset
            left_out = begins > following and not self.gaps
            if left_out and not number:  # a pull passes over what went with its file
                left_out = not self.places.may_have_gone(queue_id, range(following, begins))
            if record.queue_id != queue_id or left_out or (number and begins < following):
                what = f"{self.places.topic}/{queue_id}: {begins} came, {following} was to come"
                raise Violation("offsets are contiguous", what)
            for one in messages:
                sent = self.places.sent_of(one)
                self.places.observed((queue_id, one.queue_offset), sent.value, mark)
                read[one.queue_offset] = sent.value
                self.met(sent, one)
            following = messages[-1].queue_offset + 1
        return read

    def met(self, sent: Sent, record: Record) -> None:
        """A message was read."""

    def check(self) -> None:
        """What was acknowledged is there, and nothing more often than it was sent."""
        topic = self.places.topic
        for (queue_id, offset), value in self.places.certain().items():
            if self.whole[queue_id].get(offset) != value:
                found = self.whole[queue_id].get(offset)
                raise Violation(
                    "nothing acknowledged is lost", f"{value.decode()} was at {topic}/{queue_id}@{offset}: {found!r} is"
                )
        times = Counter(value for seen in self.whole.values() for value in seen.values())
        for value, count in times.items():
            sent = self.places.history.sent[value]
            if count > sent.attempts:
                raise Violation("no duplicates but by retries", f"{value.decode()}: {count} times of {sent.attempts}")


class OfTopic:
    """A feature of one topic: who sends to it, who reads it, and who has made it. A `Feature`: in the end all is read
    once from the beginning."""

    def __init__(self, producer: Producer, reader: Reader, maker: Maker) -> None:
        self.stage, self.places = producer.stage, producer.places
        self.producer, self.reader, self.maker = producer, reader, maker
        producer.maker = reader.maker = maker

    def prepare(self) -> None:
        self.maker.work()

    def unprepared(self) -> str:
        return self.maker.unprepared()

    def begin(self) -> None:
        self.producer.work()
        self.reader.begin()

    def wind_down(self) -> None:
        self.producer.ending = True

    def left(self) -> str:
        if self.producer.idle and not self.reader.auditing:
            self.reader.audit()
        return "" if self.reader.audited else f"{self.places.topic} can't be read to its end"

    def check(self) -> None:
        """What the last look has met is what was sent."""
        self.reader.check()

    def stop(self) -> None:
        for one in (self.producer, self.reader, self.maker):
            one.stop()
