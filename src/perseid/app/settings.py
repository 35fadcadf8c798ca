"""The settings of all nodes, described: what `perseid settings` prints, and what docs/reference/settings.md is made of.

Each setting's text stands beside its declaration (`base.config.option`); here they are put together by node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from perseid.app import broker, dledger
from perseid.base.config import JAVA_INT, Foreign, Option, camel, nearest, options, shown
from perseid.base.errors import ConfigError
from perseid.broker.access.config import AccessOptions
from perseid.broker.config import BrokerConfig
from perseid.broker.foreign import FOREIGN as OF_BROKERS
from perseid.controller import config as controller
from perseid.nameserver import config as nameserver
from perseid.raft.config import RaftConfig
from perseid.replication.config import ReplicationConfig
from perseid.security.members import MemberOptions
from perseid.security.tls_settings import TlsConfig
from perseid.store.config import StoreConfig

NAME_SERVER, BROKER, CONTROLLER, MEMBER = "name server", "broker", "controller", "dledger member"
"""The kinds of nodes."""


@dataclass(frozen=True, slots=True)
class Part:
    """The settings of one class, and the nodes whose files may hold them."""

    title: str
    cls: type
    nodes: tuple[str, ...]


PARTS = (
    Part("Name server", nameserver.NameServerConfig, (NAME_SERVER,)),
    Part("Broker", broker.ProcessConfig, (BROKER,)),
    Part("Broker", BrokerConfig, (BROKER,)),
    Part("Store", StoreConfig, (BROKER,)),
    Part("Replication", ReplicationConfig, (BROKER,)),
    Part("Controller", controller.ControllerConfig, (CONTROLLER,)),
    Part("DLedger group", RaftConfig, (BROKER, CONTROLLER, MEMBER)),
    Part("DLedger member", dledger.DLedgerConfig, (MEMBER,)),
    Part("Users of a broker", AccessOptions, (BROKER,)),
    Part("Users of the other nodes", MemberOptions, (NAME_SERVER, CONTROLLER, MEMBER)),
    Part("TLS", TlsConfig, (NAME_SERVER, BROKER, CONTROLLER, MEMBER)),
)
FOREIGN = {
    BROKER: OF_BROKERS,
    NAME_SERVER: nameserver.FOREIGN,
    CONTROLLER: controller.FOREIGN,
    MEMBER: dledger.FOREIGN,
}
"""What each node does with RocketMQ's other keys."""


@dataclass(frozen=True, slots=True)
class Described:
    """One setting of one part."""

    part: Part
    option: Option

    @property
    def default(self) -> str:
        """The default as a file has it; "" for an empty one, and for one that `option.computed` describes."""
        if self.option.computed:
            return ""
        return written(self.option.default)

    @property
    def limits(self) -> str:
        """The values that are taken, in words; "" for any."""
        one = self.option
        if one.choices is not None:
            return ", ".join(one.choices)
        if one.kind is bool:
            return "true, false"
        high = None if one.high == JAVA_INT else one.high
        if one.low is not None and high is not None:
            return f"{one.low} to {high}"
        if one.low is not None:
            return f"at least {one.low}"
        return "" if one.form is None else one.form[1]

    def to_dict(self) -> dict[str, Any]:
        """The same for programs."""
        one = self.option
        return {
            "key": one.key,
            "nodes": list(self.part.nodes),
            "part": self.part.title,
            "section": one.section,
            "type": one.kind.__name__,
            "default": None if one.computed else one.default,
            "computed_default": one.computed or None,
            "unit": one.unit or None,
            "low": one.low,
            "high": one.high,
            "choices": list(one.choices) if one.choices is not None else None,
            "effect": one.effect,
            "live": one.live,
            "ours": one.ours,
            "secret": one.secret,
        }


def written(value: bool | int | float | str) -> str:
    """A value as a file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def described(parts: Iterable[Part] = PARTS) -> Iterator[Described]:
    """All settings, by part and in the order of their declaration."""
    for part in parts:
        for one in options(part.cls).values():
            yield Described(part, one)


def find(name: str) -> list[Described]:
    """The settings with this key: several, where nodes of different kinds have it. TOML's spelling (`listen_port`) does
    too. ConfigError says what is so of a key of RocketMQ's that has no effect here, or which key is the nearest."""
    known = list(described())
    found = [one for one in known if one.option.key in (name, camel(name))]
    if found:
        return found
    if said := list(_foreign(name)):
        raise ConfigError(f"{name}: a setting of RocketMQ's that Perseid does not have: {'; '.join(said)}")
    others = (key for foreign in FOREIGN.values() for key in foreign.keys)
    like = nearest(name, {*(one.option.key for one in known), *others})
    hint = f"did you mean {like}? " if like else ""
    raise ConfigError(f"{shown(name)}: no setting has this name; {hint}`perseid settings` lists all")


def _foreign(name: str) -> Iterator[str]:
    """What becomes of a key that only RocketMQ has, once for all nodes that agree."""
    told: dict[str, list[str]] = {}
    for node, foreign in FOREIGN.items():
        if text := _fate(name, foreign):
            told.setdefault(text, []).append(node)
    for text, nodes in told.items():
        yield f"{text} ({', '.join(nodes)})"


def _fate(name: str, foreign: Foreign) -> str:
    for refusal in foreign.refused:
        if refusal.key == name:
            return f"it stops the start: {refusal.why}; {refusal.way_out()}"
    for ignored in foreign.ignored:
        if ignored.key == name:
            return f"it has no effect: {ignored.why}"
    return "it has no meaning here" if name in foreign.meaningless else ""
