"""Requests to the name server (remoting.md §9)."""

from __future__ import annotations

from msgspec import field

from perseid.wire.headers.base import Header, Int, Long


class PutKvConfigRequest(Header):
    namespace: str
    key: str
    value: str


class GetKvConfigRequest(Header):
    namespace: str
    key: str


class GetKvConfigResponse(Header):
    value: str | None = None


class DeleteKvConfigRequest(Header):
    namespace: str
    key: str


class GetKvListByNamespaceRequest(Header):
    namespace: str


class RegisterBrokerRequest(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    """None: a broker that knows nothing of acting masters."""
    compressed: bool = False
    """Not to be trusted: brokers of 5.x always say false. The body's first byte tells."""
    body_crc32: Int = 0
    """0: unchecked."""
    zone_name: str | None = field(default=None, name="__ZONE_NAME")


class RegisterBrokerResponse(Header):
    """Both None for a master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequest(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class GetRouteInfoByTopicRequest(Header):
    topic: str
    accept_standard_json_only: bool | None = None


class DeleteTopicInNamesrvRequest(Header):
    topic: str
    cluster_name: str | None = None


class RegisterTopicInNamesrvRequest(Header):
    topic: str


class WipeWritePermOfBrokerRequest(Header):
    broker_name: str


class WipeWritePermOfBrokerResponse(Header):
    wipe_topic_count: Int


class AddWritePermOfBrokerRequest(Header):
    broker_name: str


class AddWritePermOfBrokerResponse(Header):
    add_topic_count: Int


class GetTopicsByClusterRequest(Header):
    cluster: str


class QueryDataVersionRequest(Header):
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponse(Header):
    changed: bool


class GetBrokerMemberGroupRequest(Header):
    cluster_name: str
    broker_name: str


class BrokerHeartbeatRequest(Header):
    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: Int | None = None


class NotifyMinBrokerIdChangeRequest(Header):
    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
