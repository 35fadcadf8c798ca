"""Signing requests for clusters that authenticate clients (ACL 1.0 and 2.0 sign alike)."""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha1

from perseid.base.machine import Buffer
from perseid.wire.headers.base import Header, to_ext


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and the key that it signs with; `security_token` belongs to a temporary user."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def sign(self, header: Header | Mapping[str, str | None] | None, body: Buffer) -> dict[str, str | None]:
        """The header's fields with user and signature: HMAC-SHA1 over the values in the order of their names."""
        fields = to_ext(header) if isinstance(header, Header) else {k: v for k, v in (header or {}).items() if v}
        fields["AccessKey"] = self.access_key
        if self.security_token:
            fields["SecurityToken"] = self.security_token
        values = "".join(fields[name] or "" for name in sorted(fields))
        digest = hmac.new(self.secret_key.encode(), values.encode() + bytes(body), sha1).digest()
        return {**fields, "Signature": b64encode(digest).decode()}
