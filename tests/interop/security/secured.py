"""Brokers that authenticate and authorize, the users that tests know there, and requests that are signed.

`broker_of` starts a Java broker or ours with the same settings; what a request gets is asked over a connection of its
own (`rig.call`), so that both brokers read the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rig

from perseid.client import Credentials

IMPLS = ["java", "perseid"]
SUPER = Credentials("root", "root-secret")
INNER = Credentials("inner", "inner-secret")
CLUSTER = "InteropCluster"
PROVIDERS = "org.apache.rocketmq.auth"
SETTINGS: dict[str, object] = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{PROVIDERS}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": SUPER.access_key, "password": SUPER.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": INNER.access_key, "secretKey": INNER.secret_key}),
    "authorizationEnabled": "true",
    "authorizationProvider": f"{PROVIDERS}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider",
}
"""What an operator writes into a Java broker's file: without a metadata provider each request fails there."""

Answer = rig.Answer


def cluster(name: str, impl: str, folder: Path, **more: object) -> rig.Cluster:
    """A name server and a broker that knows SUPER and INNER, and nobody else yet. Ours asks for signatures at the name
    server, too; Java's has no users there."""
    names = rig.namesrv(impl, folder / f"{name}-namesrv", **(SETTINGS if impl == "perseid" else {})).start()
    try:
        broker = rig.broker(impl, folder / name, names.address, **SETTINGS, **more).start()
        known = f'"{name}"'.encode()
        rig.until("registration", lambda: known in ask(names.address, 106, SUPER).body, rig.START_SECONDS)
        rig.until("run-time info", lambda: ask(broker.address, 28, SUPER).code == 0, rig.START_SECONDS)
    except BaseException:
        names.kill()
        raise
    return rig.Cluster(name, names.address, broker.address, name, folder / name / "store", names, broker, CLUSTER)


def ask(
    address: str, code: int, by: Credentials | None, ext: Mapping[str, object] | None = None, body: bytes = b""
) -> Answer:
    """A request signed with this user's key; `None`: not signed."""
    fields = {name: str(value) for name, value in (ext or {}).items()}
    return rig.call(address, code, by.sign(fields, body) if by else fields, body)


@dataclass(frozen=True)
class Policy:
    """Who may do what with which resources, as mqadmin's createAcl takes it."""

    resources: Sequence[str]
    actions: Sequence[str]
    decision: str = "Allow"
    ips: Sequence[str] = ()
    kind: str = "Custom"

    def entries(self) -> list[dict[str, Any]]:
        return [
            {"resource": r, "actions": [*self.actions], "sourceIps": [*self.ips], "decision": self.decision}
            for r in self.resources
        ]


def create_user(address: str, user: Credentials, kind: str = "Normal") -> Answer:
    body = {"username": user.access_key, "password": user.secret_key, "userType": kind}
    return ask(address, 3001, SUPER, {"username": user.access_key}, json.dumps(body).encode())


def disable_user(address: str, user: Credentials) -> Answer:
    body = {"username": user.access_key, "userStatus": "disable"}
    return ask(address, 3002, SUPER, {"username": user.access_key}, json.dumps(body).encode())


def permit(address: str, user: Credentials, *policies: Policy) -> Answer:
    """Give a user these policies besides those that it has."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for policy in policies:
        by_kind.setdefault(policy.kind, []).extend(policy.entries())
    rows = [{"policyType": kind, "entries": entries} for kind, entries in by_kind.items()]
    subject = f"User:{user.access_key}"
    body = json.dumps({"subject": subject, "policies": rows}).encode()
    return ask(address, 3006, SUPER, {"subject": subject}, body)


def forbid(address: str, user: Credentials) -> Answer:
    """Take all policies from a user."""
    return ask(address, 3008, SUPER, {"subject": f"User:{user.access_key}"})
