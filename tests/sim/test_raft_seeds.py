"""Raft groups under faults: many seeds, and an hour in which only connections are cut."""

from __future__ import annotations

from statistics import median

import pytest

from perseid.sim import coverage
from perseid.sim.group import Group, Watched
from perseid.sim.group_run import KINDS, MIN_FAULTS, MIN_OPERATIONS, Client, run
from perseid.sim.linear import Done
from perseid.sim.run import Result
from perseid.sim.scheduler import US_PER_MS, US_PER_S

from .seeds import groups

FIRST, SEEDS, GROUPS = 1, 50, 10
"""`make sim` plays more."""
HOUR_US = 3600 * US_PER_S


def explained(result: Result) -> str:
    return "\n".join([*result.story[-60:], f"perseid sim --model raft --seed {result.seed}", result.failure])


@pytest.mark.sim
@pytest.mark.parametrize("group", groups(GROUPS))
def test_seeds_keep_all_promises(group: int) -> None:
    per_group = SEEDS // GROUPS
    for seed in range(FIRST + group * per_group, FIRST + (group + 1) * per_group):
        result = run(seed)
        assert not result.failure, explained(result)
        assert result.operations >= MIN_OPERATIONS and result.faults >= MIN_FAULTS and result.virtual_s >= 60


@pytest.mark.sim
def test_cutting_single_connections_for_an_hour_changes_no_leader() -> None:
    group = Group(5)
    random = group.scheduler.stream("cuts")
    group.start()
    history: list[Done] = []
    client = Client(group, "client0", history, [])
    client.begin()
    group.scheduler.run(20 * US_PER_S)
    client.running = False
    assert (leaders := dict(group.leaders)), "somebody leads"
    cuts = 0
    while group.scheduler.now_us < HOUR_US:
        group.scheduler.run(group.scheduler.now_us + random.randint(5, 20) * US_PER_S)
        ends = [end for end in group.network.ends.values() if end.owner is not client and end.other.owner is not client]
        if ends:
            cuts += 1
            group.network.reset(random.choice(ends), "cut", 0, 0)
    assert cuts > 100 and group.leaders == leaders, f"{len(group.leaders) - len(leaders)} elections in an hour"
    assert len(history) > 10


TIMES = {
    "default": {"heart_beat_time_interval_ms": 2_000, "min_vote_interval_ms": 300, "max_vote_interval_ms": 1_000},
    "short": {"heart_beat_time_interval_ms": 50, "min_vote_interval_ms": 20, "max_vote_interval_ms": 60},
}


def leading(group: Group) -> list[Watched]:
    return [one for one in group.members if one.raft is not None and one.raft.member.is_leader]


def failover_ms(seed: int, size: int, times: str) -> float:
    """From the death of a leader's process to the next leader, while a client appends."""
    group = Group(seed, size, preferred_leader_ids="", sync_before_answer=True, **TIMES[times])
    scheduler = group.scheduler
    group.start()
    Client(group, "client0", [], []).begin()
    scheduler.run(3 * US_PER_S + group.random.randrange(US_PER_S))
    assert scheduler.run(60 * US_PER_S, lambda: len(leading(group)) == 1)
    (leader,) = leading(group)
    term, died = max(group.leaders), scheduler.now_us
    group.crash(leader)
    assert scheduler.run(died + 20 * US_PER_S, lambda: any(one.raft.member.term > term for one in leading(group)))
    return (scheduler.now_us - died) / US_PER_MS


@pytest.mark.sim
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("size", [3, 5])
def test_a_killed_leader_is_followed_by_the_next_one_soon(size: int, times: str) -> None:
    """Its sockets tell, whatever the intervals are, and the next one's votes are hardly ever split."""
    took = sorted(failover_ms(seed, size, times) for seed in range(1, 31))
    assert median(took) < 40 and took[28] < 150, took


def test_every_kind_of_fault_is_expected() -> None:
    assert [f"fault {kind}" for kind in KINDS] == coverage.RAFT_EXPECTED["faults"]
