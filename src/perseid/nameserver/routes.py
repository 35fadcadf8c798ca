"""Every request that the name server answers: one row, one header class, one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from perseid.nameserver import handlers
from perseid.nameserver.request import Reply, Request
from perseid.security.members import Asks
from perseid.wire.codes import RequestCode as Code
from perseid.wire.headers import namesrv as headers
from perseid.wire.headers.base import Header

if TYPE_CHECKING:
    from perseid.nameserver.node import NameServer

Handler: TypeAlias = "Callable[[NameServer, Request], Reply | None]"


class Route(NamedTuple):
    """How one request code is served; `header` None: it has no fields, or the handler reads them itself."""

    code: Code
    header: type[Header] | None
    handler: Handler
    asks: Asks
    """Of whoever sends it, where requests have to be signed. A topic's route is for everybody: clients sign as users of
    brokers, whom nobody knows here."""


ROUTES: dict[int, Route] = {
    route.code: route
    for route in (
        Route(
            Code.GET_ROUTEINFO_BY_TOPIC,
            headers.GetRouteInfoByTopicRequest,
            handlers.get_route_info_by_topic,
            Asks.NOTHING,
        ),
        Route(Code.PUT_KV_CONFIG, None, handlers.put_kv_config, Asks.SUPER),
        Route(Code.GET_KV_CONFIG, headers.GetKvConfigRequest, handlers.get_kv_config, Asks.SUPER),
        Route(Code.DELETE_KV_CONFIG, headers.DeleteKvConfigRequest, handlers.delete_kv_config, Asks.SUPER),
        Route(
            Code.GET_KVLIST_BY_NAMESPACE,
            headers.GetKvListByNamespaceRequest,
            handlers.get_kv_list_by_namespace,
            Asks.SUPER,
        ),
        Route(Code.REGISTER_BROKER, headers.RegisterBrokerRequest, handlers.register_broker, Asks.SUPER),
        Route(Code.UNREGISTER_BROKER, headers.UnregisterBrokerRequest, handlers.unregister_broker, Asks.SUPER),
        Route(Code.QUERY_DATA_VERSION, headers.QueryDataVersionRequest, handlers.query_data_version, Asks.SUPER),
        Route(Code.BROKER_HEARTBEAT, headers.BrokerHeartbeatRequest, handlers.broker_heartbeat, Asks.SUPER),
        Route(
            Code.GET_BROKER_MEMBER_GROUP,
            headers.GetBrokerMemberGroupRequest,
            handlers.get_broker_member_group,
            Asks.SUPER,
        ),
        Route(Code.GET_BROKER_CLUSTER_INFO, None, handlers.get_broker_cluster_info, Asks.SUPER),
        Route(
            Code.WIPE_WRITE_PERM_OF_BROKER,
            headers.WipeWritePermOfBrokerRequest,
            handlers.wipe_write_perm_of_broker,
            Asks.SUPER,
        ),
        Route(
            Code.ADD_WRITE_PERM_OF_BROKER,
            headers.AddWritePermOfBrokerRequest,
            handlers.add_write_perm_of_broker,
            Asks.SUPER,
        ),
        Route(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None, handlers.get_all_topic_list, Asks.SUPER),
        Route(
            Code.REGISTER_TOPIC_IN_NAMESRV, headers.RegisterTopicInNamesrvRequest, handlers.register_topic, Asks.SUPER
        ),
        Route(Code.DELETE_TOPIC_IN_NAMESRV, headers.DeleteTopicInNamesrvRequest, handlers.delete_topic, Asks.SUPER),
        Route(
            Code.GET_TOPICS_BY_CLUSTER, headers.GetTopicsByClusterRequest, handlers.get_topics_by_cluster, Asks.SUPER
        ),
        Route(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, None, handlers.get_system_topic_list, Asks.SUPER),
        Route(Code.GET_UNIT_TOPIC_LIST, None, handlers.get_unit_topic_list, Asks.SUPER),
        Route(Code.GET_HAS_UNIT_SUB_TOPIC_LIST, None, handlers.get_has_unit_sub_topic_list, Asks.SUPER),
        Route(Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, None, handlers.get_has_unit_sub_ununit_topic_list, Asks.SUPER),
        Route(Code.UPDATE_NAMESRV_CONFIG, None, handlers.update_config, Asks.SUPER),
        Route(Code.GET_NAMESRV_CONFIG, None, handlers.get_config, Asks.SUPER),
    )
}
