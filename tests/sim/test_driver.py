"""The simulated driver with a tiny node: life and death, order of durability, ticks, stalls, clocks."""

from collections import Counter

import pytest

from perseid.base.machine import Closed, DiskFailed, Frames, Opened, Start, Tick
from perseid.sim.driver import EPOCH_MS, NodeDriver
from perseid.sim.net import Network
from perseid.sim.scheduler import US_PER_S, Scheduler
from perseid.wire.command import encode_request

from .toy import Person, Toy

FRAME = encode_request(10, 1, {"n": "1"}, b"body")


class World:
    """One toy node and one client."""

    def __init__(self, seed: int = 1) -> None:
        self.counts: Counter[str] = Counter()
        self.scheduler = Scheduler(seed)
        count = lambda what: self.counts.update((what,))  # noqa: E731
        self.net = Network(self.scheduler, count)
        self.toys: list[Toy] = []
        self.ends: list[str] = []
        self.node = NodeDriver("toy", "10.0.0.1", self.scheduler, self.net, self.build, {"main": 1}, count)
        self.node.on_end = self.ends.append
        self.person = Person(self.net)

    def build(self, disk, random) -> Toy:  # type: ignore[no-untyped-def]
        self.toys.append(Toy(disk, random))
        return self.toys[-1]

    @property
    def toy(self) -> Toy:
        return self.toys[-1]

    def run(self, seconds: float) -> "World":
        self.scheduler.run(self.scheduler.now_us + int(seconds * US_PER_S))
        return self

    def connect(self) -> "World":
        self.net.dial(self.person, "10.0.0.9", "10.0.0.1:1")
        return self.run(0.05)


def test_events_come_in_order_and_ticks_at_their_deadlines() -> None:
    world = World()
    world.node.start()
    world.connect().run(1)
    kinds = [type(event) for event in world.toy.events]
    assert kinds[0] is Start and Opened in kinds and kinds.count(Tick) == 10
    assert world.toy.times == sorted(world.toy.times) and world.toy.times[0] == EPOCH_MS
    opened = next(event for event in world.toy.events if isinstance(event, Opened))
    assert (opened.listener, opened.local, opened.dialled) == ("main", "10.0.0.1:1", "")


def test_an_answer_leaves_after_its_flush_only() -> None:
    world = World()
    world.node.start()
    world.connect()
    world.node.sync_us = (2 * US_PER_S, 2 * US_PER_S)
    world.person.write(FRAME * 2)
    world.run(1.5)
    assert not world.person.heard and world.node.disk.open("log").undo == {} != world.node.disk.open("log").syncing
    world.run(3)
    assert world.person.heard == FRAME * 2
    frames = next(event for event in world.toy.events if isinstance(event, Frames))
    assert set(frames.data) == {0xEE}, "bytes that a node keeps are spoilt"


def test_nothing_leaves_a_dead_node() -> None:
    world = World()
    world.node.start()
    world.connect()
    world.node.sync_us = (2 * US_PER_S, 2 * US_PER_S)
    world.person.write(FRAME)
    world.run(1)
    world.node.crash()
    world.run(5)
    assert not world.person.heard and world.person.said[-1].startswith("closed")
    assert bytes(world.node.disk.open("log").view(0, len(FRAME))) == FRAME


@pytest.mark.parametrize("seed", range(20))
def test_a_saved_state_survives_each_crash_point(seed: int) -> None:
    world = World(seed)
    for life in range(6):
        if life % 2:
            world.node.disk.crash_in = 1 + (seed + life) % 4
        world.node.start()
        world.run(0.5)
        if world.node.machine is not None:
            world.node.cut_power()
        else:
            assert world.ends[-1] == "crash point"
            world.node.disk.cut_power()
    assert int(world.node.disk.read("starts") or b"0") >= 3


def test_a_failed_sync_ends_the_node_and_carries_nothing_out() -> None:
    world = World()
    world.node.start()
    world.connect()
    world.node.disk.failing["sync"] = 1
    world.person.write(FRAME)
    world.run(1)
    assert any(isinstance(event, DiskFailed) for event in world.toy.events)
    assert world.ends == ["[Errno 5] sync fails: 'log'"] and world.node.machine is None
    assert not world.person.heard


def test_a_stalled_node_catches_up() -> None:
    world = World()
    world.node.start()
    world.connect()
    world.node.stall(True)
    world.person.write(FRAME)
    before = len(world.toy.events)
    world.run(5)
    assert len(world.toy.events) == before
    world.node.stall(False)
    world.run(0.05)
    assert world.person.heard == FRAME


def test_the_clock_may_jump_between_lives_only() -> None:
    world = World()
    world.node.start()
    world.run(1)
    world.node.shut_down()
    assert world.ends == [""]
    world.node.clock_ms = -3_600_000
    world.node.start()
    world.run(1)
    assert world.toys[1].times[0] == EPOCH_MS + 1000 - 3_600_000
    assert world.toys[1].times == sorted(world.toys[1].times)


def test_closed_is_heard_once() -> None:
    world = World()
    world.node.start()
    world.connect()
    world.person.write(b"\xff" * 8)
    world.run(1)
    assert [type(event) for event in world.toy.events].count(Closed) == 1


def test_the_same_seed_gives_the_same_run() -> None:
    digests = set()
    for seed in (5, 5, 6):
        world = World(seed)
        world.node.start()
        world.connect()
        for _ in range(5):
            world.person.write(FRAME)
            world.run(0.1)
        world.node.cut_power()
        world.scheduler.note("end", str(world.node.disk.read("log")))
        digests.add(world.scheduler.trace.digest())
    assert len(digests) == 2
