"""A state machine on a member's log: what it is given, and what a restart takes from its snapshot."""

from __future__ import annotations

import json
from random import Random

import pytest
from tests.durable import make_durable

from perseid.base.errors import StoreError
from perseid.base.machine import DiskFailed, Effect, Event, Feed, Flush, Note, SaveState, Start, Tick
from perseid.raft.applying import SNAPSHOT
from perseid.raft.config import RaftConfig
from perseid.raft.files import FileLog
from perseid.raft.node import Raft
from perseid.sim.disk import SimDisk
from perseid.store.recovery import save_durably
from perseid.wire.dledger import Entry


class Words:
    """Keeps the bodies of all entries."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.given: list[int] = []
        """Of this life."""

    def apply(self, entry: Entry) -> None:
        self.given.append(entry.index)
        self.words.append(entry.body.decode())

    def snapshot(self) -> bytes:
        return json.dumps(self.words).encode()

    def restore(self, data: bytes) -> None:
        self.words = json.loads(data)


class One:
    """A group of one member with a state machine."""

    def __init__(self, disk: SimDisk, threshold: int = 3) -> None:
        self.disk, self.now, self.words, self.notes = disk, 1_000_000, Words(), list[str]()
        self.full = False
        self.slow: list[SaveState] | None = None
        """Where the saves of snapshots wait, if they do."""
        config = RaftConfig(peers="n0-10.0.0.1:1", snapshot_threshold=threshold)
        log = FileLog(disk, 1024, 3_200)
        self.raft = Raft(config, log, disk, Random(1), machine=self.words)
        self.feed(Start())
        for _ in range(100):
            self.now += 100
            self.feed(Tick())
            if self.raft.leader is not None:
                return
        raise AssertionError("nobody leads")

    def feed(self, event: Event) -> None:
        self._carry_out(self.raft.handle(event, self.now))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Note):
                self.notes.append(effect.text)
            elif isinstance(effect, SaveState) and effect.path == SNAPSHOT and self.full:
                self.feed(DiskFailed(effect.path, "no space"))
            elif isinstance(effect, SaveState) and effect.path == SNAPSHOT and self.slow is not None:
                self.slow.append(effect)
            elif isinstance(effect, Flush | SaveState):
                make_durable(self.disk, effect)
                self._carry_out(effect.then)
            elif isinstance(effect, Feed):
                self.feed(effect.event)  # type: ignore[arg-type]

    def say(self, *words: str) -> None:
        for word in words:
            self.raft.append(word.encode(), lambda code, entry: None)
            self.now += 1
            self.feed(Tick())


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(3))


def test_each_committed_entry_is_applied_once_in_order(disk: SimDisk) -> None:
    one = One(disk)
    one.say("a", "b")
    assert (one.words.words, one.words.given) == (["a", "b"], [0, 1])


def test_a_restart_begins_with_the_snapshot(disk: SimDisk) -> None:
    One(disk).say("a", "b", "c", "d")
    again = One(disk)
    again.say("e")
    assert again.words.words == ["a", "b", "c", "d", "e"]
    assert again.words.given == [3, 4], "the first three were in the snapshot"
    assert any("state up to entry 2" in note for note in again.notes)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda data: b"no snapshot", "is no snapshot"),
        (lambda data: data[:-1], "does not match its checksum"),
        (lambda data: data.replace(b'"lastIncludedTerm":', b'"lastIncludedTerm":9'), "is of another log"),
        (lambda data: data.replace(b'"lastIncludedIndex":2', b'"lastIncludedIndex":7'), "is of another log"),
    ],
)
def test_a_snapshot_that_does_not_fit_is_not_used(disk: SimDisk, spoil, words: str) -> None:  # type: ignore[no-untyped-def]
    One(disk).say("a", "b", "c", "d")
    data = disk.read(SNAPSHOT)
    assert data is not None
    save_durably(disk, SNAPSHOT, spoil(data))
    again = One(disk)
    again.say("e")
    assert again.words.words == ["a", "b", "c", "d", "e"] and again.words.given == [0, 1, 2, 3, 4]
    assert any(words in note for note in again.notes), again.notes


def test_a_snapshot_ahead_of_the_log_is_not_used(disk: SimDisk) -> None:
    """A power cut may take entries that others have, but not the snapshot that was made of them."""
    One(disk).say("a", "b", "c")
    data = disk.read(SNAPSHOT)
    assert data is not None
    other = SimDisk(Random(4))
    One(other, threshold=100).say("a", "b")
    save_durably(other, SNAPSHOT, data)
    again = One(other, threshold=100)
    again.say("x")
    assert again.words.words == ["a", "b", "x"]


def test_a_snapshot_that_can_not_be_saved_is_tried_later(disk: SimDisk) -> None:
    one = One(disk)
    one.full = True
    one.say("a", "b", "c", "d")
    assert disk.read(SNAPSHOT) is None and any("a start has more to read" in note for note in one.notes)
    one.full = False
    one.say("e", "f")
    assert disk.read(SNAPSHOT) is not None


def test_one_snapshot_at_a_time_is_on_its_way_to_the_disk(disk: SimDisk) -> None:
    """Whatever comes meanwhile; the next one is made of so many entries behind the one that was kept."""
    one = One(disk)
    one.slow = slow = []
    one.say(*"abcdefgh")
    (save,) = slow
    make_durable(disk, save)
    one._carry_out(save.then)
    one.say("i")
    assert [json.loads(data.partition(b"\n")[2])[-1] for data in (effect.data for effect in slow)] == ["c", "i"]


def test_a_log_without_its_beginning_needs_a_snapshot(disk: SimDisk) -> None:
    one = One(disk, threshold=1_000)
    one.say(*("x" * 300 for _ in range(8)))
    log = one.raft.log
    assert isinstance(log, FileLog) and len(log.data.starts) > 1
    log.data.remove(log.data.starts[0])
    with pytest.raises(StoreError, match="no snapshot has what was before"):
        One(disk)
