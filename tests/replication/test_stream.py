"""The classic HA stream between our two ends: what is copied, from where, and how either end recovers."""

from __future__ import annotations

import pytest

from perseid.replication.receiver import REFUSED_RETRY_MS, RETRY_MS, State
from perseid.store.config import SYNC_FLUSH
from store.harness import message

from .pair import Pair


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("piece", [1, 13, 700, 100_000])
def test_the_slave_has_what_the_master_has_however_the_bytes_come(seed: int, piece: int) -> None:
    pair = Pair(seed, piece=piece, ha_copy_whole_log=True, ha_transfer_batch_size=500)
    pair.write(15)
    pair.follow()
    pair.settle()
    pair.write(40)
    pair.settle()
    pair.check_same()
    assert pair.master.replication.master.replicated(2) == pair.master.node.store.log.end


@pytest.mark.parametrize("seed", range(4))
def test_many_records_of_few_queues_are_taken_by_the_core(seed: int, way: str) -> None:
    pair = Pair(seed, piece=100_000, ha_copy_whole_log=True, store={"commit_log_file_bytes": 1 << 18})
    pair.write(10)
    pair.follow()
    for _ in range(20):
        pair.write(50)
        pair.settle()
    pair.check_same()
    if way != "plain":
        assert pair.slave.replication.slave._replica._core.taken > 200  # type: ignore[union-attr]


def test_an_empty_slave_begins_with_the_last_file() -> None:
    pair = Pair(1)
    pair.write(60)
    pair.follow()
    pair.settle()
    log = pair.master.node.store.log
    assert pair.slave.node.store.log.start == log.end - log.end % log.segments.file_bytes > 0
    pair.check_same()
    pair.slave.node.store.close(pair.now)
    pair.slave.node.load()
    assert pair.slave.node.store.log.end == log.end


def test_a_slave_goes_on_where_it_was() -> None:
    pair = Pair(2, ha_copy_whole_log=True)
    pair.write(10)
    pair.follow()
    pair.settle()
    conn = pair.slave.replication.slave.conn  # type: ignore[union-attr]
    pair.up = False
    pair.cut(conn)  # type: ignore[arg-type]
    pair.write(30)
    pair.wait(3 * RETRY_MS)
    assert pair.state in (State.WAITING, State.DIALLING)
    pair.up = True
    pair.wait(2 * RETRY_MS)
    pair.check_same()


def test_heartbeats_go_both_ways_and_silence_ends_a_connection() -> None:
    pair = Pair(3)
    pair.write(5)
    pair.follow()
    pair.settle()
    pair.wait(60_000)
    assert pair.state is State.FOLLOWING and pair.slave.closed == [] == pair.master.closed
    [follower] = pair.master.replication.master.followers.values()
    assert pair.now - follower.heard <= 6_000 and pair.now - follower.sent <= 6_000


def test_the_window_bounds_what_is_on_its_way() -> None:
    pair = Pair(4, ha_copy_whole_log=True, ha_window_bytes=600, ha_transfer_batch_size=100)
    pair.write(40)
    pair.follow()
    pair.settle()
    pair.check_same()  # `validate` looks at the window after each step


def test_flow_control_takes_its_time() -> None:
    pair = Pair(5, ha_copy_whole_log=True, ha_flow_control_enable=True, max_ha_transfer_byte_in_second=1_000)
    pair.write(40)
    end = pair.master.node.store.log.end
    pair.follow()
    pair.settle()
    assert pair.slave.node.store.log.end <= 1_000
    pair.wait(2_000)
    assert pair.slave.node.store.log.end <= 3_000 < end
    pair.wait(1_000 * (end // 1_000 + 2))
    pair.check_same()


def test_with_sync_flush_only_what_is_durable_is_sent() -> None:
    pair = Pair(6, store={"flush_disk_type": SYNC_FLUSH})
    pair.write(5)
    pair.follow()
    pair.settle()
    assert pair.slave.node.store.log.end == 0
    pair.flush(pair.master)
    pair.settle()
    pair.check_same()


def test_a_strict_slave_reports_only_what_is_durable() -> None:
    pair = Pair(7, ha_report_durable_only=True)
    pair.write(5)
    pair.follow()
    pair.settle()
    end = pair.master.node.store.log.end
    assert pair.slave.node.store.log.end == end and pair.master.replication.master.replicated(2) == 0
    pair.flush(pair.slave)
    pair.settle()
    assert pair.master.replication.master.replicated(2) == end


def test_a_strict_slave_asks_to_go_on_only_when_all_it_has_is_durable() -> None:
    """Its request acknowledges everything before it (seed 10070)."""
    pair = Pair(7, ha_report_durable_only=True)
    pair.write(5)
    pair.follow()
    pair.settle()
    end = pair.master.node.store.log.end
    pair.cut(pair.slave.replication.slave.conn)  # type: ignore[arg-type,union-attr]
    pair.wait(3 * RETRY_MS)
    assert pair.state is State.FOLLOWING and pair.master.replication.master.replicated(2) == -1
    pair.flush(pair.slave)
    pair.settle()
    assert pair.master.replication.master.replicated(2) == end
    pair.write(5)
    pair.settle()
    assert pair.slave.node.store.log.end == pair.master.node.store.log.end


def test_a_master_that_moves_is_followed_to_its_new_address() -> None:
    pair = Pair(8)
    pair.follow()
    slave = pair.slave.replication.slave
    assert slave is not None and slave.state is State.FOLLOWING
    pair.run(pair.slave, slave.follow("10.0.0.9:10912", pair.now))
    assert slave.state is State.FOLLOWING and slave.address == "10.0.0.9:10912"
    pair.run(pair.slave, slave.follow("", pair.now))
    assert slave.state is State.IDLE and slave.conn is None and slave.next_deadline() is None


def test_records_in_no_queue_are_copied_too() -> None:
    pair = Pair(9, ha_copy_whole_log=True)
    for flag in (0, 4, 8, 12):
        pair.master.node.store.appends.append(message(sys_flag=flag, UNIQ_KEY=f"u{flag}"), pair.now)
    pair.follow()
    pair.settle()
    pair.check_same()
    assert pair.slave.node.store.reads.max_offset("T", 0) == 2


def test_a_topic_that_was_deleted_and_made_again_begins_at_0() -> None:
    pair = Pair(10, ha_copy_whole_log=True)
    pair.write(20)
    pair.follow()
    pair.settle()
    pair.master.node.store.delete_topic("T")
    pair.write(20)
    pair.settle()
    one, two = pair.master.node.store, pair.slave.node.store
    assert [two.reads.unit("T", 0, n) for n in range(two.reads.max_offset("T", 0))] == [
        one.reads.unit("T", 0, n) for n in range(one.reads.max_offset("T", 0))
    ]


def test_a_refused_history_is_tried_again_later_not_at_once() -> None:
    pair = Pair(11, ha_copy_whole_log=True)
    pair.write(3)
    store = pair.slave.node.store
    pair.slave.node.store.appends.append(message(), pair.now)
    pair.follow()
    assert pair.state is State.WAITING and store.log.end > 0
    dialled = len(pair.slave.notes)
    pair.wait(REFUSED_RETRY_MS - 1_000)
    assert len(pair.slave.notes) == dialled
    pair.wait(2_000)
    assert len(pair.slave.notes) > dialled
