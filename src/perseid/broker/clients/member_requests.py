"""What clients say about themselves: HEART_BEAT (34), UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38). Source:
broker.md §9, remoting.md §13."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.broker.clients.members import Client
from perseid.broker.kernel.asks import GET, SUB, a_group, a_topic, in_body, of_group
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.security.policies import Asked
from perseid.wire.bodies import ConsumerData, GetConsumerListByGroupResponseBody, HeartbeatData
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.clients import (
    GetConsumerListByGroupRequest,
    HeartbeatResponse,
    UnregisterClientRequest,
)
from perseid.wire.names import retry_topic
from perseid.wire.topic_flags import UNIT_SUB

if TYPE_CHECKING:
    from perseid.broker.clients.members import ConsumerTable, ProducerTable
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.broker.metadata.topics import TopicTable


def _consumers(beat: HeartbeatData) -> Iterable[Asked]:
    """What the consumers of a heartbeat read; producers ask when they send."""
    for consumer in beat.consumer_data_set:
        yield a_group(consumer.group_name, SUB)
        for subscription in consumer.subscription_data_set:
            yield a_topic(subscription.topic, SUB)


A_HEARTBEAT = in_body(HeartbeatData, _consumers)


@dataclass(slots=True, kw_only=True)
class ClientRequests:
    """Requests in which clients say what they are."""

    turn: Turn
    settings: Settings
    topics: TopicTable
    groups: SubscriptionGroupTable
    consumers: ConsumerTable
    producers: ProducerTable

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(Code.HEART_BEAT, None, self.heart_beat, asks=A_HEARTBEAT),
            Route(Code.UNREGISTER_CLIENT, UnregisterClientRequest, self.unregister_client, asks=of_group(SUB)),
            Route(
                Code.GET_CONSUMER_LIST_BY_GROUP,
                GetConsumerListByGroupRequest,
                self.get_consumer_list,
                asks=of_group(SUB, GET),
            ),
        )

    def heart_beat(self, request: Request) -> Reply:
        """Note that a client lives, with its groups and subscriptions.

        A consumer group gets its retry topic here, so that it is in the route before the first retry. A group that
        may not be created is passed over in silence: its pulls will be refused.
        """
        data = HeartbeatData.from_json(request.body)
        client = Client(
            conn=request.conn.id,
            client_id=data.client_id,
            language=request.command.language,
            version=request.command.version,
            peer=request.conn.peer,
            seen=self.turn.now,
        )
        ask = False
        for consumer in data.consumer_data_set:
            ask |= self._consumer_heard(data, consumer, client)
        for producer in data.producer_data_set:
            self.producers.register(producer.group_name, client)
        if not data.heartbeat_fingerprint:
            ask = True  # version 1 always sends all, and the original says so
        return Reply(header=HeartbeatResponse(is_support_heart_beat_v2=True, is_sub_change=ask))

    def _consumer_heard(self, data: HeartbeatData, consumer: ConsumerData, client: Client) -> bool:
        group = self.groups.find(consumer.group_name, self.settings.current, self.turn.now)
        if group is None:
            return False
        self.topics.ensure(
            retry_topic(consumer.group_name),
            group.retry_queue_nums,
            self.turn.now,
            order=any(self.topics.is_order(wanted.topic) for wanted in consumer.subscription_data_set),
            sys_flag=UNIT_SUB if consumer.unit_mode else 0,
        )
        return self.consumers.heard(
            consumer,
            client,
            notify=group.notify_consumer_ids_changed_enable,
            fingerprint=data.heartbeat_fingerprint,
            without_subscriptions=data.without_sub and data.heartbeat_fingerprint != 0,
        )

    def unregister_client(self, request: Request) -> Reply:
        """A producer or consumer says good-bye."""
        header: UnregisterClientRequest = request.header
        if header.producer_group is not None:
            self.producers.unregister(header.producer_group, request.conn.id)
        if header.consumer_group is not None:
            self.consumers.unregister(header.consumer_group, request.conn.id)
        return Reply()

    def get_consumer_list(self, request: Request) -> Reply:
        """The client ids of a group's members, among which its queues are shared."""
        header: GetConsumerListByGroupRequest = request.header
        ids = self.consumers.client_ids(header.consumer_group)
        if not ids:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}")
        return Reply(body=GetConsumerListByGroupResponseBody(consumer_id_list=ids).to_json())
