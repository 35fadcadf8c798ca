"""Virtual time: one heap of actions, one clock, one trace; no wall clock anywhere.

Time is counted in whole microseconds since the start of the run. Actions of one instant run in the
order in which they were asked for. Random streams are named (`stream("net")`): what one part draws
does not shift what another part draws.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from typing import Any
from zlib import crc32

from perseid.base.machine import Buffer
from perseid.sim.selection import WHOLE, Chosen, Selection

US_PER_MS = 1000
US_PER_S = 1_000_000
PACES = (1, 2, 3)
"""Busy runs find what is under way together, quiet ones are played more often."""
MAX_PAUSE_MS = 8_000
"""No client becomes slower than this, so that those that were slow anyway still do something."""
MAX_ACTIONS = 2_000_000
"""More in one run is a livelock: two parts that keep waking each other without time passing."""

Timer = list[Any]
"""An action that was asked for: [time, number, function, arguments]. Only `cancel` looks inside."""


class Stream(Random):
    """A generator that draws what `Random` draws of whole numbers, in a third of the time."""

    def randint(self, a: int, b: int) -> int:
        return a + self.below(b - a + 1)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        assert step == 1
        return self.below(start) if stop is None else start + self.below(stop - start)

    def below(self, end: int) -> int:
        """As `randrange(end)`."""
        if end <= 0:
            raise ValueError("an empty range")
        getrandbits, bits = self.getrandbits, end.bit_length()
        drawn = getrandbits(bits)
        while drawn >= end:
            drawn = getrandbits(bits)
        return drawn


class Livelock(AssertionError):
    """The run does not end."""


class Trace:
    """What happened, as readable lines, and a digest of all of it."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str, str]] = []
        self.bytes_crc = 0

    def data(self, what: Buffer) -> None:
        """Take bytes on the wire into the digest, without a line."""
        self.bytes_crc = crc32(what, self.bytes_crc)

    def digest(self) -> str:
        """16 hex digits; equal for equal runs, whatever PYTHONHASHSEED says."""
        total = blake2b(digest_size=8)
        for at, who, text in self.lines:
            total.update(f"{at} {who} {text}\n".encode())
        total.update(b"%d" % self.bytes_crc)
        return total.hexdigest()

    def story(self, *words: str, last: int | None = None) -> list[str]:
        """The lines that hold any of `words` (all lines when there are none), the `last` so many."""
        lines = self.lines
        chosen = [line for line in lines if not words or any(w in line[1] or w in line[2] for w in words)]
        if last is not None:
            chosen = chosen[-last:]
        return [f"{at / US_PER_S:12.6f}  {who:<12} {text}" for at, who, text in chosen]


class Scheduler:
    """Runs actions in the order of their times."""

    def __init__(self, seed: int, selection: Selection = WHOLE) -> None:
        self.seed = seed
        self.chosen = Chosen(seed, selection)
        self.now_us = 0
        self.trace = Trace()
        self.actions = 0
        self.max_actions = MAX_ACTIONS
        self.pace = self.stream("pace").choice(PACES)
        """So many times slower than they could are the clients of this run."""
        self.slow: float = 1
        """So many times slower than that they are now (`pace`)."""
        self._heap: list[Timer] = []
        self._number = 0

    def stream(self, name: str) -> Stream:
        """A generator of its own for the part called `name`."""
        return Stream(f"{self.seed}/{name}")

    def slowed(self, pause_ms: float) -> float:
        """A pause of a client, as long as it is in this run by now; those that are long anyway don't become longer."""
        if self.slow == 1:
            return pause_ms
        return min(pause_ms * self.slow, max(pause_ms, MAX_PAUSE_MS))

    def note(self, who: str, text: str) -> None:
        """Add a line to the trace."""
        self.trace.lines.append((self.now_us, who, text))

    def at(self, time_us: int, function: Callable[..., None], *arguments: Any) -> Timer:
        """Run `function(*arguments)` at `time_us`, or at once when that has passed."""
        self._number += 1
        timer = [time_us if time_us > self.now_us else self.now_us, self._number, function, arguments]
        heappush(self._heap, timer)
        return timer

    def after(self, delay_us: int, function: Callable[..., None], *arguments: Any) -> Timer:
        """Run `function(*arguments)` `delay_us` from now."""
        return self.at(self.now_us + delay_us, function, *arguments)

    def plan(self, time_us: int, random: Random, begin: Callable[..., None], *arguments: Any) -> None:
        """Let a fault that draws from `random` begin at `time_us`, unless it is left out of the run."""
        number = self.chosen.plans(time_us)
        if number:
            self.at(time_us, self._fault, number, random, begin, arguments)

    def _fault(self, number: int, random: Random, begin: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.chosen.begins(number, self.now_us, random)
        begin(*arguments)

    @staticmethod
    def cancel(timer: Timer | None) -> None:
        """Forget an action; no error when it has run."""
        if timer is not None:
            timer[2] = None

    def run(self, until_us: int, done: Callable[[], bool] | None = None) -> bool:
        """Run all actions up to and including `until_us`; with `done`, stop as soon as it says True.

        Returns whether `done` said so. The clock stands at `until_us` afterwards when it did not.
        """
        heap, pop = self._heap, heappop
        while heap and heap[0][0] <= until_us:
            at, _, function, arguments = pop(heap)
            if function is None:
                continue
            self.now_us = at
            self.actions += 1
            if self.actions > self.max_actions:
                raise Livelock(f"more than {self.max_actions} actions by {at / US_PER_S:.3f} s of virtual time")
            function(*arguments)
            if done is not None and done():
                return True
        self.now_us = max(self.now_us, until_us)
        return False
