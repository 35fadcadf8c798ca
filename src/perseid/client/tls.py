"""TLS of clients: `Producer("host:9876", tls=ClientTls(ca="ca.pem"))`.

Servers are verified unless `verify=False`. All connections of a client use it, to name servers and to brokers. Without
`tls`, a client follows the environment variables (PERSEID_TLS, PERSEID_CA, PERSEID_CERT, …).
"""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import dataclass, field

from perseid.base.errors import ConfigError
from perseid.client.errors import BadSettings
from perseid.security import certificates
from perseid.security.certificates import Own
from perseid.security.tls import reason

TLS, CA, CERT, KEY = "PERSEID_TLS", "PERSEID_CA", "PERSEID_CERT", "PERSEID_KEY"
KEY_PASSWORD, SERVER_NAME, INSECURE = "PERSEID_KEY_PASSWORD", "PERSEID_SERVER_NAME", "PERSEID_INSECURE"
"""Variables of the environment, for clients that are told nothing."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The TLS settings of a client. Paths name PEM files, which are read at the first connection."""

    ca: str = ""
    """A file of CA certificates that verify servers. Empty: the system's."""
    cert: str = ""
    """The client's certificate, for servers that require one."""
    key: str = ""
    """Its key. Empty: it is in the same file."""
    key_password: str = field(default="", repr=False)
    """The password of an encrypted key."""
    key_password_file: str = ""
    """The same, in the first line of a file."""
    verify: bool = True
    """False: servers' certificates are not verified, so anyone can pretend to be the server. For trials only."""
    server_name: str = ""
    """The name that servers' certificates must have. Empty: the host of the address."""

    def context(self) -> ssl.SSLContext:
        """What connections are made with. BadSettings names the file that can't be used."""
        if self.key and not self.cert:
            raise BadSettings(f"{self.key}: a key without a certificate: give both")
        own = Own(self.cert, self.key or self.cert, self._password()) if self.cert else None
        try:
            return certificates.client_context(trust=self.ca, own=own, verify=self.verify)
        except ConfigError as error:
            raise BadSettings(str(error)) from error

    def _password(self) -> str:
        if not self.key_password_file:
            return self.key_password
        try:
            with open(self.key_password_file, encoding="utf-8") as file:
                return file.readline().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise BadSettings(f"{self.key_password_file}: can't be read: {error}") from None

    def host(self, address: str) -> str:
        """Whom the certificate of `host:port` has to name."""
        return self.server_name or address.rpartition(":")[0].strip("[]")

    def secured(self, sock: socket.socket, address: str) -> ssl.SSLSocket:
        """A connected socket with TLS. OSError (`why` explains it), or BadSettings."""
        return self.context().wrap_socket(sock, server_hostname=self.host(address))


def use(tls: ClientTls | None) -> None:
    """What clients use that are told nothing of TLS (None: they do without): those of this process, and of those that
    it starts, as Spark's workers are. The command line says so once for all."""
    for name in (TLS, CA, CERT, KEY, KEY_PASSWORD, SERVER_NAME, INSECURE):
        os.environ.pop(name, None)
    if tls is None:
        return
    told = {CA: tls.ca, CERT: tls.cert, KEY: tls.key}
    told = {name: os.path.abspath(os.path.expanduser(path)) for name, path in told.items() if path}
    told |= {SERVER_NAME: tls.server_name, KEY_PASSWORD: tls.key_password, INSECURE: "" if tls.verify else "true"}
    os.environ.update({TLS: "true", **{name: value for name, value in told.items() if value}})


def default() -> ClientTls | None:
    """What the environment says; None: nothing."""
    said = {name: os.environ.get(name, "") for name in (CA, CERT, KEY, SERVER_NAME)}
    insecure = _is_true(INSECURE)
    if not any(said.values()) and not insecure and not _is_true(TLS):
        return None
    password = os.environ.get(KEY_PASSWORD, "")
    return ClientTls(said[CA], said[CERT], said[KEY], password, verify=not insecure, server_name=said[SERVER_NAME])


def _is_true(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "t", "yes", "y", "on")


def why(error: BaseException, address: str) -> str:
    """Why a connection with TLS failed, in one line."""
    if isinstance(error, ssl.SSLError):
        return reason(error, server=False, host=address)
    if isinstance(error, ConnectionError):
        return "TLS: it ended the connection within the handshake; does it take TLS (tls.server.mode)?"
    return getattr(error, "strerror", None) or str(error)
