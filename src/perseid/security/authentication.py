"""Who signed a request, and whether it may speak for a member of the cluster."""

from __future__ import annotations

from collections.abc import Container

from perseid.base.errors import RequestRefused
from perseid.security.signature import ACCESS_KEY, is_signed
from perseid.security.users import MAX_NAME_CHARS, User, Users, refuse
from perseid.wire.command import Command


def authenticated(command: Command, users: Users) -> User:
    """The user that signed it. RequestRefused(16), in the original's words, where none did."""
    name = command.ext.get(ACCESS_KEY)
    if not name:
        raise refuse("username cannot be null.")
    user = users.get(name)
    if user is None:
        raise refuse(f"User:{name[:MAX_NAME_CHARS]} is not found.")
    if not user.is_enabled:
        raise refuse(f"User:{user.name} is disabled.")
    if not is_signed(user.secret, command.ext, command.body, command.version):
        raise refuse("check signature failed.")
    return user


def stranger(command: Command, users: Users, unsigned: Container[int]) -> str:
    """Why whoever sent this is no member of the cluster; nothing: a Super user signed it, which is what nodes sign as,
    or requests of this code need no signature."""
    if command.code in unsigned:
        return ""
    try:
        user = authenticated(command, users)
    except RequestRefused as refused:
        return refused.remark
    return "" if user.is_super else f"User:{user.name} is no Super user."
