"""What requests 3001 to 3010 carry: a user, and what is permitted to one (remoting.md, UserInfo and AclInfo)."""

from __future__ import annotations

import msgspec

from perseid.wire.body import Body


class UserInfo(Body):
    """A user as operators send and see it. `user_type`: Super or Normal; `user_status`: enable or disable."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"UserInfo({self.username!r}, {self.user_type}, {self.user_status})"


class PolicyEntryInfo(Body):
    """`resource`: `Topic:orders`, `Group:pay*`, `Cluster:*`, …; `decision`: Allow or Deny."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(Body):
    """`policy_type`: Custom (what None means) or Default."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(Body):
    """All that is permitted and denied to a subject, `User:NAME`."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None


USERS = msgspec.json.Decoder(list[UserInfo])
ACLS = msgspec.json.Decoder(list[AclInfo])
"""Of the answers to 3005 and 3010."""
