"""The topics that are a broker's own, and the names of retry and dead-letter topics (store.md §10)."""

from __future__ import annotations

from perseid.broker.config import BrokerConfig
from perseid.store import dispatch
from perseid.store.timer import timers
from perseid.wire.bodies import TopicConfig

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_READ_WRITE = PERM_READ | PERM_WRITE

UNIT = 1
UNIT_SUB = 2
"""Bits of a topic's sysFlag: it was made by a producer, by a consumer in unit mode."""

AUTO_CREATE_TOPIC = "TBW102"
"""The template of topics that are created on their first send."""

SCHEDULE_TOPIC = dispatch.SCHEDULE_TOPIC
TIMER_TOPIC = timers.TIMER_TOPIC
BENCHMARK_TOPIC = "BenchmarkTest"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"

SYSTEM_PREFIX = "rmq_sys_"

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

SCHEDULE_QUEUES = 18
BENCHMARK_QUEUES = 1024
CLUSTER_QUEUES = 16
REVIVE_QUEUES = 8

RESERVED = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        TRACE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        CHECKPOINT_TOPIC,
    }
)
"""Names that are a broker's own under any configuration."""

NOT_SENDABLE = frozenset(
    {SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC}
)
"""Topics that only the broker itself writes to: a client's send is refused with 16."""


def retry_topic(group: str) -> str:
    """Where a consumer group's messages go that are to be consumed again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where a consumer group's messages end that could not be consumed."""
    return DLQ_PREFIX + group


def pop_retry_topics(topic: str, group: str) -> tuple[str, str]:
    """The retry topics of POP consumption, older form first."""
    return f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"


def reply_topic(cluster: str) -> str:
    """Where the answers of request/reply go."""
    return f"{cluster}_REPLY_TOPIC"


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
        row(f"{SYSTEM_PREFIX}REVIVE_LOG_{cluster}", REVIVE_QUEUES),
        row(f"{SYSTEM_PREFIX}SYNC_BROKER_MEMBER_{broker}", 1, PERM_INHERIT),
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
