"""A client of a simulated cluster, which finds its broker by the route; producers and consumers build on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perseid.base.machine import Buffer
from perseid.sim.net import End
from perseid.sim.process import TIMEOUT_MS, OnReply, Process
from perseid.wire.bodies import TopicRouteData
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command, encode_request
from perseid.wire.headers.base import Header
from perseid.wire.headers.namesrv import GetRouteInfoByTopicRequest

if TYPE_CHECKING:
    from perseid.sim.models.broker.cluster import Cluster

ROUTE_AFTER_FAILURES = 2
"""A client asks for the route again when so many connects in a row have failed."""


class Client(Process):
    """One process that talks to name server and broker."""

    goes_to_slaves = False
    """Also to one that only acts for its master."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name)
        self.cluster = cluster
        self.history = cluster.history
        self.broker_address: str | None = None
        self._failures = 0

    # ---- for those that build on it ----

    def begin(self) -> None:
        """Find the broker, then `work`."""
        self._ask_route()

    def work(self) -> None:
        """The broker's address is known for the first time."""

    def call(
        self,
        code: int,
        header: Header | Mapping[str, str] | None,
        on_reply: OnReply,
        body: Buffer = b"",
        *,
        timeout_ms: int = TIMEOUT_MS,
        address: str | None = None,
    ) -> None:
        """Send a request to the broker, unless `address` says otherwise; `on_reply` is called once."""
        address = address or self.broker_address or self.cluster.broker_address
        self.ask(address, code, header, on_reply, body, timeout_ms=timeout_ms)

    def send_oneway(self, code: int, header: Header, body: Buffer = b"") -> None:
        """Send a request that nobody answers."""
        self._opaque += 1
        self.cluster.operations += 1
        self.cluster.count(f"request {RequestCode(code).name} oneway")
        frame = encode_request(
            code, self._opaque, self.signed(header, body), body, oneway=True, serializer=self._serializer(code)
        )
        self._transmit(self.broker_address or self.cluster.broker_address, frame)

    # ---- the network's side ----

    def opened(self, end: End, listener: str, dialled: str) -> None:
        if self.running:
            self._failures = 0
        super().opened(end, listener, dialled)

    def connect_failed(self, address: str, reason: str) -> None:
        self._failures += 1
        if address == self.broker_address and self._failures >= ROUTE_AFTER_FAILURES:
            self._failures = 0
            self._ask_route()
        super().connect_failed(address, reason)

    # ---- inside ----

    def _ask_route(self) -> None:
        if self.running:
            header = GetRouteInfoByTopicRequest(topic=self.cluster.topics[0].name)
            self.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, self._routed, address=self.cluster.namesrv_address)

    def _routed(self, reply: Command | None) -> None:
        first = self.broker_address is None
        if reply is not None and reply.code == ResponseCode.SUCCESS:
            route = TopicRouteData.from_json(reply.body)
            for broker in route.broker_datas:
                found = broker.broker_addrs.get(0, self.broker_address)
                if self.goes_to_slaves or self.cluster.slaves.at(found) is None:
                    self.broker_address = found
            if self.broker_address is not None:
                self.cluster.count("route found")
                if first:
                    self.work()
                return
        if first:
            self.later(500, 2_000, self._ask_route)
