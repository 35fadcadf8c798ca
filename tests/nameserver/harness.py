"""A name server, its clock, and what it saved: requests in, answers out, invariants checked after each."""

import json
import struct
from typing import Any

from perseid.base.machine import (
    DiskFailed,
    Effect,
    Feed,
    Frames,
    SaveState,
    Start,
    Tick,
    Write,
)
from perseid.nameserver.config import NameServerConfig
from perseid.nameserver.node import NameServer
from perseid.security.members import OPEN, Members
from perseid.wire import fastjson
from perseid.wire.bodies import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from perseid.wire.codes import RequestCode as Code
from perseid.wire.command import Command, decode
from perseid.wire.hashing import crc32

T0 = 1_700_000_000_000


class Disk:
    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = files or {}

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)


def frame(code: int, ext: dict[str, Any] | None, body: bytes, version: int, flag: int = 0, opaque: int = 1) -> bytes:
    head: dict[str, Any] = {"code": code, "language": "JAVA", "version": version, "opaque": opaque, "flag": flag}
    if ext is not None:
        head["extFields"] = {name: str(value) for name, value in ext.items()}
    raw = json.dumps(head).encode()
    return struct.pack(">II", 4 + len(raw) + len(body), len(raw)) + raw + body


def topics(*names: str, counter: int = 1, state: int = 0, perm: int = 6, flag: int = 0) -> bytes:
    table = {name: TopicConfig(name, 4, 4, perm, topic_sys_flag=flag) for name in names}
    wrapper = TopicConfigSerializeWrapper(table)
    wrapper.data_version.counter = counter
    wrapper.data_version.state_version = state
    return RegisterBrokerBody(wrapper).to_json()


class Server:
    """A name server, its clock, and what it saved."""

    def __init__(self, files: dict[str, bytes] | None = None, *, members: Members = OPEN, **config: Any) -> None:
        self.node = NameServer(
            NameServerConfig(**config),
            Disk(files),
            config_path="namesrv.properties",
            members=members,
        )
        self.now = T0
        self.saved: dict[str, bytes] = {}
        self.disk_is_full = False
        self.effects: list[Effect] = []
        self.feed(Start())

    def feed(self, event: Any) -> list[Effect]:
        effects = self.node.handle(event, self.now)
        self.node.validate()
        for effect in list(effects):
            if isinstance(effect, SaveState):
                if self.disk_is_full:
                    effects += self.feed(DiskFailed(effect.path, "full"))
                else:
                    self.saved[effect.path] = effect.data
                    for then in effect.then:
                        assert isinstance(then, Feed)
                        effects += self.feed(then.event)
        self.effects += effects
        return effects

    def ask(
        self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"", *, conn: int = 1, version: int = 513
    ) -> Command:
        (answer,) = [
            e
            for e in self.feed(Frames(conn, frame(code, ext, body, version)))
            if isinstance(e, Write) and e.conn == conn
        ]
        assert isinstance(answer.data, bytes)
        return decode(answer.data)

    def register(
        self, name: str, address: str, broker_id: int, body: bytes, *, conn: int = 1, version: int = 513, **ext: Any
    ) -> Command:
        ext = {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": "C",
            "haServerAddr": f"{address}9",
            "brokerId": broker_id,
            "bodyCrc32": crc32(body),
            **ext,
        }
        return self.ask(Code.REGISTER_BROKER, ext, body, conn=conn, version=version)

    def unregister(self, name: str, address: str, broker_id: int) -> Command:
        ext = {"brokerName": name, "brokerAddr": address, "clusterName": "C", "brokerId": broker_id}
        return self.ask(Code.UNREGISTER_BROKER, ext)

    def json(self, code: int, ext: dict[str, Any] | None = None) -> Any:
        reply = self.ask(code, ext)
        assert reply.code == 0, reply.remark
        return fastjson.loads(reply.body)

    def route(self, topic: str, **ext: str) -> dict[str, Any] | None:
        reply = self.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, **ext})
        if reply.code == 17:
            return None
        assert reply.code == 0, reply.remark
        return fastjson.loads(reply.body)

    def perm(self, topic: str, broker: str) -> int | None:
        route = self.route(topic)
        rows = route["queueDatas"] if route else []
        return next((row["perm"] for row in rows if row["brokerName"] == broker), None)

    def topics(self) -> set[str]:
        return set(self.json(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"])

    def clusters(self) -> Any:
        return self.json(Code.GET_BROKER_CLUSTER_INFO)

    def pass_time(self, ms: int) -> list[Effect]:
        self.now += ms
        return self.feed(Tick())


def three_replicas(*, support_acting_master: bool = True, heartbeat_ms: int | None = None, **config: Any) -> Server:
    """`heartbeat_ms`: so long the brokers may be silent."""
    server = Server(support_acting_master=support_acting_master, **config)
    more = {} if heartbeat_ms is None else {"heartbeatTimeoutMillis": heartbeat_ms}
    for broker_id in (0, 1, 2):
        address = f"1.1.1.1:{broker_id}"
        server.register(
            "g", address, broker_id, topics("T", "U"), conn=broker_id + 1, enableActingMaster="true", **more
        )
    return server
