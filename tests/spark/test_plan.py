"""Ranges and micro-batches as numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseid.base.errors import ConfigError
from perseid.client.model import MessageQueue
from perseid.spark import plan

POSITIONS = st.dictionaries(st.sampled_from([f"t/b/{i}" for i in range(6)]), st.integers(0, 1000), min_size=1)


def test_a_queues_name_comes_back() -> None:
    queue = MessageQueue("%RETRY%g", "broker-a", 12)
    assert plan.queue_of(plan.name_of(queue)) == queue


@given(POSITIONS, POSITIONS, st.integers(1, 50))
def test_a_batch_covers_no_more_than_its_limit_and_never_goes_back(
    start: plan.Position, latest: plan.Position, limit: int
) -> None:
    end = plan.advance(start, latest, limit)
    covered = sum(part.end - part.start for part in plan.ranges(start, end))
    lag = sum(max(0, latest[name] - start.get(name, 0)) for name in latest)
    assert covered == min(limit, lag)
    assert all(end[name] >= start[name] for name in start)
    assert all(end[name] <= max(latest.get(name, 0), start.get(name, 0)) for name in end)


@given(POSITIONS, POSITIONS, st.integers(1, 50))
def test_batches_reach_the_end_and_cover_each_offset_once(
    start: plan.Position, latest: plan.Position, limit: int
) -> None:
    seen: set[tuple[str, int]] = set()
    position = dict(start)
    while (end := plan.advance(position, latest, limit)) != position:
        for part in plan.ranges(position, end):
            offsets = {(plan.name_of(part.queue), offset) for offset in range(part.start, part.end)}
            assert not offsets & seen
            seen |= offsets
        if not plan.ranges(position, end):
            break
        position = end
    wanted = {(n, o) for n in latest for o in range(start.get(n, 0), max(latest[n], start.get(n, 0)))}
    assert seen == wanted


@given(POSITIONS, st.integers(1, 40))
def test_splitting_keeps_every_offset(latest: plan.Position, at_least: int) -> None:
    parts = plan.ranges({}, latest)
    cut = plan.split(parts, at_least)
    assert sorted((p.queue, o) for p in cut for o in range(p.start, p.end)) == sorted(
        (p.queue, o) for p in parts for o in range(p.start, p.end)
    )
    assert len(cut) >= min(at_least, sum(p.end - p.start for p in parts))


def test_a_queue_that_is_new_begins_at_0_and_so_does_one_that_was_begun_anew() -> None:
    parts = plan.ranges({"t/a/0": 50}, {"t/a/0": 20, "t/a/1": 5})
    assert [(part.queue.queue_id, part.start, part.end) for part in parts] == [(0, 0, 20), (1, 0, 5)]


def test_a_queue_that_ends_before_what_was_read_is_lost_or_followed() -> None:
    start, latest = {"t/a/0": 50, "t/a/1": 5}, {"t/a/0": 20, "t/a/1": 9}
    with pytest.raises(plan.DataLost, match="t/a/0: was read up to offset 50, and ends at 20 now"):
        plan.check_not_begun_anew(start, latest)
    end = plan.advance(plan.followed(start, latest), latest, None)
    assert end == {"t/a/0": 20, "t/a/1": 9}
    assert [(part.start, part.end) for part in plan.ranges(start, end)] == [(0, 20), (5, 9)]


def test_a_queue_that_is_away_keeps_its_place() -> None:
    start = {"t/a/0": 50, "t/b/0": 7}
    plan.check_not_begun_anew(start, {"t/a/0": 60})
    assert plan.advance(start, {"t/a/0": 60}, None) == {"t/a/0": 60, "t/b/0": 7}


def test_a_checkpoint_of_another_topic_is_refused() -> None:
    start = {"old/a/0": 50, "t/a/0": 7}
    with pytest.raises(ConfigError, match="the checkpoint is of old, which this query does not read"):
        plan.check_checkpoint(start, {"t"}.__contains__, strict=True)
    plan.check_checkpoint(start, {"t"}.__contains__, strict=False)
    with pytest.raises(ConfigError, match="the checkpoint is of old, t, which"):
        plan.check_checkpoint(start, {"other"}.__contains__, strict=False)
    plan.check_checkpoint({"t/a/0": 7}, {"t", "added"}.__contains__, strict=True)


def test_a_batch_waits_until_it_is_worth_it_but_not_for_ever() -> None:
    pace = plan.Pace(100, 1000)
    assert not pace.is_time(0, 0)
    assert pace.is_time(1, 5), "the first batch of a run"
    assert not pace.is_time(99, 1004)
    assert pace.is_time(100, 900)
    assert not pace.is_time(99, 1899)
    assert pace.is_time(1, 1900), "maxTriggerDelay is over"
