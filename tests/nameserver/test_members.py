"""A name server that asks for signatures: strangers read a topic's route, and change nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest

from perseid.base.machine import Connect, Frames, Opened, SaveState, Shutdown, Tick, Write
from perseid.nameserver.routes import ROUTES
from perseid.security.audit import Journal
from perseid.security.credentials import Credentials
from perseid.security.members import Asks, Members
from perseid.security.users import SUPER, User
from perseid.wire.codes import RequestCode as Code
from perseid.wire.command import decode
from perseid.wire.hashing import crc32

from .harness import Server, frame, topics

INNER, ROOT = Credentials("nodes", "nodes-secret"), Credentials("root", "root-secret")
FIELDS = {
    "brokerName": "a", "brokerAddr": "1.1.1.1:1", "clusterName": "C", "haServerAddr": "1.1.1.1:2", "brokerId": "0",
    "topic": "T", "namespace": "N", "key": "K", "value": "V", "cluster": "C",
}  # fmt: skip
"""Enough for each request."""
STRANGERS = [None, Credentials("mallory", "x"), Credentials("nodes", "a guess")]


def secured(**config: Any) -> Server:
    members = Members(INNER, User("root", "root-secret", SUPER), authenticates=True)
    server = Server(members=members, **config)
    body = topics("T", "U")
    assert ask(server, INNER, Code.REGISTER_BROKER, {**FIELDS, "bodyCrc32": str(crc32(body))}, body).code == 0
    assert ask(server, ROOT, Code.PUT_KV_CONFIG, FIELDS).code == 0
    return server


def ask(
    server: Server, by: Credentials | None, code: int, fields: Mapping[str, str], body: bytes = b"", conn: int = 1
) -> Any:
    return server.ask(code, {**(by.sign(fields, body) if by else fields)}, body, conn=conn)


def state(server: Server) -> object:
    tables = server.node.tables
    rows = tables.topics, tables.brokers, tables.clusters, tables.live
    return copy.deepcopy((repr(rows), server.node.kv.dump(), server.node.config, server.saved))


@pytest.mark.parametrize("by", STRANGERS, ids=["unsigned", "unknown", "wrong secret"])
@pytest.mark.parametrize("code", sorted({*ROUTES, 99_999} - {Code.GET_ROUTEINFO_BY_TOPIC}))
def test_a_stranger_is_refused_and_changes_nothing(code: int, by: Credentials | None) -> None:
    server = secured()
    before = state(server)
    body = b"orderMessageEnable=true" if code == Code.UPDATE_NAMESRV_CONFIG else topics("X", "Y")
    answer = ask(server, by, code, {**FIELDS, "bodyCrc32": str(crc32(body))}, body, conn=9)
    assert answer.code == 16 and not answer.body and answer.remark
    assert state(server) == before


@pytest.mark.parametrize("by", [INNER, ROOT], ids=["a node", "the initial user"])
def test_members_are_served(by: Credentials) -> None:
    for code in sorted(ROUTES):
        body = b"" if code == Code.UPDATE_NAMESRV_CONFIG else topics("X", "Y")
        answer = ask(secured(), by, code, {**FIELDS, "bodyCrc32": str(crc32(body))}, body)
        assert answer.code != 16, (code, answer.remark)


def test_a_topics_route_is_for_everybody_whatever_it_is_signed_with() -> None:
    server = secured()
    for by in (*STRANGERS, INNER):
        assert ask(server, by, Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).code == 0
    assert [code for code, route in ROUTES.items() if route.asks is Asks.NOTHING] == [Code.GET_ROUTEINFO_BY_TOPIC]


def test_a_strangers_one_way_request_does_nothing_and_has_no_answer() -> None:
    server = secured()
    before = state(server)
    data = frame(Code.UNREGISTER_BROKER, FIELDS, b"", 513, flag=2)
    assert not [one for one in server.feed(Frames(9, data)) if isinstance(one, Write | SaveState)]
    assert state(server) == before


def test_what_brokers_are_told_is_signed() -> None:
    server = secured(support_acting_master=True, notify_min_broker_id_changed=True)
    for number in (0, 1):
        body = topics("T", "U")
        fields = {**FIELDS, "brokerName": "g", "brokerId": str(number), "brokerAddr": f"1.1.1.2:{number + 1}",
                  "enableActingMaster": "true", "bodyCrc32": str(crc32(body))}  # fmt: skip
        assert ask(server, INNER, Code.REGISTER_BROKER, fields, body, conn=number + 2).code == 0
    fields = {"brokerName": "g", "brokerId": "0", "brokerAddr": "1.1.1.2:1", "clusterName": "C"}
    assert ask(server, INNER, Code.UNREGISTER_BROKER, fields).code == 0
    (dial,) = [one for one in server.effects if isinstance(one, Connect)]
    (told,) = [one for one in server.feed(Opened(50, dial.address, "", "", dial.address)) if isinstance(one, Write)]
    assert isinstance(told.data, bytes)
    notice = decode(told.data)
    fields = {key: value for key, value in notice.ext.items() if key not in ("AccessKey", "Signature")}
    assert notice.code == Code.NOTIFY_MIN_BROKER_ID_CHANGE
    assert notice.ext == INNER.sign(fields, notice.body)


def test_what_people_ask_and_what_is_refused_is_written_down_and_what_nodes_do_is_not() -> None:
    written: list[bytes] = []
    user = User("root", "root-secret", SUPER)
    server = Server(members=Members(INNER, user, authenticates=True, journal=Journal(written.append, 2)))
    body = topics("T", "U")
    assert ask(server, INNER, Code.REGISTER_BROKER, {**FIELDS, "bodyCrc32": str(crc32(body))}, body).code == 0
    assert ask(server, ROOT, Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).code == 0
    assert not written
    ask(server, ROOT, Code.PUT_KV_CONFIG, {"namespace": "N", "key": "K", "value": "V"})
    for _ in range(5):
        ask(server, STRANGERS[1], Code.PUT_KV_CONFIG, FIELDS)
    server.node.handle(Shutdown(), server.node.now)
    lines = [json.loads(line) for line in written]
    assert [(line["allowed"], line.get("user"), line.get("code")) for line in lines] == [
        (True, "root", "PUT_KV_CONFIG"), *[(False, "mallory", "PUT_KV_CONFIG")] * 2, (False, None, None),
    ]  # fmt: skip
    assert lines[0]["fields"] == {"namespace": "N", "key": "K", "value": "V"} and "fields" not in lines[1]
    assert lines[1]["why"] == "User:mallory is not found." and lines[-1]["leftOut"] == 3
    assert not [line for line in written if b"secret" in line or b"Signature" in line]


def test_how_many_had_no_line_is_said_when_their_second_is_over() -> None:
    written: list[bytes] = []
    server = Server(members=Members(INNER, authenticates=True, journal=Journal(written.append, 1)))
    for _ in range(3):
        ask(server, None, Code.GET_NAMESRV_CONFIG, {})
    due = server.node.next_deadline()
    assert due is not None and due <= server.node.now + 1_000
    server.node.handle(Tick(), due)
    assert [json.loads(line).get("leftOut") for line in written] == [None, 2]
    assert server.node.next_deadline() is None
