"""The names of topics and groups that are the system's own: the one list, for brokers, name servers, clients, jobs.

Three questions are asked of a topic's name:

- `is_reserved`: may nobody but a broker create it? The original's rule (store.md §10).
- `is_system`: is it left out of lists, and of what a pattern matches? Those, and what is called like them.
- `is_of_group`: does it hold what a consumer group gets again, or could not consume?

Each cluster and each broker has a topic of its own name besides, and a cluster one for replies: `own_topics`.
"""

from __future__ import annotations

from collections.abc import Iterable

AUTO_CREATE_TOPIC = "TBW102"
"""The template of topics that are created on their first send."""
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Where messages of a delay level wait."""
TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Where messages for a time wait."""
BENCHMARK_TOPIC = "BenchmarkTest"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"

RESERVED_TOPICS = frozenset(
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
"""Names that are a broker's own under any configuration, besides those that begin with `SYSTEM_PREFIX`."""

SYSTEM_PREFIX = "rmq_sys_"
SYSTEM_UPPER_PREFIX = "RMQ_SYS_"
"""Not reserved, but nothing of users: configurations call trace topics so."""
SYNC_MEMBER_PREFIX = f"{SYSTEM_PREFIX}SYNC_BROKER_MEMBER_"
"""Before a broker's name: the topic by which name servers say who is in its set."""

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
"""Groups of the brokers themselves: created on first use even where others are not."""
TRANSACTION_GROUP = f"{SYSTEM_GROUP_PREFIX}TRANS"
REVIVE_GROUP = f"{SYSTEM_GROUP_PREFIX}REVIVE_GROUP"
"""Its offsets on the revive topic say how far the revive log is done: everything up to them, themselves included."""

TOOLS_GROUP = "TOOLS_CONSUMER"
"""That of administrators' tools."""
DEFAULT_GROUPS = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
"""Groups that each broker has from its first start on."""


def is_reserved(topic: str) -> bool:
    """Is the name a broker's own under any configuration, so that nobody may create, change or delete it?"""
    return topic in RESERVED_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system(topic: str) -> bool:
    """Is it the system's topic, which lists and patterns leave out?"""
    return is_reserved(topic) or topic.startswith(SYSTEM_UPPER_PREFIX)


def is_of_group(topic: str) -> bool:
    """Is it a retry topic, or one of dead letters?"""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def own_topics(clusters: Iterable[str], brokers: Iterable[str]) -> set[str]:
    """The topics that these have under their own names."""
    names = tuple(clusters)
    return {*names, *brokers, *map(reply_topic, names)}


def is_system_group(group: str) -> bool:
    """Is it a consumer group of the system?"""
    return group in DEFAULT_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def retry_topic(group: str) -> str:
    """Where a consumer group's messages go that are to be consumed again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Where a consumer group's messages end that could not be consumed."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Where the answers of request/reply go."""
    return f"{cluster}_REPLY_TOPIC"


def revive_topic(cluster: str) -> str:
    """Where POP keeps what was handed out and what was acknowledged."""
    return f"{SYSTEM_PREFIX}REVIVE_LOG_{cluster}"


def sync_member_topic(broker: str) -> str:
    """The topic by which name servers say who is in a broker's set."""
    return SYNC_MEMBER_PREFIX + broker
