"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320): broker.md §4 and §5.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from perseid.base.errors import RemoteProtocolError, RequestRefused
from perseid.broker.kernel import asks, messages
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import OnSlave, Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.metadata.topics import FAQ
from perseid.broker.produce import appender as put
from perseid.broker.produce import inner_batches as inner
from perseid.broker.produce.recall_handles import handle_of
from perseid.store import lmq
from perseid.store.results import Appended, AppendRefused
from perseid.store.store import MessageStore
from perseid.wire import batch, ids, lite
from perseid.wire import properties as props
from perseid.wire.bodies import TopicConfig
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.send import (
    SendMessageRequest,
    SendMessageRequestV2,
)
from perseid.wire.ids import UniqueIds
from perseid.wire.names import HALF_TOPIC, RETRY_PREFIX, TIMER_TOPIC, dlq_topic
from perseid.wire.record import SYS_INNER_BATCH, SYS_MULTI_TAGS, Message

if TYPE_CHECKING:
    from perseid.broker.clients.locks import QueueLocks
    from perseid.broker.kernel.answers import Answers
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.produce.admission import Admission
    from perseid.broker.produce.appender import Appender, Transformer
    from perseid.broker.produce.inner_batches import InnerBatches

MULTI_TAG = "MULTI_TAG"

VERSION_WITH_MAX_RECONSUME_TIMES = 121
"""V3_4_9: from here on a header's own limit of retries counts."""


class Transactions(Protocol):
    """Takes halves."""

    def prepare(self, message: Message, properties: dict[str, str]) -> None:
        """Send a half to where it waits."""

    def prepared(self, message: Message, stored: Appended) -> None:
        """It is stored there."""


@dataclass(slots=True, kw_only=True)
class SendRequests:
    """Sends."""

    turn: Turn
    settings: Settings
    store: MessageStore
    topics: TopicTable
    groups: SubscriptionGroupTable
    appender: Appender
    transformer: Transformer
    answers: Answers
    locks: QueueLocks
    transactions: Transactions
    unique_ids: UniqueIds
    admission: Admission
    inner_batches: InnerBatches

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.SEND_MESSAGE,
                SendMessageRequest,
                self.send_message,
                on_slave=OnSlave.HANDED_ON,
                keeps_checks=True,
                logical=True,
                asks=asks.a_send,
            ),
            Route(
                Code.SEND_MESSAGE_V2,
                SendMessageRequestV2,
                self.send_message,
                on_slave=OnSlave.HANDED_ON,
                keeps_checks=True,
                logical=True,
                asks=asks.a_send,
            ),
            Route(
                Code.SEND_BATCH_MESSAGE,
                SendMessageRequestV2,
                self.send_message,
                on_slave=OnSlave.HANDED_ON,
                keeps_checks=True,
                logical=True,
                asks=asks.a_send,
            ),
        )

    def send_message(self, request: Request) -> Reply | None:
        """Store one message, or a batch, and answer with its id and queue offset.

        A refusal too says the region and whether to trace, as in the original.
        """
        try:
            return self._send(request, request.header)
        except RequestRefused as refused:
            return Reply(refused.code, self.answers.refused_send, remark=refused.remark)

    def _send(self, request: Request, header: SendMessageRequest) -> Reply | None:
        self.appender.check_load()
        if not len(request.command.body):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the message body is empty")
        self.admission.check_service(header)
        topic = self.topics.get(header.topic) or self.admission.create_topic(header)
        queue_id = self.admission.queue_id_of(header, topic)
        sys_flag = header.sys_flag
        if topic.topic_filter_type == MULTI_TAG:
            sys_flag |= SYS_MULTI_TAGS
        if header.topic in self.topics.batch_topics and inner.is_inner(header, sys_flag):
            return self.inner_batches.send(request, header, queue_id, sys_flag)
        if sys_flag & SYS_INNER_BATCH:
            raise put.inner_batch_refused()
        if header.batch:
            return self._send_batch(request, header, queue_id, sys_flag)
        message = Message(
            topic=header.topic,
            body=request.command.body,
            queue_id=queue_id,
            flag=header.flag,
            sys_flag=sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=request.conn.born_host,
            store_host=self.settings.store_host,
            reconsume_times=header.reconsume_times,
        )
        unique_key, queue_id = self._finish(request, message, header, topic)
        try:
            stored = self.appender.store(message)
        except AppendRefused as refused:
            raise self.appender.refusal(refused) from None
        if message.topic == HALF_TOPIC:
            self.transactions.prepared(message, stored)
        handle = handle_of(message, self.settings.current.broker_name)
        msg_id = ids.offset_message_id(self.settings.store_host, stored.physical_offset)
        reply = Reply(header=self.answers.sent(msg_id, queue_id, stored.queue_offset, unique_key, handle))
        return self.appender.acknowledge(
            request, reply, stored.physical_offset + stored.size, put.waits(message.properties)
        )

    # ---- one message ----

    def _finish(
        self, request: Request, message: Message, header: SendMessageRequest, topic: TopicConfig
    ) -> tuple[str, int]:
        """Put the final properties into a message; its unique key, and the queue of its topic that the sender is told.

        The usual message, and one with a time of its own or a half, is stored with its properties as they came and the
        broker's own behind them.
        """
        raw = header.properties.encode("utf-8", "replace")
        if raw and raw[-1] != 2:
            raw += b"\x02"
        if self.store.appends.lmq:
            raw = _named_lite(header.topic, raw)
            if lmq.MARK in raw:
                self.appender.check_light(header.topic, raw)
        if header.topic in self.topics.compacted:
            put.check_key(raw)
        retry = header.topic.startswith(RETRY_PREFIX)
        asked = put.UNUSUAL.findall(raw)
        unique_key = None if retry or not put.REDIRECTING.issuperset(asked) else props.get(raw, props.UNIQ_KEY)
        queue_id = message.queue_id
        if unique_key:
            message.properties = raw + self.answers.encoded_properties
            if asked:
                self._redirect(message)
            return unique_key, queue_id
        properties = props.decode(raw)
        properties.pop(props.POP_CK, None)
        if retry:
            self._redirect_retry(request, message, properties)
        unique_key = properties.get(props.UNIQ_KEY)
        if unique_key is None:
            unique_key = properties[props.UNIQ_KEY] = self.unique_ids.next(self.turn.now)
        properties.update(self.answers.own_properties)
        priority = messages.priority(properties)
        if priority >= 0 and messages.is_by_priority(properties):
            queue_id = message.queue_id = max(0, min(priority, topic.write_queue_nums - 1))
        elif priority >= 0:
            del properties[props.PRIORITY]  # it says something else, which is stronger
        if self._begins_transaction(message, properties):
            self.transactions.prepare(message, properties)
        else:
            self.transformer.transform(message, properties)
        return unique_key, queue_id

    def _redirect(self, message: Message) -> None:
        """Send a message to the topic that its time, or its being a half, asks for."""
        raw = message.properties
        properties = props.decode(raw)
        if self._begins_transaction(message, properties):
            self.transactions.prepare(message, properties)
            given: tuple[str, ...] = (props.TRANSACTION_ID, props.REAL_TOPIC, props.REAL_QID)
        else:
            self.transformer.transform(message, properties)
            given = (props.TIMER_OUT_MS, props.REAL_TOPIC, props.REAL_QID) if message.topic == TIMER_TOPIC else ()
        message.properties = props.added(raw, {name: properties[name] for name in given})

    def _begins_transaction(self, message: Message, properties: dict[str, str]) -> bool:
        """A retried message may still say that it once began a transaction; any other one begins it now."""
        if properties.get(props.TRAN_MSG, "").lower() != "true":
            return False
        if message.reconsume_times > 0 and messages.delay_level(properties) > 0:
            return False
        if self.settings.current.reject_transaction_message:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.settings.current.broker_ip1}] sending transaction message is forbidden",
            )
        return True

    def _redirect_retry(self, request: Request, message: Message, properties: dict[str, str]) -> None:
        """A consumer's own send to its retry topic: dead letters after too many times (broker.md §5.2)."""
        header: SendMessageRequest = request.header
        group_name = header.topic.removeprefix(RETRY_PREFIX)
        group = self.groups.find(group_name, self.settings.current, self.turn.now)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group_name}{FAQ}"
            )
        most = group.retry_max_times
        if header.max_reconsume_times is not None and request.command.version >= VERSION_WITH_MAX_RECONSUME_TIMES:
            most = header.max_reconsume_times
        if message.reconsume_times > most or self.locks.any_held(group_name, self.turn.now):
            message.topic, message.queue_id = dlq_topic(group_name), 0
            properties[props.DELAY] = "-1"
            if self.topics.ensure(message.topic, 1, self.turn.now) is None:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"topic[{message.topic}] not exist")

    # ---- a batch ----

    def _send_batch(self, request: Request, header: SendMessageRequest, queue_id: int, sys_flag: int) -> Reply | None:
        """Store the messages of one batch body at consecutive offsets of one queue, all or none.

        Each is stored with the properties that it brings and no others; those of the header are the batch's.
        """
        body, own = request.command.body, header.properties.encode("utf-8", "replace")
        self.appender.check_batch(header, len(body), own)
        try:
            items = batch.decode(body)
        except RemoteProtocolError as error:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"the batch body can't be read: {error}") from None
        light = (lmq.MARK, props.LITE_TOPIC.encode())
        if self.store.appends.lmq and any(mark in item.properties for item in items for mark in light):
            why = "a message of a batch can't stand in light queues: send it alone"
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, why)
        if header.topic in self.topics.compacted:
            for item in items:
                put.check_key(item.properties)
        born_host, store_host = request.conn.born_host, self.settings.store_host
        out = [
            Message(
                topic=header.topic,
                body=item.body,
                queue_id=queue_id,
                flag=item.flag,
                sys_flag=sys_flag,
                born_timestamp=header.born_timestamp,
                born_host=born_host,
                store_host=store_host,
                reconsume_times=header.reconsume_times,
                properties=put.batchable(item.properties),
            )
            for item in items
        ]
        try:
            stored = self.appender.store_batch(out)
        except AppendRefused as refused:
            raise self.appender.refusal(refused) from None
        msg_ids = ",".join([ids.offset_message_id(store_host, one.physical_offset) for one in stored])
        reply = Reply(
            header=self.answers.sent(msg_ids, queue_id, stored[0].queue_offset, props.get(own, props.UNIQ_KEY))
        )
        last = stored[-1]
        return self.appender.acknowledge(request, reply, last.physical_offset + last.size, put.waits(own))


def _named_lite(topic: str, raw: bytes) -> bytes:
    """The properties of a message; one that names a lite topic is to stand in that one's queue."""
    if props.LITE_TOPIC.encode() not in raw:
        return raw
    found = props.decode(raw)
    name = found.get(props.LITE_TOPIC)
    if name:
        found[props.INNER_MULTI_DISPATCH] = lite.queue_name(topic, name)
        found.pop(props.INNER_MULTI_QUEUE_OFFSET, None)
    return props.encode(found)
