"""Positions in queues: what groups have read (14, 15), what queues hold (29 to 32), and what operators change
(222, 308, 314) or slaves copy (43). Source: broker.md §6.6 and §9, remoting.md §12."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from perseid.base.errors import RequestRefused
from perseid.broker.kernel.asks import GET, SUB, UPDATE, each, of_cluster, of_group, of_topic
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.store.reads import Reads
from perseid.wire import bodies, fastjson, lite
from perseid.wire.bodies import MessageQueue
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers import admin as admin_headers
from perseid.wire.headers import offsets as headers
from perseid.wire.headers.offsets import OffsetResponse, TimestampResponse

if TYPE_CHECKING:
    from perseid.broker.clients.members import ConsumerTable
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.broker.metadata.topics import TopicTable

UPPER = "UPPER"


class Slaves(Protocol):
    """Slaves that take tables over."""

    @property
    def acts_for_others(self) -> bool:
        """May what was committed here be told apart from what was copied?"""

    def told_durably(self, request: Request, reply: Reply) -> Reply | None:
        """The answer with a table: now, or (None) when the log is as durable as the table may claim."""


@dataclass(slots=True, kw_only=True)
class OffsetRequests:
    """Requests about offsets of queues and groups."""

    turn: Turn
    settings: Settings
    reads: Reads
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsets
    consumers: ConsumerTable
    replicas: Slaves
    reset_by_clients: Callable[[Request], Reply]

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.QUERY_CONSUMER_OFFSET,
                headers.QueryConsumerOffsetRequest,
                self.query_consumer_offset,
                while_isolated=False,
                keeps_checks=True,
                logical=True,
                asks=each(of_topic(SUB, GET), of_group(SUB, GET)),
            ),
            Route(
                Code.UPDATE_CONSUMER_OFFSET,
                headers.UpdateConsumerOffsetRequest,
                self.update_consumer_offset,
                while_isolated=False,
                keeps_checks=True,
                logical=True,
                asks=each(of_topic(SUB, UPDATE), of_group(SUB, UPDATE)),
            ),
            Route(
                Code.SEARCH_OFFSET_BY_TIMESTAMP,
                headers.SearchOffsetByTimestampRequest,
                self.search_offset,
                logical=True,
                asks=of_topic(GET),
            ),
            Route(
                Code.GET_MAX_OFFSET, headers.GetMaxOffsetRequest, self.get_max_offset, logical=True, asks=of_topic(GET)
            ),
            Route(
                Code.GET_MIN_OFFSET, headers.GetMinOffsetRequest, self.get_min_offset, logical=True, asks=of_topic(GET)
            ),
            Route(
                Code.GET_EARLIEST_MSG_STORETIME,
                headers.GetEarliestMsgStoretimeRequest,
                self.get_earliest_store_time,
                logical=True,
                asks=of_topic(GET),
            ),
            Route(
                Code.INVOKE_BROKER_TO_RESET_OFFSET,
                admin_headers.ResetOffsetRequest,
                self.reset_offset,
                asks=each(of_group(UPDATE, of="group"), of_topic(UPDATE)),
            ),
            Route(
                Code.QUERY_CORRECTION_OFFSET,
                headers.QueryCorrectionOffsetRequest,
                self.query_correction_offset,
                asks=each(of_group(GET, of="compare_group"), of_topic(GET)),
            ),
            Route(
                Code.CLONE_GROUP_OFFSET,
                admin_headers.CloneGroupOffsetRequest,
                self.clone_group_offset,
                asks=each(of_group(UPDATE, of="dest_group"), of_topic(UPDATE)),
            ),
            Route(
                Code.GET_ALL_CONSUMER_OFFSET,
                None,
                self.get_all_consumer_offset,
                while_isolated=False,
                asks=of_cluster(GET),
            ),
        )

    # ---- a group's position ----

    def query_consumer_offset(self, request: Request) -> Reply:
        """Where a group goes on in a queue.

        A group that is new there begins at 0 while the queue's first message is there and still in memory, whatever
        the group would otherwise begin with: a young topic is read from its start.
        """
        header: headers.QueryConsumerOffsetRequest = request.header
        offset = self.offsets.query(header.topic, header.consumer_group, header.queue_id)
        if offset is None:
            if header.set_zero_if_not_found is False:
                raise _not_found("set to zero was not wanted")
            if not self._young(header.topic, header.queue_id):
                raise _not_found("its first message is gone, or no longer in memory")
            offset = 0
        return Reply(header=OffsetResponse(offset=offset))

    def _young(self, topic: str, queue_id: int) -> bool:
        reads = self.reads
        if reads.min_offset(topic, queue_id) > 0:
            return False
        first = reads.unit(topic, queue_id, 0)
        return first is not None and reads.in_memory(first.physical_offset)

    def update_consumer_offset(self, request: Request) -> Reply:
        """A group has read up to an offset. A pending reset is stronger: then nothing changes, without an error."""
        header: headers.UpdateConsumerOffsetRequest = request.header
        if header.consumer_group not in self.groups:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.consumer_group} not exist!")
        if header.topic not in self.topics:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        if header.queue_id < 0 or header.commit_offset < 0:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId {header.queue_id} or commitOffset {header.commit_offset} is negative, "
                f"topic is {header.topic}",
            )
        committed = self.offsets.commit(
            header.topic,
            header.consumer_group,
            header.queue_id,
            header.commit_offset,
            self.turn.now,
            self.settings.current.consumer_offset_update_version_step,
        )
        return Reply(remark=None if committed else "Offset has been previously reset")

    # ---- a queue's bounds ----

    def search_offset(self, request: Request) -> Reply:
        """The offset of the first message stored at or after a time, or (UPPER) of the last one at or before it."""
        header: headers.SearchOffsetByTimestampRequest = request.header
        upper = (header.boundary_type or "").upper() == UPPER
        topic = lite.queue_name(header.topic, header.lite_topic) if header.lite_topic else header.topic
        offset = self.reads.offset_by_time(topic, header.queue_id, header.timestamp, upper)
        return Reply(header=OffsetResponse(offset=offset))

    def get_max_offset(self, request: Request) -> Reply:
        """The offset that the next message of a queue will have."""
        header: headers.GetMaxOffsetRequest = request.header
        return Reply(header=OffsetResponse(offset=self.reads.max_offset(header.topic, header.queue_id)))

    def get_min_offset(self, request: Request) -> Reply:
        """The offset of the oldest message of a queue that is still there."""
        header: headers.GetMinOffsetRequest = request.header
        return Reply(header=OffsetResponse(offset=self.reads.min_offset(header.topic, header.queue_id)))

    def get_earliest_store_time(self, request: Request) -> Reply:
        """When the oldest message of a queue was stored; -1: there is none."""
        header: headers.GetEarliestMsgStoretimeRequest = request.header
        oldest = self.reads.min_offset(header.topic, header.queue_id)
        timestamp = self.reads.store_time(header.topic, header.queue_id, oldest)
        return Reply(header=TimestampResponse(timestamp=timestamp))

    # ---- operators ----

    def reset_offset(self, request: Request) -> Reply:
        """Let a group go on elsewhere: at an offset of one queue, or of all queues by time (negative: at the end).

        The broker keeps the new offsets until the group's next pull takes them up.
        """
        header: headers.ResetOffsetRequest = request.header
        if not self.settings.current.use_server_side_reset_offset:
            return self.reset_by_clients(request)
        topic = self.topics.get(header.topic)
        if topic is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if header.group not in self.groups:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
        wanted: dict[int, int] = {}
        if header.queue_id < 0:
            for queue_id in range(topic.read_queue_nums):
                wanted[queue_id] = self._offset_at(header.topic, queue_id, header.timestamp)
        elif header.offset is None or header.offset == -1:
            wanted[header.queue_id] = self._offset_at(header.topic, header.queue_id, header.timestamp)
        else:
            low = self.reads.min_offset(header.topic, header.queue_id)
            high = self.reads.max_offset(header.topic, header.queue_id)
            if not max(low, 0) <= header.offset <= high + 1:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"offset {header.offset} is not within {low} and {high} of {header.topic} queue {header.queue_id}",
                )
            wanted[header.queue_id] = header.offset
        if not wanted:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"topic {header.topic} has no queues to reset")
        for queue_id, offset in wanted.items():
            self.offsets.reset(header.topic, header.group, queue_id, offset)
        name = self.settings.current.broker_name
        table = {MessageQueue(header.topic, name, queue_id): offset for queue_id, offset in wanted.items()}
        return Reply(body=bodies.ResetOffsetBody(offset_table=table).to_json())

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return self.reads.max_offset(topic, queue_id)
        return self.reads.offset_by_time(topic, queue_id, timestamp)

    def query_correction_offset(self, request: Request) -> Reply:
        """Per queue the lowest offset of all groups but some; the greatest number where one group is behind it."""
        header: headers.QueryCorrectionOffsetRequest = request.header
        skip = frozenset(name for name in (header.filter_groups or "").split(",") if name)
        lowest = self.offsets.min_per_queue(
            header.topic, skip, lambda queue_id: self.reads.min_offset(header.topic, queue_id)
        )
        for queue_id, offset in self.offsets.queues_of(header.topic, header.compare_group).items():
            if lowest.get(queue_id, 0) > offset:
                lowest[queue_id] = (1 << 63) - 1
        return Reply(body=fastjson.dumps({"correctionOffsets": lowest}))

    def get_all_consumer_offset(self, request: Request) -> Reply | None:
        """All committed offsets, for a slave; from one that may act, what was committed to it alone, too."""
        ahead = self.replicas.acts_for_others
        return self.replicas.told_durably(request, Reply(body=self.offsets.for_slaves(ahead=ahead)))

    def clone_group_offset(self, request: Request) -> Reply:
        """Let a group go on where another one is, in one topic or in all that it reads."""
        header: headers.CloneGroupOffsetRequest = request.header
        source = header.src_group
        topics = {header.topic} if header.topic else self.offsets.topics_of(source)
        for topic in topics:
            if topic not in self.topics:
                continue
            group = self.consumers.group(source)
            if not header.offline and group is not None and group.subscriptions and topic not in group.subscriptions:
                continue
            self.offsets.clone(topic, source, header.dest_group)
        return Reply()


def _not_found(why: str) -> RequestRefused:
    return RequestRefused(
        ResponseCode.QUERY_NOT_FOUND, f"the group has no offset in this queue, and does not begin at 0: {why}"
    )
