"""The table of queues that are popped in order by itself, held against a list of batches as simple as can be."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from random import Random

import pytest

from broker.harness import NOW
from perseid.base.errors import StoreError
from perseid.broker.pop import order
from perseid.broker.pop.order import FORGET_MS, ConsumeOrder

INVISIBLE_MS = 1_000
QUEUES = [("T", "g", 0), ("T", "g", 1), ("T", "h", 0), ("U", "g", 0)]


@dataclass
class Batch:
    """One that is out."""

    pop_time: int
    attempt: str | None
    visible: dict[int, int]
    """When each message that is not acknowledged is seen again, by offset."""
    offsets: list[int]
    counts: dict[int, int] = field(default_factory=dict)

    def until(self) -> int:
        return max(self.visible.values(), default=0)

    def goes_on(self) -> int:
        return min(self.visible, default=self.offsets[-1] + 1)


class Book:
    """The table, and the batches that are out by queue."""

    def __init__(self, seed: int) -> None:
        self.random, self.now = Random(seed), NOW
        self.order = ConsumeOrder()
        self.batches: dict[tuple[str, str, int], Batch] = {}
        self.position = dict.fromkeys(QUEUES, 0)

    def pop(self) -> None:
        """Messages from the group's position on, perhaps with gaps: filtered ones are not in a batch."""
        key, attempt = self.random.choice(QUEUES), self.random.choice((None, "a", "b"))
        old, start = self.batches.get(key), self.position[key]
        out = old is not None and self.now < old.until() and not (attempt and attempt == old.attempt)
        assert self.order.blocked(*key, attempt, self.now) is out
        if out:
            return
        offsets = sorted(self.random.sample(range(start, start + 6), self.random.randrange(1, 5)))
        said = self.order.popped(*key, list(offsets), attempt, self.now, INVISIBLE_MS)
        if old is not None and old.pop_time >= self.now:
            assert said is None
            return
        batch = Batch(self.now, attempt, dict.fromkeys(offsets, self.now + INVISIBLE_MS), offsets)
        if old is not None and attempt is not None and attempt == old.attempt:
            batch.counts = dict(old.counts)
        elif old is not None:
            batch.counts = {one: old.counts.get(one, 0) + 1 for one in offsets if one in old.offsets}
        retry = {"T": "0", "U": "0"}[key[0]]
        each = [f"{retry} qo{key[2]}%{offset} {count}" for offset, count in batch.counts.items()]
        least = min(batch.counts.values()) if len(batch.counts) == len(offsets) else 0
        assert said == [*each, f"{retry} {key[2]} {least}"]
        self.batches[key] = batch

    def acknowledge(self) -> None:
        key = self.random.choice(QUEUES)
        batch, position = self.batches.get(key), self.position[key]
        if batch is None:
            assert self.order.acknowledged(*key, position + 1, self.now, position) is None
            assert self.order.acknowledged(*key, position, self.now, position) == position + 1
            return
        wrong = max(batch.offsets) + 1
        assert self.order.acknowledged(*key, wrong, batch.pop_time, position) is None
        offset = self.random.choice(batch.offsets)
        assert self.order.acknowledged(*key, offset, batch.pop_time - 1, position) is None
        self.order.dirty = False
        batch.visible.pop(offset, None)
        self.position[key] = batch.goes_on()
        assert self.order.acknowledged(*key, offset, batch.pop_time, position) == batch.goes_on() and self.order.dirty

    def put_off(self) -> None:
        key, until = self.random.choice(QUEUES), self.now + self.random.randrange(3 * INVISIBLE_MS)
        batch = self.batches.get(key)
        if batch is None:
            assert not self.order.put_off(*key, 0, self.now, until)
            assert not self.order.put_off_all(*key, self.now, until)
            return
        offset = self.random.choice(batch.offsets)
        assert not self.order.put_off(*key, offset, batch.pop_time + 1, until)
        assert not self.order.put_off(*key, max(batch.offsets) + 1, batch.pop_time, until)
        assert not self.order.put_off_all(*key, batch.pop_time + 1, until)
        self.order.dirty = False
        if self.random.random() < 0.5:
            assert self.order.put_off(*key, offset, batch.pop_time, until)
            if offset in batch.visible:
                batch.visible[offset] = until
        else:
            assert self.order.put_off_all(*key, batch.pop_time, until)
            batch.visible = dict.fromkeys(batch.visible, until)
            batch.counts = {one: count - 1 for one, count in batch.counts.items() if count > 1}
        assert self.order.dirty

    def clear(self) -> None:
        key = self.random.choice(QUEUES)
        self.order.dirty = False
        self.order.clear(*key)
        assert self.order.dirty is (key in self.batches)
        self.batches.pop(key, None)

    def forget(self) -> None:
        """A topic is deleted."""
        self.order.dirty = False
        gone = {key for key in self.batches if key[0] == "T"}
        self.order.forget_topics({"T"})
        assert self.order.dirty or not gone
        for key in gone:
            del self.batches[key]

    def restart(self) -> None:
        again = ConsumeOrder()
        again.load(self.order.to_json(self.now))
        self.order = again
        self.look()

    def pass_time(self) -> None:
        """Each queue whose time is up is told of at that time, unless it was free before."""
        before, self.now = self.now, self.now + self.random.choice((1, 300, 2 * INVISIBLE_MS))
        told = set(self.order.freed(self.now))
        for key, batch in self.batches.items():
            if before < batch.until() <= self.now:
                assert key in told, "who waits for it is woken"
            elif batch.until() > self.now:
                assert key not in told
        due = self.order.next_deadline()
        assert due is None or due > self.now
        waits = [batch.until() for batch in self.batches.values() if batch.until() > self.now]
        assert not waits or (due is not None and due <= min(waits))

    def look(self) -> None:
        self.order.validate()
        assert len(self.order) == len(self.batches)
        for key, batch in self.batches.items():
            for now in (batch.until() - 1, batch.until()):
                assert self.order.blocked(*key, None, now) is (now < batch.until())


@pytest.mark.parametrize("seed", range(30))
def test_a_queue_has_one_batch_out_at_a_time(seed: int) -> None:
    book = Book(seed)
    steps = [*[book.pop] * 4, *[book.acknowledge] * 3, *[book.put_off] * 2, *[book.pass_time] * 3]
    steps += [book.clear, book.restart] + [book.forget] * (seed % 2)
    for _ in range(150):
        book.random.choice(steps)()
        book.look()
    book.order.forget()
    assert len(book.order) == 0 and book.order.freed(NOW + FORGET_MS) == [] and book.order.next_deadline() is None


def test_no_more_queues_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "MAX_QUEUES", 2)
    table = ConsumeOrder()
    for queue_id, told in ((0, ["0 0 0"]), (1, ["0 1 0"]), (2, None)):
        assert table.popped("T", "g", queue_id, [7], None, NOW, INVISIBLE_MS) == told
    assert table.popped("T", "g", 1, [8], None, NOW + 1, INVISIBLE_MS) is not None, "one that is known may go on"


def test_what_was_not_popped_for_a_day_is_forgotten() -> None:
    table = ConsumeOrder()
    table.popped("T", "g", 0, [7], None, NOW, INVISIBLE_MS)
    table.popped("T", "g", 1, [7], None, NOW + 1, INVISIBLE_MS)
    table.popped("U", "g", 0, [7], None, NOW, INVISIBLE_MS)

    def saved(now: int) -> list[str]:
        return re.findall(r'"\w@\w"|\d+(?=:\{)', table.to_json(now).decode())

    assert saved(NOW + FORGET_MS) == ['"T@g"', "0", "1", '"U@g"', "0"] and len(table) == 3
    assert saved(NOW + FORGET_MS + 1) == ['"T@g"', "1"] and len(table) == 1
    table.validate()


def test_a_file_of_another_form_names_itself() -> None:
    with pytest.raises(StoreError, match=r"consumerOrderInfo\.json"):
        ConsumeOrder().load(b'{"table": 5}')
    table = ConsumeOrder()
    batch = {"popTime": NOW, "i": 1_000, "o": [3, 1]}
    table.load(json.dumps({"table": {key: {"0": batch} for key in ("T@g", "Tg", "@g", "T@", "T@g@h")}}).encode())
    assert len(table) == 1 and table.blocked("T", "g", 0, None, NOW + 999)
    assert table.acknowledged("T", "g", 0, 3, NOW, 3) == 4 and table.acknowledged("T", "g", 0, 4, NOW, 3) == 5
