"""Who becomes master."""

from dataclasses import dataclass

import pytest

from perseid.controller import policy
from perseid.controller.policy import elect


@dataclass
class At:
    epoch: int = 1
    max_offset: int = 0
    priority: int = 2**31 - 1


def chosen(
    live: dict[int, At],
    in_sync: list[int],
    *,
    unclean: list[int] | None = None,
    old: int | None = None,
    prefer: int | None = None,
) -> int | None:
    return elect(in_sync, unclean, old, prefer, live.get)


def test_the_old_master_stays_if_it_is_alive() -> None:
    assert chosen({1: At(), 2: At(9, 9)}, [1, 2], old=1) == 1


def test_only_those_alive_are_elected() -> None:
    assert chosen({2: At()}, [1, 2], old=1) == 2
    assert chosen({}, [1, 2], old=1) is None


def test_those_in_sync_go_first_however_far_the_others_are() -> None:
    assert chosen({2: At(1, 10), 3: At(9, 999)}, [1, 2], unclean=[1, 2, 3]) == 2


def test_an_unclean_election_only_where_it_is_allowed() -> None:
    assert chosen({3: At()}, [1, 2], unclean=None) is None
    assert chosen({3: At()}, [1, 2], unclean=[1, 2, 3]) == 3


def _in_32_bits(broker_id: int, standing: At) -> tuple[int, int, int, int]:
    """As the original's comparison has it until 5.5.0."""
    offset = (-standing.max_offset + 2**31) % 2**32 - 2**31
    return -standing.epoch, offset, standing.priority, broker_id


def test_logs_that_differ_by_more_than_2_gib_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """5.5.1 mends it; planted here, the shorter log is elected."""
    live = {1: At(max_offset=1000), 2: At(max_offset=1000 + 3 * 2**30)}
    assert chosen(live, [1, 2]) == 2
    monkeypatch.setattr(policy, "_rank", _in_32_bits)
    assert chosen(live, [1, 2]) == 1


def test_the_one_who_is_wanted_or_nobody() -> None:
    live = {1: At(), 2: At(), 3: At()}
    assert chosen(live, [1, 2], old=1, prefer=2) == 2
    assert chosen(live, [1, 2], old=1, prefer=1) == 1
    assert chosen(live, [1, 2], old=1, prefer=3) is None, "it is not in sync"
    assert chosen(live, [1, 2], unclean=[1, 2, 3], old=1, prefer=3) == 3
    assert chosen({1: At()}, [1, 2], old=1, prefer=2) is None, "it is dead"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (At(epoch=2, max_offset=0), At(epoch=1, max_offset=9)),
        (At(max_offset=5), At(max_offset=4)),
        (At(priority=1), At(priority=2)),
        (At(), At()),
    ],
    ids=["epoch", "offset", "priority", "id"],
)
def test_the_order(first: At, second: At) -> None:
    assert chosen({1: first, 2: second}, [1, 2]) == 1
    if first != second:
        assert chosen({1: second, 2: first}, [1, 2]) == 2


def test_b22_the_longer_log_wins_by_however_much_it_is_longer() -> None:
    assert chosen({1: At(max_offset=0), 2: At(max_offset=3_000_000_000)}, [1, 2]) == 2
    assert chosen({1: At(epoch=1, max_offset=3_000_000_000), 2: At(epoch=2)}, [1, 2]) == 2
