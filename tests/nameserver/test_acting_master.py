"""The name server's part of slaves that act for their master: who is shown as it, who hears of it, and what it takes
from brokers that send nonsense."""

from __future__ import annotations

from typing import Any

import pytest

from perseid.base.machine import Connect
from perseid.wire.codes import RequestCode as Code

from .harness import Server, three_replicas, topics

MEMBERS = {"0": "1.1.1.1:0", "1": "1.1.1.1:1", "2": "1.1.1.1:2"}
SILENT_MS = 15_000
"""Ten seconds, and the scan after them."""


def members(server: Server, name: str = "g", cluster: str = "C") -> Any:
    return server.json(Code.GET_BROKER_MEMBER_GROUP, {"clusterName": cluster, "brokerName": name})


def addresses(server: Server, topic: str = "T") -> dict[str, str]:
    route = server.route(topic)
    assert route is not None
    found: dict[str, str] = route["brokerDatas"][0]["brokerAddrs"]
    return found


def beat(server: Server, *ids: int, code: int = Code.BROKER_HEARTBEAT) -> None:
    """Life signs of some replicas."""
    for broker_id in ids:
        ext = {"brokerName": "g", "brokerAddr": f"1.1.1.1:{broker_id}", "clusterName": "C", "brokerId": broker_id}
        assert server.ask(code, ext, b"{}", conn=broker_id + 1).code == 0


def dialled(server: Server) -> list[str]:
    return [effect.address for effect in server.effects if isinstance(effect, Connect)]


def test_the_members_of_a_set() -> None:
    server = three_replicas()
    wanted = {"cluster": "C", "brokerName": "g", "brokerAddrs": MEMBERS}
    assert members(server) == {"brokerMemberGroup": wanted}
    assert members(server, "nobody")["brokerMemberGroup"]["brokerAddrs"] == {}


@pytest.mark.parametrize("code", [Code.BROKER_HEARTBEAT, Code.QUERY_DATA_VERSION])
def test_a_master_that_falls_silent_is_acted_for_and_comes_back(code: int) -> None:
    server = three_replicas(notify_min_broker_id_changed=True, heartbeat_ms=10_000)
    server.effects.clear()
    for _ in range(SILENT_MS // 1_000):
        server.pass_time(1_000)
        beat(server, 1, 2, code=code)
    assert addresses(server) == {"0": "1.1.1.1:1", "2": "1.1.1.1:2"}
    assert server.perm("T", "g") == server.perm("U", "g") == 4
    assert dialled(server) == ["1.1.1.1:1", "1.1.1.1:2"]
    assert members(server)["brokerMemberGroup"]["brokerAddrs"] == {"1": "1.1.1.1:1", "2": "1.1.1.1:2"}
    server.register("g", "1.1.1.1:0", 0, topics("T", "U"), conn=9, enableActingMaster="true")
    assert addresses(server) == MEMBERS
    assert server.perm("T", "g") == server.perm("U", "g") == 6, "it may be written to again"


def test_the_next_one_acts_when_the_acting_one_goes_too() -> None:
    server = three_replicas(notify_min_broker_id_changed=True)
    server.unregister("g", "1.1.1.1:0", 0)
    server.unregister("g", "1.1.1.1:1", 1)
    assert addresses(server) == {"0": "1.1.1.1:2"}
    server.register("g", "1.1.1.1:1", 1, topics("T", "U"), conn=2, enableActingMaster="true")
    assert addresses(server) == {"0": "1.1.1.1:1", "2": "1.1.1.1:2"}
    assert server.perm("T", "g") == 4


def test_a_slave_that_is_not_the_smallest_changes_nothing_and_nobody_is_told() -> None:
    server = three_replicas(notify_min_broker_id_changed=True)
    server.effects.clear()
    server.unregister("g", "1.1.1.1:2", 2)
    assert (dialled(server), server.perm("T", "g"), addresses(server)["0"]) == ([], 6, "1.1.1.1:0")


def test_a_set_that_was_not_registered_for_it_has_no_acting_master() -> None:
    server = Server(support_acting_master=True, notify_min_broker_id_changed=True)
    for broker_id in (0, 1):
        server.register("g", f"1.1.1.1:{broker_id}", broker_id, topics("T", "U"), conn=broker_id + 1)
    server.effects.clear()
    server.unregister("g", "1.1.1.1:0", 0)
    assert (addresses(server), server.perm("T", "g"), dialled(server)) == ({"1": "1.1.1.1:1"}, 6, [])


def test_without_the_settings_routes_stay_as_they_are_and_nobody_is_told() -> None:
    server = three_replicas(support_acting_master=False)
    server.effects.clear()
    server.unregister("g", "1.1.1.1:0", 0)
    assert addresses(server) == {"1": "1.1.1.1:1", "2": "1.1.1.1:2"}
    assert dialled(server) == []


def test_brokers_that_ask_by_a_topic_are_shown_who_there_really_is() -> None:
    """compatibleWithOldNameSrv: the route of a topic stands for code 901."""
    server = Server(support_acting_master=True)
    topic = "rmq_sys_SYNC_BROKER_MEMBER_g"
    for broker_id in (0, 1):
        body = topics("T", topic, perm=1)
        server.register("g", f"1.1.1.1:{broker_id}", broker_id, body, conn=broker_id + 1, enableActingMaster="true")
    server.unregister("g", "1.1.1.1:0", 0)
    assert addresses(server, topic) == {"1": "1.1.1.1:1"}


# ---- bad input ----

BAD = {"missing": None, "empty": "", "negative": "-1", "huge": "9" * 30, "of the wrong type": "{x}"}
GOOD: dict[int, dict[str, str]] = {
    Code.GET_BROKER_MEMBER_GROUP: {"clusterName": "C", "brokerName": "g"},
    Code.BROKER_HEARTBEAT: {"clusterName": "C", "brokerName": "g", "brokerAddr": "1.1.1.1:0", "brokerId": "0"},
    Code.QUERY_DATA_VERSION: {"clusterName": "C", "brokerName": "g", "brokerAddr": "1.1.1.1:0", "brokerId": "0"},
    Code.UNREGISTER_BROKER: {"clusterName": "C", "brokerName": "h", "brokerAddr": "1.1.1.2:0", "brokerId": "0"},
    Code.REGISTER_BROKER: {
        "clusterName": "C", "brokerName": "h", "brokerAddr": "1.1.1.2:0", "brokerId": "0", "haServerAddr": "1.1.1.2:1",
        "heartbeatTimeoutMillis": "10000", "enableActingMaster": "true",
    },
}  # fmt: skip


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize(("code", "field"), [(code, field) for code, ext in GOOD.items() for field in ext])
def test_a_field_that_makes_no_sense_harms_no_set(code: int, field: str, value: str) -> None:
    """Refused or taken, always answered; the set `g` is what it was."""
    server = three_replicas(notify_min_broker_id_changed=True)
    ext = {name: text for name, text in GOOD[code].items() if name != field}
    if BAD[value] is not None:
        ext[field] = str(BAD[value])
    reply = server.ask(code, ext, topics("V", "W") if code == Code.REGISTER_BROKER else b"", conn=77)
    assert reply.code in (0, 1), reply.remark
    assert addresses(server) == MEMBERS and server.perm("T", "g") == 6


@pytest.mark.parametrize("body", [b"", b"[", b"7", b"{}", b'{"brokerAddrs":{}}', b"\xff" * 40])
def test_a_body_that_makes_no_sense_harms_no_set(body: bytes) -> None:
    server = three_replicas()
    for code, ext in GOOD.items():
        assert server.ask(code, ext, body, conn=77).code in (0, 1)
    assert addresses(server) == MEMBERS
