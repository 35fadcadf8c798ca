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

US_PER_MS = 1000
US_PER_S = 1_000_000
MAX_ACTIONS = 2_000_000
"""More in one run is a livelock: two parts that keep waking each other without time passing."""

Timer = list[Any]
"""An action that was asked for: [time, number, function, arguments]. Only `cancel` looks inside."""


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

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_us = 0
        self.trace = Trace()
        self.actions = 0
        self._heap: list[Timer] = []
        self._number = 0

    def stream(self, name: str) -> Random:
        """A generator of its own for the part called `name`."""
        return Random(f"{self.seed}/{name}")

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

    @staticmethod
    def cancel(timer: Timer | None) -> None:
        """Forget an action; no error when it has run."""
        if timer is not None:
            timer[2] = None

    def run(self, until_us: int, done: Callable[[], bool] | None = None) -> bool:
        """Run all actions up to and including `until_us`; with `done`, stop as soon as it says True.

        Returns whether `done` said so. The clock stands at `until_us` afterwards when it did not.
        """
        heap = self._heap
        while heap and heap[0][0] <= until_us:
            at, _, function, arguments = heappop(heap)
            if function is None:
                continue
            self.now_us = at
            self.actions += 1
            if self.actions > MAX_ACTIONS:
                raise Livelock(f"more than {MAX_ACTIONS} actions by {at / US_PER_S:.3f} s of virtual time")
            function(*arguments)
            if done is not None and done():
                return True
        self.now_us = max(self.now_us, until_us)
        return False
