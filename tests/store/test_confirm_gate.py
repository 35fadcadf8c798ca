"""Readers of a gated store see what is confirmed; cuts of the log take all that hangs on it, through crashes."""

from __future__ import annotations

from random import Random

import pytest
from tests.durable import make_durable

from perseid.base.machine import Feed, Flush, SaveState
from perseid.sim.disk import SimDisk
from perseid.store import confirm_gate as gates
from perseid.store.store import MessageStore

from .harness import HOST, START, config, message


class Gated:
    """A gated store on a disk; effects are carried out when the test says so."""

    def __init__(self, disk: SimDisk | None = None) -> None:
        self.disk = disk or SimDisk(Random(3))
        self.store = MessageStore(self.disk, config(), HOST, gated=True)
        self.store.load(START)
        self.shown: list[tuple[int, int]] = []
        assert self.store.gate is not None
        self.store.gate.on_shown = lambda queue, first, end: self.shown.append((first, end))

    def append(self, count: int = 1) -> int:
        for n in range(count):
            self.store.appends.append(message(body=b"%d" % n, KEYS=f"k{n}"), START)
        return self.store.log.end

    def do(self, effects: list[object], most: int = 99) -> list[object]:
        """Carry out what the disk is asked for, in order; what came to nothing."""
        todo = list(effects)
        while todo and most > 0:
            effect = todo.pop(0)
            most -= 1
            if isinstance(effect, Flush | SaveState):
                make_durable(self.disk, effect)
                todo = [*effect.then, *todo]
            else:
                assert isinstance(effect, Feed), effect
                todo += self.store.handle(effect.event)
        return todo

    @property
    def seen(self) -> int:
        return self.store.reads.max_offset("T", 0)


def test_readers_see_what_is_confirmed() -> None:
    one = Gated()
    first = one.append()
    end = one.append(2)
    assert one.seen == 0 and one.store.reads.query("T", "k0", 9, 0, START + 1).records == []
    assert one.store.reads.record_at(0) is None
    one.store.flusher.confirm(first)
    assert one.seen == 1 and one.shown == [(0, 1)] and one.store.reads.record_at(0) is not None
    one.store.flusher.confirm(first + 1)
    assert one.seen == 1, "half a record is none"
    one.store.flusher.confirm(end)
    assert one.seen == 3 and one.shown == [(0, 1), (1, 2), (2, 3)]
    one.store.flusher.confirm(first)
    assert one.seen == 3 and one.store.reads.confirmed == end, "it never falls"
    one.store.validate()


def test_a_batch_is_shown_as_it_is_confirmed() -> None:
    one = Gated()
    one.store.appends.append_batch([message(body=b"%d" % n) for n in range(3)], START)
    assert one.seen == 0
    one.store.flusher.confirm(one.store.log.end)
    assert one.seen == 3


def test_too_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "MAX_RUNS", 3)
    one = Gated()
    ends = [one.append() for _ in range(12)]
    for number, end in enumerate(ends, 1):
        one.store.flusher.confirm(end)
        assert one.seen == number
        one.store.validate()


def test_b5_b6_a_start_shows_what_was_confirmed_and_gives_no_offset_twice() -> None:
    one = Gated()
    first = one.append(2)
    one.append(3)
    one.store.flusher.confirm(first)
    one.store.close(START)
    again = Gated(one.disk)
    assert (again.seen, again.store.reads.confirmed) == (2, first)
    done = again.store.appends.append(message(), START)
    assert done.queue_offset == 5
    again.store.flusher.confirm(again.store.log.end)
    assert again.seen == 6
    again.store.validate()


def test_a_cut_takes_units_and_keys() -> None:
    one = Gated()
    keep = one.append(2)
    one.append(60)
    one.store.flusher.confirm(keep)
    assert one.do(one.store.truncation.begin(keep, [])) == []
    assert not one.store.truncation.under_way and one.store.log.end == keep and one.seen == 2
    done = one.store.appends.append(message(body=b"other", KEYS="k2"), START)
    assert (done.queue_offset, done.physical_offset) == (2, keep)
    one.store.flusher.confirm(one.store.log.end)
    assert len(one.store.reads.query("T", "k2", 9, 0, START + 1).records) == 1
    assert len(one.store.reads.query("T", "k1", 9, 0, START + 1).records) == 1
    one.store.validate()


def test_a_flush_asked_for_before_a_cut_ends_after_it() -> None:
    """Seed 510000 of the HA model: what such a flush made durable was ahead of what counted as handed out."""
    one = Gated()
    keep = one.append(3)
    one.append(50)
    flush = one.store.flusher.flush([])
    (cut,) = one.do(one.store.truncation.begin(keep, []), 2)
    assert isinstance(cut, Flush)
    one.do([flush])
    one.store.validate()
    assert one.store.log.flushed == keep and not one.store.flusher.needs_flush
    one.do([cut])
    one.append(1)
    assert one.store.flusher.needs_flush
    one.do([one.store.flusher.flush([])])
    one.store.validate()
    assert one.store.log.flushed == one.store.log.end


def test_a_flush_asked_for_before_a_cut_covers_nothing_that_was_appended_behind_it() -> None:
    one = Gated()
    keep = one.append(3)
    one.append(50)
    flush = one.store.flusher.flush([])
    assert one.do(one.store.truncation.begin(keep, [])) == []
    one.append(60)
    one.do([flush])
    one.store.validate()
    assert one.store.log.flushed == keep and one.store.flusher.needs_flush


def test_a_cut_to_nothing_forgets_all() -> None:
    one = Gated()
    one.append(40)
    assert one.do(one.store.truncation.begin(0, [])) == []
    assert one.store.log.end == 0 and one.seen == 0 and list(one.store.queues.table) == []
    assert one.store.appends.append(message(), START).queue_offset == 0


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("steps", range(5))
def test_b13_a_crash_in_a_cut_leaves_the_old_end_or_the_new_one(steps: int, durable: bool, power: bool) -> None:
    one = Gated()
    keep = one.append(3)
    one.do([one.store.flusher.flush([])])
    end = one.append(50)
    if durable:
        one.do([one.store.flusher.flush([])])
        one.do(one.store.tick(START + 5_000))
    rest = one.do(one.store.truncation.begin(keep, []), steps)
    if power:
        one.disk.cut_power()
    else:
        one.disk.kill()
    again = Gated(one.disk)
    again.store.validate()
    assert keep <= again.store.log.end <= end
    if not rest:
        assert again.store.log.end == keep
    assert again.do(again.store.truncation.begin(keep, [])) == [] if again.store.log.end > keep else True
    done = again.store.appends.append(message(body=b"new"), START)
    assert done.queue_offset == 3
    again.do([again.store.flusher.flush([])])
    again.disk.cut_power()
    last = Gated(again.disk)
    assert last.store.log.end == done.physical_offset + done.size, "nothing of the old tail came back"
    last.store.validate()
