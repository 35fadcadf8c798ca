"""Which part of a seed is played: all that it draws, or less of it.

- `swarm`: the seed draws, besides everything else, which kinds of fault and which parts (clients, operations) it has
  at all (Groce et al., Swarm Testing, 2012): what is rare together in runs that have everything is frequent in runs
  that have little else; how many operations it has (`pace`); settings that few set (`rare_settings`), and kinds of
  fault that no other seed has. A seed without it draws what it always drew.
- `only_faults`, `only_parts`, `until_us`: of a seed that failed, the faults, parts and time that are left of it. A
  fault that is played begins with the draws that it had when all were played: those were noted then (`Begun`), so that
  the seed is played whole before a part of it is (`models.play`). What comes of it may differ, as the world does.

Faults are numbered from 1 on, in the order in which they are planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol, TypeVar

US_PER_S = 1_000_000
FAULT_SHARES = (0.2, 0.5, 0.8)
"""So many kinds of fault a seed has, of those that there are."""
PART_SHARES = (0.5, 0.75, 1.0)
"""The same of clients and operations."""


@dataclass(frozen=True, slots=True)
class Begun:
    """How a fault began."""

    at_us: int
    state: Any
    """Of the generator that it draws from."""
    kind: str


@dataclass(frozen=True, slots=True)
class Selection:
    """What is to be played of a seed."""

    swarm: bool = False
    only_faults: frozenset[int] | None = None
    """None: all that are drawn."""
    only_parts: frozenset[str] | None = None
    """None: all that there are."""
    until_us: int | None = None
    """Faults end, and the last checks begin, at this virtual time, or as ever, if that is earlier."""
    begun: Mapping[int, Begun] = field(default_factory=dict, compare=False)
    """How the faults began when all were played."""
    paces: Sequence[float] = field(default=(), compare=False)
    """How slow the clients of a swarm were then (`pace`), look by look."""
    rarities: bool = True
    """A swarm draws settings that few set (`rare_settings`), and kinds of fault that no other seed has. False: a
    seed that failed when there were none, as it was."""

    def knowing(self, begun: Mapping[int, Begun], paces: Sequence[float]) -> Selection:
        """The same, of a seed that was played whole: so its faults began, and so slow were its clients."""
        return replace(self, begun=begun, paces=tuple(paces))

    @property
    def is_whole(self) -> bool:
        """Nothing is left out of what the seed draws."""
        return self.only_faults is None and self.only_parts is None and self.until_us is None

    @property
    def has_rarities(self) -> bool:
        """What only swarms have, they may have."""
        return self.swarm and self.rarities

    @property
    def needs_whole(self) -> bool:
        """What is played depends on how all of it went: only faults that began can begin, and the clients of a part of
        a swarm are as slow as they were among all."""
        return self.only_faults is not None or (self.swarm and not self.is_whole)

    def arguments(self) -> list[str]:
        """Of the command that plays it."""
        words = ["--swarm"] if self.swarm else []
        if self.only_faults is not None:
            words += ["--only-faults", numbers(self.only_faults) or "none"]
        if self.only_parts is not None:
            words += ["--only-parts", ",".join(sorted(self.only_parts)) or "none"]
        if self.until_us is not None:
            words += ["--until", f"{self.until_us / US_PER_S:.6f}".rstrip("0").rstrip(".")]
        return words


WHOLE = Selection()


def numbers(chosen: frozenset[int]) -> str:
    """As `3,7-9`."""
    runs: list[list[int]] = []
    for number in sorted(chosen):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


class Named(Protocol):
    """A client, as far as it is chosen."""

    name: str


N = TypeVar("N", bound=Named)
K = TypeVar("K")


class Chosen:
    """What of one run is played, asked for by those who plan and play it; and what was asked for."""

    def __init__(self, seed: int, selection: Selection) -> None:
        self.selection = selection
        self.parts: set[str] = set()
        """Those that the run has had."""
        self.begun: dict[int, Begun] = {}
        """How its faults began."""
        self.paces: list[float] = []
        """How slow its clients were, if that was looked at (`pace`)."""
        self.healed_us: int | None = None
        """When the last checks began."""
        self._seed = seed
        self._planned = 0
        self._number = 0
        """Of the fault that begins."""
        self._drawn: dict[str, bool] = {}
        drawn = Random(f"{seed}/swarm")
        self._fault_share, self._part_share = drawn.choice(FAULT_SHARES), drawn.choice(PART_SHARES)

    def _draws(self, name: str, share: float) -> bool:
        """Whether the seed has it; each name for itself, so that new ones change nothing for the others."""
        if not self.selection.swarm:
            return True
        if name not in self._drawn:
            self._drawn[name] = Random(f"{self._seed}/swarm/{name}").random() < share
        return self._drawn[name]

    # ---- parts ----

    def has(self, part: str) -> bool:
        """Is there this client, or this kind of operation?"""
        only = self.selection.only_parts
        if (only is not None and part not in only) or not self._draws(part, self._part_share):
            return False
        self.parts.add(part)
        return True

    def some(self, clients: Sequence[N], *needed: N) -> list[N]:
        """Those that there are, `needed` ones always."""
        return [one for one in clients if one in needed or self.has(one.name)]

    def wanted(self, operations: int) -> int:
        """So many are to be done before faults heal, of a run that has to do so many when it is whole."""
        return 1 if self.selection.only_parts is not None or self.selection.until_us is not None else operations

    def least(self, operations: int) -> int:
        """And so many have to be done: the clients that a swarm has may be too few."""
        return 1 if self.selection.swarm else self.wanted(operations)

    # ---- faults ----

    def kinds(self, kinds: Sequence[K], name: Callable[[K], str] = str) -> list[K]:
        """Those that the seed has; all, if it would have none."""
        return [kind for kind in kinds if self._draws(f"fault {name(kind)}", self._fault_share)] or list(kinds)

    def plans(self, time_us: int) -> int:
        """The number of the next fault; 0: it is left out."""
        self._planned += 1
        only, until_us = self.selection.only_faults, self.selection.until_us
        left_out = (only is not None and self._planned not in only) or (until_us is not None and time_us > until_us)
        return 0 if left_out else self._planned

    def begins(self, number: int, at_us: int, random: Random, kind: str = "") -> None:
        """A fault begins, which draws from `random`: as it did when all were played, if that is known."""
        self._number = number
        before = self.selection.begun.get(number)
        if before is not None:
            random.setstate(before.state)
        self.begun[number] = Begun(at_us, random.getstate(), kind)

    def kind(self, drawn: str) -> str:
        """Of the fault that begins: as it was when all were played, if that is known, or as `drawn`."""
        before = self.selection.begun.get(self._number)
        kind = before.kind if before is not None and before.kind else drawn
        begun = self.begun[self._number]
        self.begun[self._number] = Begun(begun.at_us, begun.state, kind)
        return kind

    def ends_us(self, now_us: int, drawn_us: int) -> int:
        """When faults end that began `now_us` and end at `drawn_us` when the run is whole."""
        until_us = self.selection.until_us
        return drawn_us if until_us is None else max(now_us, min(drawn_us, until_us))
