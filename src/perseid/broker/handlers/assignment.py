"""QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401), GET_ALL_MESSAGE_REQUEST_MODE (402)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.broker.pop import assignment, modes
from perseid.broker.request import Reply, Request
from perseid.wire import fastjson
from perseid.wire.bodies import (
    MessageQueue,
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
)
from perseid.wire.codes import ResponseCode
from perseid.wire.names import RETRY_PREFIX

if TYPE_CHECKING:
    from perseid.broker.node import Broker

BROADCASTING, CLUSTERING = "BROADCASTING", "CLUSTERING"


def query_assignment(broker: Broker, request: Request) -> Reply | None:
    """The queues that are a client's, and whether it pops or pulls them. A body without any member: the client is to
    keep what it has (the topic, the group or the strategy is unknown)."""
    body = QueryAssignmentRequestBody.from_json(request.body)
    if not body.topic or not body.consumer_group:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, "an assignment needs a topic and a consumerGroup")
    if body.message_model not in (BROADCASTING, CLUSTERING):
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"the message model {body.message_model!r:.80} is unknown")
    mode = _mode(broker, body.topic, body.consumer_group)

    def found(queues: list[MessageQueue]) -> None:
        if broker.connections.get(request.conn.id) is request.conn:
            broker.turn.reply(request, Reply(body=_assigned(broker, body, mode, queues)))

    request.command.keep()
    broker.pop.routes.find(body.topic, found)
    return None


def _mode(broker: Broker, topic: str, group: str) -> SetMessageRequestModeRequestBody:
    row = broker.pop.modes.get(topic, group)
    if row is not None:
        return row
    config = broker.settings.current
    mode = modes.PULL if topic.startswith(RETRY_PREFIX) else config.default_message_request_mode
    return SetMessageRequestModeRequestBody(
        topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=config.default_pop_share_queue_num
    )


def _assigned(
    broker: Broker, body: QueryAssignmentRequestBody, mode: SetMessageRequestModeRequestBody,
    queues: list[MessageQueue],
) -> bytes:  # fmt: skip
    members = sorted(broker.consumers.client_ids(body.consumer_group))
    mine = sorted(queues)
    if body.message_model == CLUSTERING and broker.settings.current.server_load_balancer_enable:
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


def set_message_request_mode(broker: Broker, request: Request) -> Reply:
    """Let a group pop or pull a topic; answered when that is durable. 16: retry topics, 17, 26."""
    body = SetMessageRequestModeRequestBody.from_json(request.body)
    if body.topic.startswith(RETRY_PREFIX):
        raise RequestRefused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
    if body.topic not in broker.topics:
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{body.topic}] not exist")
    if broker.groups.find(body.consumer_group, broker.settings.current, broker.turn.now) is None:
        raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
    if body.mode not in (modes.PULL, modes.POP):
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"the mode {body.mode!r:.80} is neither PULL nor POP")
    broker.pop.modes.put(body)
    return Reply()


def get_all_message_request_mode(broker: Broker, request: Request) -> Reply:
    """Which groups pop and which pull: what a slave copies."""
    return Reply(body=broker.pop.modes.for_slaves())
