"""Drawn histories of a replica set: sends, partitions, crashes, elections, proposals whose answers are lost.

After each step, of all that live: C4 (what was acknowledged is on every replica that the controller may elect), C5 (it
is in each later master's log), C8 (one acknowledges an epoch), C9 (bytes of one epoch are the same everywhere), C10
(what is confirmed never falls while a replica lives), C11 (an offset that a reader saw keeps its message).
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from perseid.store.results import AppendRefused
from perseid.wire.record import decode

from .replicas import TOPICS, Replica, Replicas


class History:
    """One run."""

    def __init__(self, seed: int, *, power: bool) -> None:
        self.random = random = Random(seed)
        self.power = power
        settings = {"flush_disk_type": "SYNC_FLUSH"} if power else {}
        self.made = Replicas(
            random.choice((2, 3, 3)), seed, piece=random.choice((20, 300, 5_000)), store=settings,
            ha_transfer_batch_size=random.choice((64, 32_768)), ha_window_bytes=random.choice((500, 8 << 20)),
            ha_report_durable_only=power, ha_max_time_slave_not_catchup=random.choice((500, 15_000)),
        )  # fmt: skip
        self.waiting: list[tuple[Replica, int, int, bytes]] = []
        """(master, its epoch, where it ends, record) of messages that were not acknowledged yet."""
        self.acked: dict[int, bytes] = {}
        """Offset in the log → record."""
        self.by: dict[int, int] = {}
        """Epoch → who acknowledged in it."""
        self.seen: dict[tuple[str, int, int], bytes] = {}
        self.confirmed = dict.fromkeys(range(1, len(self.made.all) + 1), 0)
        self.number = 0

    def run(self, steps: int) -> None:
        made, random = self.made, self.random
        made.elect(1)
        kinds = [self.append] * 8 + [self.wait] * 6 + [self.answer] * 3 + [
            self.kill, self.revive, self.revive, self.part, self.heal, self.elect, self.elect, self.hide, self.slow,
        ]  # fmt: skip
        for step in range(steps):
            random.choice(kinds)()
            self.look(thorough=step % 8 == 0)
        self.end()

    # ---- steps ----

    def append(self) -> None:
        leaders = [one for one in self.made.all if one.leads and not one.store.truncation.under_way]
        if not leaders:
            return
        one = self.random.choice(leaders)
        self.number += 1
        body = b"%d." % self.number + self.random.randbytes(self.random.choice((0, 10, 300)))
        try:
            done = one.append(body, *self.random.choice(TOPICS))
        except AppendRefused:
            return
        record = one.store.log.record_at(done.physical_offset)
        assert record is not None
        self.waiting.append((one, one.replication.epoch, done.physical_offset + done.size, bytes(record)))
        if self.power:
            one.run([one.store.flusher.flush([])])
            one.settle()

    def wait(self) -> None:
        self.made.wait(self.random.choice((100, 100, 300, 1_500)), answers=self.random.random() < 0.6)

    def answer(self) -> None:
        for one in self.made.all:
            if one.up:
                self.made.answer(one, lost=self.random.random() < 0.3)

    def kill(self) -> None:
        one = self.random.choice(self.made.all)
        if one.up:
            self.waiting = [waits for waits in self.waiting if waits[0] is not one]
            one.kill(power=self.power and self.random.random() < 0.5)
            self.confirmed[one.number] = 0

    def revive(self) -> None:
        for one in self.made.all:
            if not one.up and self.random.random() < 0.7:
                one.slow_disk = False
                one.start()

    def part(self) -> None:
        if len(self.made.all) > 1:
            self.made.part(*self.random.sample(range(1, len(self.made.all) + 1), 2))

    def heal(self) -> None:
        self.made.cut_off.clear()
        self.made.unreachable.clear()

    def hide(self) -> None:
        self.made.unreachable.add(self.random.randint(1, len(self.made.all)))

    def slow(self) -> None:
        one = self.random.choice(self.made.all)
        if one.up:
            one.slow_disk = not one.slow_disk
            if not one.slow_disk:
                one.sync()

    def elect(self) -> None:
        """Of those in sync that live, one. The one that was master may be it again only after another life."""
        made = self.made
        alive = [n for n in sorted(made.members) if made[n].up and made[n] is not made.master]
        if made.master is not None and not made.master.leads and made.master.up:
            alive.append(made.master.number)
        if alive:
            made.elect(self.random.choice(alive))

    # ---- what must hold ----

    def look(self, *, thorough: bool = True) -> None:
        made = self.made
        left = []
        for one, epoch, end, record in self.waiting:
            if not one.leads or one.replication.epoch != epoch:
                continue
            replicated = one.replication.replicated()
            ready = min(one.store.log.flushed, replicated) if self.power else replicated
            if end > ready:
                left.append((one, epoch, end, record))
                continue
            assert self.by.setdefault(epoch, one.number) == one.number, f"C8: two acknowledge in epoch {epoch}"
            self.acked[end - len(record)] = record
        self.waiting = left
        for one in made.all:
            if not one.up or one.store.truncation.under_way:
                continue
            confirmed = one.store.reads.confirmed
            assert confirmed >= self.confirmed[one.number], f"C10: {one.number} confirmed less than before"
            self.confirmed[one.number] = one.store.reads.confirmed
            if thorough:
                self.read(one)
            if one.number in made.members:
                for offset, record in self.acked.items():
                    has = one.store.log.view(offset, len(record))
                    assert has is not None and bytes(has) == record, f"C4: {one.number} in sync lacks {offset}"
        if thorough:
            self.compare()

    def read(self, one: Replica) -> None:
        for topic, queue_id in TOPICS:
            for offset in range(one.store.reads.max_offset(topic, queue_id)):
                unit = one.store.reads.unit(topic, queue_id, offset)
                assert unit is not None
                view = one.store.reads.record_at(unit.physical_offset)
                assert view is not None, f"{one.number}: {topic}/{queue_id}@{offset} is shown, and not to be read"
                body = decode(view).body
                before = self.seen.setdefault((topic, queue_id, offset), body)
                assert before == body, f"C11: {topic}/{queue_id}@{offset} of {one.number} is another message now"

    def compare(self) -> None:
        live = [one for one in self.made.all if one.up and not one.store.truncation.under_way]
        for one, other in pairwise(live):
            mine, theirs = one.replication.epochs.entries, other.replication.epochs.entries
            for entry in mine:
                if entry not in theirs:
                    continue
                ends = []
                for side, entries in ((one, mine), (other, theirs)):
                    later = [e.start for e in entries if e.start > entry.start]
                    ends.append(min([*later, side.store.log.end]))
                size = min(ends) - entry.start
                if size > 0:
                    begin, a, b = entry.start, one.bytes(), other.bytes()
                    same = a[begin : begin + size] == b[begin : begin + size]
                    assert same, f"C9: {entry}, {one.number} and {other.number}"

    def end(self) -> None:
        """All heals; in the end all have the same, and what was acknowledged."""
        made = self.made
        self.heal()
        for one in made.all:
            one.slow_disk = False
            one.sync()
            if not one.up:
                one.start()
        alive = sorted(n for n in made.members if made[n] is not made.master or not made[n].leads)
        made.elect(alive[0] if alive else min(made.members))
        made.wait(3_000)
        made.write(2)
        everyone = set(range(1, len(made.all) + 1))
        for _ in range(12):  # a refused history is tried again after 30 s
            if made.members != everyone:
                made.wait(3_000)
        made.wait(500)
        self.look()
        assert made.members == everyone, f"C13: {made.members}"
        made.check_same()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("power", [False, True], ids=["process", "power"])
def test_a_history(seed: int, power: bool) -> None:
    History(seed, power=power).run(50)
