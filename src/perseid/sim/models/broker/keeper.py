"""A client that changes topics and name server settings, and asks whether they are still as they were left.

One change of a name is under way at a time. After a change without an answer the name's state is unknown for
the rest of the run: the request may still be on its way. Otherwise an acknowledged change is durable, whatever
crashes in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.sim.facts import LOOSE
from perseid.sim.models.broker.client import Client
from perseid.sim.models.broker.operator import create_topic
from perseid.sim.promises import Violation
from perseid.wire.bodies import TopicConfig
from perseid.wire.codes import RequestCode, ResponseCode
from perseid.wire.command import Command
from perseid.wire.headers.base import Header
from perseid.wire.headers.namesrv import (
    DeleteKvConfigRequest,
    GetKvConfigRequest,
    GetKvConfigResponse,
    PutKvConfigRequest,
)
from perseid.wire.headers.topics import DeleteTopicRequest, GetTopicConfigRequest

if TYPE_CHECKING:
    from perseid.sim.models.broker.cluster import Cluster

NAMESPACE = "SIM"
NAMES = 3
ABSENT = ""


class Keeper(Client):
    """Knows what should be. `states`: a name's value; names that are missing are unknown."""

    def __init__(self, cluster: Cluster, name: str, pause_ms: float) -> None:
        super().__init__(cluster, name)
        self.pause_ms = pause_ms
        topics = [f"{LOOSE}{number}" for number in range(NAMES)]
        self.keys = [f"key{number}" for number in range(NAMES)]
        self.states = dict.fromkeys([*topics, *self.keys], ABSENT)
        self.names = list(self.states)
        self.busy: set[str] = set()
        self._values = 0

    def work(self) -> None:
        name = self.random.choice(self.names)
        if name not in self.busy:
            if self.random.random() < 0.4:
                self._ask(name)
            else:
                self._change(name)
        self.later(0, 2 * self.pause_ms, self.work)

    # ---- changes ----

    def _change(self, name: str) -> None:
        header: Header
        wanted = ABSENT
        if name in self.keys:
            address = self.cluster.namesrv_address
            if self.random.random() < 0.7:
                self._values += 1
                wanted = f"value{self._values}"
                code, header = RequestCode.PUT_KV_CONFIG, PutKvConfigRequest(NAMESPACE, name, wanted)
            else:
                code, header = RequestCode.DELETE_KV_CONFIG, DeleteKvConfigRequest(NAMESPACE, name)
        else:
            address = self.cluster.broker_address
            if self.random.random() < 0.7:
                wanted = str(self.random.randrange(1, 5))
                code, header = RequestCode.UPDATE_AND_CREATE_TOPIC, create_topic(name, int(wanted))
            else:
                code, header = RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(name)
        self.busy.add(name)

        def answered(reply: Command | None) -> None:
            self.busy.discard(name)
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                if name in self.states:
                    self.states[name] = wanted
            elif reply is None or reply.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                self.states.pop(name, None)

        self.call(code, header, answered, address=address)

    # ---- questions ----

    def _ask(self, name: str) -> None:
        self.busy.add(name)
        if name in self.keys:
            header: Header = GetKvConfigRequest(NAMESPACE, name)
            self.call(
                RequestCode.GET_KV_CONFIG,
                header,
                lambda reply: self._told(name, reply, ResponseCode.QUERY_NOT_FOUND),
                address=self.cluster.namesrv_address,
            )
        else:
            header = GetTopicConfigRequest(name)
            self.call(
                RequestCode.GET_TOPIC_CONFIG,
                header,
                lambda reply: self._told(name, reply, ResponseCode.TOPIC_NOT_EXIST),
                address=self.cluster.broker_address,
            )

    def _told(self, name: str, reply: Command | None, absent: int) -> None:
        self.busy.discard(name)
        if reply is None or reply.code not in (ResponseCode.SUCCESS, absent) or name not in self.states:
            return
        found = ABSENT
        if reply.code == ResponseCode.SUCCESS and name in self.keys:
            found = reply.header(GetKvConfigResponse).value or ABSENT
        elif reply.code == ResponseCode.SUCCESS:
            found = str(TopicConfig.from_json(reply.body).write_queue_nums)
        if found != self.states[name]:
            raise Violation("a change that was acknowledged stays", f"{name} is {found!r}, was {self.states[name]!r}")
        self.cluster.count("a setting was as it was left")
