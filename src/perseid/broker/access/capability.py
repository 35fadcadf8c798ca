"""Users and policies, as the kernel is told of them."""

from __future__ import annotations

from perseid.base.machine import Millis
from perseid.broker.access.audit import Audit
from perseid.broker.access.config import Access
from perseid.broker.access.requests import AccessRequests
from perseid.broker.access.tables import ACLS_PATH, USERS_PATH, AclTable, UserTable
from perseid.broker.kernel.capability import Capability, Timer
from perseid.broker.kernel.saves import StateFile
from perseid.broker.kernel.turn import Turn
from perseid.security.users import SUPER

NOBODY = (
    "authenticationEnabled=true, and there is no user: every request is refused; set initAuthenticationUser"
    '={"username":"…","password":"…"} and start again'
)


def capability(access: Access, turn: Turn, users: UserTable, acls: AclTable, audit: Audit | None) -> Capability:
    """The files are there only where users are."""
    requests = (AccessRequests(users=users, acls=acls, authenticates=access.authenticates, audit=audit),)
    if not access.authenticates:
        return Capability(name="access", requests=requests)

    def begin(now: Millis) -> None:
        make_first_users(access, users)
        if not len(users):
            turn.note("warning", NOBODY)

    return Capability(
        name="access",
        requests=requests,
        files=(
            StateFile(path=USERS_PATH, table=users, text=users.to_json, only_whole=True),
            StateFile(path=ACLS_PATH, table=acls, text=acls.to_json, only_whole=True),
        ),
        begins=(begin,),
        timers=() if audit is None else (Timer("audit", audit.tick, audit.next_deadline),),
        closes=() if audit is None else (audit.close,),
    )


def make_first_users(access: Access, users: UserTable) -> None:
    """The initial user, where there is none of its name; and the one that nodes sign as, with the secret that they have
    now."""
    initial, inner = access.initial, access.inner
    if initial is not None and users.get(initial.name) is None:
        users.create(initial.name, initial.secret, SUPER, None)
    if inner is not None:
        known = users.get(inner.access_key)
        if known is None:
            users.create(inner.access_key, inner.secret_key, SUPER, None)
        elif known.secret != inner.secret_key:
            users.update(inner.access_key, inner.secret_key, None, None)
