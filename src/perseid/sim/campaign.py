"""A campaign: all models, with the compiled core and without it, by turns, from ranges of seeds that nobody has seen.

A lane is a way to play (a model, on the core or not, as swarms or not) with a range of seeds of its own. Each is given
its share of the time: the next seeds are those of the lane that has had the least of its share. Failures are grouped by
the property that broke, the smallest seed first; one of each group is shrunk. Nothing here has a clock or a process:
the caller plays what `next` hands out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from perseid.sim import coverage
from perseid.sim.models.broker.run import Result
from perseid.sim.models.registry import MODELS, command
from perseid.sim.scheduler import US_PER_S
from perseid.sim.selection import Selection
from perseid.sim.shrink import Shrunk

PLAIN_SHARE = 0.2
"""Of the time: without the core."""
SWARM_SHARE, FIRST_SWARM_SHARE = 0.85, 0.5
"""Of a model's time: for swarms, which cost less and find more; and until so many other seeds were played that it can
be asked whether all that there is occurred. Those others find what needs everything at once."""
CHUNK_S, MAX_CHUNK_SEEDS = 4.0, 50
"""So long a lane plays before the next one has its turn, and at most so many seeds."""
FIRST_GUESS_S = 2.0
"""What a seed is taken to cost before one was played."""
STARTS, RANGE_SEEDS = 900_000, 1_000_000
"""Ranges that a text may name, and the seeds of each."""
LANE_SEEDS = 250_000
"""Of a lane, from its range."""
MAX_NAMED = 12
"""Seeds of a group that a report names."""
STORY_LINES = 40
"""Of a group's first seed, in a report."""


def range_of(text: str) -> int:
    """The first seed of the range that a text names, as a commit's hash: equal texts, equal seeds."""
    number = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    return (1 + number % STARTS) * RANGE_SEEDS


@dataclass(slots=True)
class Lane:
    """A way to play, and what was played of it."""

    model: str
    with_core: bool
    swarm: bool
    first: int
    share: float
    """Of the time of its model, beside that core and the other one."""
    spent_s: float = 0.0
    pending_s: float = 0.0
    """What its seeds that are being played now will take."""
    handed: int = 0
    """Seeds of its range that were handed out."""
    seeds: int = 0
    operations: int = 0
    faults: int = 0
    virtual_s: float = 0.0
    failed: int = 0

    @property
    def name(self) -> str:
        """In tables."""
        return self.model + ("" if self.with_core else ", without the core")

    @property
    def seed_s(self) -> float:
        """What one seed costs."""
        return self.spent_s / self.seeds if self.seeds else FIRST_GUESS_S


@dataclass(frozen=True, slots=True)
class Chunk:
    """Seeds of one lane, for one process."""

    lane: int
    model: str
    with_core: bool
    selection: Selection
    seeds: range
    guess_s: float


@dataclass(slots=True)
class Group:
    """Failures of one property of one model."""

    model: str
    broken: str
    seeds: list[tuple[int, int]] = field(default_factory=list)
    """Each, and its lane; the smallest first."""
    first: Result | None = None
    """Of the smallest."""
    shrunk: Shrunk | None = None
    """What is left of one of them."""


class Campaign:
    """What is played next, and what was played until now."""

    def __init__(
        self, models: list[str], first: int, *, cores: tuple[bool, ...], tolerated_percent: float = 0.0
    ) -> None:
        """`first`: of the range. `cores`: with the compiled core, without it, or both. `tolerated_percent`: of each
        model's seeds so many may fail; they are told of all the same."""
        self.first, self.tolerated_percent = first, tolerated_percent
        self.lanes: list[Lane] = []
        for with_core in cores:
            share = (PLAIN_SHARE if not with_core else 1 - PLAIN_SHARE) if len(cores) > 1 else 1.0
            for swarm in (False, True):
                begin = first + LANE_SEEDS * (2 * (not with_core) + swarm)
                self.lanes += [Lane(model, with_core, swarm, begin, share) for model in models]
        self.counts: dict[str, Counter[str]] = {model: Counter() for model in models}
        self.groups: dict[tuple[str, str], Group] = {}

    # ---- what is played ----

    def next(self) -> Chunk:
        """The next seeds."""
        number = min(range(len(self.lanes)), key=lambda n: self._had(self.lanes[n]))
        lane = self.lanes[number]
        count = max(1, min(MAX_CHUNK_SEEDS, int(CHUNK_S / lane.seed_s))) if lane.seeds else 1
        begin = lane.first + lane.handed
        lane.handed += count
        guess_s = count * lane.seed_s
        lane.pending_s += guess_s
        selection = Selection(swarm=lane.swarm)
        return Chunk(number, lane.model, lane.with_core, selection, range(begin, begin + count), guess_s)

    def _had(self, lane: Lane) -> float:
        """How much of its share a lane has had: the least is next."""
        swarms = SWARM_SHARE if self.asks_for_all(lane.model) else FIRST_SWARM_SHARE
        return (lane.spent_s + lane.pending_s) / (lane.share * (swarms if lane.swarm else 1 - swarms))

    def add(self, chunk: Chunk, results: list[Result], took_s: float) -> list[Group]:
        """What became of them; the groups of those that failed."""
        lane = self.lanes[chunk.lane]
        lane.pending_s -= chunk.guess_s
        lane.spent_s += took_s
        groups = []
        for result in results:
            lane.seeds += 1
            lane.operations += result.operations
            lane.faults += result.faults
            lane.virtual_s += result.virtual_s
            self.counts[lane.model] += result.counts
            if result.failure:
                groups.append(self.fail(chunk.lane, result))
        return groups

    def fail(self, number: int, result: Result) -> Group:
        """A seed of a lane failed."""
        lane = self.lanes[number]
        lane.failed += 1
        group = self.groups.setdefault((lane.model, result.broken), Group(lane.model, result.broken))
        group.seeds.append((result.seed, number))
        group.seeds.sort()
        if group.first is None or result.seed == group.seeds[0][0]:
            group.first = result
        return group

    def command(self, seed: int, number: int, selection: Selection | None = None) -> str:
        """What plays a seed of a lane again, or a part of it."""
        lane = self.lanes[number]
        return command(lane.model, seed, selection or Selection(swarm=lane.swarm), with_core=lane.with_core)

    def shrunk_command(self, group: Group) -> str:
        """What plays again what is left of one of its seeds; "": nothing is."""
        shrunk = group.shrunk
        if shrunk is None or shrunk.note:
            return ""
        lane = next(lane for seed, lane in group.seeds if seed == shrunk.seed)
        return self.command(shrunk.seed, lane, shrunk.selection)

    # ---- what was played ----

    @property
    def played(self) -> int:
        return sum(lane.seeds for lane in self.lanes)

    @property
    def failed(self) -> int:
        return sum(lane.failed for lane in self.lanes)

    def seeds_of(self, model: str, *, swarms: bool = True) -> int:
        """So many were played of it; without `swarms`, those alone that draw from all that there is."""
        return sum(lane.seeds for lane in self.lanes if lane.model == model and (swarms or not lane.swarm))

    def asks_for_all(self, model: str) -> bool:
        """Enough seeds were played, so that what never occurred is not tested."""
        return self.seeds_of(model, swarms=False) >= coverage.ENOUGH_SEEDS

    @property
    def has_failed(self) -> bool:
        """Did more seeds of a model fail than are tolerated?"""
        failed: Counter[str] = Counter()
        for lane in self.lanes:
            failed[lane.model] += lane.failed
        return any(times > self.seeds_of(model) * self.tolerated_percent / 100 for model, times in failed.items())

    @property
    def missing(self) -> dict[str, list[str]]:
        """By model, what should have occurred in so many seeds and did not."""
        found = {}
        for model, counts in self.counts.items():
            lacking = coverage.missing(counts, MODELS[model].wanted(swarms=True))
            if lacking and self.asks_for_all(model):
                found[model] = lacking
        return found

    def table(self) -> list[str]:
        """A line for each model and core, and one for all."""
        heads = ("seeds", "of them swarms", "operations", "faults", "virtual hours", "seeds/min/core", "failed")
        widths = (8, 16, 12, 9, 15, 16, 8)
        names = list(dict.fromkeys(lane.name for lane in self.lanes))
        rows = [_row(name, *(lane for lane in self.lanes if lane.name == name)) for name in names]
        rows = [("", *heads), *rows, _row("all", *self.lanes)]
        return [name.ljust(26) + "".join(map(str.rjust, cells, widths)) for name, *cells in rows]

    def covered(self) -> list[str]:
        """A line for each model: what it was to meet, and what it did not."""
        lines = []
        for model, counts in self.counts.items():
            expected = MODELS[model].wanted(swarms=True)
            wanted = sum(len(names) for names in expected.values())
            lacking, seeds = coverage.missing(counts, expected), self.seeds_of(model, swarms=False)
            line = f"{model}: {wanted - len(lacking)} of {wanted} faults, states and refusals occurred"
            if lacking and not self.asks_for_all(model):
                line += f"; {seeds} seeds (without swarms) are too few to ask for all ({coverage.ENOUGH_SEEDS})"
            lines.append(line)
            lines += [f"    never occurred: {name}" for name in self.missing.get(model, ())]
        return lines

    def failures(self) -> list[str]:
        """Each group: what broke, its seeds, and how the smallest is played again."""
        lines: list[str] = []
        for group in self.ordered():
            lines.append(f"{group.model}: {group.broken} ({len(group.seeds)} seeds)")
            if group.first is not None:
                lines.append(f"    {group.first.failure.splitlines()[0]}")
            lines += [f"    {self.command(*seed)}" for seed in group.seeds[:MAX_NAMED]]
            if len(group.seeds) > MAX_NAMED:
                lines.append(f"    and {len(group.seeds) - MAX_NAMED} more")
            if group.shrunk is not None:
                lines += [f"    {line}" for line in group.shrunk.lines(self.shrunk_command(group))]
        return lines

    def ordered(self) -> list[Group]:
        """The groups, by model, those with the most seeds first."""
        return sorted(self.groups.values(), key=lambda group: (group.model, -len(group.seeds), group.broken))

    def summary(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "first": self.first,
            "seeds": self.played,
            "lanes": [
                {
                    "model": lane.model, "core": lane.with_core, "swarm": lane.swarm,
                    "first": lane.first, "seeds": lane.seeds,
                    "operations": lane.operations, "faults": lane.faults, "failed": lane.failed,
                    "virtual_hours": round(lane.virtual_s / 3600, 2), "seconds": round(lane.spent_s, 1),
                }
                for lane in self.lanes
            ],
            "failures": [
                {
                    "model": group.model, "broken": group.broken,
                    "seeds": [seed for seed, _ in group.seeds],
                    "commands": [self.command(*seed) for seed in group.seeds],
                    "failure": group.first.failure if group.first is not None else "",
                    "shrunk": self._shrunk_summary(group),
                }
                for group in self.ordered()
            ],
            "never_occurred": self.missing,
            "counts": {model: dict(sorted(counts.items())) for model, counts in self.counts.items()},
        }  # fmt: skip

    def _shrunk_summary(self, group: Group) -> dict[str, Any] | None:
        shrunk = group.shrunk
        if shrunk is None:
            return None
        left = shrunk.result
        return {
            "seed": shrunk.seed, "command": self.shrunk_command(group), "plays": shrunk.plays, "note": shrunk.note,
            "faults": [
                {"number": number, "kind": one.kind, "at_s": one.at_us / US_PER_S}
                for number, one in left.begun.items()
            ],
            "of_faults": shrunk.faults, "parts": sorted(left.parts), "of_parts": shrunk.parts,
            "virtual_s": left.virtual_s, "failure": left.failure,
        }  # fmt: skip


def _row(name: str, *lanes: Lane) -> tuple[str, ...]:
    """A name, and the cells of a table."""
    seeds, spent_s = sum(lane.seeds for lane in lanes), sum(lane.spent_s for lane in lanes)
    return (
        name,
        str(seeds),
        str(sum(lane.seeds for lane in lanes if lane.swarm)),
        str(sum(lane.operations for lane in lanes)),
        str(sum(lane.faults for lane in lanes)),
        f"{sum(lane.virtual_s for lane in lanes) / 3600:.2f}",
        f"{60 * seeds / spent_s:.0f}" if spent_s else "-",
        str(sum(lane.failed for lane in lanes)),
    )
