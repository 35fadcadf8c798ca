"""The cases of the original's own test of TLS (remoting's TlsTest, by its methods' names): the settings of a server and
of a client, and whether the client is served. Certificates are ours, of the same kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pki import PASSWORD, files

SERVER = {
    "tls.server.mode": "enforcing",
    "tls.test.mode.enable": "false",
    "tls.server.need.client.auth": "require",
    "tls.server.keyPath": files().path("server.key"),
    "tls.server.certPath": files().path("server.pem"),
    "tls.server.authClient": "true",
    "tls.server.trustCertPath": files().ca,
}
CLIENT = {
    "tls.enable": "true",
    "tls.test.mode.enable": "false",
    "tls.client.keyPath": files().path("encrypted_client.key"),
    "tls.client.keyPassword": PASSWORD,
    "tls.client.certPath": files().path("encrypted_client.pem"),
    "tls.client.authServer": "true",
    "tls.client.trustCertPath": files().ca,
}
NO_CERTIFICATE = {"tls.client.keyPath": "", "tls.client.certPath": "", "tls.client.keyPassword": ""}
STRANGER = {
    "tls.client.keyPath": files().path("stranger.key"),
    "tls.client.certPath": files().path("stranger.pem"),
    "tls.client.keyPassword": "",
}
BAD_SERVER = {
    "tls.server.keyPath": files().path("other_server.key"),
    "tls.server.certPath": files().path("other_server.pem"),
}


class Case(NamedTuple):
    """`refused`: what the server says of a client that it refuses; `refuses`: what the client says of the server."""

    server: Mapping[str, str]
    client: Mapping[str, str]
    refused: str = ""
    refuses: str = ""

    @property
    def served(self) -> bool:
        """Does the client get its answer?"""
        return not (self.refused or self.refuses)


def case(
    server: Mapping[str, str] | None = None,
    client: Mapping[str, str] | None = None,
    refused: str = "",
    refuses: str = "",
) -> Case:
    """Settings that differ from the usual ones."""
    told = {**SERVER, **(server or {})}, {**CLIENT, **(client or {})}
    return Case(*({key: value for key, value in one.items() if value} for one in told), refused, refuses)


CASES = {
    "basicClientServerIntegrationTest": case(),
    "serverNotNeedClientAuth": case({"tls.server.need.client.auth": "none"}, NO_CERTIFICATE),
    "serverWantClientAuth": case({"tls.server.need.client.auth": "optional"}),
    "serverWantClientAuth_ButClientNoCert": case({"tls.server.need.client.auth": "optional"}, NO_CERTIFICATE),
    "serverAcceptsUnAuthClient": case({"tls.server.mode": "permissive"}, {**NO_CERTIFICATE, "tls.enable": "false"}),
    "disabledServerRejectsSSLClient": case({"tls.server.mode": "disabled"}, refused="TLS, which is not taken here"),
    "disabledServerAcceptUnAuthClient": case(
        {"tls.server.mode": "disabled"}, {**NO_CERTIFICATE, "tls.enable": "false"}
    ),
    "serverRejectsUntrustedClientCert": case(
        client=STRANGER, refused="the client's certificate is refused: unable to get local issuer certificate"
    ),
    "serverAcceptsUntrustedClientCert": case({"tls.server.authClient": "false"}, STRANGER),
    "noClientAuthFailure": case(client=NO_CERTIFICATE, refused="the client has no certificate, and one is required"),
    "clientRejectsUntrustedServerCert": case(BAD_SERVER, refuses="is refused: unable to get local issuer certificate"),
    "clientAcceptsUntrustedServerCert": case(BAD_SERVER, {"tls.client.authServer": "false"}),
}
"""All but `reloadSslContextForServer` and `testTlsConfigThroughFile`. `serverWantClientAuth` has settings there, and no
method."""
