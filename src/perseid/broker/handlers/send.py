"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320): broker.md §4 and §5.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.base.errors import RemoteProtocolError, RequestRefused
from perseid.broker import put
from perseid.broker.request import Reply, Request
from perseid.broker.system_topics import DLQ_PREFIX, NOT_SENDABLE, RETRY_PREFIX, dlq_topic
from perseid.broker.topics import topic_name_fault
from perseid.store.results import AppendRefused
from perseid.wire import batch, ids
from perseid.wire import properties as props
from perseid.wire.bodies import TopicConfig
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.send import SendMessageRequest
from perseid.wire.record import SYS_MULTI_TAGS, SYS_TRANSACTION_MASK, Message

if TYPE_CHECKING:
    from perseid.broker.node import Broker

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
MULTI_TAG = "MULTI_TAG"
MAX_RANDOM_QUEUE = 99_999_999
UNIT_TOPIC = 1
"""Bit of a topic's sysFlag: made by a client in unit mode."""


def send_message(broker: Broker, request: Request) -> Reply | None:
    """Store one message, or a batch, and answer with its id and queue offset."""
    header: SendMessageRequest = request.header
    _check_service(broker, header)
    topic = broker.topics.get(header.topic) or _create_topic(broker, header)
    queue_id = _queue_id(broker, header, topic)
    if header.batch:
        return _send_batch(broker, request, header, topic, queue_id)
    body = request.command.body
    if not len(body):
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the message body is empty")
    sys_flag = header.sys_flag
    if topic.topic_filter_type == MULTI_TAG:
        sys_flag |= SYS_MULTI_TAGS
    message = Message(
        topic=header.topic,
        body=body,
        queue_id=queue_id,
        flag=header.flag,
        sys_flag=sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=request.conn.born_host,
        store_host=broker.store_host,
        reconsume_times=header.reconsume_times or 0,
    )
    unique_key = _finish(broker, message, header)
    stored = put.append(broker, message)
    reply = Reply(
        header=broker.answers.sent(
            ids.offset_message_id(broker.store_host, stored.physical_offset), queue_id, stored.queue_offset, unique_key
        )
    )
    if not broker.sync_flush:
        return reply
    wait = (props.get(message.properties, props.WAIT) or "true") != "false"
    return put.acknowledge(broker, request, reply, stored.physical_offset + stored.size, wait)


def _check_service(broker: Broker, header: SendMessageRequest) -> None:
    start = broker.config.start_accept_send_request_time_stamp
    if broker.now < start:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {start}")
    if header.topic in NOT_SENDABLE:
        raise RequestRefused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden.")


def _create_topic(broker: Broker, header: SendMessageRequest) -> TopicConfig:
    """The topic of a first send, made after the template that the send names; refused with 29 or 17."""
    fault = topic_name_fault(header.topic)
    if fault is not None:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
    topic = broker.topics.create_on_send(
        header.topic,
        default_topic=header.default_topic,
        queue_nums=header.default_topic_queue_nums,
        config=broker.config,
        now=broker.now,
        sys_flag=UNIT_TOPIC if header.unit_mode else 0,
    )
    if topic is None and header.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        topic = broker.topics.ensure(header.topic, 1, broker.now)
    if topic is None:
        raise RequestRefused(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!{FAQ}"
        )
    return topic


def _queue_id(broker: Broker, header: SendMessageRequest, topic: TopicConfig) -> int:
    """The queue that was asked for, or one at random where none was."""
    queue_id = header.queue_id
    if queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal, topic {topic.topic_name} has {topic.write_queue_nums} write queues",
        )
    if queue_id < 0:
        return broker.random.randrange(MAX_RANDOM_QUEUE) % max(1, topic.write_queue_nums)
    return queue_id


def _finish(broker: Broker, message: Message, header: SendMessageRequest) -> str:
    """Put the final properties into a message; its unique key is the answer.

    The usual message is stored with its properties as they came and the broker's own behind them.
    """
    raw = header.properties.encode("utf-8", "replace") if header.properties else b""
    if raw and raw[-1] != 2:
        raw += b"\x02"
    retry = header.topic.startswith(RETRY_PREFIX)
    unique_key = None if retry or put.UNUSUAL.search(raw) else props.get(raw, props.UNIQ_KEY)
    if unique_key:
        message.properties = raw + broker.own_properties
        return unique_key
    properties = props.decode(raw)
    properties[props.MSG_REGION] = broker.config.region_id
    properties[props.TRACE_ON] = "true" if broker.config.trace_on else "false"
    unique_key = properties.setdefault(props.UNIQ_KEY, broker.unique_ids.next(broker.now))
    if retry:
        _redirect_retry(broker, message, properties, header)
    put.transform(broker, message, properties)
    return unique_key


def _redirect_retry(
    broker: Broker, message: Message, properties: dict[str, str], header: SendMessageRequest
) -> None:
    """A consumer's own send to its retry topic: dead letters after too many times (broker.md §5.2)."""
    group_name = header.topic.removeprefix(RETRY_PREFIX)
    group = broker.groups.find(group_name, broker.config, broker.now)
    if group is None:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group_name}{FAQ}"
        )
    most = group.retry_max_times
    if header.max_reconsume_times is not None:
        most = header.max_reconsume_times
    if message.reconsume_times > most or broker.locks.any_held(group_name, broker.now):
        message.topic, message.queue_id = dlq_topic(group_name), 0
        broker.topics.ensure(message.topic, 1, broker.now)
        properties[props.DELAY] = "-1"


def _send_batch(
    broker: Broker, request: Request, header: SendMessageRequest, topic: TopicConfig, queue_id: int
) -> Reply | None:
    """Store the messages of one batch body at consecutive offsets of one queue, all or none."""
    if header.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}")
    if header.sys_flag & SYS_TRANSACTION_MASK:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "a batch can't be part of a transaction")
    try:
        items = batch.decode(request.command.body)
    except RemoteProtocolError as error:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"the batch body can't be read: {error}") from None
    if not items:
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")
    sys_flag = header.sys_flag | (SYS_MULTI_TAGS if topic.topic_filter_type == MULTI_TAG else 0)
    out = [_batched(broker, request, header, item, queue_id, sys_flag) for item in items]
    try:
        stored = broker.store.append_batch(out, broker.now)
    except AppendRefused as refused:
        raise put.refusal(broker, refused) from None
    msg_ids = ",".join(ids.offset_message_id(broker.store_host, one.physical_offset) for one in stored)
    raw = header.properties.encode("utf-8", "replace") if header.properties else b""
    reply = Reply(
        header=broker.answers.sent(msg_ids, queue_id, stored[0].queue_offset, props.get(raw, props.UNIQ_KEY))
    )
    last = stored[-1]
    wait = (props.get(raw, props.WAIT) or "true") != "false"
    return put.acknowledge(broker, request, reply, last.physical_offset + last.size, wait)


def _batched(
    broker: Broker, request: Request, header: SendMessageRequest, item: batch.BatchItem, queue_id: int, sys_flag: int
) -> Message:
    """One message of a batch; delays, timers and transactions are not for batches."""
    raw = bytes(item.properties)
    if raw and raw[-1] != 2:
        raw += b"\x02"
    if put.UNUSUAL.search(raw):
        found = props.decode(raw)
        level = found.get(props.DELAY, "")
        if (level.isdecimal() and int(level) > 0) or props.TRAN_MSG in found or props.INNER_NUM in found:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL, "a batch can't hold delayed or transactional messages or inner batches"
            )
        for name in (props.POP_CK, props.MSG_REGION, props.TRACE_ON, props.CLUSTER, props.DELAY):
            found.pop(name, None)
        raw = props.encode(found)
    return Message(
        topic=header.topic,
        body=item.body,
        queue_id=queue_id,
        flag=item.flag,
        sys_flag=sys_flag,
        born_timestamp=header.born_timestamp,
        born_host=request.conn.born_host,
        store_host=broker.store_host,
        reconsume_times=header.reconsume_times or 0,
        properties=raw + broker.own_properties,
    )
