"""One function a request: what the name server answers (remoting.md §9, broker.md §2).

A handler raises RequestRefused to refuse. It returns None when the answer waits for the disk.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from perseid.base import config as configuration
from perseid.base.errors import RequestRefused
from perseid.nameserver.config import FOREIGN
from perseid.nameserver.kv import ORDER_TOPIC_CONFIG
from perseid.nameserver.request import OK, Reply, Request
from perseid.nameserver.tables import (
    Announcement,
    BrokerKey,
    Registered,
    in_zone,
)
from perseid.wire import settings
from perseid.wire.bodies import (
    BrokerMemberGroup,
    ClusterInfo,
    DataVersion,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
)
from perseid.wire.codes import ResponseCode, Version
from perseid.wire.hashing import crc32
from perseid.wire.headers.namesrv import (
    AddWritePermOfBrokerResponse,
    GetKvConfigResponse,
    PutKvConfigRequest,
    QueryDataVersionResponse,
    RegisterBrokerResponse,
    WipeWritePermOfBrokerResponse,
)
from perseid.wire.topic_flags import UNIT, UNIT_SUB

if TYPE_CHECKING:
    from perseid.nameserver.node import NameServer

ZONE_MODE = "__ZONE_MODE"
ZONE_NAME = "__ZONE_NAME"
FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
DIGEST_BYTES = 16
"""Of what a broker registered: one that says the same again is not read again."""
ALWAYS_BLACK = {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
"""Keys that no request may change, whatever configBlackList says."""


# ---- settings by namespace and key ----


def put_kv_config(server: NameServer, request: Request) -> None:
    """Set one; the answer waits for the disk."""
    if not {"namespace", "key"} <= request.command.ext.keys():
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
    header = request.command.header(PutKvConfigRequest)
    server.kv.put(header.namespace, header.key, header.value)
    server.save_kv(request)


def get_kv_config(server: NameServer, request: Request) -> Reply:
    """Read one; 22 when there is none."""
    header = request.header
    value = server.kv.get(header.namespace, header.key)
    if value is None:
        remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
        raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, remark)
    return Reply(header=GetKvConfigResponse(value=value))


def delete_kv_config(server: NameServer, request: Request) -> Reply | None:
    """Remove one; the answer waits for the disk."""
    if not server.kv.delete(request.header.namespace, request.header.key):
        return OK
    server.save_kv(request)
    return None


def get_kv_list_by_namespace(server: NameServer, request: Request) -> Reply:
    """All of a namespace; 22 when it never had one."""
    table = server.kv.namespace(request.header.namespace)
    if table is None:
        remark = f"No config item, Namespace: {request.header.namespace}"
        raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, remark)
    return Reply(body=KVTable(dict(table)).to_json())


# ---- brokers ----


def register_broker(server: NameServer, request: Request) -> Reply:
    """Take a broker in, or what is new about it; a slave learns where its master is."""
    header, body = request.header, request.body
    if header.body_crc32 and crc32(body) != header.body_crc32:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    filters: list[str] | None = None
    whole = request.command.version >= Version.V3_0_11
    key = BrokerKey(header.cluster_name, header.broker_addr)
    delete_missing = server.config.delete_topic_with_broker_registration
    digest = blake2b(f"{header!r} {whole} {delete_missing}".encode("utf-8", "replace"), digest_size=DIGEST_BYTES)
    digest.update(body)
    said_all = digest.digest()
    same = server.tables.repeated(key, header.broker_name, header.broker_id, said_all, request.conn, server.now)
    if same is not None:
        return _registered(server, same)
    if whole:
        told = RegisterBrokerBody.decode(body)
        topics, filters = told.topic_config_serialize_wrapper, told.filter_server_list
    else:
        topics = TopicConfigSerializeWrapper.from_json(body) if len(body) else TopicConfigSerializeWrapper()
    said = Announcement(
        key,
        header.broker_name,
        header.broker_id,
        header.ha_server_addr,
        header.zone_name,
        header.heartbeat_timeout_millis,
        header.enable_acting_master,
        topics,
        filters,
    )
    new = key not in server.tables.live
    result = server.tables.register(said, request.conn, server.now, delete_missing=delete_missing, digest=said_all)
    if result is None:
        server.note("warning", f"{said.name} at {key.address} told a single topic before all its topics")
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "register broker failed")
    if new and key in server.tables.live:
        server.note("info", f"broker {said.name} id {said.id} of {key.cluster} at {key.address}: registered")
    server.min_ids_changed([result.change])
    return _registered(server, result)


def _registered(server: NameServer, result: Registered) -> Reply:
    answer = b""
    if server.config.return_order_topic_config_to_broker:
        orders = server.kv.namespace(ORDER_TOPIC_CONFIG)
        answer = KVTable(dict(orders)).to_json() if orders is not None else b""
    return Reply(
        header=RegisterBrokerResponse(ha_server_addr=result.ha_address, master_addr=result.master_address),
        body=answer,
    )


def unregister_broker(server: NameServer, request: Request) -> Reply:
    """Forget a broker that ends."""
    header = request.header
    key = BrokerKey(header.cluster_name, header.broker_addr)
    server.note("info", f"broker {header.broker_name} at {key.address}: unregistered")
    server.min_ids_changed(server.tables.unregister(key, header.broker_name, header.broker_id))
    return OK


def query_data_version(server: NameServer, request: Request) -> Reply:
    """Whether a broker has to register again; a life sign at the same time."""
    key = BrokerKey(request.header.cluster_name, request.header.broker_addr)
    changed = not len(request.body) or server.tables.changed(key, DataVersion.from_json(request.body))
    server.tables.heard(key, server.now)
    known = server.tables.live.get(key)
    body = known.data_version.to_json() if known is not None else b""
    return Reply(header=QueryDataVersionResponse(changed=changed), body=body)


def broker_heartbeat(server: NameServer, request: Request) -> Reply:
    """A life sign."""
    server.tables.heard(BrokerKey(request.header.cluster_name, request.header.broker_addr), server.now)
    return OK


def get_broker_member_group(server: NameServer, request: Request) -> Reply:
    """The replicas of a broker name."""
    header = request.header
    broker = server.tables.brokers.get(header.broker_name)
    addresses = dict(broker.broker_addrs) if broker is not None else {}
    group = BrokerMemberGroup(header.cluster_name, header.broker_name, addresses)
    return Reply(body=GetBrokerMemberGroupResponseBody(group).to_json())


def get_broker_cluster_info(server: NameServer, request: Request) -> Reply:
    """All clusters and all brokers."""
    clusters = {cluster: sorted(names) for cluster, names in server.tables.clusters.items()}
    return Reply(body=ClusterInfo(server.tables.brokers, clusters).to_json())


def wipe_write_perm_of_broker(server: NameServer, request: Request) -> Reply:
    """Close a broker's queues for writing, until it registers with news."""
    count = server.tables.set_write_perm(request.header.broker_name, allowed=False)
    return Reply(header=WipeWritePermOfBrokerResponse(wipe_topic_count=count))


def add_write_perm_of_broker(server: NameServer, request: Request) -> Reply:
    """Open a broker's queues for reading and writing."""
    count = server.tables.set_write_perm(request.header.broker_name, allowed=True)
    return Reply(header=AddWritePermOfBrokerResponse(add_topic_count=count))


# ---- topics ----


def get_route_info_by_topic(server: NameServer, request: Request) -> Reply:
    """Where a topic is; 17 when nowhere. The form of the JSON depends on the version of the one who asks."""
    config, topic = server.config, request.header.topic
    if config.need_wait_for_service and server.now < server.started + 1000 * config.wait_seconds_for_service:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "name server not ready")
    route = server.tables.route(topic, acting_master=config.support_acting_master)
    if route is None:
        remark = f"No topic route info in name server for the topic: {topic}{FAQ}"
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, remark)
    if config.order_message_enable:
        route.order_topic_conf = server.kv.get(ORDER_TOPIC_CONFIG, topic)
    ext = request.command.ext
    zone = ext.get(ZONE_NAME, "").strip()
    if zone and ext.get(ZONE_MODE, "").lower() == "true":
        route = in_zone(route, zone)
    standard = request.command.version >= Version.V4_9_4 or bool(request.header.accept_standard_json_only)
    return Reply(body=route.to_json(standard=standard))


def get_all_topic_list(server: NameServer, request: Request) -> Reply:
    """All topics."""
    if not server.config.enable_all_topic_list:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "disable")
    return _topic_list(list(server.tables.topics))


def register_topic(server: NameServer, request: Request) -> Reply:
    """Add one topic's queues; ignored when a broker of it is not known."""
    route = TopicRouteData.from_json(request.body) if len(request.body) else TopicRouteData()
    topic = request.header.topic
    if route.queue_datas and not server.tables.register_topic(topic, route.queue_datas):
        server.note("warning", f"topic {topic} was told for a broker that is not registered: ignored")
    return OK


def delete_topic(server: NameServer, request: Request) -> Reply:
    """Forget a topic, in one cluster or everywhere."""
    server.tables.delete_topic(request.header.topic, request.header.cluster_name)
    return OK


def get_topics_by_cluster(server: NameServer, request: Request) -> Reply:
    """The topics of a cluster."""
    _need_topic_list(server)
    return _topic_list(server.tables.topics_of_cluster(request.header.cluster))


def get_system_topic_list(server: NameServer, request: Request) -> Reply:
    """Clusters and brokers have topics of their names; `brokerAddr` is any broker's."""
    tables = server.tables
    names = [name for cluster, names in tables.clusters.items() for name in (cluster, *sorted(names))]
    addresses = (address for broker in tables.brokers.values() for address in broker.broker_addrs.values())
    return Reply(body=TopicList(list(dict.fromkeys(names)), next(addresses, None)).to_json())


def get_unit_topic_list(server: NameServer, request: Request) -> Reply:
    """Topics with the unit flag."""
    _need_topic_list(server)
    return _topic_list(server.tables.topics_by_flag(UNIT))


def get_has_unit_sub_topic_list(server: NameServer, request: Request) -> Reply:
    """Topics with the unit subscription flag."""
    _need_topic_list(server)
    return _topic_list(server.tables.topics_by_flag(UNIT_SUB))


def get_has_unit_sub_ununit_topic_list(server: NameServer, request: Request) -> Reply:
    """Topics with the unit subscription flag, but not the unit flag."""
    _need_topic_list(server)
    return _topic_list(server.tables.topics_by_flag(UNIT_SUB, UNIT))


def _topic_list(topics: list[str]) -> Reply:
    return Reply(body=TopicList(topics).to_json())


def _need_topic_list(server: NameServer) -> None:
    if not server.config.enable_topic_list:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "disable")


# ---- the name server itself ----


def update_config(server: NameServer, request: Request) -> Reply | None:
    """Change settings at run time: all or none of them, and only those that a running name server follows; the answer
    waits for the disk."""
    if not len(request.body):
        return OK
    asked = settings.wanted(request.body, (*ALWAYS_BLACK, *server.config.config_black_list.split(";")))
    found = settings.change(asked, (server.config,), FOREIGN)
    (server.config,) = found.configs
    server.note("info", f"configuration changed by {request.peer}: {dict(found.values)}")
    return None if server.save_config(request) else OK


def get_config(server: NameServer, request: Request) -> Reply:
    """All settings as they are now, as a properties text."""
    return Reply(body=configuration.to_text(server.config).encode())
