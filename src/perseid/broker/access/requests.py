"""AUTH_CREATE_USER (3001) to AUTH_LIST_ACL (3010): users and policies of this broker (remoting.md §15).

Codes and remarks are the original's. Two things differ: a secret is never told (3004 and 3005), and where requests are
not signed there are no users.
"""

from __future__ import annotations

from dataclasses import dataclass

from perseid.base.errors import RequestRefused
from perseid.broker.access.audit import Audit
from perseid.broker.access.tables import AclTable, UserTable
from perseid.broker.kernel.asks import GET, UPDATE, of_cluster
from perseid.broker.kernel.request import Reply, Request
from perseid.broker.kernel.route import Route
from perseid.security.policies import USER, Acl, Resources
from perseid.security.users import SUPER, User, refuse, user_status, user_type
from perseid.wire import fastjson
from perseid.wire.codes import RequestCode as Code
from perseid.wire.codes import ResponseCode
from perseid.wire.headers.users import AclRequest, DeleteAclRequest, ListAclsRequest, ListUsersRequest, UserRequest
from perseid.wire.users import AclInfo, UserInfo


@dataclass(slots=True, kw_only=True)
class AccessRequests:
    """Requests about users and policies."""

    users: UserTable
    acls: AclTable
    authenticates: bool
    audit: Audit | None = None

    def routes(self) -> tuple[Route, ...]:
        """The rows of these requests."""
        change, look = of_cluster(UPDATE), of_cluster(GET)
        return (
            Route(Code.AUTH_CREATE_USER, UserRequest, self.create_user, asks=change),
            Route(Code.AUTH_UPDATE_USER, UserRequest, self.update_user, asks=change),
            Route(Code.AUTH_DELETE_USER, UserRequest, self.delete_user, asks=change),
            Route(Code.AUTH_GET_USER, UserRequest, self.get_user, asks=look),
            Route(Code.AUTH_LIST_USER, ListUsersRequest, self.list_users, asks=look),
            Route(Code.AUTH_CREATE_ACL, AclRequest, self.create_acl, asks=change),
            Route(Code.AUTH_UPDATE_ACL, AclRequest, self.create_acl, asks=change),
            Route(Code.AUTH_DELETE_ACL, DeleteAclRequest, self.delete_acl, asks=change),
            Route(Code.AUTH_GET_ACL, AclRequest, self.get_acl, asks=look),
            Route(Code.AUTH_LIST_ACL, ListAclsRequest, self.list_acls, asks=look),
        )

    # ---- users ----

    def create_user(self, request: Request) -> Reply:
        """A new user. Only a Super user makes a Super user."""
        name, info = self._given_user(request)
        kind = user_type(info.user_type)
        self._check_super(request, kind, "create")
        self.users.create(name, info.password, kind, user_status(info.user_status))
        return Reply()

    def update_user(self, request: Request) -> Reply:
        """Another password, type or status; what is not given stays."""
        name, info = self._given_user(request)
        kind = user_type(info.user_type)
        self._check_super(request, kind, "update")
        self._check_may_change(request, self.users.get(name))
        self.users.update(name, info.password, kind, user_status(info.user_status))
        return Reply()

    def delete_user(self, request: Request) -> Reply:
        """A user is gone, with its policies. That there is none is a success, too."""
        self._check_on()
        name = request.header.username or ""
        self._check_may_change(request, self.users.get(name))
        self.users.delete(name)
        self.acls.put(name, None)
        return Reply()

    def get_user(self, request: Request) -> Reply:
        """A user without its secret; an empty body where there is none."""
        self._check_on()
        user = self.users.get(_name(request))
        return Reply() if user is None else Reply(body=_told(user).to_json())

    def list_users(self, request: Request) -> Reply:
        """Users whose name has the filter in it."""
        self._check_on()
        found = self.users.listed(request.header.filter or "")
        return Reply(body=fastjson.dumps([_told(user) for user in found])) if found else Reply()

    def _given_user(self, request: Request) -> tuple[str, UserInfo]:
        self._check_on()
        name = _name(request)
        if not request.body:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the body with the user is missing")
        return name, UserInfo.from_json(request.body)

    def _check_super(self, request: Request, kind: str | None, done: str) -> None:
        if kind == SUPER and not self._is_by_super(request):
            remark = f"The super user can only be {done} by super user"
            self._write_down(request, remark)
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)

    def _check_may_change(self, request: Request, user: User | None) -> None:
        if user is not None and user.is_super and not self._is_by_super(request):
            remark = "The super user can only be update by super user"
            self._write_down(request, remark)
            raise refuse(remark)

    def _write_down(self, request: Request, why: str) -> None:
        if self.audit is not None:
            self.audit.refused(request, (), why)

    def _is_by_super(self, request: Request) -> bool:
        user = self.users.get(request.user or "")
        return user is not None and user.is_super

    # ---- policies ----

    def create_acl(self, request: Request) -> Reply:
        """Entries of policies, beside those that the user has; one for the same resources takes the old one's place."""
        name = self._subject(request)
        info = AclInfo.from_json(request.body) if request.body else AclInfo()
        if not info.policies:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        wanted = Acl.of(info)
        if self.users.get(name) is None:
            raise refuse(f"The subject of {USER}{name} is not exist.")
        had = self.acls.acls.get(name)
        self.acls.put(name, wanted if had is None else had.merged(wanted))
        return Reply()

    def delete_acl(self, request: Request) -> Reply:
        """The entries for a resource are gone; without one, all that the user has."""
        name = self._subject(request)
        if self.users.get(name) is None:
            raise refuse("The subject is not exist.")
        had = self.acls.acls.get(name)
        if had is None:
            raise refuse("The acl is not exist.")
        resources = Resources.of(request.header.resource)
        if resources is None and request.header.resource:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER, "the resource is none: Topic:NAME, Group:NAME or Cluster:NAME is wanted"
            )
        self.acls.put(name, None if resources is None else had.without(request.header.policy_type, resources))
        return Reply()

    def get_acl(self, request: Request) -> Reply:
        """What a user's policies are; an empty body where it has none."""
        name = self._subject(request)
        if self.users.get(name) is None:
            raise refuse("The subject is not exist.")
        acl = self.acls.acls.get(name)
        return Reply() if acl is None else Reply(body=acl.told(name).to_json())

    def list_acls(self, request: Request) -> Reply:
        """Policies of users whose name has the one filter in it, and of them those about resources with the other."""
        self._check_on()
        part, resource = request.header.subject_filter or "", request.header.resource_filter or ""
        told = [acl.told(name, resource) for name, acl in sorted(self.acls.acls.items()) if part in USER + name]
        found = [acl for acl in told if acl.policies]
        return Reply(body=fastjson.dumps(found)) if found else Reply()

    def _subject(self, request: Request) -> str:
        self._check_on()
        subject = request.header.subject or ""
        name = subject.removeprefix(USER)
        if not subject.startswith(USER) or not name:
            raise refuse("The subject is null.")
        return name

    def _check_on(self) -> None:
        if not self.authenticates:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                "this broker has no users: set authenticationEnabled=true and initAuthenticationUser, and restart it",
            )


def _name(request: Request) -> str:
    name: str = request.header.username or ""
    if not name.strip():
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return name


def _told(user: User) -> UserInfo:
    return UserInfo(username=user.name, user_type=user.type, user_status=user.status)
