"""Shrinking: few faults and few clients that break the same property, and a seed that doesn't stays what it was."""

from collections.abc import Callable, Sequence

import pytest

from perseid.sim.models.broker.run import Result
from perseid.sim.models.registry import play
from perseid.sim.selection import Begun, Selection
from perseid.sim.shrink import MAX_PLAYS, Shrinker, fewest

from .test_mutations import FIRST, no_folder_sync_after_rename

FAULTS, PARTS = range(1, 21), [f"client{n}" for n in range(8)]


@pytest.mark.parametrize("wanted", [(), (1,), (20,), (3, 17), (1, 2, 3), (4, 9, 14, 19), tuple(FAULTS)])
def test_just_those_that_matter_are_left(wanted: Sequence[int]) -> None:
    plays = []

    def holds(some: list[int]) -> bool:
        plays.append(some)
        return set(wanted) <= set(some)

    assert fewest(list(FAULTS), holds) == list(wanted)
    assert len(plays) <= 3 * len(FAULTS) * max(1, len(wanted))


def test_none_of_what_is_left_can_be_left_out_where_one_or_the_other_is_enough() -> None:
    def holds(some: list[int]) -> bool:
        return 3 in some and (5 in some or 12 in some)

    left = fewest(list(FAULTS), holds)
    assert holds(left) and not any(holds([one for one in left if one != gone]) for gone in left)


def seed_that(breaks: Callable[[set[int], set[str]], str]) -> Callable[[Selection], Result]:
    """A seed of 20 faults and 8 clients: what they break."""

    def once(selection: Selection) -> Result:
        faults = {n for n in FAULTS if selection.only_faults is None or n in selection.only_faults}
        parts = {name for name in PARTS if selection.only_parts is None or name in selection.only_parts}
        end_s = 60 if selection.until_us is None else selection.until_us / 1e6
        broken = breaks(faults, parts) if end_s >= 30 else ""
        begun = {n: Begun(n * 1_000_000, None, "stall") for n in sorted(faults)}
        return Result(5, f"{broken}: so" if broken else "", broken, begun=begun, parts=parts, healed_s=end_s)

    return once


def test_faults_clients_and_time_become_less() -> None:
    once = seed_that(lambda faults, parts: "C10" if {3, 7} <= faults and "client4" in parts else "")
    shrunk = Shrinker(once, False, "C10", lambda: True).shrink()
    chosen = shrunk.selection
    assert (chosen.only_faults, chosen.only_parts) == ({3, 7}, {"client4"})
    assert chosen.until_us is not None and 30_000_000 <= chosen.until_us < 33_000_000
    assert (shrunk.faults, shrunk.parts) == (20, 8) and shrunk.result.broken == "C10"
    told = "\n".join(shrunk.lines("the command"))
    assert "2 of 20 faults and 1 of 8 clients" in told and "the command" in told and "fault 7: stall, 7.0 s" in told


def test_another_property_that_breaks_with_less_is_not_the_same() -> None:
    once = seed_that(lambda faults, parts: "C10" if {3, 7} <= faults else "C13")
    assert Shrinker(once, False, "C10", lambda: True).shrink().selection.only_faults == {3, 7}


def test_a_seed_that_breaks_something_else_the_next_time_is_told_of() -> None:
    shrunk = Shrinker(seed_that(lambda faults, parts: "C13"), False, "C10", lambda: True).shrink()
    assert shrunk.lines("") == ["seed 5 breaks 'C13' when it is played again: it has more than one history"]
    shrunk = Shrinker(seed_that(lambda faults, parts: ""), False, "C10", lambda: True).shrink()
    assert "breaks nothing" in shrunk.note


def test_plays_are_bounded_and_what_was_found_by_then_is_kept() -> None:
    once, plays = seed_that(lambda faults, parts: "C10" if {3, 7} <= faults else ""), []

    def counted(selection: Selection) -> Result:
        plays.append(selection)
        return once(selection)

    shrunk = Shrinker(counted, False, "C10", lambda: len(plays) < 6).shrink()
    assert len(plays) == shrunk.plays == 6 and {3, 7} < (shrunk.selection.only_faults or set()) < set(FAULTS)
    assert Shrinker(counted, False, "C10", lambda: True).shrink().plays <= MAX_PLAYS


def first_with_many_faults(first: int) -> Result:
    """The first seed of brokers that fails after many faults."""
    for seed in range(first, first + 40):
        whole = play("broker", seed)
        if whole.failure and len(whole.begun) >= 8:
            return whole
    raise AssertionError(f"40 seeds from {first} on pass over the planted defect")


@pytest.mark.long
@pytest.mark.once
@pytest.mark.sim
def test_of_a_planted_defect_few_faults_are_left_which_another_play_of_them_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    no_folder_sync_after_rename(monkeypatch)
    whole = first_with_many_faults(FIRST)
    seed = whole.seed
    shrunk = Shrinker(lambda part: play("broker", seed, part), False, whole.broken, lambda: True).shrink()
    chosen = shrunk.selection
    assert chosen.only_faults is not None and 1 <= len(chosen.only_faults) <= 4
    assert chosen.only_parts is not None and len(chosen.only_parts) < len(whole.parts) / 2
    known = Selection(only_faults=chosen.only_faults, only_parts=chosen.only_parts, until_us=chosen.until_us)
    again = play("broker", seed, known)  # nothing is known of how the faults began: as a command from a report
    assert (again.broken, again.digest) == (whole.broken, shrunk.result.digest)
    monkeypatch.undo()
    assert not play("broker", seed, known).failure
