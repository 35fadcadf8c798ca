"""TLS of one connection as a machine: two ends, and bytes between them that a test may cut, change or withhold."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import cast

import pytest

from perseid.base.errors import RemoteProtocolError
from perseid.security.certificates import NO_TERMS, Terms, Wanted, client_context, context_of, self_made, server_context
from perseid.security.tls import (
    MOST_HANDSHAKE_BYTES,
    NAMELESS,
    ClientSide,
    Mode,
    ServerSide,
    State,
    Tls,
    subject,
)
from pki import HOSTS, NOW, files

MOST_ROUNDS = 20


def server(
    name: str = "server", mode: Mode = Mode.PERMISSIVE, *, ask: str = "none", terms: Terms = NO_TERMS
) -> Callable[[], Tls]:
    made = files()
    context = server_context(made.own(name), trust=made.ca if ask != "none" else "", ask=ask, terms=terms)
    return lambda: Tls.accepted(ServerSide(mode, lambda: context))


def client(own: str = "", address: str = "localhost:10911", *, verify: bool = True, terms: Terms = NO_TERMS) -> Tls:
    made = files()
    context = client_context(trust=made.ca, own=made.own(own) if own else None, verify=verify, terms=terms)
    return Tls.dialled(ClientSide(lambda: context), address)


def exchange(one: Tls, other: Tls) -> None:
    """Carry bytes until neither has any."""
    for _ in range(MOST_ROUNDS):
        forth = one.outgoing()
        if forth:
            other.received(forth)
        back = other.outgoing()
        if back:
            one.received(back)
        if not forth and not back:
            return
    raise AssertionError("they never end")


def opened(dialled: Tls | None = None, accepted: Tls | None = None) -> tuple[Tls, Tls]:
    pair = dialled or client(), accepted or server()()
    exchange(*pair)
    assert pair[0].state is pair[1].state is State.OPEN
    return pair


def test_bytes_arrive_as_they_were_sent_both_ways() -> None:
    ours, theirs = opened()
    for size in (1, 100, 16_384, 16_385, 1_000_000):
        data = os.urandom(size)
        assert theirs.received(ours.seal(data)) == data
        assert ours.received(theirs.seal(memoryview(data))) == data


def test_one_write_is_one_record() -> None:
    ours, theirs = opened()
    sealed = ours.seal(b"x" * 16_384)
    assert sealed[0] == 23 and int.from_bytes(sealed[3:5], "big") == len(sealed) - 5
    assert theirs.received(sealed) == b"x" * 16_384


def test_bytes_may_come_one_by_one() -> None:
    ours, theirs = client(), server()()
    for _ in range(MOST_ROUNDS):
        for one, other in ((ours, theirs), (theirs, ours)):
            for byte in one.outgoing():
                other.received(bytes([byte]))
    assert ours.state is theirs.state is State.OPEN
    got = b"".join(theirs.received(bytes([byte])) for byte in ours.seal(b"whole"))
    assert got == b"whole"


@pytest.mark.parametrize("ask", ["optional", "require"])
@pytest.mark.parametrize("mode", [Mode.PERMISSIVE, Mode.ENFORCING])
def test_a_port_of_members_takes_certificates_alone(mode: Mode, ask: str) -> None:
    def members() -> Tls:
        context = server_context(files().own("server"), trust=files().ca, ask=ask)
        return Tls.accepted(ServerSide(mode, lambda: context, certified=True))

    ours, theirs = opened(client("client"), members())
    assert theirs.certificate == "CN=orders" and theirs.received(ours.seal(b"of a member")) == b"of a member"
    with pytest.raises(RemoteProtocolError, match=r"bytes without TLS: only members of the cluster with a certificate"):
        members().received(b"\0\0\0\4")
    certificate = "haTls=true" if ask == "optional" else "one is required"
    for own, why in (("", certificate), ("stranger", "unable to get local issuer certificate")):
        ours, theirs = client(own), members()
        with pytest.raises(RemoteProtocolError, match=why):
            exchange(ours, theirs)
        theirs.outgoing()  # an alert, at most
        assert theirs.state is State.ENDED and theirs.seal(b"for members") == b""


def test_a_verified_certificate_without_a_name_is_one() -> None:
    class Engine:
        def getpeercert(self) -> dict[str, object]:
            return {"subject": (), "serialNumber": "01"}

    assert subject(cast(ssl.SSLObject, Engine())) == NAMELESS


def test_plain_bytes_pass_where_both_are_taken() -> None:
    end = server()()
    frame = b"\0\0\1\2 a frame"
    assert end.received(frame) == frame and end.state is State.CLEAR and end.outgoing() == b""
    assert end.received(b"\x16 more") == b"\x16 more"


def test_plain_bytes_to_an_enforcing_port() -> None:
    end = server(mode=Mode.ENFORCING)()
    with pytest.raises(RemoteProtocolError, match=r"without TLS, which is required here \(tls.server.mode=enforcing\)"):
        end.received(b"\0\0\1\2")
    assert end.state is State.ENDED


def test_tls_to_a_disabled_port() -> None:
    end = server(mode=Mode.DISABLED)()
    with pytest.raises(RemoteProtocolError, match=r"TLS, which is not taken here \(tls.server.mode=disabled\)"):
        end.received(client().outgoing())


def test_what_looks_like_tls_and_is_none() -> None:
    end = server()()
    with pytest.raises(RemoteProtocolError, match=r"^TLS: [^\n]+$"):
        end.received(b"\x16 what is this? " * 10)


def test_a_server_that_speaks_no_tls() -> None:
    end = client()
    with pytest.raises(RemoteProtocolError, match="the peer does not speak TLS here; dial without TLS"):
        end.received(b"\0\0\1\2 a frame")


def test_a_handshake_that_is_cut() -> None:
    end, ours = server()(), client()
    end.received(ours.outgoing()[:50])
    assert end.cut() == "TLS: the handshake was cut"
    assert "localhost:10911 ended the connection within the handshake" in ours.cut()
    assert server()().cut() == ""
    ours, end = opened()
    assert ours.cut() == end.cut() == ""


def test_a_handshake_without_an_end() -> None:
    end = server()()
    hello = client().outgoing()
    end.received(hello)
    record = b"\x16\x03\x01\x00\x00"
    with pytest.raises(RemoteProtocolError):
        for _ in range(MOST_HANDSHAKE_BYTES // len(record) + 1):
            end.received(record)
    assert end.state is State.ENDED


def refused(dialled: Tls, accepted: Tls) -> tuple[str, str]:
    """What both ends say; the bytes that an end leaves behind when it fails still arrive."""
    said = {}
    for _ in range(MOST_ROUNDS):
        for one, other in ((dialled, accepted), (accepted, dialled)):
            data = one.outgoing()
            if data and other not in said:
                try:
                    other.received(data)
                except RemoteProtocolError as error:
                    said[other] = str(error)
    return said.get(dialled, ""), said.get(accepted, "")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("expired", "certificate has expired"),
        ("other_host", "Hostname mismatch, certificate is not valid for 'localhost'"),
        ("other_server", "unable to get local issuer certificate"),
        ("client", "unsuitable certificate purpose"),
    ],
)
def test_a_servers_certificate_that_is_refused(name: str, why: str) -> None:
    ours, theirs = refused(client(), server(name)())
    assert ours == f"TLS: the certificate of localhost:10911 is refused: {why}"
    assert theirs.startswith("TLS: the peer ") and "\n" not in theirs


def test_a_servers_certificate_is_not_looked_at_when_we_say_so() -> None:
    ours, _ = opened(client(verify=False), server("expired")())
    assert ours.certificate == ""


def test_an_address_is_a_host_too() -> None:
    ours, _ = opened(client(address="127.0.0.1:1"))
    assert ours.certificate == "CN=server"
    with pytest.raises(RemoteProtocolError, match="IP address mismatch"):
        exchange(client(address="[::1]:1"), server()())


def test_a_host_that_no_certificate_can_name() -> None:
    with pytest.raises(RemoteProtocolError, match="is no name that a certificate can have"):
        client(address=".:1")


def test_a_clients_certificate_is_known_by_its_subject() -> None:
    _, theirs = opened(client("client"), server(ask="require")())
    assert theirs.certificate == "CN=orders"
    _, theirs = opened(client(), server(ask="optional")())
    assert theirs.certificate == ""


def test_a_client_without_a_certificate_where_one_is_required() -> None:
    ours, theirs = refused(client(), server(ask="require")())
    assert theirs == "TLS: the client has no certificate, and one is required (tls.server.need.client.auth)"
    assert ours == "TLS: the peer requires a certificate of ours"


@pytest.mark.parametrize("ask", ["require", "optional"])
def test_a_clients_certificate_of_another_ca(ask: str) -> None:
    ours, theirs = refused(client("stranger"), server(ask=ask)())
    assert theirs == "TLS: the client's certificate is refused: unable to get local issuer certificate"
    assert ours == "TLS: the peer does not trust our certificate's CA"


def test_versions_that_do_not_meet() -> None:
    one, other = client(terms=Terms(["TLSv1.2"])), server(terms=Terms(["TLSv1.3"]))()
    ours, theirs = refused(one, other)
    assert theirs == "TLS: the peer's version of TLS is not allowed here (tls.protocols)"
    assert ours == "TLS: the peer does not allow our versions of TLS"


def test_renegotiation_is_refused_in_tls_1_2() -> None:
    """TLS 1.3 has none. Python's clients can't ask for it; `openssl` does, in `tests/net/test_tls.py`."""
    assert server_context(files().own("server")).options & ssl.OP_NO_RENEGOTIATION
    ours, theirs = opened(client(terms=Terms(["TLSv1.2"])))
    assert theirs.received(ours.seal(b"before")) == b"before"
    with pytest.raises(RemoteProtocolError):  # a hello that is not sealed is no part of the connection
        theirs.received(client(terms=Terms(["TLSv1.2"])).outgoing())
    assert theirs.state is State.ENDED


def test_bytes_that_were_changed_on_their_way() -> None:
    ours, theirs = opened()
    sealed = bytearray(ours.seal(b"pay 10"))
    sealed[-1] ^= 1
    with pytest.raises(RemoteProtocolError, match="TLS: decryption failed or bad record mac"):
        theirs.received(bytes(sealed))
    assert theirs.outgoing() and theirs.received(b"more") == b""


def test_the_end_is_said_and_heard() -> None:
    ours, theirs = opened()
    last = ours.seal(b"last") + ours.end()
    assert theirs.received(last) == b"last" and theirs.state is State.ENDED
    assert ours.seal(b"more") == b"" and theirs.seal(b"more") == b"" and theirs.end() == b""


def test_a_certificate_of_our_own_making() -> None:
    context = context_of(self_made(Wanted("Perseid", NOW, HOSTS)))
    opened(client(verify=False), Tls.accepted(ServerSide(Mode.PERMISSIVE, lambda: context)))
    ours, _ = refused(client(), Tls.accepted(ServerSide(Mode.PERMISSIVE, lambda: context)))
    assert ours.endswith("is refused: self-signed certificate")


def test_no_ticket_outlives_its_certificates() -> None:
    ours, theirs = opened()
    assert theirs.outgoing() == b"" and ours.received(theirs.seal(b"x")) == b"x"
    assert ours._engine is not None and ours._engine.session is not None and not ours._engine.session.has_ticket
