from __future__ import annotations

from perseid.broker.clients.locks import LOCK_LIFE_MS, QueueLocks
from perseid.wire.bodies import MessageQueue

NOW = 1_700_000_000_000
Q0, Q1, Q2 = (MessageQueue("T", "b", i) for i in range(3))


def test_one_holder_a_queue() -> None:
    locks = QueueLocks()
    assert locks.lock("g", [Q0, Q1], "a", NOW) == [Q0, Q1]
    assert locks.lock("g", [Q1, Q2], "b", NOW) == [Q2]
    assert locks.lock("other group", [Q0], "b", NOW) == [Q0]
    locks.validate()


def test_a_lock_lives_since_it_was_last_taken() -> None:
    locks = QueueLocks()
    locks.lock("g", [Q0], "a", NOW)
    assert locks.lock("g", [Q0], "a", NOW + LOCK_LIFE_MS) == [Q0]
    assert locks.lock("g", [Q0], "b", NOW + 2 * LOCK_LIFE_MS) == []
    assert locks.lock("g", [Q0], "b", NOW + 2 * LOCK_LIFE_MS + 1) == [Q0]
    assert locks.lock("g", [Q0], "a", NOW + 2 * LOCK_LIFE_MS + 1) == []


def test_an_expired_lock_can_be_taken_again_by_its_holder() -> None:
    locks = QueueLocks()
    locks.lock("g", [Q0], "a", NOW)
    assert locks.lock("g", [Q0], "a", NOW + 10 * LOCK_LIFE_MS) == [Q0]


def test_only_the_holder_unlocks() -> None:
    locks = QueueLocks()
    locks.lock("g", [Q0, Q1], "a", NOW)
    locks.unlock("g", [Q0, Q2], "b")
    assert locks.lock("g", [Q0], "b", NOW) == []
    locks.unlock("g", [Q0], "a")
    assert locks.lock("g", [Q0, Q1], "b", NOW) == [Q0]
    locks.unlock("unknown", [Q0], "a")
    locks.unlock("g", [Q0], "b")
    locks.unlock("g", [Q1], "a")
    locks.validate()
    assert not locks._groups


def test_any_held() -> None:
    locks = QueueLocks()
    assert not locks.any_held("g", NOW)
    locks.lock("g", [Q0], "a", NOW)
    assert locks.any_held("g", NOW + LOCK_LIFE_MS)
    assert not locks.any_held("g", NOW + LOCK_LIFE_MS + 1)
    assert not locks.any_held("h", NOW)


def test_expired_locks_are_forgotten() -> None:
    locks = QueueLocks()
    locks.lock("g", [Q0], "a", NOW)
    locks.lock("g", [Q1], "a", NOW + 10)
    locks.lock("h", [Q0], "a", NOW)
    locks.expire(NOW + LOCK_LIFE_MS + 1)
    locks.validate()
    assert list(locks._groups) == ["g"] and len(locks._groups["g"]) == 1


def test_no_queue_no_group() -> None:
    locks = QueueLocks()
    assert locks.lock("g", [], "a", NOW) == []
    locks.validate()
