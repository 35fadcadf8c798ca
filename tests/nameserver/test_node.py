"""The name server through `handle`: each request's answers as a Java 5.5.0 name server gives them.

The expectations about tables were checked by sending the same requests to both.
"""

import json
import struct
from typing import Any

import pytest

from perseid.base.errors import ConfigError
from perseid.base.machine import (
    Close,
    Closed,
    Connect,
    DiskFailed,
    Effect,
    Feed,
    Frames,
    Note,
    Opened,
    SaveState,
    Shutdown,
    Start,
    Stop,
    Tick,
    Write,
)
from perseid.nameserver.config import NameServerConfig
from perseid.nameserver.node import NameServer
from perseid.wire import fastjson
from perseid.wire.bodies import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from perseid.wire.codes import RequestCode as Code
from perseid.wire.command import Command, decode, encode_response
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

    def __init__(self, files: dict[str, bytes] | None = None, **config: Any) -> None:
        self.node = NameServer(
            NameServerConfig(**config),
            Disk(files),
            config_path="namesrv.properties",
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


# ---- registration ----


def test_a_route_in_both_forms_of_json() -> None:
    server = Server()
    body = topics("T", "TBW102")
    reply = server.register("broker-a", "127.0.0.1:10911", 0, body, conn=1)
    assert (reply.code, reply.ext, bytes(reply.body)) == (0, {}, b"")
    server.register("broker-a", "127.0.0.1:20911", 1, body, conn=2)
    legacy = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:20911"},"brokerName":"broker-a",'
        b'"cluster":"C","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a",'
        b'"perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    standard = legacy.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":')
    for version, ext, wanted in (
        (317, {}, legacy),
        (400, {}, legacy),
        (401, {}, standard),
        (513, {}, standard),
        (317, {"acceptStandardJsonOnly": "true"}, standard),
        (317, {"acceptStandardJsonOnly": "false"}, legacy),
    ):
        reply = server.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T", **ext}, version=version)
        assert bytes(reply.body) == wanted, (version, ext)


def test_an_unknown_topic_has_no_route() -> None:
    reply = Server().ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "nope"})
    assert reply.code == 17
    assert reply.remark == (
        "No topic route info in name server for the topic: nope"
        "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )


def test_a_slave_learns_where_its_master_is() -> None:
    server = Server()
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"))
    reply = server.register("a", "1.1.1.1:2", 1, topics("V", "W"), conn=2)
    assert reply.ext == {"haServerAddr": "1.1.1.1:19", "masterAddr": "1.1.1.1:1"}
    assert server.topics() == {"T", "U"}


def test_a_single_topic_of_an_unknown_broker_is_refused_without_a_trace() -> None:
    server = Server()
    reply = server.register("a", "1.1.1.1:1", 0, topics("T"))
    assert (reply.code, reply.remark) == (1, "register broker failed")
    assert server.clusters() == {"brokerAddrTable": {}, "clusterAddrTable": {}}
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"))
    assert server.register("a", "1.1.1.1:1", 0, topics("V", counter=2)).code == 0
    assert server.topics() == {"T", "U", "V"}


def test_topics_are_taken_when_the_data_version_is_another_or_the_topic_is_missing() -> None:
    server = Server()
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"))
    server.register("a", "1.1.1.1:1", 0, topics("T", "V", perm=4))
    assert (server.perm("T", "a"), server.perm("V", "a")) == (6, 4)
    server.register("a", "1.1.1.1:1", 0, topics("T", "U", counter=2, perm=4))
    assert server.perm("T", "a") == 4
    assert server.topics() == {"T", "U", "V"}


def test_topics_that_a_broker_no_longer_has_go_when_that_is_asked_for() -> None:
    server = Server(delete_topic_with_broker_registration=True)
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"))
    server.register("b", "2.2.2.2:1", 0, topics("T", "U"), conn=2)
    server.register("a", "1.1.1.1:1", 0, topics("T", "V"))
    assert server.topics() == {"T", "U", "V"}
    assert server.perm("U", "a") is None and server.perm("U", "b") == 6


def test_a_wrong_checksum_is_refused() -> None:
    server = Server()
    reply = server.register("a", "1.1.1.1:1", 0, topics("T", "U"), bodyCrc32=7)
    assert (reply.code, reply.remark) == (1, "crc32 not match")
    assert server.register("a", "1.1.1.1:1", 0, topics("T", "U"), bodyCrc32=0).code == 0


def test_bodies_of_all_times() -> None:
    server = Server()
    wrapper = TopicConfigSerializeWrapper({name: TopicConfig(name) for name in ("O1", "O2")})
    server.register("old", "1.1.1.1:1", 0, wrapper.to_json(), version=36)
    packed = RegisterBrokerBody(TopicConfigSerializeWrapper({n: TopicConfig(n) for n in ("P1", "P2")})).compress()
    server.register("packed", "1.1.1.2:1", 0, packed, compressed="false")
    assert server.register("bare", "1.1.1.3:1", 0, b"").code == 0
    assert server.topics() == {"O1", "O2", "P1", "P2"}
    assert server.register("bad", "1.1.1.4:1", 0, b"nonsense").code == 1
    assert set(server.clusters()["brokerAddrTable"]) == {"old", "packed", "bare"}


def test_a_slave_that_is_promoted_where_it_stands_keeps_one_id() -> None:
    server = Server()
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"))
    server.register("a", "1.1.1.1:2", 1, topics("T", "U"), conn=2)
    server.register("a", "1.1.1.1:2", 0, topics("T", "U", counter=2, state=1), conn=2)
    assert server.clusters()["brokerAddrTable"]["a"]["brokerAddrs"] == {"0": "1.1.1.1:2"}


def test_an_older_master_is_told_success_and_changes_nothing() -> None:
    server = Server()
    server.register("a", "1.1.1.1:2", 0, topics("T", "U", state=2), conn=2)
    reply = server.register("a", "1.1.1.1:1", 0, topics("X", "Y", state=1))
    assert (reply.code, reply.ext) == (0, {})
    assert server.clusters()["brokerAddrTable"]["a"]["brokerAddrs"] == {"0": "1.1.1.1:2"}
    assert server.topics() == {"T", "U"}
    server.register("a", "1.1.1.1:1", 0, topics("X", "Y", state=2))
    assert server.clusters()["brokerAddrTable"]["a"]["brokerAddrs"] == {"0": "1.1.1.1:1"}


def test_the_order_topics_come_back_with_a_registration() -> None:
    server = Server()
    server.ask(Code.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "a:4"})
    reply = server.register("a", "1.1.1.1:1", 0, topics("T", "U"))
    assert bytes(reply.body) == b'{"table":{"T":"a:4"}}'


# ---- life and death ----


def test_a_silent_broker_is_forgotten_after_its_timeout() -> None:
    server = Server()
    server.feed(Opened(1, "9.9.9.9:1", "l"))
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"), conn=1)
    server.register("b", "2.2.2.2:1", 0, topics("T", "U"), conn=2, heartbeatTimeoutMillis=3_000)
    assert server.node.next_deadline() == T0 + 5_000
    effects = server.pass_time(5_000)
    assert [e.conn for e in effects if isinstance(e, Close)] == [2]
    assert server.clusters()["clusterAddrTable"] == {"C": ["a"]}
    for _ in range(23):
        server.pass_time(5_000)
    assert server.topics() == {"T", "U"}
    server.pass_time(5_000)
    assert server.topics() == set()
    assert server.node.next_deadline() is None


@pytest.mark.parametrize("code", [Code.QUERY_DATA_VERSION, Code.BROKER_HEARTBEAT])
def test_a_life_sign_keeps_a_broker(code: int) -> None:
    server = Server()
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"), heartbeatTimeoutMillis=8_000)
    for _ in range(5):
        server.pass_time(5_000)
        ext = {"brokerName": "a", "brokerAddr": "1.1.1.1:1", "clusterName": "C", "brokerId": 0}
        assert server.ask(code, ext, b"{}").code == 0
    assert server.topics() == {"T", "U"}


def test_a_broker_goes_with_its_connection_but_not_with_an_older_one() -> None:
    server = Server()
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"), conn=1)
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"), conn=2)
    server.feed(Closed(1, "reset"))
    assert server.topics() == {"T", "U"}
    server.feed(Closed(2, "reset"))
    assert server.topics() == set()
    assert server.clusters() == {"brokerAddrTable": {}, "clusterAddrTable": {}}


def test_unregistering_one_of_two_replicas() -> None:
    server = Server()
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"), conn=1)
    server.register("a", "1.1.1.1:2", 1, topics("T", "U"), conn=2)
    assert server.unregister("a", "1.1.1.1:1", 0).code == 0
    assert server.perm("T", "a") == 6
    server.unregister("a", "1.1.1.1:2", 1)
    assert server.route("T") is None
    assert server.unregister("a", "1.1.1.1:2", 1).code == 0


def test_data_versions_are_compared() -> None:
    server = Server()
    server.register("a", "1.1.1.1:1", 0, topics("T", "U", counter=2))
    ext = {"brokerName": "a", "brokerAddr": "1.1.1.1:1", "clusterName": "C", "brokerId": 0}
    known = b'{"counter":2,"stateVersion":0,"timestamp":0}'
    for body, changed in ((known, "false"), (known.replace(b"2", b"3"), "true"), (b"", "true")):
        reply = server.ask(Code.QUERY_DATA_VERSION, ext, body)
        assert (reply.ext, bytes(reply.body)) == ({"changed": changed}, known)
    reply = server.ask(Code.QUERY_DATA_VERSION, {**ext, "brokerAddr": "8.8.8.8:1"}, known)
    assert (reply.ext, bytes(reply.body)) == ({"changed": "true"}, b"")


# ---- acting master ----


def three_replicas(**config: Any) -> Server:
    server = Server(support_acting_master=True, **config)
    for broker_id in (0, 1, 2):
        address = f"1.1.1.1:{broker_id}"
        server.register("g", address, broker_id, topics("T", "U"), conn=broker_id + 1, enableActingMaster="true")
    return server


def test_without_a_master_the_smallest_slave_is_shown_as_master_for_reading() -> None:
    server = three_replicas()
    assert server.perm("T", "g") == 6
    server.unregister("g", "1.1.1.1:0", 0)
    route = server.route("T")
    assert route is not None
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "1.1.1.1:1", "2": "1.1.1.1:2"}
    assert route["queueDatas"][0]["perm"] == 4
    assert server.clusters()["brokerAddrTable"]["g"]["brokerAddrs"] == {"1": "1.1.1.1:1", "2": "1.1.1.1:2"}
    server.register("g", "1.1.1.1:1", 1, topics("T", "V", counter=2), conn=2, enableActingMaster="true")
    assert server.perm("V", "g") == 4


def test_replicas_hear_of_a_new_smallest_id() -> None:
    server = three_replicas(notify_min_broker_id_changed=True)
    server.effects.clear()
    server.unregister("g", "1.1.1.1:0", 0)
    assert [e for e in server.effects if isinstance(e, Connect)] == [Connect("1.1.1.1:1"), Connect("1.1.1.1:2")]
    effects = server.feed(Opened(50, "1.1.1.1:1", "l", dialled="1.1.1.1:1"))
    told = decode(effects[0].data)
    assert told.is_oneway and told.code == Code.NOTIFY_MIN_BROKER_ID_CHANGE
    assert told.ext == {"minBrokerId": "1", "minBrokerAddr": "1.1.1.1:1", "offlineBrokerAddr": "1.1.1.1:0"}
    effects = server.feed(Opened(51, "1.1.1.1:2", "l", dialled="1.1.1.1:2"))
    assert len(effects) == 1
    server.effects.clear()
    server.register("g", "1.1.1.1:0", 0, topics("T", "U"), conn=1, enableActingMaster="true")
    told = decode(next(e.data for e in server.effects if isinstance(e, Write) and e.conn == 51))
    assert told.ext == {"minBrokerId": "0", "minBrokerAddr": "1.1.1.1:0", "haBrokerAddr": "1.1.1.1:09"}
    server.feed(Closed(50, "gone"))
    assert server.clusters()["brokerAddrTable"]["g"]["brokerAddrs"].keys() == {"0", "1", "2"}


# ---- topics ----


def test_topics_by_cluster_flag_and_system() -> None:
    server = Server()
    server.register("a", "1.1.1.1:1", 0, topics("U1", "U2", flag=1), conn=1)
    server.register("b", "1.1.1.2:1", 0, topics("U1", "S1", flag=2), conn=2, clusterName="D")
    server.register("c", "1.1.1.3:1", 0, topics("B1", "B2", flag=3), conn=3)
    names = {
        (Code.GET_TOPICS_BY_CLUSTER, "C"): {"U1", "U2", "B1", "B2"},
        (Code.GET_TOPICS_BY_CLUSTER, "D"): {"U1", "S1"},
        (Code.GET_TOPICS_BY_CLUSTER, "E"): set(),
        (Code.GET_UNIT_TOPIC_LIST, ""): {"U1", "U2", "B1", "B2"},
        (Code.GET_HAS_UNIT_SUB_TOPIC_LIST, ""): {"S1", "B1", "B2"},
        (Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, ""): {"S1"},
        (Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, ""): {"C", "a", "c", "D", "b"},
    }
    for (code, cluster), wanted in names.items():
        assert set(server.json(code, {"cluster": cluster})["topicList"]) == wanted, code
    assert server.json(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS)["brokerAddr"] == "1.1.1.1:1"


def test_lists_can_be_switched_off() -> None:
    server = Server(enable_topic_list=False, enable_all_topic_list=False)
    for code in (206, 224, 311, 312, 313):
        reply = server.ask(code, {"cluster": "C"})
        assert (reply.code, reply.remark) == (1, "disable")
    assert server.ask(304).code == 0


def test_a_topic_is_deleted_in_a_cluster_or_everywhere() -> None:
    server = Server()
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"), conn=1)
    server.register("b", "1.1.1.2:1", 0, topics("T", "U"), conn=2, clusterName="D")
    server.ask(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "C"})
    assert server.perm("T", "a") is None and server.perm("T", "b") == 6
    server.ask(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "E"})
    assert server.perm("T", "b") == 6
    server.ask(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "U"})
    assert server.topics() == {"T"}
    server.ask(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "D"})
    assert server.topics() == set()


def test_a_topic_is_registered_only_for_known_brokers() -> None:
    server = Server()
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"))
    row = b'{"brokerName":"%s","perm":6,"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1}'
    for body in (b'{"queueDatas":[%s,%s]}' % (row % b"a", row % b"zz"), b'{"queueDatas":[]}', b"{}", b""):
        assert server.ask(Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": "R"}, body).code == 0
        assert server.route("R") is None
    server.ask(Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": "R"}, b'{"queueDatas":[%s]}' % (row % b"a"))
    assert server.perm("R", "a") == 6


def test_write_permission_is_taken_and_given() -> None:
    server = Server()
    server.register("a", "1.1.1.1:1", 0, topics("T", "U", perm=7))
    assert server.ask(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "a"}).ext == {"wipeTopicCount": "2"}
    assert server.perm("T", "a") == 5
    assert server.ask(Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "a"}).ext == {"addTopicCount": "2"}
    assert server.perm("T", "a") == 6
    assert server.ask(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "zz"}).ext == {"wipeTopicCount": "0"}


def test_a_zone_sees_its_own_brokers_and_those_without_a_master() -> None:
    server = Server()
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"), conn=1, __ZONE_NAME="z1")
    server.register("b", "1.1.1.2:1", 0, topics("T", "U"), conn=2, __ZONE_NAME="z2")
    server.register("c", "1.1.1.3:1", 0, topics("T", "U"), conn=3)
    server.register("c", "1.1.1.3:2", 1, topics("T", "U"), conn=4)
    server.unregister("c", "1.1.1.3:1", 0)
    for zone, mode, names in (
        ("Z1", "true", {"a", "c"}),
        ("z3", "true", {"c"}),
        ("z1", "false", {"a", "b", "c"}),
        (" ", "true", {"a", "b", "c"}),
    ):
        route = server.route("T", __ZONE_NAME=zone, __ZONE_MODE=mode)
        assert route is not None
        assert {row["brokerName"] for row in route["brokerDatas"]} == names
        assert {row["brokerName"] for row in route["queueDatas"]} == names


def test_members_of_a_broker() -> None:
    server = three_replicas()
    body = bytes(server.ask(Code.GET_BROKER_MEMBER_GROUP, {"clusterName": "C", "brokerName": "g"}).body)
    assert body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"1.1.1.1:0",1:"1.1.1.1:1",2:"1.1.1.1:2"},"brokerName":"g","cluster":"C"}}'
    )
    body = bytes(server.ask(Code.GET_BROKER_MEMBER_GROUP, {"clusterName": "C", "brokerName": "zz"}).body)
    assert body == b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"zz","cluster":"C"}}'


def test_routes_wait_for_the_brokers_after_a_start() -> None:
    server = Server(need_wait_for_service=True)
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"))
    reply = server.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    assert (reply.code, reply.remark) == (1, "name server not ready")
    server.now += 45_000
    assert server.route("T") is not None


# ---- settings ----


def test_settings_are_confirmed_when_they_are_saved() -> None:
    server = Server()
    item = {"namespace": "n", "key": "k"}
    reply = server.ask(Code.GET_KV_CONFIG, item)
    assert (reply.code, reply.remark) == (22, "No config item, Namespace: n Key: k")
    (save,) = server.node.handle(Frames(1, frame(100, {**item, "value": "v"}, b"", 513)), server.now)
    assert isinstance(save, SaveState)
    (then,) = save.then
    assert isinstance(then, Feed)
    (write,) = server.feed(then.event)
    assert decode(write.data).code == 0
    assert save.data == b'{\n\t"configTable":{\n\t\t"n":{\n\t\t\t"k":"v"\n\t\t}\n\t}\n}'
    assert server.ask(Code.GET_KV_CONFIG, item).ext == {"value": "v"}
    assert bytes(server.ask(Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"}).body) == b'{"table":{"k":"v"}}'
    again = Server({"kvConfig.json": save.data})
    assert again.ask(Code.GET_KV_CONFIG, item).ext == {"value": "v"}
    assert again.ask(Code.DELETE_KV_CONFIG, item).code == 0
    assert again.ask(Code.DELETE_KV_CONFIG, item).code == 0
    assert again.ask(Code.GET_KV_CONFIG, item).code == 22
    assert bytes(again.ask(Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"}).body) == b'{"table":{}}'
    assert again.ask(Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "m"}).code == 22


def test_a_setting_that_could_not_be_saved_is_an_error() -> None:
    server = Server()
    server.disk_is_full = True
    reply = server.ask(Code.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"})
    assert reply.code == 1 and "kvConfig.json could not be saved (full)" in (reply.remark or "")
    server.disk_is_full = False
    assert server.ask(Code.PUT_KV_CONFIG, {"namespace": "n", "key": "k", "value": "v"}).code == 0


@pytest.mark.parametrize("raw", [b"nonsense", b'{"configTable":{"n":7}}', b"[1]"])
def test_an_unreadable_settings_file_stops_the_start(raw: bytes) -> None:
    with pytest.raises(ConfigError, match="repair the file or remove it"):
        Server({"kvConfig.json": raw})


def test_the_configuration_is_shown_changed_and_saved() -> None:
    server = Server()
    server.ask(Code.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "a:4"})
    server.register("a", "1.1.1.1:1", 0, topics("T", "U"))
    route = server.route("T")
    assert route is not None and "orderTopicConf" not in route
    assert server.ask(Code.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true\nmystery=1").code == 0
    route = server.route("T")
    assert route is not None and route["orderTopicConf"] == "a:4"
    shown = bytes(server.ask(Code.GET_NAMESRV_CONFIG).body)
    assert b"orderMessageEnable=true\n" in shown and b"listenPort=9876\n" in shown
    assert server.saved["namesrv.properties"] == shown
    assert server.ask(Code.UPDATE_NAMESRV_CONFIG).code == 0


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"kvConfigPath=x", 16, "Can not update config in black list."),
        (b"orderMessageEnable=true\nconfigStorePath=x", 16, "Can not update config in black list."),
        (b"rocketmqHome=x", 16, "Can not update config in black list."),
        (b"\xff\xfe", 1, "string2Properties error"),
        (b"waitSecondsForService=x", 1, "update: waitSecondsForService=x: a whole number is wanted"),
    ],
)
def test_a_change_that_is_refused(body: bytes, code: int, remark: str) -> None:
    server = Server()
    reply = server.ask(Code.UPDATE_NAMESRV_CONFIG, None, body)
    assert (reply.code, reply.remark) == (code, remark)
    assert server.node.config == NameServerConfig() and not server.saved


# ---- bad input ----


@pytest.mark.parametrize(
    ("code", "ext", "body", "answer", "remark"),
    [
        (11, {"topic": "T"}, b"", 3, " request type 11 not supported"),
        (99_999, None, b"", 3, " request type 99999 not supported"),
        (105, {}, b"", 1, "topic is missing"),
        (100, {"value": "v"}, b"", 1, "namespace or key is null"),
        (100, {"namespace": "n", "key": "k"}, b"", 1, "value is missing"),
        (103, {"brokerName": "q", "brokerId": "x"}, b"", 1, ""),
        (104, {"brokerName": "q"}, b"", 1, "brokerAddr is missing"),
        (322, {"brokerName": "a", "brokerAddr": "b", "clusterName": "C", "brokerId": "0"}, b"[", 1, "DataVersion"),
        (217, {"topic": "T"}, b'{"queueDatas":7}', 1, "TopicRouteData"),
        (205, {}, b"", 1, "brokerName is missing"),
    ],
)
def test_a_request_that_makes_no_sense_is_answered(
    code: int, ext: dict[str, str] | None, body: bytes, answer: int, remark: str
) -> None:
    reply = Server().ask(code, ext, body)
    assert reply.code == answer and remark in (reply.remark or "")


def test_an_unreadable_header_closes_its_connection_after_the_answers_before_it() -> None:
    server = Server()
    broken = struct.pack(">II", 4 + 3, 3) + b"{x}"
    effects = server.feed(Frames(7, frame(106, None, b"", 513) + broken))
    assert [e.conn for e in effects if isinstance(e, Close)] == [7]


def test_oneway_requests_and_stray_responses_get_no_answer() -> None:
    server = Server()
    ext = {"brokerName": "a", "brokerAddr": "1.1.1.1:1", "clusterName": "C"}
    assert server.feed(Frames(1, frame(904, ext, b"", 513, flag=2))) == []
    assert server.feed(Frames(1, frame(11, ext, b"", 513, flag=2))) == []
    assert server.feed(Frames(1, encode_response(5, 0))) == []


def test_several_requests_in_one_read_are_answered_in_order() -> None:
    server = Server()
    data = b"".join(frame(106, None, b"", 513, opaque=n) for n in range(3))
    answers = [decode(e.data).opaque for e in server.feed(Frames(1, data)) if isinstance(e, Write)]
    assert answers == [0, 1, 2]


def test_a_shutdown_is_the_end() -> None:
    assert Server().feed(Shutdown()) == [Stop("")]


def test_a_stranger_event_is_a_defect() -> None:
    with pytest.raises(AssertionError):
        Server().feed(Note("info", "x"))
