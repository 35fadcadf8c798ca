"""Users and policies, as the kernel is told of them."""

from __future__ import annotations

from dataclasses import replace

from perseid.base.machine import Millis
from perseid.broker.access.config import Access
from perseid.broker.access.requests import AccessRequests
from perseid.broker.access.tables import ACLS_PATH, USERS_PATH, AclTable, UserTable
from perseid.broker.kernel.capability import Capability
from perseid.broker.kernel.saves import StateFile
from perseid.broker.kernel.turn import Turn
from perseid.security.users import SUPER, User

NOBODY = (
    "authenticationEnabled=true, and there is no user: every request is refused; set initAuthenticationUser"
    '={"username":"…","password":"…"} and start again'
)


def capability(access: Access, turn: Turn, users: UserTable, acls: AclTable) -> Capability:
    """The files are there only where users are."""
    requests = (AccessRequests(users=users, acls=acls, authenticates=access.authenticates),)
    if not access.authenticates:
        return Capability(name="access", requests=requests)

    def begin(now: Millis) -> None:
        make_first_users(access, users)
        if not len(users.users):
            turn.note("warning", NOBODY)

    return Capability(
        name="access",
        requests=requests,
        files=(
            StateFile(path=USERS_PATH, table=users, text=users.to_json, only_whole=True),
            StateFile(path=ACLS_PATH, table=acls, text=acls.to_json, only_whole=True),
        ),
        begins=(begin,),
    )


def make_first_users(access: Access, table: UserTable) -> None:
    """The initial user, where there is none of its name; and the one that nodes sign as, with the secret that they have
    now."""
    users = table.users
    wanted = []
    if access.initial is not None and users.get(access.initial.name) is None:
        wanted.append(access.initial)
    if access.inner is not None:
        old = users.get(access.inner.access_key)
        inner = User(access.inner.access_key, access.inner.secret_key, SUPER)
        if old is None or old.secret != inner.secret:
            wanted.append(inner if old is None else replace(old, secret=inner.secret))
    for user in wanted:
        if users.get(user.name) is None:
            users.create(user.name, user.secret, user.type, user.status)
        else:
            users.update(user.name, user.secret, None, None)
        table.change()
