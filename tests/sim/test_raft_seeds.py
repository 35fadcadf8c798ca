"""Raft groups under faults: seeds, and minutes in which only connections are cut."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

from perseid.raft import election
from perseid.raft.election import Election
from perseid.sim import coverage
from perseid.sim.driver import SYNC_US
from perseid.sim.models.broker.run import Result
from perseid.sim.models.raft.group import Group, Watched
from perseid.sim.models.raft.run import KINDS, MIN_FAULTS, Client, run
from perseid.sim.pace import MIN_OPERATIONS
from perseid.sim.promises.linear_log import Done
from perseid.sim.scheduler import US_PER_MS, US_PER_S

from .seeds import seeds

FIRST, SEEDS = 1, 2
"""`make sim` plays more."""
CUTS = 50
"""Of single connections, 5 to 20 s apart."""


def explained(result: Result) -> str:
    return "\n".join([*result.story[-60:], f"perseid sim --model raft --seed {result.seed}", result.failure])


@pytest.mark.sim
@pytest.mark.parametrize("seed", seeds(FIRST, SEEDS))
def test_a_seed_keeps_all_promises(seed: int) -> None:
    result = run(seed)
    assert not result.failure, explained(result)
    assert result.operations >= MIN_OPERATIONS and result.faults >= MIN_FAULTS and result.virtual_s >= 60


@pytest.mark.sim
def test_cutting_single_connections_changes_no_leader() -> None:
    group = Group(5)
    random = group.scheduler.stream("cuts")
    group.start()
    history: list[Done] = []
    client = Client(group, "client0", history, [])
    client.begin()
    group.scheduler.run(20 * US_PER_S)
    client.running = False
    assert (leaders := dict(group.leadership.leaders)), "somebody leads"
    cuts = 0
    while cuts < CUTS:
        group.scheduler.run(group.scheduler.now_us + random.randint(5, 20) * US_PER_S)
        ends = [end for end in group.network.ends.values() if end.owner is not client and end.other.owner is not client]
        if ends:
            cuts += 1
            group.network.reset(random.choice(ends), "cut", 0, 0)
    led = group.leadership.leaders
    assert led == leaders, f"{len(led) - len(leaders)} elections within {CUTS} cuts"
    assert len(history) > 10


TIMES = {
    "default": {"heart_beat_time_interval_ms": 2_000, "min_vote_interval_ms": 300, "max_vote_interval_ms": 1_000},
    "short": {"heart_beat_time_interval_ms": 50, "min_vote_interval_ms": 20, "max_vote_interval_ms": 60},
}


def leading(group: Group) -> list[Watched]:
    return [one for one in group.members if one.raft is not None and one.raft.member.is_leader]


def failover(seed: int, size: int, times: str, sync_us: tuple[int, int] = SYNC_US) -> tuple[float, int]:
    """From the death of a leader's process to the next leader, while a client appends: milliseconds and terms.
    `sync_us`: what it takes to make something durable."""
    group = Group(seed, size, preferred_leader_ids="", sync_before_answer=True, **TIMES[times])
    scheduler = group.scheduler
    group.start()
    group.network.nameless.clear()  # while a candidate's name can't be resolved, it gets no vote
    for one in group.members:
        one.driver.sync_us = sync_us
    Client(group, "client0", [], []).begin()
    scheduler.run(3 * US_PER_S + group.random.randrange(US_PER_S))
    assert scheduler.run(60 * US_PER_S, lambda: len(leading(group)) == 1), f"seed {seed}: nobody leads"
    (leader,) = leading(group)
    term, died = max(group.leadership.leaders), scheduler.now_us
    group.crash(leader)

    def followed() -> bool:
        return any(one.raft.member.term > term for one in leading(group))

    assert scheduler.run(died + 20 * US_PER_S, followed), f"seed {seed}: nobody follows"
    return (scheduler.now_us - died) / US_PER_MS, max(group.leadership.leaders) - term


@pytest.mark.sim
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("size", [3, 5])
def test_a_killed_leader_is_followed_by_the_next_one_soon(size: int, times: str) -> None:
    """Its sockets tell, whatever the intervals are, and the next one's votes are hardly ever split."""
    took = sorted(failover(seed, size, times)[0] for seed in range(1, 16))
    assert median(took) < 40 and took[-2] < 150, took


SLOW_US, VERY_SLOW_US = (100_000, 300_000), (300_000, 900_000)
"""What it takes to make something durable on a disk that others keep busy."""


@pytest.mark.sim
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("size", [3, 5])
def test_on_slow_disks_votes_are_hardly_ever_split_either(size: int, times: str) -> None:
    """A candidate has as long as it takes to keep its vote, and those of others, before the next one asks."""
    all_of_them = [failover(seed, size, times, SLOW_US) for seed in range(1, 16)]
    took = sorted(took for took, _ in all_of_them)
    assert median(took) < 1_000 and sum(terms == 1 for _, terms in all_of_them) >= 12, all_of_them


@pytest.mark.sim
@pytest.mark.parametrize("size", [3, 5])
def test_on_very_slow_disks_intervals_that_are_too_short_cost_few_terms(size: int) -> None:
    """A vote takes longer to be kept than a candidate would wait for it, and than candidates are apart."""
    all_of_them = [failover(seed, size, "short", VERY_SLOW_US) for seed in range(1, 16)]
    took = sorted(took for took, _ in all_of_them)
    assert median(took) < 7_000 and max(terms for _, terms in all_of_them) <= 4, all_of_them


def turns_of_one_length(patch: pytest.MonkeyPatch) -> None:
    """The next one asks for votes before the first one's own can be kept."""
    patch.setattr(Election, "_sync_ms", 0)


def again_at_once(patch: pytest.MonkeyPatch) -> None:
    """Two whose votes were split ask again within less time than it takes to keep a vote: split again."""
    patch.setattr(election, "SPLIT_SPREAD", 0)


def rounds_of_one_length(patch: pytest.MonkeyPatch) -> None:
    """A round is over before the votes are kept that it asks for."""
    patch.setattr(election, "ROUND_SYNCS", 0)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.once
@pytest.mark.parametrize("mutation", [turns_of_one_length, again_at_once, rounds_of_one_length])
def test_a_planted_impatience_is_found(mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: Any) -> None:
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        test_on_very_slow_disks_intervals_that_are_too_short_cost_few_terms(5)


def test_every_kind_of_fault_is_expected() -> None:
    assert [f"fault {kind}" for kind in KINDS] == coverage.RAFT_EXPECTED["faults"]
