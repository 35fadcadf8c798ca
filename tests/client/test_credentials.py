"""Signatures: vectors computed by the released Java 5.5.0 classes."""

from pathlib import Path

import pytest

from perseid.client import ClientError, Credentials, Message, Producer, Session
from perseid.client.controller import ControllerClient
from perseid.client.credentials import credentials_here, read_credentials
from perseid.wire.codes import RequestCode
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


@pytest.mark.parametrize(
    "text",
    [
        "accessKey: me\nsecretKey: s3cret=:x\n",
        "# mine\n accessKey = 'me'\nsecretKey=\"s3cret=:x\"\n\nother: x",
        '{"accessKey": "me", "secretKey": "s3cret=:x"}',
    ],
)
def test_a_file_has_them_in_the_forms_that_people_have(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c"
    file.write_text(text)
    assert read_credentials(file) == Credentials("me", "s3cret=:x")


@pytest.mark.parametrize("text", ["", "accessKey: me\n", "secretKey: s3cret\n", '{"accessKey": 5', "x" * 20_000])
def test_a_file_without_them_is_named_and_nothing_of_it_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c"
    file.write_text(text)
    with pytest.raises(ClientError, match="write two lines into it") as told:
        read_credentials(file)
    assert str(file) in str(told.value) and "s3cret" not in str(told.value)


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="No such file"):
        read_credentials(tmp_path / "gone")
    (tmp_path / "c").write_bytes(b"\xff\xfe")
    with pytest.raises(ClientError, match="it is no text"):
        read_credentials(tmp_path / "c")


def test_a_file_that_others_may_read_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "c"
    file.write_text("accessKey: me\nsecretKey: s3cret\n")
    file.chmod(0o600)
    read_credentials(file)
    assert not caplog.records
    open_file = tmp_path / "open"
    open_file.write_text("accessKey: me\nsecretKey: s3cret\n")
    open_file.chmod(0o644)
    for _ in range(2):
        read_credentials(open_file)
    (line,) = caplog.messages
    assert f"chmod 600 {open_file}" in line and "s3cret" not in line


def test_the_environment_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert credentials_here() is None
    monkeypatch.setenv("PERSEID_ACCESS_KEY", "by-name")
    with pytest.raises(ClientError, match="go together"):
        credentials_here()
    monkeypatch.setenv("PERSEID_SECRET_KEY", "key")
    assert credentials_here() == Credentials("by-name", "key")
    file = tmp_path / "c"
    file.write_text("accessKey: by-file\nsecretKey: key\n")
    monkeypatch.setenv("PERSEID_CREDENTIALS", str(file))
    assert credentials_here() == Credentials("by-file", "key")


def test_clients_that_are_given_none_sign_with_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSEID_ACCESS_KEY", "user")
    monkeypatch.setenv("PERSEID_SECRET_KEY", "key")

    async def test() -> None:
        async with FakeServer({"t": 1}) as server:
            async with Producer(server.address) as producer, ControllerClient(server.address) as controllers:
                await producer.send(Message("t", b"x"))
                await controllers.status()
            asked = {command.code: command.ext for command in server.seen}
            assert {RequestCode.SEND_MESSAGE_V2, RequestCode.CONTROLLER_GET_METADATA_INFO} <= asked.keys()
            assert all(ext["AccessKey"] == "user" and ext["Signature"] for ext in asked.values())

    run(test())
