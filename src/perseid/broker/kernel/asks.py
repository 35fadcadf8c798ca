"""What a request asks for: the resources that it is about, with the actions of which one has to be allowed.

Each row of the route table says it (`asks`), beside the handler; the gate in `access/` reads it. Where the original
asks for something, this asks for the same. Where it asks for nothing, though the request changes something or reads
what belongs to others, this asks for more (docs/divergence.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from perseid.broker.kernel.request import Request
from perseid.security.policies import Action, Asked, ResourceType
from perseid.wire.body import Body
from perseid.wire.names import DLQ_PREFIX, RETRY_PREFIX

Asks = Callable[[Request, str], Iterable[Asked]]
"""Of a request, whose header is decoded, at a broker of this cluster."""
B = TypeVar("B", bound=Body)

PUB, SUB, CREATE, UPDATE, DELETE, GET = (
    Action.PUB, Action.SUB, Action.CREATE, Action.UPDATE, Action.DELETE, Action.GET,
)  # fmt: skip


def a_group(name: str, *actions: Action) -> Asked:
    """A group by its name, or by that of its retry topic."""
    return Asked(ResourceType.GROUP, name.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX), actions)


def a_topic(name: str, *actions: Action) -> Asked:
    """A topic; a retry topic is its group."""
    if name.startswith(RETRY_PREFIX):
        return a_group(name, *actions)
    return Asked(ResourceType.TOPIC, name, actions)


def nothing(request: Request, cluster: str) -> Sequence[Asked]:
    """Whoever is authenticated may."""
    return ()


def of_topic(*actions: Action, of: str = "topic", exact: bool = False) -> Asks:
    """The topic that this field of the header names, if it names one. `exact`: a retry topic is a topic, too."""

    def asked(request: Request, cluster: str) -> Iterable[Asked]:
        name = getattr(request.header, of) or ""
        if name.strip():
            yield Asked(ResourceType.TOPIC, name, actions) if exact else a_topic(name, *actions)

    return asked


def of_group(*actions: Action, of: str = "consumer_group") -> Asks:
    """The group that this field of the header names, if it names one."""

    def asked(request: Request, cluster: str) -> Iterable[Asked]:
        name = getattr(request.header, of) or ""
        if name.strip():
            yield a_group(name, *actions)

    return asked


def of_cluster(*actions: Action) -> Asks:
    """The cluster that the broker belongs to."""

    def asked(request: Request, cluster: str) -> Iterable[Asked]:
        yield Asked(ResourceType.CLUSTER, cluster, actions)

    return asked


def each(*asks: Asks) -> Asks:
    """All of these, in this order."""

    def asked(request: Request, cluster: str) -> Iterable[Asked]:
        for one in asks:
            yield from one(request, cluster)

    return asked


def in_body(kind: type[B], read: Callable[[B], Iterable[Asked]]) -> Asks:
    """What stands in the request's body."""

    def asked(request: Request, cluster: str) -> Iterable[Asked]:
        return read(kind.from_json(request.body)) if request.body else ()

    return asked


def a_send(request: Request, cluster: str) -> Iterable[Asked]:
    """To its topic; a consumer sends a message back to its own group's retry topic."""
    name = request.header.topic or ""
    if name.startswith(RETRY_PREFIX):
        own = request.header.producer_group or ""
        yield a_group(own if own.strip() else name, SUB)
    else:
        yield a_topic(name, PUB)


def one_message(request: Request, cluster: str) -> Iterable[Asked]:
    """The topic that the message is said to be in; without one it may be in any."""
    name = request.header.topic or ""
    yield a_topic(name, GET) if name.strip() else Asked(ResourceType.CLUSTER, cluster, (GET,))
