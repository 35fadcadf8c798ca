"""The name server through `handle`: each request's answers as a Java 5.5.0 name server gives them.

The expectations about tables were checked by sending the same requests to both.
"""

import struct

import pytest

from perseid.base.machine import (
    Close,
    Closed,
    Connect,
    Frames,
    Note,
    Opened,
    Shutdown,
    Stop,
    Write,
)
from perseid.wire.bodies import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from perseid.wire.codes import RequestCode as Code
from perseid.wire.command import decode, encode_response

from .harness import T0, Server, frame, three_replicas, topics

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
