"""Where topics live: the name servers, and what they said last.

A route is asked for when a topic is first used, again every 30 s, and when a send or a pull meets a broker
that is gone (`refresh`, at most once a second for each topic). A topic that is waited for (`watched`) and not there
yet is asked for each second at first, and less often the longer it is missing, down to every 30 s.

A static topic has logical queues: their broker name is one that stands for all brokers, and `home` tells which broker
leads such a queue now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from perseid.base.errors import PerseidError
from perseid.client.answers import unreadable
from perseid.client.connection import Connections, Header
from perseid.client.errors import (
    ClientError,
    ConnectFailed,
    NoNameServer,
    NoRoute,
    ServerRefused,
    TlsFailed,
    UsageError,
)
from perseid.client.model import MessageQueue
from perseid.wire.bodies import MASTER_ID, TopicRouteData
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.namesrv import GetRouteInfoByTopicRequest
from perseid.wire.mapping import leaders
from perseid.wire.names import AUTO_CREATE_TOPIC

log = logging.getLogger("perseid.client")

POLL_INTERVAL_MS = 30_000
MIN_REFRESH_INTERVAL_MS = 1000
MISSING_INTERVAL_MS = 1000
"""How often it is looked which of the topics that are missing are to be asked for."""
MISSING_SHARE = 0.1
"""A topic is asked for again after this share of the time for which it has been missing, but not within a second."""
ROUNDING = 0.99
"""A round that comes a little too early is not left out."""
_PERM_READ, _PERM_WRITE = 4, 2


@dataclass(frozen=True, slots=True)
class BrokerQueues:
    """The queues of a topic on one broker."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """The brokers and queues of one topic; brokers are sorted by name."""

    topic: str
    """Its name."""
    brokers: dict[str, dict[int, str]] = field(default_factory=dict)
    """Broker name → broker id (0: master) → address."""
    clusters: dict[str, str] = field(default_factory=dict)
    """Broker name → cluster name."""
    queues: tuple[BrokerQueues, ...] = ()
    """The number of queues of each broker, for reads and for writes."""
    order_conf: str = ""
    """The topic's order configuration, where the name server has one."""
    leaders: dict[tuple[str, int], str] = field(default_factory=dict)
    """For a static topic: (broker name of its logical queues, queue id) → the broker that leads it."""
    _writable: list[tuple[MessageQueue, ...]] = field(default_factory=list, compare=False, repr=False)
    """`writable`, once it was asked for."""

    @property
    def logical_queues(self) -> list[MessageQueue]:
        """Those of a static topic; none for a plain one."""
        return [MessageQueue(self.topic, name, queue_id) for name, queue_id in sorted(self.leaders)]

    def write_queues(self) -> list[MessageQueue]:
        """The queues to which messages can be sent now: those of writable brokers whose master is known."""
        if self.order_conf:
            pairs = (item.split(":") for item in self.order_conf.split(";") if ":" in item)
            return [MessageQueue(self.topic, name, i) for name, count in pairs for i in range(int(count))]
        if self.leaders:
            return self.logical_queues
        return [
            MessageQueue(self.topic, q.broker_name, i)
            for q in self.queues
            if q.perm & _PERM_WRITE and MASTER_ID in self.brokers.get(q.broker_name, {})
            for i in range(q.write_queues)
        ]

    @property
    def writable(self) -> tuple[MessageQueue, ...]:
        """`write_queues`, worked out once."""
        if not self._writable:
            self._writable.append(tuple(self.write_queues()))
        return self._writable[0]

    def read_queues(self) -> list[MessageQueue]:
        """The queues that can be read."""
        if self.leaders:
            return self.logical_queues
        return [
            MessageQueue(self.topic, q.broker_name, i)
            for q in self.queues
            if q.perm & _PERM_READ
            for i in range(q.read_queues)
        ]

    def readable_brokers(self) -> list[str]:
        """The brokers that have queues of the topic which can be read."""
        return sorted({q.broker_name for q in self.queues if q.perm & _PERM_READ and q.read_queues})

    def as_created_from(self, default: TopicRoute, queues: int) -> TopicRoute:
        """The route that an unknown topic will have once a broker of `default` has created it."""
        made = [
            replace(q, read_queues=min(queues, q.read_queues), write_queues=min(queues, q.read_queues))
            for q in default.queues
        ]
        return replace(default, topic=self.topic, queues=tuple(made), order_conf="", leaders={}, _writable=[])

    @classmethod
    def decode(cls, topic: str, body: bytes | memoryview) -> TopicRoute:
        """From the name server's answer."""
        data = TopicRouteData.from_json(bytes(body))
        brokers = sorted(data.broker_datas or [], key=lambda b: b.broker_name)
        queues = sorted(data.queue_datas or [], key=lambda q: q.broker_name)
        return cls(
            topic=topic,
            brokers={b.broker_name: {int(i): a for i, a in sorted(b.broker_addrs.items())} for b in brokers},
            clusters={b.broker_name: b.cluster or "" for b in brokers},
            queues=tuple(
                BrokerQueues(q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm) for q in queues
            ),
            order_conf=data.order_topic_conf or "",
            leaders=leaders(data.topic_queue_mapping_by_broker),
        )


class NameServers:
    """The name servers of a cluster: one is used until it fails, then the next."""

    def __init__(self, addresses: str | Sequence[str], connections: Connections, random: Random) -> None:
        texts = addresses.replace(",", ";").split(";") if isinstance(addresses, str) else list(addresses)
        self.addresses = [text.strip() for text in texts if text.strip()]
        if not self.addresses:
            raise UsageError("no name server given: pass namesrv='host:9876' (several: 'a:9876;b:9876')")
        random.shuffle(self.addresses)
        self._connections = connections
        self._at = 0

    async def call(self, code: int, header: Header = None, body: bytes = b"", timeout_ms: int = 3000) -> Command:
        """The answer of the first name server that gives one, whatever its code."""
        last: Exception | None = None
        for _ in self.addresses:
            address = self.addresses[self._at]
            try:
                return await self._connections.call(address, code, header, body, timeout_ms)
            except UsageError:
                raise
            except ClientError as error:
                last = error
                self._at = (self._at + 1) % len(self.addresses)
        if isinstance(last, ConnectFailed) and not isinstance(last, TlsFailed):
            why = f"{last.reason}; start one (perseid up --data DIR), or name one that runs"
        else:
            why = f"{last}; is it a name server, and does it want TLS?"
        raise NoNameServer(f"no name server answered at {', '.join(self.addresses)}: {why}") from last

    async def ask(self, code: int, header: Header = None, body: bytes = b"", timeout_ms: int = 3000) -> Command:
        """As `call()`, but any code other than success is raised as `ServerRefused`."""
        answer = await self.call(code, header, body, timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise ServerRefused(answer.code, answer.remark, self.addresses[self._at])
        return answer


class Routes:
    """The routes of topics, cached; `on_change` is called with each topic whose route changed."""

    def __init__(self, names: NameServers) -> None:
        self._names = names
        self._known: dict[str, TopicRoute] = {}
        self._asking: dict[str, asyncio.Task[TopicRoute]] = {}
        self._asked_at: dict[str, float] = {}
        self._missing_since: dict[str, float] = {}
        self._addresses: dict[str, dict[int, str]] = {}
        self._homes: dict[MessageQueue, str] = {}
        self.missing = asyncio.Event()
        """Some topic that is watched is not known yet."""
        self.watched: set[str] = set()
        """Topics that are asked for at each poll although they do not exist yet."""
        self.on_change: list[Callable[[str], None]] = []

    def known(self, topic: str) -> TopicRoute | None:
        """The cached route, if there is one."""
        return self._known.get(topic)

    async def get(self, topic: str) -> TopicRoute:
        """The route of a topic: cached, or asked for; `NoRoute` when the name servers know none."""
        route = self._known.get(topic)
        return route if route is not None else await self.fetch(topic)

    async def get_or_default(self, topic: str, queues: int) -> TopicRoute:
        """As `get()`; for an unknown topic the route of the brokers that would create it on a send.

        That borrowed route is not cached: the next call asks again.
        """
        try:
            return await self.get(topic)
        except NoRoute:
            pass
        try:
            default = await self.fetch(AUTO_CREATE_TOPIC, keep=False)
        except NoRoute:
            raise NoRoute(
                topic, "create it (perseid topic create), or start a broker with autoCreateTopicEnable=true"
            ) from None
        return TopicRoute(topic).as_created_from(default, queues)

    async def fetch(self, topic: str, *, keep: bool = True) -> TopicRoute:
        """Ask the name servers now; several callers share one request."""
        task = self._asking.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._fetch(topic, keep), name=f"route of {topic}")
            self._asking[topic] = task
            task.add_done_callback(lambda done: self._asked(topic, done))
        return await asyncio.shield(task)

    async def refresh(self, topic: str, *, at_once: bool = False) -> PerseidError | None:
        """Ask again, but not more than once a second. A question that is under way is waited for. An error leaves the
        old route in place, and is returned."""
        now = asyncio.get_running_loop().time()
        recent = now - self._asked_at.get(topic, -1e9) < MIN_REFRESH_INTERVAL_MS / 1000
        if recent and not at_once and topic not in self._asking:
            return None
        try:
            await self.fetch(topic)
        except PerseidError as error:
            log.debug("the route of %s could not be refreshed: %s", topic, error)
            return error
        return None

    async def refresh_all(self) -> None:
        """One round of the 30 s poll."""
        for topic in sorted(self._known.keys() | self.watched):
            try:
                await self.fetch(topic)
            except NoRoute as error:
                log.debug("%s", error)
            except PerseidError as error:
                log.warning("the route of %s stays as it was: %s", topic, error)

    def watch(self, topic: str) -> None:
        """Ask for a topic until it exists, and at each poll."""
        self.watched.add(topic)
        self.missing.set()

    async def ask_for_missing(self) -> None:
        """One round of the poll of topics that are watched and not known: asks for those whose time has come."""
        now = asyncio.get_running_loop().time()
        for topic in sorted(self.watched - self._known.keys()):
            since = self._missing_since.setdefault(topic, now)
            pause = max(MISSING_INTERVAL_MS / 1000, (now - since) * MISSING_SHARE)
            if now - self._asked_at.get(topic, -1e9) >= min(pause, POLL_INTERVAL_MS / 1000) * ROUNDING:
                await self.refresh(topic, at_once=True)
        for topic in self._missing_since.keys() & self._known.keys():
            del self._missing_since[topic]
        if self.watched <= self._known.keys():
            self.missing.clear()

    def address(self, broker_name: str, broker_id: int = MASTER_ID, *, only_this: bool = True) -> str | None:
        """The address of a broker that some known route named; without `only_this` of any replica."""
        ids = self._addresses.get(broker_name, {})
        if broker_id in ids or only_this:
            return ids.get(broker_id)
        return ids[min(ids)] if ids else None

    def home(self, queue: MessageQueue) -> str:
        """The name of the broker that serves a queue: the one in its name, but for logical queues."""
        return self._homes.get(queue, queue.broker_name)

    def addresses(self, *, replicas: bool = False) -> list[tuple[str, int, str]]:
        """(broker name, broker id, address) of all known masters, and of all `replicas` if asked for."""
        return [
            (name, broker_id, address)
            for name, ids in sorted(self._addresses.items())
            for broker_id, address in sorted(ids.items())
            if replicas or broker_id == MASTER_ID
        ]

    # ---- inside ----

    async def _fetch(self, topic: str, keep: bool) -> TopicRoute:
        self._asked_at[topic] = asyncio.get_running_loop().time()
        header = GetRouteInfoByTopicRequest(topic=topic, accept_standard_json_only=True)
        answer = await self._names.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRoute(topic, f"it does not exist; create it: perseid topic create {topic}")
        if answer.code != ResponseCode.SUCCESS:
            raise ServerRefused(answer.code, answer.remark, "the name server")
        try:
            route = TopicRoute.decode(topic, answer.body)
        except PerseidError as error:
            raise unreadable(error) from error
        for name, ids in route.brokers.items():
            self._addresses[name] = ids
        for (name, queue_id), leader in route.leaders.items():
            self._homes[MessageQueue(topic, name, queue_id)] = leader
        if keep:
            before = self._known.get(topic)
            self._known[topic] = route
            if before != route:
                for listener in self.on_change:
                    listener(topic)
        return route

    def _asked(self, topic: str, done: asyncio.Task[TopicRoute]) -> None:
        self._asking.pop(topic, None)
        if not done.cancelled():
            done.exception()  # seen here too: every waiter may have been cancelled meanwhile
