"""A part of a seed: some of its faults as they began, without some clients, for a shorter time; and swarms."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from tests.combinations import at_each_change

from perseid.sim.models.broker.run import Result
from perseid.sim.models.registry import MODELS, command, play
from perseid.sim.options import Options
from perseid.sim.scheduler import US_PER_S
from perseid.sim.selection import WHOLE, Chosen, Selection, numbers

ALL = list(MODELS)
SEED = 12
SHORT_S, SLOW = 30, 4.0
SHORT = Selection(until_us=SHORT_S * US_PER_S)
"""The faults of a seed's first half: how parts of it are chosen is the same whenever it ends."""


@cache
def whole_of(model: str) -> Result:
    """A seed, all of it that is in its first half: what its parts are compared with."""
    result = play(model, SEED, SHORT)
    assert not result.failure, result.failure
    return result


def begins(result: Result) -> dict[int, tuple[str, int]]:
    return {number: (one.kind, one.at_us) for number, one in result.begun.items()}


@pytest.mark.once
@pytest.mark.sim
@pytest.mark.parametrize("model", at_each_change(ALL, "broker"))
def test_faults_that_are_left_begin_as_they_did_among_all(model: str) -> None:
    whole = whole_of(model)
    assert len(whole.begun) >= 3 and whole.healed_s == SHORT_S
    chosen = frozenset(list(whole.begun)[::2])
    part = play(model, SEED, replace(SHORT, only_faults=chosen).knowing(whole.begun, whole.paces))
    assert not part.failure, part.failure
    assert begins(part) == {number: begun for number, begun in begins(whole).items() if number in chosen}
    assert {number: one.state for number, one in part.begun.items()} == {
        number: whole.begun[number].state for number in chosen
    }
    assert part.digest != whole.digest


@pytest.mark.once
@pytest.mark.sim
def test_all_of_the_faults_are_the_whole_seed_which_is_played_first_to_know_them() -> None:
    whole = play("raft", SEED)
    assert play("raft", SEED, Selection(only_faults=frozenset(whole.begun))).digest == whole.digest


@pytest.mark.once
@pytest.mark.sim
def test_without_any_fault_none_begins_and_what_struck_by_itself_can_be_left_out() -> None:
    whole = play("raft", 14)
    parts = frozenset(whole.parts - {"ambushes", "strangers"})
    calm = play("raft", 14, Selection(only_faults=frozenset(), only_parts=parts))
    assert not calm.failure and not calm.begun and calm.faults == 0
    assert not [what for what in calm.counts if what.startswith(("fault", "killed", "all lose power", "stranger"))]
    assert whole.parts - calm.parts == {"ambushes", "strangers"} & whole.parts


@pytest.mark.once
@pytest.mark.sim
@pytest.mark.parametrize("model", at_each_change(ALL, "broker"))
def test_parts_that_are_left_out_do_nothing(model: str) -> None:
    whole = whole_of(model)
    assert len(whole.parts) >= 4
    least = play(model, SEED, replace(SHORT, only_parts=frozenset()))
    assert not least.failure, least.failure
    assert not least.parts and 0 < least.operations < whole.operations  # one client is always there


@pytest.mark.once
@pytest.mark.sim
@pytest.mark.parametrize("model", ["broker", "raft"])
def test_faults_end_earlier(model: str) -> None:
    whole, short = play(model, SEED), whole_of(model)
    assert whole.healed_s is not None and whole.healed_s >= 60
    assert begins(short) == {number: one for number, one in begins(whole).items() if one[1] <= SHORT_S * US_PER_S}


@pytest.mark.once
@pytest.mark.sim
@pytest.mark.parametrize("model", at_each_change(ALL, "broker"))
def test_a_swarm_draws_what_a_seed_has_and_the_same_each_time(model: str) -> None:
    swarm = replace(SHORT, swarm=True, paces=(SLOW,))
    first, again = (MODELS[model].run(SEED, Options(selection=swarm)) for _ in range(2))
    assert not first.failure and first.digest == again.digest
    assert whole_of(model).digest != first.digest


def test_swarms_have_few_kinds_of_fault_in_one_seed_and_all_of_them_in_many() -> None:
    kinds, seeds = [f"kind {n}" for n in range(30)], 300
    met, sizes = Counter[str](), set()
    for seed in range(seeds):
        found = Chosen(seed, Selection(swarm=True)).kinds(kinds)
        assert found and found == Chosen(seed, Selection(swarm=True)).kinds(kinds)
        met.update(found)
        sizes.add(len(found))
        assert Chosen(seed, WHOLE).kinds(kinds) == kinds
    assert min(sizes) < 6 and max(sizes) > 20
    assert min(met.values()) > seeds / 3 and max(met.values()) < seeds * 2 / 3
    assert Chosen(1, Selection(swarm=True)).kinds([]) == []


def test_what_is_new_in_a_swarm_changes_nothing_for_the_rest() -> None:
    for seed in range(20):
        old, new = (Chosen(seed, Selection(swarm=True)) for _ in range(2))
        new.has("a feature that was added")
        assert [old.has(f"client{n}") for n in range(9)] == [new.has(f"client{n}") for n in range(9)]


def test_a_command_names_the_part() -> None:
    part = Selection(swarm=True, only_faults=frozenset({3, 7, 8, 9}), only_parts=frozenset({"b", "operator/by_id"}))
    told = command("ha", 5, replace(part, until_us=41_500_000), with_core=False)
    assert told == (
        "PERSEID_CORE=off perseid sim --seed 5 --model ha --swarm --only-faults 3,7-9 --only-parts b,operator/by_id"
        " --until 41.5"
    )
    assert command("broker", 5, Selection(only_faults=frozenset())) == "perseid sim --seed 5 --only-faults none"
    assert [numbers(frozenset(one)) for one in ((), (4,), (1, 2), (1, 3, 4))] == ["", "4", "1-2", "1,3-4"]
