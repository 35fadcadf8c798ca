"""The topics that a broker has from its first start on (store.md §10); their names are in `wire.names`."""

from __future__ import annotations

from perseid.broker.config import BrokerConfig
from perseid.wire.bodies import TopicConfig
from perseid.wire.names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TIMER_TOPIC,
    reply_topic,
    revive_topic,
    sync_member_topic,
)
from perseid.wire.topic_flags import PERM_INHERIT, PERM_READ_WRITE

SCHEDULE_QUEUES = 18
BENCHMARK_QUEUES = 1024
CLUSTER_QUEUES = 16
REVIVE_QUEUES = 8

NOT_SENDABLE = frozenset(
    {SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC}
)
"""Topics that only the broker itself writes to: a client's send is refused with 16."""


def default_rows(config: BrokerConfig) -> list[TopicConfig]:
    """The topics that a broker with this configuration has from its first start on."""

    def row(name: str, queues: int = 1, perm: int = PERM_READ_WRITE) -> TopicConfig:
        return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)

    def inherited(usable: bool) -> int:
        return PERM_INHERIT | (PERM_READ_WRITE if usable else 0)

    cluster, broker = config.broker_cluster_name, config.broker_name
    rows = [
        row(SELF_TEST_TOPIC),
        row(BENCHMARK_TOPIC, BENCHMARK_QUEUES),
        row(cluster, CLUSTER_QUEUES, inherited(config.cluster_topic_enable)),
        row(broker, 1, inherited(config.broker_topic_enable)),
        row(OFFSET_MOVED_TOPIC),
        row(SCHEDULE_TOPIC, SCHEDULE_QUEUES),
        row(reply_topic(cluster)),
        row(revive_topic(cluster), REVIVE_QUEUES),
        row(sync_member_topic(broker), 1, PERM_INHERIT),
        row(HALF_TOPIC),
        row(OP_HALF_TOPIC),
    ]
    if config.auto_create_topic_enable:
        rows.insert(1, row(AUTO_CREATE_TOPIC, config.default_topic_queue_nums, inherited(True)))
    if config.timer_wheel_enable:
        rows.append(row(TIMER_TOPIC))
    if config.trace_topic_enable:
        rows.append(row(config.msg_trace_topic_name))
    return rows
