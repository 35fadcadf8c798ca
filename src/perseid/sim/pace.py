"""The time under faults: how long it is, how many operations it has, and how dense they are.

A seed plays what its clients do at the pace that it drew. A swarm seed (`selection`) draws besides how many operations
it is to have by the time that its faults heal: most have as few as a seed may have, so that more of them are played;
one in `DENSE` goes on at its own pace, for what only happens where much is under way at once. How slow its clients have
to be for that is looked at as it goes, for faults and clients that are left out make seeds differ by ten times. A part
of a seed is played at the paces that were noted when all of it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Protocol

from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_S, Scheduler

FAULTS_US = 60 * US_PER_S
"""Of virtual time that a run lasts under faults."""
MIN_OPERATIONS = 300
MAX_FAULTS_US = 180 * US_PER_S
"""A run that has not done its operations by then has found a cluster that does not serve."""
ON_US = 5 * US_PER_S
"""So long a run goes on at a time, until it has enough of them."""
DENSE = 5
"""One in so many swarm seeds is as dense as a seed that is none."""
WANTED = (305, 390)
"""Operations of the others by the time that faults heal; the last checks have a hundred or two of their own."""
LOOK_US = 2 * US_PER_S
SLOWEST, FASTEST = 16.0, 0.1
"""So many times slower, or faster, clients get. They are hurried only when there would be too few operations."""
FIRST = 3.0
"""What it begins with."""
NEWER = 0.3
"""What the last look counts, beside those before it."""


class World(Protocol):
    """What is played."""

    scheduler: Scheduler
    operations: int


class Planned(Protocol):
    """Its faults."""

    def plan(self, start_us: int, end_us: int) -> None: ...


def under_faults(world: World, faults: Planned, property: str) -> None:
    """Plan the faults, and play until they are over and enough operations are done. Violation of the property when that
    takes too long: who serves has done them by then."""
    scheduler = world.scheduler
    chosen, start = scheduler.chosen, scheduler.now_us
    faults.plan(start + US_PER_S, start + FAULTS_US)
    end = chosen.ends_us(start, start + FAULTS_US)
    density = Density(scheduler, lambda: world.operations, end) if chosen.selection.swarm else None
    scheduler.run(end)
    if density is not None:
        density.hurry()
    while world.operations < chosen.wanted(MIN_OPERATIONS) and scheduler.now_us < start + MAX_FAULTS_US:
        scheduler.run(scheduler.now_us + ON_US)
    if density is not None:
        density.end()
    if world.operations < chosen.least(MIN_OPERATIONS):
        raise Violation(property, f"{world.operations} operations in {MAX_FAULTS_US // US_PER_S} s")


def wanted(seed: int) -> int:
    """So many operations a swarm seed is to have by the time that its faults heal, log-uniformly; 0: as many as there
    come."""
    drawn = Random(f"{seed}/swarm density")
    if drawn.randrange(DENSE) == 0:
        return 0
    low, high = WANTED
    return round(low * math.exp(drawn.random() * math.log(high / low)))


class Density:
    """Slows down the clients of a swarm seed (`Scheduler.slow`), and notes how much."""

    def __init__(self, scheduler: Scheduler, operations: Callable[[], int], end_us: int) -> None:
        """`operations`: done until now. `end_us`: when the faults heal."""
        self._scheduler, self._operations, self._end_us = scheduler, operations, end_us
        self._known = scheduler.chosen.selection.paces
        self._noted = scheduler.chosen.paces
        self._before = operations()
        self._wanted = wanted(scheduler.seed)
        self._ended = False
        self._demand = 0.0
        """Operations a look, if nobody were slowed down."""
        if self._wanted or self._known:
            self._set(FIRST)
            scheduler.after(LOOK_US, self._look)

    def _look(self) -> None:
        scheduler = self._scheduler
        if self._ended or scheduler.now_us >= self._end_us:
            return
        done = self._operations()
        demand = (done - self._before) * scheduler.slow
        self._before = done
        self._demand += (demand - self._demand) * (NEWER if self._demand else 1.0)
        looks = (self._end_us - scheduler.now_us) / LOOK_US
        rate = max(1.0, self._wanted - done) / looks
        self._set(min(SLOWEST, max(FASTEST, self._demand / rate)))
        scheduler.after(LOOK_US, self._look)

    def _set(self, slow: float) -> None:
        """As was noted when all was played, if it is known."""
        number = len(self._noted)
        if self._known:
            slow = self._known[min(number, len(self._known) - 1)]
        self._noted.append(slow)
        self._scheduler.slow = slow

    def hurry(self) -> None:
        """The time is over: whoever has done too little makes haste."""
        self._ended = True
        self._scheduler.slow = FASTEST

    def end(self) -> None:
        """Faults heal, and the last checks begin, at the pace of all seeds."""
        self._scheduler.slow = 1
