"""Who is a member of the cluster: what name servers and controllers ask of a request, and of a connection.

These know two users, both Super and both from their settings: the one that nodes sign as, and the initial one, for
people. Nothing is stored, and there are no permissions: a row of their route table either is for everybody, or for
these two. All others are users of brokers, which each broker keeps for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from perseid.base.config import option
from perseid.base.errors import ConfigError, RequestRefused
from perseid.base.machine import Millis
from perseid.security import given
from perseid.security.audit import AuditOptions, Journal
from perseid.security.authentication import stranger
from perseid.security.credentials import Credentials
from perseid.security.refusals import Refusals
from perseid.security.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from perseid.security.users import SUPER, User, Users, refuse
from perseid.wire.command import Command
from perseid.wire.rpc import Sign


class Asks(Enum):
    """What a request of a name server or a controller asks of whoever sends it."""

    NOTHING = auto()
    SUPER = auto()
    """To be signed by a Super user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions(AuditOptions):
    """Of users, as they stand in the file of a name server or a controller. Names are those of AuthConfig."""

    authentication_enabled: bool = option(
        False,
        "Requests that change something must be signed by one of the two users below. Needs "
        "`innerClientAuthenticationCredentials`.",
        section="Users",
    )
    authorization_enabled: bool = option(
        False,
        "No effect: the two users may do everything, and nobody else anything.",
    )
    init_authentication_user: str = option(
        "",
        'The user for people and tools: `{"username":"…","password":"…"}`.',
        secret=True,
    )
    inner_client_authentication_credentials: str = option(
        "",
        'The user as which nodes sign: `{"accessKey":"…","secretKey":"…"}`, the same on all nodes of the cluster.',
        secret=True,
    )
    authentication_whitelist: str = option(
        "",
        "Request codes, with commas between them, that need no signature.",
    )


EVERYBODY = MemberOptions()


class Members:
    """Those who may speak as members, at one node."""

    def __init__(
        self,
        inner: Credentials | None = None,
        initial: User | None = None,
        *,
        authenticates: bool = False,
        unsigned: frozenset[int] = frozenset(),
        certified: bool = False,
        journal: Journal | None = None,
    ) -> None:
        """`inner`: what this node signs with; `authenticates`: requests of others have to be signed; `certified`:
        members of our own group have to show certificates; `journal`: what people ask for, and what is refused, is
        written there."""
        self.authenticates = authenticates
        self.certified = certified
        self._sign = inner.sign if inner is not None else None
        self._unsigned = unsigned
        self._journal = journal
        self._nodes = "" if inner is None else inner.access_key
        self._users = Users()
        self._refusals = Refusals()
        if initial is not None:
            self._users.create(initial.name, initial.secret, SUPER, None)
        if inner is not None:
            self._users.delete(inner.access_key)
            self._users.create(inner.access_key, inner.secret_key, SUPER, None)

    @property
    def sign(self) -> Sign | None:
        """Gives the fields of a request of ours; None: it is not signed."""
        return self._sign

    def stranger(self, command: Command) -> str:
        """Why whoever sent this is no member; nothing: it is one, or nobody has to be."""
        return stranger(command, self._users, self._unsigned) if self.authenticates else ""

    def admit(self, command: Command, asks: Asks, peer: str, now: Millis, note: Callable[[str, str], None]) -> None:
        """RequestRefused(16): whoever sent this may not. `note` is told now and then how many there were."""
        if asks is Asks.NOTHING or not self.authenticates:
            return
        why = self.stranger(command)
        self._write_down(command, why, peer, now)
        if not why:
            return
        if line := self._refusals.line(command.code, peer, why, now):
            note("warning", line)
        raise refuse(why)

    def _write_down(self, command: Command, why: str, peer: str, now: Millis) -> None:
        """What nodes do all day has no line."""
        user = command.ext.get(ACCESS_KEY) or ""
        if self._journal is not None and (why or user != self._nodes):
            fields = None if why else partial(_fields, command)
            self._journal.tell(now, command.code, user, peer, why=why, fields=fields)

    # ---- what had no line, for there was too much ----

    def tick(self, now: Millis) -> None:
        """Say how much, when it is time."""
        if self._journal is not None:
            self._journal.tick(now)

    def next_deadline(self) -> Millis | None:
        """When that is."""
        return None if self._journal is None else self._journal.next_deadline()

    def close(self, now: Millis) -> None:
        """The node ends."""
        if self._journal is not None:
            self._journal.close(now)


def _fields(command: Command) -> dict[str, object]:
    return {name: value for name, value in command.ext.items() if name not in (ACCESS_KEY, SIGNATURE, SECURITY_TOKEN)}


OPEN = Members()
"""Everybody may do everything."""


def members_of(options: MemberOptions, *, certified: bool = False, journal: Journal | None = None) -> Members:
    """ConfigError, with the setting's name and never its value, when something is not as it has to be."""
    inner = given.inner_credentials(options.inner_client_authentication_credentials)
    if options.authorization_enabled and not options.authentication_enabled:
        raise ConfigError(
            "authorizationEnabled=true: anybody could pass for any user; set authenticationEnabled=true, too"
        )
    if options.authentication_enabled and inner is None:
        raise ConfigError(
            "authenticationEnabled=true needs innerClientAuthenticationCredentials, the same on all nodes of the "
            "cluster: what they sign with when they register, elect and report"
        )
    try:
        return Members(
            inner,
            given.initial_user(options.init_authentication_user),
            authenticates=options.authentication_enabled,
            unsigned=given.codes("authenticationWhitelist", options.authentication_whitelist),
            certified=certified,
            journal=journal,
        )
    except RequestRefused as refused:
        raise ConfigError(f"initAuthenticationUser or innerClientAuthenticationCredentials: {refused.remark}") from None
