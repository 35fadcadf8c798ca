"""The gate: each request passes it before anything else is looked at.

First: is it signed by a user (authentication)? Then: may that user do what it asks for (authorization)? Refusals are
code 16, in the original's words. A request that waits and is looked at again is asked again what it may, so that
what was revoked meanwhile is not given.

The fast way of sends and pulls checks signatures itself, and asks here who may do what (`known`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perseid.base.errors import RequestRefused
from perseid.broker.access.audit import MESSAGING, Audit
from perseid.broker.access.config import Access
from perseid.broker.access.tables import AclTable
from perseid.broker.kernel.request import Request
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.security.authentication import authenticated
from perseid.security.policies import NO_POLICY, Asked, address_of
from perseid.security.refusals import Refusals
from perseid.security.signature import ACCESS_KEY
from perseid.security.users import MAX_NAME_CHARS, User, Users, refuse
from perseid.security.verdicts import Verdicts

_MAY: tuple[str, Sequence[Asked]] = "", ()


class Gate:
    """Of one broker."""

    def __init__(
        self, access: Access, turn: Turn, settings: Settings, users: Users, acls: AclTable,
        verdicts: Verdicts, audit: Audit | None = None,
    ) -> None:  # fmt: skip
        self._access = access
        self._turn = turn
        self._settings = settings
        self._users = users
        self._acls = acls
        self._verdicts = verdicts
        self._audit = audit
        self._refusals = Refusals()

    def admit(self, request: Request, route: Route | None) -> None:
        """RequestRefused(16): it may not. `route` is None for a code that nobody serves."""
        is_new = request.user is None
        if request.user is None:
            request.user = self._authenticated(request)
        if route is None:
            return
        remark, asked = self._why_not(request, route, request.user)
        if remark:
            raise self._refusal(request, remark, asked)
        if is_new and self._audit is not None and route.code not in MESSAGING:
            self._audit.allowed(request, route, self._settings.current.broker_cluster_name)

    def all_sign(self, codes: Iterable[int]) -> bool:
        """Does each request of these codes need a signature?"""
        return self._access.unsigned.isdisjoint(codes)

    @property
    def number(self) -> int:
        """Rises with each change of users and policies."""
        return self._verdicts.number

    def known(self, request: Request, route: Route) -> User | None:
        """The user by whom a request says that it is signed, if there is one who may do what it asks for. The signature
        is not looked at; nobody hears of it when there is none."""
        user = self._users.get(request.command.ext.get(ACCESS_KEY) or "")
        if user is None or not user.is_enabled or self._why_not(request, route, user.name)[0]:
            return None
        return user

    def _authenticated(self, request: Request) -> str:
        """The name of the user that signed it; nothing, where none has to."""
        command = request.command
        if command.code in self._access.unsigned:
            return ""
        try:
            return authenticated(command, self._users).name
        except RequestRefused as refused:
            raise self._refusal(request, refused.remark) from None

    def _why_not(self, request: Request, route: Route, name: str) -> tuple[str, Sequence[Asked]]:
        """Why this user may not do what is asked for, and what of it; nothing: it may."""
        if not self._access.authorizes or route.code in self._access.permitted:
            return _MAY
        user = self._users.get(name)
        if user is not None and not user.is_enabled:
            return f"User:{user.name} is disabled.", ()
        if user is not None and user.is_super:
            return _MAY
        if route.header is not None and request.header is None:
            request.header = request.command.header(route.header)
        host = request.conn.peer.rpartition(":")[0]
        for asked in route.asks(request, self._settings.current.broker_cluster_name):
            why_not = self._verdict(name, asked, request.conn.peer, host)
            if why_not:
                what = asked.key[: 2 * MAX_NAME_CHARS]
                return f"User:{name} has no permission to access {what} from {host}, {why_not}", (asked,)
        return _MAY

    def _verdict(self, name: str, asked: Asked, peer: str, host: str) -> str:
        key = (name, asked, host)
        known = self._verdicts.get(key)
        if known is None:
            acl = self._acls.acls.get(name)
            known = NO_POLICY if acl is None else acl.refusal(asked, address_of(peer))
            if len(asked.name) <= MAX_NAME_CHARS:  # what is kept is bounded, however long names are
                self._verdicts.keep(key, known)
        return known

    def _refusal(self, request: Request, remark: str, asked: Sequence[Asked] = ()) -> Exception:
        """Count it, and say so now and then."""
        if self._audit is not None:
            self._audit.refused(request, asked, remark)
        if line := self._refusals.line(request.command.code, request.conn.peer, remark, self._turn.now):
            self._turn.note("warning", line)
        return refuse(remark)
