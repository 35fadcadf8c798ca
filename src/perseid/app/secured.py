"""Security in one command: what `perseid up --secure` makes in DATA/security, what nodes are told, and what people.

A CA, certificates of servers and clients, a first user, the user that nodes sign as, and the key with which brokers
keep secrets. What is there stays, but for certificates that end soon. People are told paths, never a secret.
"""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perseid.app import certs
from perseid.security.credentials import Credentials
from perseid.security.sealed import KEY_BYTES

if TYPE_CHECKING:
    from perseid.client.tls import ClientTls  # imported when it is used: most servers have no client

USER, NODES = "admin", "nodes"
SECRET_BYTES = 24


@dataclass(frozen=True, slots=True)
class Secured:
    """What is in the folder."""

    folder: Path
    tls: Mapping[str, str]
    """Settings of all nodes."""
    user: Credentials
    nodes: Credentials

    @property
    def members(self) -> Mapping[str, str]:
        """Settings of name servers and controllers, besides."""
        first = {"username": self.user.access_key, "password": self.user.secret_key}
        inner = {"accessKey": self.nodes.access_key, "secretKey": self.nodes.secret_key}
        return {
            "authenticationEnabled": "true", "initAuthenticationUser": json.dumps(first),
            "innerClientAuthenticationCredentials": json.dumps(inner),
        }  # fmt: skip

    @property
    def broker(self) -> Mapping[str, str]:
        """Settings of brokers, besides."""
        more = {"authorizationEnabled": "true", "authSecretKeyFile": str(self.path("secret.key"))}
        return {**self.members, **more}

    @property
    def client(self) -> ClientTls:
        """How a client reaches the nodes."""
        from perseid.client.tls import ClientTls

        at = self.told()
        return ClientTls(at["ca"], at["cert"], at["key"])

    def path(self, name: str) -> Path:
        """Of a file in the folder."""
        return self.folder / name

    def told(self) -> dict[str, str]:
        """Where a program finds what it connects with."""
        names = {
            "ca": "ca.pem", "cert": "client.pem", "key": "client.key", "credentials": f"{USER}.credentials",
            "environment": "client.env", "java": "java-tls.properties",
        }  # fmt: skip
        return {what: str(self.path(name)) for what, name in names.items()}

    def how_to_connect(self, namesrv: str) -> list[str]:
        """Lines for people."""
        at = self.told()
        credentials = at["credentials"]
        options = {
            "nameserver": namesrv, "tls.ca": at["ca"], "tls.cert": at["cert"], "tls.key": at["key"],
            "credentialsFile": credentials,
        }  # fmt: skip
        spark = "".join(f".option({json.dumps(name)}, {json.dumps(value)})" for name, value in options.items())
        tls = ", ".join(json.dumps(at[name]) for name in ("ca", "cert", "key"))
        session = f'credentials=read_credentials("{credentials}"), tls=ClientTls({tls})'
        return [
            f"secured: TLS alone, and requests are signed; the first user is {USER}, its key is in {credentials}",
            f"  perseid  . {shlex.quote(at['environment'])}; perseid topic list --namesrv {shlex.quote(namesrv)}",
            f"  Python   Session({json.dumps(namesrv)}, {session})",
            f"  Java     -Dtls.enable=true {shlex.quote('-Dtls.config.file=' + at['java'])}, and new AclClientRPCHook("
            f"new SessionCredentials(accessKey, secretKey)) with the two values in {credentials}",
            f"  Spark    {spark}",
        ]


def secure(folder: Path) -> Secured:
    """What is in `folder`; what is missing is made. ConfigError or ClientError when it can't be used."""
    tls = certs.secured(folder)
    if not (key := folder / "secret.key").exists():
        certs.write(key, secrets.token_hex(KEY_BYTES).encode())
    made = Secured(folder, tls, _user(folder, USER), _user(folder, NODES))
    at = made.told()
    variables = {name: at[name.lower()] for name in ("CA", "CERT", "KEY", "CREDENTIALS")}
    lines = [f"export PERSEID_{name}={shlex.quote(path)}\n" for name, path in variables.items()]
    certs.write(made.path("client.env"), "".join(lines).encode())
    java = {
        "tls.test.mode.enable": "false", "tls.client.authServer": "true", "tls.client.trustCertPath": at["ca"],
        "tls.client.certPath": at["cert"], "tls.client.keyPath": at["key"],
    }  # fmt: skip
    certs.write(made.path("java-tls.properties"), "".join(f"{k}={_property(v)}\n" for k, v in java.items()).encode())
    return made


def _user(folder: Path, name: str) -> Credentials:
    path = folder / f"{name}.credentials"
    if not path.exists():
        certs.write(path, f"accessKey: {name}\nsecretKey: {secrets.token_urlsafe(SECRET_BYTES)}\n".encode())
    from perseid.client.credentials import read_credentials

    return read_credentials(path)


def _property(text: str) -> str:
    """A value as Java reads it, whatever is in it."""
    units = text.replace("\\", "\\\\").encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)
