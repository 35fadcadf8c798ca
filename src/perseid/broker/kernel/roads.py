"""Which road requests took: the *fast* one (the compiled core, or plain sends in plain Python), or the *ordinary* one
of the handlers; and why they took the ordinary one.

Counts of roads are exact, for each request code. Reasons are counted for sends. Where finding a reason costs as much as
answering, one request in `every` is looked at and counts for all of them (`looks`).

A test asks which road a frame took: it sets `every` to 1, keeps `details()`, and compares (`since`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from perseid.base.machine import Millis

EVERY = 16
"""One in so many requests is asked for its reason."""
UNKNOWN_CODE = 0
"""Stands for all codes that no route serves: what a client sends must not make the tables grow."""
FAST, ORDINARY, WHY = "roadFast_", "roadOrdinary_", "roadWhy_"
"""Rows of a broker's state: then the request code, and for a reason its name."""


class Road(NamedTuple):
    """Requests of one code that took one road. `why`: the name of a reason; "": none was looked for."""

    code: int
    fast: bool
    why: str
    requests: int


class Roads:
    """The counters of one broker, since it began."""

    def __init__(self) -> None:
        self.fast: Counter[int] = Counter()
        """By request code. Add to it where a request is answered without a handler."""
        self.ordinary: Counter[int] = Counter()
        self.why: Counter[tuple[int, str]] = Counter()
        self.every = EVERY
        self.told_by: list[Callable[[], None]] = []
        """What gathers counts of its own, and adds them when it is called."""
        self._passed = EVERY

    def looks(self) -> bool:
        """Is the reason of this request to be found out, and told with `add_why`?"""
        self._passed += 1
        if self._passed < self.every:
            return False
        self._passed = 0
        return True

    def add_why(self, code: int, reason: str, *, sampled: bool = True) -> None:
        """A request took the ordinary road for a reason. `sampled`: `looks` chose it out of `every`."""
        self.why[code, reason] += self.every if sampled else 1

    def details(self, now: Millis = 0) -> dict[str, str]:
        """Rows of the broker's state."""
        for tell in self.told_by:
            tell()
        rows = {f"{FAST}{code}": str(count) for code, count in self.fast.items()}
        rows |= {f"{ORDINARY}{code}": str(count) for code, count in self.ordinary.items()}
        return rows | {f"{WHY}{code}_{reason}": str(count) for (code, reason), count in self.why.items()}

    def since(self, before: Mapping[str, str]) -> list[Road]:
        """What came since `details` said that."""
        now = self.details()
        return roads_of({name: str(int(count) - int(before.get(name, "0"))) for name, count in now.items()})


def roads_of(rows: Mapping[str, str]) -> list[Road]:
    """The roads in rows of a broker's state, by code; reasons stand behind the ordinary road, and are a part of it."""
    found = []
    for name, text in rows.items():
        for head in (FAST, ORDINARY, WHY):
            code, _, why = name.removeprefix(head).partition("_")
            if name.startswith(head) and code.isdecimal() and text.isdecimal() and int(text):
                found.append(Road(int(code), head == FAST, why, int(text)))
    return sorted(found, key=lambda one: (one.code, not one.fast, one.why))
