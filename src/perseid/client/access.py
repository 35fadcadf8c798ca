"""Users and their permissions (requests 3001 to 3010): a part of `Admin`.

Each broker keeps its own users and policies, so each method sends its request to one broker, `address` (`host:port`).
`Admin.masters` gives the addresses of all masters. A refusal is raised as `ServerRefused`, with the broker's remark.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from perseid.client.answers import body_of
from perseid.client.connection import Header
from perseid.client.errors import BadAnswer
from perseid.client.lifecycle import Client
from perseid.security.policies import ALLOW, CUSTOM, USER
from perseid.security.users import NORMAL
from perseid.wire.body import Body
from perseid.wire.codes import RequestCode
from perseid.wire.command import Command
from perseid.wire.headers.users import AclRequest, DeleteAclRequest, ListAclsRequest, ListUsersRequest, UserRequest
from perseid.wire.users import ACLS, USERS, AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

B = TypeVar("B", bound=Body)


def subject_of(user: str) -> str:
    """`User:NAME`, as policies name whom they are for."""
    return user if user.startswith(USER) else USER + user


def policy(
    resources: Sequence[str],
    actions: Sequence[str],
    *,
    decision: str = ALLOW,
    source_ips: Sequence[str] = (),
    policy_type: str = CUSTOM,
) -> PolicyInfo:
    """The same for each of these resources: `Topic:orders`, `Group:pay*` (a prefix), `Cluster:*`, `*`."""
    ips = list(source_ips) or None
    entries = [
        PolicyEntryInfo(resource=one, actions=list(actions), source_ips=ips, decision=decision) for one in resources
    ]
    return PolicyInfo(policy_type=policy_type, entries=entries)


def _listed(kind: msgspec.json.Decoder[list[B]], answer: Command, address: str) -> list[B]:
    try:
        return kind.decode(answer.body) if answer.body else []
    except msgspec.DecodeError as error:
        raise BadAnswer(f"{address}: what it answered can't be read: {error}; is it a broker?") from None


class AccessRequests(Client):
    """The ten requests, as methods of `Admin`."""

    async def create_user(self, username: str, password: str, address: str, *, user_type: str = NORMAL) -> None:
        """Create a user. Only a Super user creates one of type Super."""
        user = UserInfo(username=username, password=password, user_type=user_type)
        await self._ask(address, RequestCode.AUTH_CREATE_USER, UserRequest(username=username), user.to_json())

    async def update_user(
        self,
        username: str,
        address: str,
        *,
        password: str | None = None,
        user_type: str | None = None,
        user_status: str | None = None,
    ) -> None:
        """Change the given properties of a user; the others stay. `user_status`: enable or disable."""
        user = UserInfo(username=username, password=password, user_type=user_type, user_status=user_status)
        await self._ask(address, RequestCode.AUTH_UPDATE_USER, UserRequest(username=username), user.to_json())

    async def delete_user(self, username: str, address: str) -> None:
        """Delete a user with all its policies. It succeeds also if there is no such user."""
        await self._ask(address, RequestCode.AUTH_DELETE_USER, UserRequest(username=username))

    async def user(self, username: str, address: str) -> UserInfo | None:
        """A user, or None if there is no such user."""
        answer = await self._ask(address, RequestCode.AUTH_GET_USER, UserRequest(username=username))
        return body_of(answer, UserInfo) if answer.body else None

    async def users(self, address: str, *, name_part: str | None = None) -> list[UserInfo]:
        """All users, or those with `name_part` in their names, sorted by name."""
        answer = await self._ask(address, RequestCode.AUTH_LIST_USER, ListUsersRequest(filter=name_part))
        found = _listed(USERS, answer, address)
        return sorted(found, key=lambda user: user.username or "")

    async def create_acl(self, user: str, policies: Sequence[PolicyInfo], address: str) -> None:
        """Add policies to those that a user has. A new policy replaces an earlier one for the same resource."""
        await self._set_acl(RequestCode.AUTH_CREATE_ACL, user, policies, address)

    async def update_acl(self, user: str, policies: Sequence[PolicyInfo], address: str) -> None:
        """Change policies of a user. Those for other resources stay, as with `create_acl`."""
        await self._set_acl(RequestCode.AUTH_UPDATE_ACL, user, policies, address)

    async def delete_acl(
        self, user: str, address: str, *, resource: str | None = None, policy_type: str | None = None
    ) -> None:
        """Delete a user's policies for a resource, or without a resource all its policies, of both types."""
        request = DeleteAclRequest(subject=subject_of(user), policy_type=policy_type, resource=resource)
        await self._ask(address, RequestCode.AUTH_DELETE_ACL, request)

    async def acl(self, user: str, address: str) -> AclInfo | None:
        """A user's policies, or None if it has none. `ServerRefused` if there is no such user."""
        answer = await self._ask(address, RequestCode.AUTH_GET_ACL, AclRequest(subject=subject_of(user)))
        return body_of(answer, AclInfo) if answer.body else None

    async def acls(
        self, address: str, *, subject_part: str | None = None, resource_part: str | None = None
    ) -> list[AclInfo]:
        """All policies, or those whose subjects and resources have these parts in their names, sorted by subject."""
        request = ListAclsRequest(subject_filter=subject_part, resource_filter=resource_part)
        answer = await self._ask(address, RequestCode.AUTH_LIST_ACL, request)
        found = _listed(ACLS, answer, address)
        return sorted(found, key=lambda acl: acl.subject or "")

    async def _set_acl(self, code: RequestCode, user: str, policies: Sequence[PolicyInfo], address: str) -> None:
        subject = subject_of(user)
        body = AclInfo(subject=subject, policies=list(policies)).to_json()
        await self._ask(address, code, AclRequest(subject=subject), body)

    @abstractmethod
    async def _ask(self, address: str, code: RequestCode, header: Header = None, body: bytes = b"") -> Command:
        """The answer of a broker that does not refuse."""
