"""POP: members of a group that pop, and what is promised of it.

A *copy* is a message at a place: of its topic, or, with each time that nobody acknowledged it, of the retry topic. How
often it came before is its *generation* (reconsumeTimes). The checks:

- a copy is handed out once: never again before its time, and after it only as another copy;
- a copy of the next generation comes no earlier than the invisible time of the one before ends, by the broker's clock;
- what was acknowledged in time, with an answer, has no next generation;
- in the end every message that was acknowledged to its sender was acknowledged by the group, too: none is lost.

All of that holds over changes of masters, as far as what was acknowledged holds. Where something of it may be lost (the
stage's `losses`), what was handed out until then may come again. Where a process died within a turn, or another master
goes on (`repeats`), that may have been between a copy in the retry topic and the ack that says so: then there are two
copies of one generation, and what hangs on there being one is not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from perseid.sim.facts import VALUE_BYTES, Sent
from perseid.sim.features.stage import Clock, Maker, Member, Stage, clock_of, topic_request
from perseid.sim.history import History
from perseid.sim.promises import Violation
from perseid.wire import pop
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PopMessageRequest,
    PopMessageResponse,
)
from perseid.wire.headers.send import SendMessageRequestV2
from perseid.wire.names import AUTO_CREATE_TOPIC
from perseid.wire.pop import BatchAck, Handle
from perseid.wire.record import Record, decode_all

GROUP = "poppers"
TOPIC, QUEUES = "pops", 2
INVISIBLE_MS = (1_000, 2_000, 5_000, 8_000)
DRAIN_INVISIBLE_MS = 10_000
"""An answer to the one that drains may be lost, too: what it had comes again in time."""
IN_TIME_MS = 100
"""An ack that is answered so long before the invisible time ends came in time."""
SIZES = (8, 40, 300)
MEMBERS, PAUSE_MS, SEND_MS = 2, 1_500, 700
_NOTHING = (ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL)

Copy = tuple[str, int, int]


class Source(Protocol):
    """What is popped, and who sends it."""

    topics: Sequence[tuple[str, int]]
    """Names, and how many queues."""

    def find(self, topic: str, record: Record, *, retry: bool) -> Sent:
        """What was sent, of a record that came. Violation when it was not so."""

    def is_single(self, sent: Sent) -> bool:
        """Is it there once only?"""

    def wanted(self) -> set[bytes]:
        """Values of what was acknowledged to its sender, and is there for its readers."""


@dataclass(slots=True)
class Delivery:
    """A copy that was handed out."""

    sent: Sent
    topic: str
    """The topic it was popped of."""
    generation: int
    handle: Handle
    clock: Clock
    mark: int
    repeats: int

    @property
    def visible_at(self) -> int:
        return self.handle.pop_time + self.handle.invisible_time


class PopHistory:
    """What the group knows; fed by its members."""

    def __init__(self, stage: Stage, source: Source) -> None:
        self.stage, self.source = stage, source
        self._handed: dict[Copy, int] = {}
        """Its mark."""
        self._visible: dict[tuple[bytes, int], tuple[int, Delivery]] = {}
        """Value and generation → when its first copy may be followed by the next one, and the last copy."""
        self._acked: dict[tuple[bytes, int], int] = {}
        """What was acknowledged in time; its mark."""
        self._copies: Counter[tuple[bytes, int]] = Counter()
        self.consumed: set[bytes] = set()
        """Values that a member acknowledged, answered or not."""

    def handed_out(self, one: Delivery) -> None:
        """A member got a copy."""
        if not self.stage.holds(one.mark):
            return
        copy = pop.real_topic(one.topic, GROUP, one.handle.retry), one.handle.queue_id, one.handle.offset
        name = f"{one.sent} of generation {one.generation}"
        if self._handed.get(copy) == one.mark:
            raise Violation("a message is handed out once", f"{name} at {copy} was handed out before")
        self._handed[copy] = one.mark
        if not self.source.is_single(one.sent):
            return
        key, before = (one.sent.value, one.generation), (one.sent.value, one.generation - 1)
        self._copies[key] += 1
        if self._copies[before] == 1 and self._has_one_copy(before):
            until, of = self._visible[before]
            if self._is_one_clock(of, one) and one.handle.pop_time < until:
                raise Violation("nothing comes before its time", f"{name}: {one.handle.pop_time}, not before {until}")
            if self._acked.get(before) == one.mark:
                raise Violation("what is acknowledged does not come again", f"{name}: the one before was acknowledged")
        known = self._visible.get(key)
        at = one.visible_at if known is None else min(known[0], one.visible_at)
        self._visible[key] = at, one

    def _is_one_clock(self, *ones: Delivery) -> bool:
        """Have all brokers the clock that these were handed out by? Whoever led meanwhile judges by its own."""
        return all(clock_of(driver) == one.clock for driver in self.stage.brokers() for one in ones)

    def _has_one_copy(self, key: tuple[bytes, int]) -> bool:
        """Was the generation handed out that it was made of, and is nothing in doubt since?"""
        value, generation = key
        this, before = self._visible.get(key), self._visible.get((value, generation - 1))
        if this is None or not self.stage.holds(this[1].mark):
            return False
        return generation == 0 or (before is not None and before[1].repeats == this[1].repeats)

    def acknowledged(self, one: Delivery, mark: int) -> None:
        """An ack was answered."""
        stage = self.stage
        if not stage.holds(mark) or not stage.holds(one.mark):
            return
        late = any(driver.now >= one.visible_at - IN_TIME_MS for driver in stage.brokers())
        if not late and self._is_one_clock(one):
            self._acked[one.sent.value, one.generation] = mark

    def put_off(self, one: Delivery, until: int | None) -> None:
        """A copy has another time; None: nobody knows."""
        known = self._visible.get((one.sent.value, one.generation))
        if known is not None:
            self._visible[one.sent.value, one.generation] = until or 0, known[1]

    def left(self) -> list[bytes]:
        """Values that no member acknowledged."""
        return sorted(self.source.wanted() - self.consumed)


class Popper(Member):
    """A member of the group: pops, and acknowledges most of it, gives some more or less time, leaves some."""

    def __init__(self, stage: Stage, name: str, history: PopHistory, pause_ms: float) -> None:
        super().__init__(stage, name)
        self.history = history
        self.pause_ms = pause_ms * stage.scheduler.pace
        self.draining = False
        """Acknowledge all, and leave nothing: the faults are over."""

    def begin(self) -> None:
        """Pop all topics, over and over."""
        for topic, queues in self.history.source.topics:
            self.later(0, self.pause_ms, lambda topic=topic, queues=queues: self.pop(topic, queues))  # type: ignore[misc]

    def invisible_ms(self) -> int:
        return DRAIN_INVISIBLE_MS if self.draining else self.random.choice(INVISIBLE_MS)

    def pop(self, topic: str, queues: int) -> None:
        poll_ms = 1_000 if self.draining else self.random.choice((0, 2_000, 5_000))
        repeats = self.stage.repeats
        header = PopMessageRequest(
            consumer_group=GROUP,
            topic=topic,
            queue_id=-1 if self.draining or self.random.random() < 0.7 else self.random.randrange(queues),
            max_msg_nums=self.random.choice((1, 4, 32)),
            invisible_time=self.invisible_ms(),
            poll_time=poll_ms,
            born_time=0,
            init_mode=0,
        )
        asked = self.driver

        def answered(reply: Command | None, mark: int) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS and asked is not None:
                self.take(topic, reply, (clock_of(asked), mark, repeats))
            elif reply is not None and reply.code in _NOTHING:
                self.stage.count("pop without a message")
            self.later(0, 100 if self.draining else self.pause_ms, lambda: self.pop(topic, queues))

        self.call(RequestCode.POP_MESSAGE, header, answered, timeout_ms=poll_ms + 3_000)

    def take(self, topic: str, reply: Command, when: tuple[Clock, int, int]) -> None:
        """Look at what was handed out, and decide what becomes of it."""
        header = reply.header(PopMessageResponse)
        starts = pop.parse_info(header.start_offset_info)
        found: list[Delivery] = []
        for record in decode_all(reply.body):
            handle = pop.handle_of(record, header, starts, self.stage.broker_name)
            sent = self.history.source.find(topic, record, retry=handle.retry != pop.NORMAL)
            one = Delivery(sent, topic, record.reconsume_times, handle, *when)
            self.history.handed_out(one)
            found.append(one)
            self.stage.count("popped again" if one.generation else "popped")
        if len(found) > 1 and self.random.random() < 0.3:
            if len(found) % 2:
                self.ack_all(topic, found)
            else:
                self.ack_each(found)
            return
        share = 1.0 if self.draining else 0.7
        for one in found:
            chance = self.random.random()
            if chance < share:
                self.later(0, 2_500, lambda one=one: self.ack(one))  # type: ignore[misc]
            elif chance < share + 0.15:
                self.later(0, 1_500, lambda one=one: self.change(one))  # type: ignore[misc]
            else:
                self.stage.count("popped and left")

    # ---- what becomes of it ----

    def ack(self, one: Delivery) -> None:
        handle = one.handle
        header = AckMessageRequest(
            consumer_group=GROUP, topic=pop.real_topic(one.topic, GROUP, handle.retry), queue_id=handle.queue_id,
            extra_info=str(handle), offset=handle.offset,
        )  # fmt: skip
        self.history.consumed.add(one.sent.value)

        def answered(reply: Command | None, mark: int) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                self.history.acknowledged(one, mark)

        self.call(RequestCode.ACK_MESSAGE, header, answered)

    def ack_each(self, found: list[Delivery]) -> None:
        """By a request for each, all at once: so they share a turn, and a record of the revive log."""
        self.stage.count("acknowledged one by one in one write")
        with self.together():
            for one in found:
                self.ack(one)

    def ack_all(self, topic: str, found: list[Delivery]) -> None:
        batches: dict[Handle, list[Delivery]] = {}
        for one in found:
            batches.setdefault(one.handle._replace(offset=-1), []).append(one)
            self.history.consumed.add(one.sent.value)
        acks = [
            BatchAck(
                GROUP, topic, of.retry, of.start_offset, of.queue_id, of.revive_queue, of.pop_time, of.invisible_time,
                tuple(one.handle.offset for one in ones),
            )
            for of, ones in batches.items()
        ]  # fmt: skip

        def answered(reply: Command | None, mark: int) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                for one in found:
                    self.history.acknowledged(one, mark)

        self.call(RequestCode.BATCH_ACK_MESSAGE, None, answered, pop.batch_ack_body(self.stage.broker_name, acks))

    def change(self, one: Delivery) -> None:
        handle, asked = one.handle, self.driver
        header = ChangeInvisibleTimeRequest(
            consumer_group=GROUP, topic=pop.real_topic(one.topic, GROUP, handle.retry), queue_id=handle.queue_id,
            extra_info=str(handle), offset=handle.offset, invisible_time=self.invisible_ms(),
        )  # fmt: skip

        def answered(reply: Command | None, mark: int) -> None:
            if reply is None or reply.code != ResponseCode.SUCCESS or asked is None:
                self.stage.count("change of an invisible time refused")
                return
            new = reply.header(ChangeInvisibleTimeResponse)
            one.handle = handle._replace(
                start_offset=handle.offset, pop_time=new.pop_time, invisible_time=new.invisible_time,
                revive_queue=new.revive_qid,
            )  # fmt: skip
            one.clock = clock_of(asked)
            if self.stage.holds(mark):
                self.history.put_off(one, one.visible_at)
            self.stage.count("invisible time changed")
            if self.random.random() < 0.5:
                self.later(0, 1_000, lambda: self.ack(one))

        self.history.put_off(one, None)  # until we are told
        self.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header, answered)


class Producer(Member):
    """Sends what is popped, to a topic of its own. A `Source`."""

    topics: Sequence[tuple[str, int]] = ((TOPIC, QUEUES),)

    def __init__(self, stage: Stage, name: str, pause_ms: float) -> None:
        super().__init__(stage, name)
        self.pause_ms = pause_ms * stage.scheduler.pace
        self._history = History()
        self._acked: dict[bytes, int] = {}
        """Value → its mark."""
        self.ending = False

    def work(self) -> None:
        """Send one, up to twice; then the next one."""
        if self.ending:
            return
        queue_id = self.random.randrange(QUEUES)
        sent = self._history.new(TOPIC, queue_id, self.name, 0, self.random.choice(SIZES))
        self._send(sent, self.random.choice((0, 0, 1)))

    def _send(self, sent: Sent, retries: int) -> None:
        sent.attempts += 1
        header = SendMessageRequestV2(
            producer_group="pop-producers", topic=TOPIC, default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=QUEUES, queue_id=sent.queue_id, sys_flag=0, born_timestamp=1, flag=0,
            properties=f"UNIQ_KEY\x01{sent.value.decode()}\x02",
        )  # fmt: skip

        def answered(reply: Command | None, mark: int) -> None:
            done = reply is not None and reply.code == ResponseCode.SUCCESS
            if done:
                self._acked[sent.value] = mark
            if done or not retries:
                self.later(0, 2 * self.pause_ms, self.work)
            else:
                self.later(0, 500, lambda: self._send(sent, retries - 1))

        self.call(RequestCode.SEND_MESSAGE_V2, header, answered, sent.body)

    # ---- as a source ----

    def find(self, topic: str, record: Record, *, retry: bool) -> Sent:
        sent = self._history.sent.get(bytes(record.body[:VALUE_BYTES]))
        if sent is None or record.body != sent.body or pop.normal_topic(record.topic, GROUP) != topic:
            raise Violation("nothing invented", f"a pop of {topic} got {bytes(record.body[:16])!r} of {record.topic}")
        return sent

    def is_single(self, sent: Sent) -> bool:
        return sent.attempts == 1

    def wanted(self) -> set[bytes]:
        return {value for value, mark in self._acked.items() if self.stage.holds(mark)}


class Pop:
    """The feature."""

    def __init__(self, stage: Stage, source: Source | None = None) -> None:
        """`source`: what is popped besides; None: what a producer of its own sends."""
        self.producer = Producer(stage, "pop-producer", SEND_MS) if source is None else None
        self.history = PopHistory(stage, source or self._own)
        self.members = [Popper(stage, f"popper{n}", self.history, PAUSE_MS) for n in range(1, MEMBERS + 1)]
        requests = [topic_request(TOPIC, QUEUES)] if self.producer else []
        self.maker = Maker(stage, "pop-maker", requests, lambda machine: TOPIC in machine.parts.topics.rows)

    @property
    def _own(self) -> Producer:
        assert self.producer is not None
        return self.producer

    def prepare(self) -> None:
        self.maker.work()

    def unprepared(self) -> str:
        return f"topic {TOPIC} is not made" if self.maker.left else ""

    def begin(self) -> None:
        if self.producer is not None:
            self.producer.work()
        for member in self.members:
            member.begin()

    def wind_down(self) -> None:
        if self.producer is not None:
            self.producer.ending = True
        for member in self.members:
            member.draining = True

    def left(self) -> str:
        left = self.history.left()
        values = ", ".join(value.decode() for value in left[:10])
        return f"nothing popped is lost: {len(left)} messages never come again: {values}" if left else ""

    def check(self) -> None:
        """All was looked at when it came, and `left` says that nothing is missing."""

    def stop(self) -> None:
        for one in (*self.members, self.producer):
            if one is not None:
                one.stop()
