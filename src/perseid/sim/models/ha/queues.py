"""C11: a queue's offset keeps its message, whoever is master; and queues go on behind all that was there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseid.sim.promises import Violation

if TYPE_CHECKING:
    from perseid.sim.models.ha.members import Replica

TOPIC, QUEUES = "orders", 3

Place = tuple[int, int]
"""Queue, offset."""


@dataclass(slots=True)
class Stored:
    """A message that somebody was told of: where it stands, in the log and in its queue."""

    physical: int
    end: int
    body: bytes
    place: Place | None
    """None: it waits for its time in another topic."""
    acknowledged: bool
    holders: str = ""
    """Who had it when it was acknowledged."""


class QueuePlaces:
    """Where messages stand in the queues."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._at: dict[Place, Stored] = {}
        self.begun_anew = 0
        """Queues that a master began anew that had nothing of them."""

    def __iter__(self) -> Iterator[Place]:
        return iter(self._at)

    def stands(self, replica: Replica, place: Place, stored: Stored) -> None:
        """A broker said that a message stands there."""
        before = self._at.setdefault(place, stored)
        if before.physical != stored.physical:
            was = f"{before.body[:20]!r} at {before.physical}"
            raise Violation("C11", f"{replica.name}: {place} was {was}, is {stored.body[:20]!r}")

    def forget(self, stored: Stored) -> None:
        """It is lost, as it may be. Its queue may have been begun anew before: then nothing of it is here any more, or
        another message stands in its place."""
        if stored.place is not None and self._at.get(stored.place) is stored:
            del self._at[stored.place]

    def without_beginning(self, replica: Replica) -> None:
        """A master whose log has no beginning: queues of which it has nothing begin anew."""
        self._count("master of a log without its beginning")
        for queue_id in sorted({queue_id for queue_id, _ in self._at}):
            if not replica.queue_end(TOPIC, queue_id):
                self.begun_anew += 1
                self._count("a queue begins anew")
                for place in [place for place in self._at if place[0] == queue_id]:
                    del self._at[place]

    def check(self, replica: Replica) -> None:
        """Its queues have each message where it was, and go on behind all of them."""
        for (queue_id, offset), stored in self._at.items():
            if stored.physical < replica.start:
                continue
            found = replica.unit(TOPIC, queue_id, offset)
            if found != stored.physical:
                raise Violation(
                    "C11", f"{replica.name}: {queue_id}@{offset} is at {found} of its log, was at {stored.physical}"
                )
