"""Lite topics on the wire: their queues' names, and the bodies of their requests (200070 to 200079).

A lite topic is a light queue (LMQ) of a parent topic, whose `message.type` is LITE: `%LMQ%$parent$lite`. A message
names it by its property `__LITE_TOPIC`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perseid.wire.body import Body
from perseid.wire.headers.base import Int, Long

PREFIX = "%LMQ%$"
SEPARATOR = "$"

PARTIAL_ADD, PARTIAL_REMOVE = "PARTIAL_ADD", "PARTIAL_REMOVE"
COMPLETE_ADD, COMPLETE_REMOVE = "COMPLETE_ADD", "COMPLETE_REMOVE"
ACTIONS = (PARTIAL_ADD, PARTIAL_REMOVE, COMPLETE_ADD, COMPLETE_REMOVE)

POLICY, OFFSET, TAIL_N, TIMESTAMP = "POLICY", "OFFSET", "TAIL_N", "TIMESTAMP"
OPTIONS = (POLICY, OFFSET, TAIL_N, TIMESTAMP)
POLICY_MIN, POLICY_MAX = 1, 2
"""Values of POLICY: the first message, or the next one; any other changes nothing."""

EVERYBODY = "*"
"""Stands as the client of a group that reads all lite topics of its parent."""


def queue_name(parent: str, lite: str) -> str:
    """The light queue of a lite topic."""
    return f"{PREFIX}{parent}{SEPARATOR}{lite}"


def is_lite(name: str) -> bool:
    """Is it the name of a lite topic's queue, or made to look like one?"""
    return name.startswith(PREFIX)


def parent_of(name: str) -> str | None:
    """The parent topic of a lite topic's queue; None: it is none."""
    return _parts(name)[0]


def lite_of(name: str) -> str | None:
    """The lite topic of a queue; None: it is none's."""
    return _parts(name)[1]


def _parts(name: str) -> tuple[str | None, str | None]:
    parts = name[len(PREFIX) :].split(SEPARATOR) if name.startswith(PREFIX) else []
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else (None, None)


# ---- bodies ----


class OffsetOption(Body):
    """Where a client wants to begin."""

    type: str = POLICY
    value: Long = 0


class LiteSubscriptionChange(Body):
    """One change of what a client reads (200071)."""

    action: str = ""
    client_id: str = ""
    group: str = ""
    topic: str = ""
    lite_topic_set: list[str] = msgspec.field(default_factory=list)
    offset_option: OffsetOption | None = None
    version: Long = 0


class LiteSubscriptionCtlBody(Body):
    """Of 200071."""

    subscription_set: list[LiteSubscriptionChange] = msgspec.field(default_factory=list)


class BrokerLiteInfo(Body):
    """Of 200074: how much of everything there is."""

    store_type: str = "default"
    max_lmq_num: Int = 0
    current_lmq_num: Int = 0
    lite_subscription_count: Int = 0
    order_info_count: Int = 0
    cq_table_size: Int = 0
    offset_table_size: Int = 0
    event_map_size: Int = 0
    topic_meta: dict[str, Int] = msgspec.field(default_factory=dict)
    """Parent topic → minutes after which a lite topic is removed; −1: it is not."""
    group_meta: dict[str, list[str]] = msgspec.field(default_factory=dict)


class ParentTopicInfo(Body):
    """Of 200075."""

    topic: str = ""
    ttl: Int = -1
    groups: list[str] | None = None
    lmq_num: Int = 0
    lite_topic_count: Int = 0


class ClientGroup(Body):
    """A client of a group."""

    client_id: str = ""
    group: str = ""


class LiteTopicInfo(Body):
    """Of 200076."""

    parent_topic: str = ""
    lite_topic: str = ""
    subscriber: list[ClientGroup] = msgspec.field(default_factory=list)
    topic_offset: dict[str, Any] = msgspec.field(default_factory=dict)
    sharding_to_broker: bool = True


class LiteClientInfo(Body):
    """Of 200077. A count of −1: nobody knows the client."""

    parent_topic: str = ""
    group: str = ""
    client_id: str = ""
    last_access_time: Long = -1
    last_consume_time: Long = 0
    lite_topic_count: Int = -1
    lite_topic_set: list[str] | None = None


class LiteLagInfo(Body):
    """How far a group is behind in a lite topic."""

    lite_topic: str = ""
    lag_count: Long = 0
    earliest_unconsumed_timestamp: Long = -1


class LiteGroupInfo(Body):
    """Of 200078. −1: nothing is known."""

    group: str = ""
    parent_topic: str = ""
    lite_topic: str | None = None
    earliest_unconsumed_timestamp: Long = 0
    total_lag_count: Long = 0
    lite_topic_offset_wrapper: dict[str, Any] | None = None
    lag_count_top_k: list[LiteLagInfo] | None = msgspec.field(default=None, name="lagCountTopK")
    lag_timestamp_top_k: list[LiteLagInfo] | None = msgspec.field(default=None, name="lagTimestampTopK")
