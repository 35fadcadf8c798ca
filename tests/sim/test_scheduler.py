"""Virtual time: order, cancelling, named random streams, the digest."""

from random import Random

import pytest

from perseid.sim import scheduler as module
from perseid.sim.scheduler import Livelock, Scheduler


def test_actions_run_in_the_order_of_their_times_then_of_their_asking() -> None:
    scheduler, seen = Scheduler(1), []
    scheduler.at(20, seen.append, "c")
    scheduler.at(10, seen.append, "a")
    scheduler.at(10, seen.append, "b")
    scheduler.cancel(scheduler.at(15, seen.append, "never"))
    assert not scheduler.run(30)
    assert seen == ["a", "b", "c"]
    assert scheduler.now_us == 30


def test_a_past_time_is_now_and_done_ends_the_run() -> None:
    scheduler, seen = Scheduler(1), []
    scheduler.at(10, lambda: scheduler.at(5, seen.append, scheduler.now_us))
    assert scheduler.run(100, lambda: bool(seen))
    assert seen == [10]
    assert scheduler.now_us == 10


def test_streams_are_independent_and_the_same_for_the_same_seed() -> None:
    one, two, other = Scheduler(7), Scheduler(7), Scheduler(8)
    one.stream("net").random()
    assert one.stream("disk").random() == two.stream("disk").random() != other.stream("disk").random()


def test_the_digest_follows_lines_and_bytes() -> None:
    digests = set()
    for text, data in (("a", b"1"), ("b", b"1"), ("a", b"2")):
        scheduler = Scheduler(1)
        scheduler.note("who", text)
        scheduler.trace.data(data)
        digests.add(scheduler.trace.digest())
    assert len(digests) == 3


def test_a_story_picks_lines() -> None:
    scheduler = Scheduler(1)
    scheduler.note("broker", "starts")
    scheduler.note("client", "sends")
    assert [line.split() for line in scheduler.trace.story("broker")] == [["0.000000", "broker", "starts"]]
    assert len(scheduler.trace.story(last=1)) == 1


def test_an_endless_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ACTIONS", 50)
    scheduler = Scheduler(1)

    def again() -> None:
        scheduler.after(0, again)

    again()
    with pytest.raises(Livelock):
        scheduler.run(1)


def test_a_stream_draws_what_the_standard_generator_draws() -> None:
    ours, theirs = Scheduler(7).stream("net"), Random("7/net")
    for low, high in ((0, 0), (50, 800), (1, 1 << 40), (3, 4)) * 50:
        assert ours.randint(low, high) == theirs.randint(low, high)
        assert ours.randrange(high + 1) == theirs.randrange(high + 1)
        assert ours.randrange(low, high + 1) == theirs.randrange(low, high + 1)
        assert ours.choice("abcde") == theirs.choice("abcde")
    for wrong in (lambda: ours.randrange(0), lambda: ours.randint(2, 1)):
        with pytest.raises(ValueError, match="empty"):
            wrong()
