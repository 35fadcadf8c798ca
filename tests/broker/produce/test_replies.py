"""Request and reply in the broker: whom a reply is pushed to, and what its sender hears."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from broker.harness import NOW, Rig
from broker.requests import properties, send_header
from perseid.base.machine import Closed, Frames, Tick
from perseid.broker.clients import relays
from perseid.store.results import AppendRefused, PutStatus
from perseid.wire import command
from perseid.wire import properties as props
from perseid.wire.command import Command
from perseid.wire.headers.send import PushReplyMessageRequest, SendMessageResponse

REPLY, REPLY_V2, PUSH = 324, 325, 326
TOPIC = "C_REPLY_TOPIC"
REQUESTER, REPLIER = 1, 2


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    beat(rig, REQUESTER, "asker")
    return rig


def beat(rig: Rig, client: int, client_id: str, group: str = "p") -> None:
    body = {"clientID": client_id, "consumerDataSet": [], "producerDataSet": [{"groupName": group}]}
    assert rig.ask(34, None, json.dumps(body).encode(), client=client).code == 0


def reply(rig: Rig, to: str | None = "asker", body: bytes = b"four", code: int = REPLY_V2, **fields: Any) -> int:
    pairs = {"CORRELATION_ID": "c1", "MSG_TYPE": "reply", "UNIQ_KEY": "R1"}
    if to is not None:
        pairs["REPLY_TO_CLIENT"] = to
    header = replace(send_header(topic=TOPIC, properties=properties(**pairs)), **fields)
    if code == REPLY:
        header = {  # type: ignore[assignment]
            "producerGroup": "p", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
            "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": header.properties,
        }  # fmt: skip
    return rig.tell(code, header, body, client=REPLIER)


def pushed(rig: Rig) -> Command:
    (push,) = rig.told(REQUESTER, PUSH)
    return push


def respond(rig: Rig, push: Command, code: int = 0, client: int = REQUESTER) -> None:
    remark = None if code == 0 else "no"
    rig.handle(Frames(client, command.encode_response(push.opaque, code, None, b"", remark=remark)))


@pytest.mark.parametrize("code", [REPLY, REPLY_V2])
def test_a_reply_reaches_who_asked_and_is_stored(rig: Rig, code: int) -> None:
    opaque = reply(rig, code=code)
    push = pushed(rig)
    header = push.header(PushReplyMessageRequest)
    assert (header.topic, header.born_host, header.store_host) == (TOPIC, "10.0.0.2:5000", "127.0.0.1:10911")
    assert header.store_timestamp == NOW and bytes(push.body) == b"four"
    found = props.decode(header.properties)
    assert (found["CORRELATION_ID"], found["REPLY_TO_CLIENT"], found["PUSH_REPLY_TIME"]) == ("c1", "asker", str(NOW))
    assert rig.answer(opaque, REPLIER) is None, "it waits for who asked"
    respond(rig, push)
    answer = rig.answer(opaque, REPLIER)
    assert answer is not None and answer.code == 0
    assert answer.header(SendMessageResponse).queue_offset == 0 and answer.ext["MSG_REGION"] == "DefaultRegion"
    assert rig.parts.store.reads.max_offset(TOPIC, 0) == 1
    stored = rig.parts.store.reads.record(TOPIC, 0, 0)
    assert stored is not None and b"CORRELATION_ID" in bytes(stored) and b"PUSH_REPLY_TIME" not in bytes(stored)


def test_a_reply_that_is_not_to_be_stored(tmp_path: Path) -> None:
    rig = Rig(tmp_path, store_reply_message_enable=False)
    beat(rig, REQUESTER, "asker")
    opaque = reply(rig)
    respond(rig, pushed(rig))
    answer = rig.answer(opaque, REPLIER)
    assert answer is not None and answer.header(SendMessageResponse).msg_id == "0"
    assert rig.parts.store.reads.max_offset(TOPIC, 0) == 0


def test_a_log_that_takes_nothing_does_not_hold_a_reply_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise AppendRefused(PutStatus.SERVICE_NOT_AVAILABLE, "full")

    monkeypatch.setattr(rig.parts.store.appends, "append", full)
    opaque = reply(rig)
    respond(rig, pushed(rig))
    answer = rig.answer(opaque, REPLIER)
    assert answer is not None and (answer.code, answer.ext["msgId"]) == (0, "0")


@pytest.mark.parametrize(("to", "why"), [("stranger", "<stranger> not found"), (None, "[REPLY_TO_CLIENT] is null")])
def test_nobody_to_reply_to(rig: Rig, to: str | None, why: str) -> None:
    answer = rig.answer(reply(rig, to), REPLIER)
    assert answer is not None and answer.code == 1 and why in (answer.remark or "")


def test_who_asked_does_not_want_it(rig: Rig) -> None:
    opaque = reply(rig)
    respond(rig, pushed(rig), code=1)
    answer = rig.answer(opaque, REPLIER)
    assert answer is not None and answer.code == 1 and "it answered 1: no" in (answer.remark or "")


def test_who_asked_goes_away_meanwhile(rig: Rig) -> None:
    opaque = reply(rig)
    rig.handle(Closed(REQUESTER, "gone"))
    answer = rig.answer(opaque, REPLIER)
    assert answer is not None and answer.code == 1 and "the connection was lost: gone" in (answer.remark or "")
    late = rig.answer(reply(rig), REPLIER)
    assert late is not None and "not found" in (late.remark or "")


def test_who_asked_is_silent(rig: Rig) -> None:
    opaque = reply(rig)
    rig.until(NOW + relays.TIMEOUT_MS - 1)
    assert rig.answer(opaque, REPLIER) is None
    rig.now += 1
    rig.handle(Tick())
    answer = rig.answer(opaque, REPLIER)
    assert answer is not None and answer.code == 1 and "no answer in time" in (answer.remark or "")
    respond(rig, pushed(rig))
    assert rig.answer(opaque, REPLIER) is answer, "once"


def test_the_replier_goes_away_meanwhile(rig: Rig) -> None:
    reply(rig)
    rig.leave(REPLIER)
    respond(rig, pushed(rig))
    assert rig.parts.caller.pending == 0


def test_another_connection_can_not_answer_for_it(rig: Rig) -> None:
    opaque = reply(rig)
    respond(rig, pushed(rig), client=REPLIER)
    assert rig.answer(opaque, REPLIER) is None


def test_a_oneway_reply_is_pushed_too(rig: Rig) -> None:
    header = send_header(topic=TOPIC, properties=properties(CORRELATION_ID="c1", REPLY_TO_CLIENT="asker"))
    rig.tell(REPLY_V2, header, b"x", client=REPLIER, oneway=True)
    respond(rig, pushed(rig))
    assert not rig.sent.get(REPLIER)


def test_so_many_relays_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "MAX_UNDER_WAY", 2)
    waiting = [reply(rig), reply(rig)]
    answer = rig.answer(reply(rig), REPLIER)
    assert answer is not None and answer.code == 1 and "wait for their answers already" in (answer.remark or "")
    assert [rig.answer(one, REPLIER) for one in waiting] == [None, None]


@pytest.mark.parametrize(
    ("fields", "body", "code", "why"),
    [
        ({}, b"", 1, "empty"),
        ({}, bytes(5 << 20), 13, "bytes"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, b"x", 16, "forbidden"),
        ({"topic": "a b"}, b"x", 29, "characters"),
        ({"topic": ""}, b"x", 29, "blank"),
        ({"queue_id": 99}, b"x", 29, "queueId[99] is illegal"),
        ({"topic": "new", "default_topic": "none"}, b"x", 17, "not exist"),
    ],
)
def test_replies_that_can_not_be(rig: Rig, fields: dict[str, Any], body: bytes, code: int, why: str) -> None:
    answer = rig.answer(reply(rig, "asker", body, **fields), REPLIER)
    assert answer is not None and answer.code == code and why in (answer.remark or "")
    assert rig.told(REQUESTER, PUSH) == []


def test_a_producer_is_found_by_the_id_that_it_has_now(rig: Rig) -> None:
    beat(rig, 3, "other")
    beat(rig, 3, "renamed", group="second")
    producers = rig.parts.producers
    producers.validate()
    assert producers.find("other") is None
    found = producers.find("renamed")
    assert found is not None and found.conn == 3
    beat(rig, 4, "renamed")
    rig.leave(3)
    producers.validate()
    found = producers.find("renamed")
    assert found is not None and found.conn == 4, "who was heard last"
    rig.leave(4)
    assert producers.find("renamed") is None
    producers.validate()


def test_a_slave_takes_no_replies(tmp_path: Path) -> None:
    rig = Rig(tmp_path, broker_role="SLAVE", broker_id=1)
    answer = rig.answer(reply(rig), REPLIER)
    assert answer is not None and answer.code == 2 and "slave" in (answer.remark or "")
