"""Whose a queue is: QUERY_ASSIGNMENT (400), the rebalance that a broker does for its clients.

The broker asks its name server for all queues of the topic, also those of other brokers, at most once each
`ROUTE_MS`, and divides them among the members of the group that it knows. A group that pops shares: with
`popShareQueueNum` below 1, or of nearly as many as there are members, each member pops all queues (queue −1 of each
broker).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perseid.base.errors import RequestRefused
from perseid.base.machine import Millis
from perseid.broker.consume.held_pops import ALL_QUEUES
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.wire.bodies import MessageQueue, TopicRouteData
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.namesrv import GetRouteInfoByTopicRequest
from perseid.wire.rpc import Failure
from perseid.wire.topic_flags import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    from perseid.broker.metadata.topics import TopicTable
    pass

ROUTE_MS = 30_000
"""So long what a name server said counts (`loadBalancePollNameServerInterval`)."""
ROUTE_TIMEOUT_MS = 3_000
MAX_ROUTES = 100_000
MAX_WAITING = 10_000
"""Who waits for the answer of one name server about one topic."""
MAX_QUEUES = 65_536
"""Of one broker in a route."""

Then = Callable[[list[MessageQueue]], None]


@dataclass(slots=True)
class _Route:
    """What is known of one topic."""

    queues: list[MessageQueue] = field(default_factory=list)
    writable: list[str] = field(default_factory=list)
    """Of each queue that can be written to, its broker, in the order of a producer."""
    until: Millis = 0
    waiting: list[Then] = field(default_factory=list)


class Routes:
    """The queues of topics in the whole cluster."""

    def __init__(self, turn: Turn, settings: Settings, topics: TopicTable) -> None:
        self._turn = turn
        self._settings = settings
        self._topics = topics
        self._routes: dict[str, _Route] = {}

    def find(self, topic: str, then: Then) -> None:
        """All queues of a topic that can be read, for `then`: now, or when a name server has answered. RequestRefused
        (2) when too many wait."""
        now = self._turn.now
        servers = [address for address in self._settings.current.namesrv_addr.split(";") if address]
        if not servers:
            then(self._own(topic))
            return
        if len(self._routes) >= MAX_ROUTES and topic not in self._routes:
            self._routes = {name: route for name, route in self._routes.items() if route.waiting}
        route = self._routes.setdefault(topic, _Route())
        if now < route.until:
            then(route.queues)
            return
        if len(route.waiting) >= MAX_WAITING:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, f"{MAX_WAITING} clients wait for the route of {topic}")
        route.waiting.append(then)
        if len(route.waiting) == 1:
            self._ask(topic, route, servers)

    def writable(self, topic: str) -> list[str]:
        """Of each queue that can be written to, its broker, in the order of a producer; [] while nothing is known."""
        route = self._routes.get(topic)
        return [] if route is None else route.writable

    def _ask(self, topic: str, route: _Route, servers: list[str]) -> None:
        """Ask one name server after the other."""

        def answered(reply: Command | Failure, now: Millis) -> None:
            if isinstance(reply, Failure) and len(servers) > 1:
                self._ask(topic, route, servers[1:])
                return
            self._learn(topic, route, reply, now)

        header = GetRouteInfoByTopicRequest(topic=topic, accept_standard_json_only=True)
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        self._turn.call(servers[0], code, header, b"", ROUTE_TIMEOUT_MS, answered)

    def _learn(self, topic: str, route: _Route, reply: Command | Failure, now: Millis) -> None:
        if not isinstance(reply, Failure) and reply.code == ResponseCode.SUCCESS:
            try:
                data = TopicRouteData.from_json(reply.body)
                route.queues, route.writable = _readable(topic, data), _writable(data)
                route.until = now + ROUTE_MS
            except RequestRefused as refused:
                self._turn.note("warning", f"the route of {topic} can't be read: {refused.remark}")
        elif not route.queues:
            route.queues = self._own(topic)
        waiting, route.waiting = route.waiting, []
        for then in waiting:
            then(route.queues)

    def _own(self, topic: str) -> list[MessageQueue]:
        row = self._topics.get(topic)
        count = row.read_queue_nums if row is not None and row.perm & PERM_READ else 0
        return [MessageQueue(topic, self._settings.current.broker_name, queue_id) for queue_id in range(count)]


def _readable(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    return [
        MessageQueue(topic, row.broker_name, queue_id)
        for row in route.queue_datas
        if row.perm & PERM_READ
        for queue_id in range(min(row.read_queue_nums, MAX_QUEUES))
    ]


def _writable(route: TopicRouteData) -> list[str]:
    masters = {row.broker_name for row in route.broker_datas if 0 in row.broker_addrs}
    return [
        row.broker_name
        for row in sorted(route.queue_datas, key=lambda row: row.broker_name)
        if row.perm & PERM_WRITE and row.broker_name in masters
        for _ in range(min(row.write_queue_nums, MAX_QUEUES))
    ]


# ---- dividing ----


def averagely(client: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """AVG: neighbours go to one member, the first ones have one more when it can't be even."""
    each, more = divmod(len(queues), len(members))
    index = members.index(client)
    begin = index * each + min(index, more)
    return list(queues[begin : begin + each + (index < more)])


def by_circle(client: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: one after the other."""
    return list(queues[members.index(client) :: len(members)])


STRATEGIES = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}


def for_pulling(
    strategy: str, client: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> list[MessageQueue]:
    """The queues of one member. Both sequences are sorted."""
    return STRATEGIES[strategy](client, queues, members) if client in members else []


def for_popping(
    strategy: str, client: str, queues: Sequence[MessageQueue], members: Sequence[str], share: int
) -> list[MessageQueue]:
    """The queues that a member pops, some of them together with others: its own, and those of the `share` members
    behind it."""
    if share <= 0 or share >= len(members) - 1:
        return sorted({MessageQueue(queue.topic, queue.broker_name, ALL_QUEUES) for queue in queues})
    if client not in members:
        return []
    index = members.index(client)
    if len(members) > len(queues):
        return [queues[index % len(queues)]] if queues else []
    found: list[MessageQueue] = []
    for number in range(index, index + share + 1):
        found += STRATEGIES[strategy](members[number % len(members)], queues, members)
    return found
