"""How dense seeds are: most swarms have little more operations than a seed must; parts of them are as slow."""

from typing import Any

import pytest
from tests.combinations import at_each_change

from perseid.sim.models.registry import MODELS, play
from perseid.sim.pace import DENSE, FASTEST, FAULTS_US, LOOK_US, MIN_OPERATIONS, SLOWEST, WANTED, under_faults, wanted
from perseid.sim.promises import Violation
from perseid.sim.scheduler import MAX_PAUSE_MS, US_PER_MS, US_PER_S, Scheduler
from perseid.sim.selection import WHOLE, Selection

SWARM = Selection(swarm=True)
QUIET = [seed for seed in range(1, 40) if wanted(seed)]
LOUD = [seed for seed in range(1, 40) if not wanted(seed)]


class Toy:
    """A world of clients that do something now and then."""

    def __init__(self, seed: int, pauses_ms: list[float], selection: Selection = SWARM) -> None:
        self.scheduler = Scheduler(seed, selection)
        self.operations = 0
        self.spread: list[int] = []
        self.slow: list[float] = []
        self._random = self.scheduler.stream("toy")
        for pause_ms in pauses_ms:
            self._later(pause_ms)

    def plan(self, start_us: int, end_us: int) -> None:
        self.until_us = end_us

    def _later(self, pause_ms: float) -> None:
        delay = int(2 * self._random.random() * self.scheduler.slowed(pause_ms) * US_PER_MS)
        self.scheduler.after(max(1, delay), self._work, pause_ms)

    def _work(self, pause_ms: float) -> None:
        self.operations += 1
        self.spread.append(self.scheduler.now_us)
        self.slow.append(self.scheduler.slow)
        self._later(pause_ms)

    def play(self) -> int:
        under_faults(self, self, "the toy serves")
        return self.scheduler.now_us


def test_one_swarm_in_some_is_dense_and_the_others_want_little_more_than_they_must() -> None:
    drawn = [wanted(seed) for seed in range(4_000)]
    assert drawn.count(0) == pytest.approx(4_000 / DENSE, rel=0.1)
    rest = [one for one in drawn if one]
    assert WANTED[0] <= min(rest) and max(rest) <= WANTED[1] and len(set(rest)) > 50
    assert [wanted(seed) for seed in range(50)] == drawn[:50]


@pytest.mark.parametrize("pauses_ms", [[500.0] * 4, [50.0, 400.0, 2_000.0, 2_000.0], [100.0] * 3, [4_000.0] * 20])
def test_clients_are_slowed_down_until_a_swarm_has_as_many_operations_as_it_wants(pauses_ms: list[float]) -> None:
    for seed in QUIET[:8]:
        toy = Toy(seed, pauses_ms)
        assert toy.play() == FAULTS_US
        assert MIN_OPERATIONS <= toy.operations <= 1.35 * wanted(seed)
        quarters = [sum(at * 4 // FAULTS_US == n for at in toy.spread) for n in range(4)]
        assert min(quarters) > toy.operations / 10, "all of the time has its share"
        assert toy.scheduler.slow == 1, "the last checks are played as ever"
        again = Toy(seed, pauses_ms)
        again.play()
        assert again.spread == toy.spread


def test_a_dense_swarm_and_a_seed_that_is_none_are_never_slowed_down() -> None:
    for seed, selection in ((LOUD[0], SWARM), (QUIET[0], WHOLE)):
        toy = Toy(seed, [100.0], selection)
        toy.play()
        assert set(toy.slow) == {1} and not toy.scheduler.chosen.paces and toy.operations > 500


def test_clients_that_are_too_few_are_hurried_and_go_on_until_it_is_enough() -> None:
    toy = Toy(QUIET[0], [1_500.0])
    assert toy.play() < FAULTS_US + 20 * US_PER_S
    assert toy.operations >= MIN_OPERATIONS and FASTEST <= min(toy.slow) < 1
    dense = Toy(LOUD[0], [1_500.0])
    assert FAULTS_US < dense.play() < FAULTS_US + 60 * US_PER_S
    assert dense.operations >= MIN_OPERATIONS


def test_who_does_nothing_at_all_does_not_serve() -> None:
    with pytest.raises(Violation, match="the toy serves"):
        Toy(QUIET[0], []).play()
    with pytest.raises(Violation, match="the toy serves"):
        Toy(QUIET[0], [10_000.0], WHOLE).play()


def test_long_pauses_become_no_longer() -> None:
    scheduler = Scheduler(1)
    scheduler.slow = SLOWEST
    assert scheduler.slowed(10) == 10 * SLOWEST
    assert scheduler.slowed(3_000) == MAX_PAUSE_MS and scheduler.slowed(20_000) == 20_000


@pytest.mark.once
@pytest.mark.sim
@pytest.mark.parametrize("model", at_each_change(list(MODELS), "broker"))
def test_swarms_have_what_a_seed_must_have_and_most_have_little_more(model: str) -> None:
    result = play(model, QUIET[0], SWARM)
    assert not result.failure, result.failure
    assert result.operations >= MIN_OPERATIONS and result.faults >= 10 and result.virtual_s >= 60
    assert max(result.paces) > 1 and len(result.paces) > FAULTS_US // LOOK_US - 3


@pytest.mark.once
@pytest.mark.sim
def test_who_is_not_slowed_down_does_more() -> None:
    slow, fast = play("broker", QUIET[0], SWARM), play("broker", QUIET[0], Selection(swarm=True, paces=(1.0,)))
    assert slow.operations < fast.operations and not fast.failure
    dense = play("raft", LOUD[0], SWARM)
    assert not dense.failure and dense.operations >= MIN_OPERATIONS and not dense.paces


@pytest.mark.once
@pytest.mark.sim
def test_a_part_of_a_swarm_is_as_slow_as_the_whole_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seed = "raft", QUIET[0]
    whole = play(model, seed, SWARM)
    everything = frozenset(whole.begun)
    assert play(model, seed, Selection(swarm=True, only_faults=everything)).digest == whole.digest
    part = Selection(swarm=True, only_faults=frozenset(list(everything)[:2]), only_parts=frozenset())
    fewer = play(model, seed, part)
    assert not fewer.failure and fewer.paces == whole.paces and fewer.operations < whole.operations
    played: list[Any] = []
    runner = MODELS[model].run
    monkeypatch.setitem(MODELS, model, MODELS[model]._replace(run=lambda *a, **k: played.append(k) or runner(*a, **k)))
    again = play(model, seed, part.knowing(whole.begun, whole.paces))
    assert again.digest == fewer.digest and len(played) == 1, "what is known is not played again"
