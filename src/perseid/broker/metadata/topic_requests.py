"""Topics: create and change (17, 18; static ones: 513), delete (215), read (21, 351), who consumes them (300), the
broker's own (305). Source: broker.md §4.3, remoting.md §15 and §16."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.broker.kernel.asks import CREATE, DELETE, GET, a_topic, in_body, of_cluster, of_topic
from perseid.broker.kernel.ports import Counts, TopicStore
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import OnSlave, Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.metadata.lite_attributes import is_parent
from perseid.broker.metadata.topics import FILTER_TYPES, parse_attributes, topic_name_fault
from perseid.wire import bodies
from perseid.wire.bodies import DataVersion, TopicConfig
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers import topics as headers
from perseid.wire.mapping import TopicQueueMappingDetail
from perseid.wire.pop import retry_topic_v1, retry_topic_v2

if TYPE_CHECKING:
    from perseid.broker.kernel.saves import Saves
    from perseid.broker.metadata.topics import TopicTable

SPLIT_METADATA_SIZE = 2000
"""Rows of one answer to a peer that asks for them in pages (splitMetadataSize)."""

MIXED = "MIXED"


class Offsets(Protocol):
    """How far groups are in topics."""

    path: str

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have offsets in a topic."""

    def forget_topic(self, topic: str) -> None:
        """The topic is deleted."""


class Subscribers(Protocol):
    """Living groups."""

    def groups_of(self, topic: str) -> set[str]:
        """Those that subscribe to a topic."""


class LiteTopics(Protocol):
    """The lite topics of parents."""

    def names(self, parent: str | None = None) -> list[str]:
        """Of one parent, or all."""

    def remove(self, names: Iterable[str]) -> None:
        """They go, with their parent."""


class Waiting(Protocol):
    """How many messages wait for their time, by topic."""

    def forget(self, topic: str) -> None:
        """The topic is deleted."""


class Mappings(Protocol):
    """What is known of static topics."""

    rows: dict[str, TopicQueueMappingDetail]
    version: DataVersion

    def merged(self, new: TopicQueueMappingDetail, *, force: bool) -> TopicQueueMappingDetail:
        """The row that there is to be. RequestRefused: it contradicts what there is."""

    def put(self, row: TopicQueueMappingDetail, now: Millis) -> None:
        """Take the row up."""

    def delete(self, topic: str, now: Millis) -> None:
        """The topic is deleted."""


TOPICS = in_body(
    bodies.CreateTopicListRequestBody,
    lambda body: (a_topic(wanted.topic_name, CREATE) for wanted in body.topic_config_list),
)
"""Asked for by code 18."""


@dataclass(slots=True, kw_only=True)
class TopicRequests:
    """Requests about topics."""

    turn: Turn
    settings: Settings
    store: TopicStore
    topics: TopicTable
    offsets: Offsets
    consumers: Subscribers
    stats: Counts
    mappings: Mappings
    lite: LiteTopics
    waiting: Waiting
    saves: Saves

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.UPDATE_AND_CREATE_TOPIC,
                headers.CreateTopicRequest,
                self.update_and_create_topic,
                on_slave=OnSlave.MASTERS_TABLE,
                asks=of_topic(CREATE),
            ),
            Route(
                Code.UPDATE_AND_CREATE_STATIC_TOPIC,
                headers.CreateTopicRequest,
                self.update_and_create_static_topic,
                on_slave=OnSlave.MASTERS_TABLE,
                asks=of_topic(CREATE),
            ),
            Route(
                Code.UPDATE_AND_CREATE_TOPIC_LIST,
                None,
                self.update_and_create_topic_list,
                on_slave=OnSlave.MASTERS_TABLE,
                asks=TOPICS,
            ),
            Route(
                Code.DELETE_TOPIC_IN_BROKER,
                headers.DeleteTopicRequest,
                self.delete_topic,
                on_slave=OnSlave.MASTERS_TABLE,
                asks=of_topic(DELETE),
            ),
            Route(Code.GET_TOPIC_CONFIG, headers.GetTopicConfigRequest, self.get_topic_config, asks=of_topic(GET)),
            Route(
                Code.GET_ALL_TOPIC_CONFIG,
                headers.GetAllTopicConfigRequest,
                self.get_all_topic_config,
                asks=of_cluster(GET),
            ),
            Route(
                Code.QUERY_TOPIC_CONSUME_BY_WHO,
                headers.QueryTopicConsumeByWhoRequest,
                self.query_topic_consume_by_who,
                asks=of_topic(GET),
            ),
            Route(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, None, self.get_system_topics, asks=of_cluster(GET)),
        )

    def update_and_create_topic(self, request: Request) -> Reply:
        """Create a topic or change it. What is so already succeeds and changes nothing."""
        self._update(_row_of(request.header))
        return Reply()

    def update_and_create_topic_list(self, request: Request) -> Reply:
        """The same for several topics: one that can't be is refused, and those before it are done."""
        for wanted in bodies.CreateTopicListRequestBody.from_json(request.body).topic_config_list:
            self._update(wanted)
        return Reply()

    def update_and_create_static_topic(self, request: Request) -> Reply:
        """Create a static topic or change it: its row here, and the part of its mapping that is this broker's.

        All or nothing, where the original has changed the row when it refuses the mapping.
        """
        header: headers.CreateTopicRequest = request.header
        topic, now = header.topic, self.turn.now
        self._check_name(topic)
        detail = TopicQueueMappingDetail.from_json(request.body)
        if detail.topic != topic:
            why = f"the mapping is that of topic[{detail.topic}], the request is for topic[{topic}]"
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, why)
        row = self.mappings.merged(detail, force=bool(header.force))
        before = self.topics.rows.get(topic)
        self._update(_row_of(header))
        if topic not in self.topics.rows:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"topic[{topic}] is a light queue's: it has one queue")
        if self.topics.rows[topic] is before:
            self.topics.touch(topic, now)
        self.mappings.put(row, now)
        return Reply()

    def _check_name(self, topic: str) -> None:
        fault = topic_name_fault(topic)
        if fault is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
        self._not_system(topic)

    def _update(self, wanted: TopicConfig) -> None:
        self._check_name(wanted.topic_name)
        if wanted.topic_filter_type not in FILTER_TYPES:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"topicFilterType = [{wanted.topic_filter_type}] is none of {', '.join(sorted(FILTER_TYPES))}",
            )
        if wanted.attributes.get("+message.type") == MIXED and not self.settings.current.enable_mixed_message_type:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        self.topics.update(wanted, self.turn.now)

    def _not_system(self, topic: str) -> None:
        if self.topics.is_system(topic):
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic.")

    def delete_topic(self, request: Request) -> Reply:
        """Delete a topic: its row, messages and offsets, and its POP retry topics. Unknown topics succeed too.

        The offsets are saved first: if they outlived the topic and it came again, its groups would begin where the
        old one ended, and skip what is new.
        """
        header: headers.DeleteTopicRequest = request.header
        topic = header.topic
        if not topic or topic.isspace():
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        self._not_system(topic)
        if is_parent(self.topics.get(topic)):
            self.lite.remove(self.lite.names(topic))
        doomed = [topic]
        for group in sorted(self.offsets.groups_of(topic)):
            pop_topics = (retry_topic_v1(topic, group), retry_topic_v2(topic, group))
            doomed += [name for name in pop_topics if name in self.topics]
        for name in doomed:
            self.offsets.forget_topic(name)
        self.saves.hurry(self.offsets.path)
        for name in doomed:
            self.topics.delete(name, self.turn.now)
            self.mappings.delete(name, self.turn.now)
            for effect in self.store.delete_topic(name):
                self.turn.emit(effect)
            self.stats.forget_topic(name)
            self.waiting.forget(name)
        return Reply()

    def get_topic_config(self, request: Request) -> Reply:
        """One topic's row, and what is known of it as a static topic for those who ask for that (`lo`)."""
        header: headers.GetTopicConfigRequest = request.header
        row = self.topics.get(header.topic)
        if row is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {header.topic}")
        detail = self.mappings.rows.get(header.topic) if header.lo else None
        if detail is None:
            return Reply(body=row.to_json())
        return Reply(
            body=bodies.TopicConfigAndQueueMapping(**msgspec.structs.asdict(row), mapping_detail=detail).to_json()
        )

    def get_all_topic_config(self, request: Request) -> Reply:
        """All topics; a part of them for a peer that asks for pages. A changed data version starts it over."""
        header: headers.GetAllTopicConfigRequest = request.header
        table = self.topics
        rows = table.rows
        if not (header.topic_seq is None and header.data_version is None and header.max_topic_num is None):
            start, count = page_bounds(header.topic_seq, header.max_topic_num, header.data_version, table.version)
            rows = table.page(start, count)
        wrapper = bodies.TopicConfigSerializeWrapper(
            data_version=table.version,
            topic_config_table=rows,
            topic_queue_mapping_detail_map={name: row for name, row in self.mappings.rows.items() if name in rows},
            mapping_data_version=self.mappings.version,
        )
        return Reply(header=headers.GetAllTopicConfigResponse(total_topic_num=len(table)), body=wrapper.to_json())

    def query_topic_consume_by_who(self, request: Request) -> Reply:
        """The groups that consume a topic: by their heartbeats, or by offsets that they committed."""
        header: headers.QueryTopicConsumeByWhoRequest = request.header
        groups = self.consumers.groups_of(header.topic) | self.offsets.groups_of(header.topic)
        return Reply(body=bodies.GroupList(group_list=sorted(groups)).to_json())

    def get_system_topics(self, request: Request) -> Reply:
        """The names of the broker's own topics."""
        return Reply(body=bodies.TopicList(topic_list=self.topics.system_topics()).to_json())


def _row_of(header: headers.CreateTopicRequest) -> TopicConfig:
    """The topic that a request describes; its attributes are changes."""
    return TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=header.topic_filter_type,
        topic_sys_flag=header.topic_sys_flag or 0,
        order=header.order,
        attributes=parse_attributes(header.attributes),
    )


def page_bounds(
    start: int | None, count: int | None, asked_version: str | None, version: DataVersion
) -> tuple[int, int]:
    """Where a page begins and how many rows it has at most; from the beginning when the version is another."""
    most = SPLIT_METADATA_SIZE if count is None else max(0, min(count, SPLIT_METADATA_SIZE))
    try:
        same = bool(asked_version) and DataVersion.from_json(asked_version or "") == version
    except RequestRefused:
        same = False
    return (max(0, start or 0) if same else 0), most
