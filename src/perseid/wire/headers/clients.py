"""Clients and their groups, both ways (remoting.md §10, 13, 14)."""

from __future__ import annotations

from msgspec import field

from perseid.wire.headers.base import Header, Int, Long


class HeartbeatResponse(Header):
    """Of 34."""

    is_support_heart_beat_v2: bool | None = field(default=None, name="IS_SUPPORT_HEART_BEAT_V2")
    is_sub_change: bool | None = field(default=None, name="IS_SUB_CHANGE")


class UnregisterClientRequest(Header):
    """35: a client leaves its groups."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequest(Header):
    """38: the client ids of a group."""

    consumer_group: str


class ConsumerSendMsgBackRequest(Header):
    """36: a message that could not be consumed: again later."""

    offset: Long
    """Physical offset of the message."""
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


class NotifyConsumerIdsChangedRequest(Header):
    """40: the members of a group have changed."""

    consumer_group: str


class GetConsumerRunningInfoRequest(Header):
    """307: how a consumer is doing; passed on to it."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequest(Header):
    """309: give one message to a consumer; passed on to it."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
