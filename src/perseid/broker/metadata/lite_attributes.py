"""What the attributes of topics and groups say about lite topics."""

from __future__ import annotations

from perseid.broker.metadata.topics import LITE, MESSAGE_TYPE
from perseid.wire.bodies import SubscriptionGroupConfig, TopicConfig

BIND_TOPIC = "lite.bind.topic"


def bound_to(group: SubscriptionGroupConfig | None) -> str | None:
    """The parent topic whose lite topics a group reads."""
    return None if group is None else group.attributes.get(BIND_TOPIC)


def is_parent(row: TopicConfig | None) -> bool:
    """Is a topic one of lite topics?"""
    return row is not None and row.attributes.get(MESSAGE_TYPE) == LITE
