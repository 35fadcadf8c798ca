"""QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401), GET_ALL_MESSAGE_REQUEST_MODE (402)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.base.machine import ConnId
from perseid.broker.kernel.asks import GET, SUB, UPDATE, a_group, a_topic, in_body, of_cluster
from perseid.broker.kernel.request import Connection, Reply, Request
from perseid.broker.kernel.route import OnSlave, Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.pop import modes
from perseid.broker.pop import topic_routes as assignment
from perseid.wire import fastjson
from perseid.wire.bodies import (
    MessageQueue,
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
)
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.names import RETRY_PREFIX

if TYPE_CHECKING:
    from perseid.broker.clients.members import ConsumerTable
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.pop.service import PopService

BROADCASTING, CLUSTERING = "BROADCASTING", "CLUSTERING"


AN_ASSIGNMENT = in_body(
    QueryAssignmentRequestBody, lambda body: (a_group(body.consumer_group, SUB), a_topic(body.topic, SUB))
)
A_MODE = in_body(
    SetMessageRequestModeRequestBody, lambda body: (a_group(body.consumer_group, UPDATE), a_topic(body.topic, UPDATE))
)
"""Asked for by codes 400 and 401."""


@dataclass(slots=True, kw_only=True)
class AssignmentRequests:
    """Requests for shares of queues."""

    turn: Turn
    settings: Settings
    topics: TopicTable
    groups: SubscriptionGroupTable
    consumers: ConsumerTable
    pop: PopService
    connections: Mapping[ConnId, Connection]

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(Code.QUERY_ASSIGNMENT, None, self.query_assignment, asks=AN_ASSIGNMENT),
            Route(
                Code.SET_MESSAGE_REQUEST_MODE,
                None,
                self.set_message_request_mode,
                on_slave=OnSlave.MASTERS_TABLE,
                asks=A_MODE,
            ),
            Route(Code.GET_ALL_MESSAGE_REQUEST_MODE, None, self.get_all_message_request_mode, asks=of_cluster(GET)),
        )

    def query_assignment(self, request: Request) -> Reply | None:
        """The queues that are a client's, and whether it pops or pulls them. A body without any member: the client is
        to keep what it has (the topic, the group or the strategy is unknown)."""
        body = QueryAssignmentRequestBody.from_json(request.body)
        if not body.topic or not body.consumer_group:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "an assignment needs a topic and a consumerGroup")
        if body.message_model not in (BROADCASTING, CLUSTERING):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER, f"the message model {body.message_model!r:.80} is unknown"
            )
        mode = self._mode(body.topic, body.consumer_group)

        def found(queues: list[MessageQueue]) -> None:
            if self.connections.get(request.conn.id) is request.conn:
                self.turn.reply(request, Reply(body=self._assigned(body, mode, queues)))

        request.command.keep()
        self.pop.routes.find(body.topic, found)
        return None

    def _mode(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        row = self.pop.modes.get(topic, group)
        if row is not None:
            return row
        config = self.settings.current
        mode = modes.PULL if topic.startswith(RETRY_PREFIX) else config.default_message_request_mode
        return SetMessageRequestModeRequestBody(
            topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=config.default_pop_share_queue_num
        )

    def _assigned(
        self, body: QueryAssignmentRequestBody, mode: SetMessageRequestModeRequestBody,
        queues: list[MessageQueue],
    ) -> bytes:  # fmt: skip
        members = sorted(self.consumers.client_ids(body.consumer_group))
        mine = sorted(queues)
        if body.message_model == CLUSTERING and self.settings.current.server_load_balancer_enable:
            if not members or body.strategy_name not in assignment.STRATEGIES:
                return b"{}"
            arguments = body.strategy_name, body.client_id, mine, members
            if mode.mode == modes.POP:
                mine = assignment.for_popping(*arguments, mode.pop_share_queue_num)
            else:
                mine = assignment.for_pulling(*arguments)
        if not queues:
            return b"{}"
        rows = [MessageQueueAssignment(message_queue=queue, mode=mode.mode) for queue in dict.fromkeys(mine)]
        return fastjson.dumps({"messageQueueAssignments": rows})

    def set_message_request_mode(self, request: Request) -> Reply:
        """Let a group pop or pull a topic; answered when that is durable. 16: retry topics, 17, 26."""
        body = SetMessageRequestModeRequestBody.from_json(request.body)
        if body.topic.startswith(RETRY_PREFIX):
            raise RequestRefused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if body.topic not in self.topics:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{body.topic}] not exist")
        if self.groups.find(body.consumer_group, self.settings.current, self.turn.now) is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        if body.mode not in (modes.PULL, modes.POP):
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"the mode {body.mode!r:.80} is neither PULL nor POP")
        self.pop.modes.put(body)
        return Reply()

    def get_all_message_request_mode(self, request: Request) -> Reply:
        """Which groups pop and which pull: what a slave copies."""
        return Reply(body=self.pop.modes.for_slaves())
