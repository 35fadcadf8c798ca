"""Signing requests for clusters that authenticate whoever asks (ACL 1.0 and 2.0 sign alike)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perseid.base.machine import Buffer
from perseid.security.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, signature
from perseid.wire.headers.base import Header, to_ext


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user, and the key that it signs requests with."""

    access_key: str
    """The user's name."""
    secret_key: str = field(repr=False)
    """The secret key, which is never sent."""
    security_token: str | None = field(default=None, repr=False)
    """The additional token of a temporary user."""

    def sign(self, header: Header | Mapping[str, str | None] | None, body: Buffer) -> dict[str, str | None]:
        """The header's fields, with the user and its signature."""
        fields = to_ext(header) if isinstance(header, Header) else {k: v for k, v in (header or {}).items() if v}
        fields[ACCESS_KEY] = self.access_key
        if self.security_token:
            fields[SECURITY_TOKEN] = self.security_token
        return {**fields, SIGNATURE: signature(self.secret_key, fields, body)}
