"""Kinds of fault that swarms alone have, besides their models' own, and that they draw last: what can happen to any
process and its disk, for members of Raft groups, whole clusters, and slaves."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol

from perseid.sim.driver import NodeDriver
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_MS, US_PER_S, Scheduler

COUNTS = (0, 2, 5)
"""So many of them a seed has."""
SHUTDOWN_US = 30 * US_PER_S
FAILING = {
    "failing create": ("create",),
    "failing read": ("read",),
    "failing remove": ("remove",),
    "failing save": ("write", "rename", "sync_dir"),
}
"""Kind → calls of the disk, one of which fails."""
KINDS = ("clean restart", "disk pressure", "page cache emptied", *FAILING)


class World(Protocol):
    """Where they strike."""

    scheduler: Scheduler

    def count(self, what: str, times: int = 1) -> None:
        """That is met."""


class Target(NamedTuple):
    """Whom one strikes."""

    driver: NodeDriver
    crash: Callable[[], None]
    """Its process dies, and is started again."""


class RareFaults:
    """Plans them, and carries them out."""

    def __init__(self, world: World, random: Random, target: Callable[[], Target], prefix: str = "") -> None:
        """`target`: draws whom the next one strikes. `prefix`: of their names."""
        self.scheduler, self.random = world.scheduler, random
        self._world, self._target, self._prefix = world, target, prefix

    def plan(self, start_us: int, end_us: int) -> None:
        """Spread them over a time."""
        chosen = self.scheduler.chosen
        for _ in range(self.random.choice(COUNTS) if chosen.selection.has_rarities else 0):
            kind = self.random.choice(chosen.kinds(KINDS))
            self.scheduler.plan(self.random.randrange(start_us, end_us), self.random, self._begin, kind)

    def _begin(self, kind: str) -> None:
        chosen = self.scheduler.chosen
        kind = chosen.kind(kind)
        if chosen.healed_us is not None:
            return
        target = self._target()
        self._world.count(f"fault {self._prefix}{kind}")
        self.scheduler.note("fault", f"{target.driver.name}: {kind}")
        disk = target.driver.disk
        if kind == "clean restart":
            self._shut_down(target)
        elif kind == "disk pressure":
            self._press(target)
        elif kind == "page cache emptied":
            disk.evict()
        else:
            self._fail(target, self.random.choice(FAILING[kind]))

    def _shut_down(self, target: Target) -> None:
        driver = target.driver
        if driver.machine is not None:
            driver.shut_down()
            self.scheduler.after(SHUTDOWN_US, self._not_ended, target, driver.lives)

    @staticmethod
    def _not_ended(target: Target, life: int) -> None:
        """A shutdown that has not ended by now is not waited for."""
        driver = target.driver
        if driver.machine is not None and driver.lives == life:
            if driver.idle:
                raise Violation("a shutdown ends", f"{driver.name} does nothing, and has not ended in 30 s")
            target.crash()

    def _press(self, target: Target) -> None:
        """So little room is left that old files have to go."""
        target.driver.disk.fill(self.random.choice((0.80, 0.87, 0.93)))
        self.scheduler.after(self.random.randint(500, 12_000) * US_PER_MS, target.driver.disk.fill, 0)

    def _fail(self, target: Target, call: str) -> None:
        """The next calls of the disk fail, for a while; such as there are soon."""
        disk = target.driver.disk
        if call == "read":
            disk.evict()
        elif call == "remove":
            self._press(target)
        disk.failing[call] = self.random.choice((1, 1, 2, 5))
        self.scheduler.after(self.random.randint(200, 8_000) * US_PER_MS, self._mended, target, call)

    @staticmethod
    def _mended(target: Target, call: str) -> None:
        target.driver.disk.failing.pop(call, None)
