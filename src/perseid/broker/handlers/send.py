"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320): broker.md §4 and §5.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.base.errors import RemoteProtocolError, RequestRefused
from perseid.broker import messages, put
from perseid.broker.handlers import inner
from perseid.broker.handlers.recall import handle_of
from perseid.broker.request import Reply, Request
from perseid.broker.system_topics import NOT_SENDABLE, PERM_WRITE, UNIT, UNIT_SUB
from perseid.broker.topics import topic_name_fault
from perseid.store import lmq
from perseid.store.results import AppendRefused, PutStatus
from perseid.wire import batch, ids, lite
from perseid.wire import properties as props
from perseid.wire.bodies import TopicConfig
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.send import SendMessageRequest
from perseid.wire.names import HALF_TOPIC, RETRY_PREFIX, TIMER_TOPIC, dlq_topic
from perseid.wire.record import MAX_TOPIC_BYTES, SYS_INNER_BATCH, SYS_MULTI_TAGS, SYS_TRANSACTION_MASK, Message

if TYPE_CHECKING:
    from perseid.broker.node import Broker

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
MULTI_TAG = "MULTI_TAG"
MAX_RANDOM_QUEUE = 99_999_999

VERSION_WITH_MAX_RECONSUME_TIMES = 121
"""V3_4_9: from here on a header's own limit of retries counts."""


def send_message(broker: Broker, request: Request) -> Reply | None:
    """Store one message, or a batch, and answer with its id and queue offset.

    A refusal too says the region and whether to trace, as in the original.
    """
    try:
        return _send(broker, request, request.header)
    except RequestRefused as refused:
        return Reply(refused.code, broker.answers.refused_send, remark=refused.remark)


def _send(broker: Broker, request: Request, header: SendMessageRequest) -> Reply | None:
    broker.appender.check_load()
    if not len(request.command.body):
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the message body is empty")
    check_service(broker, header)
    topic = broker.topics.get(header.topic) or create_topic(broker, header)
    queue_id = queue_id_of(broker, header, topic)
    sys_flag = header.sys_flag
    if topic.topic_filter_type == MULTI_TAG:
        sys_flag |= SYS_MULTI_TAGS
    if header.topic in broker.topics.batch_topics and inner.is_inner(header, sys_flag):
        return inner.send_inner(broker, request, header, queue_id, sys_flag)
    if sys_flag & SYS_INNER_BATCH:
        raise put.inner_batch_refused()
    if header.batch:
        return _send_batch(broker, request, header, queue_id, sys_flag)
    message = Message(
        topic=header.topic,
        body=request.command.body,
        queue_id=queue_id,
        flag=header.flag,
        sys_flag=sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=request.conn.born_host,
        store_host=broker.settings.store_host,
        reconsume_times=header.reconsume_times,
    )
    unique_key, queue_id = _finish(broker, request, message, header, topic)
    try:
        stored = broker.appender.store(message)
    except AppendRefused as refused:
        raise broker.appender.refusal(refused) from None
    if message.topic == HALF_TOPIC:
        broker.transactions.prepared(message, stored)
    handle = handle_of(message, broker.settings.current.broker_name)
    msg_id = ids.offset_message_id(broker.settings.store_host, stored.physical_offset)
    reply = Reply(header=broker.answers.sent(msg_id, queue_id, stored.queue_offset, unique_key, handle))
    return broker.appender.acknowledge(request, reply, stored.physical_offset + stored.size, waits(message.properties))


def waits(properties: bytes) -> bool:
    """Does the sender want to hear of its message only when it is durable? Yes, unless it says no."""
    return props.get(properties, props.WAIT) != "false"


# ---- checks, in the order of broker.md §4.1 ----


def check_service(broker: Broker, header: SendMessageRequest) -> None:
    """RequestRefused when no send is taken now, or none to this topic."""
    start = broker.settings.current.start_accept_send_request_time_stamp
    if broker.turn.now < start:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {start}")
    if not broker.settings.current.broker_permission & PERM_WRITE and broker.topics.is_order(header.topic):
        raise RequestRefused(
            ResponseCode.NO_PERMISSION, f"the broker[{broker.settings.current.broker_ip1}] sending message is forbidden"
        )
    if header.topic in NOT_SENDABLE:
        raise RequestRefused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden.")


def create_topic(broker: Broker, header: SendMessageRequest) -> TopicConfig:
    """The topic of a first send, made after the template that the send names; refused with 29 or 17."""
    fault = topic_name_fault(header.topic)
    if fault is not None:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
    retry = header.topic.startswith(RETRY_PREFIX)
    sys_flag = (UNIT_SUB if retry else UNIT) if header.unit_mode else 0
    topic = broker.topics.create_on_send(
        header.topic,
        default_topic=header.default_topic,
        queue_nums=header.default_topic_queue_nums,
        config=broker.settings.current,
        now=broker.turn.now,
        sys_flag=sys_flag,
    )
    if topic is None and retry:
        topic = broker.topics.ensure(header.topic, 1, broker.turn.now, sys_flag=sys_flag)
    if topic is None:
        raise RequestRefused(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!{FAQ}"
        )
    return topic


def queue_id_of(broker: Broker, header: SendMessageRequest, topic: TopicConfig) -> int:
    """The queue that was asked for, or one at random where none was."""
    queue_id = header.queue_id
    if queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal, {topic.topic_name} has {topic.write_queue_nums} write queues",
        )
    if queue_id >= 0:
        return queue_id
    if topic.write_queue_nums <= 0:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"topic {topic.topic_name} has no queue to write to")
    return broker.random.randrange(MAX_RANDOM_QUEUE) % topic.write_queue_nums


# ---- one message ----


def _finish(
    broker: Broker, request: Request, message: Message, header: SendMessageRequest, topic: TopicConfig
) -> tuple[str, int]:
    """Put the final properties into a message; its unique key, and the queue of its topic that the sender is told.

    The usual message, and one with a time of its own or a half, is stored with its properties as they came and the
    broker's own behind them.
    """
    raw = header.properties.encode("utf-8", "replace")
    if raw and raw[-1] != 2:
        raw += b"\x02"
    if broker.store.lmq:
        raw = _named_lite(header.topic, raw)
        if lmq.MARK in raw:
            broker.appender.check_light(header.topic, raw)
    if header.topic in broker.topics.compacted:
        put.check_key(raw)
    retry = header.topic.startswith(RETRY_PREFIX)
    asked = put.UNUSUAL.findall(raw)
    unique_key = None if retry or not put.REDIRECTING.issuperset(asked) else props.get(raw, props.UNIQ_KEY)
    queue_id = message.queue_id
    if unique_key:
        message.properties = raw + broker.answers.encoded_properties
        if asked:
            _redirect(broker, message)
        return unique_key, queue_id
    properties = props.decode(raw)
    properties.pop(props.POP_CK, None)
    if retry:
        _redirect_retry(broker, request, message, properties)
    unique_key = properties.get(props.UNIQ_KEY)
    if unique_key is None:
        unique_key = properties[props.UNIQ_KEY] = broker.unique_ids.next(broker.turn.now)
    properties.update(broker.answers.own_properties)
    priority = messages.priority(properties)
    if priority >= 0 and messages.is_by_priority(properties):
        queue_id = message.queue_id = max(0, min(priority, topic.write_queue_nums - 1))
    elif priority >= 0:
        del properties[props.PRIORITY]  # it says something else, which is stronger
    if _begins_transaction(broker, message, properties):
        broker.transactions.prepare(message, properties)
    else:
        broker.transformer.transform(message, properties)
    return unique_key, queue_id


def _redirect(broker: Broker, message: Message) -> None:
    """Send a message to the topic that its time, or its being a half, asks for."""
    raw = message.properties
    properties = props.decode(raw)
    if _begins_transaction(broker, message, properties):
        broker.transactions.prepare(message, properties)
        given: tuple[str, ...] = (props.TRANSACTION_ID, props.REAL_TOPIC, props.REAL_QID)
    else:
        broker.transformer.transform(message, properties)
        given = (props.TIMER_OUT_MS, props.REAL_TOPIC, props.REAL_QID) if message.topic == TIMER_TOPIC else ()
    message.properties = props.added(raw, {name: properties[name] for name in given})


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


def _begins_transaction(broker: Broker, message: Message, properties: dict[str, str]) -> bool:
    """A retried message may still say that it once began a transaction; any other one begins it now."""
    if properties.get(props.TRAN_MSG, "").lower() != "true":
        return False
    if message.reconsume_times > 0 and messages.delay_level(properties) > 0:
        return False
    if broker.settings.current.reject_transaction_message:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"the broker[{broker.settings.current.broker_ip1}] sending transaction message is forbidden",
        )
    return True


def _redirect_retry(broker: Broker, request: Request, message: Message, properties: dict[str, str]) -> None:
    """A consumer's own send to its retry topic: dead letters after too many times (broker.md §5.2)."""
    header: SendMessageRequest = request.header
    group_name = header.topic.removeprefix(RETRY_PREFIX)
    group = broker.groups.find(group_name, broker.settings.current, broker.turn.now)
    if group is None:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group_name}{FAQ}"
        )
    most = group.retry_max_times
    if header.max_reconsume_times is not None and request.command.version >= VERSION_WITH_MAX_RECONSUME_TIMES:
        most = header.max_reconsume_times
    if message.reconsume_times > most or broker.locks.any_held(group_name, broker.turn.now):
        message.topic, message.queue_id = dlq_topic(group_name), 0
        properties[props.DELAY] = "-1"
        if broker.topics.ensure(message.topic, 1, broker.turn.now) is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"topic[{message.topic}] not exist")


# ---- a batch ----


def _send_batch(
    broker: Broker, request: Request, header: SendMessageRequest, queue_id: int, sys_flag: int
) -> Reply | None:
    """Store the messages of one batch body at consecutive offsets of one queue, all or none.

    Each is stored with the properties that it brings and no others; those of the header are the batch's.
    """
    body, own = request.command.body, header.properties.encode("utf-8", "replace")
    check_batch(broker, header, len(body), own)
    try:
        items = batch.decode(body)
    except RemoteProtocolError as error:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"the batch body can't be read: {error}") from None
    light = (lmq.MARK, props.LITE_TOPIC.encode())
    if broker.store.lmq and any(mark in item.properties for item in items for mark in light):
        why = "a message of a batch can't stand in light queues: send it alone"
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, why)
    if header.topic in broker.topics.compacted:
        for item in items:
            put.check_key(item.properties)
    born_host, store_host = request.conn.born_host, broker.settings.store_host
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
            properties=batchable(item.properties),
        )
        for item in items
    ]
    try:
        stored = broker.appender.store_batch(out)
    except AppendRefused as refused:
        raise broker.appender.refusal(refused) from None
    msg_ids = ",".join([ids.offset_message_id(store_host, one.physical_offset) for one in stored])
    reply = Reply(
        header=broker.answers.sent(msg_ids, queue_id, stored[0].queue_offset, props.get(own, props.UNIQ_KEY))
    )
    last = stored[-1]
    return broker.appender.acknowledge(request, reply, last.physical_offset + last.size, waits(own))


def check_batch(broker: Broker, header: SendMessageRequest, size: int, own: bytes) -> None:
    """RequestRefused (13) when no batch of this size, and with these properties of its own, can be taken."""
    if len(header.topic) > MAX_TOPIC_BYTES:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(header.topic)}")
    if header.topic.startswith(RETRY_PREFIX):
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}")
    if header.sys_flag & SYS_TRANSACTION_MASK:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "a batch can't be part of a transaction")
    if size > broker.store.config.max_message_size:
        raise broker.appender.refusal(AppendRefused(PutStatus.MESSAGE_ILLEGAL, f"a batch of {size} bytes"))
    batchable(own)


def batchable(properties: bytes) -> bytes:
    """The properties of a message in a batch, or of the batch; refused (13) when a batch can't do what they ask."""
    if put.UNUSUAL.search(properties):
        found = props.decode(properties)
        timed = props.TIMER_OUT_MS not in found and any(name in found for name in put.TIMER_REQUESTS)
        if messages.delay_level(found) > 0 or timed or props.TRAN_MSG in found or props.INNER_NUM in found:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL, "a batch can't hold delayed or transactional messages or inner batches"
            )
    return properties
