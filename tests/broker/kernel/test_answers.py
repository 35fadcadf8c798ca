"""Replies as frames."""

from __future__ import annotations

import pytest

from perseid.broker.config import BrokerConfig
from perseid.broker.kernel.answers import GATHER_BYTES, Answers
from perseid.broker.kernel.request import Connection, Reply, Request
from perseid.wire.codes import Serializer
from perseid.wire.command import MAX_REMARK_BYTES, Command, decode, encode_request
from perseid.wire.headers.send import SendMessageResponse


@pytest.fixture
def answers() -> Answers:
    return Answers(BrokerConfig(broker_cluster_name="C", region_id="r", trace_on=False))


def request(serializer: Serializer = Serializer.JSON) -> Request:
    return Request(Connection(1, "", ""), decode(encode_request(11, 42, serializer=serializer)), None)


def encoded(answers: Answers, reply: Reply, serializer: Serializer = Serializer.JSON) -> Command:
    return decode(b"".join(answers.encode(request(serializer), reply)))


def test_what_the_broker_adds(answers: Answers) -> None:
    assert answers.own_properties == {"MSG_REGION": "r", "TRACE_ON": "false", "CLUSTER": "C"}
    assert answers.refused_send == {"MSG_REGION": "r", "TRACE_ON": "false"}
    sent = answers.sent("ID", 3, 9, "U")
    assert sent == SendMessageResponse(
        msg_id="ID", queue_id=3, queue_offset=9, transaction_id="U", msg_region="r", trace_on=False
    )


@pytest.mark.parametrize("serializer", list(Serializer))
def test_all_parts_of_a_reply(answers: Answers, serializer: Serializer) -> None:
    command = encoded(answers, Reply(19, {"a": "1"}, b"body", "why"), serializer)
    assert (command.opaque, command.code, command.remark, bytes(command.body)) == (42, 19, "why", b"body")
    assert command.ext == {"a": "1"} and command.serializer == serializer and command.is_response


def test_small_pieces_are_joined_and_large_ones_are_not(answers: Answers) -> None:
    small = [memoryview(b"a" * 10), memoryview(b"b" * 20)]
    (one,) = answers.encode(request(), Reply(buffers=small))
    assert bytes(decode(one).body) == b"a" * 10 + b"b" * 20
    large = memoryview(bytes(GATHER_BYTES))
    pieces = answers.encode(request(), Reply(buffers=[small[0], large]))
    assert len(pieces) == 3 and pieces[2] is large, "not copied"
    assert len(decode(b"".join(pieces)).body) == GATHER_BYTES + 10


def test_remarks_have_a_limit(answers: Answers) -> None:
    assert encoded(answers, Reply(1, remark="x" * MAX_REMARK_BYTES)).remark == "x" * MAX_REMARK_BYTES
    assert encoded(answers, Reply(1, remark="x" * (MAX_REMARK_BYTES + 1))).remark == "x" * MAX_REMARK_BYTES + "…"


def test_a_code_that_a_binary_header_cannot_say(answers: Answers) -> None:
    command = encoded(answers, Reply(200_000), Serializer.ROCKETMQ)
    assert command.code == 1 and "200000" in (command.remark or "")
