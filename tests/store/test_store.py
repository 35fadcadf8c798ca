"""Appends: where they go, what is refused, what others are told."""

from __future__ import annotations

from itertools import pairwise

import pytest

from perseid.store.results import AppendRefused, PutStatus
from perseid.wire.record import BLANK_MAGIC, Message, decode, size_and_magic

from .harness import HOST, START, Node, message


@pytest.fixture
def node() -> Node:
    node = Node()
    node.load()
    return node


def test_an_append_is_seen_by_readers_at_once(node: Node) -> None:
    first = node.store.appends.append(message(body=b"one", TAGS="TagA"), START + 5)
    second = node.store.appends.append(message(body=b"two"), START + 6)
    assert (first.physical_offset, first.queue_offset, first.store_timestamp) == (0, 0, START + 5)
    assert (second.physical_offset, second.queue_offset) == (first.size, 1)
    assert node.bodies() == [b"one", b"two"]
    unit = node.store.reads.unit("T", 0, 0)
    assert unit is not None and unit == (0, first.size, 2598919)
    assert (node.store.log.start, node.store.log.flushed, node.store.log.end) == (0, 0, first.size + second.size)
    assert (node.store.reads.min_offset("T", 0), node.store.reads.max_offset("T", 0)) == (0, 2)
    assert list(node.store.queues.table) == [("T", 0)]


def test_the_record_says_where_it_is(node: Node) -> None:
    node.store.appends.append(message(), START)
    done = node.store.appends.append(message(body=b"here", queue_id=3, KEYS="k"), START + 1)
    view = node.store.reads.record_at(done.physical_offset)
    assert view is not None
    record = decode(view)
    assert (record.physical_offset, record.queue_offset, record.queue_id) == (done.physical_offset, 0, 3)
    assert (record.store_timestamp, record.store_host, record.born_host) == (START + 1, HOST, HOST)
    assert record.props == {"KEYS": "k"}


def test_a_record_that_does_not_fit_begins_the_next_file(node: Node) -> None:
    first = node.store.appends.append(message(body=bytes(1000)), START)
    second = node.store.appends.append(message(body=bytes(1000)), START)
    assert second.physical_offset == 2048
    view = node.store.log.segments.view(first.size, 8)
    assert size_and_magic(view) == (2048 - first.size, BLANK_MAGIC)
    assert node.store.reads.record_at(first.size) is None
    assert len(node.records()) == 2


def test_a_record_may_leave_just_the_room_of_a_blank(node: Node) -> None:
    """8 bytes have to stay: at 2040 the file is full, one byte less still fits."""
    empty = node.store.appends.append(message(body=b""), START).size
    rest = 2048 - 8 - empty - empty
    done = node.store.appends.append(message(body=bytes(rest)), START)
    assert done.physical_offset + done.size == 2040
    assert node.store.appends.append(message(body=b""), START).physical_offset == 2048


def test_hidden_records_stand_in_the_log_only(node: Node) -> None:
    """Prepared and rolled back ones (sysFlag 4 and 12); a committed one (8) is shown."""
    for sys_flag in (4, 12, 8):
        node.store.appends.append(message(body=b"%d" % sys_flag, sys_flag=sys_flag, KEYS=f"k{sys_flag}"), START)
    assert node.bodies() == [b"8"]
    assert [r.queue_offset for r in node.store.log.walk(0)] == [0, 0, 0]
    found = {flag: len(node.store.reads.query("T", f"k{flag}", 9, 0, START).records) for flag in (4, 12, 8)}
    assert found == {4: 1, 12: 0, 8: 1}


def test_a_batch_is_of_one_piece(node: Node) -> None:
    node.store.appends.append(message(body=bytes(1400)), START)
    done = node.store.appends.append_batch([message(body=bytes(150)) for _ in range(7)], START)
    assert [d.queue_offset for d in done] == list(range(1, 8))
    assert done[0].physical_offset == 2048
    assert all(b.physical_offset == a.physical_offset + a.size for a, b in pairwise(done))
    assert len(node.records()) == 8
    node.store.validate()


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [message(), message(topic="other")],
        [message(), message(queue_id=1)],
        [message(), message(sys_flag=4)],
        [message(body=bytes(500)) for _ in range(5)],
        [message(), message(body=bytes(5000))],
    ],
)
def test_a_batch_that_is_refused_changes_nothing(node: Node, messages: list[Message]) -> None:
    with pytest.raises(AppendRefused) as caught:
        node.store.appends.append_batch(messages, START)
    assert caught.value.status is PutStatus.MESSAGE_ILLEGAL
    assert node.store.log.end == 0 and list(node.store.queues.table) == []


@pytest.mark.parametrize(
    ("refused", "status"),
    [
        (message(topic="t" * 128), PutStatus.MESSAGE_ILLEGAL),
        (message(topic="%RETRY%" + "g" * 249), PutStatus.MESSAGE_ILLEGAL),
        (message(topic=""), PutStatus.MESSAGE_ILLEGAL),
        (message(topic=".."), PutStatus.MESSAGE_ILLEGAL),
        (message(topic="a/b"), PutStatus.MESSAGE_ILLEGAL),
        (message(queue_id=-1), PutStatus.MESSAGE_ILLEGAL),
        (message(queue_id=1 << 31), PutStatus.MESSAGE_ILLEGAL),
        (message(body=bytes(2049)), PutStatus.MESSAGE_ILLEGAL),
        (message(p="x" * 32_765), PutStatus.PROPERTIES_SIZE_EXCEEDED),
    ],
    ids=lambda value: value.name if isinstance(value, PutStatus) else f"{value.topic[:9]}-{value.queue_id}",
)
def test_what_is_refused_leaves_no_trace(node: Node, refused: Message, status: PutStatus) -> None:
    with pytest.raises(AppendRefused) as caught:
        node.store.appends.append(refused, START)
    assert caught.value.status is status
    assert node.store.log.end == 0 and list(node.store.queues.table) == []
    node.store.appends.append(message(), START)
    node.store.validate()


def test_bodies_over_the_limit_are_refused() -> None:
    node = Node(commit_log_file_bytes=1 << 16, max_message_size=1000)
    node.load()
    node.store.appends.append(message(body=bytes(1000)), START)
    with pytest.raises(AppendRefused, match="1001 bytes"):
        node.store.appends.append(message(body=bytes(1001)), START)


def test_long_retry_topics_are_records_of_version_2(node: Node) -> None:
    topic = "%RETRY%" + "g" * 130
    done = node.store.appends.append(message(topic=topic), START)
    view = node.store.reads.record_at(done.physical_offset)
    assert view is not None and decode(view).topic == topic
    assert size_and_magic(view)[1] == -626843477


def test_no_append_before_the_load_and_after_the_stop() -> None:
    node = Node()
    assert not node.store.appends.writable
    with pytest.raises(AppendRefused, match="not loaded"):
        node.store.appends.append(message(), START)
    node.load()
    assert node.store.appends.writable and node.store.appends.why_not_writable == ""
    node.stop()
    with pytest.raises(AppendRefused, match="closed"):
        node.store.appends.append(message(), START)
    assert node.store.next_deadline() is None and node.store.tick(START) == []


def test_after_a_failure_of_the_disk_nothing_is_taken(node: Node) -> None:
    node.store.appends.append(message(), START)
    node.store.condition.fail("commitlog/0: I/O error")
    with pytest.raises(AppendRefused, match="I/O error"):
        node.store.appends.append(message(), START)
    assert node.store.close(START) == "commitlog/0: I/O error"
    assert node.disk.size("abort") is not None
    assert not node.load().clean


def test_a_full_disk_refuses_the_append_that_needs_a_file(node: Node) -> None:
    node.store.appends.append(message(body=bytes(1900)), START)
    end = node.store.log.end
    node.disk.fill(1.0)
    with pytest.raises(AppendRefused, match="no new log file") as caught:
        node.store.appends.append(message(body=bytes(1900)), START)
    assert caught.value.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    with pytest.raises(AppendRefused, match="no new queue file"):
        node.store.appends.append(message(queue_id=1), START)
    with pytest.raises(AppendRefused, match="no new queue file"):
        node.store.appends.append_batch([message() for _ in range(9)], START)
    node.store.validate()
    assert node.store.log.end == end
    node.disk.fill(0)
    node.store.appends.append(message(body=bytes(1900)), START)
    node.store.validate()
    assert node.store.reads.max_offset("T", 0) == 2


def test_a_full_disk_ends_the_indexing_and_not_the_appends(node: Node) -> None:
    node.store.appends.append(message(), START)
    node.disk.fill(1.0)
    node.store.appends.append(message(KEYS="lost"), START)
    assert node.store.reads.query("T", "lost", 9, 0, 1 << 60).records == []
    assert node.store.index.broken and node.store.reads.max_offset("T", 0) == 2
    node.pass_time(100)
    assert len([note for note in node.notes if "index" in note]) == 1
    node.disk.fill(0)
    node.pass_time(30_000)
    node.store.appends.append(message(KEYS="found"), node.now)
    assert node.store.reads.query("T", "lost", 9, 0, node.now).records == []
    assert len(node.store.reads.query("T", "found", 9, 0, node.now).records) == 1
    node.stop()
    assert node.load().notes == []


def test_the_hook_hears_of_each_message_that_readers_see(node: Node) -> None:
    heard: list[tuple[object, ...]] = []
    node.store.appends.on_append = lambda *told: heard.append(told)
    one = node.store.appends.append(message(queue_id=2, TAGS="TagA"), START)
    node.store.appends.append(message(sys_flag=4), START)
    two = node.store.appends.append_batch([message(queue_id=2)], START)[0]
    assert heard == [("T", 2, 0, 2598919, 0, one.size), ("T", 2, 1, 0, two.physical_offset, two.size)]


def test_delayed_messages_carry_their_delivery_time(node: Node) -> None:
    topic = "SCHEDULE_TOPIC_XXXX"
    for number, level in enumerate(("1", "18", "99", "0", "x")):
        node.store.appends.append(message(topic, DELAY=level, TAGS="TagA"), START)
        unit = node.store.reads.unit(topic, 0, number)
        wait = {"1": 1_000, "18": 7_200_000, "99": 7_200_000}.get(level)
        assert unit is not None and unit.tag_code == (START + wait if wait else 2598919)


# ---- deleting a topic ----


def test_a_deleted_topic_is_gone_and_begins_anew(node: Node) -> None:
    for number in range(12):
        node.store.appends.append(message(body=b"old %d" % number), START)
    node.store.appends.append(message("other"), START)
    node.effects.extend(node.store.delete_topic("T"))
    node.settle()
    assert node.store.reads.max_offset("T", 0) == 0 and node.disk.list("consumequeue") == ["other/"]
    node.store.appends.append(message(body=b"new"), START)
    node.store.validate()
    assert node.bodies() == [b"new"]
    assert node.store.delete_topic("never was") == []


@pytest.mark.parametrize("wait", [0, 5_000])
@pytest.mark.parametrize("crash", ["kill", "cut_power", "stop"])
def test_a_topic_that_was_made_again_survives_with_its_new_messages(crash: str, wait: int) -> None:
    for seed in range(5):
        node = Node(seed)
        node.load()
        for number in range(12):
            node.store.appends.append(message(body=b"old %d" % number), START)
        node.effects.extend(node.store.delete_topic("T"))
        node.settle()
        new = [b"new %d" % number for number in range(3)]
        for body in new:
            node.store.appends.append(message(body=body), START)
        node.flush()
        node.settle()
        node.pass_time(wait)
        getattr(node, crash)()
        node.load()
        assert node.bodies() == new


def test_a_deleted_topic_stays_deleted_once_a_checkpoint_is_written() -> None:
    node = Node(flush_consume_queue_thorough_interval=1_000_000)
    node.load()
    node.store.appends.append(message(), START)
    node.effects.extend(node.store.delete_topic("T"))
    node.settle()
    node.pass_time(5_000)
    node.kill()
    node.load()
    assert list(node.store.queues.table) == []


def test_a_deleted_topic_stays_deleted_after_a_clean_stop() -> None:
    """Its records are the log's last ones, and no queue points to them."""
    node = Node()
    node.load()
    node.store.appends.append(message("other"), START)
    for number in range(3):
        node.store.appends.append(message(body=b"old %d" % number), START)
    node.effects.extend(node.store.delete_topic("T"))
    node.settle()
    for _ in range(2):
        node.stop()
        node.load()
        assert list(node.store.queues.table) == [("other", 0)]
    node.store.appends.append(message(body=b"new"), START)
    node.stop()
    node.load()
    assert node.bodies() == [b"new"]


def test_what_a_deleted_topic_leaves_on_a_failing_disk_does_not_come_back(node: Node) -> None:
    for _ in range(3):
        node.store.appends.append(message(body=b"old"), START)
    node.disk.failing["remove"] = 2
    node.effects.extend(node.store.delete_topic("T"))
    node.settle()
    assert "can't be removed" in node.notes[-1]
    with pytest.raises(AppendRefused, match="deleted topic"):
        node.store.appends.append(message(body=b"new"), START)
    node.store.appends.append(message(body=b"new"), START)
    assert node.bodies() == [b"new"]


# ---- validate ----


def test_validate_sees_a_unit_that_is_missing(node: Node) -> None:
    node.store.appends.append(message(), START)
    queue = node.store.queues.get("T", 0)
    assert queue is not None
    queue.end = 0
    with pytest.raises(AssertionError, match="unit 0 of the record at 0 is missing"):
        node.store.validate()


def test_validate_sees_a_unit_that_points_elsewhere(node: Node) -> None:
    node.store.appends.append(message(), START)
    queue = node.store.queues.get("T", 0)
    assert queue is not None
    queue.segments.file(0).write(0, b"\1")
    with pytest.raises(AssertionError, match="the log has"):
        node.store.validate()


def test_validate_sees_a_log_that_is_spoilt(node: Node) -> None:
    node.store.appends.append(message(), START)
    node.store.log.segments.file(0).write(4, b"\1")
    with pytest.raises(AssertionError, match="magic"):
        node.store.validate()


def test_validate_sees_a_promise_that_is_not_kept(node: Node) -> None:
    node.store.appends.append(message(), START)
    node.store.log.flushed = node.store.log.end
    with pytest.raises(AssertionError, match="flushed"):
        node.store.validate()
