"""Frames that are short, long, or lie: their connection ends, every other one and every message lives on."""

import socket
from collections.abc import Iterator

import pytest

from perseid.wire.codes import RequestCode, ResponseCode, Serializer
from perseid.wire.command import encode_request

from .rig import Acknowledged, Peer, Up, send_header

PORTS = ("namesrv", "broker", "vip")
KNOWN = {
    "namesrv": RequestCode.GET_BROKER_CLUSTER_INFO,
    "broker": RequestCode.GET_BROKER_RUNTIME_INFO,
    "vip": RequestCode.GET_BROKER_RUNTIME_INFO,
}
"""A request without a header that each port answers with 0."""
NEEDS_TOPIC = {
    "namesrv": RequestCode.GET_ROUTEINFO_BY_TOPIC,
    "broker": RequestCode.GET_MAX_OFFSET,
    "vip": RequestCode.GET_MAX_OFFSET,
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Up(tmp_path_factory.mktemp("up")) as server:
        yield server
        assert server.end() == 0
        assert "Traceback" not in server.log.read_text()


@pytest.fixture(params=PORTS)
def port(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def at(up: Up, port: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """An address of the server. Around the test: a neighbour's connection, and messages that were acknowledged."""
    kept = Acknowledged("T" + "".join(c for c in request.node.name if c.isalnum())[-100:])
    kept.send(up.namesrv)
    where: str = getattr(up, port)
    with Peer(where) as neighbour:
        yield where
        assert neighbour.call(KNOWN[port]).code == 0
    kept.check(up.namesrv)


LYING = {
    "2 GB": b"\x7f\xff\xff\xff\0\0\0\x10",
    "one more than 16 MiB": b"\x01\0\0\x01\0\0\0\x10",
    "negative": b"\xff\xff\xff\xff",
    "nothing": b"\0\0\0\0",
    "less than its own header word": b"\0\0\0\x03\0\0\0",
    "header longer than the frame": b"\0\0\0\x08\0\0\0\x05{}{}",
    "serializer 7": b"\0\0\0\x08\x07\0\0\x02{}",
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}
"""What a frame claims about itself, as far as it has to be read to be refused."""


@pytest.mark.parametrize("lie", LYING.values(), ids=LYING.keys())
def test_a_frame_that_lies_about_itself(up: Up, at: str, lie: bytes) -> None:
    before = up.resident_bytes()
    with Peer(at) as peer:
        peer.send(lie)
        assert peer.ended()
    assert up.resident_bytes() - before < 16 << 20


HELLO = b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(506)
"""Of TLS: whole, so that it is answered at once, and without any cipher."""
MAX_ALERT_BYTES = 64


def test_a_hello_of_tls_that_offers_nothing(up: Up, at: str) -> None:
    before = up.resident_bytes()
    with Peer(at) as peer:
        peer.send(HELLO)
        assert peer.drain() <= MAX_ALERT_BYTES
    assert up.resident_bytes() - before < 16 << 20


def test_a_frame_that_is_cut_short(up: Up, at: str) -> None:
    whole = encode_request(KNOWN["namesrv" if at == up.namesrv else "broker"], 1)
    for length in range(1, len(whole)):
        with Peer(at) as peer:
            peer.send(whole[:length])
            peer.socket.shutdown(socket.SHUT_WR)
            assert peer.ended()


def test_a_frame_with_more_behind_it_than_it_says(port: str, at: str) -> None:
    with Peer(at) as peer:
        peer.send(encode_request(KNOWN[port], 7))
        assert peer.read().opaque == 7
        peer.send(encode_request(KNOWN[port], 8) + b"\xff and more")
        assert peer.ended()


BROKEN = {
    "empty JSON": b"",
    "not JSON": b"{code:}",
    "cut JSON": b'{"code":105,"opaque":',
    "not an object": b"[105]",
    "not UTF-8": b'{"code":105,"remark":"\xff\xfe"}',
    "nested deeply": b'{"extFields":' + b"[" * 100_000,
    "code beyond an int32": b'{"code":99999999999}',
    "ext fields that are no object": b'{"code":CODE,"extFields":[1,2]}',
}


@pytest.mark.parametrize("header", BROKEN.values(), ids=BROKEN.keys())
def test_a_header_that_is_broken(port: str, at: str, header: bytes) -> None:
    header = header.replace(b"CODE", b"%d" % NEEDS_TOPIC[port])
    with Peer(at) as peer:
        peer.send((4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header)
        assert peer.ended()


BROKEN_BINARY = {
    "short": b"\0\x69\0",
    "remark beyond the header": b"\0\x69\0\1\xb5\0\0\0\1\0\0\0\0\x7f\xff\xff\xff\0\0\0\0",
    "negative remark": b"\0\x69\0\1\xb5\0\0\0\1\0\0\0\0\xff\xff\xff\xff\0\0\0\0",
    "ext fields beyond the header": b"\0\x69\0\1\xb5\0\0\0\1\0\0\0\0\0\0\0\0\0\0\1\0",
    "half an ext field": b"\0\x69\0\1\xb5\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\3\0\5t",
}


@pytest.mark.parametrize("header", BROKEN_BINARY.values(), ids=BROKEN_BINARY.keys())
def test_a_binary_header_that_is_broken(at: str, header: bytes) -> None:
    with Peer(at) as peer:
        word = (1 << 24 | len(header)).to_bytes(4, "big")
        peer.send((4 + len(header)).to_bytes(4, "big") + word + header)
        assert peer.ended()


@pytest.mark.parametrize("serializer", list(Serializer), ids=lambda serializer: serializer.name)
def test_a_code_that_nobody_knows(port: str, at: str, serializer: Serializer) -> None:
    with Peer(at) as peer:
        for code in (0, 1, 9_999, 32_767):
            peer.send(encode_request(code, code, serializer=serializer))
            answer = peer.read()
            assert (answer.opaque, answer.code) == (code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            assert str(code) in (answer.remark or "")
        peer.send(encode_request(31_000, 1, oneway=True))  # nobody waits, so nothing is answered
        assert peer.call(KNOWN[port]).code == 0


def test_a_header_that_lacks_what_its_request_needs(port: str, at: str) -> None:
    with Peer(at) as peer:
        answer = peer.call(NEEDS_TOPIC[port], {"queueId": "zero"})
        assert answer.code == ResponseCode.SYSTEM_ERROR and "topic" in (answer.remark or "")
        assert peer.call(KNOWN[port]).code == 0


def test_answers_that_nobody_asked_for(port: str, at: str) -> None:
    stray = bytearray(encode_request(0, 12_345))
    stray = stray.replace(b'"flag":0', b'"flag":1')
    with Peer(at) as peer:
        peer.send(bytes(stray))
        assert peer.call(KNOWN[port]).code == 0


def test_a_request_that_claims_nothing_true_in_its_body(port: str, at: str) -> None:
    code = RequestCode.REGISTER_BROKER if port == "namesrv" else RequestCode.HEART_BEAT
    with Peer(at) as peer:
        answer = peer.call(code, None, b"\x00\xff no JSON")
        assert answer.code != 0 and answer.remark
        assert peer.call(KNOWN[port]).code == 0


def test_many_requests_in_one_read_are_answered_up_to_the_broken_one(up: Up) -> None:
    kept = Acknowledged("before-the-broken-one")
    kept.send(up.namesrv)
    good = encode_request(RequestCode.SEND_MESSAGE_V2, 1, send_header(kept.topic), b"unanswered")
    with Peer(up.broker) as peer:
        peer.send(good + b"\x7f\xff\xff\xff\0\0\0\x10")
        assert peer.ended()
    found = kept.read(up.namesrv)
    assert found[: len(kept.bodies)] == kept.bodies  # what was never acknowledged may be there or not
    assert found[len(kept.bodies) :] in ([], [b"unanswered"])
