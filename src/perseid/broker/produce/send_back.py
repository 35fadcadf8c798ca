"""CONSUMER_SEND_MSG_BACK (36): a consumer could not handle a message (broker.md §5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.broker.kernel import messages
from perseid.broker.kernel.asks import SUB, of_group
from perseid.broker.kernel.durability import Durability
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import OnSlave, Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.metadata.topics import FAQ
from perseid.broker.produce.send import VERSION_WITH_MAX_RECONSUME_TIMES
from perseid.store.results import AppendRefused, PutStatus
from perseid.store.store import MessageStore
from perseid.wire import properties as props
from perseid.wire.bodies import SubscriptionGroupConfig, TopicConfig
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.clients import ConsumerSendMsgBackRequest
from perseid.wire.names import dlq_topic, retry_topic
from perseid.wire.record import SYS_INNER_BATCH, Message, Record
from perseid.wire.topic_flags import PERM_WRITE, UNIT_SUB

if TYPE_CHECKING:
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.produce.appender import Appender, Transformer

FIRST_LEVEL = 3
"""Retries begin at delay level 3 (10 s) and go up by one each time."""


@dataclass(slots=True, kw_only=True)
class SendBackRequests:
    """Messages that consumers send back."""

    turn: Turn
    settings: Settings
    store: MessageStore
    topics: TopicTable
    groups: SubscriptionGroupTable
    appender: Appender
    transformer: Transformer
    random: Random
    durability: Durability

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.CONSUMER_SEND_MSG_BACK,
                ConsumerSendMsgBackRequest,
                self.consumer_send_back,
                on_slave=OnSlave.HANDED_ON,
                asks=of_group(SUB, of="group"),
            ),
        )

    def consumer_send_back(self, request: Request) -> Reply | None:
        """Store the message again: for a later retry, or among the dead letters after too many.

        The answer doesn't wait for the disk (WAIT is false): the consumer's offset, which moves on by it, is saved
        only when the log is durable. In a group it waits for the quorum, for offsets are copied, too.
        """
        header: ConsumerSendMsgBackRequest = request.header
        group = self.groups.find(header.group, self.settings.current, self.turn.now)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {header.group}{FAQ}"
            )
        if not self.settings.current.broker_permission & PERM_WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.settings.current.broker_ip1}] sending message is forbidden",
            )
        if group.retry_queue_nums <= 0:
            return Reply()
        topic = self._retry_topic(header, group)
        old = messages.stored_at(self.store.reads, header.offset)
        if old is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")
        message = messages.copy_of(old)
        message.store_host = self.settings.store_host
        message.reconsume_times = old.reconsume_times + 1
        most = group.retry_max_times
        if header.max_reconsume_times is not None and request.command.version >= VERSION_WITH_MAX_RECONSUME_TIMES:
            most = header.max_reconsume_times
        if old.reconsume_times >= most or header.delay_level < 0:
            message.topic, message.queue_id, level = dlq_topic(header.group), 0, 0
            _needed(message.topic, self.topics.ensure(message.topic, 1, self.turn.now))
        else:
            message.topic, message.queue_id = topic.topic_name, self.random.randrange(group.retry_queue_nums)
            level = header.delay_level or FIRST_LEVEL + old.reconsume_times
        end = self._store(message, old, level)
        return Reply() if not self.durability.by_quorum else self.appender.acknowledge(request, Reply(), end, wait=True)

    def _retry_topic(self, header: ConsumerSendMsgBackRequest, group: SubscriptionGroupConfig) -> TopicConfig:
        name = retry_topic(header.group)
        sys_flag = UNIT_SUB if header.unit_mode else 0
        row = _needed(name, self.topics.ensure(name, group.retry_queue_nums, self.turn.now, sys_flag=sys_flag))
        if not row.perm & PERM_WRITE:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden")
        return row

    def _store(self, message: Message, old: Record, level: int) -> int:
        """Store it; where it ends in the log."""
        if old.sys_flag & SYS_INNER_BATCH:  # its messages come back one by one, as sends of the consumer's own
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, PutStatus.MESSAGE_ILLEGAL.name)
        properties = dict(old.props)
        properties.setdefault(props.RETRY_TOPIC, old.topic)
        properties.setdefault(props.ORIGIN_MESSAGE_ID, old.msg_id)
        properties[props.WAIT] = "false"
        properties[props.DELAY] = str(level)
        self.transformer.transform(message, properties)
        try:
            stored = self.appender.store(message)
        except AppendRefused as refused:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, refused.status.name) from None
        return stored.physical_offset + stored.size


def _needed(name: str, row: TopicConfig | None) -> TopicConfig:
    if row is None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist")
    return row
