"""TLS in the simulator: what each end of a connection shows and trusts, and what has to follow from it.

Keys and random bytes of TLS are OpenSSL's own, and differ in each run; their lengths do not (TLS 1.3, Ed25519, no
tickets). So what is sealed is cut, delayed and lost in the same places in each run of a seed, and what comes out is the
same. The trace has the plain bytes.

What has to hold, whatever fails meanwhile (`Link`, `net.py`):

- a port that demands TLS serves nobody without it; one that demands certificates (of replication or of a Raft group,
  where clients are asked for any; all, where clients have to show them) nobody whose certificate none of the CAs that
  it trusts by then has signed; nobody goes on with a server whose certificate another CA has signed;
- a connection is ready when both have finished their handshake, not before;
- what comes out is what went in, in order; nothing of it leaves in the clear; a flipped bit ends the connection;
- no other connection that was begun ends because of TLS, certificates may change as they like.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from perseid.base.errors import RemoteProtocolError
from perseid.disk.lent import lent
from perseid.raft.node import LISTENER as GROUP
from perseid.replication.receiver import LISTENER as HA
from perseid.security.certificates import (
    NONE,
    OPTIONAL,
    REQUIRE,
    Own,
    Pair,
    Terms,
    Wanted,
    authority,
    client_context,
    issue,
    server_context,
)
from perseid.security.tls import ClientSide, Mode, ServerSide, State, Tls
from perseid.sim.promises import Violation
from perseid.sim.scheduler import Stream

DIALS = 0.7
"""Of connections, that are dialled with TLS where a port takes both."""
ENFORCES, USES, HA_TLS = 0.5, 0.7, 0.8
"""So many of the runs demand TLS, have useTLS (always where it is demanded), and haTls."""
ASKS = (NONE, OPTIONAL, OPTIONAL, REQUIRE)
"""Of clients, for certificates (tls.server.need.client.auth)."""
NAME = "sim"
SINCE, DAYS = datetime(2020, 1, 1, tzinfo=UTC), 36_500
FORMER, NEXT, FOREIGN = 0, 1, 2
"""CAs: the one that nodes begin with, the one that follows, and somebody else's."""
STEPS = ((FORMER, (FORMER,)), (FORMER, (FORMER, NEXT)), (NEXT, (FORMER, NEXT)), (NEXT, (NEXT,)))
"""How an operator changes the CA: whose certificates are shown, and whose are trusted."""

WORDS = {
    "bytes without TLS": "plain bytes refused",
    "the client's certificate is refused": "a client's certificate refused",
    "the client has no certificate": "a client without a certificate refused",
    "only members of the cluster": "a member without a certificate refused",
    "the certificate of": "a server's certificate refused",
    "no end of the handshake": "TLS handshake took too long",
}
"""Words of why a connection ends, and what they are counted as."""


@dataclass(frozen=True, slots=True)
class Dress:
    """What a stranger shows."""

    name: str
    ca: int | None = None
    """Whose certificate it has."""
    plain: bool = False
    """It does not speak TLS."""


PLAIN, ANONYMOUS = Dress("plain bytes", plain=True), Dress("no certificate")
STRANGERS = (PLAIN, ANONYMOUS, Dress("a foreign certificate", FOREIGN), Dress("a former certificate", FORMER))


@cache
def _authority(ca: int) -> Pair:
    return authority(f"CA{ca}", SINCE, DAYS, stable=True)


@cache
def _pem(ca: int, hosts: tuple[str, ...]) -> bytes:
    made = issue(_authority(ca), Wanted(NAME, SINCE, hosts, DAYS, stable=True))
    return made.certificate + made.key


@cache
def _trusted(cas: tuple[int, ...]) -> bytes:
    return b"".join(_authority(ca).certificate for ca in cas)


TERMS = Terms(["TLSv1.3"])


@cache
def _server_context(ca: int, trusts: tuple[int, ...], ask: str) -> ssl.SSLContext:
    with lent(_pem(ca, (NAME,))) as own, lent(_trusted(trusts)) as trust:
        return server_context(Own(own, own), trust="" if ask == NONE else trust, ask=ask, terms=TERMS)


@cache
def _client_context(ca: int | None, trusts: tuple[int, ...]) -> ssl.SSLContext:
    """`trusts` empty: it verifies nobody."""
    if ca is None:
        return client_context(verify=False, terms=TERMS)
    with lent(_pem(ca, ())) as own, lent(_trusted(trusts)) as trust:
        return client_context(trust=trust if trusts else "", own=Own(own, own), verify=bool(trusts), terms=TERMS)


def forget_keys() -> None:
    """The next run has other keys."""
    for made in (_authority, _pem, _trusted, _server_context, _client_context):
        made.cache_clear()


class Link:
    """What both ends of a connection have shown, and what was seen of it. `None`: nobody has shown anything yet."""

    __slots__ = (
        "begun", "demands_certificate", "demands_tls", "near", "near_trusts", "server", "server_trusts", "spoilt",
    )  # fmt: skip

    def __init__(
        self, near: Dress, near_trusts: tuple[int, ...], *, demands_tls: bool, demands_certificate: bool
    ) -> None:
        self.near, self.near_trusts = near, near_trusts
        self.demands_tls, self.demands_certificate = demands_tls, demands_certificate
        self.server: int | None = None
        """Whose certificate the server shows."""
        self.server_trusts: tuple[int, ...] = ()
        """Whom it trusted by then."""
        self.begun = False
        """The server has finished: both are ready, or will be."""
        self.spoilt = 0
        """The end that bytes came to with a flipped bit; 0: neither."""

    def accepted(self, tls: Tls, other: Tls | None) -> None:
        """The server's end is ready."""
        if tls.state is State.CLEAR:
            if self.demands_tls:
                raise Violation("a port that demands TLS takes nothing else", self.near.name)
            return
        if other is not None and other.state is State.HANDSHAKE:
            raise Violation("a connection is ready when both have shaken hands", "the client has not")
        if self.demands_certificate and self.near.ca not in self.server_trusts:
            trusted = f"trusted: {self.server_trusts}"
            raise Violation("who shows no certificate that is trusted stays outside", f"{self.near.name}, {trusted}")
        self.begun = True

    def dialled(self, other: Tls | None) -> None:
        """The client's end is ready."""
        if other is not None and other.state is State.FIRST:
            raise Violation("a connection is ready when both have shaken hands", "the server has not begun")
        if self.near_trusts and self.server not in self.near_trusts:
            shown = f"it shows one of CA{self.server}, trusted: {self.near_trusts}"
            raise Violation("nobody goes on with who can't show that it is the server", shown)

    def ended(self, why: str) -> None:
        """TLS found something wrong."""
        if self.begun and not self.spoilt:
            raise Violation("a connection that was begun goes on", why)


class Secured:
    """The TLS of a run's connections."""

    def __init__(self, random: Stream, count: Callable[[str], None]) -> None:
        self._random, self._count = random, count
        self.enforces = random.random() < ENFORCES
        self.uses = random.random() < USES or self.enforces
        self.ha = random.random() < HA_TLS
        self.asks = random.choice(ASKS)
        self.step = 0
        """Of `STEPS`."""
        self.impostors: set[str] = set()
        """Machines in whose place somebody else answers, who has a certificate of another CA."""
        self.cuts = False
        """Handshakes are cut."""
        for name, is_so in (("TLS demanded", self.enforces), ("useTLS", self.uses), ("haTls", self.ha)):
            if is_so:
                count(name)
        count(f"certificates of clients: {self.asks}")

    @property
    def own(self) -> Dress:
        """What nodes and clients show."""
        return Dress("a node", STEPS[self.step][0])

    @property
    def trusts(self) -> tuple[int, ...]:
        """Whom they trust."""
        return STEPS[self.step][1]

    def strangers(self) -> list[Dress]:
        """Who has no right to be there."""
        return [one for one in STRANGERS if one.ca not in self.trusts]

    def ends(
        self, kind: str, listener: str, machine: str, stranger: Dress | None
    ) -> tuple[Tls | None, Tls, Link]:
        """Of a new connection: the one that dials, the one that accepts, and what is known of both. `kind`: that of
        the dial, as its node named it; `listener`, `machine`: where it goes; `stranger`: who dials, if it is none of
        the run's own."""
        certified = self.certified(listener)
        demands = certified or (self.ha if listener == HA else self.enforces)
        speaks_tls = self._dials(kind, listener) if stranger is None else not stranger.plain
        link = Link(
            (stranger or self.own) if speaks_tls else PLAIN, () if stranger else self.trusts, demands_tls=demands,
            demands_certificate=certified or self.asks == REQUIRE,
        )  # fmt: skip
        near = self._dialled(link) if speaks_tls else None
        mode = Mode.ENFORCING if (self.ha if listener == HA else self.enforces) else Mode.PERMISSIVE
        return near, Tls.accepted(ServerSide(mode, lambda: self._asked(link, machine), certified=certified)), link

    def certified(self, listener: str) -> bool:
        """Are only members with a certificate taken there?"""
        members = {HA: self.ha, GROUP: self.uses}
        return members.get(listener, False) and self.asks != NONE

    def _dials(self, kind: str, listener: str) -> bool:
        """Is it dialled with TLS? As nodes are told: haTls, useTLS."""
        if kind == HA:
            return self.ha
        if listener == HA:  # somebody at the port of replication who is no slave
            return self.ha or self._random.random() < DIALS
        return self.uses or self._random.random() < DIALS

    @staticmethod
    def _dialled(link: Link) -> Tls:
        context = _client_context(link.near.ca, link.near_trusts)
        return Tls.dialled(ClientSide(lambda: context), f"{NAME}:0")

    def _asked(self, link: Link, machine: str) -> ssl.SSLContext:
        """The server's context, as it is by now."""
        own, link.server_trusts = STEPS[self.step]
        link.server = FOREIGN if machine in self.impostors else own
        return _server_context(link.server, link.server_trusts, self.asks)

    def met(self, why: str) -> None:
        """A connection ends because of TLS."""
        for words, what in WORDS.items():
            if words in why:
                self._count(what)

    def heal(self) -> None:
        """All is well from now on."""
        self.impostors.clear()
        self.cuts = False


def is_of_tls(error: RemoteProtocolError) -> bool:
    """Did TLS end the connection, and not what came through it?"""
    return str(error).startswith(("TLS", "bytes without TLS"))
