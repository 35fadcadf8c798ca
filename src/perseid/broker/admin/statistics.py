"""What operators look at: how topics, groups and clients are doing (202 to 204, 208, 303, 328). Source: broker.md §11,
remoting.md §15."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.broker.admin.progress import Progress
from perseid.broker.clients.members import Client
from perseid.broker.kernel.asks import GET, a_topic, each, of_cluster, of_group, of_topic
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.turn import Turn
from perseid.security.policies import Asked
from perseid.store.reads import Reads
from perseid.wire import bodies, fastjson
from perseid.wire.bodies import MessageQueue
from perseid.wire.codes import Language, ResponseCode
from perseid.wire.codes import RequestCode as Code
from perseid.wire.headers import topics as headers

if TYPE_CHECKING:
    from perseid.broker.admin.stats import BrokerStats
    from perseid.broker.clients.members import ConsumerTable, ProducerTable
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.metadata.topics import TopicTable


TOPICS_SEPARATOR = ";"


def _several_topics(request: Request, cluster: str) -> Iterable[Asked]:
    """Of code 208, which may name many."""
    for name in filter(None, (request.header.topic_list or "").split(TOPICS_SEPARATOR)):
        yield a_topic(name, GET)


@dataclass(slots=True, kw_only=True)
class AdminRequests:
    """Requests of operators who look."""

    turn: Turn
    reads: Reads
    topics: TopicTable
    offsets: ConsumerOffsets
    consumers: ConsumerTable
    producers: ProducerTable
    stats: BrokerStats
    progress: Progress

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.GET_TOPIC_STATS_INFO, headers.GetTopicStatsInfoRequest, self.get_topic_stats, asks=of_topic(GET)
            ),
            Route(
                Code.GET_CONSUMER_CONNECTION_LIST,
                headers.GetConsumerConnectionListRequest,
                self.get_consumer_connections,
                asks=of_group(GET),
            ),
            Route(
                Code.GET_PRODUCER_CONNECTION_LIST,
                headers.GetProducerConnectionListRequest,
                self.get_producer_connections,
                asks=of_cluster(GET),
            ),
            Route(
                Code.GET_CONSUME_STATS,
                headers.GetConsumeStatsRequest,
                self.get_consume_stats,
                asks=each(of_group(GET), of_topic(GET), _several_topics),
            ),
            Route(
                Code.QUERY_CONSUME_TIME_SPAN,
                headers.QueryConsumeTimeSpanRequest,
                self.query_consume_time_span,
                asks=each(of_topic(GET), of_group(GET, of="group")),
            ),
            Route(Code.GET_ALL_PRODUCER_INFO, None, self.get_all_producers, asks=of_cluster(GET)),
        )

    # ---- topics and groups ----

    def get_topic_stats(self, request: Request) -> Reply:
        """The bounds of each of a topic's queues, and when their last messages were stored."""
        header: headers.GetTopicStatsInfoRequest = request.header
        row = self.topics.get(header.topic)
        if row is None:
            raise self.topics.missing(header.topic)
        reads, table = self.reads, {}
        for queue_id in range(max(row.read_queue_nums, row.write_queue_nums)):
            low = max(0, reads.min_offset(header.topic, queue_id))
            high = max(0, reads.max_offset(header.topic, queue_id))
            table[self.progress.queue(header.topic, queue_id)] = bodies.TopicOffset(
                min_offset=low,
                max_offset=high,
                last_update_timestamp=max(0, reads.store_time(header.topic, queue_id, high - 1)) if high else 0,
            )
        tps = self.stats.topic_put_tps(header.topic)
        return Reply(body=bodies.TopicStatsTable(offset_table=table, topic_put_tps=tps).to_json())

    def get_consume_stats(self, request: Request) -> Reply:
        """How far a group is in each queue of the topics that it reads, or of those that the request names."""
        header: headers.GetConsumeStatsRequest = request.header
        group = header.consumer_group
        table: dict[MessageQueue, bodies.OffsetWrapper] = {}
        consume_tps = 0.0
        for topic in self._consumed_topics(header):
            row = self.topics.get(topic)
            if row is None:
                continue
            consume_tps += self.stats.group_get_tps(group, topic)
            for queue_id in range(row.read_queue_nums):
                table[self.progress.queue(topic, queue_id)] = self.progress.of(group, topic, queue_id)
        return Reply(body=bodies.ConsumeStats(offset_table=table, consume_tps=consume_tps).to_json())

    def _consumed_topics(self, header: headers.GetConsumeStatsRequest) -> list[str]:
        listed = [topic for topic in (header.topic_list or "").split(TOPICS_SEPARATOR) if topic]
        if listed:
            return list(dict.fromkeys(listed))
        topics = [header.topic] if header.topic else sorted(self.offsets.topics_of(header.consumer_group))
        group = self.consumers.group(header.consumer_group)
        if group is not None and group.subscriptions:
            topics = [topic for topic in topics if self.consumers.subscription(group.name, topic) is not None]
        return topics

    def query_consume_time_span(self, request: Request) -> Reply:
        """Per queue of a topic: when its oldest, newest and last consumed messages were stored, and the delay."""
        header: headers.QueryConsumeTimeSpanRequest = request.header
        row = self.topics.get(header.topic)
        if row is None:
            raise self.topics.missing(header.topic)
        reads, topic, spans = self.reads, header.topic, []
        for queue_id in range(row.write_queue_nums):
            oldest = reads.store_time(topic, queue_id, reads.min_offset(topic, queue_id))
            end = reads.max_offset(topic, queue_id)
            consumed = self.offsets.query(topic, header.group, queue_id) or 0
            behind = reads.store_time(topic, queue_id, consumed) if consumed < end else -1
            spans.append(
                {
                    "consumeTimeStamp": reads.store_time(topic, queue_id, consumed - 1) if consumed else oldest,
                    "delayTime": self.turn.now - behind if behind >= 0 else 0,
                    "maxTimeStamp": reads.store_time(topic, queue_id, end - 1),
                    "messageQueue": self.progress.queue(topic, queue_id),
                    "minTimeStamp": oldest,
                }
            )
        return Reply(body=fastjson.dumps({"consumeTimeSpanSet": spans}))

    # ---- clients ----

    def get_consumer_connections(self, request: Request) -> Reply:
        """A consumer group's members and what they subscribe to; 206 when none is alive."""
        header: headers.GetConsumerConnectionListRequest = request.header
        group = self.consumers.group(header.consumer_group)
        if group is None:
            raise RequestRefused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{header.consumer_group}] not online"
            )
        body = bodies.ConsumerConnection(
            connection_set=[_connection(client) for client in group.clients.values()],
            subscription_table=group.subscriptions,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return Reply(body=body.to_json())

    def get_producer_connections(self, request: Request) -> Reply:
        """A producer group's members; 1 when none is alive."""
        header: headers.GetProducerConnectionListRequest = request.header
        members = self.producers.clients(header.producer_group)
        if not members:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the producer group[{header.producer_group}] not exist")
        return Reply(body=bodies.ProducerConnection(connection_set=[_connection(m) for m in members]).to_json())

    def get_all_producers(self, request: Request) -> Reply:
        """All producers by group."""
        data = {
            group: [
                {
                    "clientId": client.client_id,
                    "language": _language(client),
                    "lastUpdateTimestamp": client.seen,
                    "remoteIP": f"/{client.peer}",  # as Java writes an address
                    "version": client.version,
                }
                for client in self.producers.clients(group)
            ]
            for group in self.producers.groups()
        }
        return Reply(body=fastjson.dumps({"data": data}))


def _connection(client: Client) -> bodies.Connection:
    return bodies.Connection(
        client_id=client.client_id, client_addr=client.peer, language=_language(client), version=client.version
    )


def _language(client: Client) -> str:
    return Language(client.language).name
