"""Shares of queues: the Java client's AllocateMessageQueueAveragely, by its properties and by known cases."""

from hypothesis import given, settings
from hypothesis import strategies as st

from perseid.client.model import MessageQueue
from perseid.client.rebalance import allocate_averagely, changes

QUEUES = [MessageQueue("t", "a", i) for i in range(8)]


def test_eight_queues_for_three_members() -> None:
    shares = [[q.queue_id for q in allocate_averagely(m, QUEUES, ["m2", "m1", "m3"])] for m in ("m1", "m2", "m3")]
    assert shares == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_members_beyond_the_queues_get_nothing() -> None:
    members = [f"m{i}" for i in range(4)]
    assert [len(allocate_averagely(m, QUEUES[:2], members)) for m in members] == [1, 1, 0, 0]


def test_who_is_no_member_gets_nothing() -> None:
    assert allocate_averagely("stranger", QUEUES, ["m1"]) == []


@settings(deadline=None)
@given(st.integers(0, 40), st.sets(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=12))
def test_every_queue_has_exactly_one_owner_and_shares_differ_by_one(count: int, members: set[str]) -> None:
    queues = [MessageQueue("t", f"b{i % 3}", i) for i in range(count)]
    shares = [allocate_averagely(member, reversed(queues), members) for member in members]
    assert sorted(queue for share in shares for queue in share) == sorted(queues)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_changes_are_sorted() -> None:
    assert changes(QUEUES[:4], [QUEUES[5], QUEUES[3], QUEUES[4]]) == (QUEUES[:3], QUEUES[4:6])
