"""Lite topics: light queues of one parent, read in order by the clients of a group.

- a pop goes on at the first message of a lite topic that the group has not acknowledged: nothing is passed over, over
  changes of masters neither, and in the end all was acknowledged;
- of one lite topic messages come in their order;
- as long as a broker lives and leads, nobody of the group gets more of a lite topic while something of it is out.

Who reads what, and what is out, is in the memory of whoever leads: clients say it again, and what was out may come
again at once from another one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from perseid.sim.facts import VALUE_BYTES, Sent
from perseid.sim.features.stage import (
    NO_TEMPLATE,
    Clock,
    Maker,
    Member,
    Stage,
    clock_of,
    has_topic,
    topic_request,
)
from perseid.sim.history import History
from perseid.sim.promises import Violation
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.lite import PopLiteMessageRequest, PopLiteMessageResponse
from perseid.wire.headers.pop import AckMessageRequest, ChangeInvisibleTimeRequest, ChangeInvisibleTimeResponse
from perseid.wire.headers.send import SendMessageRequestV2
from perseid.wire.lite import queue_name
from perseid.wire.pop import ORDER_QUEUE, Handle
from perseid.wire.record import Record, decode_all

PARENT, GROUP, QUEUES = "parent", "lite-readers", 2
NAMES = ("a", "b", "c")
SIZES = (8, 40, 300)
INVISIBLE_MS = (1_000, 3_000, 8_000)
DRAIN_INVISIBLE_MS = 10_000
SEND_MS, POP_MS = 600, 800
SUBSCRIBE_MS = (1_500, 3_000)
CLIENTS = 2

Life = tuple[str, int, int]
"""A broker, which of its lives, and how often anything was repeated by then."""
Place = tuple[str, int]
"""Lite topic, offset."""


class Out:
    """What of a lite topic is out, as a client knows it."""

    def __init__(self, life: Life, clock: Clock, since: int, until: int, offsets: set[int]) -> None:
        self.life, self.clock, self.since, self.until, self.offsets = life, clock, since, until, offsets

    def overlaps(self, other: Out) -> bool:
        """Was a part of the other one's time also its own, by one clock?"""
        of_one = (self.life, self.clock) == (other.life, other.clock)
        return of_one and self.since < other.until and other.since < self.until


class LiteHistory:
    """What the group knows."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.messages = History()
        self.lite_of: dict[bytes, str] = {}
        """Value → its lite topic."""
        self.acked: dict[bytes, int] = {}
        """Values whose send was acknowledged; the mark."""
        self.consumed: set[bytes] = set()
        """Values that a client acknowledged, answered or not."""
        self._at: dict[Place, tuple[bytes, int, int]] = {}
        """Value, mark, and how often what is only read had gone."""
        self._out: dict[str, Out] = {}

    def came(self, name: str, records: Sequence[tuple[int, Sent]], mark: int, out: Out) -> None:
        """A pop brought messages of a lite topic; one that came later may be known already."""
        offsets = [offset for offset, _ in records]
        if offsets != list(range(offsets[0], offsets[0] + len(offsets))):
            raise Violation("in their order", f"{name}: {offsets}")
        for offset, sent in records:
            known = self._at.get((name, offset))
            if known is not None and known[0] != sent.value and self._is_there(known, mark):
                raise Violation("a place keeps its message", f"{name}@{offset}: {known[0]!r}, then {sent.value!r}")
            self._at[name, offset] = sent.value, mark, self.stage.unread
        if not self.stage.holds(mark):
            return
        for offset in range(offsets[0]):
            known = self._at.get((name, offset))
            if known is not None and self._is_there(known, mark) and known[0] not in self.consumed:
                raise Violation("nothing is passed over", f"{name}@{offset} is not acknowledged, {offsets[0]} came")
        before = self._out.get(name)
        if before is not None and before.overlaps(out):
            times = f"from {out.since} to {out.until}; {sorted(before.offsets)} from {before.since} to {before.until}"
            raise Violation("one at a time", f"{name}: {offsets} are out {times}")
        if before is None or out.since >= before.since:
            self._out[name] = out

    def _is_there(self, known: tuple[bytes, int, int], mark: int) -> bool:
        """Is what was at a place there still?"""
        value, before, unread = known
        kept = unread == self.stage.unread or self.acked.get(value) == mark
        return before == mark and self.stage.holds(mark) and kept

    def acknowledges(self, name: str, offset: int, sent: Sent) -> None:
        """A client is about to acknowledge: when all of a pop are, the next one may come at any time."""
        self.consumed.add(sent.value)
        out = self._out.get(name)
        if out is not None:
            out.offsets.discard(offset)
            if not out.offsets:
                del self._out[name]

    def in_doubt(self, name: str) -> None:
        """Until when it is out is not known."""
        self._out.pop(name, None)

    def left(self) -> list[bytes]:
        """What was acknowledged to its sender, and by no client."""
        certain = {value for value, mark in self.acked.items() if self.stage.holds(mark)}
        return sorted(certain - self.consumed)


class Producer(Member):
    """Sends messages to lite topics."""

    def __init__(self, stage: Stage, name: str, history: LiteHistory) -> None:
        super().__init__(stage, name)
        self.history = history
        self.pause_ms = SEND_MS * stage.scheduler.pace
        self.ending = False

    def work(self) -> None:
        if self.ending:
            return
        sent = self.history.messages.new(PARENT, self.random.randrange(QUEUES), "", 0, self.random.choice(SIZES))
        lite = self.history.lite_of[sent.value] = self.random.choice(NAMES)
        header = SendMessageRequestV2(
            producer_group="lite-producers", topic=PARENT, default_topic=NO_TEMPLATE, default_topic_queue_nums=QUEUES,
            queue_id=sent.queue_id, sys_flag=0, born_timestamp=1, flag=0,
            properties=f"UNIQ_KEY\x01{sent.value.decode()}\x02__LITE_TOPIC\x01{lite}\x02",
        )  # fmt: skip

        def answered(reply: Command | None, mark: int) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                self.history.acked[sent.value] = mark
                self.stage.count("sent to a lite topic")
            self.later(0, 2 * self.pause_ms, self.work)

        self.call(RequestCode.SEND_MESSAGE_V2, header, answered, sent.body)


class Client(Member):
    """A client of the group: says again and again what it reads, and pops."""

    def __init__(self, stage: Stage, name: str, history: LiteHistory, names: Sequence[str]) -> None:
        super().__init__(stage, name)
        self.history, self.names = history, names
        self.pause_ms = POP_MS * stage.scheduler.pace
        self.draining = False

    def begin(self) -> None:
        self._subscribe()
        self.later(0, 2 * self.pause_ms, self._pop)

    def _subscribe(self) -> None:
        change = {
            "action": "COMPLETE_ADD", "clientId": self.name, "group": GROUP, "topic": PARENT,
            "liteTopicSet": list(self.names), "version": self.scheduler.now_us,
        }  # fmt: skip

        def answered(reply: Command | None, mark: int) -> None:
            self.stage.count("lite topics subscribed" if reply is not None and not reply.code else "subscribed in vain")
            if reply is not None and reply.code == ResponseCode.ILLEGAL_OPERATION:
                self.elsewhere(self.address)
            self.later(*SUBSCRIBE_MS, self._subscribe)

        self.call(RequestCode.LITE_SUBSCRIPTION_CTL, None, answered, json.dumps({"subscriptionSet": [change]}).encode())

    def _pop(self) -> None:
        poll_ms = self.random.choice((0, 2_000))
        header = PopLiteMessageRequest(
            client_id=self.name, consumer_group=GROUP, topic=PARENT, max_msg_num=self.random.choice((1, 4, 32)),
            invisible_time=DRAIN_INVISIBLE_MS if self.draining else self.random.choice(INVISIBLE_MS),
            poll_time=poll_ms, born_time=0,
        )  # fmt: skip
        driver, repeats = self.driver, self.stage.repeats

        def answered(reply: Command | None, mark: int) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS and driver is not None:
                self._take(reply, mark, (driver.name, driver.lives, repeats), clock_of(driver))
            self.later(0, 200 if self.draining else 2 * self.pause_ms, self._pop)

        self.call(RequestCode.POP_LITE_MESSAGE, header, answered, timeout_ms=poll_ms + 3_000)

    def _take(self, reply: Command, mark: int, life: Life, clock: Clock) -> None:
        header = reply.header(PopLiteMessageResponse)
        counts = (header.order_count_info or "").split(";")
        by_name: dict[str, list[tuple[int, Sent]]] = {}
        for record, count in zip(decode_all(reply.body), counts, strict=True):
            name, offset, sent = self._known(record)
            by_name.setdefault(name, []).append((offset, sent))
            self.stage.count("lite message popped again" if count != "0" else "lite message popped")
        for name, records in by_name.items():
            until = header.pop_time + header.invisible_time
            out = Out(life, clock, header.pop_time, until, {offset for offset, _ in records})
            self.history.came(name, records, mark, out)
            for offset, sent in records:
                handle = Handle(
                    0, header.pop_time, header.invisible_time, ORDER_QUEUE, "0", self.stage.broker_name, 0, offset
                )
                self._decide(name, offset, sent, handle)

    def _known(self, record: Record) -> tuple[str, int, Sent]:
        """Lite topic, offset there, and what was sent. Violation when it was not so."""
        sent = self.history.messages.sent.get(bytes(record.body[:VALUE_BYTES]))
        name = record.props.get("__LITE_TOPIC", "")
        wrong = sent is None or sent.body != record.body or record.topic != PARENT
        if sent is None or wrong or self.history.lite_of[sent.value] != name:
            raise Violation("nothing invented", f"{bytes(record.body[:16])!r} of {record.topic}, {name}")
        if name not in self.names:
            raise Violation("a client gets what it reads", f"{self.name} reads {self.names}, {name} came")
        queues, offsets = (record.props[key].split(",") for key in ("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"))
        return name, int(offsets[queues.index(queue_name(PARENT, name))]), sent

    def _decide(self, name: str, offset: int, sent: Sent, handle: Handle) -> None:
        chance = self.random.random()
        if self.draining or chance < 0.75:
            self.later(0, 200 if self.draining else 1_200, lambda: self._ack(name, offset, sent, handle))
        elif chance < 0.85:
            self.later(0, 800, lambda: self._change(name, offset, handle))
        else:
            self.stage.count("lite message left")

    def _ack(self, name: str, offset: int, sent: Sent, handle: Handle) -> None:
        self.history.acknowledges(name, offset, sent)
        header = AckMessageRequest(
            consumer_group=GROUP, topic=PARENT, queue_id=0, extra_info=str(handle), offset=offset, lite_topic=name
        )

        def answered(reply: Command | None, mark: int) -> None:
            done = reply is not None and reply.code == ResponseCode.SUCCESS
            self.stage.count("lite message acknowledged" if done else "lite ack in vain")

        self.call(RequestCode.ACK_MESSAGE, header, answered)

    def _change(self, name: str, offset: int, handle: Handle) -> None:
        header = ChangeInvisibleTimeRequest(
            consumer_group=GROUP, topic=PARENT, queue_id=0, extra_info=str(handle), offset=offset,
            invisible_time=self.random.choice(INVISIBLE_MS), lite_topic=name,
        )  # fmt: skip
        self.history.in_doubt(name)

        def answered(reply: Command | None, mark: int) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                reply.header(ChangeInvisibleTimeResponse)
                self.stage.count("lite invisible time changed")

        self.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header, answered)


class Lite:
    """The feature."""

    def __init__(self, stage: Stage) -> None:
        self.history = LiteHistory(stage)
        self.producer = Producer(stage, "lite-producer", self.history)
        reads = (NAMES, NAMES[1:])
        self.clients = [Client(stage, f"lite-client{n}", self.history, reads[n]) for n in range(CLIENTS)]
        bound = json.dumps({"groupName": GROUP, "attributes": {"+lite.bind.topic": PARENT}}).encode()
        self.maker = Maker(
            stage, "lite-maker",
            [topic_request(PARENT, QUEUES, "+message.type=LITE"),
             (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, bound)],
            self._there,
        )  # fmt: skip
        for one in (self.producer, *self.clients):
            one.maker = self.maker

    @staticmethod
    def _there(machine: Any) -> bool:
        """Does a broker know the parent as one, and whose group it is?"""
        group = machine.parts.groups.rows.get(GROUP)
        bound = group is not None and group.attributes.get("lite.bind.topic") == PARENT
        return bound and has_topic(PARENT, "message.type", "LITE")(machine)

    def prepare(self) -> None:
        self.maker.work()

    def unprepared(self) -> str:
        return self.maker.unprepared()

    def begin(self) -> None:
        self.producer.work()
        for client in self.clients:
            client.begin()

    def wind_down(self) -> None:
        self.producer.ending = True
        for client in self.clients:
            client.draining = True

    def left(self) -> str:
        left = self.history.left()
        values = ", ".join(f"{value.decode()} of {self.history.lite_of[value]}" for value in left[:10])
        return f"no message of a lite topic is lost: {len(left)} never come: {values}" if left else ""

    def check(self) -> None:
        """All was looked at when it came, and `left` says that nothing is missing."""

    def stop(self) -> None:
        for one in (self.producer, *self.clients, self.maker):
            one.stop()
