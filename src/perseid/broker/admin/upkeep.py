"""What operators look into and clean up: statistics (315, 317), units of queues (321), files (306, 329), queues that
belong to no topic (316), reads from the disk (2001 to 2003). Source: remoting.md §15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from perseid.base.errors import RequestRefused
from perseid.base.machine import Effect
from perseid.broker.admin.progress import Progress
from perseid.broker.admin.stats import Tally, Window
from perseid.broker.kernel.asks import GET, UPDATE, each, of_cluster, of_group, of_topic
from perseid.broker.kernel.ports import TopicStore
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import OnSlave, Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.store.lmq import is_lmq
from perseid.store.queues import Queues
from perseid.store.retention import Retention
from perseid.wire import bodies, inspection, settings
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.admin import GetBrokerConsumeStatsRequest, ViewBrokerStatsDataRequest
from perseid.wire.headers.query import QueryConsumeQueueRequest

if TYPE_CHECKING:
    from perseid.broker.admin.stats import BrokerStats
    from perseid.broker.clients.members import ConsumerTable
    from perseid.broker.consume.fetches import Fetches
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.broker.metadata.topics import TopicTable

MAX_UNITS = 10_000
"""Units of a queue in one answer."""
MAX_ROWS = 100_000
"""Queues of groups in one answer."""

BROKER_TALLIES = {
    "BROKER_PUT_NUMS": "puts",
    "BROKER_GET_NUMS": "gets",
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": "own_puts",
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": "own_gets",
}
"""Statistics whose key is the cluster's name."""


class Kept(TopicStore, Protocol):
    """The store that is looked after."""

    queues: Queues
    retention: Retention

    def follow_log_start(self) -> list[Effect]:
        """Remove what queues and index have of records that the log has lost."""


@dataclass(slots=True, kw_only=True)
class UpkeepRequests:
    """Requests of operators who look deeper, and clean."""

    turn: Turn
    settings: Settings
    store: Kept
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsets
    consumers: ConsumerTable
    fetches: Fetches
    stats: BrokerStats
    progress: Progress

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequest, self.view_broker_stats, asks=of_cluster(GET)
            ),
            Route(
                Code.GET_BROKER_CONSUME_STATS,
                GetBrokerConsumeStatsRequest,
                self.get_broker_consume_stats,
                asks=of_cluster(GET),
            ),
            Route(
                Code.QUERY_CONSUME_QUEUE,
                QueryConsumeQueueRequest,
                self.query_consume_queue,
                asks=each(of_topic(GET), of_group(GET)),
            ),
            Route(Code.CLEAN_EXPIRED_CONSUMEQUEUE, None, self.clean_expired_queues, asks=of_cluster(UPDATE)),
            Route(
                Code.CLEAN_UNUSED_TOPIC,
                None,
                self.clean_unused_topics,
                on_slave=OnSlave.MASTERS_TABLE,
                asks=of_cluster(UPDATE),
            ),
            Route(Code.DELETE_EXPIRED_COMMITLOG, None, self.delete_expired_log, asks=of_cluster(UPDATE)),
            Route(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, None, self.update_cold_limits, asks=of_cluster(UPDATE)),
            Route(Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, None, self.remove_cold_limit, asks=of_cluster(UPDATE)),
            Route(Code.GET_COLD_DATA_FLOW_CTR_INFO, None, self.get_cold_info, asks=of_cluster(GET)),
        )

    # ---- statistics ----

    def view_broker_stats(self, request: Request) -> Reply:
        """What was counted of a topic (`TOPIC_PUT_NUMS`), of a group (`GROUP_GET_NUMS`, key `topic@group`), or of the
        whole broker, within the last minute, hour and day. RequestRefused(1): nothing was, or nobody counts it."""
        header: ViewBrokerStatsDataRequest = request.header
        tally = self._tally(header.stats_name, header.stats_key)
        if tally is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            )
        data = inspection.BrokerStatsData(
            stats_minute=_item(tally.minute), stats_hour=_item(tally.hour), stats_day=_item(tally.day)
        )
        return Reply(body=data.to_json())

    def _tally(self, name: str, key: str) -> Tally | None:
        if name == "TOPIC_PUT_NUMS":
            return self.stats.topic_puts(key)
        if name == "GROUP_GET_NUMS":
            topic, _, group = key.partition("@")
            return self.stats.group_gets(group, topic)
        if name in BROKER_TALLIES and key == self.settings.current.broker_cluster_name:
            return self.stats.tallies[BROKER_TALLIES[name]]
        return None

    def get_broker_consume_stats(self, request: Request) -> Reply:
        """How far all groups are in all topics that they have consumed, or (`isOrder`) in those that are ordered."""
        header: GetBrokerConsumeStatsRequest = request.header
        groups: list[dict[str, list[bodies.ConsumeStats]]] = []
        behind = in_flight = 0
        consumed, queues = self.offsets.topics_by_group(), 0
        for group in sorted(self.groups.rows):
            rows: list[bodies.ConsumeStats] = []
            for topic in sorted(consumed.get(group, ())):
                config = self.topics.get(topic)
                if config is None or (header.is_order and not config.order) or not self._subscribes(group, topic):
                    continue
                queues += config.write_queue_nums
                if queues > MAX_ROWS:
                    raise RequestRefused(
                        ResponseCode.SYSTEM_ERROR, f"more than {MAX_ROWS} queues of groups: ask for each group (208)"
                    )
                stats = self._consume_stats(group, config)
                behind += sum(row.broker_offset - row.consumer_offset for row in stats.offset_table.values())
                in_flight += sum(row.pull_offset - row.consumer_offset for row in stats.offset_table.values())
                rows.append(stats)
            groups.append({group: rows})
        found = inspection.ConsumeStatsList(self.settings.current.address, groups, behind, in_flight)
        return Reply(body=found.to_json())

    def _subscribes(self, group: str, topic: str) -> bool:
        """Not when the group's living members want other topics."""
        living = self.consumers.group(group)
        return living is None or not living.subscriptions or topic in living.subscriptions

    def _consume_stats(self, group: str, topic: bodies.TopicConfig) -> bodies.ConsumeStats:
        name, queues = topic.topic_name, range(topic.write_queue_nums)
        table = {self.progress.queue(name, one): self.progress.of(group, name, one) for one in queues}
        return bodies.ConsumeStats(offset_table=table, consume_tps=self.stats.group_get_tps(group, name))

    # ---- queues ----

    def query_consume_queue(self, request: Request) -> Reply:
        """Up to `count` units of a queue from `index` on, within one file of it, and its bounds. With a group, what it
        subscribes to."""
        header: QueryConsumeQueueRequest = request.header
        queue = self.store.queues.get(header.topic or "", header.queue_id)
        if queue is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!")
        body = inspection.QueryConsumeQueueResponseBody(
            max_queue_index=queue.shown_offset, min_queue_index=queue.first_offset
        )
        if header.consumer_group is not None:
            body.subscription_data = self.consumers.subscription(header.consumer_group, header.topic or "")
            online = body.subscription_data is not None
            body.filter_data = "null" if online else f"{header.consumer_group}@{header.topic} is not online!"
        if not queue.first_offset <= header.index < queue.shown_offset:
            remark = f"Index {header.index} of {header.queue_id}@{header.topic} is not exist!"
            return Reply(body=body.to_json(), remark=remark)
        most = max(0, min(header.count, MAX_UNITS))
        body.queue_data = [inspection.ConsumeQueueData(*unit) for unit in queue.units_from(header.index, most)]
        return Reply(body=body.to_json())

    def clean_expired_queues(self, request: Request) -> Reply:
        """Remove the files of queues and index whose records the log has lost."""
        for effect in self.store.follow_log_start():
            self.turn.emit(effect)
        return Reply()

    def clean_unused_topics(self, request: Request) -> Reply:
        """Remove the queues of topics that are not there (any more)."""
        for topic in {topic for topic, _ in self.store.queues.table}:
            if topic in self.topics or self.topics.is_system(topic) or is_lmq(topic):
                continue
            for effect in self.store.delete_topic(topic):
                self.turn.emit(effect)
            self.turn.note("info", f"topic {topic}: its queues are removed, for it is no topic of this broker")
        return Reply()

    def delete_expired_log(self, request: Request) -> Reply:
        """Remove expired files of the log now, whatever the hour."""
        self.store.retention.delete_now(self.turn.now)
        return Reply()

    # ---- cold-data flow control ----

    def update_cold_limits(self, request: Request) -> Reply:
        """Limit what groups may read from the disk: `group=bytes` a line. (The original passes over lines that it can't
        read; here they are refused, with 1, and nothing is changed.)"""
        limits: dict[str, int] = {}
        for group, text in settings.wanted(request.body, ()).items():
            if not (text.isascii() and text.isdigit() and len(text) < 19):
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{group[:80]}={text[:80]}: that is no number of bytes")
            limits[group] = int(text)
        self.fetches.cold.set_limits(limits)
        return Reply()

    def remove_cold_limit(self, request: Request) -> Reply:
        """Take the limit away of the group that the body names."""
        try:
            group = str(request.body, "utf-8")
        except ValueError:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "string parse error") from None
        self.fetches.cold.limits.pop(group, None)
        return Reply()

    def get_cold_info(self, request: Request) -> Reply:
        """How much each group reads from the disk, and the limits."""
        return Reply(body=self.fetches.cold.info(self.settings.current, self.turn.now))


def _item(window: Window) -> inspection.BrokerStatsItem:
    """Messages are counted one by one, so each counted time is one of them."""
    return inspection.BrokerStatsItem(sum=window.sum, tps=window.per_second, avgpt=1.0 if window.sum else 0.0)
