"""Every request that a broker serves: one row each. What has no row is answered with code 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from perseid.broker.handlers import admin, clients, groups, locks, offsets, pull, query, send, sendback, topics
from perseid.broker.request import Reply, Request
from perseid.wire.codes import RequestCode as Code
from perseid.wire.headers import admin as admin_headers
from perseid.wire.headers import clients as client_headers
from perseid.wire.headers import offsets as offset_headers
from perseid.wire.headers import pull as pull_headers
from perseid.wire.headers import query as query_headers
from perseid.wire.headers import send as send_headers
from perseid.wire.headers import topics as topic_headers
from perseid.wire.headers.base import Header

if TYPE_CHECKING:
    from perseid.broker.node import Broker

Handler = Callable[["Broker", Request], Reply | None]


class Route(NamedTuple):
    """A request: its code, its header class (None: it has no fields), the function that answers it."""

    code: Code
    header: type[Header] | None
    handler: Handler


def route_table(*routes: Route) -> dict[int, Route]:
    """The rows by code; a code stands in one row."""
    table: dict[int, Route] = {}
    for route in routes:
        assert route.code not in table, f"{route.code!r} has two rows"
        table[int(route.code)] = route
    return table


ROUTES: dict[int, Route] = route_table(
    # messages
    Route(Code.SEND_MESSAGE, send_headers.SendMessageRequest, send.send_message),
    Route(Code.SEND_MESSAGE_V2, send_headers.SendMessageRequestV2, send.send_message),
    Route(Code.SEND_BATCH_MESSAGE, send_headers.SendMessageRequestV2, send.send_message),
    Route(Code.PULL_MESSAGE, pull_headers.PullMessageRequest, pull.pull_message),
    Route(Code.LITE_PULL_MESSAGE, pull_headers.PullMessageRequest, pull.pull_message),
    Route(Code.CONSUMER_SEND_MSG_BACK, client_headers.ConsumerSendMsgBackRequest, sendback.consumer_send_back),
    Route(Code.QUERY_MESSAGE, query_headers.QueryMessageRequest, query.query_message),
    Route(Code.VIEW_MESSAGE_BY_ID, query_headers.ViewMessageRequest, query.view_message),
    # offsets
    Route(Code.QUERY_CONSUMER_OFFSET, offset_headers.QueryConsumerOffsetRequest, offsets.query_consumer_offset),
    Route(Code.UPDATE_CONSUMER_OFFSET, offset_headers.UpdateConsumerOffsetRequest, offsets.update_consumer_offset),
    Route(Code.SEARCH_OFFSET_BY_TIMESTAMP, offset_headers.SearchOffsetByTimestampRequest, offsets.search_offset),
    Route(Code.GET_MAX_OFFSET, offset_headers.GetMaxOffsetRequest, offsets.get_max_offset),
    Route(Code.GET_MIN_OFFSET, offset_headers.GetMinOffsetRequest, offsets.get_min_offset),
    Route(
        Code.GET_EARLIEST_MSG_STORETIME, offset_headers.GetEarliestMsgStoretimeRequest, offsets.get_earliest_store_time
    ),
    Route(Code.INVOKE_BROKER_TO_RESET_OFFSET, offset_headers.ResetOffsetRequest, offsets.reset_offset),
    # clients
    Route(Code.HEART_BEAT, None, clients.heart_beat),
    Route(Code.UNREGISTER_CLIENT, client_headers.UnregisterClientRequest, clients.unregister_client),
    Route(Code.CHECK_CLIENT_CONFIG, None, clients.check_client_config),
    Route(Code.GET_CONSUMER_LIST_BY_GROUP, client_headers.GetConsumerListByGroupRequest, clients.get_consumer_list),
    Route(Code.LOCK_BATCH_MQ, None, locks.lock_batch),
    Route(Code.UNLOCK_BATCH_MQ, None, locks.unlock_batch),
)

NOT_ON_VIP = frozenset({Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE})
"""Requests that the VIP port leaves to the main one: those that may wait (broker.md §3)."""

__all__ = ["NOT_ON_VIP", "ROUTES", "Route", "admin", "admin_headers", "groups", "topic_headers", "topics", "Any"]
