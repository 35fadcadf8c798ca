"""What a slave copies of its master besides the log: topics, consumer offsets, delay offsets, groups (broker.md §10.1).

A *round* asks for one after the other: the first as soon as the master is known, then each `CHECK_MS` after the last
has ended (the original's first comes after a minute, and so does each next one). What the master answers takes the
place of what is here, data version and all, so that equal versions mean equal tables. A round that fails ends there,
with one line in the log until one succeeds again.

Consumers commit to a slave while its master is away. Such a commit stays until the master's offset has reached it, so
that a round does not take a group back to where it was before.

The queues of a topic that went stay until it is made again: a master that lost the topic's row in a crash, and not its
records, goes on with their offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from perseid.base.errors import RemoteProtocolError, RequestRefused
from perseid.base.machine import Millis
from perseid.broker.consume.offsets import with_light
from perseid.broker.kernel.generation import Generation
from perseid.broker.kernel.turn import Turn
from perseid.broker.scheduled.timer_metrics import TimerMetricsTable
from perseid.wire import bodies, copied
from perseid.wire.bodies import SubscriptionGroupConfig, TopicConfig
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.base import Header
from perseid.wire.headers.topics import (
    GetAllSubscriptionGroupConfigRequest,
    GetAllSubscriptionGroupConfigResponse,
    GetAllTopicConfigRequest,
    GetAllTopicConfigResponse,
)
from perseid.wire.mapping import TopicQueueMappingDetail
from perseid.wire.rpc import Failure

if TYPE_CHECKING:
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.metadata.groups import SubscriptionGroupTable
    from perseid.broker.metadata.topics import TopicTable
    from perseid.broker.pop.modes import RequestModes
    from perseid.broker.scheduled.delay import DelayService
    from perseid.broker.scheduled.timers import TimerService
    from perseid.broker.static_topics.mappings import TopicMappings

Row = TypeVar("Row")

CHECK_MS = 3_000
TIMEOUT_MS = 5_000
PAGE_ROWS = 2_000
MAX_PAGES = 1_000
"""Of one table: a master that never comes to an end is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPorts:
    """The parts of a broker that `Copies` needs."""

    turn: Turn
    generation: Generation
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsets
    mappings: TopicMappings
    modes: RequestModes
    timers: TimerService
    delay: DelayService


class Copies:
    """The rounds of one slave."""

    def __init__(self, ports: CopyPorts) -> None:
        self._turn = ports.turn
        self._generation = ports.generation
        self._topic_table = ports.topics
        self._group_table = ports.groups
        self._offsets = ports.offsets
        self._mapping_table = ports.mappings
        self._modes = ports.modes
        self._timers = ports.timers
        self._delay = ports.delay
        self.master: str | None = None
        self._due: Millis | None = None
        self._failed = False
        self.rounds = 0
        """That came to their end."""
        self._topics: dict[str, TopicConfig] = {}
        self._mappings: dict[str, TopicQueueMappingDetail] = {}
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        self._forbidden: dict[str, dict[str, int]] = {}

    def follow(self, master: str | None, now: Millis) -> None:
        """The master's address, as it is known now."""
        if master != self.master:
            self.master = master
            self._due = now if master else None
            self.tick(now)

    def next_deadline(self) -> Millis | None:
        return self._due

    def tick(self, now: Millis) -> None:
        """Begin the round that is due."""
        if self._due is not None and self._due <= now:
            self._due = None
            self._topics, self._mappings, self._groups, self._forbidden = {}, {}, {}, {}
            self._ask_topics(0, "", now)

    # ---- asking ----

    def _ask(
        self,
        code: RequestCode,
        header: Header | None,
        now: Millis,
        take: Callable[[Command, Millis], None],
        refused: Callable[[Millis], None] | None = None,
    ) -> None:
        """`refused`: how to go on if the master has no such thing; None: it has to have it."""
        master = self.master
        if master is None:
            return

        def answered(reply: Command | Failure, now: Millis) -> None:
            if master != self.master:
                return
            if isinstance(reply, Failure):
                self._give_up(code, reply.reason, now)
            elif reply.code != ResponseCode.SUCCESS and refused is not None:
                refused(now)
            elif reply.code != ResponseCode.SUCCESS:
                self._give_up(code, f"answer {reply.code} {reply.remark or ''}", now)
            else:
                try:
                    take(reply, now)
                except RequestRefused as error:
                    self._give_up(code, f"its answer can't be read: {error.remark}", now)

        self._turn.call(master, code, header, b"", TIMEOUT_MS, answered)

    def _give_up(self, code: RequestCode, why: str, now: Millis) -> None:
        if not self._failed:
            self._turn.note("warning", f"master {self.master}: {code.name}: {why}; copied again later")
        self._failed = True
        self._due = now + CHECK_MS

    def _ask_topics(self, first: int, version: str, now: Millis) -> None:
        header = GetAllTopicConfigRequest(topic_seq=first, data_version=version, max_topic_num=PAGE_ROWS)
        self._ask(RequestCode.GET_ALL_TOPIC_CONFIG, header, now, self._take_topics)

    def _take_topics(self, reply: Command, now: Millis) -> None:
        body = bodies.TopicConfigSerializeWrapper.from_json(reply.body)
        total = reply.header(GetAllTopicConfigResponse).total_topic_num
        self._mappings.update(body.topic_queue_mapping_detail_map)
        if _page(self._topics, body.topic_config_table, total):
            self._ask_topics(len(self._topics), str(body.data_version.to_json(), "utf-8"), now)
            return
        self._topic_table.adopt(self._topics, body.data_version)
        if self._mapping_table.adopt(self._mappings, body.mapping_data_version):
            self._generation.rise()
        self._ask(RequestCode.GET_ALL_CONSUMER_OFFSET, None, now, self._take_offsets)

    def _take_offsets(self, reply: Command, now: Millis) -> None:
        body = copied.ConsumerOffsets.from_json(reply.body)
        self._offsets.adopt(with_light(body.offset_table, body.lmq_offset_table or {}), body.data_version)
        self._ask(RequestCode.GET_ALL_DELAY_OFFSET, None, now, self._take_delays)

    def _take_delays(self, reply: Command, now: Millis) -> None:
        if len(reply.body):
            body = copied.DelayOffsets.from_json(reply.body)
            self._delay.adopt(body.offset_table, body.data_version)
        if self._timers.enabled:
            self._ask(RequestCode.GET_TIMER_CHECK_POINT, None, now, self._take_timers, self._ask_first_groups)
        else:
            self._ask_groups(0, "", now)

    def _take_timers(self, reply: Command, now: Millis) -> None:
        try:
            self._timers.follow(reply.body, now)
        except RemoteProtocolError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        self._ask(RequestCode.GET_TIMER_METRICS, None, now, self._take_metrics, self._ask_first_groups)

    def _take_metrics(self, reply: Command, now: Millis) -> None:
        self._timers.metrics.adopt(TimerMetricsTable.from_json(reply.body))
        self._ask_first_groups(now)

    def _ask_first_groups(self, now: Millis) -> None:
        self._ask_groups(0, "", now)

    def _ask_groups(self, first: int, version: str, now: Millis) -> None:
        header = GetAllSubscriptionGroupConfigRequest(group_seq=first, data_version=version, max_group_num=PAGE_ROWS)
        self._ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header, now, self._take_groups)

    def _take_groups(self, reply: Command, now: Millis) -> None:
        body = bodies.SubscriptionGroupWrapper.from_json(reply.body)
        total = reply.header(GetAllSubscriptionGroupConfigResponse).total_group_num
        self._forbidden.update(body.forbidden_table)
        if _page(self._groups, body.subscription_group_table, total):
            self._ask_groups(len(self._groups), str(body.data_version.to_json(), "utf-8"), now)
            return
        self._group_table.adopt(self._groups, self._forbidden, body.data_version)
        self._ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, None, now, self._take_modes)

    def _take_modes(self, reply: Command, now: Millis) -> None:
        if len(reply.body):
            self._modes.adopt(bytes(reply.body))
        self.rounds += 1
        if self._failed or self.rounds == 1:
            self._turn.note("info", f"topics, groups and offsets are those of master {self.master}")
        self._failed = False
        self._due = now + CHECK_MS


def _page(rows: dict[str, Row], page: dict[str, Row], total: int | None) -> bool:
    """Add a page to a table; is there more of it? A page without anything new is the last one."""
    before = len(rows)
    rows.update(page)
    return total is not None and before < len(rows) < min(total, PAGE_ROWS * MAX_PAGES)
