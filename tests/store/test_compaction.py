"""Compacted topics: what stays of each key, over compactions, stops, crashes, cuts, and removals of the log."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from perseid.base.errors import CorruptLog
from perseid.sim.disk import SimDisk
from perseid.store.batch_queue import UNIT
from perseid.store.compaction.parts import END_UNIT, LOGS, UNITS, sizes
from perseid.store.compaction.queue import CompactedQueue, Positions
from perseid.store.replica import Replica
from perseid.store.results import ReadStatus
from perseid.store.store import MessageStore
from perseid.wire.record import BLANK_MAGIC, decode_all, size_and_magic

from .harness import HOST, Node, message

TOPIC = "C"
INTERVAL_MS = 60_000
ON: dict[str, Any] = {
    "compaction_cq_mapped_file_size": 46 * 8,
    "compaction_mapped_file_size": 46 * 8 * 5,
    "compaction_schedule_internal": INTERVAL_MS,
}


class CompactNode(Node):
    """A store one of whose topics is compacted."""

    def __init__(self, seed: int = 0, disk: SimDisk | None = None, **settings: Any) -> None:
        super().__init__(seed, disk, **{**ON, **settings})
        self.sent: list[tuple[str, bytes]] = []

    def load(self) -> Any:
        self.effects.clear()
        self.store = MessageStore(self.disk, self.config, HOST)
        self.store.compaction.topics = {TOPIC}
        report = self.store.load(self.now)
        self.store.validate()
        return report

    def put(self, key: str, body: bytes | None = None) -> None:
        body = b"%s %d" % (key.encode(), len(self.sent)) if body is None else body
        self.now += 100
        self.store.appends.append(message(TOPIC, body, KEYS=key, TAGS="t"), self.now)
        self.sent.append((key, body))

    @property
    def queue(self) -> CompactedQueue:
        return self.store.compaction.queues[TOPIC, 0]

    def read(self, offset: int = 0) -> list[tuple[int, str, bytes]]:
        """(offset, key, body) of all that a reader gets from an offset on."""
        found: list[tuple[int, str, bytes]] = []
        while True:
            read = self.store.reads.read(TOPIC, 0, offset, 32, 1 << 20)
            if read.status != ReadStatus.FOUND:
                assert read.status in (ReadStatus.OFFSET_OVERFLOW_ONE, ReadStatus.NO_MESSAGE_IN_QUEUE), read
                return found
            records = decode_all(b"".join(read.buffers))
            assert records and read.next_offset == records[-1].queue_offset + 1
            found += [(one.queue_offset, one.keys[0], one.body) for one in records]
            offset = read.next_offset

    def check(self) -> None:
        """Of each key the last message can be read, unless it is empty; nothing that was not sent; offsets ascend."""
        found = self.read()
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets))
        assert all(self.sent[offset] == (key, body) for offset, key, body in found)
        last = {key: offset for offset, (key, _) in enumerate(self.sent)}
        there = set(offsets)
        assert {o for o in last.values() if self.sent[o][1]} <= there

    def compact(self) -> None:
        self.pass_time(2 * INTERVAL_MS + 10_000)

    def files(self) -> list[str]:
        return self.disk.list(f"{LOGS}/{TOPIC}/0")


def filled(seed: int = 0, count: int = 60, keys: int = 7, **settings: Any) -> CompactNode:
    node = CompactNode(seed, **settings)
    node.load()
    random = Random(seed)
    for _ in range(count):
        node.put(f"k{random.randrange(keys)}")
    node.pass_time(10_000)
    return node


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ((100 << 20, 10 << 20), (104_857_460, 10_485_746)),
        ((4096, 4096), (20_470, 4_094)),
        ((1840, 368), (2208, 368)),
    ],
)
def test_sizes_are_those_of_the_original(given: tuple[int, int], made: tuple[int, int]) -> None:
    assert sizes(*given) == made


def test_everything_is_read_before_a_compaction_and_the_last_of_each_key_after_it() -> None:
    node = filled()
    assert [offset for offset, _, _ in node.read()] == list(range(60))
    before = node.files()
    node.compact()
    assert len(node.files()) < len(before) and f"{0:020d}" in node.files()
    assert len(node.read()) < 60
    node.check()
    last = max(part.last for part in node.queue.parts.all[:-1])
    kept = [key for offset, key, _ in node.read() if offset <= last]
    assert len(kept) == len(set(kept)), "each key once in what was compacted"
    node.store.validate()


def test_the_files_are_the_originals() -> None:
    node = filled(count=12)
    log = node.disk.read(f"{LOGS}/{TOPIC}/0/{0:020d}")
    units = node.disk.read(f"{UNITS}/{TOPIC}/0/{0:020d}")
    assert log is not None and units is not None and len(log) == 46 * 8 * 6 and len(units) == 46 * 8
    count = node.queue.parts.all[0].count
    at = 0
    for number in range(count):
        unit = UNIT.unpack_from(units, 46 * number)
        (record,) = decode_all(log[at : at + unit[1]])
        assert (record.physical_offset, record.queue_offset) == (at, number) == (unit[0], unit[4])
        assert unit[3:] == (record.store_timestamp, number, 1, -1, 0)
        at += unit[1]
    assert size_and_magic(log, at) == (len(log) - at, BLANK_MAGIC)
    assert units[46 * count : 46 * (count + 1)] == END_UNIT


def test_an_empty_body_takes_its_key_away() -> None:
    node = filled(keys=3)
    node.put("k0", b"")
    for _ in range(20):
        node.put("other")
    node.compact()
    assert "k0" not in [key for _, key, _ in node.read()]
    assert {"k1", "k2", "other"} <= {key for _, key, _ in node.read()}
    node.check()


def test_messages_without_a_key_are_not_there() -> None:
    node = CompactNode()
    node.load()
    node.put("a")
    node.store.appends.append(message(TOPIC, b"no key"), node.now)
    node.sent.append(("", b""))
    node.put("b")
    assert [offset for offset, _, _ in node.read()] == [0, 2]


def test_bounds_and_offsets_between_what_is_there() -> None:
    node = filled()
    node.compact()
    first = node.read()[0][0]
    assert first > 0
    read = node.store.reads.read(TOPIC, 0, 0, 1, 1 << 20)
    assert (read.status, read.min_offset, read.max_offset, read.next_offset) == (ReadStatus.FOUND, first, 60, first + 1)
    read = node.store.reads.read(TOPIC, 0, 61, 1, 1 << 20)
    assert (read.status, read.next_offset) == (ReadStatus.OFFSET_OVERFLOW_BADLY, 60)
    assert node.store.reads.read(TOPIC, 5, 0, 1, 1 << 20).status == ReadStatus.NO_MATCHED_LOGIC_QUEUE
    reads = node.store.reads
    assert (reads.min_offset(TOPIC, 0), reads.max_offset(TOPIC, 0)) == (0, 60), "those of its consume queue"


def test_compactions_follow_each_other_and_the_position_is_saved() -> None:
    node = filled()
    for round_ in range(4):
        node.compact()
        node.check()
        text = node.disk.read(Positions.PATH)
        assert text is not None and json.loads(text) == {"queueOffsetMap": {f"{TOPIC}_0": node.queue.position}}
        for _ in range(15):
            node.put(f"k{round_}")
    node.pass_time(10_000)
    for end in (node.stop, node.kill):
        end()
        node.load()
        node.check()


def test_a_map_that_is_full_compacts_a_part() -> None:
    node = filled(count=400, keys=150, max_offset_map_size=1)
    node.compact()
    assert 0 <= node.queue.position < 399
    node.check()
    for _ in range(6):
        node.compact()
    node.check()


def test_the_log_is_kept_until_it_is_durable_here_and_then_it_goes() -> None:
    node = filled(file_reserved_time=0)
    for _ in range(30):
        node.put("late")
    node.store.retention.delete_now(node.now + 3_600_000)
    node.now += 3_600_000
    node.pass_time(120_000)
    assert node.store.log.start > 0, "old files of the log are gone"
    node.check()
    node.kill()
    node.load()
    node.check()


def test_power_cuts_at_any_time() -> None:
    for seed in range(60):
        node = filled(seed, count=30)
        random = Random(seed)
        for _ in range(30):
            node.put(f"k{random.randrange(7)}")
            if random.random() < 0.2:
                node.pass_time(random.choice((1_500, 6_000, 70_000)))
        node.flush()
        node.settle()
        node.read()  # taken from the log, and durable there only
        node.cut_power()
        node.load()
        node.check()
        node.put("after")
        node.compact()
        node.check()
        node.kill()
        node.load()
        node.check()


@pytest.mark.parametrize("old_files_go", [False, True])
def test_what_the_log_lost_with_the_power_goes_here_too(old_files_go: bool) -> None:
    """Found by a seed (broker 529592250074): files of compacted topics became durable before the log did, which then
    lost its end; readers got what had been at an offset, and later another message there."""
    shorter = 0
    for seed in range(30):
        node = filled(seed, file_reserved_time=0)
        if old_files_go:
            node.store.retention.delete_now(node.now + 3_600_000)
            node.now += 3_600_000
            node.pass_time(120_000)
            assert node.store.reads.min_offset(TOPIC, 0) > 0
        node.flush()
        node.settle()
        for _ in range(10):
            node.put("late")
        node.read()  # what follows makes the compacted files durable, and the log not
        node.store.compaction._flush_at = node.now
        node.effects.extend(node.store.compaction.tick(node.now + 2_000))
        node.settle()
        node.cut_power()
        node.load()
        end = node.store.reads.max_offset(TOPIC, 0)
        shorter += end < len(node.sent)
        del node.sent[end:]
        node.check()
        for _ in range(3):
            node.put("new")
        node.check()
        node.flush()
        node.pass_time(10_000)
        node.kill()
        node.load()
        node.check()
    assert shorter > 5, "power cuts took something"


def test_what_the_log_lost_with_its_whole_queue_goes_here_too() -> None:
    """Found by a seed: the log had lost all messages of a queue, and with them the queue; the next ones had the offsets
    of those that compacted files still had, and were never read."""
    lost = 0
    for seed in range(30):
        node = CompactNode(seed)
        node.load()
        for _ in range(5):
            node.put("lost")
        node.read()  # what follows makes the compacted files durable, and the log not
        node.effects.extend(node.store.compaction.tick(node.now + 2_000))
        node.settle()
        node.cut_power()
        node.load()
        lost += node.store.queues.get(TOPIC, 0) is None
        del node.sent[node.store.reads.max_offset(TOPIC, 0) :]
        node.check()
        for _ in range(3):
            node.put("new")
        node.check()
        node.flush()
        node.pass_time(10_000)
        node.kill()
        node.load()
        node.check()
    assert lost > 5, "power cuts took whole queues"


@pytest.mark.parametrize("seed", range(6))
def test_a_compaction_that_is_cut_off_after_any_step(seed: int) -> None:
    """By a power cut, or by the end of the process."""
    for steps in range(40):
        node = filled(seed, keys=30)  # so that most of the last messages stand in old pairs
        node.put("late")
        node.flush()
        node.settle()
        node.now = node.queue.due + 1
        for _ in range(steps):
            if not node.effects:
                node.effects.extend(node.store.tick(node.now))
            node.step()
        done = node.queue.position >= 0 and node.queue.state == "idle"
        (node.cut_power if seed else node.kill)()
        node.load()
        node.check()
        node.put("after")
        node.compact()
        node.check()
        if done:
            assert steps > 8
            return
    raise AssertionError("the compaction never ended")


def test_the_log_stays_while_nothing_is_durable_here() -> None:
    node = CompactNode(file_reserved_time=0)
    node.load()
    node.store.compaction._flush_at = 1 << 60  # nothing becomes durable
    for number in range(60):
        node.put(f"k{number % 7}")
    for kept in (True, False):
        node.store.retention.delete_now(node.now + 3_600_000)
        node.now += 3_600_000
        node.pass_time(30_000)
        assert (node.store.log.start == 0) == kept
        node.store.compaction._flush_at = node.now
        node.pass_time(10_000)
    node.cut_power()
    node.load()
    node.check()


def test_a_cut_takes_what_follows() -> None:
    node = filled()
    unit = node.store.reads.unit(TOPIC, 0, 50)
    assert unit is not None
    node.effects.extend(node.store.truncation.begin(unit.physical_offset, []))
    node.settle()
    del node.sent[50:]
    node.check()
    node.put("new")
    node.pass_time(2_000)
    node.check()
    assert node.read()[-1][0] == 50


@pytest.mark.parametrize("under_way", [False, True])
def test_nothing_is_taken_after_a_cut_until_the_table_knows_of_it(under_way: bool) -> None:
    """A start after a crash would believe the table, and new messages have the offsets of those that went."""
    node = filled()
    if under_way:
        node.put("late")
        node.store.compaction._flush_at = node.now
        flush, *rest = node.store.tick(node.now + 2_000)
        assert node.store.compaction._flushing
    unit = node.store.reads.unit(TOPIC, 0, 20)
    assert unit is not None
    node.effects.extend(node.store.truncation.begin(unit.physical_offset, []))
    node.settle()
    del node.sent[20:]
    for _ in range(15):
        node.put("new")
    assert [offset for offset, _, _ in node.read()][-1] < 20, "read before the table knows"
    if under_way:
        node.effects.extend([flush, *rest])
        node.settle()
    node.now += 2_000
    node.effects.extend(node.store.tick(node.now))
    node.flush()
    node.settle()
    node.read()
    node.cut_power()
    node.load()
    node.check()


@pytest.mark.parametrize("killed", [False, True])
def test_no_position_stays_behind_what_a_cut_left(killed: bool) -> None:
    """An empty message that comes there would count as mapped: it would go, and not take its key away."""
    node = filled()
    node.compact()
    assert node.queue.position > 5
    unit = next(unit for _, unit in node.queue.parts.units_from(5))
    at = node.store.reads.unit(TOPIC, 0, unit.base)
    assert at is not None
    node.effects.extend(node.store.truncation.begin(at.physical_offset, []))
    node.settle()
    if killed:
        node.kill()
        node.load()
    else:
        node.pass_time(2_000)
        for _ in range(60):
            node.put("new")
        node.stop()
        node.load()
        assert node.queue.taken > 60
    assert node.queue.position < unit.base


def test_a_deleted_topic_begins_anew() -> None:
    node = filled()
    node.compact()
    node.effects.extend(node.store.delete_topic(TOPIC))
    node.settle()
    assert node.files() == []
    node.sent.clear()
    for _ in range(40):
        node.put("k")
    node.compact()
    node.check()
    assert len(node.read()) < 40, "its old position counts for nothing"


def test_a_turn_looks_at_so_much_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseid.store.compaction.queue.STEP_BYTES", 400)
    node = filled()
    node.now = node.queue.due
    steps = 0
    while node.queue.position < 0:
        node.effects.extend(node.store.tick(node.now))
        node.settle()
        steps += 1
        assert steps < 500
    assert steps > 20
    node.check()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"C_0":"x"}', b'{"C_0":null}', b"\xff" * 99, b'{"C_0":-5}', b"7"])
@pytest.mark.parametrize("path", ["compaction/perseid-durable", Positions.PATH])
def test_small_files_that_can_not_be_read(path: str, text: bytes) -> None:
    node = filled()
    node.kill()
    node.disk.write(path, text)
    node.load()
    node.check()
    node.compact()
    node.check()


@pytest.mark.parametrize("text", [b"", b"{}", b'{"old":[0],"new":["x"]}', b'{"old":[0],"new":null}', b"\0" * 40])
def test_a_list_that_can_not_be_read_stops_the_start(text: bytes) -> None:
    node = filled()
    node.kill()
    node.disk.write(f"{LOGS}/{TOPIC}/0/compacting/perseid-list", text)
    with pytest.raises(CorruptLog, match="list of a compaction"):
        node.load()


def test_a_file_of_another_size_stops_the_start() -> None:
    node = filled()
    node.stop()
    other = CompactNode(disk=node.disk, compaction_cq_mapped_file_size=46 * 9)
    with pytest.raises(CorruptLog, match="compaction"):
        other.load()


def test_a_missing_file_stops_a_start_after_a_clean_stop() -> None:
    node = filled()
    node.stop()
    node.disk.remove(f"{UNITS}/{TOPIC}/0/{0:020d}")
    with pytest.raises(CorruptLog, match="missing"):
        node.load()


def test_a_slave_compacts_what_it_gets() -> None:
    node = filled()
    slave = CompactNode(disk=SimDisk(Random(9)))
    slave.load()
    replica = Replica(slave.store)
    size = node.config.commit_log_file_bytes
    for start in range(0, node.store.log.end, size):
        part = bytes(node.store.log.segments.view(start, min(size, node.store.log.end - start)))
        replica.expect(start, len(part))
        replica.take(memoryview(part))
        replica.write()
    slave.sent = node.sent
    slave.now = node.now
    assert slave.read() == node.read()
    for name in node.files():
        for folder in (LOGS, UNITS):
            path = f"{folder}/{TOPIC}/0/{name}"
            assert slave.disk.read(path) == node.disk.read(path)
    slave.compact()
    slave.check()
    assert len(slave.read()) < 60


def test_with_another_switch_it_is_a_topic_like_others() -> None:
    node = filled(enable_compaction=False)
    assert node.disk.list("compaction") == []
    assert [offset for offset, _, _ in node.read()] == list(range(60))


def test_what_a_clean_stop_left_survives_a_power_cut() -> None:
    """The next start looks at nothing twice: all of it was promised."""
    for seed in range(10):
        node = CompactNode(seed)
        node.load()
        for number in range(30):
            node.put(f"k{number % 7}")
        node.pass_time(100)
        node.put("last")
        node.stop()
        node.cut_power()
        assert node.load().clean
        assert node.queue.taken == 31
        node.check()
