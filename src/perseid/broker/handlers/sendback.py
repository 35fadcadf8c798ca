"""CONSUMER_SEND_MSG_BACK (36): a consumer could not handle a message (broker.md §5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.broker import messages
from perseid.broker.handlers.send import FAQ, VERSION_WITH_MAX_RECONSUME_TIMES
from perseid.broker.request import Reply, Request
from perseid.broker.system_topics import PERM_WRITE, UNIT_SUB
from perseid.store.results import AppendRefused, PutStatus
from perseid.wire import properties as props
from perseid.wire.bodies import SubscriptionGroupConfig, TopicConfig
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.clients import ConsumerSendMsgBackRequest
from perseid.wire.names import dlq_topic, retry_topic
from perseid.wire.record import SYS_INNER_BATCH, Message, Record

if TYPE_CHECKING:
    from perseid.broker.node import Broker

FIRST_LEVEL = 3
"""Retries begin at delay level 3 (10 s) and go up by one each time."""


def consumer_send_back(broker: Broker, request: Request) -> Reply | None:
    """Store the message again: for a later retry, or among the dead letters after too many.

    The answer doesn't wait for the disk (WAIT is false): the consumer's offset, which moves on by it, is saved
    only when the log is durable. In a group it waits for the quorum, for offsets are copied, too.
    """
    header: ConsumerSendMsgBackRequest = request.header
    group = broker.groups.find(header.group, broker.settings.current, broker.turn.now)
    if group is None:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group}{FAQ}"
        )
    if not broker.settings.current.broker_permission & PERM_WRITE:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION, f"the broker[{broker.settings.current.broker_ip1}] sending message is forbidden"
        )
    if group.retry_queue_nums <= 0:
        return Reply()
    topic = _retry_topic(broker, header, group)
    old = messages.stored_at(broker.store, header.offset)
    if old is None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
    message = messages.again(old)
    message.store_host = broker.settings.store_host
    message.reconsume_times = old.reconsume_times + 1
    most = group.retry_max_times
    if header.max_reconsume_times is not None and request.command.version >= VERSION_WITH_MAX_RECONSUME_TIMES:
        most = header.max_reconsume_times
    if old.reconsume_times >= most or header.delay_level < 0:
        message.topic, message.queue_id, level = dlq_topic(header.group), 0, 0
        _needed(message.topic, broker.topics.ensure(message.topic, 1, broker.turn.now))
    else:
        message.topic, message.queue_id = topic.topic_name, broker.random.randrange(group.retry_queue_nums)
        level = header.delay_level or FIRST_LEVEL + old.reconsume_times
    end = _store(broker, message, old, level)
    return Reply() if broker.group is None else broker.appender.acknowledge(request, Reply(), end, wait=True)


def _retry_topic(broker: Broker, header: ConsumerSendMsgBackRequest, group: SubscriptionGroupConfig) -> TopicConfig:
    name = retry_topic(header.group)
    sys_flag = UNIT_SUB if header.unit_mode else 0
    row = _needed(name, broker.topics.ensure(name, group.retry_queue_nums, broker.turn.now, sys_flag=sys_flag))
    if not row.perm & PERM_WRITE:
        raise RequestRefused(ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden")
    return row


def _needed(name: str, row: TopicConfig | None) -> TopicConfig:
    if row is None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist")
    return row


def _store(broker: Broker, message: Message, old: Record, level: int) -> int:
    """Store it; where it ends in the log."""
    if old.sys_flag & SYS_INNER_BATCH:  # its messages come back one by one, as sends of the consumer's own
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, PutStatus.MESSAGE_ILLEGAL.name)
    properties = dict(old.props)
    properties.setdefault(props.RETRY_TOPIC, old.topic)
    properties.setdefault(props.ORIGIN_MESSAGE_ID, old.msg_id)
    properties[props.WAIT] = "false"
    properties[props.DELAY] = str(level)
    broker.transformer.transform(message, properties)
    try:
        stored = broker.appender.store(message)
    except AppendRefused as refused:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, refused.status.name) from None
    return stored.physical_offset + stored.size
