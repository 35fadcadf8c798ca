"""What operators look at and change: the configuration (25, 26), the broker's state (28), and how topics, groups
and clients are doing (202 to 204, 208, 303, 328). Source: broker.md §11, remoting.md §15."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.broker.clients import Client
from perseid.broker.request import Reply, Request
from perseid.wire import bodies, fastjson
from perseid.wire.bodies import DataVersion, MessageQueue
from perseid.wire.codes import VERSION, Language, ResponseCode
from perseid.wire.headers import topics as headers
from perseid.wire.headers.admin import GetBrokerConfigResponse
from perseid.wire.names import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from perseid.broker.node import Broker

VERSION_NAME = "V5_5_0"


# ---- configuration ----


def update_broker_config(broker: Broker, request: Request) -> None:
    """Change settings of the running broker: `broker.live` answers, at the end of this turn or when they are kept.

    All or nothing: 16 for the black list, 1 for keys that need a restart or aren't known, or values that don't fit.
    (The original takes any key, and most have no effect.)
    """
    broker.live.ask(request)


def get_broker_config(broker: Broker, request: Request) -> Reply:
    """All settings as they are now, as a properties text."""
    text = "".join(f"{key}={value}\n" for key, value in sorted(broker.live.properties().items()))
    version = DataVersion(counter=0, state_version=0, timestamp=broker.stats.started)
    return Reply(header=GetBrokerConfigResponse(version=version.to_json().decode()), body=text.encode())


# ---- the broker's state ----


def get_runtime_info(broker: Broker, request: Request) -> Reply:
    """Counters, rates and offsets under the keys that the original's tools look for.

    Where the original counts the requests that wait for a thread, here nothing waits: those are 0, and so are
    the times of a page-cache lock and of a dispatch that runs behind the log.
    """
    info = _store_info(broker) | _totals(broker) | _IDLE | broker.replicas.runtime_info(broker.turn.now)
    info |= broker.timers.runtime_info(broker.turn.now)
    return Reply(body=bodies.KVTable(table=dict(sorted(info.items()))).to_json())


_IDLE = {
    "dispatchMaxBuffer": "0",
    "getMessageEntireTimeMax": "0",
    "dispatchBehindBytes": "0",
    "pageCacheLockTimeMills": "0",
    "remainTransientStoreBufferNumbs": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "100000",
    **{f"{pool}ThreadPoolQueueSize": "0" for pool in ("send", "pull", "litePull", "query", "ack")},
    **{f"{pool}ThreadPoolQueueHeadWaitTimeMills": "0" for pool in ("send", "pull", "litePull", "query", "ack")},
    "sendThreadPoolQueueCapacity": "10000",
    "pullThreadPoolQueueCapacity": "100000",
    "litePullThreadPoolQueueCapacity": "100000",
    "queryThreadPoolQueueCapacity": "20000",
    "ackThreadPoolQueueCapacity": "100000",
}
"""What belongs to threads, locks and wheels that this broker doesn't have."""


def _store_info(broker: Broker) -> dict[str, str]:
    stats, store = broker.stats, broker.store
    usage = broker.disk.usage(store.log.segments.folder)
    used = str(store.disk_used_ratio)
    stored = stats.put_messages.total
    return {
        "bootTimestamp": str(stats.started),
        "runtime": stats.runtime_text(broker.turn.now),
        "putMessageEntireTimeMax": str(stats.put_time_max_ms),
        "putMessageTimesTotal": str(stored),
        "putMessageFailedTimes": str(stats.put_failed_times),
        "putMessageSizeTotal": str(stats.put_bytes),
        "putMessageDistributeTime": stats.put_distribution(),
        "putMessageAverageSize": str(stats.put_bytes / max(1, stored)),
        "putTps": stats.put_messages.text(),
        "getFoundTps": stats.get_found.text(),
        "getMissTps": stats.get_missed.text(),
        "getTotalTps": stats.get_all.text(),
        "getTransferredTps": stats.transferred.text(),
        "putLatency99": f"{stats.put_latency_ms(0.99):.2f}",
        "putLatency999": f"{stats.put_latency_ms(0.999):.2f}",
        "commitLogDiskRatio": used,
        "commitLogDiskRatio_commitlog": used,
        "consumeQueueDiskRatio": used,
        "commitLogMinOffset": str(store.start),
        "commitLogMaxOffset": str(store.end),
        "commitLogDirCapacity": f"Total : {human_bytes(usage.total)}, Free : {human_bytes(usage.free)}.",
        "remainHowManyDataToFlush": human_bytes(store.end - store.flushed),
        "earliestMessageTimeStamp": str(store.earliest_time()),
    }


def _totals(broker: Broker) -> dict[str, str]:
    stats, config = broker.stats, broker.settings.current
    put_yesterday, put_today = stats.put_total_mornings
    get_yesterday, get_today = stats.get_total_mornings
    levels = {
        f"scheduleMessageOffset_{level}": f"{offset},{broker.store.max_offset(SCHEDULE_TOPIC, level - 1)}"
        for level, offset in sorted(broker.delay.offsets.items())
    }
    return levels | {
        "brokerActive": "true",
        "brokerVersion": str(VERSION),
        "brokerVersionDesc": VERSION_NAME,
        "msgPutTotalYesterdayMorning": str(put_yesterday),
        "msgPutTotalTodayMorning": str(put_today),
        "msgPutTotalTodayNow": str(stats.put_total),
        "msgGetTotalYesterdayMorning": str(get_yesterday),
        "msgGetTotalTodayMorning": str(get_today),
        "msgGetTotalTodayNow": str(stats.get_total),
        "startAcceptSendRequestTimeStamp": str(config.start_accept_send_request_time_stamp),
    }


def human_bytes(count: int) -> str:
    """`1536` → `1.5 KiB`, as the original writes sizes for people."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}iB"


_UNITS = "KMGTPE"


# ---- topics and groups ----


def get_topic_stats(broker: Broker, request: Request) -> Reply:
    """The bounds of each of a topic's queues, and when their last messages were stored."""
    header: headers.GetTopicStatsInfoRequest = request.header
    row = broker.topics.get(header.topic)
    if row is None:
        raise broker.topics.missing(header.topic)
    store, table = broker.store, {}
    for queue_id in range(max(row.read_queue_nums, row.write_queue_nums)):
        low = max(0, store.min_offset(header.topic, queue_id))
        high = max(0, store.max_offset(header.topic, queue_id))
        table[queue_of(broker, header.topic, queue_id)] = bodies.TopicOffset(
            min_offset=low,
            max_offset=high,
            last_update_timestamp=max(0, store.store_time(header.topic, queue_id, high - 1)) if high else 0,
        )
    tps = broker.stats.topic_put_tps(header.topic)
    return Reply(body=bodies.TopicStatsTable(offset_table=table, topic_put_tps=tps).to_json())


def get_consume_stats(broker: Broker, request: Request) -> Reply:
    """How far a group is in each queue of the topics that it reads, or of those that the request names."""
    header: headers.GetConsumeStatsRequest = request.header
    group = header.consumer_group
    table: dict[MessageQueue, bodies.OffsetWrapper] = {}
    consume_tps = 0.0
    for topic in _consumed_topics(broker, header):
        row = broker.topics.get(topic)
        if row is None:
            continue
        consume_tps += broker.stats.group_get_tps(group, topic)
        for queue_id in range(row.read_queue_nums):
            table[queue_of(broker, topic, queue_id)] = progress(broker, group, topic, queue_id)
    return Reply(body=bodies.ConsumeStats(offset_table=table, consume_tps=consume_tps).to_json())


def progress(broker: Broker, group: str, topic: str, queue_id: int) -> bodies.OffsetWrapper:
    """How far a group is in a queue, and how far the queue goes. In a static topic -1 says that the group has no offset
    in this queue: it may have one in another of the same logical queue."""
    nowhere = -1 if topic in broker.mappings.rows else 0
    found = broker.offsets.query(topic, group, queue_id)
    consumed = nowhere if found is None else found
    pulled = broker.offsets.pull_offset(topic, group, queue_id) or 0
    last = broker.store.store_time(topic, queue_id, consumed - 1) if consumed > 0 else 0
    return bodies.OffsetWrapper(
        broker_offset=max(0, broker.store.max_offset(topic, queue_id)),
        consumer_offset=consumed,
        pull_offset=max(consumed, pulled),
        last_timestamp=max(0, last),
    )


def _consumed_topics(broker: Broker, header: headers.GetConsumeStatsRequest) -> list[str]:
    listed = [topic for topic in (header.topic_list or "").split(";") if topic]
    if listed:
        return list(dict.fromkeys(listed))
    topics = [header.topic] if header.topic else sorted(broker.offsets.topics_of(header.consumer_group))
    group = broker.consumers.group(header.consumer_group)
    if group is not None and group.subscriptions:
        topics = [topic for topic in topics if broker.consumers.subscription(group.name, topic) is not None]
    return topics


def query_consume_time_span(broker: Broker, request: Request) -> Reply:
    """Per queue of a topic: when its oldest, newest and last consumed messages were stored, and the delay."""
    header: headers.QueryConsumeTimeSpanRequest = request.header
    row = broker.topics.get(header.topic)
    if row is None:
        raise broker.topics.missing(header.topic)
    store, topic, spans = broker.store, header.topic, []
    for queue_id in range(row.write_queue_nums):
        oldest = store.store_time(topic, queue_id, store.min_offset(topic, queue_id))
        end = store.max_offset(topic, queue_id)
        consumed = broker.offsets.query(topic, header.group, queue_id) or 0
        behind = store.store_time(topic, queue_id, consumed) if consumed < end else -1
        spans.append(
            {
                "consumeTimeStamp": store.store_time(topic, queue_id, consumed - 1) if consumed else oldest,
                "delayTime": broker.turn.now - behind if behind >= 0 else 0,
                "maxTimeStamp": store.store_time(topic, queue_id, end - 1),
                "messageQueue": queue_of(broker, topic, queue_id),
                "minTimeStamp": oldest,
            }
        )
    return Reply(body=fastjson.dumps({"consumeTimeSpanSet": spans}))


def queue_of(broker: Broker, topic: str, queue_id: int) -> MessageQueue:
    """A queue of this broker."""
    return MessageQueue(topic, broker.settings.current.broker_name, queue_id)


# ---- clients ----


def get_consumer_connections(broker: Broker, request: Request) -> Reply:
    """A consumer group's members and what they subscribe to; 206 when none is alive."""
    header: headers.GetConsumerConnectionListRequest = request.header
    group = broker.consumers.group(header.consumer_group)
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


def get_producer_connections(broker: Broker, request: Request) -> Reply:
    """A producer group's members; 1 when none is alive."""
    header: headers.GetProducerConnectionListRequest = request.header
    members = broker.producers.clients(header.producer_group)
    if not members:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the producer group[{header.producer_group}] not exist")
    return Reply(body=bodies.ProducerConnection(connection_set=[_connection(m) for m in members]).to_json())


def get_all_producers(broker: Broker, request: Request) -> Reply:
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
            for client in broker.producers.clients(group)
        ]
        for group in broker.producers.groups()
    }
    return Reply(body=fastjson.dumps({"data": data}))


def _connection(client: Client) -> bodies.Connection:
    return bodies.Connection(
        client_id=client.client_id, client_addr=client.peer, language=_language(client), version=client.version
    )


def _language(client: Client) -> str:
    return Language(client.language).name
