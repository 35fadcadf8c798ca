"""Clients that pop, and acknowledge most of it; what they are promised is in `pop.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perseid.sim.facts import VALUE_BYTES
from perseid.sim.models.broker.client import Client
from perseid.sim.models.broker.pop import GROUP, Delivery
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
from perseid.wire.pop import BatchAck, Handle
from perseid.wire.record import decode_all

if TYPE_CHECKING:
    from perseid.sim.models.broker.cluster import Cluster

INVISIBLE_MS = (1_000, 2_000, 5_000, 8_000)
DRAIN_INVISIBLE_MS = 10_000
"""An answer to the one that drains may be lost, too: what it had comes again in time."""
FAST = {
    RequestCode.POP_MESSAGE: "popped on the fast road",
    RequestCode.ACK_MESSAGE: "acknowledged on the fast road",
}
_NOTHING = (ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL)


class Popper(Client):
    """A member of the group: pops, and acknowledges most of it, gives some more or less time, leaves some."""

    ack_share = 0.7

    def __init__(self, cluster: Cluster, name: str, pause_ms: float) -> None:
        super().__init__(cluster, name)
        self.pause_ms = pause_ms * cluster.scheduler.pace
        self.pops = cluster.pops
        self._asked = 0

    def work(self) -> None:
        for topic in self.cluster.topics:
            self.pop(topic.name)

    def invisible_ms(self) -> int:
        return self.random.choice(INVISIBLE_MS)

    def poll_ms(self) -> int:
        return self.random.choice((0, 2_000, 5_000))

    def pop(self, topic: str) -> None:
        queues = next(known.queues for known in self.cluster.topics if known.name == topic)
        poll_ms, doubts = self.poll_ms(), self.pops.doubts
        header = PopMessageRequest(
            consumer_group=GROUP,
            topic=topic,
            queue_id=-1 if self.random.random() < 0.7 else self.random.randrange(queues),
            max_msg_nums=self.random.choice((1, 4, 32)),
            invisible_time=self.invisible_ms(),
            poll_time=poll_ms,
            born_time=0,
            init_mode=0,
        )

        self._asked += 1
        if self._asked % 3:  # as a consumer does, which asks in the same way each time
            header.queue_id, header.max_msg_nums, header.invisible_time = -1, 32, INVISIBLE_MS[2]

        def answered(reply: Command | None) -> None:
            self._count_roads()
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                self.take(topic, reply, doubts)
            elif reply is not None and reply.code in _NOTHING:
                self.cluster.count("pop without a message")
            self.later(0, self.pause_ms, lambda: self.pop(topic))

        self.call(RequestCode.POP_MESSAGE, header, answered, timeout_ms=poll_ms + 3_000)

    def take(self, topic: str, reply: Command, doubts: int) -> None:
        """Look at what was handed out, and decide what becomes of it."""
        header = reply.header(PopMessageResponse)
        starts = pop.parse_info(header.start_offset_info)
        found: list[Delivery] = []
        for record in decode_all(reply.body):
            handle = pop.handle_of(record, header, starts, self.cluster.broker_name)
            sent = self.history.sent.get(bytes(record.body[:VALUE_BYTES]))
            shown = pop.normal_topic(record.topic, GROUP)
            if sent is None or record.body != sent.body or shown != topic or sent.topic != topic:
                what = f"{bytes(record.body[:16])!r} of {record.topic}"
                raise Violation("nothing invented", f"a pop of {topic} got {what}")
            if handle.retry == pop.NORMAL:
                self.history.saw(record, self.scheduler.now_us)
            one = Delivery(sent, topic, record.reconsume_times, handle, self.cluster.broker.clock_ms, doubts)
            self.pops.handed_out(one)
            found.append(one)
            self.cluster.count("popped again" if one.generation else "popped")
        if len(found) > 1 and self.random.random() < 0.3:
            if len(found) % 2:
                self.ack_all(topic, found)
            else:
                self.ack_each(found)
            return
        for one in found:
            chance = self.random.random()
            if chance < self.ack_share:
                self.later(0, 2_500, lambda one=one: self.ack(one))  # type: ignore[misc]
            elif chance < self.ack_share + 0.15:
                self.later(0, 1_500, lambda one=one: self.change(one))  # type: ignore[misc]
            else:
                self.cluster.count("popped and left")

    def _count_roads(self) -> None:
        """Has the core, in this life of the broker, done what the handlers would do?"""
        machine: Any = self.cluster.broker.machine
        for code, what in FAST.items():
            if machine is not None and machine.parts.roads.fast[code]:
                self.cluster.count(what)

    # ---- what becomes of it ----

    def ack(self, one: Delivery) -> None:
        handle = one.handle
        header = AckMessageRequest(
            consumer_group=GROUP, topic=pop.real_topic(one.topic, GROUP, handle.retry), queue_id=handle.queue_id,
            extra_info=str(handle), offset=handle.offset,
        )  # fmt: skip
        self.pops.consumed.add(one.sent.value)
        asked = self.pops.doubts

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                self.pops.acknowledged(one, asked, self.cluster.broker.now)

        self.call(RequestCode.ACK_MESSAGE, header, answered)

    def ack_each(self, found: list[Delivery]) -> None:
        """By a request for each, all at once: so they share a turn, and a record of the revive log."""
        self.cluster.count("acknowledged one by one in one write")
        with self.together():
            for one in found:
                self.ack(one)

    def ack_all(self, topic: str, found: list[Delivery]) -> None:
        batches: dict[Handle, list[Delivery]] = {}
        for one in found:
            batches.setdefault(one.handle._replace(offset=-1), []).append(one)
            self.pops.consumed.add(one.sent.value)
        acks = [
            BatchAck(
                GROUP, topic, of.retry, of.start_offset, of.queue_id, of.revive_queue, of.pop_time, of.invisible_time,
                tuple(one.handle.offset for one in ones),
            )
            for of, ones in batches.items()
        ]  # fmt: skip
        asked = self.pops.doubts

        def answered(reply: Command | None) -> None:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                for one in found:
                    self.pops.acknowledged(one, asked, self.cluster.broker.now)

        body = pop.batch_ack_body(self.cluster.broker_name, acks)
        self.call(RequestCode.BATCH_ACK_MESSAGE, None, answered, body)

    def change(self, one: Delivery) -> None:
        handle = one.handle
        header = ChangeInvisibleTimeRequest(
            consumer_group=GROUP, topic=pop.real_topic(one.topic, GROUP, handle.retry), queue_id=handle.queue_id,
            extra_info=str(handle), offset=handle.offset, invisible_time=self.invisible_ms(),
        )  # fmt: skip

        def answered(reply: Command | None) -> None:
            if reply is None or reply.code != ResponseCode.SUCCESS:
                self.cluster.count("change of an invisible time refused")
                return
            new = reply.header(ChangeInvisibleTimeResponse)
            one.handle = handle._replace(
                start_offset=handle.offset, pop_time=new.pop_time, invisible_time=new.invisible_time,
                revive_queue=new.revive_qid,
            )  # fmt: skip
            one.clock_ms = self.cluster.broker.clock_ms
            self.pops.put_off(one, one.visible_at)
            self.cluster.count("invisible time changed")
            if self.random.random() < 0.5:
                self.later(0, 1_000, lambda: self.ack(one))

        self.pops.put_off(one, None)  # until we are told
        self.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header, answered)


class Drainer(Popper):
    """Pops and acknowledges all that is left, when the faults are over."""

    ack_share = 1.0

    def invisible_ms(self) -> int:
        return DRAIN_INVISIBLE_MS

    def poll_ms(self) -> int:
        return 1_000

    def check(self) -> None:
        """Every message was consumed."""
        left = self.pops.left()
        if left:
            values = ", ".join(value.decode() for value in left[:10])
            raise Violation("nothing popped is lost", f"{len(left)} messages never come again: {values}")
