"""A slave's log: queues that begin anew, and power cuts in between."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from perseid.sim.disk import SimDisk
from perseid.store import replica
from perseid.store.replica import Replica
from perseid.store.store import MessageStore

from .harness import HOST, Node, message

OLD = 13
SEEDS = 12
STEPS = 40
"""More than there are from the record that begins a queue anew to the checkpoint behind it."""


class Slave(Node):
    """A store that takes the log of another one."""

    def __init__(self, seed: int = 0) -> None:
        self.batch_topics = frozenset[str]()
        super().__init__(disk=SimDisk(Random(seed)))
        self.load()

    def load(self) -> None:  # type: ignore[override]
        self.effects.clear()
        self.store = MessageStore(self.disk, self.config, HOST)
        self.store.queues.batch_topics = self.batch_topics
        self.store.load(self.now)
        self.store.validate()
        self.replica = Replica(self.store)

    def take(self, master: Node, end: int = 0) -> None:
        """What it lacks of a log, up to `end`, or up to a record that has to wait."""
        size, end = master.config.commit_log_file_bytes, end or master.store.log.end
        while self.replica.expected < end:
            at = self.replica.expected
            part = bytes(master.store.log.segments.view(at, min(end, at - at % size + size) - at))
            self.replica.expect(at, len(part))
            self.replica.take(memoryview(part))
            self.replica.write()

    def has_durably(self, master: Node, end: int) -> None:
        """Its start reads nothing before `end` of the log again."""
        self.take(master, end)
        self.flush()
        self.pass_time(5_000)
        assert self.store.flusher.saved_replay_from == end

    def go_on(self) -> Iterator[None]:
        """What happens after that, step by step."""
        self.replica.write()
        for _ in range(50):
            yield
            if not self.step():
                self.flush()
                self.now += 500
                self.effects.extend(self.store.tick(self.now))
            if self.replica.waits:
                self.replica.write()

    def follow(self, master: Node) -> None:
        """All of a log."""
        self.take(master)
        for _ in self.go_on():
            pass
        assert self.store.log.end == master.store.log.end and not self.replica.waits

    def told(self) -> list[bytes]:
        return self.bodies() if self.store.queues.get("T", 0) is not None else []


def made_again(
    master: Node, kind: frozenset[str] = frozenset(), before: frozenset[str] = frozenset()
) -> tuple[int, list[bytes], list[bytes]]:
    """A topic is deleted and made again, perhaps of another kind: where the log of the old one ends, and the messages
    of both."""
    master.load()
    master.store.queues.batch_topics = before
    old = [b"old %d" % number for number in range(OLD)]
    for body in old:
        master.store.appends.append(message(body=body), master.now)
    end = master.store.log.end
    master.store.delete_topic("T")
    master.store.queues.batch_topics = kind
    new = [b"new 0", b"new 1"]
    for body in new:
        master.store.appends.append(message(body=body), master.now)
    return end, old, new


def ended_at(step: int, slave: Slave, *, power: bool) -> None:
    """It goes on up to a step of its disk's, is killed there, or loses its power, and starts again."""
    for number, _ in enumerate(slave.go_on()):
        if number == step:
            break
    slave.cut_power() if power else slave.kill()
    slave.load()


@pytest.mark.parametrize("kind", [frozenset(), frozenset("T")], ids=["same", "batches"])
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("step", range(STEPS))
def test_a_queue_that_begins_anew_is_the_old_one_or_the_new_one_after_a_crash(
    step: int, power: bool, kind: frozenset[str]
) -> None:
    """Its old units were durable: they come back as long as the record that took their place may be gone."""
    master = Node()
    end, old, new = made_again(master, kind)
    for seed in range(SEEDS if power else 1):
        slave = Slave(seed)
        slave.has_durably(master, end)
        slave.batch_topics = slave.store.queues.batch_topics = kind
        slave.take(master)
        ended_at(step, slave, power=power)
        assert slave.told() in (old, new[:1], new), seed
        slave.follow(master)
        assert slave.told() == new
        slave.store.validate()


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("step", range(STEPS))
def test_a_batch_topic_that_is_a_plain_one_now_leaves_no_files(step: int, power: bool) -> None:
    """A later start would find two queues of one name."""
    master, batches = Node(), frozenset("T")
    end, old, new = made_again(master, before=batches)
    for seed in range(3 if power else 1):
        slave = Slave(seed)
        slave.batch_topics = slave.store.queues.batch_topics = batches
        slave.has_durably(master, end)
        slave.batch_topics = slave.store.queues.batch_topics = frozenset()
        slave.take(master)
        ended_at(step, slave, power=power)
        assert slave.told() in (old, new[:1], new), seed
        slave.follow(master)
        assert slave.disk.list("batchconsumequeue/T/0") == []
        for end_of_life in (slave.stop, slave.kill):
            end_of_life()
            slave.load()
            assert slave.told() == new and slave.disk.list("batchconsumequeue/T/0") == []


def test_the_walk_of_such_a_record_ends_with_a_checkpoint_behind_it() -> None:
    """Otherwise the test above would not see what comes after."""
    master = Node()
    end, _, new = made_again(master)
    slave = Slave()
    slave.has_durably(master, end)
    slave.take(master)
    seen = [(slave.replica.waits, slave.store.flusher.saved_replay_from) for _ in slave.go_on()][:STEPS]
    assert seen[0] == (True, end) and seen[-1] == (False, slave.store.log.end)
    assert (False, 0) in seen, "a checkpoint that lets a start read the old units' records comes in between"
    assert slave.told() == new


def test_what_waits_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its master sends on meanwhile. What is given up is asked for again, and rounds go on as before."""
    monkeypatch.setattr(replica, "MAX_WAITING_BYTES", 300)
    master = Node()
    end, _, new = made_again(master)
    slave = Slave()
    slave.has_durably(master, end)
    slave.take(master)
    assert slave.replica.waits
    for number in range(3):
        new.append(b"later %d" % number)
        master.store.appends.append(message(body=new[-1]), master.now)
    with pytest.raises(OSError, match="wait"):
        slave.take(master)
    slave.replica.forget_partial()
    slave.pass_time(5_000)
    assert slave.store.flusher.saved_replay_from == end == slave.store.log.end
    monkeypatch.undo()
    slave.follow(master)
    assert slave.told() == new
