"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361), with long polling: broker.md §6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.broker.consume import filter as subscription_filter
from perseid.broker.consume.held_pulls import Arrival
from perseid.broker.consume.sql92 import SqlError
from perseid.broker.kernel.asks import SUB, each, of_group, of_topic
from perseid.broker.kernel.ports import Counts
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import OnSlave, Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.metadata.topics import FAQ
from perseid.store.results import ReadStatus
from perseid.store.store import MessageStore
from perseid.wire.bodies import SubscriptionData, SubscriptionGroupConfig, TopicConfig
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.hashing import tag_code
from perseid.wire.headers.pull import PullMessageRequest, PullMessageResponse
from perseid.wire.lite import queue_name
from perseid.wire.names import SCHEDULE_TOPIC
from perseid.wire.topic_flags import PERM_READ

if TYPE_CHECKING:
    from perseid.broker.clients.members import ConsumerTable
    from perseid.broker.consume.fetches import Fetches
    from perseid.broker.consume.held_pulls import Holds
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.broker.metadata.topics import TopicTable

COMMIT_OFFSET = 1
SUSPEND = 2
SUBSCRIPTION = 4

MAX_MESSAGES = 1024
"""Of one answer, whatever a client asks for; the store's own limits are lower."""
MAX_BYTES = 8 * 1024 * 1024
"""Of one answer, whatever a client asks for; a single message may be longer."""
MAX_SUSPEND_MS = 600_000
"""A pull waits no longer, whatever a client asks for."""
FOREVER = 1 << 62
COMPENSATE_MS = 60_000
"""How often a pull renews what is known of its group's subscription (it is forgotten after ten times that)."""

CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
"""What a read that came to this is answered with."""
_EMPTY_QUEUE = (ReadStatus.NO_MESSAGE_IN_QUEUE, ReadStatus.NO_MATCHED_LOGIC_QUEUE)


class Readers(Protocol):
    """Where readers should ask."""

    @property
    def sends_readers_back(self) -> bool:
        """Should those who find nothing here ask the master?"""

    def suggest(self, group: SubscriptionGroupConfig, physical_offset: int) -> int:
        """Which broker id a reader that is at an offset of the log should ask next."""


@dataclass(slots=True, kw_only=True)
class PullRequests:
    """Pulls."""

    turn: Turn
    settings: Settings
    store: MessageStore
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsets
    consumers: ConsumerTable
    holds: Holds
    fetches: Fetches
    stats: Counts
    replicas: Readers

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        return (
            Route(
                Code.PULL_MESSAGE,
                PullMessageRequest,
                self.pull_message,
                on_slave=OnSlave.READ,
                while_isolated=False,
                on_vip=False,
                promises=False,
                keeps_checks=True,
                logical=True,
                asks=each(of_topic(SUB), of_group(SUB)),
            ),
            Route(
                Code.LITE_PULL_MESSAGE,
                PullMessageRequest,
                self.pull_message,
                on_slave=OnSlave.READ,
                while_isolated=False,
                on_vip=False,
                promises=False,
                keeps_checks=True,
                logical=True,
                asks=each(of_topic(SUB), of_group(SUB)),
            ),
        )

    def pull_message(self, request: Request) -> Reply | None:
        """The messages of a queue from an offset on; None while a pull waits for one to arrive."""
        header: PullMessageRequest = request.header
        group, topic, wanted, _ = self.admit(request)
        if request.may_hold and request.may_fetch and header.sys_flag & COMMIT_OFFSET and header.commit_offset >= 0:
            self.offsets.commit(
                header.topic,
                header.consumer_group,
                header.queue_id,
                header.commit_offset,
                self.turn.now,
                self.settings.current.consumer_offset_update_version_step,
            )
        pending = self.offsets.take_reset(header.topic, header.consumer_group, header.queue_id)
        if pending is not None:
            return Reply(
                ResponseCode.PULL_OFFSET_MOVED, self._answer(header, group, topic, pending), remark="OFFSET_RESET"
            )
        offset = header.queue_offset
        most, size = limits(header)
        if request.may_fetch:
            each = wanted.expression is not None
            parts = self.store.reads.cold(header.topic, header.queue_id, offset, most, wanted.codes, each)
            if parts:
                self.fetches.wait(request, parts)
                return None
        work = self.holds.work
        wants_record = wanted.wants_record(work, work.floor())
        found = self.store.reads.read(header.topic, header.queue_id, offset, most, size, wanted.wants_tag, wants_record)
        code = CODES[found.status]
        if found.status in _EMPTY_QUEUE and offset == 0:
            code = ResponseCode.PULL_NOT_FOUND
        if code != ResponseCode.SUCCESS and self.replicas.sends_readers_back:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        if code == ResponseCode.PULL_NOT_FOUND and request.may_hold and self._hold(request, header, wanted):
            return None
        if code == ResponseCode.SUCCESS:
            self.stats.got(header.consumer_group, header.topic, found.count)
            self.offsets.pulled(header.topic, header.consumer_group, header.queue_id, found.next_offset)
        else:
            self.stats.missed()
        answer = PullMessageResponse(
            suggest_which_broker_id=self.replicas.suggest(group, found.last_physical_offset),
            next_begin_offset=found.next_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            topic_sys_flag=topic.topic_sys_flag,
            group_sys_flag=group.group_sys_flag,
        )
        return Reply(code, answer, remark=found.status.name, buffers=found.buffers)

    def admit(self, request: Request) -> Admitted:
        """May this pull be answered, and with what? RequestRefused, in the order of broker.md §6.1, when it may not."""
        group, topic = self._check(request, request.header)
        if request.header.lite_topic:
            name = queue_name(request.header.topic, request.header.lite_topic)
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER, f"a lite topic is pulled by the name of its queue: {name:.300}"
            )
        wanted, until = self._wanted(request.header)
        return Admitted(group, topic, wanted, until)

    def _check(self, request: Request, header: PullMessageRequest) -> tuple[SubscriptionGroupConfig, TopicConfig]:
        """The rules of broker.md §6.1 up to the queue."""
        group, topic = self.check_reader(request, header)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}] consumer:[{request.conn.peer}]",
            )
        return group, topic

    def check_reader(self, request: Request, header: PullMessageRequest) -> tuple[SubscriptionGroupConfig, TopicConfig]:
        """May the group read the topic here? A group that is not known is made, if it may be."""
        config = self.settings.current
        if not config.broker_permission & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] pulling message is forbidden"
            )
        if request.command.code == Code.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden"
            )
        group = self.groups.find(header.consumer_group, self.settings.current, self.turn.now)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}"
            )
        topic = self.topics.get(header.topic)
        if topic is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!{FAQ}"
            )
        if not topic.perm & PERM_READ:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
        return group, topic

    def _wanted(self, header: PullMessageRequest) -> tuple[subscription_filter.Filter, Millis]:
        """The filter of this pull's own subscription, or of the one that its group's heartbeats told."""
        expression, kind, named = header.subscription, header.expression_type, header.sys_flag & SUBSCRIPTION
        if not named:
            known = self.consumers.subscription_for_pull(self.groups, header)
            expression, kind = known.sub_string, known.expression_type
        try:
            sql = self.settings.current.enable_property_filter
            wanted = subscription_filter.of(kind, expression, self.holds.work, sql=sql)
        except SqlError as error:
            code = ResponseCode.SUBSCRIPTION_PARSE_FAILED if named else ResponseCode.FILTER_DATA_NOT_EXIST
            raise RequestRefused(code, f"parse the consumer's subscription failed: {error}") from error
        if (
            wanted.expression is not None and header.topic == SCHEDULE_TOPIC
        ):  # whose units tell times in the tags' place
            wanted = subscription_filter.Filter(expression=wanted.expression)
        if not named:
            return wanted, FOREVER
        return wanted, self._compensate(header, expression or subscription_filter.ALL, kind)

    def _compensate(self, header: PullMessageRequest, expression: str, kind: str | None) -> Millis:
        """Remember what a group pulls that sends no heartbeats, for those who ask; when that has to be done again."""
        consumers, name, topic = self.consumers, header.consumer_group, header.topic
        group = consumers.group(name)
        if group is not None and topic in group.subscriptions:
            return FOREVER
        known = consumers.subscription(name, topic)
        if known is not None and known.sub_string == expression and self.turn.now - known.sub_version < COMPENSATE_MS:
            return known.sub_version + COMPENSATE_MS
        plain = expression == subscription_filter.ALL or not subscription_filter.is_tag_type(kind)
        tags = [] if plain else subscription_filter.tags(expression)
        subscription = SubscriptionData(
            topic=topic,
            sub_string=expression,
            tags_set=tags,
            code_set=sorted({tag_code(tag) for tag in tags}),
            sub_version=self.turn.now,
            expression_type=kind or subscription_filter.TAG,
        )
        consumers.compensate(name, subscription)
        return self.turn.now + COMPENSATE_MS

    def _hold(self, request: Request, header: PullMessageRequest, wanted: subscription_filter.Filter) -> bool:
        """Let a pull wait for a message, if it wants to and may."""
        if not header.sys_flag & SUSPEND or header.suspend_timeout_millis <= 0:
            return False
        wait_ms = min(header.suspend_timeout_millis, MAX_SUSPEND_MS)
        if not self.settings.current.long_polling_enable:
            wait_ms = self.settings.current.short_polling_time_mills
        request.command.keep()
        return self.holds.hold(
            request, (header.topic, header.queue_id), header.queue_offset, self._arrival(header, wanted),
            self.turn.now + wait_ms,
        )  # fmt: skip

    def _arrival(self, header: PullMessageRequest, wanted: subscription_filter.Filter) -> Arrival | None:
        """What a held pull asks of a message that arrives; None: nothing."""
        wants_tag, store = wanted.wants_tag, self.store
        wants_record = wanted.wants_record(self.holds.work, 0)
        if wants_record is None:
            return None if wants_tag is None else lambda tag_code, _: wants_tag(tag_code)

        def arrival(_: int, offset: int) -> bool:
            record = store.reads.record(header.topic, header.queue_id, offset)
            return record is None or wants_record(record) is not False  # no work left: it reads again, and sees

        return arrival

    def _answer(
        self, header: PullMessageRequest, group: SubscriptionGroupConfig, topic: TopicConfig, next_offset: int
    ) -> PullMessageResponse:
        store = self.store
        return PullMessageResponse(
            suggest_which_broker_id=0,
            next_begin_offset=next_offset,
            min_offset=store.reads.min_offset(header.topic, header.queue_id),
            max_offset=store.reads.max_offset(header.topic, header.queue_id),
            topic_sys_flag=topic.topic_sys_flag,
            group_sys_flag=group.group_sys_flag,
        )


class Admitted(NamedTuple):
    """What the checks of a pull came to."""

    group: SubscriptionGroupConfig
    topic: TopicConfig
    wanted: subscription_filter.Filter
    until: Millis
    """From then on the group's subscription has to be renewed, if nothing else changes."""


def limits(header: PullMessageRequest) -> tuple[int, int]:
    """Messages and bytes of the answer, at most; the store has limits of its own."""
    size = min(header.max_msg_bytes, MAX_BYTES) if header.max_msg_bytes and header.max_msg_bytes > 0 else MAX_BYTES
    return max(1, min(header.max_msg_nums, MAX_MESSAGES)), size
