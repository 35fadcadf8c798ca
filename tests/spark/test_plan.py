"""Ranges and micro-batches as numbers."""

from hypothesis import given
from hypothesis import strategies as st

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
