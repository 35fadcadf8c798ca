"""Who is in sync with a master, by itself: what it proposes and when, and whom an acknowledgement needs meanwhile."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import pytest

from perseid.replication.auto_switch import in_sync
from perseid.replication.auto_switch.in_sync import AWAITED_MS, BARRED_MS, FOR_EVER, REST_MS, RETRY_MS, InSync, Proposal

MOST_MS = 15_000
NOW = 1_000_000


def master(*members: int, epoch: int = 5) -> InSync:
    """Replica 1 leads, and these are agreed to be in sync with it."""
    made = InSync(1, MOST_MS)
    assert made.agree(members, epoch, NOW)
    return made


def proposed(made: InSync, now: int) -> set[int] | None:
    found = made.proposal(now)
    made.validate()
    assert found is made.proposed or found is None
    return None if found is None else set(found.members)


def test_nothing_is_proposed_before_the_controller_has_said_a_set() -> None:
    made = InSync(1, MOST_MS)
    made.may_join(2)
    made.near(2, NOW)
    assert proposed(made, NOW) is None and made.next_deadline() is None
    assert made.required == {1} and made.count == 1
    assert made.agree([], 0, NOW) and made.required == {1}, "a master is always in sync with itself"
    assert proposed(made, NOW) == {1, 2}


@pytest.mark.parametrize("epoch", [4, 5, -1])
def test_a_set_that_is_older_or_the_same_changes_nothing(epoch: int) -> None:
    made = master(1, 2)
    made.may_join(3)
    assert proposed(made, NOW) == {1, 2, 3}
    assert not made.agree([1], epoch, NOW)
    assert made.agreed == {1, 2} and made.epoch == 5 and made.required == {1, 2, 3} and made.proposed is not None
    assert made.agree([1, 3], 6, NOW) and made.required == {1, 3} and made.proposed is None


def test_one_proposal_is_under_way_at_a_time_and_counts_until_it_is_refused() -> None:
    made = master(1)
    made.may_join(2)
    assert proposed(made, NOW) == {1, 2}
    assert made.required == {1, 2} and made.count == 2 and not made.stuck
    made.may_join(3)
    assert proposed(made, NOW + 60_000) is None
    first = made.proposed
    assert first is not None
    made.failed(Proposal(first.members), NOW, refused=True)
    assert made.proposed is first, "the answer to another one says nothing of this one"
    made.failed(first, NOW, refused=True)
    assert made.required == {1} and made.count == 1
    assert made.next_deadline() == NOW + RETRY_MS
    assert proposed(made, NOW + RETRY_MS - 1) is None and proposed(made, NOW + RETRY_MS) == {1, 2, 3}


def test_a_proposal_without_an_answer_counts_until_the_epoch_has_moved_on() -> None:
    made = master(1, 2)
    made.caught_up(2, NOW)
    made.may_join(3)
    made.caught_up(3, NOW)
    assert proposed(made, NOW) == {1, 2, 3}
    made.failed(made.proposed, NOW, refused=False)  # type: ignore[arg-type]
    assert made.required == {1, 2, 3} and made.count == 3 and not made.stuck
    made.gone(3)
    assert made.required == {1, 2, 3} and made.stuck, "it may come in yet, and is gone"
    assert proposed(made, NOW + RETRY_MS) is None
    made.gone(2)
    assert proposed(made, NOW + RETRY_MS) == {1} and not made.stuck
    made.failed(made.proposed, NOW + RETRY_MS, refused=True)  # type: ignore[arg-type]
    assert made.required == {1, 2, 3}, "the first one may still be applied"
    assert made.agree([1, 2], 6, NOW) and made.required == {1, 2} and made.count == 2 and not made.stuck


def test_who_has_not_caught_up_for_long_is_to_leave_and_counts_until_it_is_let_go() -> None:
    made = master(1, 2, 3)
    made.caught_up(2, NOW + 1_000)
    made.caught_up(2, NOW + 400)  # heard later, of an earlier time
    made.caught_up(3, NOW + 5_000)
    assert proposed(made, NOW + 1_000 + MOST_MS) is None
    assert made.next_deadline() == NOW + 1_000 + MOST_MS + 1
    assert proposed(made, NOW + 1_000 + MOST_MS + 1) == {1, 3}
    assert made.required == {1, 2, 3} and made.count == 3
    assert made.agree([1, 3], 6, NOW + 20_000) and made.required == {1, 3} and made.count == 2
    made.gone(1)
    assert proposed(made, NOW + 20_000) is None, "a master does not leave"
    made.gone(3)
    assert proposed(made, NOW + 20_000) == {1}


def test_who_is_in_sync_when_a_set_comes_has_its_whole_time() -> None:
    made = master(1, 2)
    assert proposed(made, NOW + MOST_MS) is None and proposed(made, NOW + MOST_MS + 1) == {1}
    alone = master(1)
    assert proposed(alone, NOW + 50 * MOST_MS) is None and alone.next_deadline() is None
    alone.may_join(2)
    assert proposed(alone, NOW + 50 * MOST_MS) == {1, 2}, "the master alone waits for ever, but for that"
    assert FOR_EVER > 1 << 60


def test_another_time_counts_at_once() -> None:
    made = master(1, 2)
    assert proposed(made, NOW + 5_000) is None
    made.reconfigure(4_000)
    assert proposed(made, NOW + 5_000) == {1}


def test_joiners_that_were_refused_together_come_one_at_a_time() -> None:
    made = master(1)
    for replica in (3, 2, 4):
        made.may_join(replica)
    assert proposed(made, NOW) == {1, 2, 3, 4}
    made.failed(made.proposed, NOW, refused=True)  # type: ignore[arg-type]
    assert proposed(made, NOW + RETRY_MS) == {1, 2}
    assert made.agree([1, 2], 6, NOW) and proposed(made, NOW + RETRY_MS) == {1, 2, 3}
    assert made.agree([1, 2, 3], 7, NOW) and proposed(made, NOW + RETRY_MS) == {1, 2, 3, 4}
    assert made.agree([1, 2, 3, 4], 8, NOW) and made.agree([1], 9, NOW)
    for replica in (2, 3):
        made.may_join(replica)
    assert proposed(made, NOW + RETRY_MS) == {1, 2, 3}, "together again, when all had come in"


def test_one_that_the_controller_does_not_know_is_left_out_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    made = master(1)
    made.may_join(2)
    assert proposed(made, NOW) == {1, 2}
    made.failed(made.proposed, NOW, refused=True, stranger=True)  # type: ignore[arg-type]
    made.near(2, NOW + 1_000)
    assert made.required == {1}, "nor is it awaited"
    assert proposed(made, NOW + BARRED_MS - 1) is None and made.next_deadline() == NOW + BARRED_MS
    made.may_join(3)
    assert proposed(made, NOW + BARRED_MS - 1) == {1, 3}
    assert made.agree([1, 3], 6, NOW) and proposed(made, NOW + BARRED_MS) == {1, 2, 3}
    monkeypatch.setattr(in_sync, "MAX_BARRED", 1)
    made.failed(made.proposed, NOW + BARRED_MS, refused=True, stranger=True)  # type: ignore[arg-type]
    made.may_join(4)
    later = NOW + BARRED_MS + RETRY_MS
    assert proposed(made, later) == {1, 3, 4}
    made.failed(made.proposed, later, refused=True, stranger=True)  # type: ignore[arg-type]
    assert proposed(made, later + RETRY_MS) == {1, 2, 3}, "so many are kept in mind, and no more"


def test_two_joiners_of_whom_one_is_not_known_are_tried_by_themselves() -> None:
    made = master(1)
    for replica in (2, 3):
        made.may_join(replica)
    assert proposed(made, NOW) == {1, 2, 3}
    made.failed(made.proposed, NOW, refused=True, stranger=True)  # type: ignore[arg-type]
    assert proposed(made, NOW + RETRY_MS) == {1, 2}, "nobody knows who was meant, so nobody is left out"


def test_who_is_near_is_awaited_for_a_moment_and_then_not_for_a_while() -> None:
    made = master(1)

    def needed(now: int) -> set[int]:
        proposed(made, now)
        return set(made.required)

    made.near(2, NOW)
    assert needed(NOW) == needed(NOW + AWAITED_MS - 1) == {1, 2}
    assert made.next_deadline() == NOW + AWAITED_MS
    ends = NOW + AWAITED_MS
    assert needed(ends) == {1} and made.next_deadline() is None
    made.near(2, ends + REST_MS - 1)
    assert needed(ends + REST_MS - 1) == {1}
    made.near(2, ends + REST_MS)
    assert needed(ends + REST_MS) == {1, 2}
    made.gone(2)
    assert needed(ends + REST_MS) == {1}
    made.near(2, ends + REST_MS)
    assert needed(ends + REST_MS) == {1, 2}, "one that comes anew is awaited anew"
    assert made.agree([1, 2], 6, ends) and needed(ends + REST_MS) == {1, 2} and made.next_deadline() is not None
    made.near(2, ends + REST_MS)
    assert made.agree([1], 7, ends) and needed(ends + REST_MS) == {1}, "who is in sync is not awaited"


def test_joiners_that_fell_back_are_not_proposed() -> None:
    made = master(1)
    for replica in (2, 3):
        made.may_join(replica)
    made.keep_joiners(lambda replica: replica == 3)
    assert proposed(made, NOW) == {1, 3}
    made.keep_joiners(lambda replica: False)
    made.failed(made.proposed, NOW, refused=True)  # type: ignore[arg-type]
    assert proposed(made, NOW + RETRY_MS) == {1, 3}, "what is proposed is not taken back"


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_needed_less_than_may_be_agreed_and_no_deadline_is_late(seed: int) -> None:
    """Against a controller that applies, refuses, or does not answer and applies later."""
    random, made, now, epoch = Random(seed), master(1, 2), NOW, 5
    agreed, late = {1, 2}, list[tuple[int, set[int]]]()
    for _ in range(200):
        now += random.choice((0, 1, RETRY_MS, 2_000, MOST_MS // 2))
        due = made.next_deadline()
        if due is None or due > now:
            assert deepcopy(made).proposal(now) is None, "nobody would have asked"
        if made.proposal(now) is not None:
            assert made.proposed is not None
            members, outcome = set(made.proposed.members), random.randrange(4)
            assert members != agreed or made.count >= len(agreed)
            if outcome == 0:
                epoch, agreed = epoch + 1, members
                assert made.agree(members, epoch, now)
            elif outcome == 1:
                made.failed(made.proposed, now, refused=True, stranger=random.random() < 0.3)
            elif outcome == 2:
                late.append((epoch, members))
                made.failed(made.proposed, now, refused=False)
        elif late and random.random() < 0.3:
            of_epoch, members = late.pop(random.randrange(len(late)))
            if of_epoch == epoch:  # an older one is refused
                epoch, agreed = epoch + 1, members
                if random.random() < 0.5:
                    assert made.agree(members, epoch, now)
        if made.epoch < epoch and random.random() < 0.5:
            assert made.agree(agreed, epoch, now)
        if made.epoch == epoch:
            assert made.agreed == agreed
        assert agreed <= made.required, "what may be the set has what is acknowledged"
        replica = random.choice((2, 3, 4))
        happens = random.randrange(4)
        if happens == 0:
            made.may_join(replica)
        elif happens == 1:
            made.gone(replica)
        elif happens == 2:
            made.caught_up(replica, now)
        else:
            made.near(replica, now)
        if replica not in made.agreed:
            made.keep_joiners(lambda one: random.random() < 0.9)
        made.validate()
