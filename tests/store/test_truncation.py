"""Cuts of a log where topics were deleted and made again: of each queue there is what the rest of the log says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from perseid.sim.disk import SimDisk
from perseid.store import truncation
from perseid.store.replica import Replica
from perseid.store.results import ConsumeUnit, QueueKey
from perseid.store.store import MessageStore
from perseid.wire import batch
from perseid.wire.record import SYS_INNER_BATCH, SYS_NEED_UNWRAP

from .harness import HOST, Node, config, message
from .test_replica import Slave, made_again

PLAIN, BATCHES, COMPACTED, LIGHT = ("P0", "P1"), "B", "C", ("%LMQ%a", "%LMQ%b")
STEPS = 120


class Member(Node):
    """A store that leads, or takes the log of the one that does."""

    def __init__(self, seed: int, lmq: bool, **settings: Any) -> None:
        super().__init__(
            disk=SimDisk(Random(seed)), enable_lmq=lmq, enable_multi_dispatch=lmq,
            batch_consume_queue_file_bytes=46 * 5, compaction_cq_mapped_file_size=46 * 8,
            compaction_mapped_file_size=46 * 8 * 5, **settings,
        )  # fmt: skip
        self.load()

    def load(self) -> None:  # type: ignore[override]
        self.effects.clear()
        self.store = MessageStore(self.disk, self.config, HOST)
        self.store.queues.batch_topics = {BATCHES}
        self.store.compaction.topics = {COMPACTED}
        self.store.load(self.now)
        self.store.validate()
        self.replica = Replica(self.store)

    def send(self, topic: str, number: int, random: Random) -> None:
        """Append a message, in a batch topic perhaps several in one record."""
        body = b"%d:" % number + random.randbytes(random.choice((0, 60, 300)))
        self.now += 10
        if topic == BATCHES and random.random() < 0.7:
            count = random.randrange(2, 5)
            packed = batch.encode([(0, b"%d" % n + body, b"") for n in range(count)])
            flags = SYS_INNER_BATCH | SYS_NEED_UNWRAP
            self.store.appends.append(message(topic, packed, sys_flag=flags, INNER_NUM=str(count)), self.now)
        elif topic in LIGHT:
            self.store.appends.append(message("P0", body, INNER_MULTI_DISPATCH=topic), self.now)
        else:
            self.store.appends.append(message(topic, body, KEYS=f"k{number % 50}"), self.now)

    def take(self, log: bytes, end: int) -> None:
        """What it lacks of a log up to `end`."""
        size = self.config.commit_log_file_bytes
        while self.replica.expected < end:
            at = self.replica.expected
            part = log[at : min(end, at - at % size + size)]
            self.replica.expect(at, len(part))
            self.replica.take(memoryview(part))
            self.replica.write()
        while self.replica.waits:
            if not self.step():
                self.now += 500
                self.effects.extend(self.store.tick(self.now))
            self.replica.write()

    def pass_time(self, ms: int) -> None:
        self.settle()
        super().pass_time(ms)

    def log(self) -> bytes:
        segments, end = self.store.log.segments, self.store.log.end
        return b"".join(bytes(segments.file(s).view(0, segments.file_bytes)) for s in segments.starts)[:end]

    def ends(self) -> list[int]:
        """Where records end, and where the log begins."""
        walk = self.store.log.walk(0)
        return [0, *(walk.offset + record.size for record in walk)]

    def state(self) -> dict[QueueKey, list[ConsumeUnit | None]]:
        """All units of all queues that have some."""
        queues = self.store.queues.table.items()
        return {key: [queue.raw(n) for n in range(queue.min, queue.end)] for key, queue in queues if queue.end}

    def compacted(self) -> list[bytes]:
        store = self.store
        if store.queues.get(COMPACTED, 0) is None:
            return []
        self.settle()
        self.pass_time(3_000)  # after a cut nothing is taken before a table is saved
        return [bytes(part) for part in store.reads.read(COMPACTED, 0, 0, 1_000, 1 << 20).buffers]


class Lives:
    """Two of them by turns: one leads and the other one follows; who led before cuts what the new one has not."""

    def __init__(self, seed: int, *, lmq: bool) -> None:
        random = self.random = Random(seed)
        limit = random.choice((0, 3_000, 1 << 20))
        self.master, self.slave = (Member(2 * seed + n, lmq, replay_limit_bytes=limit) for n in (0, 1))
        self.lmq = lmq
        self.topics = [*PLAIN, BATCHES, COMPACTED, *(LIGHT if lmq else ())]
        self.number = 0

    def run(self) -> None:
        steps: list[Callable[[], None]] = [
            *[self.append] * 6, *[self.follow] * 3, *[self.turn] * 3, self.make_again, self.make_again, self.restart,
            self.fail_over,
        ]  # fmt: skip
        for _ in range(STEPS):
            self.random.choice(steps)()
        self.fail_over()

    def append(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            self.number += 1
            self.master.send(self.random.choice(self.topics), self.number, self.random)

    def make_again(self) -> None:
        """Durably at once: a deletion is not in the log."""
        topic, master = self.random.choice(self.topics), self.master
        for effect in master.store.delete_topic(topic):
            master.effects.append(effect)
        for _ in range(self.random.choice((1, 1, 2, 9))):
            self.number += 1
            master.send(topic, self.number, self.random)
        master.flush()
        master.pass_time(8_000)

    def follow(self) -> None:
        """The slave gets all, or a part."""
        end = self.random.choice((self.master.store.log.end, self.random.choice(self.master.ends())))
        self.slave.take(self.master.log(), end)

    def turn(self) -> None:
        for node in (self.master, self.slave):
            for _ in range(self.random.randrange(6)):
                node.step()
            node.now += self.random.randrange(900)
            node.effects.extend(node.store.tick(node.now))
            if self.random.random() < 0.3:
                node.flush()

    def restart(self) -> None:
        """Of the slave: it loses what is not durable, or nothing, or ends as it should."""
        how, slave = self.random.randrange(3), self.slave
        slave.cut_power() if how == 0 else slave.kill() if how == 1 else slave.stop()
        slave.load()
        self.look(slave)

    def fail_over(self) -> None:
        """The slave leads. The old master cuts its log, perhaps after a start or two, and dies on the way, perhaps."""
        self.master, self.slave = self.slave, self.master
        self.master.replica.forget_partial()
        self.master.settle()
        self.append()
        if self.random.random() < 0.3:
            self.make_again()
        if self.random.random() < 0.5:
            self.restart()
        ends = set(self.master.ends())
        mine, theirs = self.slave.log(), self.master.log()
        common = max(end for end in self.slave.ends() if end in ends and mine[:end] == theirs[:end])
        slave = self.slave
        while slave.store.log.end > common:
            slave.effects.extend(slave.store.truncation.begin(common, []))
            if self.random.random() < 0.4:
                for _ in range(self.random.randrange(6)):
                    slave.step()
                self.restart()
            else:
                slave.settle()
        self.look(slave)
        if self.random.random() < 0.5:
            slave.take(theirs, len(theirs))
            self.look(slave)

    def look(self, node: Member) -> None:
        """All is as in a store that has taken this log in one go."""
        node.store.validate()
        log = node.log()
        fresh = Member(1, self.lmq)
        fresh.take(log, len(log))
        assert node.state() == fresh.state()
        assert [one[36:] for one in node.compacted()] == [one[36:] for one in fresh.compacted()], "but for their places"


@pytest.mark.parametrize("kind", [frozenset(), frozenset("T")], ids=["same", "batches"])
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("step", range(8))
def test_a_cut_that_dies_leaves_the_old_queue_or_the_new_one(
    step: int, power: bool, kind: frozenset[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truncation, "LOOK_BYTES", 1_000)
    master = Node()
    end, old, new = made_again(master, kind)
    for seed in range(12 if power else 1):
        slave = Slave(seed)
        slave.batch_topics = slave.store.queues.batch_topics = kind
        slave.follow(master)
        slave.has_durably(master, master.store.log.end)
        assert slave.told() == new
        slave.effects.extend(slave.store.truncation.begin(end, []))
        for _ in range(step):
            slave.step()
        slave.cut_power() if power else slave.kill()
        slave.load()
        assert slave.told() == (new if slave.store.log.end > end else old), seed
        slave.effects.extend(slave.store.truncation.begin(end, []))
        slave.settle()
        assert slave.told() == old
        slave.follow(master)
        assert slave.told() == new
        slave.store.validate()


def test_what_two_queues_gave_up_is_read_again_until_the_log_is_durable() -> None:
    """The record that began a queue anew may go with the power though its unit was durable."""
    master = Node()
    master.load()
    for topic in ("T", "U"):
        master.store.appends.append(message(topic, b"old"), master.now)
    ends = [master.store.log.end]
    for topic in ("T", "U"):
        master.store.delete_topic(topic)
        master.store.appends.append(message(topic, b"new"), master.now)
        ends.append(master.store.log.end)
    for seed in range(12):
        slave = Slave(seed)
        slave.config = slave.store.flusher._config = config(flush_commit_log_thorough_interval=1 << 40)
        slave.has_durably(master, ends[0])
        for end in ends[1:]:
            slave.take(master, end)
            while slave.replica.waits:
                slave.pass_time(500)
                slave.replica.write()
        slave.pass_time(20_000)
        assert slave.store.log.flushed == ends[0] and slave.store.flusher.saved_replay_from == 0
        slave.cut_power()
        slave.load()
        assert [slave.bodies(topic) for topic in ("T", "U")] == [[b"old"], [b"old"]] or slave.store.log.end > ends[0]
        slave.store.validate()


def test_after_a_cut_no_more_is_read_again_than_before() -> None:
    master = Node()
    end, _, _ = made_again(master)
    record = master.store.log.decoded(end)
    assert record is not None
    first = end + record.size
    slave = Slave()
    slave.has_durably(master, end)
    slave.take(master)
    while slave.replica.waits:
        slave.pass_time(500)
        slave.replica.write()
    assert slave.store.log.flushed == end
    slave.effects.extend(slave.store.truncation.begin(first, []))
    slave.settle()
    slave.flush()
    slave.pass_time(10_000)
    assert slave.store.flusher.saved_replay_from == first == slave.store.log.end


@pytest.mark.parametrize("lmq", [False, True], ids=["plain", "light"])
@pytest.mark.parametrize("seed", range(12))
def test_drawn_lives(seed: int, lmq: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation, "LOOK_BYTES", Random(seed).choice((1, 1_000, 1 << 20)))
    Lives(seed, lmq=lmq).run()


def test_queues_come_back_in_them() -> None:
    """Otherwise the test above would not see what it is for."""
    lives = [Lives(seed, lmq=False) for seed in range(3)]
    back = Counter[str]()
    bring_back = truncation.bring_back
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truncation, "bring_back", lambda store, keys, start: (
            back.update(topic for topic, _ in keys), bring_back(store, keys, start)
        )[1])  # fmt: skip
        for life in lives:
            life.run()
    assert back.keys() == {*PLAIN, BATCHES, COMPACTED}
