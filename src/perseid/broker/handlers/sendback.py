"""CONSUMER_SEND_MSG_BACK (36): a consumer could not handle a message (broker.md §5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.broker import messages, put
from perseid.broker.handlers.send import FAQ
from perseid.broker.request import Reply, Request
from perseid.broker.system_topics import PERM_WRITE, dlq_topic, retry_topic
from perseid.store.results import AppendRefused
from perseid.wire import properties as props
from perseid.wire import record
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.clients import ConsumerSendMsgBackRequest

if TYPE_CHECKING:
    from perseid.broker.node import Broker

VERSION_WITH_MAX_RECONSUME_TIMES = 121
"""V3_4_9: from here on the header's own limit counts."""

FIRST_LEVEL = 3
"""Retries begin at delay level 3 (10 s) and go up by one each time."""


def consumer_send_back(broker: Broker, request: Request) -> Reply:
    """Store the message again: for a later retry, or among the dead letters after too many."""
    header: ConsumerSendMsgBackRequest = request.header
    group = broker.groups.find(header.group, broker.config, broker.now)
    if group is None:
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group}{FAQ}"
        )
    if not broker.config.broker_permission & PERM_WRITE:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION, f"the broker[{broker.config.broker_ip1}] sending message is forbidden"
        )
    if group.retry_queue_nums <= 0:
        return Reply()
    retry = broker.topics.ensure(retry_topic(header.group), group.retry_queue_nums, broker.now)
    if retry is None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"topic[{retry_topic(header.group)}] not exist")
    if not retry.perm & PERM_WRITE:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION, f"the topic[{retry.topic_name}] sending message is forbidden"
        )
    view = broker.store.record_at(header.offset)
    if view is None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
    old = record.decode(view)
    message, properties = messages.again(old)
    properties.setdefault(props.RETRY_TOPIC, old.topic)
    properties.setdefault(props.ORIGIN_MESSAGE_ID, old.msg_id)
    properties[props.WAIT] = "false"
    properties.pop(props.DELAY, None)
    message.reconsume_times = old.reconsume_times + 1
    message.born_host = old.born_host
    message.store_host = broker.store_host
    most = group.retry_max_times
    if header.max_reconsume_times is not None and request.command.version >= VERSION_WITH_MAX_RECONSUME_TIMES:
        most = header.max_reconsume_times
    if old.reconsume_times >= most or header.delay_level < 0:
        message.topic, message.queue_id = dlq_topic(header.group), 0
        broker.topics.ensure(message.topic, 1, broker.now)
    else:
        message.topic = retry.topic_name
        message.queue_id = broker.random.randrange(group.retry_queue_nums)
        properties[props.DELAY] = str(header.delay_level or FIRST_LEVEL + old.reconsume_times)
    put.transform(broker, message, properties)
    try:
        broker.store.append(message, broker.now)
    except AppendRefused as refused:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, refused.status.name) from None
    return Reply()
