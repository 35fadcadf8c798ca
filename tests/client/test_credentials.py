"""Signatures: vectors computed by the released Java 5.5.0 classes."""

import pytest

from perseid.client import Credentials, Message, Producer, Session
from perseid.wire.headers.namesrv import GetRouteInfoByTopicRequest

from .fake import FakeServer, run

PULL = {
    "consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "2",
    "commitOffset": "0", "suspendTimeoutMillis": "15000", "subVersion": "0",
}  # fmt: skip


def test_a_header_is_signed_as_java_does() -> None:
    signed = Credentials("RocketMQ", "12345678").sign(GetRouteInfoByTopicRequest(topic="TopicTest"), b"")
    assert signed == {"topic": "TopicTest", "AccessKey": "RocketMQ", "Signature": "0jiwhsaYp5ObE5GObbZH1I8/FT4="}


def test_a_security_token_is_part_of_the_signed_text() -> None:
    signed = Credentials("ak", "sk", "tok").sign(PULL, b"")
    assert (signed["SecurityToken"], signed["Signature"]) == ("tok", "4SfXm7P2RPLZoz1lxftMRUU5AD8=")


def test_the_secret_does_not_show() -> None:
    assert "12345678" not in repr(Credentials("RocketMQ", "12345678", "token-5"))


@pytest.mark.parametrize("header", [None, {}])
def test_a_request_without_fields_is_signed_too(header: dict[str, str | None] | None) -> None:
    assert set(Credentials("a", "b").sign(header, b"body")) == {"AccessKey", "Signature"}


def test_all_requests_of_a_session_are_signed() -> None:
    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            session = Session(server.address, credentials=Credentials("user", "key"))
            async with Producer(session=session) as producer:
                await producer.send(Message("t", b"x"))
                await producer.send_oneway(Message("t", b"y"))
                await server.until(lambda: len(server.bodies("t")) == 2)
            assert all(command.ext["AccessKey"] == "user" and command.ext["Signature"] for command in server.seen)

    run(test())
