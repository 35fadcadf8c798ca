"""Sends that a slave hands on to its master: what goes out, what comes back, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from broker.requests import send_header
from perseid.base.machine import Closed, Frames, Opened
from perseid.broker.replication import forwards
from perseid.broker.replication.forwards import MARK
from perseid.wire import command
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.command import Command

from .test_manager import OTHER, SEND, Controlled, master

MASTER_CONN = 900


def slave(root: Path, *, forward: bool = True) -> Controlled:
    """One whose master, OTHER, is connected."""
    made = Controlled(root)
    made.registered([2], epoch=1, master=2, set_epoch=1)
    made.wait(300)
    broker = made.rig.broker
    assert broker.parts.roles.is_slave and not made.manager.role.fenced
    broker.parts.settings.current = replace(broker.parts.settings.current, forward_sends_to_master=forward)
    return made


def handed_on(made: Controlled) -> list[Command]:
    """What the master was sent, once it is connected."""
    rig = made.rig
    while OTHER in rig.dialled:
        rig.dialled.remove(OTHER)
        rig.handle(Opened(MASTER_CONN, OTHER, "10.0.0.1:6", "", OTHER))
    found = [one for one in rig.sent.get(MASTER_CONN, []) if one.code in (Code.SEND_MESSAGE_V2, Code.SEND_MESSAGE)]
    rig.sent[MASTER_CONN] = []
    return found


def until_dialled(made: Controlled) -> None:
    """The dial may have to wait for a failed one's pause."""
    for _ in range(100):
        if OTHER in made.rig.dialled:
            return
        made.rig.until(made.rig.now + 50)
    raise AssertionError("the master was not dialled")


def test_a_send_goes_to_the_master_and_its_answer_comes_back(tmp_path: Path) -> None:
    made = slave(tmp_path)
    opaque = made.rig.tell(*SEND)
    assert made.rig.answer(opaque) is None
    until_dialled(made)
    (sent,) = handed_on(made)
    assert sent.ext == {**command.decode_all(command.encode_request(310, 1, send_header()))[0].ext, MARK: "1"}
    assert bytes(sent.body) == b"hello"
    answer = command.encode_response(sent.opaque, 0, {"msgId": "AB", "queueId": "1", "queueOffset": "77"})
    made.rig.handle(Frames(MASTER_CONN, answer))
    found = made.rig.answer(opaque)
    assert found is not None and found.code == 0 and found.ext["queueOffset"] == "77"
    refused = made.rig.tell(*SEND)
    (sent,) = handed_on(made)
    made.rig.handle(Frames(MASTER_CONN, command.encode_response(sent.opaque, 14, remark="not here")))
    found = made.rig.answer(refused)
    assert found is not None and (found.code, found.remark) == (14, "not here")
    made.rig.broker.validate()


def test_without_an_answer_nobody_knows_what_became_of_it(tmp_path: Path) -> None:
    made = slave(tmp_path)
    opaque = made.rig.tell(*SEND)
    until_dialled(made)
    assert len(handed_on(made)) == 1
    made.rig.handle(Closed(MASTER_CONN, "it died"))
    found = made.rig.answer(opaque)
    assert found is not None and found.code == ResponseCode.SYSTEM_BUSY and OTHER in str(found.remark)


def test_a_send_is_handed_on_once(tmp_path: Path) -> None:
    made = slave(tmp_path)
    code, header, body = SEND
    again = command.decode_all(command.encode_request(code, 1, header))[0].ext | {MARK: "3"}
    found = made.rig.ask(code, again, body)
    assert found.code == ResponseCode.SYSTEM_BUSY and "is a slave here" in str(found.remark)


def test_it_has_to_be_wanted(tmp_path: Path) -> None:
    made = slave(tmp_path, forward=False)
    assert made.rig.ask(*SEND).code == ResponseCode.SYSTEM_BUSY


def test_a_master_stores_what_was_handed_on(tmp_path: Path) -> None:
    made = master(tmp_path)
    code, header, body = SEND
    assert made.rig.ask(code, command.decode_all(command.encode_request(code, 1, header))[0].ext | {MARK: "2"}, body)
    assert made.rig.parts.store.log.end > 0


def test_no_more_than_so_many_are_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwards, "MAX_WAITING", 1)
    made = slave(tmp_path)
    first = made.rig.tell(*SEND)
    assert made.rig.ask(*SEND).code == ResponseCode.SYSTEM_BUSY
    made.rig.until(made.rig.now + 5_000)
    assert made.rig.answer(first) is not None, "a deadline ends it"
    opaque = made.rig.tell(*SEND)
    assert made.rig.answer(opaque) is None, "there is room again"
