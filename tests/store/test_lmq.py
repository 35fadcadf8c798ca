"""Light message queues: where a message stands beside its own queue, over stops, crashes, cuts and on a slave."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from perseid.sim.disk import SimDisk
from perseid.store import checkpoint as checkpoints
from perseid.store import lmq
from perseid.store.checkpoint import Checkpoint
from perseid.store.replica import Replica
from perseid.store.store import MessageStore
from perseid.wire import properties as props
from perseid.wire.record import SYS_TRANSACTION_PREPARED, Record, decode_all

from .harness import HOST, START, Node, message

ON: dict[str, Any] = {"enable_lmq": True, "enable_multi_dispatch": True}
A, B = "%LMQ%a", "%LMQ%b"


def packed(**pairs: str) -> bytes:
    return props.encode(pairs)


def running(seed: int = 0, **settings: Any) -> Node:
    node = Node(seed, **{**ON, **settings})
    node.load()
    return node


def put(node: Node, names: str, body: bytes = b"x", **more: Any) -> Record:
    """Store a message for light queues; what was stored."""
    node.now += 1_000
    done = node.store.appends.append(message(body=body, INNER_MULTI_DISPATCH=names, **more), node.now)
    view = node.store.reads.record_at(done.physical_offset)
    assert view is not None
    (record,) = decode_all(view)
    return record


def bodies(node: Node, topic: str) -> list[bytes]:
    store, found, offset = node.store, [], node.store.reads.min_offset(topic, 0)
    while offset < store.reads.max_offset(topic, 0):
        read = store.reads.read(topic, 0, offset, 32, 1 << 20)
        found += [record.body for record in decode_all(b"".join(read.buffers))]
        offset = read.next_offset
    return found


# ---- names and offsets ----


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("%LMQ%a", ""),
        ("%LMQ%a,%LMQ%b", ""),
        ("%LMQ%a,", ""),  # the original's split leaves out empty words at the end
        ("", ""),
        (" ", ""),
        (",,", ""),
        ("a", "does not begin"),
        ("%LMQ%a,,%LMQ%b", "does not begin"),
        ("%LMQ%a/b", "can't be the name"),
        ("%LMQ%a\0b", "can't be the name"),
        ("%LMQ%" + "n" * 251, "can't be the name"),
        ("%LMQ%a,%LMQ%a", "twice"),
        ("%LMQ%t", "twice"),
        (",".join(f"%LMQ%{i}" for i in range(1_200)), "don't fit"),
    ],
)
def test_names(names: str, why: str) -> None:
    fault = lmq.names_fault("%LMQ%t", packed(INNER_MULTI_DISPATCH=names))
    assert (why in fault) if why else fault == ""
    if why:
        assert lmq.names("%LMQ%t", packed(INNER_MULTI_DISPATCH=names)) == []


def test_the_longest_name_is_that_of_a_folder() -> None:
    name = "%LMQ%" + "n" * 250
    assert lmq.names("T", packed(INNER_MULTI_DISPATCH=name)) == [name]


@pytest.mark.parametrize(
    "topic", ["%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x", "RMQ_SYS_TRANS_HALF_TOPIC"]
)
def test_topics_whose_messages_are_in_no_light_queue(topic: str) -> None:
    assert lmq.names(topic, packed(INNER_MULTI_DISPATCH=A)) == []


def test_offsets_take_the_place_of_those_that_a_client_said() -> None:
    given = packed(TAGS="t", INNER_MULTI_QUEUE_OFFSET="99", INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b")
    assert props.decode(lmq.with_offsets(given, [3, 0]))["INNER_MULTI_QUEUE_OFFSET"] == "3,0"
    assert "INNER_MULTI_QUEUE_OFFSET" not in props.decode(lmq.with_offsets(given, []))


@pytest.mark.parametrize(
    ("names", "offsets", "found"),
    [
        ("%LMQ%a,%LMQ%b", "7,0", [(A, 7), (B, 0)]),
        ("%LMQ%a,%LMQ%b", "7", []),
        ("%LMQ%a", "", []),
        ("%LMQ%a", "-1", []),
        ("%LMQ%a", "1.5", []),
        ("%LMQ%a", "٣", []),
        ("%LMQ%a", "101", []),  # so many records don't fit before it
        ("%LMQ%a", "9" * 5_000, []),
        ("%LMQ%a,%LMQ%a", "1,2", [(A, 1)]),
        ("x,%LMQ%a,%LMQ%b/c", "1,2,3", [(A, 2)]),
        ("T,%LMQ%a", "1,2", [(A, 2)]),
    ],
)
def test_what_a_record_may_say(names: str, offsets: str, found: list[tuple[str, int]]) -> None:
    said = packed(INNER_MULTI_DISPATCH=names, INNER_MULTI_QUEUE_OFFSET=offsets)
    assert lmq.units("T", said, 100 * 91) == found
    assert lmq.units("%RETRY%g", said, 100 * 91) == []


# ---- appends ----


def test_a_message_stands_in_each_queue_that_it_names() -> None:
    node = running()
    assert put(node, f"{A},{B}", b"1").props["INNER_MULTI_QUEUE_OFFSET"] == "0,0"
    assert put(node, A, b"2", TAGS="t").props["INNER_MULTI_QUEUE_OFFSET"] == "1"
    record = put(node, f"{B},{A}", b"3")
    assert record.props["INNER_MULTI_QUEUE_OFFSET"] == "1,2"
    assert (record.topic, record.queue_id, record.queue_offset) == ("T", 0, 2)
    assert bodies(node, "T") == bodies(node, A) == [b"1", b"2", b"3"]
    assert bodies(node, B) == [b"1", b"3"]
    assert node.store.reads.unit(A, 0, 1) == node.store.reads.unit("T", 0, 1), "its tag's code too"
    node.store.validate()


def test_who_waits_hears_of_each() -> None:
    node = running()
    heard: list[tuple[Any, ...]] = []
    node.store.appends.on_append = lambda *what: heard.append(("own", *what[:3]))
    node.store.appends.on_light = lambda *what: heard.append(("light", *what[:3]))
    put(node, f"{A},{B}")
    assert heard == [("own", "T", 0, 0), ("light", A, 0, 0), ("light", B, 0, 0)]


def test_without_both_keys_properties_are_only_stored() -> None:
    for off in ("enable_lmq", "enable_multi_dispatch"):
        node = running(**{off: False})
        assert put(node, A, INNER_MULTI_QUEUE_OFFSET="5").props["INNER_MULTI_QUEUE_OFFSET"] == "5"
        assert [topic for topic, _ in node.store.queues.table] == ["T"]


def test_what_is_hidden_or_of_a_batch_stands_in_none() -> None:
    node = running()
    put(node, A, sys_flag=SYS_TRANSACTION_PREPARED, INNER_MULTI_QUEUE_OFFSET="0")
    batch = [message(body=b"b", INNER_MULTI_DISPATCH=A, INNER_MULTI_QUEUE_OFFSET="0") for _ in range(2)]
    node.store.appends.append_batch(batch, node.now)
    assert [topic for topic, _ in node.store.queues.table] == ["T"]
    node.stop()
    node.load()
    assert [topic for topic, _ in node.store.queues.table] == ["T"]
    assert all("INNER_MULTI_QUEUE_OFFSET" not in record.props for record in node.records())


def test_a_gated_store_shows_them_when_they_are_confirmed() -> None:
    node = running()
    store = MessageStore(SimDisk(Random(5)), node.config, HOST, gated=True)
    store.load(START)
    assert store.gate is not None
    shown: list[tuple[str, int, int]] = []
    store.gate.on_shown = lambda queue, first, end: shown.append((queue.topic, first, end))
    first = store.appends.append(message(INNER_MULTI_DISPATCH=f"{A},{B}"), START)
    store.appends.append(message(INNER_MULTI_DISPATCH=A), START)
    assert store.reads.max_offset(A, 0) == store.reads.max_offset(B, 0) == 0
    store.flusher.confirm(first.physical_offset + first.size)
    assert shown == [("T", 0, 1), (A, 0, 1), (B, 0, 1)]
    assert (store.reads.max_offset(A, 0), store.reads.max_offset(B, 0)) == (1, 1)
    store.flusher.confirm(store.log.end)
    assert store.reads.max_offset(A, 0) == 2
    store.validate()


# ---- starts ----


def filled(seed: int = 0, **settings: Any) -> Node:
    node = running(seed, **settings)
    for number in range(24):
        put(node, f"{A},{B}" if number % 3 else A, b"%d" % number + bytes(200))
    node.flush()
    node.settle()
    return node


def state(node: Node) -> dict[str, list[bytes]]:
    return {topic: bodies(node, topic) for topic in ("T", A, B)}


def test_a_clean_stop_and_a_kill_change_nothing() -> None:
    node = filled()
    before = state(node)
    assert (len(before[A]), len(before[B])) == (24, 16)
    for end in (node.stop, node.kill):
        end()
        assert node.load().notes == [] or end == node.kill
        assert state(node) == before
    assert put(node, f"{B},{A}").props["INNER_MULTI_QUEUE_OFFSET"] == "16,24"
    node.store.validate()


@pytest.mark.parametrize("lost", [f"consumequeue/{A}", f"consumequeue/{A}/0/{100:020d}", "consumequeue"])
def test_lost_queues_come_back_from_the_log(lost: str) -> None:
    node = filled()
    before = state(node)
    node.kill()
    node.disk.remove(lost)
    node.disk.write("checkpoint", checkpoints.encode(Checkpoint(0, 0)))  # nothing is known to be durable
    node.load()
    assert state(node) == before
    assert put(node, f"{B},{A}").props["INNER_MULTI_QUEUE_OFFSET"] == "16,24"


def test_power_cuts_leave_the_same_messages_in_all_queues() -> None:
    for seed in range(25):
        node = filled(seed)
        for number in range(8):
            put(node, f"{A},{B}", b"late %d" % number)
            if number == 3:
                node.flush()
                node.settle()
        node.cut_power()
        node.load()
        node.store.validate()
        found = state(node)
        assert found["T"] == found[A], "each message was for A"
        late = [body for body in found["T"] if body.startswith(b"late")]
        assert len(late) >= 4, "what was flushed is there"
        assert found[B] == [body for n, body in enumerate(found["T"]) if n % 3 or body.startswith(b"late")]
        put(node, f"{A},{B}", b"next")
        assert bodies(node, A)[-1] == bodies(node, B)[-1] == b"next"
        node.store.validate()


def test_switched_off_and_on_again_offsets_go_on() -> None:
    node = filled()
    before = state(node)
    node.stop()
    off = Node(disk=node.disk)
    off.load()
    assert bodies(off, A) == before[A]
    off.store.appends.append(message(body=b"off", INNER_MULTI_DISPATCH=A), off.now)
    off.kill()
    node.load()
    assert bodies(node, A) == before[A], "what came meanwhile is not in it"
    assert put(node, A).props["INNER_MULTI_QUEUE_OFFSET"] == "24"


def test_offsets_that_a_client_said_while_it_was_off_make_no_endless_queue() -> None:
    off = Node()
    off.load()
    for number in range(30):
        said = str(number * 7_919 + 10**9)
        sent = message(body=bytes(200), INNER_MULTI_DISPATCH=A, INNER_MULTI_QUEUE_OFFSET=said)
        off.store.appends.append(sent, off.now)
    off.kill()
    node = Node(disk=off.disk, **ON)
    node.load()
    assert node.store.reads.max_offset(A, 0) == 0 and node.store.reads.max_offset("T", 0) == 30
    assert put(node, A).props["INNER_MULTI_QUEUE_OFFSET"] == "0"


def test_a_cut_takes_light_units_with_their_records() -> None:
    node = filled()
    at = node.store.reads.unit("T", 0, 20)
    assert at is not None
    node.effects.extend(node.store.truncation.begin(at.physical_offset, []))
    node.settle()
    assert [node.store.reads.max_offset(topic, 0) for topic in ("T", A, B)] == [20, 20, 13]
    assert put(node, f"{A},{B}").props["INNER_MULTI_QUEUE_OFFSET"] == "20,13"
    node.store.validate()


def test_old_files_go_with_the_log() -> None:
    node = filled(file_reserved_time=0)
    node.store.retention.delete_now(node.now + 3_600_000)
    node.now += 3_600_000
    node.pass_time(60_000)
    start = node.store.log.start
    assert start > 0
    for topic in ("T", A, B):
        unit = node.store.reads.unit(topic, 0, node.store.reads.min_offset(topic, 0))
        assert unit is not None and unit.physical_offset >= start
    node.stop()
    node.load()
    assert put(node, f"{A},{B}").props["INNER_MULTI_QUEUE_OFFSET"] == "24,16"


# ---- a slave ----


@pytest.mark.parametrize("step", [1, 61, 100_000])
def test_a_slave_has_the_same_light_queues(step: int) -> None:
    node = filled()
    slave = Node(disk=SimDisk(Random(9)), **ON)
    slave.load()
    replica = Replica(slave.store)
    size = node.config.commit_log_file_bytes
    for start in range(0, node.store.log.end, size):
        end = min(start + size, node.store.log.end)
        for at in range(start, end, step):
            part = b"".join(bytes(view) for view in [node.store.log.segments.view(at, min(step, end - at))])
            replica.expect(at, len(part))
            replica.take(memoryview(part))
            replica.write()
    assert state(slave) == state(node)
    slave.store.validate()
    slave.kill()
    slave.load()
    assert state(slave) == state(node)


def test_a_message_that_begins_the_next_file_takes_one_offset_of_each_queue() -> None:
    """Its record is made twice then, and the offsets are taken once (5.5.1 mends the like)."""
    node = running()
    step = node.store.config.commit_log_file_bytes
    room = 0
    for number in range(40):
        before = node.store.log.end
        record = put(node, "%LMQ%a,%LMQ%b", b"%d" % number + bytes(300))
        assert record.props["INNER_MULTI_QUEUE_OFFSET"] == f"{number},{number}"
        room += record.physical_offset > before
    assert room > 3, f"so many records began a file of {step} bytes"
    assert len(bodies(node, "%LMQ%a")) == len(bodies(node, "%LMQ%b")) == 40
