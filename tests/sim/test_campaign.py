"""Campaigns: whose turn it is, ranges, groups of failures, and what is told of all of it."""

from collections import Counter

import pytest

from perseid.sim.campaign import LANE_SEEDS, RANGE_SEEDS, SWARM_SHARE, Campaign, Chunk, range_of
from perseid.sim.coverage import ENOUGH_SEEDS
from perseid.sim.models.broker.run import Result
from perseid.sim.models.registry import MODELS

ALL = list(MODELS)


def play(campaign: Campaign, chunk: Chunk, seed_s: float, **of_each: object) -> None:
    results = [Result(seed, operations=10, faults=3, virtual_s=36, **of_each) for seed in chunk.seeds]  # type: ignore[arg-type]
    campaign.add(chunk, results, seed_s * len(results))


def test_each_commit_has_seeds_of_its_own() -> None:
    ranges = {range_of(f"{n:040x}") for n in range(200)}
    assert len(ranges) == 200 and all(first % RANGE_SEEDS == 0 and first for first in ranges)
    assert range_of("abc") == range_of("abc")


def test_time_is_shared_out_whatever_a_seed_of_a_model_costs() -> None:
    campaign = Campaign(ALL, 0, cores=(True, False))
    for _ in range(12_000):
        chunk = campaign.next()
        play(campaign, chunk, {"ha": 3.0, "raft": 0.2}.get(chunk.model, 1.0))
    total = sum(lane.spent_s for lane in campaign.lanes)
    for lane in campaign.lanes:
        share = lane.share * (SWARM_SHARE if lane.swarm else 1 - SWARM_SHARE) / len(ALL)
        assert lane.spent_s / total == pytest.approx(share, rel=0.05), lane.name
    assert sum(lane.spent_s for lane in campaign.lanes if not lane.with_core) / total == pytest.approx(0.2, rel=0.05)


def test_seeds_that_have_everything_come_first_until_there_are_enough_of_them() -> None:
    campaign = Campaign(["broker", "raft"], 0, cores=(True,))
    while not campaign.asks_for_all("broker"):
        play(campaign, campaign.next(), 1.0)
        assert campaign.seeds_of("broker", swarms=False) >= campaign.seeds_of("broker") / 2 - 5
    for _ in range(1_500):
        play(campaign, campaign.next(), 1.0)
    spent = {(lane.model, lane.swarm): lane.spent_s for lane in campaign.lanes}
    for model in campaign.counts:
        assert spent[model, True] / (spent[model, False] + spent[model, True]) == pytest.approx(SWARM_SHARE, rel=0.05)
    assert spent["broker", True] == pytest.approx(spent["raft", True], rel=0.05)


def test_what_is_being_played_counts_for_whose_turn_it_is() -> None:
    campaign = Campaign(ALL, 0, cores=(True,))
    assert sorted(campaign.next().model for _ in 2 * ALL) == sorted(2 * ALL)


def test_no_seed_is_played_twice_and_each_lane_has_its_own() -> None:
    campaign, met = Campaign(["raft"], 5_000_000, cores=(True, False)), Counter[int]()
    for _ in range(300):
        chunk = campaign.next()
        met.update(chunk.seeds)
        lane = 2 * (not chunk.with_core) + chunk.selection.swarm
        assert (chunk.seeds[0] - 5_000_000) // LANE_SEEDS == lane
        play(campaign, chunk, 0.3)
    assert max(met.values()) == 1 and campaign.played == len(met)


def test_failures_are_grouped_by_what_broke_and_the_smallest_seed_is_first() -> None:
    campaign = Campaign(["ha"], 100, cores=(True, False))
    chunks = {(chunk.with_core, chunk.selection.swarm): chunk for chunk in (campaign.next() for _ in range(4))}
    slow, core = chunks[False, True], chunks[True, False]
    campaign.add(slow, [Result(slow.seeds[0], failure="C10: this", broken="C10")], 1)
    campaign.add(core, [Result(100, failure="C10: that", broken="C10")], 1)
    campaign.fail(core.lane, Result(101, failure="C13: none\nmore", broken="C13"))
    first, second = campaign.ordered()
    assert (first.broken, [seed for seed, _ in first.seeds]) == ("C10", [100, 100 + 3 * LANE_SEEDS])
    assert first.first is not None and first.first.failure == "C10: that"
    assert second.broken == "C13"
    told = "\n".join(campaign.failures())
    assert "perseid sim --seed 100 --model ha" in told
    assert f"PERSEID_CORE=off perseid sim --seed {100 + 3 * LANE_SEEDS} --model ha --swarm" in told
    assert campaign.summary()["failures"][0]["commands"][1].startswith("PERSEID_CORE=off ")


def test_a_campaign_of_enough_seeds_that_misses_something_says_what() -> None:
    campaign = Campaign(["raft"], 0, cores=(True,))
    everything = Counter(name for names in MODELS["raft"].wanted(swarms=True).values() for name in names)
    del everything["vote given"], everything["fault failing read"]
    while campaign.seeds_of("raft", swarms=False) < ENOUGH_SEEDS:
        assert not campaign.missing
        seeds = campaign.seeds_of("raft", swarms=False)
        assert f"{seeds} seeds (without swarms) are too few" in "\n".join(campaign.covered())
        play(campaign, campaign.next(), 1.0, counts=everything)
    assert campaign.missing == {"raft": ["vote given", "fault failing read"]}
    assert "    never occurred: vote given" in campaign.covered()


def test_the_table_adds_up() -> None:
    campaign = Campaign(ALL, 0, cores=(True, False))
    for _ in range(40):
        play(campaign, campaign.next(), 1.0)
    head, *rows = campaign.table()
    cells = [row[26:].split() for row in rows]
    assert head.split()[0] == "seeds" and len(rows) == 2 * len(ALL) + 1
    for column in (0, 1, 2, 3):
        assert sum(int(row[column]) for row in cells[:-1]) == int(cells[-1][column])
    assert int(cells[-1][0]) == campaign.played
    assert float(cells[-1][4]) == pytest.approx(campaign.played / 100, abs=0.01)


def test_few_failures_are_tolerated_where_that_is_said_and_told_of_all_the_same() -> None:
    for tolerated, fails in ((0.0, True), (10.0, False), (9.0, True)):
        campaign = Campaign(["broker"], 1_000_000, cores=(True,), tolerated_percent=tolerated)
        for _ in range(10):
            chunk = campaign.next()
            failure = "" if campaign.played else "a promise: broken"
            campaign.add(chunk, [Result(chunk.seeds.start, failure)], 1.0)
        assert campaign.played == 10 and campaign.failed == 1
        assert campaign.has_failed == fails
        assert campaign.failures(), "it is told"
