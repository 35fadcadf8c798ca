"""Simulated connections: order, pieces, partitions, resets, half-open ends, slow readers."""

from collections import Counter

import pytest

from perseid.sim.net import Network
from perseid.sim.scheduler import US_PER_S, Scheduler
from perseid.wire.command import encode_request

from .toy import Person

ADDRESS = "10.0.0.1:1"
FRAMES = [encode_request(10, n, {"n": str(n)}, b"x" * n) for n in range(100)]


class World:
    """Two peers, `near` connected to `far`."""

    def __init__(self, seed: int = 1) -> None:
        self.counts: Counter[str] = Counter()
        self.scheduler = Scheduler(seed)
        self.net = Network(self.scheduler, lambda what: self.counts.update((what,)))
        self.near, self.far = Person(self.net, "near"), Person(self.net, "far")
        self.net.machines["10.0.0.1"] = "far"
        self.net.listen(ADDRESS, self.far, "main")

    def connected(self) -> "World":
        self.net.dial(self.near, "10.0.0.9", ADDRESS)
        self.run(1)
        assert self.near.end is not None and self.far.end is not None
        return self

    def run(self, seconds: float) -> None:
        self.scheduler.run(self.scheduler.now_us + int(seconds * US_PER_S))


@pytest.mark.parametrize("chopped", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_whole_and_in_order_however_they_are_cut(seed: int, chopped: bool) -> None:
    world = World(seed).connected()
    assert world.far.end is not None
    world.far.end.chopped = chopped
    for frame in FRAMES:
        world.near.write(frame)
    world.run(5)
    assert world.far.heard == b"".join(FRAMES)


def test_both_ends_know_their_addresses() -> None:
    world = World().connected()
    assert world.near.end is not None and world.far.end is not None
    assert world.far.end.address == ADDRESS == world.near.end.other.address
    assert world.near.end.address.startswith("10.0.0.9:")


def test_a_close_is_heard_after_the_bytes_before_it() -> None:
    world = World().connected()
    world.near.write(FRAMES[3])
    assert world.near.end is not None
    world.net.close(world.near.end, "bye")
    world.near.write(FRAMES[4])
    world.run(2)
    assert world.far.heard == FRAMES[3]
    assert world.far.said == ["opened", "closed: bye"]
    assert not world.net.ends


def test_a_partition_holds_bytes_back_in_one_direction() -> None:
    world = World().connected()
    world.net.block("near", "far")
    world.near.write(FRAMES[1])
    world.far.write(FRAMES[2])
    world.run(5)
    assert (world.far.heard, world.near.heard) == (b"", FRAMES[2])
    world.near.write(FRAMES[3])
    world.net.heal("near", "far")
    world.run(5)
    assert world.far.heard == FRAMES[1] + FRAMES[3]


def test_connects_fail_by_refusal_or_silence() -> None:
    world = World()
    world.net.dial(world.near, "10.0.0.9", "10.0.0.1:2")
    world.run(1)
    assert world.near.said == ["connection refused"]
    world.net.silent.add("far")
    world.net.dial(world.near, "10.0.0.9", ADDRESS)
    world.run(2)
    assert len(world.near.said) == 1
    world.run(2)
    assert world.near.said[1] == "timed out"
    assert world.counts == {"connect refused": 1, "connect timeout": 1}


def test_a_half_open_end_hears_late_and_what_it_writes_is_lost() -> None:
    world = World().connected()
    assert world.near.end is not None
    world.net.reset(world.near.end, "cut", 0, 10 * US_PER_S)
    world.run(5)
    assert world.near.said[-1] == "closed: cut" and world.far.said == ["opened"]
    world.far.write(FRAMES[1])
    world.run(10)
    assert world.far.said[-1] == "closed: cut" and not world.near.heard


def test_a_killed_peer_is_heard_of_by_the_other() -> None:
    world = World().connected()
    world.near.write(FRAMES[1])
    world.net.kill(world.far, lambda: US_PER_S)
    world.run(2)
    assert world.near.said == ["opened", "closed: connection reset by peer"] and world.far.said == ["opened"]
    assert not world.far.heard and ADDRESS not in world.net.listeners


def test_a_dial_into_a_dying_process_fails() -> None:
    world = World()
    world.net.dial(world.near, "10.0.0.9", ADDRESS)
    world.net.kill(world.far, lambda: 0)
    world.run(2)
    assert world.near.said == ["connection reset by peer"]
    assert not world.net.ends


def test_a_slow_reader_gets_all_at_once() -> None:
    world = World().connected()
    assert world.far.end is not None
    world.far.end.reading = False
    for frame in FRAMES:
        world.near.write(frame)
    world.run(1)
    assert not world.far.heard
    world.net.read_again(world.far.end)
    assert world.far.heard == b"".join(FRAMES) and world.far.reads == 1


def test_a_malformed_frame_closes_both_ends() -> None:
    world = World().connected()
    world.near.write(b"\xff\xff\xff\xff garbage")
    world.run(1)
    assert world.far.said[-1].startswith("closed: a frame of") and world.near.said[-1].startswith("closed")
    assert world.counts["malformed frame refused"] == 1
