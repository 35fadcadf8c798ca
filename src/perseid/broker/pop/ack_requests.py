"""What follows a pop: ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151), CHANGE_MESSAGE_INVISIBLETIME (200053)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from perseid.base.errors import RequestRefused
from perseid.broker.kernel.asks import SUB, a_group, a_topic, each, of_group, of_topic
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import OnSlave, Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.metadata.topics import FAQ
from perseid.broker.pop.requests import MAX_INVISIBLE_MS
from perseid.security.policies import Asked
from perseid.store.queues import Queues
from perseid.store.reads import Reads
from perseid.store.results import Appended, AppendRefused
from perseid.wire import pop
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
)
from perseid.wire.pop import Ack, BatchAck, Checkpoint, Handle

if TYPE_CHECKING:
    from perseid.broker.consume.held_pulls import Holds
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.pop.service import PopService
    from perseid.broker.produce.appender import Appender

MAX_BATCH = 4_096
"""Checkpoints that one batch acknowledges; the rest is left to be shown again."""


class LiteAcks(Protocol):
    """Acknowledgements of messages of lite topics."""

    def ack(self, header: AckMessageRequest) -> Reply:
        """One is consumed."""

    def change(self, header: ChangeInvisibleTimeRequest) -> Reply:
        """One gets another time."""


def _acknowledged(request: Request, cluster: str) -> Iterable[Asked]:
    """What code 200151 asks for."""
    for one in dict.fromkeys((ack.group, ack.topic) for ack in pop.read_batch_acks(request.body)[1]):
        yield a_group(one[0], SUB)
        yield a_topic(one[1], SUB)


@dataclass(slots=True, kw_only=True)
class PopAckRequests:
    """Acknowledgements of popped messages."""

    turn: Turn
    settings: Settings
    reads: Reads
    queues: Queues
    topics: TopicTable
    offsets: ConsumerOffsets
    appender: Appender
    holds: Holds
    pop: PopService
    lite_acks: LiteAcks

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.ACK_MESSAGE,
                AckMessageRequest,
                self.ack_message,
                on_slave=OnSlave.REFUSED,
                keeps_checks=True,
                asks=each(of_group(SUB), of_topic(SUB)),
            ),
            Route(
                Code.BATCH_ACK_MESSAGE,
                None,
                self.batch_ack_message,
                on_slave=OnSlave.REFUSED,
                keeps_checks=True,
                asks=_acknowledged,
            ),
            Route(
                Code.CHANGE_MESSAGE_INVISIBLETIME,
                ChangeInvisibleTimeRequest,
                self.change_invisible_time,
                on_slave=OnSlave.REFUSED,
                keeps_checks=True,
                asks=each(of_group(SUB), of_topic(SUB)),
            ),
        )

    def ack_message(self, request: Request) -> Reply | None:
        """A message is consumed. Answered when that is as durable as the mode promises, one record for all of a
        checkpoint that a turn acknowledges; a message that is not out any more is answered as one that is, as the
        original does."""
        header: AckMessageRequest = request.header
        if header.lite_topic:
            return self.lite_acks.ack(header)
        self._check_place(request, header, header.offset)
        handle = pop.parse_handle(header.extra_info)
        if handle.revive_queue == pop.ORDER_QUEUE:
            self._ack_ordered(header.topic, header.consumer_group, header.queue_id, header.offset, handle.pop_time)
            return Reply()
        self._check_queue(handle.revive_queue)
        self.appender.check_load()
        ack = Ack(
            header.topic, header.consumer_group, header.queue_id, handle.start_offset, handle.pop_time,
            handle.broker_name, (header.offset,), revive_time=handle.pop_time + handle.invisible_time,
        )  # fmt: skip
        if not self.pop.has_to_write(ack):
            return self.appender.confirm(request, Reply(), None)
        self.pop.gather(request, ack, handle.revive_queue)
        return None

    def batch_ack_message(self, request: Request) -> Reply | None:
        """Messages of several pops are consumed."""
        broker_name, acks = pop.read_batch_acks(request.body)
        if not acks:
            raise RequestRefused(ResponseCode.NO_MESSAGE, "the body names no message")
        self.appender.check_load()
        self.pop.settle()
        last: Appended | None = None
        for one in acks[:MAX_BATCH]:
            try:
                last = self._batch_ack(one, broker_name) or last
            except AppendRefused as refused:
                raise self.appender.refusal(refused) from None
        return self.appender.confirm(request, Reply(), last)

    def _batch_ack(self, one: BatchAck, broker_name: str) -> Appended | None:
        topic = pop.real_topic(one.topic, one.group, one.retry)
        if one.revive_queue == pop.ORDER_QUEUE:
            for offset in self._that_are_there(topic, one):
                self._ack_ordered(topic, one.group, one.queue_id, offset, one.pop_time)
            return None
        offsets = one.offsets if self.pop.shared else self._that_are_there(topic, one)
        if not offsets:
            return None
        self._check_queue(one.revive_queue)
        ack = Ack(
            topic, one.group, one.queue_id, one.start_offset, one.pop_time,
            broker_name or self.settings.current.broker_name,
            offsets[: pop.MAX_MESSAGES], batch=True, revive_time=one.pop_time + one.invisible_time,
        )  # fmt: skip
        return self.pop.acknowledge(ack, one.revive_queue)

    def _that_are_there(self, topic: str, one: BatchAck) -> tuple[int, ...]:
        reads = self.reads
        if self.queues.get(topic, one.queue_id) is None:
            return ()
        low, high = reads.min_offset(topic, one.queue_id), reads.max_offset(topic, one.queue_id)
        return tuple(offset for offset in one.offsets if low <= offset <= high)

    def change_invisible_time(self, request: Request) -> Reply | None:
        """Another time for a message that is out: the parts of its new handle. 208: it is not out any more."""
        header: ChangeInvisibleTimeRequest = request.header
        if header.lite_topic:
            return self.lite_acks.change(header)
        self._check_place(request, header, header.offset + 1)
        if not 0 <= header.invisible_time <= MAX_INVISIBLE_MS:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime is 0 to {MAX_INVISIBLE_MS} ms, not {header.invisible_time}",
            )
        handle = pop.parse_handle(header.extra_info)
        if handle.revive_queue == pop.ORDER_QUEUE:
            return self._put_off_ordered(header, handle)
        self._check_queue(handle.revive_queue)
        self.appender.check_load()
        self.pop.settle()
        service, topic, group, queue_id = self.pop, header.topic, header.consumer_group, header.queue_id
        key = topic, group, queue_id, handle.start_offset, handle.pop_time
        if service.full or not service.waits_for(key, (header.offset,), handle.pop_time + handle.invisible_time):
            raise RequestRefused(ResponseCode.NO_MESSAGE, f"{topic} {queue_id} {header.offset} is not popped any more")
        time = service.free_time(topic, group, queue_id, header.offset)
        checkpoint = Checkpoint(
            topic, group, queue_id, header.offset, time, header.invisible_time, self.settings.current.broker_name,
            (header.offset,), again=0, suspend=header.suspend,
        )  # fmt: skip
        ack = Ack(
            topic, group, queue_id, handle.start_offset, handle.pop_time, handle.broker_name, (header.offset,),
            revive_time=handle.pop_time + handle.invisible_time,
        )  # fmt: skip
        try:
            stored = service.open(checkpoint, header.offset + 1)
            stored = service.acknowledge(ack, handle.revive_queue) or stored
        except AppendRefused as refused:
            raise self.appender.refusal(refused) from None
        answer = ChangeInvisibleTimeResponse(
            pop_time=time,
            invisible_time=header.invisible_time,
            revive_qid=service.revive_queue(header.invisible_time),
        )
        return self.appender.confirm(request, Reply(header=answer), stored)

    def _check_place(
        self, request: Request, header: AckMessageRequest | ChangeInvisibleTimeRequest, least_end: int
    ) -> None:
        """Is there such a queue (17, 13), and such a message in it (208)?"""
        row = self.topics.get(header.topic)
        if row is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            )
        if not 0 <= header.queue_id < row.read_queue_nums:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{row.read_queue_nums}] consumer:[{request.conn.peer}]",
            )
        low = self.reads.min_offset(header.topic, header.queue_id)
        high = self.reads.max_offset(header.topic, header.queue_id)
        if header.offset < low or least_end > high:
            raise RequestRefused(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{header.topic}@{header.queue_id}, commit:{header.offset}, store:{low}~{high}",
            )

    def _check_queue(self, revive_queue: int) -> None:
        if not self.pop.revive_queues:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"topic[{self.pop.topic}] not exist")
        if not 0 <= revive_queue < self.pop.revive_queues:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"the revive queue {revive_queue} is none of {self.pop.revive_queues}"
            )

    # ---- in order ----

    def _ack_ordered(self, topic: str, group: str, queue_id: int, offset: int, pop_time: int) -> None:
        """A message of a batch is consumed; when all are, the next batch may go out."""
        service, offsets = self.pop, self.offsets
        position = offsets.query(topic, group, queue_id) or 0
        if offset < position:
            return
        following = service.order.acknowledged(topic, group, queue_id, offset, pop_time, position)
        if following is None:
            return
        if not offsets.has_reset(topic, group, queue_id):
            service.skip(topic, group, queue_id, following)
        if not service.order.blocked(topic, group, queue_id, None, self.turn.now):
            self.holds.pops.more(topic, group, queue_id)

    def _put_off_ordered(self, header: ChangeInvisibleTimeRequest, handle: Handle) -> Reply:
        until = self.turn.now + header.invisible_time
        order = self.pop.order
        if not order.put_off(
            header.topic, header.consumer_group, header.queue_id, header.offset, handle.pop_time, until
        ):
            raise RequestRefused(
                ResponseCode.NO_MESSAGE, f"{header.topic} {header.queue_id} {header.offset} is not popped any more"
            )
        answer = ChangeInvisibleTimeResponse(
            pop_time=handle.pop_time, invisible_time=until - handle.pop_time, revive_qid=pop.ORDER_QUEUE
        )
        return Reply(header=answer)
