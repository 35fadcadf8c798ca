"""The conversation that was held with the original's controller, word for word (vectors.json)."""

import json
from pathlib import Path
from typing import Any

from tests.controller.harness import Client, Group

from perseid.wire import fastjson
from perseid.wire.codes import RequestCode

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())
OWN_WORDS = {"metadata", "getConfig"}
"""Answers that are compared in other tests: they name the group's addresses, and all settings."""


def said(body: Any) -> Any:
    return fastjson.loads(body) if body else None


def test_every_answer_is_the_originals() -> None:
    group = Group()
    cell = group.start()
    tools = Client(cell)
    brokers = {number: Client(cell) for number in (1, 2)}
    met = 0
    for step in VECTORS["exchange"]:
        call, ext, wanted = step["call"], step.get("ext"), step["resp"]
        if call == "after closing broker 2 channel":
            brokers.pop(2).close()
            answer = tools.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, {"brokerName": "broker-a"})
            assert (answer.ext, said(answer.body)) == (wanted["ext"], said(wanted["body"]))
            break
        if call in OWN_WORDS:
            continue
        body = step["body"]
        sent = b"" if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        ext = {key: "1700000000000" if value == "<ms>" else value for key, value in (ext or {}).items()}
        number = int(ext.get("brokerId", 0)) if call == "hb" else 0
        answer = brokers.get(number, tools).ask(step["code"], ext, sent)
        got = {"code": answer.code, "remark": answer.remark, "ext": answer.ext or {}, "body": said(answer.body)}
        assert got == wanted | {"ext": wanted["ext"] or {}, "body": said(wanted["body"])}, call
        met += 1
    else:
        raise AssertionError("the conversation never came to its end")
    assert met > 30


def test_notices_are_the_originals() -> None:
    group = Group()
    cell = group.start()
    tools, one, two = Client(cell), Client(cell), Client(cell)
    for step in VECTORS["exchange"]:
        if step["call"].startswith(("apply", "hb", "elect first", "alter ok", "elect designate 2 in ISR")):
            ext = {key: "1700000000000" if value == "<ms>" else value for key, value in step["ext"].items()}
            client = {1: one, 2: two}.get(int(ext.get("brokerId", 0)), tools) if step["call"] == "hb" else tools
            client.ask(step["code"], ext, json.dumps(step["body"]).encode() if step["body"] else b"")
        if step["call"] == "elect designate 2 in ISR":
            break
    wanted = [(one["header"]["extFields"], one["body"]) for one in VECTORS["notify1008"]]
    assert len(group.notices) == 4, "each of two brokers, twice"
    for to in ("127.0.0.1:21911", "127.0.0.1:21921"):
        got = [(command.ext, bytes(command.body).decode()) for at, command in group.notices if at == to]
        assert got == wanted
    assert all(command.is_oneway for _, command in group.notices)
