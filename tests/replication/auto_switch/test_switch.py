"""Replicas follow, fall behind, are cut and lead in turn: what was acknowledged stays."""

from __future__ import annotations

import pytest

from perseid.replication.auto_switch.epochs import PATH, Epochs
from perseid.replication.sender import MAX_STRANGERS
from perseid.wire.ha_auto import EpochEntry, decode_epoch_file, encode_report, encode_slave_handshake

from .replicas import Replicas


def in_sync(made: Replicas) -> frozenset[int]:
    """A master with all others in sync."""
    made.elect(1)
    made.wait(300)
    assert made.members == frozenset(range(1, len(made.all) + 1))
    return made.members


@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_what_the_master_has_all_get_however_it_is_cut(piece: int) -> None:
    made = Replicas(3, piece=piece)
    in_sync(made)
    for done in made.write(25):
        assert made[1].acknowledged(done)
    made.wait(300)
    made.check_same()


def test_an_acknowledgement_waits_for_all_in_sync() -> None:
    made = Replicas(3)
    in_sync(made)
    made.part(1, 3)
    (done,) = made.write(1)
    assert not made[1].acknowledged(done)
    assert [made[1].store.reads.max_offset(*queue) for queue in (("T", 0), ("T", 1), ("U", 0))] == [0, 0, 0]
    made.answer(made[1])
    assert made.members == {1, 2} and made[1].acknowledged(done)


def test_b1_a_joiner_that_may_have_been_agreed_to_is_waited_for() -> None:
    made = Replicas(2)
    made.part(1, 2)
    made.elect(1)
    made.cut_off.clear()
    made.wait(100, answers=False)
    made.wait(400, answers=False)
    assert [proposal.members for proposal in made[1].proposals] == [{1, 2}]
    made.answer(made[1], lost=True)
    made.part(1, 2)
    (done,) = made.write(1)
    assert made.members == {1, 2}, "the controller may elect it"
    assert not made[1].acknowledged(done)


def test_b2_b4_who_left_counts_until_the_controller_agrees() -> None:
    made = Replicas(2)
    in_sync(made)
    made.unreachable.add(1)
    made.part(1, 2)
    before = made[1].store.reads.confirmed
    (done,) = made.write(1)
    made.wait(2_000)
    assert not made[1].acknowledged(done) and made[1].store.reads.confirmed == before
    made.elect(2)
    made.wait(100)
    assert not made[1].acknowledged(done), "never two masters that acknowledge"


def test_two_masters_after_a_partition_the_old_one_has_stopped_and_is_cut() -> None:
    made = Replicas(3)
    in_sync(made)
    kept = made.write(5)
    made.unreachable.add(1)
    made.part(1, 2)
    made.part(1, 3)
    lost = made.write(5)
    made.elect(2)
    made.wait(500)
    assert made[1].replication.leads and made[2].replication.leads, "two believe it"
    assert not any(made[1].acknowledged(done) for done in lost)
    new = made.write(5)
    made.wait(300)
    assert all(made[2].acknowledged(done) for done in new)
    made.unreachable.clear()
    made.cut_off.clear()
    made.wait(1_000)
    assert made.members == {1, 2, 3}
    made.check_same()
    assert kept[-1].physical_offset < made[1].store.reads.confirmed
    assert any("cut off" in note for note in made[1].notes)
    assert [entry.epoch for entry in made[1].replication.epochs.entries] == [1, 2]


def test_b9_epochs_that_were_cut_are_dropped_on_disk_too() -> None:
    made = Replicas(3)
    in_sync(made)
    made.write(3)
    made.part(1, 2)
    made.part(1, 3)
    made.write(3)
    made.unreachable.add(1)
    made.elect(2)
    made.write(2)
    made.wait(300)
    made.unreachable.clear()
    made.cut_off.clear()
    made.wait(1_000)
    made[2].kill()
    made.elect(1)
    made.write(2)
    made[2].start()
    made.wait(1_000)
    made.check_same()
    for one in made.all:
        assert decode_epoch_file(one.disk.read(PATH) or b"") == one.replication.epochs.entries


def test_b10_short_epochs_reach_a_fresh_replica() -> None:
    made = Replicas(3)
    made[3].kill()
    made.elect(1)
    made.wait(300)
    for number in (2, 1, 2):
        made.write(1)
        made.wait(300)
        made.elect(number)
        made.wait(300)
    made.write(1)
    made[3].start()
    made.wait(1_000)
    made.check_same()
    assert [entry.epoch for entry in made[3].replication.epochs.entries] == [1, 2, 3, 4]


def test_b11_the_same_master_in_a_new_epoch_goes_on() -> None:
    made = Replicas(2)
    in_sync(made)
    made.write(3)
    made.epoch += 1
    made[1].run(made[1].replication.lead_on(made.epoch))
    made[2].replication.epoch = made.epoch
    made.write(3)
    made.wait(2_000)
    made.check_same()
    assert [entry.epoch for entry in made[1].replication.epochs.entries] == [1, 2]


def test_b12_dropping_all_epochs_is_durable() -> None:
    made = Replicas(1)
    made.elect(1)
    one = made[1]
    one.disk.write(PATH + ".bak", b"1\n0\n7-0\n")
    epochs = Epochs()
    one.run([epochs.save(one.disk, [])])
    again = Epochs([EpochEntry(9, 0)])
    again.entries = []
    assert again.load(one.disk) == [] and again.entries == []


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("steps", range(6))
def test_b13_a_crash_in_the_middle_of_a_cut(steps: int, power: bool) -> None:
    made = Replicas(3)
    in_sync(made)
    made.write(6)
    for one in made.all:
        one.run([one.store.flusher.flush([])])
    made.unreachable.add(1)
    made.part(1, 2)
    made.part(1, 3)
    made.write(12)
    made[1].run([made[1].store.flusher.flush([])])
    made.elect(2)
    made.write(3)
    made.wait(300)
    made.unreachable.clear()
    made.cut_off.clear()
    made[1].slow_disk = True
    made.wait(300)
    made[1].sync(steps)
    made[1].kill(power=power)
    made[1].slow_disk = False
    made[1].start()
    made.wait(1_500)
    made.write(2)
    made.wait(300)
    made.check_same()


def greeting(number: int) -> bytes:
    return encode_slave_handshake(number, from_last_file=False, learner=False)


def connections_of(made: Replicas, number: int) -> list[int]:
    master = made[1].replication.master
    assert master is not None
    return [one.conn for one in master.followers.values() if one.replica == number]


def test_b17_a_replica_on_two_connections_is_one() -> None:
    """Its old connection is half open: the new one is taken when the old one was silent for too long."""
    made = Replicas(2)
    in_sync(made)
    made.write(1)
    (old,) = connections_of(made, 2)
    made[2].up = False
    new = made.stranger(made[1])
    made.says(made[1], new, greeting(2))
    made.wait(9_000)
    assert connections_of(made, 2) == [old]
    made.wait(1_500)
    assert connections_of(made, 2) == [new]
    made.says(made[1], new, encode_report(0))
    master = made[1].replication.master
    assert master is not None and master.on_nodes(3) == -1


def test_a_second_connection_of_an_id_never_displaces_a_live_one() -> None:
    """A stranger says that it is replica 2, which follows: what it would acknowledge then would be on no other disk."""
    made = Replicas(2)
    in_sync(made)
    (real,) = connections_of(made, 2)
    for _ in range(3):
        stranger = made.stranger(made[1])
        made.says(made[1], stranger, greeting(2))
    master = made[1].replication.master
    assert master is not None and master.believe(made.now) == [], "the real one was asked for a sign of life once"
    for _ in range(60):
        done = made.write(1)[0]
        made.wait(500)
        assert made[1].acknowledged(done) and made[2].store.log.end == made[1].store.log.end
    assert connections_of(made, 2) == [real]
    made.says(made[1], stranger, encode_report(made[1].store.log.end))
    assert connections_of(made, 2) == [real], "a report of one that was not greeted ends its connection"


def test_a_handshake_of_a_strange_machine_is_not_answered() -> None:
    """The controllers know replica 2 somewhere else: the stranger is cut off, and counts for nothing meanwhile."""
    made = Replicas(2)
    made.homes = {2: "10.0.0.2"}
    made.part(1, 2)
    made.elect(1)
    made.wait(300)
    stranger = made.stranger(made[1])
    made.says(made[1], stranger, greeting(2))
    made.write(3)
    assert connections_of(made, 2) == [] and made.members == {1}
    master = made[1].replication.master
    assert master is not None and len(master.followers) == 1
    made.wait(5_100)
    assert not master.followers and any("checkPeerAddresses" in note for note in made[1].notes)
    made.cut_off.clear()
    made.wait(2_000)
    assert made.members == {1, 2}
    made.check_same()


def test_connections_that_say_nothing_keep_no_replica_out() -> None:
    made = Replicas(2)
    made.elect(1)
    made.part(1, 2)
    strangers = [made.stranger(made[1]) for _ in range(100)]
    made.cut_off.clear()
    made.wait(3_000)
    master = made[1].replication.master
    assert made.members == {1, 2} and master is not None
    assert len(strangers) == 100 and len(master.followers) <= MAX_STRANGERS + 1


def test_a_learner_gets_all_and_is_never_in_sync() -> None:
    made = Replicas(2, async_learner=True)
    made.elect(1)
    made.write(3)
    made.wait(2_000)
    assert made.members == {1}
    made.check_same()


def test_an_empty_replica_may_begin_with_the_last_file() -> None:
    made = Replicas(2, sync_from_last_file=True)
    made.part(1, 2)
    made.elect(1)
    made.write(60)
    made.cut_off.clear()
    made.wait(3_000)
    assert made[2].store.log.start == made[1].store.log.end - made[1].store.log.end % 2048 > 0
    assert made.members == {1, 2}
    begin, end = made[2].store.log.start, made[2].store.log.end
    made[2].kill()
    made[2].start()
    assert (made[2].store.log.start, made[2].store.log.end) == (begin, end), "what was reported is there"


def test_a_log_that_begins_later_is_not_reported_before_a_start_finds_it() -> None:
    """A start takes it for a log whose first files are lost, until a checkpoint says where it begins."""
    made = Replicas(2, sync_from_last_file=True)
    made.part(1, 2)
    made.elect(1)
    made.write(60)
    made.cut_off.clear()
    made.wait(500)
    assert made[2].store.log.end == made[1].store.log.end and made.members == {1}
    made[2].kill()
    made[2].start()
    assert made[2].store.log.end == 0
    made.tell(made[2])
    made.wait(3_000)
    assert made.members == {1, 2}


def test_a_replica_that_reports_late_has_caught_up_all_the_same() -> None:
    """Its reports name what was sent some time ago, and more has been sent since, always."""
    late = {"ha_report_durable_only": True, "ha_max_time_slave_not_catchup": 1_000}
    made = Replicas(2, all_ack_in_sync_state_set=False, **late)
    in_sync(made)
    made[2].slow_disk = True
    for _ in range(30):
        waiting = len(made[2].io)
        made.write(2)
        made.wait(100)
        made[2].sync(waiting)  # what was asked for a turn ago
    assert made.members == {1, 2}


def test_a_master_begins_with_all_that_it_has_durable() -> None:
    """With SYNC_FLUSH readers see what is durable: what they saw at the last master is shown from the beginning."""
    made = Replicas(3, store={"flush_disk_type": "SYNC_FLUSH"})
    in_sync(made)
    made.write(3)
    end = made[1].store.log.end
    made[1].run([made[1].store.flusher.flush([])])
    made[1].settle()
    assert made[2].store.log.end == end > made[2].store.log.flushed
    made[1].kill()
    made.elect(2)
    assert made[2].leads and made[2].store.reads.confirmed == end


def test_a_replica_that_stalls_leaves_and_comes_back() -> None:
    made = Replicas(2, ha_max_time_slave_not_catchup=1_000, ha_report_durable_only=True)
    in_sync(made)
    made[2].slow_disk = True
    made.write(2)
    made.wait(1_500)
    assert made.members == {1}
    made[2].slow_disk = False
    made[2].sync()
    made.wait(500)
    assert made.members == {1, 2}


def test_readers_of_a_replica_hear_what_is_confirmed_soon() -> None:
    made = Replicas(2)
    in_sync(made)
    made.write(4)
    made.wait(200)
    assert made[2].store.reads.confirmed == made[1].store.reads.confirmed == made[1].store.log.end


def test_another_history_is_refused_and_nothing_is_changed() -> None:
    made = Replicas(2)
    made[2].kill()
    made.elect(1)
    made.write(4)
    made[1].kill()
    made.members = frozenset((2,))
    made[2].start()
    made[2].replication.epochs.entries = []
    made.epoch = 6
    made.elect(2)
    made.write(3)
    made[1].start()
    assert made[1].store.reads.confirmed > 0 or made[1].store.log.end > 0
    made[1].store.flusher.confirm(made[1].store.log.end)
    before = made[1].bytes()
    made.wait(1_000)
    assert made[1].bytes() == before
    assert any("none in common" in note for note in made[1].notes)
