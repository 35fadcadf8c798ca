"""Administration: topics, groups, offsets, brokers and their status. Users and policies are in `access`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perseid.base.errors import PerseidError, RemoteProtocolError
from perseid.client.access import AccessRequests
from perseid.client.answers import body_of, records_of, unreadable
from perseid.client.connection import Header
from perseid.client.errors import ClientError, NoRoute, ServerRefused, UsageError
from perseid.client.model import MessageQueue, ReceivedMessage, check_topic
from perseid.client.pulling import Offsets, Puller
from perseid.client.routes import TopicRoute
from perseid.client.session import Session
from perseid.client.subscription import Subscription
from perseid.client.tls import ClientTls
from perseid.wire import properties, record
from perseid.wire.bodies import (
    MASTER_ID,
    ClusterInfo,
    Connection,
    ConsumerConnection,
    ConsumeStats,
    HARuntimeInfo,
    KVTable,
    ProducerConnection,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigAndQueueMapping,
    TopicList,
    TopicStatsTable,
)
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.controller import EpochEntryCache
from perseid.wire.headers.clients import GetConsumerRunningInfoRequest
from perseid.wire.headers.offsets import CloneGroupOffsetRequest, ResetOffsetRequest
from perseid.wire.headers.query import QueryMessageRequest, ViewMessageByIdRequest
from perseid.wire.headers.topics import (
    CreateTopicRequest,
    DeleteSubscriptionGroupRequest,
    DeleteTopicRequest,
    GetConsumerConnectionListRequest,
    GetConsumeStatsRequest,
    GetProducerConnectionListRequest,
    GetSubscriptionGroupConfigRequest,
    GetTopicConfigRequest,
    GetTopicStatsInfoRequest,
)
from perseid.wire.ids import parse_offset_message_id
from perseid.wire.inspection import ConsumerRunningInfo
from perseid.wire.mapping import LogicQueueMappingItem
from perseid.wire.names import AUTO_CREATE_TOPIC, RETRY_PREFIX, TOOLS_GROUP, is_of_group, is_system, own_topics

TIMEOUT_MS = 5000
DEFAULT_QUEUES = 8
"""As the original's admin tool gives a new topic."""
READ_WRITE = 6
"""The original's group for operators' tools that read messages; every broker has it."""
ROUTE_DEADLINE_MS = 5000
ROUTE_PAUSE_MS = 50


@dataclass(frozen=True, slots=True)
class SlaveStatus:
    """One slave, as its master sees it."""

    broker_name: str
    """The name of its broker set."""
    address: str
    """The address from which it connects, `host:port`."""
    in_sync: bool
    """Whether it is less behind than the master's `haMaxGapNotInSync`. Under a controller: whether it is in the sync
    state set."""
    lag_bytes: int
    """Bytes of the master's log that it does not have yet."""
    lag_seconds: float | None
    """The same in seconds. None if the master is Java's, which does not report it."""
    bytes_per_second: int
    """The rate of replication."""


@dataclass(frozen=True, slots=True)
class BrokerEpochs:
    """The epochs of one broker's log, under controllers."""

    broker_name: str
    """The name of its broker set."""
    address: str
    """The broker's address, `host:port`."""
    broker_id: int
    """The id that it reports. 0: it is master."""
    epochs: tuple[tuple[int, int], ...]
    """Pairs in order: an epoch, and the log offset at which it begins."""
    max_offset: int
    """The offset at which the log and its last epoch end."""


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One queue of a topic, and the offsets between which it can be read."""

    queue: MessageQueue
    """Which one."""
    min_offset: int
    """The first offset that can be read."""
    max_offset: int
    """The offset after the last one."""
    last_update_ms: int
    """The time at which its newest message was stored, in milliseconds since 1970. 0: it has no message."""


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far a consumer group is with one queue."""

    queue: MessageQueue
    """Which one."""
    broker_offset: int
    """The offset after the newest message."""
    consumer_offset: int
    """The offset that the group has committed: that of the next message to consume."""
    last_ms: int
    """The time at which the last message that it has consumed was stored, in milliseconds since 1970."""

    @property
    def lag(self) -> int:
        """Messages that the group has not committed yet."""
        return self.broker_offset - self.consumer_offset


class Admin(AccessRequests):
    """Administers a cluster: `async with Admin("host:9876") as admin: await admin.create_topic("orders")`."""

    def __init__(
        self,
        namesrv: str | Sequence[str] = "127.0.0.1:9876",
        *,
        timeout_ms: int = TIMEOUT_MS,
        session: Session | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self.session = session or Session(namesrv, tls=tls)
        self._timeout_ms = timeout_ms
        self._offsets = Offsets(self.session)
        self._started = False

    async def start(self) -> None:
        """Get ready; connections are opened when first needed."""
        if not self._started:
            await self.session.start()
            self._started = True

    async def stop(self) -> None:
        """Close the connections of this client."""
        if self._started:
            self._started = False
            await self.session.stop()

    # ---- topics ----

    async def create_topic(
        self,
        topic: str,
        queues: int = DEFAULT_QUEUES,
        *,
        cluster: str | None = None,
        brokers: Sequence[str] | None = None,
        perm: int = READ_WRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> TopicRoute:
        """Create or change a topic with `queues` queues on each master, and wait until its route is known.

        `cluster` or `brokers` (names) select the masters. `attributes` are set unchanged.
        """
        check_topic(topic)
        masters = await self.masters(cluster=cluster, brokers=brokers)
        request = CreateTopicRequest(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
            attributes=",".join(f"+{k}={v}" for k, v in (attributes or {}).items()) or None,
        )
        for address in masters.values():
            await self._ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, request)
        return await self._route_with(topic, set(masters), queues)

    async def update_topic(
        self, topic: str, queues: int, *, cluster: str | None = None, brokers: Sequence[str] | None = None
    ) -> TopicRoute:
        """Change the number of queues of an existing topic on each master that has it. Other settings are kept.

        With fewer queues than before, messages in the removed queues can't be read any more (`hidden_by`). `NoRoute` if
        there is no such topic, `ClientError` if none of the named masters has it.
        """
        masters = await self._masters_with(topic, cluster=cluster, brokers=brokers)
        for address in masters.values():
            row = await self.topic_config(topic, address)
            request = CreateTopicRequest(
                topic=topic,
                default_topic=AUTO_CREATE_TOPIC,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=row.perm,
                topic_filter_type=row.topic_filter_type,
                topic_sys_flag=row.topic_sys_flag,
                order=row.order,
            )
            await self._ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, request)
        return await self._route_with(topic, set(masters), queues)

    async def hidden_by(
        self, topic: str, queues: int, *, cluster: str | None = None, brokers: Sequence[str] | None = None
    ) -> list[QueueStats]:
        """The queues that could not be read any more if the topic had `queues` queues, sorted."""
        masters = await self._masters_with(topic, cluster=cluster, brokers=brokers)
        rows = await self.topic_stats(topic)
        return [row for row in rows if row.queue.broker_name in masters and row.queue.queue_id >= queues]

    async def _masters_with(
        self, topic: str, *, cluster: str | None, brokers: Sequence[str] | None
    ) -> dict[str, str]:
        there = {row.broker_name for row in (await self.topic_route(topic)).queues}
        masters = await self.masters(cluster=cluster, brokers=brokers)
        found = {name: address for name, address in masters.items() if name in there}
        if not found:
            raise ClientError(f"topic {topic} is on {', '.join(sorted(there))}, not on {', '.join(sorted(masters))}")
        return found

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic with all its messages, on all brokers and name servers."""
        for addresses in (await self.cluster_info()).brokers.values():
            for address in addresses.values():
                await self._ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=topic))
        for address in self.session.names.addresses:
            await self._ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRequest(topic=topic))

    async def topic_list(self) -> list[str]:
        """The names of all topics, including system topics."""
        self._check_started()
        answer = await self.session.names.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(body_of(answer, TopicList).topic_list or [])

    async def user_topics(self) -> list[str]:
        """The names of users' topics, without system topics, topics of brokers and clusters, retry topics and dead
        letters."""
        info = await self.cluster_info()
        own = own_topics(info.clusters, info.brokers)
        names = await self.topic_list()
        return [name for name in names if name not in own and not is_system(name) and not is_of_group(name)]

    async def topic_route(self, topic: str) -> TopicRoute:
        """The brokers and queues of a topic, from a name server and not from a cache. `NoRoute` if there are none."""
        self._check_started()
        return await self.session.routes.fetch(topic)

    async def topic_config(self, topic: str, address: str) -> TopicConfig:
        """A topic's settings on one broker."""
        answer = await self._ask(address, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest(topic=topic))
        return body_of(answer, TopicConfig)

    async def static_topic(self, topic: str) -> dict[int, list[LogicQueueMappingItem]] | None:
        """The mapping of a static topic's logical queues, as their leaders report it. None for other topics."""
        route = await self.topic_route(topic)
        found: dict[int, list[LogicQueueMappingItem]] = {}
        for addresses in route.brokers.values() if route.leaders else ():
            if MASTER_ID in addresses:
                request = GetTopicConfigRequest(topic=topic, lo=True)
                answer = await self._ask(addresses[MASTER_ID], RequestCode.GET_TOPIC_CONFIG, request)
                detail = body_of(answer, TopicConfigAndQueueMapping).mapping_detail
                if detail is not None:
                    found |= {i: items for i, items in detail.hosted_queues.items() if detail.leads(i)}
        return dict(sorted(found.items())) if route.leaders else None

    async def topic_stats(self, topic: str) -> list[QueueStats]:
        """The offsets of each queue of a topic, sorted by queue."""
        route = await self.topic_route(topic)
        found: list[QueueStats] = []
        for addresses in route.brokers.values():
            if MASTER_ID not in addresses:
                continue
            request = GetTopicStatsInfoRequest(topic=topic)
            answer = await self._ask(addresses[MASTER_ID], RequestCode.GET_TOPIC_STATS_INFO, request)
            for queue, row in body_of(answer, TopicStatsTable).offset_table.items():
                where = MessageQueue(queue.topic, queue.broker_name, queue.queue_id)
                found.append(QueueStats(where, row.min_offset, row.max_offset, row.last_update_timestamp))
        return sorted(found, key=lambda row: row.queue)

    # ---- the cluster ----

    async def cluster_info(self) -> Cluster:
        """All clusters and brokers that the name server knows."""
        self._check_started()
        answer = await self.session.names.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        info = body_of(answer, ClusterInfo)
        return Cluster(
            clusters={name: sorted(names) for name, names in sorted((info.cluster_addr_table or {}).items())},
            brokers={
                name: {int(i): address for i, address in sorted(data.broker_addrs.items())}
                for name, data in sorted((info.broker_addr_table or {}).items())
            },
        )

    async def masters(
        self, *, cluster: str | None = None, brokers: Sequence[str] | None = None
    ) -> dict[str, str]:
        """Broker name → address of the masters of a cluster, of the named brokers, or of all. The name of a broker in
        shards stands for all of them."""
        info = await self.cluster_info()
        names = set(info.named(brokers) if brokers is not None else info.brokers)
        if unknown := names - info.brokers.keys():
            raise ClientError(
                f"no broker called {', '.join(sorted(unknown))}; known are: {', '.join(info.brokers) or 'none'}"
            )
        if cluster is not None:
            if cluster not in info.clusters:
                raise ClientError(f"no cluster called {cluster}; known are: {', '.join(info.clusters) or 'none'}")
            names &= set(info.clusters[cluster])
        found = {name: info.brokers[name][MASTER_ID] for name in sorted(names) if MASTER_ID in info.brokers[name]}
        if not found:
            raise ClientError(
                "the name servers know no broker that is a master now: is one running, with the right namesrvAddr?"
            )
        return found

    async def broker_runtime_info(self, address: str) -> dict[str, str]:
        """The metrics that the broker at this address (`host:port`) reports."""
        answer = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return dict(body_of(answer, KVTable).table or {})

    async def ha_status(self, *, brokers: Sequence[str] | None = None) -> list[SlaveStatus]:
        """Each slave of the named broker sets, or of all, as its master sees it."""
        found: list[SlaveStatus] = []
        for name, address in (await self.masters(brokers=brokers)).items():
            answer = await self._ask(address, RequestCode.GET_BROKER_HA_STATUS)
            for one in body_of(answer, HARuntimeInfo).ha_connection_info:
                lag_s = None if one.lag_millis is None else one.lag_millis / 1000
                found.append(
                    SlaveStatus(name, one.addr, one.in_sync, one.diff, lag_s, one.transferred_byte_in_second)
                )
        return found

    async def broker_epochs(self, address: str) -> BrokerEpochs:
        """The epochs in the log of a broker (`host:port`) under controllers. `ServerRefused` by other brokers."""
        answer = await self._ask(address, RequestCode.GET_BROKER_EPOCH_CACHE)
        told = body_of(answer, EpochEntryCache)
        epochs = tuple((one.epoch, one.start_offset) for one in told.epoch_list)
        return BrokerEpochs(told.broker_name, address, told.broker_id, epochs, told.max_offset)

    async def broker_config(self, address: str) -> dict[str, str]:
        """The current settings of the broker at this address (`host:port`): key → text."""
        answer = await self._ask(address, RequestCode.GET_BROKER_CONFIG)
        lines = bytes(answer.body).decode("utf-8", "replace").splitlines()
        pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        return {name.strip(): value.strip() for name, value in pairs}

    async def update_broker_config(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running broker."""
        body = "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
        await self._ask(address, RequestCode.UPDATE_BROKER_CONFIG, None, body)

    # ---- groups ----

    async def create_group(self, config: SubscriptionGroupConfig) -> None:
        """Create or change a consumer group on all masters."""
        for address in (await self.masters()).values():
            await self._ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.to_json())

    async def delete_group(self, group: str, *, clean_offset: bool = False) -> None:
        """Delete a consumer group's settings, and with `clean_offset` also its committed offsets."""
        request = DeleteSubscriptionGroupRequest(group_name=group, clean_offset=clean_offset)
        for address in (await self.masters()).values():
            await self._ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, request)

    async def group_config(self, group: str, address: str) -> SubscriptionGroupConfig:
        """A group's settings on one broker."""
        request = GetSubscriptionGroupConfigRequest(group=group)
        answer = await self._ask(address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, request)
        return body_of(answer, SubscriptionGroupConfig)

    async def consume_stats(self, group: str, topic: str | None = None) -> list[QueueLag]:
        """The group's offset in each queue of one topic, or of all topics that it has consumed, sorted by queue."""
        self._check_started()
        try:
            addresses = (await self.topic_route(topic or RETRY_PREFIX + group)).brokers.values()
        except NoRoute:
            addresses = (await self.cluster_info()).brokers.values()
        found: list[QueueLag] = []
        for ids in addresses:
            if MASTER_ID not in ids:
                continue
            request = GetConsumeStatsRequest(consumer_group=group, topic=topic)
            answer = await self._ask(ids[MASTER_ID], RequestCode.GET_CONSUME_STATS, request)
            for queue, row in body_of(answer, ConsumeStats).offset_table.items():
                where = MessageQueue(queue.topic, queue.broker_name, queue.queue_id)
                found.append(QueueLag(where, row.broker_offset, row.consumer_offset, row.last_timestamp))
        return sorted(found, key=lambda row: row.queue)

    async def consumer_connections(self, group: str) -> ConsumerConnection:
        """The consumers of a group that are connected now. `ServerRefused` with code 206 if there are none."""
        request = GetConsumerConnectionListRequest(consumer_group=group)
        return body_of(
            await self._first_answer(group, RequestCode.GET_CONSUMER_CONNECTION_LIST, request), ConsumerConnection
        )

    async def producer_connections(self, group: str) -> list[Connection]:
        """The producers of a group that are connected now."""
        found: dict[str, Connection] = {}
        request = GetProducerConnectionListRequest(producer_group=group)
        for address in (await self.masters()).values():
            try:
                answer = await self._ask(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, request)
            except ServerRefused as error:
                if error.code != ResponseCode.SYSTEM_ERROR:
                    raise
                continue  # nobody at this broker
            told = body_of(answer, ProducerConnection)
            found.update((one.client_id, one) for one in told.connection_set)
        return list(found.values())

    async def groups(self) -> dict[str, SubscriptionGroupConfig]:
        """All consumer groups that a master knows, by name."""
        found: dict[str, SubscriptionGroupConfig] = {}
        for address in (await self.masters()).values():
            answer = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
            table = body_of(answer, SubscriptionGroupWrapper).subscription_group_table
            found = {**table, **found}
        return dict(sorted(found.items()))

    async def running_info(self, group: str, client_id: str) -> ConsumerRunningInfo:
        """The state that a connected consumer reports of itself."""
        request = GetConsumerRunningInfoRequest(consumer_group=group, client_id=client_id)
        return body_of(
            await self._first_answer(group, RequestCode.GET_CONSUMER_RUNNING_INFO, request), ConsumerRunningInfo
        )

    async def _first_answer(self, group: str, code: RequestCode, request: Header) -> Command:
        """The master's answer that refuses nothing; what the last one said, if all refuse."""
        last: ServerRefused | None = None
        for address in (await self.masters()).values():
            try:
                return await self._ask(address, code, request)
            except ServerRefused as error:
                last = error
        raise last or ClientError(f"group {group}: no broker to ask")

    async def reset_offset(self, group: str, topic: str, timestamp_ms: int) -> dict[MessageQueue, int]:
        """Set a group's offsets to the messages stored at a time; -1: to the end. Returns the new offsets."""
        route, found = await self.topic_route(topic), dict[MessageQueue, int]()
        for name, ids in route.brokers.items():
            if MASTER_ID in ids:
                found |= await self._reset(name, ids[MASTER_ID], group, topic, -1, None, timestamp_ms)
        return found

    async def reset_queue_offset(self, group: str, queue: MessageQueue, offset: int) -> dict[MessageQueue, int]:
        """Set a group's offset in one queue. Returns the new offset."""
        await self.topic_route(queue.topic)
        address = await self.session.leader(queue)
        return await self._reset(queue.broker_name, address, group, queue.topic, queue.queue_id, offset, 0)

    async def _reset(
        self, name: str, address: str, group: str, topic: str, queue_id: int, offset: int | None, timestamp_ms: int
    ) -> dict[MessageQueue, int]:
        request = ResetOffsetRequest(
            group=group, topic=topic, queue_id=queue_id, offset=offset, timestamp=timestamp_ms, is_force=True
        )
        answer = await self._ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, request)
        table = body_of(answer, ResetOffsetBody).offset_table if answer.body else {}
        return {MessageQueue(queue.topic, name, queue.queue_id): at for queue, at in table.items()}

    async def clone_offset(self, source: str, target: str, topic: str | None = None, *, offline: bool = True) -> None:
        """Copy the offsets of the group `source` to the group `target`, in one topic or in all. Without `offline`,
        topics to which the connected members of `source` don't subscribe are left out."""
        request = CloneGroupOffsetRequest(src_group=source, dest_group=target, topic=topic, offline=offline)
        for address in (await self.masters()).values():
            await self._ask(address, RequestCode.CLONE_GROUP_OFFSET, request)

    # ---- messages ----

    async def view_message(self, offset_msg_id: str, topic: str = "") -> ReceivedMessage:
        """The message with the broker's id (`SendResult.offset_msg_id`). `UsageError` if this is no such id."""
        try:
            host, offset = parse_offset_message_id(offset_msg_id)
        except RemoteProtocolError as error:
            raise UsageError(str(error)) from None
        request = ViewMessageByIdRequest(topic=topic or None, offset=offset)
        answer = await self._ask(str(host), RequestCode.VIEW_MESSAGE_BY_ID, request)
        try:
            return ReceivedMessage(record.decode(answer.body), "")
        except PerseidError as error:
            raise unreadable(error) from error

    async def query_messages(
        self, topic: str, key: str, max_count: int = 32, *, begin_ms: int = 0, end_ms: int = 2**63 - 1
    ) -> list[ReceivedMessage]:
        """The messages of a topic that have a key, from the brokers' indexes, oldest first."""
        route = await self.topic_route(topic)
        request = QueryMessageRequest(
            topic=topic, key=key, max_num=max_count, begin_timestamp=begin_ms, end_timestamp=end_ms
        )
        found: list[ReceivedMessage] = []
        for name, ids in route.brokers.items():
            answer = await self.session.connections.call(
                ids[min(ids)], RequestCode.QUERY_MESSAGE, request, timeout_ms=self._timeout_ms
            )
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                continue
            if answer.code != ResponseCode.SUCCESS:
                raise ServerRefused(answer.code, answer.remark, ids[min(ids)])
            for item in records_of(answer):
                keys = (item.props.get(properties.KEYS) or "").split()
                if key in keys or item.props.get(properties.UNIQ_KEY) == key:
                    found.append(ReceivedMessage(item, name))
        return sorted(found, key=lambda message: message.store_timestamp)

    async def messages_at(self, queue: MessageQueue, offset: int, count: int = 1) -> list[ReceivedMessage]:
        """Up to `count` messages of a queue, from an offset on. An empty list if there are none."""
        await self.topic_route(queue.topic)
        puller, found = Puller(self.session, TOOLS_GROUP), list[ReceivedMessage]()
        async for part in puller.read(queue, offset, offset + count, Subscription.parse(queue.topic, None, 0)):
            found += part
        return found

    # ---- offsets ----

    async def min_offset(self, queue: MessageQueue) -> int:
        """The oldest offset of a queue that can still be read."""
        self._check_started()
        return await self._offsets.min(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset after the newest message of a queue."""
        self._check_started()
        return await self._offsets.max(queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int, *, upper: bool = False) -> int:
        """The offset of the first message stored at or after a time (milliseconds since 1970). With `upper`, of the
        last one at or before it."""
        self._check_started()
        return await self._offsets.at_time(queue, timestamp_ms, upper=upper)

    # ---- inside ----

    def _check_started(self) -> None:
        self.session.check_running("Admin")

    async def _ask(self, address: str, code: RequestCode, header: Header = None, body: bytes = b"") -> Command:
        self._check_started()
        return await self.session.connections.ask(address, code, header, body, self._timeout_ms)

    async def _route_with(self, topic: str, brokers: set[str], queues: int) -> TopicRoute:
        """The route once it names all of `brokers`; brokers register soon after they have answered."""
        deadline = asyncio.get_running_loop().time() + ROUTE_DEADLINE_MS / 1000
        while True:
            try:
                route = await self.session.routes.fetch(topic)
                there = {q.broker_name for q in route.queues if q.write_queues == queues}
                if brokers <= there:
                    return route
            except NoRoute:
                pass
            if asyncio.get_running_loop().time() > deadline:
                raise ClientError(
                    f"topic {topic} was created, but the name servers did not learn of it within"
                    f" {ROUTE_DEADLINE_MS} ms: are the brokers registered at the same name servers?"
                )
            await asyncio.sleep(ROUTE_PAUSE_MS / 1000)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The clusters and brokers that the name servers know."""

    clusters: dict[str, list[str]]
    """Cluster → names of its brokers."""
    brokers: dict[str, dict[int, str]]
    """Broker name → id (0: master) → address."""

    def named(self, names: Iterable[str]) -> list[str]:
        """The brokers with these names; where a name is that of a broker in shards, its shards in its place."""
        found = []
        for name in names:
            shards = [other for other in self.brokers if _shard_of(other, name)]
            found += shards if shards and name not in self.brokers else [name]
        return found

    def to_json(self) -> str:
        """The same as a JSON object, for scripts."""
        return json.dumps({"clusters": self.clusters, "brokers": self.brokers})


def _shard_of(name: str, broker: str) -> bool:
    """Is this the name of one of the broker's shards (`perseid broker --shards`)?"""
    head, _, number = name.rpartition("-")
    return head == broker and number.isdecimal()
