"""Messages that a slave which acts for its master sends to other masters of the cluster (`enableRemoteEscape`).

Who acts writes nothing to its log. What is due meanwhile goes, as a plain send (310), to a queue of its topic at a
master of another name: delayed messages (`delay.py`), messages for a time (`timer_escape.py`), halves
(`transactions.py`). Each of those has one message under way at a time, moves on when it is stored there (SUCCESS and
nothing less, as in the original), and tries again after `RETRY_MS` otherwise: what was stored without an answer comes
twice. Which queue: one after the other of those that can be written, by a name server's route, which counts for
`ROUTE_MS` or until a send fails.

States: off → on, while this slave acts → off. What is under way then ends without being told to anybody: the master
may deliver it once more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perseid.base.errors import RemoteProtocolError, RequestRefused
from perseid.base.machine import Millis
from perseid.broker.kernel.roles import Roles
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.wire import properties as props
from perseid.wire.bodies import MASTER_ID, TopicRouteData
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.namesrv import GetRouteInfoByTopicRequest
from perseid.wire.headers.send import SendMessageRequestV2
from perseid.wire.names import AUTO_CREATE_TOPIC
from perseid.wire.record import Message
from perseid.wire.rpc import Failure
from perseid.wire.topic_flags import PERM_WRITE

if TYPE_CHECKING:
    from perseid.broker.kernel.peers import Peers

DEFAULT_QUEUES = 8
TIMEOUT_MS = 3_000
RETRY_MS = 1_000
"""After a send that failed, or found nowhere to go."""
ROUTE_MS = 30_000
MAX_ROUTES = 10_000
MAX_TARGETS = 4_096
"""Queues of one route that are looked at."""

Then = Callable[[str, Millis], None]
"""Takes why a message is not stored elsewhere; "": it is."""


@dataclass(slots=True)
class _Route:
    """Address and queue id of each queue of one topic that another master has."""

    targets: list[tuple[str, int]] = field(default_factory=list)
    until: Millis = 0
    turn: int = 0


class Escape:
    """The sends of one broker to other masters. `on`: it acts, and is to send."""

    def __init__(self, turn: Turn, settings: Settings, peers: Peers) -> None:
        self._turn = turn
        self._settings = settings
        self._peers = peers
        config = self._settings.current
        self.wanted = config.enable_slave_acting_master and config.enable_remote_escape
        self.on = False
        self.sent = 0
        self._times = 0
        self._routes: dict[str, _Route] = {}

    def switch(self, on: bool) -> None:
        """Begin, or end: what is under way is not told to anybody then."""
        self.on = on and self.wanted
        self._times += 1
        self._routes.clear()

    def send(self, message: Message, properties: dict[str, str], then: Then) -> None:
        """Store a message with these properties in its topic at another master; `then` is told, unless all ends."""
        assert self.on, "who does not act sends nothing away"
        route = self._routes.get(message.topic)
        if route is not None and self._turn.now < route.until:
            self._send_to(route, message, properties, self._only_now(then))
        else:
            self._ask(message, properties, self._only_now(then))

    def _only_now(self, then: Then) -> Then:
        times = self._times

        def told(why: str, now: Millis) -> None:
            if times == self._times:
                self.sent += not why
                then(why, now)

        return told

    def _ask(self, message: Message, properties: dict[str, str], then: Then) -> None:
        times = self._times

        def answered(reply: Command | Failure) -> None:
            if times != self._times:
                return
            if isinstance(reply, Failure) or reply.code not in (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST):
                why = reply.reason if isinstance(reply, Failure) else f"{reply.code} {reply.remark or ''}"
                then(f"the name server does not tell the route of {message.topic}: {why}", self._turn.now)
                return
            try:
                route = self._learn(message.topic, reply, self._turn.now)
            except (RequestRefused, RemoteProtocolError) as error:
                then(f"the name server's route of {message.topic} can't be read: {error}", self._turn.now)
                return
            self._send_to(route, message, properties, then)

        header = GetRouteInfoByTopicRequest(topic=message.topic, accept_standard_json_only=True)
        self._peers.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, answered)

    def _learn(self, topic: str, reply: Command, now: Millis) -> _Route:
        found: list[tuple[str, int]] = []
        if reply.code == ResponseCode.SUCCESS:
            route = TopicRouteData.from_json(reply.body)
            masters = {one.broker_name: one.broker_addrs.get(MASTER_ID, "") for one in route.broker_datas}
            for row in route.queue_datas:
                address = masters.get(row.broker_name, "")
                if address and row.perm & PERM_WRITE and row.broker_name != self._settings.current.broker_name:
                    found += [(address, queue_id) for queue_id in range(min(row.write_queue_nums, MAX_TARGETS))]
        if len(self._routes) >= MAX_ROUTES:
            self._routes.clear()
        made = self._routes[topic] = _Route(found[:MAX_TARGETS], now + ROUTE_MS if found else now)
        return made

    def _send_to(self, route: _Route, message: Message, properties: dict[str, str], then: Then) -> None:
        if not route.targets:
            then(f"no other master has a queue of {message.topic} that can be written", self._turn.now)
            return
        config = self._settings.current
        address, queue_id = route.targets[route.turn % len(route.targets)]
        route.turn += 1
        header = SendMessageRequestV2(
            producer_group=properties.get(props.PGROUP)
            or f"InnerProducerGroup_{config.broker_name}_{config.broker_id}",
            topic=message.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=DEFAULT_QUEUES,
            queue_id=queue_id,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=str(props.encode(properties), "utf-8"),
            reconsume_times=message.reconsume_times,
        )

        def answered(reply: Command | Failure, now: Millis) -> None:
            if isinstance(reply, Command) and reply.code == ResponseCode.SUCCESS:
                then("", now)
                return
            route.until = now
            why = reply.reason if isinstance(reply, Failure) else f"{reply.code} {reply.remark or ''}"
            then(f"{address} did not store a message of {message.topic}: {why}", now)

        body = bytes(message.body)
        self._turn.call(address, RequestCode.SEND_MESSAGE_V2, header, body, TIMEOUT_MS, answered)


def leading_or_escaping(
    roles: Roles, escape: Escape, tick: Callable[[Millis], None]
) -> Callable[[Millis], None]:
    """What is done as time passes by a master, and by a slave that acts and sends away what is due."""

    def done(now: Millis) -> None:
        if not roles.is_slave or escape.on:
            tick(now)

    return done
