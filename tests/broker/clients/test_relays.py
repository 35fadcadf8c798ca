"""What operators ask of consumers through the broker."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from broker.harness import NOW, Rig
from perseid.base.machine import Closed, Frames
from perseid.broker.clients import relays
from perseid.wire import command, fastjson
from perseid.wire.bodies import GetConsumerStatusBody, MessageQueue, ResetOffsetBody, ResetOffsetBodyForC
from perseid.wire.command import Command
from perseid.wire.headers.clients import ConsumeMessageDirectlyRequest, GetConsumerRunningInfoRequest
from perseid.wire.headers.offsets import GetConsumerStatusRequest, ResetOffsetRequest
from perseid.wire.record import decode

ADMIN, FIRST, SECOND = 9, 1, 2
RUNNING_INFO, DIRECTLY, STATUS, ASK_STATUS, RESET, TELL_RESET = 307, 309, 223, 221, 222, 220


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    for _ in range(3):
        rig.send("T")
    consume(rig, FIRST)
    return rig


def consume(rig: Rig, client: int, group: str = "g") -> None:
    data = {"groupName": group, "subscriptionDataSet": [{"topic": "T", "subString": "*"}]}
    body = {"clientID": f"c{client}", "consumerDataSet": [data], "producerDataSet": []}
    assert rig.ask(34, None, json.dumps(body).encode(), client=client).code == 0


def asked(rig: Rig, client: int, code: int) -> Command:
    (found,) = rig.told(client, code)
    return found


def respond(rig: Rig, client: int, request: Command, body: bytes, code: int = 0, remark: str | None = None) -> None:
    rig.handle(Frames(client, command.encode_response(request.opaque, code, None, body, remark=remark)))


def running_info(rig: Rig, client_id: str = "c1", group: str = "g") -> int:
    header = GetConsumerRunningInfoRequest(consumer_group=group, client_id=client_id, jstack_enable=True)
    return rig.tell(RUNNING_INFO, header, client=ADMIN)


# ---- one consumer ----


def test_a_consumer_says_what_it_does(rig: Rig) -> None:
    opaque = running_info(rig)
    question = asked(rig, FIRST, RUNNING_INFO)
    assert question.ext["jstackEnable"] == "true" and question.ext["clientId"] == "c1"
    assert rig.answer(opaque, ADMIN) is None
    respond(rig, FIRST, question, b'{"properties":{}}')
    answer = rig.answer(opaque, ADMIN)
    assert answer is not None and (answer.code, bytes(answer.body)) == (0, b'{"properties":{}}')


def test_what_the_consumer_refuses_is_refused(rig: Rig) -> None:
    opaque = running_info(rig)
    respond(rig, FIRST, asked(rig, FIRST, RUNNING_INFO), b"", 1, "not mine")
    answer = rig.answer(opaque, ADMIN)
    assert answer is not None and (answer.code, answer.remark) == (1, "not mine")


@pytest.mark.parametrize(("client_id", "group"), [("c9", "g"), ("c1", "other"), ("", ""), ("x" * 20_000, "g")])
def test_a_consumer_that_is_not_there(rig: Rig, client_id: str, group: str) -> None:
    answer = rig.answer(running_info(rig, client_id, group), ADMIN)
    assert answer is not None and answer.code == 1 and "The Consumer <" in (answer.remark or "")


def test_a_consumer_that_is_silent_or_goes(rig: Rig) -> None:
    silent = running_info(rig)
    rig.until(NOW + relays.TIMEOUT_MS + 1)
    answer = rig.answer(silent, ADMIN)
    assert answer is not None and answer.code == 207 and "Timeout" in (answer.remark or "")
    gone = running_info(rig)
    rig.handle(Closed(FIRST, "reset by peer"))
    answer = rig.answer(gone, ADMIN)
    assert answer is not None and answer.code == 1 and "reset by peer" in (answer.remark or "")


def test_a_consumer_that_is_too_old(rig: Rig) -> None:
    rig.parts.consumers.client("g", "c1").version = 61  # type: ignore[union-attr]
    answer = rig.answer(running_info(rig), ADMIN)
    assert answer is not None and answer.code == 1 and "too low" in (answer.remark or "")


def test_a_consumer_is_given_one_message(rig: Rig) -> None:
    sent = rig.send("T", body=b"this one", properties="UNIQ_KEY\x01U\x02")
    rig.parts.topics.rows["T"].topic_sys_flag = 2
    header = ConsumeMessageDirectlyRequest(consumer_group="g", client_id="c1", msg_id=sent.msg_id, topic="T")
    opaque = rig.tell(DIRECTLY, header, client=ADMIN)
    question = asked(rig, FIRST, DIRECTLY)
    assert (question.ext["brokerName"], question.ext["topicSysFlag"], question.ext["groupSysFlag"]) == ("b", "2", "0")
    assert decode(question.body).body == b"this one"
    respond(rig, FIRST, question, b'{"consumeResult":"CR_SUCCESS"}')
    answer = rig.answer(opaque, ADMIN)
    assert answer is not None and b"CR_SUCCESS" in bytes(answer.body)


@pytest.mark.parametrize(
    "msg_id", [None, "", "zz", "7F00000100002A9F00000000000FFFFF", "7F00000100002A9FFFFFFFFFFFFFFFFF", "0" * 9000]
)
def test_messages_that_are_not_there(rig: Rig, msg_id: str | None) -> None:
    header = ConsumeMessageDirectlyRequest(consumer_group="g", client_id="c1", msg_id=msg_id, topic="T")
    answer = rig.answer(rig.tell(DIRECTLY, header, client=ADMIN), ADMIN)
    assert answer is not None and answer.code == 1
    assert not rig.told(FIRST, DIRECTLY) and not rig.closed


# ---- all consumers of a group ----


def status(rig: Rig, client: str | None = None, group: str = "g") -> int:
    return rig.tell(STATUS, GetConsumerStatusRequest(topic="T", group=group, client_addr=client), client=ADMIN)


def table(offset: int) -> bytes:
    return GetConsumerStatusBody(message_queue_table={MessageQueue("T", "b", 0): offset}).to_json()


def test_the_offsets_of_all_members(rig: Rig) -> None:
    consume(rig, SECOND)
    opaque = status(rig)
    respond(rig, SECOND, asked(rig, SECOND, ASK_STATUS), table(2))
    assert rig.answer(opaque, ADMIN) is None
    respond(rig, FIRST, asked(rig, FIRST, ASK_STATUS), table(1))
    answer = rig.answer(opaque, ADMIN)
    assert answer is not None and answer.code == 0
    found = GetConsumerStatusBody.from_json(answer.body).consumer_table
    assert found == {"c1": {MessageQueue("T", "b", 0): 1}, "c2": {MessageQueue("T", "b", 0): 2}}


def test_the_offsets_of_one_member_and_of_nobody(rig: Rig) -> None:
    consume(rig, SECOND)
    opaque = status(rig, "c2")
    respond(rig, SECOND, asked(rig, SECOND, ASK_STATUS), table(2))
    assert not rig.told(FIRST, ASK_STATUS)
    answer = rig.answer(opaque, ADMIN)
    assert answer is not None and list(GetConsumerStatusBody.from_json(answer.body).consumer_table) == ["c2"]
    answer = rig.answer(status(rig, "c9"), ADMIN)
    assert answer is not None and GetConsumerStatusBody.from_json(answer.body).consumer_table == {}
    answer = rig.answer(status(rig, group="other"), ADMIN)
    assert answer is not None and answer.code == 1 and "No Any Consumer online" in (answer.remark or "")


def test_members_that_say_nothing_or_nonsense_are_left_out(rig: Rig) -> None:
    for client in (SECOND, 3):
        consume(rig, client)
    opaque = status(rig)
    respond(rig, FIRST, asked(rig, FIRST, ASK_STATUS), b"no JSON")
    respond(rig, SECOND, asked(rig, SECOND, ASK_STATUS), table(2))
    rig.until(NOW + 5_001)
    answer = rig.answer(opaque, ADMIN)
    assert answer is not None and list(GetConsumerStatusBody.from_json(answer.body).consumer_table) == ["c2"]
    assert any("can be read" in note.text for note in rig.notes)


# ---- resets that the clients carry out ----


def reset(rig: Rig, timestamp: int = -1, *, force: bool = True, group: str = "g", topic: str = "T") -> Command:
    header = ResetOffsetRequest(group=group, topic=topic, timestamp=timestamp, is_force=force, queue_id=-1)
    return rig.ask(RESET, header, client=ADMIN)


@pytest.fixture
def by_clients(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path, use_server_side_reset_offset=False)
    for _ in range(3):
        rig.send("T")
    consume(rig, FIRST)
    consume(rig, SECOND)
    for queue in range(4):
        header = {"consumerGroup": "g", "topic": "T", "queueId": str(queue), "commitOffset": "1" if queue == 0 else "0"}
        assert rig.ask(15, header).code == 0
    return rig


def test_clients_reset_their_offsets(by_clients: Rig) -> None:
    answer = reset(by_clients)
    wanted = {MessageQueue("T", "b", queue): 3 if queue == 0 else 0 for queue in range(4)}
    assert answer.code == 0 and ResetOffsetBody.from_json(answer.body).offset_table == wanted
    for client in (FIRST, SECOND):
        notice = asked(by_clients, client, TELL_RESET)
        assert notice.is_oneway and notice.header(ResetOffsetRequest).timestamp == -1
        assert ResetOffsetBody.from_json(notice.body).offset_table == wanted
    assert by_clients.parts.offsets.query("T", "g", 0) == 1, "the broker resets nothing itself"


def test_without_force_nobody_goes_ahead(by_clients: Rig) -> None:
    answer = reset(by_clients, force=False)
    assert set(ResetOffsetBody.from_json(answer.body).offset_table.values()) == {0, 1}
    back = reset(by_clients, 0, force=False)
    assert set(ResetOffsetBody.from_json(back.body).offset_table.values()) == {0}


def test_for_a_tool_in_cpp_the_table_is_a_list(by_clients: Rig) -> None:
    header = ResetOffsetRequest(group="g", topic="T", timestamp=-1, is_force=True)
    frame = command.encode_request(RESET, 7, header).replace(b'"PYTHON"', b'"CPP"')
    by_clients.connect(ADMIN)
    by_clients.handle(Frames(ADMIN, struct.pack(">II", len(frame) - 4, len(frame) - 8) + frame[8:]))
    rows = ResetOffsetBodyForC.from_json(asked(by_clients, FIRST, TELL_RESET).body).offset_table
    assert {(row.queue_id, row.offset) for row in rows} == {(0, 3), (1, 0), (2, 0), (3, 0)}


@pytest.mark.parametrize(
    ("fields", "code"), [({"topic": "none"}, 17), ({"group": "none"}, 1), ({"group": "committed"}, 206)]
)
def test_resets_that_can_not_be(by_clients: Rig, fields: dict[str, Any], code: int) -> None:
    if fields.get("group") == "committed":
        for queue in range(4):
            by_clients.parts.offsets.reset("T", "committed", queue, 1)
    assert reset(by_clients, **fields).code == code
    assert not by_clients.told(FIRST, TELL_RESET)


def test_fastjson_reads_what_was_told(by_clients: Rig) -> None:
    reset(by_clients)
    assert list(fastjson.loads(bytes(asked(by_clients, FIRST, TELL_RESET).body))) == ["offsetTable"]
