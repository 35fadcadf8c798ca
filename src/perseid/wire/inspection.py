"""Bodies of what operators look into: statistics (315, 317), units of queues (321), what clients do (307)."""

from __future__ import annotations

from typing import Any

import msgspec

from perseid.wire.bodies import ConsumeStats, SubscriptionData
from perseid.wire.body import Body
from perseid.wire.headers.base import Int, Long


class BrokerStatsItem(Body):
    """What was counted within a window."""

    sum: Long = 0
    tps: float = 0.0
    avgpt: float = 0.0
    """The sum for each time that something was counted."""


class BrokerStatsData(Body):
    """One statistic of a broker (code 315)."""

    stats_minute: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = msgspec.field(default_factory=BrokerStatsItem)


class ConsumeStatsList(Body):
    """How far all groups of a broker are (code 317): a map of one group each, with an entry a topic."""

    broker_addr: str = ""
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = msgspec.field(default_factory=list)
    total_diff: Long = 0
    total_inflight_diff: Long = 0


class ConsumeQueueData(Body):
    """One unit of a consume queue."""

    physic_offset: Long = 0
    physic_size: Int = 0
    tags_code: Long = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body):
    """Units of a consume queue, and what a group wants of them (code 321)."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = msgspec.field(default_factory=list)
    max_queue_index: Long = 0
    min_queue_index: Long = 0


class ConsumerRunningInfo(Body):
    """What one consumer does (code 307). `mq_table`: by `MessageQueue` in JSON."""

    properties: dict[str, Any] = msgspec.field(default_factory=dict)
    subscription_set: list[SubscriptionData] = msgspec.field(default_factory=list)
    mq_table: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    status_table: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    jstack: str | None = None
