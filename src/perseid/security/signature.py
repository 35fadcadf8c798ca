"""Signatures of requests, as stock clients make them (remoting.md §21; ACL 1.0 and 2.0 sign alike).

HMAC-SHA1, with the user's secret as the key, over the values of all fields in the order of their names (of their
UTF-16 units), without separators, and the body behind them.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping

from perseid.base.machine import Buffer

ACCESS_KEY, SECURITY_TOKEN, SIGNATURE = "AccessKey", "SecurityToken", "Signature"  # names of fields, no secrets
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
UNSIGNED_UP_TO = 399
"""Clients of this version (4.9.3) and before put `_UNIQUE_KEY_QUERY` into the request when it was signed already."""


def signature(secret: str, fields: Mapping[str, str | None], body: Buffer) -> str:
    """What a client that has the secret puts into `Signature`; a field of that name does not count."""
    names = sorted(fields) if "".join(fields).isascii() else sorted(fields, key=_as_java_sorts)
    values = "".join(fields[name] or "" for name in names if name != SIGNATURE)
    content = values.encode("utf-8", "surrogatepass")
    mac = hmac.new(secret.encode("utf-8", "surrogatepass"), content, "sha1")
    mac.update(body)
    return b64encode(mac.digest()).decode()


def _as_java_sorts(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")


def is_signed(secret: str, fields: Mapping[str, str], body: Buffer, version: int) -> bool:
    """Was it signed with this secret? `version` is the client's. Comparing takes the same time whatever differs."""
    given = fields.get(SIGNATURE)
    if given is None:
        return False
    if version <= UNSIGNED_UP_TO and UNIQUE_KEY_QUERY in fields:
        fields = {name: value for name, value in fields.items() if name != UNIQUE_KEY_QUERY}
    expected = signature(secret, fields, body)
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogatepass"))
