"""Drawn histories of appends, flushes, crashes and power cuts: what was promised is there after each."""

from __future__ import annotations

from random import Random

import pytest

from perseid.sim.disk import CrashPoint
from perseid.store.results import AppendRefused
from perseid.wire.record import decode

from .harness import Node, message
from .promises import Promises

QUEUES = [("A", 0), ("A", 1), ("B", 0)]


class History(Promises[list[bytes]]):
    """One node, and a model of what it must still have."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        node = Node(seed, replay_limit_bytes=random.choice((0, 3000, 1 << 20)))
        super().__init__(random, node, {queue: [] for queue in QUEUES})

    def run(self, steps: int) -> None:
        self.node.load()
        for _ in range(steps):
            self.random.choice(
                [self.append, self.append, self.batch, self.flush, self.carry_out, self.carry_out, self.tick]
            )()
            if self.random.random() < 0.06:
                self.random.choice(
                    [self.kill, self.cut_power, self.cut_power, self.restart, self.die_in_an_append, self.die_in_a_load,
                     self.sync_fails]
                )()  # fmt: skip
        self.restart()

    def body(self) -> bytes:
        self.number += 1
        return b"%d:" % self.number + self.random.randbytes(self.random.choice((0, 5, 90, 700)))

    def append(self) -> None:
        topic, queue_id = queue = self.random.choice(QUEUES)
        body = self.body()
        key = {"KEYS": f"k{self.number}"} if self.random.random() < 0.6 else {}
        done = self.node.store.appends.append(message(topic, body, queue_id, TAGS="x", **key), self.node.now)
        assert done.queue_offset == len(self.sent[queue])
        self.sent[queue].append(body)

    def batch(self) -> None:
        topic, queue_id = queue = self.random.choice(QUEUES)
        bodies = [self.body() for _ in range(self.random.randrange(1, 9))]
        try:
            self.node.store.appends.append_batch([message(topic, body, queue_id) for body in bodies], self.node.now)
        except AppendRefused:
            return  # longer than a file
        self.sent[queue] += bodies

    def kill(self) -> None:
        everything = {queue: len(sent) for queue, sent in self.sent.items()}
        self.node.kill()
        self.node.load()
        reads = self.node.store.reads
        assert {queue: reads.max_offset(*queue) for queue in QUEUES} == everything, "the page cache stays"
        self.after(everything)

    def die_in_an_append(self) -> None:
        """The process dies within a change of the disk; what it was at may be there, whole, or not."""
        topic, queue_id = queue = self.random.choice(QUEUES)
        whole = {queue: len(sent) for queue, sent in self.sent.items()}
        self.sent[queue].append(self.body())
        self.node.disk.crash_in = self.random.randrange(1, 7)
        try:
            self.node.store.appends.append(
                message(topic, self.sent[queue][-1], queue_id, KEYS=f"k{self.number}"), self.node.now
            )
        except CrashPoint:
            pass
        if self.random.random() < 0.5:
            self.node.kill()
            self.node.load()
            self.after(whole)
        else:
            self.cut_power()

    def die_in_a_load(self) -> None:
        self.node.kill() if self.random.random() < 0.5 else self.node.cut_power()
        self.node.disk.crash_in = self.random.randrange(1, 60)
        try:
            self.node.load()
        except CrashPoint:
            pass
        self.cut_power()

    def sync_fails(self) -> None:
        """A node whose sync failed ends; the next life must not believe the page cache."""
        self.flush()
        self.node.disk.failing["sync"] = 1
        try:
            self.node.settle()
        except OSError:
            self.node.events.clear()
        self.node.disk.failing.clear()
        self.carry_out()
        self.node.kill()
        self.node.load()
        self.after(self.promised)
        self.cut_power()

    def restart(self) -> None:
        self.node.stop()
        self.node.effects.clear()
        report = self.node.load()
        assert report.clean and report.notes == [] and report.truncated_bytes == 0
        self.after({queue: len(sent) for queue, sent in self.sent.items()})

    def after(self, least: dict[tuple[str, int], int]) -> None:
        """What was promised is there, and nothing but what was sent, from the start on and without a gap."""
        self.flushes.clear()
        for queue in QUEUES:
            have = self.node.bodies(*queue)
            assert have == self.sent[queue][: len(have)]
            assert len(have) >= least[queue], f"{queue}: {len(have)} of {least[queue]}"
            del self.sent[queue][len(have) :]
            self.promised[queue] = len(have)  # a load makes durable what it finds
            for record in self.node.records(*queue):
                for key in record.keys:
                    found = self.node.store.reads.query(record.topic, key, 64, 0, self.node.now).records
                    assert record.physical_offset in [decode(view).physical_offset for view in found], key


@pytest.mark.parametrize("seed", range(60))
def test_drawn_histories(seed: int) -> None:
    History(seed).run(150)
