"""Every request that a broker serves: one row each. What has no row is answered with code 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from perseid.broker.handlers import (
    admin,
    assignment,
    clients,
    groups,
    lite,
    locks,
    offsets,
    pop,
    popack,
    pull,
    query,
    recall,
    relays,
    replication,
    replies,
    send,
    sendback,
    topics,
    transactions,
    upkeep,
)
from perseid.broker.request import Reply, Request
from perseid.wire.codes import RequestCode as Code
from perseid.wire.headers import admin as admin_headers
from perseid.wire.headers import clients as client_headers
from perseid.wire.headers import controller as controller_headers
from perseid.wire.headers import lite as lite_headers
from perseid.wire.headers import namesrv as namesrv_headers
from perseid.wire.headers import offsets as offset_headers
from perseid.wire.headers import pop as pop_headers
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
    Route(Code.END_TRANSACTION, send_headers.EndTransactionRequest, transactions.end_transaction),
    Route(
        Code.RESUME_CHECK_HALF_MESSAGE, admin_headers.ResumeCheckHalfMessageRequest, transactions.resume_check
    ),
    Route(Code.RECALL_MESSAGE, send_headers.RecallMessageRequest, recall.recall_message),
    Route(Code.PULL_MESSAGE, pull_headers.PullMessageRequest, pull.pull_message),
    Route(Code.LITE_PULL_MESSAGE, pull_headers.PullMessageRequest, pull.pull_message),
    Route(Code.CONSUMER_SEND_MSG_BACK, client_headers.ConsumerSendMsgBackRequest, sendback.consumer_send_back),
    Route(Code.QUERY_MESSAGE, query_headers.QueryMessageRequest, query.query_message),
    Route(Code.VIEW_MESSAGE_BY_ID, query_headers.ViewMessageByIdRequest, query.view_message),
    Route(Code.SEND_REPLY_MESSAGE, send_headers.SendMessageRequest, replies.send_reply),
    Route(Code.SEND_REPLY_MESSAGE_V2, send_headers.SendMessageRequestV2, replies.send_reply),
    # pop
    Route(Code.POP_MESSAGE, pop_headers.PopMessageRequest, pop.pop_message),
    Route(Code.PEEK_MESSAGE, pop_headers.PeekMessageRequest, pop.peek_message),
    Route(Code.NOTIFICATION, pop_headers.NotificationRequest, pop.notification),
    Route(Code.POLLING_INFO, pop_headers.PollingInfoRequest, pop.polling_info),
    Route(Code.ACK_MESSAGE, pop_headers.AckMessageRequest, popack.ack_message),
    Route(Code.BATCH_ACK_MESSAGE, None, popack.batch_ack_message),
    Route(
        Code.CHANGE_MESSAGE_INVISIBLETIME, pop_headers.ChangeInvisibleTimeRequest, popack.change_invisible_time
    ),
    Route(Code.QUERY_ASSIGNMENT, None, assignment.query_assignment),
    Route(Code.SET_MESSAGE_REQUEST_MODE, None, assignment.set_message_request_mode),
    # lite topics
    Route(Code.POP_LITE_MESSAGE, lite_headers.PopLiteMessageRequest, lite.pop_lite_message),
    Route(Code.LITE_SUBSCRIPTION_CTL, None, lite.lite_subscription_ctl),
    Route(Code.GET_BROKER_LITE_INFO, None, lite.get_broker_lite_info),
    Route(Code.GET_PARENT_TOPIC_INFO, lite_headers.GetParentTopicInfoRequest, lite.get_parent_topic_info),
    Route(Code.GET_LITE_TOPIC_INFO, lite_headers.GetLiteTopicInfoRequest, lite.get_lite_topic_info),
    Route(Code.GET_LITE_CLIENT_INFO, lite_headers.GetLiteClientInfoRequest, lite.get_lite_client_info),
    Route(Code.GET_LITE_GROUP_INFO, lite_headers.GetLiteGroupInfoRequest, lite.get_lite_group_info),
    Route(Code.TRIGGER_LITE_DISPATCH, lite_headers.TriggerLiteDispatchRequest, lite.trigger_lite_dispatch),
    # offsets
    Route(Code.QUERY_CONSUMER_OFFSET, offset_headers.QueryConsumerOffsetRequest, offsets.query_consumer_offset),
    Route(Code.UPDATE_CONSUMER_OFFSET, offset_headers.UpdateConsumerOffsetRequest, offsets.update_consumer_offset),
    Route(Code.SEARCH_OFFSET_BY_TIMESTAMP, offset_headers.SearchOffsetByTimestampRequest, offsets.search_offset),
    Route(Code.GET_MAX_OFFSET, offset_headers.GetMaxOffsetRequest, offsets.get_max_offset),
    Route(Code.GET_MIN_OFFSET, offset_headers.GetMinOffsetRequest, offsets.get_min_offset),
    Route(
        Code.GET_EARLIEST_MSG_STORETIME, offset_headers.GetEarliestMsgStoretimeRequest, offsets.get_earliest_store_time
    ),
    Route(Code.INVOKE_BROKER_TO_RESET_OFFSET, admin_headers.ResetOffsetRequest, offsets.reset_offset),
    Route(Code.QUERY_CORRECTION_OFFSET, offset_headers.QueryCorrectionOffsetRequest, offsets.query_correction_offset),
    Route(Code.CLONE_GROUP_OFFSET, admin_headers.CloneGroupOffsetRequest, offsets.clone_group_offset),
    # clients
    Route(Code.HEART_BEAT, None, clients.heart_beat),
    Route(Code.UNREGISTER_CLIENT, client_headers.UnregisterClientRequest, clients.unregister_client),
    Route(Code.CHECK_CLIENT_CONFIG, None, clients.check_client_config),
    Route(Code.GET_CONSUMER_LIST_BY_GROUP, client_headers.GetConsumerListByGroupRequest, clients.get_consumer_list),
    Route(Code.LOCK_BATCH_MQ, None, locks.lock_batch),
    Route(Code.UNLOCK_BATCH_MQ, None, locks.unlock_batch),
    Route(
        Code.GET_CONSUMER_RUNNING_INFO, client_headers.GetConsumerRunningInfoRequest, relays.get_consumer_running_info
    ),
    Route(
        Code.CONSUME_MESSAGE_DIRECTLY, client_headers.ConsumeMessageDirectlyRequest, relays.consume_message_directly
    ),
    Route(
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, admin_headers.GetConsumerStatusRequest, relays.get_consumer_status
    ),
    # topics
    Route(Code.UPDATE_AND_CREATE_TOPIC, topic_headers.CreateTopicRequest, topics.update_and_create_topic),
    Route(
        Code.UPDATE_AND_CREATE_STATIC_TOPIC, topic_headers.CreateTopicRequest, topics.update_and_create_static_topic
    ),
    Route(Code.UPDATE_AND_CREATE_TOPIC_LIST, None, topics.update_and_create_topic_list),
    Route(Code.DELETE_TOPIC_IN_BROKER, topic_headers.DeleteTopicRequest, topics.delete_topic),
    Route(Code.GET_TOPIC_CONFIG, topic_headers.GetTopicConfigRequest, topics.get_topic_config),
    Route(Code.GET_ALL_TOPIC_CONFIG, topic_headers.GetAllTopicConfigRequest, topics.get_all_topic_config),
    Route(
        Code.QUERY_TOPIC_CONSUME_BY_WHO, topic_headers.QueryTopicConsumeByWhoRequest, topics.query_topic_consume_by_who
    ),
    Route(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, None, topics.get_system_topics),
    # groups
    Route(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, groups.update_and_create_group),
    Route(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, groups.update_and_create_group_list),
    Route(Code.DELETE_SUBSCRIPTIONGROUP, topic_headers.DeleteSubscriptionGroupRequest, groups.delete_group),
    Route(
        Code.GET_SUBSCRIPTIONGROUP_CONFIG, topic_headers.GetSubscriptionGroupConfigRequest, groups.get_group_config
    ),
    Route(
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        topic_headers.GetAllSubscriptionGroupConfigRequest,
        groups.get_all_groups,
    ),
    Route(
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
        topic_headers.UpdateAndGetGroupForbiddenRequest,
        groups.update_and_get_forbidden,
    ),
    Route(Code.QUERY_TOPICS_BY_CONSUMER, topic_headers.QueryTopicsByConsumerRequest, groups.query_topics_by_consumer),
    Route(
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
        topic_headers.QuerySubscriptionByConsumerRequest,
        groups.query_subscription_by_consumer,
    ),
    # administration
    Route(Code.GET_TOPIC_STATS_INFO, topic_headers.GetTopicStatsInfoRequest, admin.get_topic_stats),
    Route(
        Code.GET_CONSUMER_CONNECTION_LIST,
        topic_headers.GetConsumerConnectionListRequest,
        admin.get_consumer_connections,
    ),
    Route(
        Code.GET_PRODUCER_CONNECTION_LIST,
        topic_headers.GetProducerConnectionListRequest,
        admin.get_producer_connections,
    ),
    Route(Code.GET_CONSUME_STATS, topic_headers.GetConsumeStatsRequest, admin.get_consume_stats),
    Route(Code.QUERY_CONSUME_TIME_SPAN, topic_headers.QueryConsumeTimeSpanRequest, admin.query_consume_time_span),
    Route(Code.GET_ALL_PRODUCER_INFO, None, admin.get_all_producers),
    Route(Code.UPDATE_BROKER_CONFIG, None, admin.update_broker_config),
    Route(Code.GET_BROKER_CONFIG, None, admin.get_broker_config),
    Route(Code.GET_BROKER_RUNTIME_INFO, None, admin.get_runtime_info),
    Route(Code.VIEW_BROKER_STATS_DATA, admin_headers.ViewBrokerStatsDataRequest, upkeep.view_broker_stats),
    Route(Code.GET_BROKER_CONSUME_STATS, admin_headers.GetBrokerConsumeStatsRequest, upkeep.get_broker_consume_stats),
    Route(Code.QUERY_CONSUME_QUEUE, query_headers.QueryConsumeQueueRequest, upkeep.query_consume_queue),
    Route(Code.CLEAN_EXPIRED_CONSUMEQUEUE, None, upkeep.clean_expired_queues),
    Route(Code.CLEAN_UNUSED_TOPIC, None, upkeep.clean_unused_topics),
    Route(Code.DELETE_EXPIRED_COMMITLOG, None, upkeep.delete_expired_log),
    Route(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, None, upkeep.update_cold_limits),
    Route(Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, None, upkeep.remove_cold_limit),
    Route(Code.GET_COLD_DATA_FLOW_CTR_INFO, None, upkeep.get_cold_info),
    # replication
    Route(
        Code.NOTIFY_BROKER_ROLE_CHANGED,
        controller_headers.NotifyBrokerRoleChangedRequest,
        replication.notify_role_changed,
    ),
    Route(Code.GET_BROKER_EPOCH_CACHE, None, replication.get_epoch_cache),
    Route(Code.EXCHANGE_BROKER_HA_INFO, controller_headers.ExchangeHaInfoRequest, replication.exchange_ha_info),
    Route(
        Code.NOTIFY_MIN_BROKER_ID_CHANGE,
        namesrv_headers.NotifyMinBrokerIdChangeRequest,
        replication.notify_min_id,
    ),
    Route(Code.GET_BROKER_HA_STATUS, None, replication.get_ha_status),
    Route(
        Code.RESET_MASTER_FLUSH_OFFSET,
        admin_headers.ResetMasterFlushOffsetRequest,
        replication.reset_master_flush_offset,
    ),
    Route(Code.GET_ALL_CONSUMER_OFFSET, None, offsets.get_all_consumer_offset),
    Route(Code.GET_ALL_DELAY_OFFSET, None, replication.get_all_delay_offset),
    Route(Code.GET_ALL_MESSAGE_REQUEST_MODE, None, assignment.get_all_message_request_mode),
    Route(Code.GET_TIMER_CHECK_POINT, None, replication.get_timer_checkpoint),
    Route(Code.GET_TIMER_METRICS, None, replication.get_timer_metrics),
)

READS = frozenset({Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE})
"""Codes whose answers promise nothing, so they wait for no table to be saved."""

NOT_ON_VIP = READS | {
    Code.POP_MESSAGE, Code.PEEK_MESSAGE, Code.NOTIFICATION, Code.POLLING_INFO, Code.POP_LITE_MESSAGE,
}  # fmt: skip
"""Requests that the VIP port leaves to the main one: those that may wait, and what belongs to them (broker.md §3)."""
