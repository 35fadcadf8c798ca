"""Administration of topics and consumer groups (remoting.md §15, 16)."""

from __future__ import annotations

from perseid.wire.headers.base import Header, Int


class CreateTopicRequest(Header):
    """UPDATE_AND_CREATE_TOPIC. `attributes` are changes: `+k=v,-k`."""

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class DeleteTopicRequest(Header):
    topic: str


class GetTopicConfigRequest(Header):
    topic: str


class GetTopicStatsInfoRequest(Header):
    topic: str


class GetAllTopicConfigRequest(Header):
    """All three None (older peers): everything is wanted at once."""

    topic_seq: Int | None = None
    data_version: str | None = None
    """A DataVersion in JSON, or empty."""
    max_topic_num: Int | None = None


class GetAllTopicConfigResponse(Header):
    total_topic_num: Int | None = None


class GetAllSubscriptionGroupConfigRequest(Header):
    """All three None (older peers): everything is wanted at once."""

    group_seq: Int | None = None
    data_version: str | None = None
    max_group_num: Int | None = None


class GetAllSubscriptionGroupConfigResponse(Header):
    total_group_num: Int | None = None


class DeleteSubscriptionGroupRequest(Header):
    group_name: str
    clean_offset: bool = False


class GetSubscriptionGroupConfigRequest(Header):
    group: str


class UpdateAndGetGroupForbiddenRequest(Header):
    group: str
    topic: str
    readable: bool | None = None


class GetConsumerConnectionListRequest(Header):
    consumer_group: str


class GetProducerConnectionListRequest(Header):
    producer_group: str


class GetConsumeStatsRequest(Header):
    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None
    """Separated by `;`."""


class QueryTopicConsumeByWhoRequest(Header):
    topic: str


class QueryTopicsByConsumerRequest(Header):
    group: str


class QuerySubscriptionByConsumerRequest(Header):
    group: str
    topic: str | None = None


class QueryConsumeTimeSpanRequest(Header):
    topic: str
    group: str
