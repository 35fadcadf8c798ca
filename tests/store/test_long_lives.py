"""Drawn histories in which files come and go: topics that begin later, retention, a disk without room, between crashes
and power cuts. Defects that a broker's whole simulation meets once in thousands of seeds are met here by the dozen."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from perseid.sim.disk import CrashPoint
from perseid.store.consume_queue import UNIT_BYTES
from perseid.store.results import AppendRefused

from .harness import Node, message
from .promises import Promises

TOPICS = 12
QUEUES = [(f"T{number}", queue_id) for number in range(TOPICS) for queue_id in (0, 1)]
HOUR_MS = 3_600_000
STEPS = 220


class Life(Promises[list[tuple[bytes, int | None]]]):
    """One store folder, and a model of what it must still have: of each queue the bodies and, where it is known, the
    place of each in the log."""

    at_once = 8

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        node = Node(
            seed,
            replay_limit_bytes=random.choice((0, 3000, 1 << 20)),
            file_reserved_time=random.choice((1, 3)),
            consume_queue_file_bytes=UNIT_BYTES * random.choice((2, 5)),
            delete_commit_log_files_interval=100,
        )
        super().__init__(random, node, {queue: [] for queue in QUEUES})
        self.topics = 1
        """So many have messages by now."""
        self.removed = 0
        """Files of the log that retention has removed."""

    def run(self) -> None:
        self.node.load()
        often: list[Callable[[], None]] = [self.append] * 5 + [self.flush, self.carry_out, self.carry_out, self.tick]
        if self.random.random() < 0.3:  # nothing is durable but what a load has made so
            often = [self.append]
        seldom: list[Callable[[], None]] = [
            self.kill, self.kill, self.cut_power, self.restart, self.die_in_an_append, self.die_in_an_append,
            self.die_in_a_load, self.expire, self.expire, self.no_room, self.new_topic, self.new_topic,
        ]  # fmt: skip
        for _ in range(STEPS):
            self.random.choice(often if self.random.random() < 0.85 else seldom)()
        self.kill()
        self.cut_power()

    # ---- what happens ----

    def new_topic(self) -> None:
        self.topics = min(TOPICS, self.topics + 1)

    def drawn_queue(self) -> tuple[str, int]:
        """The latest topics have most of the messages."""
        topic = self.topics - 1 if self.random.random() < 0.6 else self.random.randrange(self.topics)
        return QUEUES[2 * topic + self.random.randrange(2)]

    def body(self) -> bytes:
        self.number += 1
        return b"%d:" % self.number + self.random.randbytes(self.random.choice((0, 90, 700)))

    def append(self) -> None:
        topic, queue_id = queue = self.drawn_queue()
        body = self.body()
        try:
            done = self.node.store.appends.append(message(topic, body, queue_id, KEYS=f"k{self.number}"), self.node.now)
        except AppendRefused:
            assert self.node.disk.other_bytes, "there was room"
            return
        assert done.queue_offset == len(self.sent[queue])
        self.sent[queue].append((body, done.physical_offset))

    def pass_ms(self, ms: int) -> None:
        super().pass_ms(ms)
        self.node.disk.now = self.node.now

    def expire(self) -> None:
        """Some hours pass, and an operator asks for what is old to go."""
        self.carry_out_all()
        self.pass_ms(self.random.randrange(4) * HOUR_MS)
        before = self.node.store.log.start
        self.node.store.retention.delete_now(self.node.now)
        for _ in range(self.random.randrange(1, 30)):
            self.pass_ms(500)
            self.node.effects.extend(self.node.store.tick(self.node.now))
            self.carry_out_all()
        self.removed += (self.node.store.log.start - before) // 2048

    def carry_out_all(self) -> None:
        while self.node.effects:
            self.carry_out()

    def no_room(self) -> None:
        """Others leave room for a queue's file, and sometimes for one of the log."""
        self.node.disk.fill(0.5)
        self.node.disk.other_bytes += self.node.disk.usage().free - self.random.choice((90, 700, 3_000))
        for _ in range(self.random.randrange(1, 12)):
            self.append()
        self.node.disk.fill(0)

    # ---- ends ----

    def kill(self) -> None:
        everything = {queue: len(sent) for queue, sent in self.sent.items()}
        self.node.kill()
        self.node.load()
        self.after(everything)

    def restart(self) -> None:
        self.node.stop()
        report = self.node.load()
        assert report.clean and report.truncated_bytes == 0
        assert not (report.notes and self.node.store.log.end), "a clean stop leaves nothing to mend"
        self.after({queue: len(sent) for queue, sent in self.sent.items()})

    def die_in_an_append(self) -> None:
        """The process dies within a change of the disk; the message may be there, whole, or not."""
        topic, queue_id = queue = self.drawn_queue()
        whole = {queue: len(sent) for queue, sent in self.sent.items()}
        body = self.body()
        self.node.disk.crash_in = self.random.randrange(1, 9)
        place = None
        try:
            place = self.node.store.appends.append(message(topic, body, queue_id), self.node.now).physical_offset
        except CrashPoint:
            pass
        self.sent[queue].append((body, place))
        self.node.kill()
        self.node.load()
        self.after(whole)
        if self.random.random() < 0.5:
            self.cut_power()

    def die_in_a_load(self) -> None:
        self.node.kill()
        self.node.disk.crash_in = self.random.randrange(1, 60)
        try:
            self.node.load()
        except CrashPoint:
            pass
        self.cut_power()

    def after(self, least: dict[tuple[str, int], int]) -> None:
        """What was promised is there, or went with its file of the log; nothing is there but what was sent, each at the
        offset that it was given."""
        self.flushes.clear()
        store = self.node.store
        for queue in QUEUES:
            sent = self.sent[queue]
            records = self.node.records(*queue)
            first, end = store.reads.min_offset(*queue), store.reads.max_offset(*queue)
            assert end >= least[queue], f"{queue} ends at {end}: {least[queue]} were promised"
            assert [record.body for record in records] == [body for body, _ in sent[first:end]]
            for offset, (_, place) in enumerate(sent[: min(first, end)]):
                there = place is not None and store.log.start <= place < store.log.end
                assert not there, f"{queue}: {offset} is gone, its record is not"
            del sent[end:]
            sent[:first] = [(body, None) for body, _ in sent[:first]]
            sent[first:end] = [(record.body, record.physical_offset) for record in records]
            self.promised[queue] = end  # a load makes durable what it finds


@pytest.mark.parametrize("seed", range(40))
def test_drawn_lives(seed: int) -> None:
    Life(seed).run()


def test_files_go_in_most_of_them() -> None:
    lives = [Life(seed) for seed in range(20)]
    for life in lives:
        life.run()
    assert sum(life.removed > 0 for life in lives) >= 10
