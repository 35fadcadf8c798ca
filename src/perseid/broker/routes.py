"""Every request that a broker serves: one row each (`kernel.route`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

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
from perseid.broker.kernel.route import Handler, OnSlave, Route
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

if TYPE_CHECKING:
    from perseid.broker.node import Broker

Answers = Callable[["Broker", Request], Reply | None]


Bind = Callable[[Answers], Handler]


def routes(broker: Broker) -> tuple[Route, ...]:
    """The rows of one broker."""

    def bound(answers: Answers) -> Handler:
        return partial(answers, broker)

    return tuple(row for rows in SECTIONS for row in rows(bound))


def _messages(bound: Bind) -> tuple[Route, ...]:
    return (
        Route(
            Code.SEND_MESSAGE,
            send_headers.SendMessageRequest,
            bound(send.send_message),
            on_slave=OnSlave.HANDED_ON,
            keeps_checks=True,
            logical=True,
        ),
        Route(
            Code.SEND_MESSAGE_V2,
            send_headers.SendMessageRequestV2,
            bound(send.send_message),
            on_slave=OnSlave.HANDED_ON,
            keeps_checks=True,
            logical=True,
        ),
        Route(
            Code.SEND_BATCH_MESSAGE,
            send_headers.SendMessageRequestV2,
            bound(send.send_message),
            on_slave=OnSlave.HANDED_ON,
            keeps_checks=True,
            logical=True,
        ),
        Route(
            Code.END_TRANSACTION,
            send_headers.EndTransactionRequest,
            bound(transactions.end_transaction),
            keeps_checks=True,
        ),
        Route(
            Code.RESUME_CHECK_HALF_MESSAGE,
            admin_headers.ResumeCheckHalfMessageRequest,
            bound(transactions.resume_check),
        ),
        Route(Code.RECALL_MESSAGE, send_headers.RecallMessageRequest, bound(recall.recall_message)),
        Route(
            Code.PULL_MESSAGE,
            pull_headers.PullMessageRequest,
            bound(pull.pull_message),
            on_slave=OnSlave.READ,
            while_isolated=False,
            on_vip=False,
            promises=False,
            keeps_checks=True,
            logical=True,
        ),
        Route(
            Code.LITE_PULL_MESSAGE,
            pull_headers.PullMessageRequest,
            bound(pull.pull_message),
            on_slave=OnSlave.READ,
            while_isolated=False,
            on_vip=False,
            promises=False,
            keeps_checks=True,
            logical=True,
        ),
    )


def _other_messages(bound: Bind) -> tuple[Route, ...]:
    return (
        Route(
            Code.CONSUMER_SEND_MSG_BACK,
            client_headers.ConsumerSendMsgBackRequest,
            bound(sendback.consumer_send_back),
            on_slave=OnSlave.HANDED_ON,
        ),
        Route(Code.QUERY_MESSAGE, query_headers.QueryMessageRequest, bound(query.query_message)),
        Route(Code.VIEW_MESSAGE_BY_ID, query_headers.ViewMessageByIdRequest, bound(query.view_message)),
        Route(
            Code.SEND_REPLY_MESSAGE,
            send_headers.SendMessageRequest,
            bound(replies.send_reply),
            on_slave=OnSlave.HANDED_ON,
        ),
        Route(
            Code.SEND_REPLY_MESSAGE_V2,
            send_headers.SendMessageRequestV2,
            bound(replies.send_reply),
            on_slave=OnSlave.HANDED_ON,
        ),
    )


def _pop(bound: Bind) -> tuple[Route, ...]:
    return (
        Route(
            Code.POP_MESSAGE,
            pop_headers.PopMessageRequest,
            bound(pop.pop_message),
            on_slave=OnSlave.REFUSED,
            on_vip=False,
        ),
        Route(
            Code.PEEK_MESSAGE,
            pop_headers.PeekMessageRequest,
            bound(pop.peek_message),
            on_slave=OnSlave.REFUSED,
            on_vip=False,
        ),
        Route(
            Code.NOTIFICATION,
            pop_headers.NotificationRequest,
            bound(pop.notification),
            on_slave=OnSlave.REFUSED,
            on_vip=False,
        ),
        Route(Code.POLLING_INFO, pop_headers.PollingInfoRequest, bound(pop.polling_info), on_vip=False),
        Route(Code.ACK_MESSAGE, pop_headers.AckMessageRequest, bound(popack.ack_message), on_slave=OnSlave.REFUSED),
        Route(Code.BATCH_ACK_MESSAGE, None, bound(popack.batch_ack_message), on_slave=OnSlave.REFUSED),
        Route(
            Code.CHANGE_MESSAGE_INVISIBLETIME,
            pop_headers.ChangeInvisibleTimeRequest,
            bound(popack.change_invisible_time),
            on_slave=OnSlave.REFUSED,
        ),
        Route(Code.QUERY_ASSIGNMENT, None, bound(assignment.query_assignment)),
        Route(
            Code.SET_MESSAGE_REQUEST_MODE,
            None,
            bound(assignment.set_message_request_mode),
            on_slave=OnSlave.MASTERS_TABLE,
        ),
    )


def _lite_topics(bound: Bind) -> tuple[Route, ...]:
    return (
        Route(
            Code.POP_LITE_MESSAGE,
            lite_headers.PopLiteMessageRequest,
            bound(lite.pop_lite_message),
            on_slave=OnSlave.REFUSED,
            on_vip=False,
        ),
        Route(Code.LITE_SUBSCRIPTION_CTL, None, bound(lite.lite_subscription_ctl), on_slave=OnSlave.REFUSED),
        Route(Code.GET_BROKER_LITE_INFO, None, bound(lite.get_broker_lite_info)),
        Route(Code.GET_PARENT_TOPIC_INFO, lite_headers.GetParentTopicInfoRequest, bound(lite.get_parent_topic_info)),
        Route(Code.GET_LITE_TOPIC_INFO, lite_headers.GetLiteTopicInfoRequest, bound(lite.get_lite_topic_info)),
        Route(Code.GET_LITE_CLIENT_INFO, lite_headers.GetLiteClientInfoRequest, bound(lite.get_lite_client_info)),
        Route(Code.GET_LITE_GROUP_INFO, lite_headers.GetLiteGroupInfoRequest, bound(lite.get_lite_group_info)),
        Route(
            Code.TRIGGER_LITE_DISPATCH,
            lite_headers.TriggerLiteDispatchRequest,
            bound(lite.trigger_lite_dispatch),
            on_slave=OnSlave.REFUSED,
        ),
    )


def _offsets(bound: Bind) -> tuple[Route, ...]:
    return (
        Route(
            Code.QUERY_CONSUMER_OFFSET,
            offset_headers.QueryConsumerOffsetRequest,
            bound(offsets.query_consumer_offset),
            while_isolated=False,
            keeps_checks=True,
            logical=True,
        ),
        Route(
            Code.UPDATE_CONSUMER_OFFSET,
            offset_headers.UpdateConsumerOffsetRequest,
            bound(offsets.update_consumer_offset),
            while_isolated=False,
            keeps_checks=True,
            logical=True,
        ),
        Route(
            Code.SEARCH_OFFSET_BY_TIMESTAMP,
            offset_headers.SearchOffsetByTimestampRequest,
            bound(offsets.search_offset),
            logical=True,
        ),
        Route(Code.GET_MAX_OFFSET, offset_headers.GetMaxOffsetRequest, bound(offsets.get_max_offset), logical=True),
        Route(Code.GET_MIN_OFFSET, offset_headers.GetMinOffsetRequest, bound(offsets.get_min_offset), logical=True),
        Route(
            Code.GET_EARLIEST_MSG_STORETIME,
            offset_headers.GetEarliestMsgStoretimeRequest,
            bound(offsets.get_earliest_store_time),
            logical=True,
        ),
        Route(Code.INVOKE_BROKER_TO_RESET_OFFSET, admin_headers.ResetOffsetRequest, bound(offsets.reset_offset)),
        Route(
            Code.QUERY_CORRECTION_OFFSET,
            offset_headers.QueryCorrectionOffsetRequest,
            bound(offsets.query_correction_offset),
        ),
        Route(Code.CLONE_GROUP_OFFSET, admin_headers.CloneGroupOffsetRequest, bound(offsets.clone_group_offset)),
    )


def _clients(bound: Bind) -> tuple[Route, ...]:
    return (
        Route(Code.HEART_BEAT, None, bound(clients.heart_beat)),
        Route(Code.UNREGISTER_CLIENT, client_headers.UnregisterClientRequest, bound(clients.unregister_client)),
        Route(Code.CHECK_CLIENT_CONFIG, None, bound(clients.check_client_config)),
        Route(
            Code.GET_CONSUMER_LIST_BY_GROUP,
            client_headers.GetConsumerListByGroupRequest,
            bound(clients.get_consumer_list),
        ),
        Route(Code.LOCK_BATCH_MQ, None, bound(locks.lock_batch)),
        Route(Code.UNLOCK_BATCH_MQ, None, bound(locks.unlock_batch)),
        Route(
            Code.GET_CONSUMER_RUNNING_INFO,
            client_headers.GetConsumerRunningInfoRequest,
            bound(relays.get_consumer_running_info),
        ),
        Route(
            Code.CONSUME_MESSAGE_DIRECTLY,
            client_headers.ConsumeMessageDirectlyRequest,
            bound(relays.consume_message_directly),
        ),
        Route(
            Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            admin_headers.GetConsumerStatusRequest,
            bound(relays.get_consumer_status),
        ),
    )


def _topics(bound: Bind) -> tuple[Route, ...]:
    return (
        Route(
            Code.UPDATE_AND_CREATE_TOPIC,
            topic_headers.CreateTopicRequest,
            bound(topics.update_and_create_topic),
            on_slave=OnSlave.MASTERS_TABLE,
        ),
        Route(
            Code.UPDATE_AND_CREATE_STATIC_TOPIC,
            topic_headers.CreateTopicRequest,
            bound(topics.update_and_create_static_topic),
            on_slave=OnSlave.MASTERS_TABLE,
        ),
        Route(
            Code.UPDATE_AND_CREATE_TOPIC_LIST,
            None,
            bound(topics.update_and_create_topic_list),
            on_slave=OnSlave.MASTERS_TABLE,
        ),
        Route(
            Code.DELETE_TOPIC_IN_BROKER,
            topic_headers.DeleteTopicRequest,
            bound(topics.delete_topic),
            on_slave=OnSlave.MASTERS_TABLE,
        ),
        Route(Code.GET_TOPIC_CONFIG, topic_headers.GetTopicConfigRequest, bound(topics.get_topic_config)),
        Route(Code.GET_ALL_TOPIC_CONFIG, topic_headers.GetAllTopicConfigRequest, bound(topics.get_all_topic_config)),
        Route(
            Code.QUERY_TOPIC_CONSUME_BY_WHO,
            topic_headers.QueryTopicConsumeByWhoRequest,
            bound(topics.query_topic_consume_by_who),
        ),
        Route(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, None, bound(topics.get_system_topics)),
    )


def _groups(bound: Bind) -> tuple[Route, ...]:
    return (
        Route(
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            None,
            bound(groups.update_and_create_group),
            on_slave=OnSlave.MASTERS_TABLE,
        ),
        Route(
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            None,
            bound(groups.update_and_create_group_list),
            on_slave=OnSlave.MASTERS_TABLE,
        ),
        Route(
            Code.DELETE_SUBSCRIPTIONGROUP,
            topic_headers.DeleteSubscriptionGroupRequest,
            bound(groups.delete_group),
            on_slave=OnSlave.MASTERS_TABLE,
        ),
        Route(
            Code.GET_SUBSCRIPTIONGROUP_CONFIG,
            topic_headers.GetSubscriptionGroupConfigRequest,
            bound(groups.get_group_config),
        ),
        Route(
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            topic_headers.GetAllSubscriptionGroupConfigRequest,
            bound(groups.get_all_groups),
        ),
        Route(
            Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
            topic_headers.UpdateAndGetGroupForbiddenRequest,
            bound(groups.update_and_get_forbidden),
        ),
        Route(
            Code.QUERY_TOPICS_BY_CONSUMER,
            topic_headers.QueryTopicsByConsumerRequest,
            bound(groups.query_topics_by_consumer),
        ),
        Route(
            Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
            topic_headers.QuerySubscriptionByConsumerRequest,
            bound(groups.query_subscription_by_consumer),
        ),
    )


def _administration(bound: Bind) -> tuple[Route, ...]:
    return (
        Route(Code.GET_TOPIC_STATS_INFO, topic_headers.GetTopicStatsInfoRequest, bound(admin.get_topic_stats)),
        Route(
            Code.GET_CONSUMER_CONNECTION_LIST,
            topic_headers.GetConsumerConnectionListRequest,
            bound(admin.get_consumer_connections),
        ),
        Route(
            Code.GET_PRODUCER_CONNECTION_LIST,
            topic_headers.GetProducerConnectionListRequest,
            bound(admin.get_producer_connections),
        ),
        Route(Code.GET_CONSUME_STATS, topic_headers.GetConsumeStatsRequest, bound(admin.get_consume_stats)),
        Route(
            Code.QUERY_CONSUME_TIME_SPAN,
            topic_headers.QueryConsumeTimeSpanRequest,
            bound(admin.query_consume_time_span),
        ),
        Route(Code.GET_ALL_PRODUCER_INFO, None, bound(admin.get_all_producers)),
        Route(Code.UPDATE_BROKER_CONFIG, None, bound(admin.update_broker_config), before_role=True),
        Route(Code.GET_BROKER_CONFIG, None, bound(admin.get_broker_config), before_role=True),
        Route(Code.GET_BROKER_RUNTIME_INFO, None, bound(admin.get_runtime_info), before_role=True),
        Route(Code.VIEW_BROKER_STATS_DATA, admin_headers.ViewBrokerStatsDataRequest, bound(upkeep.view_broker_stats)),
        Route(
            Code.GET_BROKER_CONSUME_STATS,
            admin_headers.GetBrokerConsumeStatsRequest,
            bound(upkeep.get_broker_consume_stats),
        ),
        Route(Code.QUERY_CONSUME_QUEUE, query_headers.QueryConsumeQueueRequest, bound(upkeep.query_consume_queue)),
        Route(Code.CLEAN_EXPIRED_CONSUMEQUEUE, None, bound(upkeep.clean_expired_queues)),
        Route(Code.CLEAN_UNUSED_TOPIC, None, bound(upkeep.clean_unused_topics), on_slave=OnSlave.MASTERS_TABLE),
        Route(Code.DELETE_EXPIRED_COMMITLOG, None, bound(upkeep.delete_expired_log)),
        Route(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, None, bound(upkeep.update_cold_limits)),
        Route(Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, None, bound(upkeep.remove_cold_limit)),
        Route(Code.GET_COLD_DATA_FLOW_CTR_INFO, None, bound(upkeep.get_cold_info)),
    )


def _replication(bound: Bind) -> tuple[Route, ...]:
    return (
        Route(
            Code.NOTIFY_BROKER_ROLE_CHANGED,
            controller_headers.NotifyBrokerRoleChangedRequest,
            bound(replication.notify_role_changed),
            before_role=True,
        ),
        Route(Code.GET_BROKER_EPOCH_CACHE, None, bound(replication.get_epoch_cache), before_role=True),
        Route(
            Code.EXCHANGE_BROKER_HA_INFO,
            controller_headers.ExchangeHaInfoRequest,
            bound(replication.exchange_ha_info),
            before_role=True,
        ),
        Route(
            Code.NOTIFY_MIN_BROKER_ID_CHANGE,
            namesrv_headers.NotifyMinBrokerIdChangeRequest,
            bound(replication.notify_min_id),
        ),
        Route(Code.GET_BROKER_HA_STATUS, None, bound(replication.get_ha_status), before_role=True),
        Route(
            Code.RESET_MASTER_FLUSH_OFFSET,
            admin_headers.ResetMasterFlushOffsetRequest,
            bound(replication.reset_master_flush_offset),
        ),
        Route(Code.GET_ALL_CONSUMER_OFFSET, None, bound(offsets.get_all_consumer_offset), while_isolated=False),
        Route(Code.GET_ALL_DELAY_OFFSET, None, bound(replication.get_all_delay_offset), while_isolated=False),
        Route(Code.GET_ALL_MESSAGE_REQUEST_MODE, None, bound(assignment.get_all_message_request_mode)),
        Route(Code.GET_TIMER_CHECK_POINT, None, bound(replication.get_timer_checkpoint)),
        Route(Code.GET_TIMER_METRICS, None, bound(replication.get_timer_metrics)),
    )


SECTIONS = (
    _messages, _other_messages, _pop, _lite_topics, _offsets, _clients, _topics, _groups, _administration, _replication,
)  # fmt: skip
