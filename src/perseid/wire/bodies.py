"""The JSON bodies of requests and responses, and the rows of configuration files.

Sources: remoting.md §6, 7; store.md §9.

`to_json()` gives the text that the Java side writes. `from_json()` takes such a text, fastjson's liberties
included, or what `fastjson.loads` made of one; unknown members are ignored, null counts as absent.
RequestRefused(1) when it can't be.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from perseid.base.machine import Buffer
from perseid.wire import fastjson
from perseid.wire.body import Body, ByQueue, by_queue, convert, load, refused
from perseid.wire.body import MessageQueue as MessageQueue
from perseid.wire.fastjson import JsonError
from perseid.wire.hashing import java_hash
from perseid.wire.headers.base import Int, Long
from perseid.wire.mapping import TopicQueueMappingDetail, TopicQueueMappingInfo

# ---- topics and groups ----


class DataVersion(Body):
    """Of a table: equal versions mean equal tables."""

    state_version: Long = 0
    timestamp: Long = 0
    counter: Long = 0

    def next_version(self, now: int, state_version: int = 0) -> None:
        """The table changes, at `now` (ms)."""
        self.timestamp = now
        self.state_version = state_version
        self.counter += 1


CLEANUP_POLICY, COMPACTION = "cleanup.policy", "COMPACTION"


class TopicConfig(Body):
    """One topic of one broker."""

    topic_name: str = ""
    read_queue_nums: Int = 16
    write_queue_nums: Int = 16
    perm: Int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int = 0
    order: bool = False
    attributes: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def is_compacted(self) -> bool:
        """Whether of each key the last message alone stays."""
        return self.attributes.get(CLEANUP_POLICY) == COMPACTION

    def to_line(self) -> str:
        """The form within a compressed registration: it can't tell `order` and `topicSysFlag`."""
        attributes = str(fastjson.dumps(self.attributes), "utf-8")
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
            f"{self.topic_filter_type} {attributes}"
        )

    @classmethod
    def from_line(cls, line: str) -> TopicConfig:
        name, *rest = line.split(" ")
        try:
            read, write, perm = (int(text) for text in rest[:3])
            kind = rest[3]
        except (ValueError, IndexError):
            raise refused(cls, f"{line[:200]!r}") from None
        members = {
            "topicName": name,
            "readQueueNums": read,
            "writeQueueNums": write,
            "perm": perm,
            "topicFilterType": kind,
            "attributes": load(cls, rest[4]) if len(rest) == 5 and rest[4] else {},
        }
        return cls.from_json(members)


class TopicConfigAndQueueMapping(TopicConfig):
    """The same with what the broker knows of a static topic (code 351)."""

    mapping_detail: TopicQueueMappingDetail | None = None


class TopicConfigSerializeWrapper(Body):
    """All topics of a broker: code 21 (with what it knows of static topics), registration (with what routes tell)."""

    topic_config_table: dict[str, TopicConfig] = msgspec.field(default_factory=dict)
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = msgspec.field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = msgspec.field(default_factory=dict)
    mapping_data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class RegisterBrokerBody(Body):
    """What a broker tells a name server about itself, plain or compressed (remoting.md §7)."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: list[str] = msgspec.field(default_factory=list)

    def compress(self) -> bytes:
        """The compressed form: it can't tell `order` and `topicSysFlag` of topics."""
        wrapper = self.topic_config_serialize_wrapper
        mappings = wrapper.topic_queue_mapping_info_map.values()
        parts = [
            _with_length(wrapper.data_version.to_json()),
            len(wrapper.topic_config_table).to_bytes(4, "big"),
            *(_with_length(row.to_line().encode()) for row in wrapper.topic_config_table.values()),
            _with_length(fastjson.dumps(self.filter_server_list)),
            len(mappings).to_bytes(4, "big"),
            *(_with_length(fastjson.dumps(mapping)) for mapping in mappings),
        ]
        return zlib.compress(b"".join(parts), 9)

    @classmethod
    def decode(cls, raw: Buffer) -> RegisterBrokerBody:
        """From a request's body. Its first byte tells the form: the header's `compressed` can't be trusted."""
        if not len(raw):
            return cls()
        if raw[0] != ZLIB_FIRST_BYTE:
            if bytes(raw).count(b"{") > MAX_REGISTERED_OBJECTS:
                raise refused(cls, f"more than {MAX_REGISTERED_OBJECTS} objects")
            return cls.from_json(raw)
        inflate = zlib.decompressobj()
        try:
            plain = inflate.decompress(raw, MAX_REGISTER_BODY_BYTES)
        except zlib.error as error:
            raise refused(cls, str(error)) from None
        if not inflate.eof:
            raise refused(cls, f"it is cut off, or has more than {MAX_REGISTER_BODY_BYTES} bytes inflated")
        return _Parts(plain).register_broker_body()


ZLIB_FIRST_BYTE = 0x78
MAX_REGISTERED_TOPICS = 100_000
"""In one registration: as JSON about so many fit in a frame."""
MAX_REGISTERED_OBJECTS = 4 * MAX_REGISTERED_TOPICS
"""Of JSON, before it is read: topics, their attributes, what leads to them."""
MAX_REGISTER_BODY_BYTES = 32 * 1024 * 1024
"""Of a compressed registration when inflated."""


def _with_length(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


class _Parts:
    """Reads an inflated registration piece by piece."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def register_broker_body(self) -> RegisterBrokerBody:
        wrapper = TopicConfigSerializeWrapper(data_version=DataVersion.from_json(self._text()))
        for _ in range(self._count("topics")):
            row = TopicConfig.from_line(self._text())
            wrapper.topic_config_table[row.topic_name] = row
        filters = _load_list(self._text())
        if self._at < len(self._raw):  # brokers before 5.0 end here
            for _ in range(self._count("mappings")):
                mapping = TopicQueueMappingInfo.from_json(self._text())
                wrapper.topic_queue_mapping_info_map[mapping.topic] = mapping
        return RegisterBrokerBody(wrapper, filters)

    def _count(self, what: str) -> int:
        count = self._int()
        if count > MAX_REGISTERED_TOPICS:
            raise refused(RegisterBrokerBody, f"{count} {what}: {MAX_REGISTERED_TOPICS} is the limit")
        return count

    def _int(self) -> int:
        end = self._at + 4
        if end > len(self._raw):
            raise refused(RegisterBrokerBody, f"it ends at byte {self._at} of {len(self._raw)}")
        value = int.from_bytes(self._raw[self._at : end], "big")
        self._at = end
        return value

    def _text(self) -> str:
        length = self._int()
        end = self._at + length
        if end > len(self._raw):
            raise refused(RegisterBrokerBody, f"{length} bytes are announced at byte {self._at}")
        text = str(self._raw[self._at : end], "utf-8", "replace")
        self._at = end
        return text


def _load_list(text: str) -> list[str]:
    try:
        filters: list[str] = convert(fastjson.loads(text), list[str]) if text else []
    except JsonError as error:
        raise refused(RegisterBrokerBody, str(error)) from None
    return filters


class SubscriptionGroupConfig(Body):
    """One consumer group of one broker."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int = 1
    retry_max_times: Int = 16
    group_retry_policy: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "CUSTOMIZED"})
    broker_id: Long = 0
    which_broker_when_consume_slowly: Long = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int = 0
    consume_timeout_minute: Int = 15
    subscription_data_set: list[Any] | None = None
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class SubscriptionGroupWrapper(Body):
    """All groups of a broker (code 201)."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = msgspec.field(default_factory=dict)
    forbidden_table: dict[str, dict[str, Int]] = msgspec.field(default_factory=dict)
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class CreateTopicListRequestBody(Body):
    """Several topics to create or change (code 18)."""

    topic_config_list: list[TopicConfig] = msgspec.field(default_factory=list)


class SubscriptionGroupList(Body):
    """Several groups to create or change (code 225)."""

    group_config_list: list[SubscriptionGroupConfig] = msgspec.field(default_factory=list)


# ---- name server ----


class QueueData(Body):
    """The queues of a topic on one broker."""

    broker_name: str = ""
    read_queue_nums: Int = 0
    write_queue_nums: Int = 0
    perm: Int = 0
    topic_sys_flag: Int = 0


MASTER_ID = 0
"""The brokerId of the master of a set, in routes and registrations; slaves have higher ones."""


class BrokerData(Body):
    """The replicas of one broker name: id (0 is the master) → address."""

    cluster: str | None = None
    broker_name: str = ""
    broker_addrs: dict[Long, str] = msgspec.field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False


class TopicRouteData(Body):
    """Where a topic's queues are."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = msgspec.field(default_factory=list)
    broker_datas: list[BrokerData] = msgspec.field(default_factory=list)
    filter_server_table: dict[str, list[str]] = msgspec.field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None

    def to_json(self, *, standard: bool = False) -> bytes:
        """`standard`: for clients from V4_9_4 on, or that ask for it; else with bare integer keys."""
        return fastjson.dumps(self, standard=standard)


class ClusterInfo(Body):
    """All brokers and clusters (code 106)."""

    broker_addr_table: dict[str, BrokerData] = msgspec.field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = msgspec.field(default_factory=dict)


class BrokerMemberGroup(Body):
    """The replicas of one broker name."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[Long, str] = msgspec.field(default_factory=dict)


class GetBrokerMemberGroupResponseBody(Body):
    """Of code 901."""

    broker_member_group: BrokerMemberGroup | None = None


class HAConnectionRuntimeInfo(Body):
    """One slave, as its master sees it (code 907). `lag_millis` is ours: for how long the slave has been behind."""

    addr: str = ""
    slave_ack_offset: Long = 0
    diff: Long = 0
    in_sync: bool = False
    transferred_byte_in_second: Long = 0
    transfer_from_where: Long = 0
    lag_millis: Long | None = None


class HAClientRuntimeInfo(Body):
    """A master, as its slave sees it."""

    master_addr: str | None = None
    transferred_byte_in_second: Long = 0
    max_offset: Long = 0
    last_read_timestamp: Long = 0
    last_write_timestamp: Long = 0
    master_flush_offset: Long = 0
    is_activated: bool = False


class HARuntimeInfo(Body):
    """The answer to 907."""

    master: bool = False
    master_commit_log_max_offset: Long = 0
    in_sync_slave_nums: Int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = msgspec.field(default_factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo = msgspec.field(default_factory=HAClientRuntimeInfo)


class KVTable(Body):
    """Names and values."""

    table: dict[str, str] = msgspec.field(default_factory=dict)


class TopicList(Body):
    """Names of topics."""

    topic_list: list[str] = msgspec.field(default_factory=list)
    broker_addr: str | None = None


class GroupList(Body):
    """Names of groups."""

    group_list: list[str] = msgspec.field(default_factory=list)


# ---- clients ----


class SubscriptionData(Body):
    """What a group wants of a topic."""

    topic: str = ""
    sub_string: str = ""
    tags_set: list[str] = msgspec.field(default_factory=list)
    code_set: list[Int] = msgspec.field(default_factory=list)
    sub_version: Long = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ConsumerData(Body):
    """A consumer group within a heartbeat."""

    group_name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = msgspec.field(default_factory=list)
    unit_mode: bool = False


class ProducerData(Body):
    """A producer group within a heartbeat."""

    group_name: str


class HeartbeatData(Body):
    """Who a client is and what it wants (code 34)."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = msgspec.field(default_factory=list)
    consumer_data_set: list[ConsumerData] = msgspec.field(default_factory=list)
    heartbeat_fingerprint: Int = 0
    without_sub: bool = False

    def fingerprint(self) -> int:
        """What a client puts into `heartbeat_fingerprint`: equal while its groups and topics are."""
        replace = msgspec.structs.replace
        consumers = [
            replace(c, subscription_data_set=[replace(s, sub_version=0) for s in c.subscription_data_set])
            for c in self.consumer_data_set
        ]
        bare = replace(
            self, client_id="", consumer_data_set=consumers, heartbeat_fingerprint=0, without_sub=False
        )
        return java_hash(str(bare.to_json(), "utf-8"))


class CheckClientRequestBody(Body):
    """Is this subscription possible? (code 46)"""

    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData | None = None


class GetConsumerListByGroupResponseBody(Body):
    """The client ids of a group (code 38)."""

    consumer_id_list: list[str] = msgspec.field(default_factory=list)


class LockBatchRequestBody(Body):
    """Queues that a client wants for itself (code 41)."""

    consumer_group: str = ""
    client_id: str = ""
    mq_set: list[MessageQueue] = msgspec.field(default_factory=list)
    only_this_broker: bool = False


class UnlockBatchRequestBody(LockBatchRequestBody):
    """Queues that a client gives back (code 42)."""


class LockBatchResponseBody(Body):
    """Queues that the client has now."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(default_factory=list, name="lockOKMQSet")


class QueryAssignmentRequestBody(Body):
    """Which queues are a client's? (code 400)"""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = "AVG"
    message_model: str = "CLUSTERING"


class MessageQueueAssignment(Body):
    """A queue that is a client's, and how it consumes it: PULL or POP."""

    message_queue: MessageQueue | None = None
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


class QueryAssignmentResponseBody(Body):
    """Of code 400."""

    message_queue_assignments: list[MessageQueueAssignment] = msgspec.field(default_factory=list)


class SetMessageRequestModeRequestBody(Body):
    """How a group is to consume a topic (code 401)."""

    topic: str = ""
    consumer_group: str = ""
    mode: str = "PULL"
    pop_share_queue_num: Int = 0


class Connection(Body):
    """A client's connection, for administrators."""

    client_id: str = ""
    client_addr: str = ""
    language: str = "OTHER"
    version: Int = 0


class ConsumerConnection(Body):
    """Who consumes for a group (code 203)."""

    connection_set: list[Connection] = msgspec.field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnection(Body):
    """Who produces for a group (code 204)."""

    connection_set: list[Connection] = msgspec.field(default_factory=list)


class ConsumeMessageDirectlyResult(Body):
    """What a consumer made of one message that it was given by hand (code 309)."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str | None = None
    remark: str | None = None
    spent_time_mills: Long = 0


# ---- offsets and statistics ----


class TopicOffset(Body):
    """Of one queue, in a TopicStatsTable."""

    min_offset: Long = 0
    max_offset: Long = 0
    last_update_timestamp: Long = 0


class TopicStatsTable(ByQueue):
    """The offsets of a topic's queues (code 202)."""

    row: ClassVar[Any] = TopicOffset

    offset_table: dict[Any, TopicOffset] = msgspec.field(default_factory=dict)
    """By `MessageQueue`."""
    topic_put_tps: float = 0.0


class OffsetWrapper(Body):
    """Of one queue, in a ConsumeStats."""

    broker_offset: Long = 0
    consumer_offset: Long = 0
    pull_offset: Long = 0
    last_timestamp: Long = 0


class ConsumeStats(ByQueue):
    """How far a group is (code 208)."""

    row: ClassVar[Any] = OffsetWrapper

    offset_table: dict[Any, OffsetWrapper] = msgspec.field(default_factory=dict)
    """By `MessageQueue`."""
    consume_tps: float = 0.0


class ResetOffsetBody(ByQueue):
    """New offsets of queues (codes 220, 222)."""

    row: ClassVar[Any] = Long

    offset_table: dict[Any, Long] = msgspec.field(default_factory=dict)
    """By `MessageQueue`."""


class QueueOffset(Body):
    """An offset of a queue, in a ResetOffsetBodyForC."""

    broker_name: str = ""
    offset: Long = 0
    queue_id: Int = 0
    topic: str = ""


class ResetOffsetBodyForC(Body):
    """The same for C++ clients: a list in place of a map."""

    offset_table: list[QueueOffset] = msgspec.field(default_factory=list)


class GetConsumerStatusBody(Body):
    """The offsets that clients hold: of one client (`message_queue_table`), or by client id."""

    message_queue_table: dict[Any, Long] = msgspec.field(default_factory=dict)
    consumer_table: dict[str, dict[Any, Long]] = msgspec.field(default_factory=dict)

    @classmethod
    def from_json(cls, source: Buffer | str | Mapping[str, Any]) -> GetConsumerStatusBody:
        members = load(cls, source)
        clients = members.get("consumerTable")
        if clients is None:
            clients = {}
        if not isinstance(clients, Mapping):
            raise refused(cls, "the consumerTable is no JSON object")
        return cls(
            by_queue(members.get("messageQueueTable"), Long, cls),
            {client: by_queue(table, Long, cls) for client, table in clients.items()},
        )
