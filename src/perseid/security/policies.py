"""Policies: what a user may do with which topics, groups and clusters, and from where.

A request asks for resources, each with some actions (`Asked`). For each of them one entry decides: of the entries that
match resource, action and address, custom ones go before default ones; then the more exact one (a type before `*`,
a literal name before a prefix, a longer prefix before a shorter one, any name last); of two that are equally exact, one
that denies. No entry matches: denied.

The original evaluates in the same order since 5.5.0. Two things differ here, on purpose: addresses are compared as
addresses, not as texts, and a range holds only addresses of its own family (docs/divergence.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from perseid.security.users import refuse
from perseid.wire.users import AclInfo, PolicyEntryInfo, PolicyInfo

MAX_ENTRIES = 1_000
"""Of one user."""
MAX_SOURCES = 100
"""Of one entry."""
MAX_RESOURCE_CHARS = 512
CUSTOM, DEFAULT = "Custom", "Default"
ALLOW, DENY = "Allow", "Deny"
USER = "User:"
"""What the name of a subject begins with; there are no others."""
NO_POLICY, DENIED = "no matched policies.", "the decision is deny."

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class ResourceType(Enum):
    """What is asked for. ANY: all kinds, in policies."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(Enum):
    """What is done with it. ALL: everything, in policies."""

    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"
    ALL = "All"


class Pattern(Enum):
    """How a policy names resources; a lower one is more exact."""

    LITERAL = 1
    PREFIXED = 2
    ANY = 3


_TYPES = {kind.value.lower(): kind for kind in ResourceType}
_ACTIONS = {action.value.lower(): action for action in Action}
_DECISIONS = {ALLOW.lower(): ALLOW, DENY.lower(): DENY}
_POLICY_TYPES = {CUSTOM.lower(): CUSTOM, DEFAULT.lower(): DEFAULT}


class Asked(NamedTuple):
    """One resource that a request is about, and the actions of which one has to be allowed."""

    type: ResourceType
    name: str
    actions: tuple[Action, ...]

    @property
    def key(self) -> str:
        """As remarks name it."""
        return f"{self.type.value}:{self.name}"


class Resources(NamedTuple):
    """Those that a policy is about."""

    type: ResourceType
    pattern: Pattern
    name: str = ""

    @classmethod
    def of(cls, text: str | None) -> Resources | None:
        """`Topic:orders`, `Group:pay*`, `Cluster:*`, `*`; None for what is none."""
        if text is None or not text.strip() or len(text) > MAX_RESOURCE_CHARS:
            return None
        if text == "*":
            return cls(ResourceType.ANY, Pattern.ANY)
        kind, _, name = text.partition(":")
        found = _TYPES.get(kind.lower())
        if found is None:
            return None
        prefix = name.rstrip("*")
        if found is ResourceType.ANY or (name and not prefix):
            return cls(found, Pattern.ANY)
        if name != prefix:
            return cls(found, Pattern.PREFIXED, prefix)
        return cls(found, Pattern.LITERAL, name)

    @property
    def key(self) -> str:
        """The text that `of` reads."""
        if self.type is ResourceType.ANY:
            return "*"
        star = "" if self.pattern is Pattern.LITERAL else "*"
        return f"{self.type.value}:{self.name}{star}"

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The lower, the more exact."""
        return self.type is ResourceType.ANY, self.pattern.value, -len(self.name)

    def holds(self, asked: Asked) -> bool:
        """Is it one of them?"""
        if self.type is ResourceType.ANY:
            return True
        if self.type is not asked.type:
            return False
        if self.pattern is Pattern.LITERAL:
            return asked.name == self.name
        return self.pattern is Pattern.ANY or asked.name.startswith(self.name)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a policy. No sources: from everywhere."""

    resources: Resources
    actions: tuple[Action, ...]
    allows: bool
    sources: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()

    def matches(self, asked: Asked, address: Address | None) -> bool:
        """Is it about this?"""
        if not self.resources.holds(asked):
            return False
        if Action.ALL not in self.actions and not any(action in self.actions for action in asked.actions):
            return False
        if not self.networks:
            return True
        return address is not None and any(
            address.version == network.version and address in network for network in self.networks
        )

    def told(self) -> PolicyEntryInfo:
        """As operators see it."""
        actions = [action.value for action in self.actions]
        sources = list(self.sources) if self.sources else None
        return PolicyEntryInfo(self.resources.key, actions, sources, ALLOW if self.allows else DENY)


def entry_of(info: PolicyEntryInfo) -> Entry:
    """RequestRefused(16), in the original's words, when it is none."""
    resources = Resources.of(info.resource)
    if resources is None:
        raise refuse("The resource is null.")
    actions = tuple(dict.fromkeys(found for text in info.actions or () if (found := _ACTIONS.get(text.lower()))))
    if any(text.lower() == "any" for text in info.actions or ()):
        raise refuse("The actions can not be Any.")
    if not actions:
        raise refuse("The actions is empty.")
    sources = tuple(info.source_ips or ())
    if len(sources) > MAX_SOURCES:
        raise refuse(f"The entry has {len(sources)} source ips, {MAX_SOURCES} are the most.")
    networks = tuple(map(_network, sources))
    decision = _DECISIONS.get((info.decision or "").lower())
    if decision is None:
        raise refuse("The decision is null or illegal.")
    return Entry(resources, actions, decision == ALLOW, sources, networks)


def _network(text: str) -> Network:
    if not text.strip():
        raise refuse("The source ip is empty.")
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise refuse("The source ip is invalid.") from None


@dataclass(slots=True)
class Acl:
    """All policies of one user, by their type and the resources that they are about."""

    entries: dict[str, dict[Resources, tuple[Entry, ...]]]

    @classmethod
    def of(cls, info: AclInfo) -> Acl:
        """RequestRefused(16) when it is none. Entries for the same resources stand beside one another."""
        if not info.policies:
            raise refuse("The policies is empty.")
        acl = cls({})
        for policy in info.policies:
            kind = _POLICY_TYPES.get((policy.policy_type or CUSTOM).lower())
            if kind is None:
                raise refuse("The policy type is null or illegal.")
            if not policy.entries:
                raise refuse("The policy entries is empty.")
            mine = acl.entries.setdefault(kind, {})
            for entry in map(entry_of, policy.entries):
                mine[entry.resources] = (*mine.get(entry.resources, ()), entry)
        acl._check_size()
        return acl

    def merged(self, other: Acl) -> Acl:
        """With the entries of another one, which take the place of those for the same resources."""
        kinds = dict.fromkeys((*self.entries, *other.entries))
        acl = Acl({kind: {**self.entries.get(kind, {}), **other.entries.get(kind, {})} for kind in kinds})
        acl._check_size()
        return acl

    def without(self, kind: str | None, resources: Resources) -> Acl:
        """Less the entries for these resources, if there are any."""
        from_kind = _POLICY_TYPES.get((kind or CUSTOM).lower(), CUSTOM)
        left = {
            name: {key: entries for key, entries in mine.items() if name != from_kind or key != resources}
            for name, mine in self.entries.items()
        }
        return Acl({name: mine for name, mine in left.items() if mine})

    def _check_size(self) -> None:
        if sum(len(entries) for mine in self.entries.values() for entries in mine.values()) > MAX_ENTRIES:
            raise refuse(f"a user has {MAX_ENTRIES} entries of policies at the most")

    def decisive(self, asked: Asked, address: Address | None) -> Entry | None:
        """The entry that decides."""
        for kind in (CUSTOM, DEFAULT):
            mine = self.entries.get(kind, {}).values()
            matching = [entry for entries in mine for entry in entries if entry.matches(asked, address)]
            if matching:
                return min(matching, key=lambda entry: (*entry.resources.rank, entry.allows))
        return None

    def refusal(self, asked: Asked, address: Address | None) -> str:
        """Why this may not be done, in the original's words; nothing: it may."""
        entry = self.decisive(asked, address)
        if entry is None:
            return NO_POLICY
        return "" if entry.allows else DENIED

    def told(self, name: str, part: str = "") -> AclInfo:
        """As operators see it; of the entries those whose resource has this in its name."""
        policies = [
            PolicyInfo(kind, told)
            for kind, mine in self.entries.items()
            if (told := [entry.told() for key, entries in mine.items() if part in key.key for entry in entries])
        ]
        return AclInfo(USER + name, policies)


def address_of(peer: str) -> Address | None:
    """The IP address in a connection's `host:port`; None where there is none."""
    host = peer.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
