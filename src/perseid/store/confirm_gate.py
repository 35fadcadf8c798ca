"""The gate of a replicated store: readers see what is confirmed, and nothing beyond it (ha-autoswitch.md §8.5).

A record has its unit and its keys from the append on, as in every store, for its queue offset is given for good; but a
queue shows its units only up to the confirm offset. What is beyond may yet be cut off, when another one becomes master.

    shown ≤ end, in each queue;     units below `shown` belong to records below `confirmed`;     confirmed ≤ log.end
    confirmed never falls, but by `cut`

What was appended in one go to one queue is a *run*; runs are shown in order, whole. Where there are too many of them,
and after a start, queues are looked through instead (`_slow`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from perseid.store.consume_queue import OPEN, ConsumeQueue

MAX_RUNS = 100_000
"""Beyond it queues are looked through."""

OnShown: TypeAlias = Callable[[ConsumeQueue, int, int], None]
"""(queue, first, end): readers see these units of it from now on."""


class ConfirmGate:
    """Shows readers of one store what is confirmed."""

    def __init__(self) -> None:
        self.confirmed = 0
        self.on_shown: OnShown | None = None
        self._runs: deque[tuple[int, ConsumeQueue, int]] = deque()
        """Where the log ended behind it, queue, where the queue ended."""
        self._slow: dict[ConsumeQueue, None] = {}

    def load(self, confirmed: int, queues: Iterable[ConsumeQueue]) -> None:
        """A store was loaded whose log was confirmed up to `confirmed`."""
        self.confirmed = confirmed
        self._runs.clear()
        self._slow.clear()
        for queue in queues:
            shown = first_from(queue, confirmed, queue.min)
            queue.limit = OPEN if shown >= queue.end else shown
            if shown < queue.end:
                self._slow[queue] = None

    def hold(self, queue: ConsumeQueue, first: int, log_end: int) -> None:
        """A queue got units, from `first` to its end, of records up to `log_end`."""
        if queue in self._slow:
            return
        if queue.limit == OPEN:
            queue.limit = first
        if len(self._runs) >= MAX_RUNS:
            self._slow |= {queue: None for _, queue, _ in self._runs}
            self._slow[queue] = None
            self._runs.clear()
        else:
            self._runs.append((log_end, queue, queue.end))

    def confirm(self, upto: int) -> bool:
        """The log is confirmed up to there; False: that was known."""
        if upto <= self.confirmed:
            return False
        self.confirmed = upto
        runs = self._runs
        while runs and runs[0][0] <= upto:
            _, queue, end = runs.popleft()
            if queue not in self._slow:
                self._show(queue, end)
        for queue in list(self._slow):
            end = first_from(queue, upto, queue.limit)
            if end == queue.end:
                del self._slow[queue]
            self._show(queue, end)
        return True

    def _show(self, queue: ConsumeQueue, end: int) -> None:
        first, end = queue.limit, min(end, queue.end)
        queue.limit = OPEN if end >= queue.end else end
        if first < end and self.on_shown is not None:
            self.on_shown(queue, first, end)

    def forget(self, queue: ConsumeQueue) -> None:
        """A queue begins anew: what it had is gone."""
        self._runs = deque(run for run in self._runs if run[1] is not queue)
        self._slow.pop(queue, None)
        queue.limit = OPEN

    def cut(self, end: int, queues: Iterable[ConsumeQueue]) -> None:
        """The log ends there now, and so do its queues."""
        self.load(min(self.confirmed, end), queues)

    def validate(self, log_end: int) -> None:
        """AssertionError when a queue shows too much, or would never show all."""
        assert 0 <= self.confirmed <= log_end, f"confirmed up to {self.confirmed} of {log_end}"
        held = {queue for _, queue, _ in self._runs} | set(self._slow)
        for queue in held:
            shown = queue.shown
            if queue.min < shown:
                unit = queue.raw(shown - 1)
                assert unit is not None and unit.physical_offset < max(self.confirmed, 1), (
                    f"{queue.topic}/{queue.queue_id} shows {unit}, confirmed up to {self.confirmed}"
                )


def first_from(queue: ConsumeQueue, offset: int, low: int) -> int:
    """The first unit from `low` on whose record does not stand before `offset` of the log. Blank units go with those
    before them."""
    high = queue.end
    if high <= low:
        return high
    if queue.physical_offset(high - 1) < offset:
        return high
    while low < high:
        middle = (low + high) // 2
        if queue.physical_offset(middle) < offset:
            low = middle + 1
        else:
            high = middle
    return low
