"""Which machines host names stand for, so that what a peer sends is taken from its own machine alone.

An address is known when it is written as one, or when the driver has resolved its name (`Resolve` → `Resolved`). A name
is resolved anew each `REFRESH_MS`, and sooner when a connection comes from a machine that no name stands for: machines
behind names change their addresses. A name that can't be resolved keeps the addresses that it had.

Loopback is one machine: where a peer is named by any loopback address, its connections may come from 127.0.0.1 and ::1.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from perseid.base.machine import Effect, Millis, Resolve, Resolved

REFRESH_MS = 30_000
SOON_MS = 1_000
"""Between two questions that strangers were the reason of."""
REMEMBERED = 1_024
"""Addresses whose canonical form is: each request of a peer asks for it."""
LOOPBACK = frozenset(("127.0.0.1", "::1"))
Address = IPv4Address | IPv6Address


def host_of(address: str) -> str:
    """The host of `host:port`, or of a host alone, without the brackets of an IPv6 address."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or (":" in host and not host.startswith("[")):
        host = address
    return host.strip("[]")


@lru_cache(REMEMBERED)
def canonical(host: str) -> str | None:
    """An IP address as it is compared: an IPv4 address within IPv6 is the IPv4 address. None: it is a name."""
    try:
        found: Address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return str(found)


def _machine(addresses: Iterable[str]) -> frozenset[str]:
    """All addresses from which a machine with these may connect."""
    known = frozenset(one for one in map(canonical, addresses) if one is not None)
    return known | LOOPBACK if any(ip_address(one).is_loopback for one in known) else known


def is_same_machine(peer: str, address: str) -> bool:
    """Does a connection of `peer` come from the machine of `address`? A name is nobody's, for it is not looked up."""
    host, known = canonical(host_of(peer)), canonical(host_of(address))
    return host is not None and known is not None and host in _machine([known])


class Hosts:
    """The machines of some peers, by `host:port`."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._machines: dict[str, frozenset[str]] = {}
        """Host → its addresses; a name that is not resolved yet has none."""
        self._names: tuple[str, ...] = ()
        self._ask_at: Millis | None = None
        self._asked_at: Millis = -SOON_MS
        self.set(addresses)

    def set(self, addresses: Iterable[str]) -> None:
        """Take these peers in place of those before; what is known of names that stay is kept."""
        hosts = dict.fromkeys(map(host_of, addresses))
        known, self._machines = self._machines, {}
        for host in hosts:
            if host == "localhost":
                self._machines[host] = LOOPBACK
            elif canonical(host) is not None:
                self._machines[host] = _machine([host])
            else:
                self._machines[host] = known.get(host, frozenset())
        self._names = tuple(host for host in hosts if host != "localhost" and canonical(host) is None)
        if not self._names:
            self._ask_at = None
        elif not all(self._machines[name] for name in self._names):
            self._ask_at = 0

    def is_at(self, peer: str, address: str, now: Millis) -> bool:
        """Does a connection of `peer` come from the machine of `address`? When not, its name is soon resolved anew."""
        if canonical(host_of(peer)) in self._machines.get(host_of(address), ()):
            return True
        self._hurry(now)
        return False

    def has(self, peer: str, now: Millis) -> bool:
        """Does a connection of `peer` come from any of these machines?"""
        host = canonical(host_of(peer))
        if any(host in machine for machine in self._machines.values()):
            return True
        self._hurry(now)
        return False

    def _hurry(self, now: Millis) -> None:
        if self._names and self._ask_at is not None:
            self._ask_at = min(self._ask_at, max(now, self._asked_at + SOON_MS))

    # ---- names ----

    def ask(self, now: Millis) -> list[Effect]:
        """Ask the driver for the names, when that is due."""
        if self._ask_at is None or now < self._ask_at:
            return []
        self._ask_at, self._asked_at = now + REFRESH_MS, now
        return [Resolve(self._names)]

    def take(self, event: Resolved) -> None:
        """What the driver found; names of others are passed over."""
        for name, addresses in event.addresses.items():
            if name in self._names and addresses:
                self._machines[name] = _machine(addresses)

    def next_deadline(self) -> Millis | None:
        return self._ask_at
