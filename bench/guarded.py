"""Brokers with certificates, and with users: the same settings for Java's and ours.

Both take connections with TLS and without it (`permissive`), so that set-up and checks go in the clear. Where there are
users, a Super user sets up and checks; the load signs as a user that may send and receive, by policies.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rows import USER, Row
from servers import JAVA, Command, Server

from perseid.security.certificates import Wanted, authority, issue
from perseid.security.credentials import Credentials

SUPER = Credentials("root", "root-secret")
INNER = Credentials("inner", "inner-secret")
PROVIDERS = "org.apache.rocketmq.auth"
USERS: dict[str, object] = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{PROVIDERS}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": SUPER.access_key, "password": SUPER.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER.access_key, "secretKey": INNER.secret_key}),
    "authorizationEnabled": "true",
    "authorizationProvider": f"{PROVIDERS}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider",
}
"""Java fails each request without the providers; ours needs none."""
CREATE_USER, CREATE_ACL = 3001, 3006


@dataclass(frozen=True)
class Guards:
    """What a broker of a row has."""

    certificates: bool
    users: bool


NO_GUARDS = Guards(False, False)


def guards_of(row: Row) -> Guards:
    return Guards(row.part == "secured", "access-key" in row.load)


class Guarded(Server):
    """A name server and a broker with certificates; with users if asked for."""

    def __init__(
        self,
        name: str,
        command: Command,
        environment: Mapping[str, str],
        folder: Path,
        conf: Mapping[str, object],
        guards: Guards,
    ) -> None:
        tls = certificates(folder / "pki")
        if name == JAVA:
            options = " ".join(f'"-D{key}={value}"' for key, value in tls.items())
            environment = {**environment, "JDK_JAVA_OPTIONS": options}
        super().__init__(name, command, environment, folder, {**conf, **tls, **(USERS if guards.users else {})})
        self.by = SUPER if guards.users else None

    def start(self) -> None:
        super().start()
        if self.by is not None:
            self._create_user()

    def _create_user(self) -> None:
        """The load's, who is not Super: its policies are looked at."""
        subject = f"User:{USER.access_key}"
        user = {"username": USER.access_key, "password": USER.secret_key, "userType": "Normal"}
        entries = [
            {"resource": resource, "actions": actions, "sourceIps": [], "decision": "Allow"}
            for resource, actions in (("Topic:*", ["Pub", "Sub", "Get"]), ("Group:*", ["Sub", "Get"]))
        ]
        policies = {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}
        for remote in self._remotes():
            remote.call(CREATE_USER, {"username": USER.access_key}, json.dumps(user).encode())
            remote.call(CREATE_ACL, {"subject": subject}, json.dumps(policies).encode())


def certificates(folder: Path) -> dict[str, str]:
    """The settings of a new certificate, whose files are put into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.fromtimestamp(time.time(), UTC)
    pair = issue(authority("Bench CA", now), Wanted("bench", now, ("localhost", "127.0.0.1")))
    for name, content in (("server.pem", pair.certificate), ("server.key", pair.key)):
        (folder / name).write_bytes(content)
    return {
        "tls.server.mode": "permissive",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": str(folder / "server.pem"),
        "tls.server.keyPath": str(folder / "server.key"),
    }
