"""Where the time of an outage went: its phases, from the last acknowledgement to the next one.

Each time is when the answer arrived that showed the end of a phase, so it is late by up to one poll (`poll_ms` and a
round trip). A phase whose end no answer showed, or that was over before the next poll, has no length of its own: its
time counts for the next phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ROLE_CHANGE = "role change"
FIRST_ACK = "first acknowledgement"
CONTROLLER_PHASES = ("detection", "election", ROLE_CHANGE, "route", FIRST_ACK)
"""Of a broker set under controllers: they take the master for dead; they have chosen another one; that broker says so
itself; the name server names it; it acknowledges."""
DLEDGER_PHASES = CONTROLLER_PHASES
"""Of a DLedger group: a member is in a higher term; one leads it; that broker says that it is master; as above."""
STANDALONE_PHASES = ("return", "route", FIRST_ACK)
"""Of a master without either: a process answers at its address again; as above."""


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation, and when it was first made (seconds of the monotonic clock)."""

    at: float
    what: str


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of an outage; milliseconds since the outage began. `seen`: False when nothing showed its end."""

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

    `cause`, where it is known (a SIGKILL was sent), starts the window instead: messages that are acknowledged after it
    had been answered before it.
    """

    broker_name: str
    old_master: str
    phase_names: tuple[str, ...]
    last_ack: float
    noticed: float
    time_ms: int
    """Of the last acknowledgement, since 1970."""
    cause: Observation | None = None
    first_ack: float | None = None
    new_master: str = ""
    epochs: tuple[int | None, int | None] = (None, None)
    seen: dict[str, Observation] = field(default_factory=dict)
    remarks: list[Observation] = field(default_factory=list)
    """Other observations: another controller leads, nobody can be elected."""
    errors: dict[str, int] = field(default_factory=dict)
    """Why sends failed, and how often."""
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
        """True when nothing failed and the master stayed: an answer was late, that is all."""
        return not self.errors and not self.seen.keys() - {FIRST_ACK}

    def note(self, name: str, at: float, what: str) -> None:
        """The end of a phase was seen; only the first time counts."""
        self.seen.setdefault(name, Observation(at, what))

    def phases(self) -> list[Phase]:
        """In their order, together the whole window. Empty while the outage lasts."""
        if self.first_ack is None:
            return []
        last = Observation(self.first_ack, self.seen[FIRST_ACK].what if FIRST_ACK in self.seen else "")
        marks: dict[str, Observation] = {**self.seen, FIRST_ACK: last}
        ends: dict[str, float] = {}
        upper = last.at
        for name in reversed(self.phase_names):  # what was seen late can't have ended after what followed from it
            upper = ends[name] = min(upper, max(self.start, marks[name].at)) if name in marks else upper
        found: list[Phase] = []
        before = self.start
        for name in self.phase_names:
            if name in marks:
                end = max(before, ends[name])
                found.append(Phase(name, self._ms(before), self._ms(end), marks[name].what, True))
                before = end
            else:
                found.append(Phase(name, self._ms(before), self._ms(before), "not seen", False))
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
            "parts": [part.to_json() for part in self.phases()],
            "also": [{"atMs": round(self._ms(s.at), 2), "what": s.what} for s in self.remarks],
            "errors": self.errors,
            "pollMs": self.poll_ms,
        }
