"""A stranger who tells a name server more brokers than it takes: refused by name, gone with its connection, and nobody
else notices."""

from pathlib import Path

import pytest

from perseid.nameserver import limits
from perseid.wire.bodies import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from perseid.wire.codes import RequestCode
from perseid.wire.command import encode_request
from perseid.wire.fastjson import loads
from perseid.wire.headers.namesrv import GetRouteInfoByTopicRequest, PutKvConfigRequest, RegisterBrokerRequest

from .rig import Acknowledged, Peer, Up

TOPICS = 300
TRIES = 1_000


def test_a_crowd_of_brokers_that_are_none(tmp_path: Path) -> None:
    table = {f"Crowd{number}": TopicConfig(f"Crowd{number}") for number in range(TOPICS)}
    body = RegisterBrokerBody(TopicConfigSerializeWrapper(table)).to_json()
    kept = Acknowledged("T")
    with Up(tmp_path) as up:
        kept.send(up.namesrv)
        with Peer(up.namesrv) as stranger:
            codes: list[int] = []
            for number in range(TRIES):
                header = RegisterBrokerRequest(f"n{number}", f"1.1.1.1:{number}", "DefaultCluster", "", 0)
                if number <= limits.MAX_PROCESSES_OF_CONNECTION:
                    answer = stranger.call(RequestCode.REGISTER_BROKER, header, body)
                    codes.append(answer.code)
                    remark = answer.remark or ""
                else:
                    stranger.send(encode_request(RequestCode.REGISTER_BROKER, number, header, body))
                    codes.append(stranger.read().code)
            most = limits.MAX_PROCESSES_OF_CONNECTION
            assert codes == [0] * most + [1] * (TRIES - most)
            assert f"takes no more than {most}" in remark and "one connection" in remark
        with Peer(up.namesrv) as honest:
            route = GetRouteInfoByTopicRequest("T")
            assert honest.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, route).code == 0
            while True:  # until the end of the stranger's connection has come up
                topics = loads(honest.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body)["topicList"]
                if "Crowd0" not in topics:
                    break
            assert "T" in topics
        kept.check(up.namesrv)


@pytest.mark.slow
def test_settings_without_an_end(tmp_path: Path) -> None:
    value = "v" * (limits.MAX_SETTINGS_CHARS // 100)
    with Up(tmp_path) as up, Peer(up.namesrv) as stranger:
        answers = [
            stranger.call(RequestCode.PUT_KV_CONFIG, PutKvConfigRequest("n", f"k{number}", value))
            for number in range(110)
        ]
        codes = [answer.code for answer in answers]
        assert codes == sorted(codes) and codes.count(0) in (98, 99) and codes[-1] == 1
        assert "characters of settings" in (answers[-1].remark or "")
        assert stranger.call(RequestCode.PUT_KV_CONFIG, PutKvConfigRequest("n", "k0", "short")).code == 0
