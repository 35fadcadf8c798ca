"""Who waits for something to pop, by itself: who is woken, how many may wait, what is left of those that are gone."""

from __future__ import annotations

import pytest

from broker.consume.test_hold import request
from broker.harness import NOW
from perseid.broker.consume import held_pops as waits
from perseid.broker.consume.held_pops import ALL_QUEUES, PopWaits
from perseid.broker.consume.held_pulls import Holds


def opaques(held: PopWaits, now: int = NOW) -> list[int]:
    """Those that are to be handled again."""
    return [one.command.opaque for one in held.take_ready(now)]


def hold(held: PopWaits, opaque: int, queue_id: int = ALL_QUEUES, *, conn: int = 1, until: int = 100) -> bool:
    return held.hold(request(opaque, conn), "T", "g", queue_id, None, NOW + until, takes=True)


@pytest.fixture
def held() -> PopWaits:
    return Holds().pops


def test_one_message_wakes_one_of_a_group(held: PopWaits) -> None:
    assert all(hold(held, number) for number in range(3))
    held.arrived("T", 2, 0, 0)
    held.arrived("T", 3, 0, 0)
    assert opaques(held) == [0], "the first one looks at all queues"
    held.arrived("T", 2, 1, 0)
    assert opaques(held) == [1] and held.polling("T", "g", ALL_QUEUES) == 1


def test_a_woken_one_that_goes_in_the_same_turn_leaves_its_message_to_another(held: PopWaits) -> None:
    for number in range(3):
        hold(held, number, conn=number)
    held.arrived("T", 2, 0, 0)
    held.connection_closed(0)
    assert opaques(held) == [1]
    held.connection_closed(2)
    held.arrived("T", 2, 1, 0)
    assert opaques(held) == [] and held.count == 0 and held.next_deadline() is None


def test_so_many_of_one_queue_may_wait(held: PopWaits, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other queues count for nothing."""
    monkeypatch.setattr(waits, "MAX_HELD_OF_QUEUE", 2)
    assert [hold(held, number, 1) for number in range(3)] == [True, True, False]
    assert [hold(held, number, 2) for number in range(3)] == [True, True, False]
    held.arrived("T", 1, 0, 0)
    assert opaques(held) == [0] and hold(held, 9, 1)


def test_all_are_ready_when_what_kept_them_is_over(held: PopWaits) -> None:
    for number in range(3):
        hold(held, number, number)
    held.everyone()
    assert opaques(held) == [0, 1, 2] and held.count == 0


def test_old_deadlines_do_not_pile_up(held: PopWaits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "MAX_STALE", 10)
    hold(held, 0, 0, until=1_000)
    for number in range(1, 1_000):
        hold(held, number, 1, until=2_000 + number)
        held.arrived("T", 1, number, 0)
        assert opaques(held) == [number]
        assert len(held._deadlines) <= 2 * 2 + 10 + 1
    assert held.next_deadline() == NOW + 1_000
    (last,) = held.take_ready(NOW + 1_000)
    assert last.command.opaque == 0 and not last.may_hold
