"""What mappings of static topics need no more (TopicQueueMappingCleanService): each `INTERVAL_MS`, in the hours in
which old log files go, on masters.

- The first item of a logical queue that is led here, when its messages are all gone, wherever they were.
- The items of a logical queue that was led here, when it has been moved twice since: whoever leads it now, by the
  routes and by its own word, knows all of them.

One topic after the other, one question at a time; an answer that does not come leaves a topic for the next round.
Whatever was looked at has to be so still when something is taken away.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.store.reads import Reads
from perseid.store.retention import hours_of, in_hour
from perseid.wire.bodies import MessageQueue, TopicConfigAndQueueMapping, TopicRouteData, TopicStatsTable
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command
from perseid.wire.mapping import LogicQueueMappingItem, TopicQueueMappingDetail, leaders, mock_broker
from perseid.wire.rpc import Failure

if TYPE_CHECKING:
    from perseid.broker.kernel.peers import Peers
    from perseid.broker.static_topics.mappings import TopicMappings

INTERVAL_MS = 300_000


class Question(NamedTuple):
    """To a broker; `name` "": to a name server."""

    name: str
    code: Code
    ext: dict[str, str | None]


Steps: TypeAlias = Generator[Question, Command, None]


class StaticCleaner:
    """The rounds of one broker."""

    def __init__(
        self, turn: Turn, settings: Settings, reads: Reads, mappings: TopicMappings, roles: Roles, peers: Peers,
    ) -> None:  # fmt: skip
        self._turn = turn
        self._settings = settings
        self._reads = reads
        self._mappings = mappings
        self._roles = roles
        self._peers = peers
        self._due: Millis | None = None
        self._under_way = False

    def start(self, now: Millis) -> None:
        self._due = now + INTERVAL_MS

    def next_deadline(self) -> Millis | None:
        return self._due if self._mappings.rows else None

    def tick(self, now: Millis) -> None:
        """Begin the round that is due."""
        if self._due is None or now < self._due or not self._mappings.rows:
            return
        self._due = now + INTERVAL_MS
        hours = hours_of(self._reads.config.delete_when)
        if not self._under_way and not self._roles.is_slave and in_hour(hours, now):
            self._under_way = True
            self._go_on(self._round(), None)

    def _go_on(self, steps: Steps, answer: Command | Failure | None) -> None:
        try:
            if answer is None:
                asked = next(steps)
            elif isinstance(answer, Failure):
                asked = steps.throw(RequestRefused(ResponseCode.SYSTEM_ERROR, answer.reason))
            elif answer.code != ResponseCode.SUCCESS:
                asked = steps.throw(RequestRefused(answer.code, answer.remark or ""))
            else:
                asked = steps.send(answer)
        except StopIteration:
            self._under_way = False
            return

        def answered(answer: Command | Failure) -> None:
            self._go_on(steps, answer)

        if asked.name:
            self._peers.ask(asked.name, asked.code, {"bname": asked.name, **asked.ext}, answered)
        else:
            self._peers.ask_name_server(asked.code, asked.ext, answered)

    # ---- a round ----

    def _round(self) -> Steps:
        for topic in list(self._mappings.rows):
            try:
                yield from self._first_items(topic)
                yield from self._former_queues(topic)
            except RequestRefused as error:
                self._turn.note("warning", f"the mapping of {topic} is not cleaned now: {error.remark}")

    def _first_items(self, topic: str) -> Steps:
        """Take away first items without messages."""
        row = self._mappings.rows.get(topic)
        led = {} if row is None else {i: items for i, items in row.hosted_queues.items() if row.leads(i)}
        several = {i: items for i, items in led.items() if len(items) > 1 and items[1].decided}
        empty: set[tuple[str, int]] = set()
        for name in sorted({items[0].bname for items in several.values()}):
            mine = [items[0] for items in several.values() if items[0].bname == name]
            if name == self._settings.current.broker_name:
                reads = self._reads
                bounds = [(reads.min_offset(topic, i.queue_id), reads.max_offset(topic, i.queue_id))
                          for i in mine]  # fmt: skip
            else:
                ext: dict[str, str | None] = {"topic": topic, "lo": "false"}
                answer = yield Question(name, Code.GET_TOPIC_STATS_INFO, ext)
                table = TopicStatsTable.from_json(answer.body).offset_table
                found = [table.get(MessageQueue(topic, name, item.queue_id)) for item in mine]
                bounds = [(one.min_offset, one.max_offset) if one is not None else (0, 1) for one in found]
            for item, (low, high) in zip(mine, bounds, strict=True):
                if low == high or high == 0:
                    empty.add((name, item.queue_id))
        rest = {i: items[1:] for i, items in several.items() if (items[0].bname, items[0].queue_id) in empty}
        self._replace(topic, row, rest, "the messages of their first items are gone")

    def _former_queues(self, topic: str) -> Steps:
        """Take away what was moved on by whom it was moved to."""
        row = self._mappings.rows.get(topic)
        if row is None:
            return
        former = {i: items[-1].bname for i, items in row.hosted_queues.items() if not row.leads(i)}
        if not former:
            return
        answer = yield Question("", Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"})
        routed = leaders(TopicRouteData.from_json(answer.body).topic_queue_mapping_by_broker)
        mock, rest = mock_broker(row.scope), dict[int, list[LogicQueueMappingItem]]()
        moved = {i: routed.get((mock, i), "") for i, known in former.items() if routed.get((mock, i), known) != known}
        for name in sorted(set(moved.values())):
            answer = yield Question(name, Code.GET_TOPIC_CONFIG, {"topic": topic, "lo": "true"})
            theirs = TopicConfigAndQueueMapping.from_json(answer.body).mapping_detail
            if theirs is None or (theirs.epoch, theirs.total_queues) != (row.epoch, row.total_queues):
                continue
            rest.update({i: [] for i, leader in moved.items() if leader == name == theirs.bname and theirs.leads(i)})
        self._replace(topic, row, rest, "others lead them, twice removed")

    def _replace(
        self, topic: str, row: TopicQueueMappingDetail | None, rest: dict[int, list[LogicQueueMappingItem]], why: str
    ) -> None:
        if rest and self._mappings.rows.get(topic) is row:
            self._mappings.replace_items(topic, rest, self._turn.now)
            self._turn.note("info", f"the mapping of {topic}: queues {sorted(rest)}: {why}")
