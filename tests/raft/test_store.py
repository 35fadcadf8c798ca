"""A broker's store on the entries of a group: one member, whose appends are committed when they are durable."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.durable import make_durable

from perseid.base.machine import Effect, Event, Feed, Flush, SaveState, Start, Tick
from perseid.raft.config import RaftConfig
from perseid.raft.files import FileLog
from perseid.raft.node import Raft
from perseid.raft.store import CHECKPOINT_MS, GroupStore, divided_offset
from perseid.sim.disk import SimDisk
from perseid.store.config import StoreConfig
from perseid.store.results import AppendRefused, PutStatus, StoreEvent
from perseid.store.store import MessageStore
from perseid.wire.host import host_from
from perseid.wire.record import Message, decode, decode_all

NOW = 1_700_000_000_000
CONFIG = StoreConfig(commit_log_file_bytes=2_048, consume_queue_file_bytes=200, max_hash_slot_num=20, max_index_num=100)


def message(number: int, *, topic: str = "t", queue_id: int = 0, size: int = 10) -> Message:
    body = f"{number}.".encode().ljust(size, b"x")
    return Message(topic=topic, body=body, queue_id=queue_id, properties=f"KEYS\x01k{number}\x02".encode())


class One:
    """A group of one member, and its store. What it makes durable is carried out at once, unless `held`."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk, self.now = disk, NOW
        self.held: list[Flush | SaveState] | None = None
        config = RaftConfig(peers="n0-10.0.0.1:1", mapped_file_size_for_entry_data=2_048,
                            mapped_file_size_for_entry_index=3_200)  # fmt: skip
        self.entries = FileLog(disk, 2_048, 3_200, folder="dledger-n0/", base=divided_offset(disk, CONFIG))
        self.raft = Raft(config, self.entries, disk, Random(1), folder="dledger-n0/")
        self.store = GroupStore(disk, CONFIG, self.host(), self.raft, self.entries, lambda now: self.feed(Start()))
        self.raft.on_commit = self.store.log.committed
        self.report = self.store.load(NOW)
        for _ in range(100):
            self.turn(100)
            if self.raft.leader is not None:
                return
        raise AssertionError("nobody leads")

    @staticmethod
    def host() -> Any:
        return host_from("10.0.0.1:10911")

    def feed(self, event: Event) -> None:
        self.carry_out(self.raft.handle(event, self.now))

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Flush | SaveState):
                if self.held is not None:
                    self.held.append(effect)
                    continue
                make_durable(self.disk, effect)
                self.carry_out(effect.then)
            elif isinstance(effect, Feed) and isinstance(effect.event, StoreEvent):
                self.carry_out(self.store.handle(effect.event))
            elif isinstance(effect, Feed):
                self.feed(effect.event)  # type: ignore[arg-type]

    def turn(self, ms: int = 1) -> None:
        self.now += ms
        self.feed(Tick())
        self.store.log.follow_disk()
        assert not self.store.dispatch(self.now)
        self.carry_out(self.store.tick(self.now))
        self.store.validate()

    def put(self, *numbers: int, **more: Any) -> list[Any]:
        placed = [self.store.appends.append(message(n, **more), self.now) for n in numbers]
        self.turn()
        return placed

    def bodies(self, topic: str = "t", queue_id: int = 0) -> list[bytes]:
        bodies: list[bytes] = []
        while len(bodies) < self.store.reads.max_offset(topic, queue_id):  # an answer ends with a file of the queue
            found = self.store.reads.read(topic, queue_id, len(bodies), 100, 1 << 20)
            bodies += [record.body.rstrip(b"x") for record in decode_all(b"".join(found.buffers))]
        return bodies


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(7))


def test_a_message_stands_behind_the_head_of_its_entry(disk: SimDisk) -> None:
    one = One(disk)
    first, second = one.put(1, 2)
    assert first.physical_offset == 48 and second.physical_offset == 48 + first.size + 48
    assert (first.queue_offset, second.queue_offset) == (0, 1)
    assert one.bodies() == [b"1.", b"2."] and one.store.settled
    entry = one.raft.log.get(1)
    assert entry is not None and decode(entry.body).physical_offset == second.physical_offset == entry.pos + 48


def test_what_is_not_committed_is_not_read_and_has_its_queue_offset(disk: SimDisk) -> None:
    one = One(disk)
    one.put(1)
    one.held = []
    placed = one.put(2, 3)
    assert [p.queue_offset for p in placed] == [1, 2] and one.bodies() == [b"1."] and not one.store.settled
    assert one.store.reads.max_offset("t", 0) == 1
    held, one.held = one.held, None
    one.carry_out(held)  # type: ignore[arg-type]
    one.turn()
    assert one.bodies() == [b"1.", b"2.", b"3."]


def test_files_of_the_log_are_crossed(disk: SimDisk) -> None:
    one = One(disk)
    placed = [one.put(n, size=500)[0] for n in range(9)]
    assert len(one.entries.data.starts) == 3
    assert placed[3].physical_offset == 2_048 + 48, "the fourth does not fit into the first file"
    assert one.bodies() == [f"{n}.".encode() for n in range(9)]
    assert one.store.reads.query("t", "k5", 10, 0, 1 << 60).records


@pytest.mark.parametrize("crashed", [False, True])
def test_a_restart_finds_it_again(disk: SimDisk, crashed: bool) -> None:
    one = One(disk)
    for n in range(9):
        one.put(n, size=300, queue_id=n % 2)
    if crashed:
        disk.kill()
    else:
        one.carry_out(one.raft.end([]))
        assert one.store.close(one.now) == ""
    again = One(disk)
    assert again.report.clean is not crashed
    again.store.appends.learn_pending()  # after a crash some may not be known to be committed
    assert again.put(9, queue_id=1)[0].queue_offset == 4
    assert again.bodies(queue_id=0) == [f"{n}.".encode() for n in range(0, 9, 2)]


def test_a_batch_is_entries_next_to_one_another(disk: SimDisk) -> None:
    one = One(disk)
    placed = one.store.appends.append_batch([message(n) for n in range(3)], one.now)
    one.turn()
    assert [p.queue_offset for p in placed] == [0, 1, 2] and len(one.bodies()) == 3 and one.raft.log.end == 2
    with pytest.raises(AppendRefused, match="one topic"):
        one.store.appends.append_batch([message(1), message(2, queue_id=1)], one.now)
    with pytest.raises(AppendRefused, match="no messages"):
        one.store.appends.append_batch([], one.now)


def test_who_does_not_lead_refuses(disk: SimDisk) -> None:
    one = One(disk)
    one.raft.leader = None
    with pytest.raises(AppendRefused, match="NOT_LEADER") as refused:
        one.store.appends.append(message(1), one.now)
    assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE


def test_an_entry_that_no_file_holds_is_refused(disk: SimDisk) -> None:
    with pytest.raises(AppendRefused) as refused:
        One(disk).store.appends.append(message(1, size=2_000), NOW)
    assert refused.value.status is PutStatus.MESSAGE_ILLEGAL


def test_an_entry_that_is_no_message_is_passed_over(disk: SimDisk) -> None:
    one = One(disk)
    one.put(1)
    one.raft.append(b"anything", lambda code, entry: None)
    one.now += 1
    one.feed(Tick())
    assert "is no message" in one.store.dispatch(one.now)
    one.put(2)
    assert one.bodies() == [b"1.", b"2."]


def test_an_older_log_stays_in_front(disk: SimDisk) -> None:
    """The upgrade of a broker that had no group until now (dledger.md §9, dividedCommitlogOffset)."""
    old = MessageStore(disk, CONFIG, One.host())
    old.load(NOW)
    for n in range(9):
        old.appends.append(message(n, size=300), NOW)
    end = old.log.end
    assert old.close(NOW) == ""
    one = One(disk)
    divided = -(-end // 2_048) * 2_048
    assert one.store.log.divided == divided and one.entries.data.starts in ([], [divided])
    assert one.bodies() == [f"{n}.".encode() for n in range(9)]
    (placed,) = one.put(9)
    assert (placed.physical_offset, placed.queue_offset) == (divided + 48, 9)
    entry = one.raft.log.get(0)
    assert entry is not None and entry.pos == divided
    assert one.bodies()[-1] == b"9."
    disk.kill()
    again = One(disk)
    again.store.appends.learn_pending()
    assert again.put(10)[0].queue_offset == 10 and again.store.log.start == 0
    assert again.bodies() == [f"{n}.".encode() for n in range(11)]


def test_old_files_go_and_entries_with_them(disk: SimDisk) -> None:
    one = One(disk)
    for n in range(12):
        one.put(n, size=500)
    one.turn(70_000)  # queues are durable, and the checkpoint says so
    one.turn(2_000)
    one.store.retention.delete_now(one.now + 200 * 3_600_000)
    for _ in range(4):
        one.turn(100 * 3_600_000)
    assert one.entries.data.starts[0] > 0 and one.raft.log.begin > 0
    assert one.raft.log.get(one.raft.log.begin) is not None
    assert one.store.reads.min_offset("t", 0) == one.raft.log.begin


def test_a_queue_begins_anew_when_a_start_would_find_its_old_units_again(disk: SimDisk) -> None:
    """As at a follower of a broker that deleted the topic and made it again: an entry of queue offset 0 comes."""
    one = One(disk)
    one.put(0, 1, 2)
    one.turn(70_000)  # queues are durable, and the checkpoint says so
    one.turn(6_000)
    assert one.store.flusher.saved_replay_from == one.store.log.end
    one.store.appends._append_record(one.store.appends.encoded(message(3), one.now), 0, one.now)
    one.turn()
    assert one.bodies() == [b"0.", b"1.", b"2."] and one.store.behind
    assert one.store.flusher.saved_replay_from <= 48, "the place of the first of them"
    assert one.store.next_deadline() == one.now + CHECKPOINT_MS
    one.turn(CHECKPOINT_MS)
    assert one.bodies() == [b"3."] and one.store.settled
    one.turn(6_000)
    assert one.store.flusher.saved_replay_from == one.store.log.end


def test_no_more_is_flushed_than_there_is_for_readers(disk: SimDisk) -> None:
    """Entries are durable that wait for their place in a queue."""
    one = One(disk)
    one.put(0, 1, 2)
    one.turn(70_000)
    one.turn(6_000)
    one.held = []
    one.store.appends.append(message(3, queue_id=1), one.now)
    one.store.appends._append_record(one.store.appends.encoded(message(4), one.now), 0, one.now)
    held, one.held = one.held, None
    one.carry_out(held)
    one.turn()
    assert one.store.behind and one.bodies(queue_id=1) == [b"3."]
    one.store.log.follow_disk()
    assert one.store.log.flushed == one.store.log.end < one.entries.pos
    one.turn(CHECKPOINT_MS)
    one.turn()
    one.store.log.follow_disk()
    assert one.store.log.flushed == one.store.log.end == one.entries.pos
