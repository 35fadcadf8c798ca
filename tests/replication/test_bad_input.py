"""What strangers and broken peers send on the HA port: refused with a line that says what, nothing overwritten."""

from __future__ import annotations

import pytest

from perseid.replication.receiver import State
from perseid.replication.sender import MAX_FOLLOWERS, MAX_STRANGERS
from perseid.wire.ha import encode_header, encode_report
from store.harness import message

from .pair import MASTER, Pair


def stranger(pair: Pair, *reports: int) -> int:
    """A connection on which these reports were made; its number at the master."""
    near, far = pair.connect()
    for report in reports:
        pair.send_to_master(near, encode_report(report))
    return far


def following(pair: Pair) -> int:
    """The slave's connection, in the state FOLLOWING."""
    pair.follow()
    slave = pair.slave.replication.slave
    assert slave is not None and slave.state is State.FOLLOWING and slave.conn is not None
    return slave.conn


def fed(pair: Pair, data: bytes) -> None:
    """The slave receives bytes."""
    slave = pair.slave.replication.slave
    assert slave is not None
    pair.run(pair.slave, slave.received(data, pair.now))


# ---- the master's end ----


def test_a_request_beyond_the_end_names_both_offsets() -> None:
    pair = Pair(1)
    pair.write(3)
    end = pair.master.node.store.log.end
    far = stranger(pair, end + 1)
    assert pair.master.closed == [far]
    assert f"its log ends at {end + 1}, ours at {end}" in pair.master.notes[-1]


def test_a_negative_request_is_refused() -> None:
    pair = Pair(1)
    assert pair.master.closed == [] and stranger(pair, -1) == pair.master.closed[0]


def test_a_request_before_the_start_names_both_offsets() -> None:
    pair = Pair(1)
    pair.write(100)
    log = pair.master.node.store.log
    pair.flush(pair.master)
    log.segments.remove(0)
    far = stranger(pair, 100)
    assert pair.master.closed == [far]
    assert f"its log ends at 100, ours begins at {log.start}" in pair.master.notes[-1]


def test_a_report_beyond_what_was_sent_is_refused() -> None:
    pair = Pair(1, ha_window_bytes=100)
    pair.write(5)
    near, far = pair.connect()
    pair.send_to_master(near, encode_report(1))
    pair.send_to_master(near, encode_report(pair.master.node.store.log.end))
    assert pair.master.closed == [far]
    assert pair.master.replication.master.replicated(2) == -1, "its report counts for nothing"


@pytest.mark.parametrize("report", [-5, 9])
def test_a_report_that_goes_back_is_refused(report: int) -> None:
    pair = Pair(1)
    pair.write(5)
    assert stranger(pair, 10, report) in pair.master.closed


def test_a_stranger_that_says_nothing_is_let_go() -> None:
    pair = Pair(1)
    near, far = pair.connect()
    pair.send_to_master(near, b"\0\0\0")
    pair.wait(19_000)
    assert pair.master.closed == []
    pair.wait(2_000)
    assert pair.master.closed == [far] and "silent" in pair.master.notes[-1]


def test_more_followers_than_there_may_be_are_refused() -> None:
    pair = Pair(1)
    connections = []
    for _ in range(MAX_FOLLOWERS + 1):
        connections.append(pair.connect()[1])
        pair.run(pair.master, pair.master.replication.master.received(connections[-1], encode_report(0), pair.now))
    assert pair.master.closed == [connections[-1]]


def test_connections_that_say_nothing_keep_no_slave_out() -> None:
    pair = Pair(1)
    connections = [pair.connect()[1] for _ in range(3 * MAX_FOLLOWERS)]
    assert pair.master.closed == connections[:-MAX_STRANGERS]
    following(pair)
    pair.write(3)
    pair.settle()
    assert pair.master.replication.master.replicated(2) == pair.master.node.store.log.end


def test_nobody_is_counted_twice() -> None:
    """B17: a slave comes back while its old connection is half-open, and three nodes are wanted."""
    pair = Pair(1)
    pair.write(3)
    master, end = pair.master.replication.master, pair.master.node.store.log.end
    stranger(pair, end)
    stranger(pair, end)
    assert (master.replicated(2), master.replicated(3)) == (end, -1), "it may be the same slave twice"
    pair.write(1)
    pair.settle()
    later = pair.master.node.store.log.end
    first, second = master.followers.values()
    pair.run(pair.master, master.received(second.conn, encode_report(later), pair.now))
    assert (master.replicated(2), master.replicated(3)) == (later, -1)
    pair.run(pair.master, master.received(first.conn, encode_report(later), pair.now))
    assert master.replicated(3) == later, "who acknowledges what was sent later is alive"


def test_a_connection_that_ended_counts_for_nothing() -> None:
    pair = Pair(1)
    pair.write(3)
    far = stranger(pair, pair.master.node.store.log.end)
    pair.cut(far)
    assert pair.master.replication.master.replicated(2) == -1


# ---- the slave's end ----


def test_a_packet_out_of_sequence_names_both_offsets() -> None:
    pair = Pair(1, ha_copy_whole_log=True)
    pair.write(3)
    following(pair)
    pair.settle()
    end = pair.slave.node.store.log.end
    fed(pair, encode_header(end + 50, 10) + bytes(10))
    assert f"its packet begins at {end + 50}, {end} was to come; our log ends at {end}" in pair.slave.notes[-1]
    assert pair.state is State.WAITING and pair.slave.node.store.log.end == end


def test_a_heartbeat_with_another_offset_is_refused() -> None:
    pair = Pair(1, ha_copy_whole_log=True)
    pair.write(3)
    following(pair)
    pair.settle()
    fed(pair, encode_header(1, 0))
    assert pair.state is State.WAITING


@pytest.mark.parametrize("size", [2_000_000_000, -1, -(1 << 31), 2049])
def test_a_header_that_claims_gigabytes_is_refused_at_once(size: int) -> None:
    pair = Pair(1)
    following(pair)
    fed(pair, encode_header(0, size))
    assert f"a packet of {size} bytes" in pair.slave.notes[-1] and pair.state is State.WAITING


def test_a_packet_across_files_is_refused() -> None:
    pair = Pair(1, ha_copy_whole_log=True)
    pair.write(5)
    following(pair)
    pair.settle()
    fed(pair, encode_header(pair.slave.node.store.log.end, 2048))
    assert "crosses the end of a file" in pair.slave.notes[-1]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\xee" * 200, "no record: a size of"),
        (bytes(200), "no record: a size of 0"),
        ((150).to_bytes(4, "big") + bytes(196), "magic 00000000"),
        ((200).to_bytes(4, "big") + (3419681172).to_bytes(4, "big") + bytes(192), "a blank of 200 bytes"),
    ],
    ids=["noise", "zeros", "magic", "blank"],
)  # fmt: skip
def test_a_body_that_is_no_record_is_not_written(body: bytes, why: str) -> None:
    pair = Pair(1)
    following(pair)
    fed(pair, encode_header(0, len(body)) + body)
    assert why in pair.slave.notes[-1] and pair.state is State.WAITING
    assert pair.slave.node.store.log.end == 0 and pair.slave.node.disk.list("commitlog") == []


def records(pair: Pair) -> bytes:
    """The bytes of the master's log."""
    log = pair.master.node.store.log
    return bytes(log.segments.view(0, log.end))


@pytest.mark.parametrize(
    ("at", "value"), [(90, 0x55), (35, 1), (27, 200), (20, 0x80)], ids=["body", "offset", "gap", "negative"]
)
def test_a_record_that_was_changed_on_its_way_is_not_written(at: int, value: int) -> None:
    pair = Pair(1)
    pair.master.node.store.appends.append(message(body=b"x" * 100), pair.now)
    data = bytearray(records(pair))
    data[at] = value
    if at == 27:
        data[20:28] = (1 << 40).to_bytes(8, "big")
    following(pair)
    fed(pair, encode_header(0, len(data)) + bytes(data))
    assert pair.state is State.WAITING and pair.slave.node.store.log.end == 0, pair.slave.notes


@pytest.mark.parametrize("topic", ["a/b", "..", "."])
def test_a_topic_that_is_no_name_of_a_folder_is_not_written(topic: str) -> None:
    pair = Pair(1)
    pair.master.node.store.appends.append(message("abc"[: len(topic)], b"x"), pair.now)
    data = records(pair).replace(b"abc"[: len(topic)] + b"\0", topic.encode() + b"\0")
    following(pair)
    fed(pair, encode_header(0, len(data)) + data)
    assert pair.state is State.WAITING and pair.slave.node.store.log.end == 0, pair.slave.notes


def test_what_stands_before_a_record_of_no_possible_queue_is_written() -> None:
    """Found by the fuzz target `slave`: the core wrote it, and the slave without a core refused it all."""
    pair = Pair(1)
    store = pair.master.node.store
    store.appends.append(message(queue_id=0), pair.now)
    good = store.log.end
    store.appends.append(message(queue_id=1), pair.now)
    data = bytearray(records(pair))
    data[good + 12] |= 0x80  # of its queue id
    following(pair)
    fed(pair, encode_header(0, len(data)) + bytes(data))
    assert "can't be a queue" in pair.slave.notes[-1] and pair.state is State.WAITING
    assert pair.slave.node.store.log.end == good and set(pair.slave.node.store.queues.table) == {("T", 0)}


def test_a_slave_with_another_history_is_refused_and_keeps_it() -> None:
    pair = Pair(1, ha_copy_whole_log=True)
    pair.master.node.store.appends.append(message(body=b"one"), pair.now)
    pair.slave.node.store.appends.append(message(body=b"two"), pair.now)
    before = pair.slave.node.store.log.end
    pair.follow()
    pair.wait(10_000)
    assert f"another record at 0, ours ends at {before}" in pair.slave.notes[-1]
    assert pair.slave.node.store.log.end == before and pair.state is State.WAITING


def test_a_slave_that_is_ahead_is_refused_and_keeps_what_it_has() -> None:
    pair = Pair(1, ha_copy_whole_log=True)
    for side in (pair.master, pair.slave):
        side.node.store.appends.append(message(body=b"one"), pair.now)
    pair.slave.node.store.appends.append(message(body=b"two"), pair.now)
    before = pair.slave.node.store.log.end
    pair.follow()
    assert "ours ends at" in pair.slave.notes[-1] and pair.slave.node.store.log.end == before


def test_a_slave_whose_disk_is_full_stops_and_goes_on_when_there_is_room() -> None:
    pair = Pair(1, ha_copy_whole_log=True)
    following(pair)
    pair.slave.node.disk.fill(1.0)
    pair.write(30)
    pair.settle()
    assert "our disk doesn't take it" in pair.slave.notes[-1] and pair.state is State.WAITING
    pair.slave.node.disk.fill(0.1)
    pair.wait(60_000)
    pair.check_same()


def test_bytes_before_they_were_asked_for_end_the_connection() -> None:
    pair = Pair(1)
    slave = pair.slave.replication.slave
    assert slave is not None
    slave._prove = lambda now: []
    pair.slave.node.store.appends.append(message(), pair.now)
    pair.run(pair.slave, slave.follow(MASTER, pair.now))
    assert slave.state is State.PROVING
    fed(pair, encode_header(0, 0))
    assert slave.state is State.WAITING
