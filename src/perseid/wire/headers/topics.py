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
    """215 at a broker; 216 at a name server, in all clusters."""

    topic: str


class GetTopicConfigRequest(Header):
    """351: answered by a TopicConfig; with `lo` also by what the broker knows of it as a static topic."""

    topic: str
    lo: bool | None = None


class GetTopicStatsInfoRequest(Header):
    """202: answered by a TopicStatsTable."""

    topic: str


class GetAllTopicConfigRequest(Header):
    """All three None (older peers): everything is wanted at once."""

    topic_seq: Int | None = None
    data_version: str | None = None
    """A DataVersion in JSON, or empty."""
    max_topic_num: Int | None = None


class GetAllTopicConfigResponse(Header):
    """Of 21."""

    total_topic_num: Int | None = None


class GetAllSubscriptionGroupConfigRequest(Header):
    """All three None (older peers): everything is wanted at once."""

    group_seq: Int | None = None
    data_version: str | None = None
    max_group_num: Int | None = None


class GetAllSubscriptionGroupConfigResponse(Header):
    """Of 201."""

    total_group_num: Int | None = None


class DeleteSubscriptionGroupRequest(Header):
    """207."""

    group_name: str
    clean_offset: bool = False


class GetSubscriptionGroupConfigRequest(Header):
    """352: answered by a SubscriptionGroupConfig."""

    group: str


class UpdateAndGetGroupForbiddenRequest(Header):
    """353: may a group read a topic?"""

    group: str
    topic: str
    readable: bool | None = None


class GetConsumerConnectionListRequest(Header):
    """203: answered by a ConsumerConnection."""

    consumer_group: str


class GetProducerConnectionListRequest(Header):
    """204: answered by a ProducerConnection."""

    producer_group: str


class GetConsumeStatsRequest(Header):
    """208: answered by a ConsumeStats."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None
    """Separated by `;`."""


class QueryTopicConsumeByWhoRequest(Header):
    """300: answered by a GroupList."""

    topic: str


class QueryTopicsByConsumerRequest(Header):
    """343: answered by a TopicList."""

    group: str


class QuerySubscriptionByConsumerRequest(Header):
    """345."""

    group: str
    topic: str | None = None


class QueryConsumeTimeSpanRequest(Header):
    """303."""

    topic: str
    group: str
