"""Where messages stand in queues that a master began anew (C11)."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from perseid.sim.models.ha.history import SetHistory
from perseid.sim.models.ha.queues import Stored


class FakeReplica:
    """A master whose log begins at `start`, and has these messages."""

    def __init__(self, start: int, log: list[Stored], epoch: int) -> None:
        self.name, self.start, self.log, self.epoch, self.end = f"of {epoch}", start, log, epoch, 10_000

    def has(self, stored: Stored) -> bool:
        return stored.physical < self.start or stored in self.log

    def queue_end(self, topic: str, queue_id: int) -> int:
        return max((one.place[1] + 1 for one in self.log if one.place and one.place[0] == queue_id), default=0)


def history() -> tuple[SetHistory, Counter[str]]:
    counted: Counter[str] = Counter()

    def count(what: str) -> None:
        counted[what] += 1

    agreed = SimpleNamespace(unclean_at=0)
    return SetHistory(cast(Any, SimpleNamespace(count=count, agreed=agreed, strict=False))), counted


def keep(one: SetHistory, replica: FakeReplica, stored: Stored) -> None:
    one.stored[stored.physical] = stored
    assert stored.place is not None
    one.places.stands(cast(Any, replica), stored.place, stored)


def began(one: SetHistory, replica: FakeReplica) -> None:
    one.master_began(cast(Any, replica))


def test_a_message_of_a_queue_that_was_begun_anew_may_be_lost_by_a_later_master() -> None:
    one, counted = history()
    old = Stored(500, 600, b"old", (0, 5), acknowledged=True)
    keep(one, FakeReplica(0, [old], 1), old)
    began(one, FakeReplica(1_000, [], 2))
    assert one.places.begun_anew == 1 and not list(one.places)
    began(one, FakeReplica(0, [], 3))
    assert one.lost == [old] and counted["lost with a change of masters: acknowledged"] == 1


def test_what_stands_in_its_place_since_then_stays() -> None:
    one, _ = history()
    old = Stored(500, 600, b"old", (0, 0), acknowledged=True)
    new = Stored(1_100, 1_200, b"new", (0, 0), acknowledged=True)
    keep(one, FakeReplica(0, [old], 1), old)
    began(one, second := FakeReplica(1_000, [], 2))
    second.log.append(new)
    keep(one, second, new)
    began(one, FakeReplica(0, [new], 3))
    assert one.lost == [old] and list(one.places) == [(0, 0)]
