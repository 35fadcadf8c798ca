"""Requests about users and what is permitted to them (codes 3001 to 3010)."""

from __future__ import annotations

from perseid.wire.headers.base import Header


class UserRequest(Header):
    """3001 to 3004."""

    username: str | None = None


class ListUsersRequest(Header):
    """3005. `filter`: a part of the name."""

    filter: str | None = None


class AclRequest(Header):
    """3006, 3007 and 3009. `subject`: `User:NAME`."""

    subject: str | None = None


class DeleteAclRequest(Header):
    """3008. Without a resource: all that the subject has."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequest(Header):
    """3010."""

    subject_filter: str | None = None
    resource_filter: str | None = None
