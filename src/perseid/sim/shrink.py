"""Less of a seed that breaks the same property: fewer faults, fewer clients and operations, a shorter time.

Delta debugging (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002) over the numbers of the
faults, then over the parts, then the time is halved, then the faults once more. Each try is a play of the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from perseid.sim.models.broker.run import Result
from perseid.sim.scheduler import US_PER_S
from perseid.sim.selection import Selection

MAX_PLAYS = 200
"""Of one seed."""
HALVINGS = 5
"""Of the time between the last fault and the last checks."""
STEP_US = US_PER_S // 10
"""Times are given in tenths of a second."""
T = TypeVar("T")


@dataclass(slots=True)
class Shrunk:
    """What is left of a seed. `result`: how that went; `note`: why there is nothing."""

    seed: int
    selection: Selection
    result: Result
    plays: int
    faults: int
    """So many began before the property broke, when all were played."""
    parts: int
    note: str = ""

    def lines(self, command: str) -> list[str]:
        """What is left, in words, and the `command` that plays it."""
        if self.note:
            return [self.note]
        left = self.result
        return [
            f"{len(left.begun)} of {self.faults} faults and {len(left.parts)} of {self.parts} clients and operations "
            f"are enough, found by {self.plays} plays: after {left.virtual_s:.1f} s {left.failure.splitlines()[0]}",
            f"    {command}",
            *(f"    fault {number}: {one.kind}, {one.at_us / US_PER_S:.1f} s" for number, one in left.begun.items()),
        ]


def fewest(items: list[T], holds: Callable[[list[T]], bool]) -> list[T]:
    """As few of `items`, which hold, as can be found by leaving out parts of them: none of those that are left can be
    left out alone, unless `holds` has given up."""
    if not items or holds([]):
        return []
    parts = 2
    while len(items) > 1:
        size = -(-len(items) // parts)
        for at in range(0, len(items), size):
            rest = items[:at] + items[at + size :]
            if rest and holds(rest):
                items, parts = rest, max(2, parts - 1)
                break
        else:
            if parts >= len(items):
                return items
            parts = min(2 * parts, len(items))
    return items


class Shrinker:
    """Plays one seed, and less and less of it."""

    def __init__(
        self, play: Callable[[Selection], Result], swarm: bool, broken: str, go_on: Callable[[], bool]
    ) -> None:
        """`broken`: the property. `go_on`: there is time for another play."""
        self._play, self._broken, self._go_on = play, broken, go_on
        self._plays = 1
        self._whole = play(Selection(swarm=swarm))
        self.result = self._whole
        everything = frozenset(self._whole.begun)
        part = Selection(swarm=swarm, only_faults=everything)
        self.selection = part.knowing(self._whole.begun, self._whole.paces)

    def shrink(self) -> Shrunk:
        """What is left of it in the end."""
        whole = self._whole
        if whole.broken != self._broken:
            said = f"breaks {whole.broken!r}" if whole.failure else "breaks nothing"
            return self._shrunk(f"seed {whole.seed} {said} when it is played again: it has more than one history")
        self._fewer_faults()
        parts = self.selection.only_parts
        fewest(sorted(self.result.parts), self._holds_with_parts)
        self._shorter()
        if self.selection.only_parts != parts:
            self._fewer_faults()
        return self._shrunk()

    def _shrunk(self, note: str = "") -> Shrunk:
        whole = self._whole
        left = self.selection, self.result, self._plays
        return Shrunk(whole.seed, *left, len(whole.begun), len(whole.parts), note)

    def _holds(self, selection: Selection) -> bool:
        """Does the property break then, too? What is left is that, then."""
        if self._plays >= MAX_PLAYS or not self._go_on():
            return False
        self._plays += 1
        result = self._play(selection)
        if result.broken != self._broken:
            return False
        begun = frozenset(result.begun)  # others were to come later
        self.selection, self.result = replace(selection, only_faults=begun), result
        return True

    def _fewer_faults(self) -> None:
        fewest(sorted(self.result.begun), self._holds_with_faults)

    def _holds_with_faults(self, faults: list[int]) -> bool:
        return self._holds(replace(self.selection, only_faults=frozenset(faults)))

    def _holds_with_parts(self, parts: list[str]) -> bool:
        return self._holds(replace(self.selection, only_parts=frozenset(parts)))

    def _shorter(self) -> None:
        """What broke after the faults had ended breaks perhaps when they end earlier."""
        if self.result.healed_s is None:
            return
        high = int(self.result.healed_s * US_PER_S)
        low = max((one.at_us for one in self.result.begun.values()), default=0)
        for _ in range(HALVINGS):
            middle = -(-(low + high) // 2 // STEP_US) * STEP_US
            if not low < middle < high:
                return
            if self._holds(replace(self.selection, until_us=middle)):
                high = middle
            else:
                low = middle
