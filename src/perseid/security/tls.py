"""TLS of one connection, as a machine: received bytes in, plain ones out; plain bytes in, bytes to be sent out.

    accepted:  first → clear                    (the first byte begins a frame)
                     → handshake → open → ended (it is 0x16: a TLS record)
    dialled:   handshake → open → ended

No socket and no clock: a driver brings bytes, sends what `outgoing` has after each call, and ends a handshake that
takes too long. What a peer does wrong is a `RemoteProtocolError` in one line; what the peer has to hear of it is in
`outgoing` then, too.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Buffer

HANDSHAKE = 0x16
"""The first byte of each TLS connection. A frame's is 0, as long as frames are shorter than 16 MiB."""
MOST_HANDSHAKE_BYTES = 256 * 1024
"""Received before a handshake is over; certificate chains take a few thousand."""
READ_BYTES = 16 * 1024
"""Asked for at once: OpenSSL gives a record, which has no more."""
MOST_NAME = 256
"""Characters of a certificate's subject that people are told."""


class Mode(Enum):
    """What a server does with connections that begin with TLS, and with those that don't (tls.server.mode)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class State(Enum):
    """Of a connection's TLS."""

    FIRST = "first"
    """Accepted, nothing received: nobody knows what the peer speaks."""
    CLEAR = "clear"
    HANDSHAKE = "handshake"
    OPEN = "open"
    ENDED = "ended"


FIRST, CLEAR, SHAKING, OPEN, ENDED = State
"""Each read and write looks at the state, and Python takes 0.3 µs to find a member by its class."""


@dataclass(frozen=True, slots=True)
class ServerSide:
    """How connections of a listener are taken. `context` is asked for each one that begins with TLS: by then the
    certificates may be others. RemoteProtocolError when there is none."""

    mode: Mode
    context: Callable[[], ssl.SSLContext]
    certified: bool = False
    """Whoever shows no certificate that the context trusts is turned away: the port is for members of the cluster."""


@dataclass(frozen=True, slots=True)
class ClientSide:
    """How connections are dialled. `server_name` is whom the server's certificate has to name; empty: the host that
    was dialled."""

    context: Callable[[], ssl.SSLContext]
    server_name: str = ""


_DO: dict[str, str] = {
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS here; dial without TLS, or turn it on there (tls.server.mode)",
    "HTTP_REQUEST": "the peer speaks HTTP",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, and one is required "
    "(tls.server.need.client.auth)",
    "NO_SHARED_CIPHER": "no cipher that both sides allow (tls.ciphers)",
    "UNSUPPORTED_PROTOCOL": "the peer's version of TLS is not allowed here (tls.protocols)",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the peer does not allow our versions of TLS",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust our certificate's CA",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer refused our certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer refused our certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the peer refused our certificate: it is for another purpose",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the peer refused our certificate: it is expired",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer requires a certificate of ours",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the peer refused: it may require a certificate of ours, or allow other ciphers",
    "NO_RENEGOTIATION": "the peer wants new keys; renegotiation is not allowed",
}
"""What OpenSSL's words mean for people."""
NAMELESS = "a certificate without a name"
UNCERTIFIED = (
    "only members of the cluster with a certificate are taken here; on the peer set tls.client.certPath, "
    "tls.client.keyPath, and haTls=true (replication) or useTLS=true (members of a group)"
)


def reason(error: ssl.SSLError, *, server: bool, host: str = "") -> str:
    """Why TLS failed, in one line. `server`: it is our end. `host`: whom we dialled."""
    if isinstance(error, ssl.SSLCertVerificationError):
        whose = "the client's certificate" if server else f"the certificate of {host or 'the server'}"
        said = str(getattr(error, "verify_message", "") or error.reason or error).rstrip(".")
        return f"TLS: {whose} is refused: {said}"
    name = error.reason or ""
    said = _DO.get(name) or (name.replace("_", " ").lower() if name else str(error))
    return f"TLS: {said}"


class Tls:
    """One connection. Made by `accepted` or `dialled`."""

    _incoming: ssl.MemoryBIO
    _outgoing: ssl.MemoryBIO
    __slots__ = ("_dialled", "_engine", "_incoming", "_outgoing", "_received", "_side", "certificate", "state")

    def __init__(self) -> None:
        self.state = FIRST
        self.certificate = ""
        """The subject of the peer's certificate, when it was verified."""
        self._side: ServerSide | None = None
        self._dialled = ""
        self._engine: ssl.SSLObject | None = None
        self._received = 0

    @classmethod
    def accepted(cls, side: ServerSide) -> Tls:
        """The server's end: the first byte decides."""
        made = cls()
        made._side = side
        return made

    @classmethod
    def dialled(cls, side: ClientSide, address: str) -> Tls:
        """The client's end of a connection to `address`, `host:port`; `outgoing` has its first bytes."""
        made = cls()
        made._dialled = address
        host = side.server_name or address.rpartition(":")[0].strip("[]")
        try:
            made._wrap(side.context(), host)
        except ValueError as error:
            raise RemoteProtocolError(f"TLS: {host!r} is no name that a certificate can have: {error}") from None
        made._shake()
        return made

    # ---- what the driver calls ----

    def received(self, data: bytes) -> bytes:
        """The plain bytes that `data` brought. The state may be another one afterwards; `outgoing` may have bytes.

        RemoteProtocolError: the connection has to end.
        """
        if self.state is OPEN:
            self._incoming.write(data)
            return self._read()
        if self.state is FIRST:
            self._choose(data)
        if self.state is CLEAR:
            return data
        if self.state is SHAKING:
            self._incoming.write(data)
            self._received += len(data)
            if self._received > MOST_HANDSHAKE_BYTES:
                self.state = ENDED
                raise RemoteProtocolError(f"TLS: no end of the handshake after {MOST_HANDSHAKE_BYTES} bytes")
            self._shake()
        return self._read() if self.state is OPEN else b""

    def seal(self, data: Buffer) -> bytes:
        """What has to be sent for these bytes: one record for each 16 KiB. Nothing once TLS has ended."""
        if self.state is not OPEN:
            return self.outgoing()
        assert self._engine is not None
        try:
            self._engine.write(data)
        except ssl.SSLError as error:
            self._fail(error)
        return self._outgoing.read()

    def outgoing(self) -> bytes:
        """What has to be sent now: of the handshake, an alert, new keys."""
        return self._outgoing.read() if self._engine is not None and self._outgoing.pending else b""

    def end(self) -> bytes:
        """Say that no more will come; what has to be sent for it."""
        if self.state is OPEN:
            assert self._engine is not None
            self.state = ENDED
            try:
                self._engine.unwrap()
            except ssl.SSLError:
                pass  # the peer has not said the same; nobody waits for that
        return self.outgoing()

    def cut(self) -> str:
        """What the end of the connection, now, means; nothing when it may end."""
        if self.state is not SHAKING:
            return ""
        if self._side is not None:
            return "TLS: the handshake was cut"
        return f"TLS: {self._dialled} ended the connection within the handshake; does it take TLS (tls.server.mode)?"

    # ---- inside ----

    def _choose(self, data: bytes) -> None:
        assert self._side is not None
        mode = self._side.mode
        if data[0] != HANDSHAKE:
            if self._side.certified:
                self.state = ENDED
                raise RemoteProtocolError(f"bytes without TLS: {UNCERTIFIED}")
            if mode is Mode.ENFORCING:
                self.state = ENDED
                raise RemoteProtocolError("bytes without TLS, which is required here (tls.server.mode=enforcing)")
            self.state = CLEAR
            return
        if mode is Mode.DISABLED:
            self.state = ENDED
            raise RemoteProtocolError("TLS, which is not taken here (tls.server.mode=disabled)")
        self._wrap(self._side.context())

    def _wrap(self, context: ssl.SSLContext, host: str = "") -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = self._side is not None
        self._engine = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server, server_hostname=host or None
        )
        self.state = SHAKING

    def _shake(self) -> None:
        assert self._engine is not None
        try:
            self._engine.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            self._fail(error)
        self.certificate = subject(self._engine)
        if self._side is not None and self._side.certified and not self.certificate:
            self.state = ENDED
            raise RemoteProtocolError(f"TLS without a certificate: {UNCERTIFIED}")
        self.state = OPEN

    def _read(self) -> bytes:
        """All that has come; mostly it is one record, and nothing behind it."""
        parts: list[bytes] = []
        engine, incoming = self._engine, self._incoming
        assert engine is not None
        try:
            while True:
                part = engine.read(READ_BYTES)
                if not part:
                    self.state = ENDED
                    break
                if not incoming.pending:
                    if not parts:
                        return part
                    parts.append(part)
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.state = ENDED
        except ssl.SSLError as error:
            self._fail(error)
        return b"".join(parts)

    def _fail(self, error: ssl.SSLError) -> None:
        asked_anew = self.state is OPEN and error.reason == "SSLV3_ALERT_HANDSHAKE_FAILURE"
        self.state = ENDED
        if asked_anew:  # a peer that gets no renegotiation says so like this
            raise RemoteProtocolError(f"TLS: {_DO['NO_RENEGOTIATION']}") from None
        host = self._dialled
        raise RemoteProtocolError(reason(error, server=self._side is not None, host=host)) from None


def subject(engine: ssl.SSLObject | ssl.SSLSocket) -> str:
    """Of the peer's certificate, like `CN=orders,O=Example`; empty without one that was verified."""
    told: Mapping[str, Any] = engine.getpeercert() or {}
    names = [part for group in told.get("subject", ()) for part in group]
    text = ",".join(f"{_SHORT.get(key, key)}={value}" for key, value in names)[:MOST_NAME]
    return text or (NAMELESS if told else "")


_SHORT = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C"}
