"""Topics, routes and settings: each request's answers as a Java 5.5.0 name server gives them."""

import pytest

from perseid.base.config import pairs
from perseid.base.errors import ConfigError
from perseid.base.machine import (
    Feed,
    Frames,
    SaveState,
)
from perseid.nameserver.config import NameServerConfig
from perseid.wire.codes import RequestCode as Code
from perseid.wire.command import decode

from .harness import Server, frame, three_replicas, topics

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
    assert server.ask(Code.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true\nlistenPort=9876").code == 0
    route = server.route("T")
    assert route is not None and route["orderTopicConf"] == "a:4"
    shown = bytes(server.ask(Code.GET_NAMESRV_CONFIG).body)
    assert b"orderMessageEnable=true\n" in shown and b"listenPort=9876\n" in shown
    assert pairs(server.saved["namesrv.properties"].decode()) == pairs(shown.decode())
    assert server.ask(Code.UPDATE_NAMESRV_CONFIG).code == 0


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"kvConfigPath=x", 16, "Can not update config in black list."),
        (b"orderMessageEnable=true\nconfigStorePath=x", 16, "Can not update config in black list."),
        (b"rocketmqHome=x", 16, "Can not update config in black list."),
        (b"\xff\xfe", 1, "string2Properties error"),
        (b"orderMessageEnable=x", 1, "nothing was changed; orderMessageEnable=x: true or false is wanted"),
        (b"orderMessageEnable=true\nnonsense=1", 1, "nothing was changed; nonsense: is unknown"),
        (
            b"listenPort=1\nbindAddress=1.2.3.4\nenableTopicLst=false\nenableTopicList=false",
            1,
            "nothing was changed; listenPort: needs a restart; bindAddress: needs a restart; "
            "enableTopicLst: is unknown, enableTopicList is the nearest",
        ),
        (
            b"clusterTest=true",
            1,
            "nothing was changed; clusterTest: can't be had: routes of another environment would be given out; "
            "Perseid has no such mode",
        ),
        (b"clientRequestThreadPoolNums=9", 1, "nothing was changed; clientRequestThreadPoolNums: has no meaning here"),
    ],
)
def test_a_change_that_is_refused(body: bytes, code: int, remark: str) -> None:
    server = Server()
    reply = server.ask(Code.UPDATE_NAMESRV_CONFIG, None, body)
    assert (reply.code, reply.remark) == (code, remark)
    assert server.node.config == NameServerConfig() and not server.saved


def test_settings_without_end_are_refused() -> None:
    """Ten thousand names, and a body of megabytes: one short answer, and nothing changed."""
    server = Server()
    body = b"".join(b"nonsense%d=1\n" % number for number in range(3_000))
    reply = server.ask(Code.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true\n" + body)
    assert reply.code == 1 and (reply.remark or "").endswith("; and 2992 more") and len(reply.remark or "") < 1_000
    reply = server.ask(Code.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=" + b"t" * 60_000)
    assert reply.code == 1 and len(reply.remark or "") < 1_000
    reply = server.ask(Code.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true\n" + b"#" * 4_000_000)
    assert reply.code == 1 and "65536 are the most" in (reply.remark or "")
    assert server.node.config == NameServerConfig() and not server.saved
