"""What waits for a client: the light queues that it is to look at next.

    a message comes to a queue → of each group that reads it one client gets an event → its next pop looks there

An event says only that there may be something. A client has one event of a queue at most, and no more than
`maxClientEventCount`: what does not fit any more comes by a look at all that it reads (a *full dispatch*), later. A
client that does not come for its events loses them to the others of its group, and is asked last for a while.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from perseid.base.machine import Millis

IDLE_MS = 10_000
"""A client with events that did not come for so long is passed over (the original's CLIENT_INACTIVE_INTERVAL)."""
PASSED_OVER_MS = 10_000
FEW = 0.2
"""The part of its events up to which a client is given those of a full dispatch."""


@dataclass(slots=True, eq=False)
class Events:
    """Of one client."""

    group: str
    most: int
    accessed: Millis
    consumed: Millis = 0
    names: dict[str, None] = field(default_factory=dict)

    def offer(self, name: str) -> bool:
        """Give it an event; False: it has as many as it may have."""
        if name in self.names:
            return True
        if len(self.names) >= self.most:
            return False
        self.names[name] = None
        return True

    def take(self, now: Millis) -> str | None:
        """Its next event."""
        self.accessed = now
        if not self.names:
            return None
        self.consumed = now
        name = next(iter(self.names))
        del self.names[name]
        return name

    def is_idle(self, now: Millis) -> bool:
        return bool(self.names) and now - self.accessed > IDLE_MS

    def has_few(self) -> bool:
        return len(self.names) < FEW * self.most


class FullDispatches:
    """Clients, and wildcard groups, all of whose queues are to be looked at, and when."""

    def __init__(self) -> None:
        self._due: dict[tuple[str, str], Millis] = {}
        self._heap: list[tuple[Millis, str, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def plan(self, client_id: str, group: str, at: Millis) -> None:
        """`client_id` "": the group's. What is planned already stays."""
        if (client_id, group) not in self._due:
            self._due[client_id, group] = at
            heapq.heappush(self._heap, (at, client_id, group))

    def take(self, now: Millis) -> list[tuple[str, str]]:
        """Those whose time has come."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            _, client_id, group = heapq.heappop(self._heap)
            del self._due[client_id, group]
            found.append((client_id, group))
        return found

    def next_deadline(self) -> Millis | None:
        return self._heap[0][0] if self._heap else None

    def clear(self) -> None:
        self._due.clear()
        self._heap.clear()
