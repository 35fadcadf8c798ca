"""Batch consume queues: units of several messages, over stops, crashes, cuts, removals, and on a slave."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from perseid.sim.disk import SimDisk
from perseid.store import checkpoint as checkpoints
from perseid.store import inner
from perseid.store.batch_queue import UNIT, BatchQueue, BatchUnit
from perseid.store.checkpoint import Checkpoint
from perseid.store.replica import Replica
from perseid.store.results import Appended, ReadStatus
from perseid.store.simple_queue import SimpleQueue
from perseid.store.store import MessageStore
from perseid.wire import batch
from perseid.wire import properties as props
from perseid.wire.inner import unwrap
from perseid.wire.record import SYS_INNER_BATCH, SYS_NEED_UNWRAP, Message, Record, decode_all

from .harness import HOST, START, Node, message

TOPIC = "B"
FILE_BYTES = 46 * 5
WRAPPED = SYS_INNER_BATCH | SYS_NEED_UNWRAP


class BatchNode(Node):
    """A store one of whose topics has batch consume queues."""

    def __init__(self, seed: int = 0, disk: SimDisk | None = None, **settings: Any) -> None:
        super().__init__(seed, disk, batch_consume_queue_file_bytes=FILE_BYTES, **settings)
        self.next = 0

    def load(self) -> Any:
        self.effects.clear()
        self.store = MessageStore(self.disk, self.config, HOST)
        self.store.queues.batch_topics = {TOPIC}
        report = self.store.load(self.now)
        self.store.validate()
        return report

    def put(self, count: int = 1, **properties: str) -> Appended:
        """Store the next `count` messages: in one record when there are several."""
        self.now += 1_000
        numbers = range(self.next, self.next + count)
        self.next += count
        if count == 1:
            return self.store.appends.append(message(TOPIC, b"%d" % numbers[0] + bytes(90), **properties), self.now)
        body = batch.encode([(0, b"%d" % n + bytes(30), b"") for n in numbers])
        sent = message(TOPIC, body, sys_flag=WRAPPED, INNER_NUM=str(count), **properties)
        return self.store.appends.append(sent, self.now)

    @property
    def queue(self) -> BatchQueue:
        queue = self.store.queues.get(TOPIC, 0)
        assert isinstance(queue, BatchQueue)
        return queue

    def messages(self) -> list[int]:
        """What readers get from the first offset on, message by message."""
        return [int(record.body.rstrip(b"\0")) for record in self.unwrapped()]

    def unwrapped(self) -> list[Record]:
        store, found = self.store, list[Record]()
        offset = store.reads.min_offset(TOPIC, 0)
        while offset < store.reads.max_offset(TOPIC, 0):
            read = store.reads.read(TOPIC, 0, offset, 32, 1 << 20)
            records = decode_all(b"".join(read.buffers))
            assert read.next_offset > offset
            found += [one for record in records for one in unwrap(record)]
            assert read.count == sum(len(unwrap(record)) for record in records)
            offset = read.next_offset
        assert [one.queue_offset for one in found] == list(
            range(store.reads.min_offset(TOPIC, 0), store.reads.max_offset(TOPIC, 0))
        )
        return found


COUNTS = (3, 1, 5, 2, 1, 1, 4, 2, 7, 1, 3, 2)


def filled(seed: int = 0, **settings: Any) -> BatchNode:
    node = BatchNode(seed, **settings)
    node.load()
    for number, count in enumerate(COUNTS):
        node.put(count)
        node.store.appends.append(message("T", b"%d" % number), node.now)
    node.flush()
    node.settle()
    return node


TOTAL = sum(COUNTS)


def test_a_unit_has_46_bytes_and_says_all() -> None:
    unit = BatchUnit(1, 2, -3, 4, 5, 6)
    assert UNIT.size == 46
    assert UNIT.pack(*unit).hex() == (
        "000000000000000100000002fffffffffffffffd000000000000000400000000000000050006ffffffff00000000"
    )


def test_messages_get_offsets_by_their_number() -> None:
    node = filled()
    assert node.messages() == list(range(TOTAL))
    assert [node.queue.batch(n).messages for n in range(len(COUNTS))] == list(COUNTS)  # type: ignore[union-attr]
    assert (node.store.reads.min_offset(TOPIC, 0), node.store.reads.max_offset(TOPIC, 0)) == (0, TOTAL)
    assert node.disk.list(f"batchconsumequeue/{TOPIC}/0") == [f"{n * FILE_BYTES:020d}" for n in range(3)]
    assert node.disk.list("consumequeue") == ["T/"]
    record = decode_all(node.store.reads.record(TOPIC, 0, 3))  # type: ignore[arg-type]
    assert (record[0].queue_offset, record[0].props) == (3, {}), "one that comes alone says nothing"
    record = decode_all(node.store.reads.record(TOPIC, 0, 5))  # type: ignore[arg-type]
    assert (record[0].queue_offset, record[0].props["INNER_NUM"], record[0].props["INNER_BASE"]) == (4, "5", "4")


def test_a_read_begins_with_the_record_that_holds_the_offset() -> None:
    node = filled()
    read = node.store.reads.read(TOPIC, 0, 6, 32, 1 << 20)
    assert (read.status, decode_all(b"".join(read.buffers))[0].queue_offset) == (ReadStatus.FOUND, 4)
    for offset, status, next_offset in (
        (TOTAL, ReadStatus.OFFSET_OVERFLOW_ONE, TOTAL),
        (TOTAL + 1, ReadStatus.OFFSET_OVERFLOW_BADLY, TOTAL),
        (-1, ReadStatus.OFFSET_TOO_SMALL, 0),
    ):
        read = node.store.reads.read(TOPIC, 0, offset, 32, 1 << 20)
        assert (read.status, read.next_offset) == (status, next_offset)


def test_an_answer_has_whole_records_within_its_limit_but_at_least_one() -> None:
    node = filled()
    assert [node.store.reads.read(TOPIC, 0, 0, most, 1 << 20).count for most in (1, 3, 4, 8, 9)] == [3, 3, 4, 4, 9]
    assert node.store.reads.read(TOPIC, 0, 0, 32, 1).count == 3, "bytes too"


def test_tags_and_records_are_asked_for() -> None:
    node = BatchNode()
    node.load()
    node.put(2, TAGS="a")
    node.put(2, TAGS="b")
    unit = node.store.reads.unit(TOPIC, 0, 2)
    assert unit is not None
    read = node.store.reads.read(TOPIC, 0, 0, 32, 1 << 20, wanted=lambda code: code == unit.tag_code)
    assert (read.count, read.next_offset) == (2, 4)
    read = node.store.reads.read(TOPIC, 0, 0, 32, 1 << 20, wanted_record=lambda record: False)
    assert (read.status, read.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 4)


def test_search_by_time() -> None:
    node = filled()
    bases = [sum(COUNTS[:n]) for n in range(len(COUNTS))]
    for number, base in enumerate(bases):
        at = START + 1_000 * (number + 1)
        assert node.store.reads.offset_by_time(TOPIC, 0, at) == base
        assert node.store.reads.offset_by_time(TOPIC, 0, at, upper=True) == base
        assert node.store.reads.store_time(TOPIC, 0, base) == at
    assert node.store.reads.offset_by_time(TOPIC, 0, START + 1_500) == bases[1]
    assert node.store.reads.offset_by_time(TOPIC, 0, START + 1_500, upper=True) == bases[0]
    assert node.store.reads.offset_by_time(TOPIC, 0, 0) == 0
    assert node.store.reads.offset_by_time(TOPIC, 0, START * 2) == bases[-1], "the last one, as in the original"


def test_a_delayed_message_comes_as_one_that_was_sent_alone() -> None:
    node = filled()
    done = node.put(TAGS="late")
    assert done.queue_offset == TOTAL and node.messages()[-1] == TOTAL


def test_stops_and_kills_change_nothing() -> None:
    node = filled()
    for end in (node.stop, node.kill, node.kill):
        end()
        node.load()
        assert node.messages() == list(range(node.next))
        assert node.put(2).queue_offset == node.next - 2
    node.store.validate()


@pytest.mark.parametrize(
    "lost", ["batchconsumequeue", f"batchconsumequeue/{TOPIC}/0", f"batchconsumequeue/{TOPIC}/0/{FILE_BYTES:020d}"]
)
def test_lost_queues_come_back_from_the_log(lost: str) -> None:
    node = filled()
    node.kill()
    node.disk.remove(lost)
    node.disk.write("checkpoint", checkpoints.encode(Checkpoint(0, 0)))  # nothing is known to be durable
    node.load()
    assert node.messages() == list(range(TOTAL))
    assert node.put(4).queue_offset == TOTAL


def test_power_cuts_leave_what_was_flushed_and_nothing_that_was_not_sent() -> None:
    for seed in range(40):
        node = filled(seed)
        random = Random(seed)
        for number in range(9):
            node.put(random.choice((1, 1, 2, 6)))
            if number == 4:
                node.flush()
                node.settle()
                durable = node.next
            if random.random() < 0.2:
                node.pass_time(3_000)
                durable = max(durable, node.next) if number > 4 else 0
        node.cut_power()
        node.load()
        found = node.messages()
        assert found == list(range(len(found))) and len(found) >= durable, seed
        node.next = len(found)
        node.put(3)
        assert node.messages() == list(range(node.next))
        node.store.validate()
        node.kill()
        node.load()
        assert node.messages() == list(range(node.next)), seed


def test_cuts() -> None:
    for keep in range(len(COUNTS)):
        node = filled()
        unit = node.queue.batch(keep)
        assert unit is not None
        node.effects.extend(node.store.truncation.begin(unit.physical_offset, []))
        node.settle()
        node.next = sum(COUNTS[:keep])
        assert node.store.reads.max_offset(TOPIC, 0) == node.next
        assert node.put(2).queue_offset == node.next - 2
        assert node.messages() == list(range(node.next))
        node.store.validate()
        node.kill()
        node.load()
        assert node.messages() == list(range(node.next)), keep


def test_old_files_go_with_the_log() -> None:
    node = filled(file_reserved_time=0)
    node.store.retention.delete_now(node.now + 3_600_000)
    node.now += 3_600_000
    node.pass_time(60_000)
    start, low = node.store.log.start, node.store.reads.min_offset(TOPIC, 0)
    assert start > 0 < low
    unit = node.store.reads.unit(TOPIC, 0, low)
    assert unit is not None and unit.physical_offset >= start
    assert len(node.disk.list(f"batchconsumequeue/{TOPIC}/0")) < 3
    assert node.messages() == list(range(low, TOTAL))
    for end in (node.stop, node.kill):
        end()
        node.load()
        assert node.messages() == list(range(low, node.next))
        node.put(2)


def test_a_deleted_topic_comes_back_empty_and_of_either_kind() -> None:
    node = filled()
    node.effects.extend(node.store.delete_topic(TOPIC))
    node.settle()
    assert node.disk.list("batchconsumequeue") == []
    node.next = 0
    node.put(2)
    node.kill()
    node.load()
    assert node.messages() == [0, 1]
    node.effects.extend(node.store.delete_topic(TOPIC))
    node.settle()
    node.store.queues.batch_topics = frozenset()
    node.store.appends.append(message(TOPIC, b"plain"), node.now)
    node.kill()
    plain = Node(disk=node.disk)
    plain.load()
    assert plain.bodies(TOPIC) == [b"plain"] and type(plain.store.queues.get(TOPIC, 0)) is SimpleQueue


def test_a_batch_that_is_split_has_a_unit_for_each_message() -> None:
    node = filled()
    done = node.store.appends.append_batch([message(TOPIC, b"%d" % (TOTAL + n)) for n in range(3)], node.now)
    assert [one.queue_offset for one in done] == [TOTAL, TOTAL + 1, TOTAL + 2]
    assert node.messages() == list(range(TOTAL + 3))
    node.kill()
    node.load()
    assert node.messages() == list(range(TOTAL + 3))


@pytest.mark.parametrize("known", [False, True], ids=["topic_not_known", "topic_known"])
@pytest.mark.parametrize("first", [1, 2], ids=["alone_first", "batch_first"])
def test_a_start_without_queues_builds_the_same(known: bool, first: int) -> None:
    """A queue of single messages becomes one of batches when a batch comes whose topic nobody knew."""
    node = BatchNode()
    node.load()
    for count in (first, 1, 3, 1, 1, 2):
        node.put(count)
    before = [node.queue.batch(n) for n in range(6)]
    node.kill()
    node.disk.remove("batchconsumequeue")
    node.effects.clear()
    node.store = MessageStore(node.disk, node.config, HOST)
    if known:
        node.store.queues.batch_topics = {TOPIC}
    node.store.load(node.now)
    node.store.validate()
    assert [node.queue.batch(n) for n in range(6)] == before
    assert node.messages() == list(range(node.next))


@pytest.mark.parametrize(
    ("number", "base", "span"),
    [
        ("3", "7", (7, 3)),
        ("32767", "0", (0, 32_767)),
        ("32768", "0", None),
        ("0", "0", None),
        ("-1", "0", None),
        ("3", "-1", None),
        ("3", "1001", None),  # so many messages don't fit before it
        ("3", "", None),
        ("", "3", None),
        ("x", "3", None),
        ("٣", "3", None),
        ("9" * 1_500, "3", None),
    ],
)
def test_what_a_record_may_say(number: str, base: str, span: tuple[int, int] | None) -> None:
    node = BatchNode()
    node.load()
    done = node.store.appends.append(message("T", b"x", INNER_NUM=number, INNER_BASE=base), node.now)
    record = decode_all(node.store.reads.record_at(done.physical_offset))[0]  # type: ignore[arg-type]
    record.physical_offset = 22 * 1_000
    assert inner.span(record) == span
    assert inner.count_of(props.encode({"INNER_NUM": number})) == (int(number) if span or number == "3" else 1)


def test_a_gated_store_shows_whole_batches_when_they_are_confirmed() -> None:
    node = BatchNode()
    store = MessageStore(SimDisk(Random(5)), node.config, HOST, gated=True)
    store.queues.batch_topics = {TOPIC}
    store.load(START)
    body = batch.encode([(0, b"x", b"")] * 3)
    many: Message = message(TOPIC, body, sys_flag=WRAPPED, INNER_NUM="3")
    first = store.appends.append(many, START)
    store.appends.append(message(TOPIC, b"one"), START)
    assert store.reads.max_offset(TOPIC, 0) == 0
    store.flusher.confirm(first.physical_offset + first.size)
    assert store.reads.max_offset(TOPIC, 0) == 3
    store.flusher.confirm(store.log.end)
    assert store.reads.max_offset(TOPIC, 0) == 4
    store.validate()


@pytest.mark.parametrize("step", [1, 61, 100_000])
def test_a_slave_has_the_same_units(step: int) -> None:
    node = filled()
    slave = BatchNode(disk=SimDisk(Random(9)))
    slave.load()
    slave.store.queues.batch_topics = frozenset()  # it has not copied the topics yet: each record says what it is
    replica = Replica(slave.store)
    size = node.config.commit_log_file_bytes
    for start in range(0, node.store.log.end, size):
        end = min(start + size, node.store.log.end)
        for at in range(start, end, step):
            part = bytes(node.store.log.segments.view(at, min(step, end - at)))
            replica.expect(at, len(part))
            replica.take(memoryview(part))
            replica.write()
    assert slave.messages() == list(range(TOTAL))
    for name in node.disk.list(f"batchconsumequeue/{TOPIC}/0"):
        path = f"batchconsumequeue/{TOPIC}/0/{name}"
        assert slave.disk.read(path) == node.disk.read(path)
    slave.store.validate()
    slave.kill()
    slave.load()
    assert slave.messages() == list(range(TOTAL))


def _follow(slave: BatchNode, master: BatchNode, end: int) -> None:
    """Give a slave what it lacks of a log, up to `end`."""
    size = master.config.commit_log_file_bytes
    replica = Replica(slave.store)
    while slave.store.log.end < end:
        at = slave.store.log.end
        part = bytes(master.store.log.segments.view(at, min(end, at - at % size + size) - at))
        replica.expect(at, len(part))
        replica.take(memoryview(part))
        replica.write()
        while replica.waits:
            slave.pass_time(10)
            replica.write()


def test_a_topic_made_again_by_a_record_that_goes_with_the_power() -> None:
    """A start finds the old units, and the record, which comes once more, begins the queue anew."""
    node = BatchNode()
    node.load()
    for count in (3, 1, 2):
        node.put(count)
    end = node.store.log.end
    node.store.delete_topic(TOPIC)
    node.put(1)
    back = 0
    for seed in range(20):
        slave = BatchNode(disk=SimDisk(Random(seed)))
        slave.load()
        _follow(slave, node, end)
        slave.flush()
        slave.pass_time(5_000)
        _follow(slave, node, node.store.log.end)
        slave.cut_power()
        slave.load()
        back += slave.messages() == [0, 1, 2, 3, 4, 5]
        assert slave.messages() in ([0, 1, 2, 3, 4, 5], [6])
        _follow(slave, node, node.store.log.end)
        assert slave.messages() == [6]
        slave.store.validate()
    assert 0 < back < 20


def test_a_queue_whose_first_record_went_with_the_power_is_gone() -> None:
    """A round was ahead of the log's flush."""
    gone = 0
    for seed in range(20):
        node = BatchNode(disk=SimDisk(Random(seed)))
        node.load()
        node.store.appends.append(message("T", bytes(90)), node.now)
        node.flush()
        node.pass_time(5_000)
        node.put(3)
        for file in node.store.flusher._begin_round(node.now)[0].files:  # type: ignore[union-attr]
            file.sync()
        node.cut_power()
        node.load()
        gone += node.store.queues.get(TOPIC, 0) is None
        node.next = 0
        node.put(2) if node.store.queues.get(TOPIC, 0) is None else None
        assert node.messages() in ([0, 1], [0, 1, 2])
    assert 0 < gone < 20


def test_a_slave_that_leads_before_it_knew_the_topic() -> None:
    node = BatchNode()
    node.load()
    node.store.queues.batch_topics = frozenset()
    for _ in range(3):
        node.put()
    assert type(node.store.queues.get(TOPIC, 0)) is SimpleQueue
    node.store.queues.batch_topics = {TOPIC}
    assert node.put(2).queue_offset == 3
    assert node.put().queue_offset == 5
    assert node.messages() == list(range(6)) and node.disk.list(f"consumequeue/{TOPIC}") == []
    node.store.validate()
    node.kill()
    node.load()
    assert node.messages() == list(range(6))
    node.store.queues.batch_topics = frozenset()
    assert node.store.appends.plain_queue(TOPIC, 0) is None
    assert node.put().queue_offset == 6, "a queue of batches stays one"
    assert node.messages() == list(range(7))
    node.store.validate()


def test_a_page_that_a_power_cut_spoilt_has_no_units_of_lost_records() -> None:
    """Found by a seed (broker 529592250139): behind the units of records that the log has, a power cut left bytes that
    point to where the log has no file any more. They were taken for an old record's, which no unit stands before."""
    node = BatchNode(file_reserved_time=1, delete_commit_log_files_interval=100)
    node.disk.now = node.now
    node.load()
    for _ in range(12):
        node.put(3)
        node.put()
        node.now += 3_600_000
        node.disk.now = node.now
    node.pass_time(10_000)
    node.store.retention.delete_now(node.now)
    node.pass_time(60_000)
    while node.queue.end % 5 in (0, 4):
        node.put()
    known, queue = node.messages(), node.queue
    segments = queue.segments
    place = queue.end * UNIT.size - segments.starts[-1]
    start = node.store.log.start
    assert start > 2_048 and len(known) > 3 and 0 < place < FILE_BYTES, (start, known, place)
    spoilt = BatchUnit(node.store.log.start - 300, 1_085_037_397, 7, 9, -2_614_252_488_656_220_718, 1_846, -1, -2)
    segments.file(segments.starts[-1]).write(place, UNIT.pack(*spoilt))
    node.kill()
    node.load()
    assert node.messages() == known


def test_a_topic_made_again_as_one_of_single_messages_is_one_after_a_crash() -> None:
    """Though the log has both, the batches first."""
    node = filled()
    node.put(2)
    node.effects.extend(node.store.delete_topic(TOPIC))
    node.store.queues.batch_topics = frozenset()
    for number in range(3):
        node.store.appends.append(message(TOPIC, b"%d" % number), node.now)
    node.kill()
    plain = Node(disk=node.disk)
    plain.load()
    assert plain.bodies(TOPIC) == [b"0", b"1", b"2"]
    assert type(plain.store.queues.get(TOPIC, 0)) is SimpleQueue
