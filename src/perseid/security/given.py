"""Users and request codes as settings name them. A ConfigError has the setting's name, and no secret."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from perseid.base.errors import ConfigError
from perseid.security.credentials import Credentials
from perseid.security.users import SUPER, User

S = TypeVar("S", bound=msgspec.Struct)

MAX_LISTED = 1_000
"""Codes of a white list."""


class _NameAndPassword(msgspec.Struct):
    username: str
    password: str


class _Keys(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str
    security_token: str | None = None


def initial_user(text: str) -> User | None:
    """`initAuthenticationUser`, `{"username":"…","password":"…"}`: a Super user; None: nobody is named."""
    found = _read(_NameAndPassword, "initAuthenticationUser", text)
    return None if found is None else User(found.username, found.password, SUPER)


def inner_credentials(text: str) -> Credentials | None:
    """`innerClientAuthenticationCredentials`, `{"accessKey":"…","secretKey":"…"}`: what a node signs with."""
    found = _read(_Keys, "innerClientAuthenticationCredentials", text)
    return None if found is None else Credentials(found.access_key, found.secret_key, found.security_token)


def codes(name: str, text: str) -> frozenset[int]:
    """Request codes, with commas between them."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > MAX_LISTED or not all(part.isdecimal() for part in parts):
        raise ConfigError(f"{name}={text[:80]}: {MAX_LISTED} request codes at the most are wanted, with commas between")
    return frozenset(int(part) for part in parts)


def _read(kind: type[S], name: str, text: str) -> S | None:
    if not text.strip():
        return None
    try:
        found = msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError):
        found = None
    if found is None or not all(value for value in msgspec.structs.astuple(found)[:2]):
        fields = ",".join(f'"{one}":"…"' for one in kind.__struct_encode_fields__[:2])
        raise ConfigError(f"{name}: {{{fields}}} is wanted, with values that are not empty")
    return found
