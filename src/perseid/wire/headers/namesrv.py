"""Requests to the name server (remoting.md §9)."""

from __future__ import annotations

from msgspec import field

from perseid.wire.headers.base import Header, Int, Long


class PutKvConfigRequest(Header):
    """100: set a value."""

    namespace: str
    key: str
    value: str


class GetKvConfigRequest(Header):
    """101: read a value."""

    namespace: str
    key: str


class GetKvConfigResponse(Header):
    """The value of 101."""

    value: str | None = None


class DeleteKvConfigRequest(Header):
    """102: remove a value."""

    namespace: str
    key: str


class GetKvListByNamespaceRequest(Header):
    """219: all values of a namespace; answered by a KVTable."""

    namespace: str


class RegisterBrokerRequest(Header):
    """103: a broker and its topics; the body is a RegisterBrokerBody."""

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
    """104: a broker leaves."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class GetRouteInfoByTopicRequest(Header):
    """105: where a topic's queues are; answered by a TopicRouteData."""

    topic: str
    accept_standard_json_only: bool | None = None


class DeleteTopicInNamesrvRequest(Header):
    """216: forget a topic, in one cluster only when that is named."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicInNamesrvRequest(Header):
    """217: a single topic; the body is a TopicRouteData."""

    topic: str


class WipeWritePermOfBrokerRequest(Header):
    """205: no more writes to a broker."""

    broker_name: str


class WipeWritePermOfBrokerResponse(Header):
    """How many topics 205 changed."""

    wipe_topic_count: Int


class AddWritePermOfBrokerRequest(Header):
    """327: writes to a broker again."""

    broker_name: str


class AddWritePermOfBrokerResponse(Header):
    """How many topics 327 changed."""

    add_topic_count: Int


class GetTopicsByClusterRequest(Header):
    """224: answered by a TopicList."""

    cluster: str


class QueryDataVersionRequest(Header):
    """322: has a broker's topic table changed? The body is its DataVersion."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponse(Header):
    """Whether it has; the body is the DataVersion that the name server knows."""

    changed: bool


class GetBrokerMemberGroupRequest(Header):
    """901: the replicas of a broker name."""

    cluster_name: str
    broker_name: str


class BrokerHeartbeatRequest(Header):
    """904: a broker is alive."""

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
    """905: the lowest id of a broker name has changed."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
