"""What a capability tells the kernel of itself: plain data, made once. Dispatch, saving, recovery, a change of role,
the passing of time and the simulator's checks read it; the kernel knows no capability by name.

What is done in a certain order is named, and the order stands in one place for each (`capabilities`): files that are
saved in one turn, hooks of the role, ticks, what ends a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

from perseid.base.machine import DiskFailed, Event, Millis
from perseid.broker.kernel.arrivals import Service
from perseid.broker.kernel.connections import Gone
from perseid.broker.kernel.roles import RoleHook, Roles
from perseid.broker.kernel.route import Route
from perseid.broker.kernel.saves import StateFile
from perseid.broker.kernel.turn import Turn

P = ParamSpec("P")


class Requests(Protocol):
    """Handlers of requests, with their rows."""

    def routes(self) -> tuple[Route, ...]:
        """The rows."""


def never() -> Millis | None:
    """The deadline of what is done whenever time passes, and waits for none."""
    return None


class Timer(NamedTuple):
    """Something that is due at times. `next_deadline`: when; None: nothing is."""

    name: str
    tick: Callable[[Millis], None]
    next_deadline: Callable[[], Millis | None] = never
    prompt: bool = False
    """Any turn may make it due sooner, by more than its part can bear to be late (`SOON_MS` of a broker)."""


class Step(NamedTuple):
    """Something that is done at the end of each turn, or when the broker ends."""

    name: str
    do: Callable[[], None]


@dataclass(slots=True, kw_only=True)
class Capability:
    """One of a broker's."""

    name: str
    requests: tuple[Requests, ...] = ()
    events: Mapping[type[Any], Callable[[Any], None]] = field(default_factory=dict)
    """What is done with events of its own, by their class."""
    takes: tuple[type[Event], Callable[[Any], None]] | None = None
    """What is done with events of a kind: those of a class, and of its subclasses."""
    files: tuple[StateFile, ...] = ()
    loads: tuple[Callable[[Millis], None], ...] = ()
    """What a start does when all files are taken up, whatever the role."""
    begins: tuple[Callable[[Millis], None], ...] = ()
    """What it does when the broker runs."""
    closes: tuple[Callable[[], None], ...] = ()
    """What it does before the store is closed for good."""
    hooks: tuple[RoleHook, ...] = ()
    services: tuple[Service, ...] = ()
    """What hears of messages in topics of the broker's own."""
    timers: tuple[Timer, ...] = ()
    settles: tuple[Step, ...] = ()
    ends: tuple[Step, ...] = ()
    gone: tuple[Gone, ...] = ()
    """What hears of closed connections."""
    checks: tuple[Callable[[], None], ...] = ()
    """AssertionError: an invariant is broken."""
    details: tuple[Callable[[Millis], dict[str, str]], ...] = ()
    """Rows of the broker's state, as operators see it (code 28)."""
    failures: tuple[Callable[[DiskFailed], bool], ...] = ()
    """Do they live on with what the disk did not do?"""


def leading(roles: Roles, do: Callable[P, None]) -> Callable[P, None]:
    """What is done by a master only."""

    def done(*given: P.args, **named: P.kwargs) -> None:
        if not roles.is_slave:
            do(*given, **named)

    return done


def tries_again(turn: Turn, lives_on: Callable[[DiskFailed], bool]) -> Callable[[DiskFailed], bool]:
    """What lives on because it saves its files again: people are told so."""

    def failed(event: DiskFailed) -> bool:
        if not lives_on(event):
            return False
        turn.note("error", f"{event.path} could not be saved: {event.reason}; tried again")
        return True

    return failed


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def in_order(names: Iterable[str], things: Iterable[N]) -> tuple[N, ...]:
    """The things in the order in which they are named; those that are not come last, as they came."""
    place = {name: number for number, name in enumerate(names)}
    return tuple(sorted(things, key=lambda one: place.get(one.name, len(place))))
