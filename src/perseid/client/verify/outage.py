"""Where the time of an outage went: the parts between the last acknowledgement and the next one.

What was seen is when an answer that showed it arrived, so each time is late by up to one round of asking (`poll_ms`
and the way back). A part that nobody could be asked about, or that was over before the next question, has no length
of its own: its time belongs to the next part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ROLE = "role change"
FIRST = "first acknowledgement"
CONTROLLER = ("detection", "election", ROLE, "route", FIRST)
"""Of a broker set under controllers: they take the master for dead; they have chosen another one; that broker says so
itself; the name server names it; it acknowledges."""
GROUP = CONTROLLER
"""Of a DLedger group: a member is in a higher term; one leads it; that broker says that it is master; as above."""
ALONE = ("return", "route", FIRST)
"""Of a master without either: a process answers at its address again; as above."""


@dataclass(frozen=True, slots=True)
class Seen:
    """When something was first seen (seconds of the monotonic clock), and in words what."""

    at: float
    what: str


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of an outage; milliseconds, counted from its begin. `seen`: False when nothing showed its end."""

    name: str
    start_ms: float
    end_ms: float
    what: str
    seen: bool

    @property
    def length_ms(self) -> float:
        """How long it took."""
        return self.end_ms - self.start_ms

    def to_json(self) -> Mapping[str, Any]:
        """For scripts: milliseconds."""
        start_ms, ms = round(self.start_ms, 2), round(self.length_ms, 2)
        return {"name": self.name, "startMs": start_ms, "ms": ms, "seen": self.seen, "what": self.what}


@dataclass(slots=True)
class Outage:
    """One broker set without acknowledgements, from the last one to the next; times are of the monotonic clock.

    `cause`, when somebody knows it (who sent the SIGKILL), starts the window instead: what was acknowledged after it
    had left before it.
    """

    broker_name: str
    old_master: str
    names: tuple[str, ...]
    last_ack: float
    noticed: float
    time_ms: int
    """Of the last acknowledgement, since 1970."""
    cause: Seen | None = None
    first_ack: float | None = None
    new_master: str = ""
    epochs: tuple[int | None, int | None] = (None, None)
    seen: dict[str, Seen] = field(default_factory=dict)
    also: list[Seen] = field(default_factory=list)
    """What happened besides: another controller leads, an attempt failed for another reason."""
    errors: dict[str, int] = field(default_factory=dict)
    """What the sender was told meanwhile, and how often."""
    poll_ms: float = 0.0

    @property
    def start(self) -> float:
        """When it begins."""
        return self.cause.at if self.cause is not None else self.last_ack

    @property
    def length_ms(self) -> float | None:
        """The whole window; None while it lasts."""
        return None if self.first_ack is None else 1000 * (self.first_ack - self.start)

    @property
    def slow_only(self) -> bool:
        """True when nothing failed and nobody changed: an answer was late, that is all."""
        return not self.errors and not self.seen.keys() - {FIRST}

    def note(self, name: str, at: float, what: str) -> None:
        """Something was seen; only the first time counts."""
        self.seen.setdefault(name, Seen(at, what))

    def parts(self) -> list[Part]:
        """The parts in their order; together they are the window. Empty while it lasts."""
        if self.first_ack is None:
            return []
        last = Seen(self.first_ack, self.seen[FIRST].what if FIRST in self.seen else "")
        marks: dict[str, Seen] = {**self.seen, FIRST: last}
        ends: dict[str, float] = {}
        upper = last.at
        for name in reversed(self.names):  # what was seen late can't have ended after what followed from it
            upper = ends[name] = min(upper, max(self.start, marks[name].at)) if name in marks else upper
        found: list[Part] = []
        before = self.start
        for name in self.names:
            if name in marks:
                end = max(before, ends[name])
                found.append(Part(name, self._ms(before), self._ms(end), marks[name].what, True))
                before = end
            else:
                found.append(Part(name, self._ms(before), self._ms(before), "not seen", False))
        return found

    def _ms(self, at: float) -> float:
        return 1000 * (at - self.start)

    def to_json(self) -> Mapping[str, Any]:
        """For scripts: milliseconds."""
        length_ms = self.length_ms
        return {
            "broker": self.broker_name,
            "slowOnly": self.slow_only,
            "lastAcknowledgementMs": self.time_ms,
            "lengthMs": None if length_ms is None else round(length_ms, 2),
            "from": self.cause.what if self.cause is not None else "the last acknowledgement",
            "oldMaster": self.old_master,
            "newMaster": self.new_master,
            "oldEpoch": self.epochs[0],
            "newEpoch": self.epochs[1],
            "parts": [part.to_json() for part in self.parts()],
            "also": [{"atMs": round(self._ms(s.at), 2), "what": s.what} for s in self.also],
            "errors": self.errors,
            "pollMs": self.poll_ms,
        }
