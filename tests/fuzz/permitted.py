"""Signatures, policies and the file of users, as anybody may write them."""

from __future__ import annotations

import os

from perseid.base.errors import RemoteProtocolError, RequestRefused, StoreError
from perseid.broker.access.tables import AclTable, UserTable
from perseid.security.credentials import Credentials
from perseid.security.policies import Acl, Action, Asked, ResourceType, address_of
from perseid.security.sealed import KEY_BYTES, Sealer
from perseid.security.signature import SIGNATURE, is_signed, signature
from perseid.wire.command import decode_all, encode_request
from perseid.wire.headers.pull import PullMessageRequest
from perseid.wire.users import AclInfo

SECRET, USER = "secret", "user"
SIGNED = Credentials(USER, SECRET)
SEALER = Sealer(bytes(KEY_BYTES), os.urandom)
ASKED = [Asked(kind, name, (action,)) for kind in ResourceType for name in ("a", "") for action in Action]
ADDRESS = address_of("10.0.0.1:1")


def signatures(data: bytes) -> None:
    """What is signed is so by whoever has the secret: the fields as they are, and no others."""
    try:
        for command in decode_all(data):
            fields = command.ext
            signed = is_signed(SECRET, fields, command.body, command.version)
            assert not is_signed(SECRET + "x", fields, command.body, command.version)
            again = {**fields, SIGNATURE: signature(SECRET, fields, command.body)}
            assert is_signed(SECRET, again, command.body, 500)
            assert not signed or command.version < 400 or fields[SIGNATURE] == again[SIGNATURE]
    except RemoteProtocolError:
        pass


def policies(data: bytes) -> None:
    """Policies are refused, or say the same after they were told and read again."""
    try:
        acl = Acl.of(AclInfo.from_json(data))
    except (RequestRefused, RemoteProtocolError):
        return
    again = Acl.of(AclInfo.from_json(acl.told(USER).to_json()))
    for asked in ASKED:
        assert acl.refusal(asked, ADDRESS) == again.refusal(asked, ADDRESS), asked


def users_files(data: bytes) -> None:
    """A file of users, and one of policies, is taken up whole, or stops the start with a line."""
    for table in (UserTable(SEALER, lambda: None), AclTable(lambda: None)):
        try:
            table.load(data)
        except StoreError as error:
            assert "\n" not in str(error)
        else:
            table.load(table.to_json())


def _frame(body: bytes) -> bytes:
    header = PullMessageRequest("g", "t", 0, 0, 32, 4, 0, 20_000, 1, subscription="*", expression_type="TAG")
    return encode_request(11, 1, SIGNED.sign(header, body), body)


def _files() -> list[bytes]:
    users = UserTable(SEALER, lambda: None)
    users.create(USER, SECRET, "Super", None)
    return [users.to_json(), b"[" + POLICIES[0] + b"]", b"[]"]


POLICIES = [
    b'{"subject":"User:user","policies":[{"policyType":"Custom","entries":[{"resource":"Topic:a*","actions":["Pub","sub"],'
    b'"sourceIps":["10.0.0.0/8","::1"],"decision":"Allow"},{"resource":"*","actions":["All"],"decision":"Deny"}]}]}',
    b'{"policies":[{"entries":[{"resource":"Group:g","actions":["Get"],"decision":"deny"}]}]}',
]
SEEDS = {"signatures": [_frame(b""), _frame(b"body")], "policies": POLICIES, "users_files": _files()}
