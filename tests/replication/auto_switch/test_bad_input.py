"""What strangers, and replicas that lie, say at the HA port; and what a master may not say to us."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perseid.base.machine import Frames, Opened
from perseid.replication.receiver import LISTENER, State
from perseid.wire.ha_auto import (
    EpochEntry,
    Packet,
    encode_master_handshake,
    encode_packet,
    encode_report,
    encode_slave_handshake,
)

from .replicas import Replica, Replicas

HELLO = encode_slave_handshake(9, from_last_file=False, learner=False)


@pytest.fixture
def made() -> Replicas:
    made = Replicas(2)
    made.elect(1)
    made.wait(300)
    made.write(5)
    made.wait(200)
    return made


def refused(made: Replicas, said: bytes) -> None:
    """A stranger that says this is cut off, and nothing else happens."""
    one = made[1]
    before = one.store.reads.confirmed, made.members, one.replication.replicated()
    conn = made.stranger(one)
    made.says(one, conn, said)
    assert not one.replication.owns(conn), "it is cut off"
    made.wait(300)
    assert (one.store.reads.confirmed, made.members, one.replication.replicated()) == before
    (done,) = made.write(1)
    assert one.acknowledged(done)
    made.wait(200)
    made.check_same()


@pytest.mark.parametrize("state", [0, 3, 4, 9, -1])
def test_a_state_that_is_none(made: Replicas, state: int) -> None:
    refused(made, state.to_bytes(4, "big", signed=True) + bytes(12))


def test_b14a_a_report_before_the_handshake(made: Replicas) -> None:
    refused(made, encode_report(0))


def test_b14a_an_acknowledgement_beyond_the_end(made: Replicas) -> None:
    refused(made, HELLO + encode_report(99_999_999))


def test_an_acknowledgement_beyond_what_was_sent(made: Replicas) -> None:
    one = made[1]
    conn = made.stranger(one)
    made.says(one, conn, HELLO)
    assert one.replication.master is not None
    follower = one.replication.master.followers[conn]
    one.run(one.replication.received(Frames(conn, encode_report(0)), made.now))
    one.run(one.replication.received(Frames(conn, encode_report(1)), made.now))
    assert follower.next == 0 and not one.replication.owns(conn), "nothing was sent before the turn's end"


@pytest.mark.parametrize("number", [0, -1, 1])
def test_an_id_that_nobody_can_have(made: Replicas, number: int) -> None:
    refused(made, encode_slave_handshake(number, from_last_file=False, learner=False))


def test_another_id_on_the_same_connection(made: Replicas) -> None:
    refused(made, HELLO + encode_slave_handshake(8, from_last_file=False, learner=False))


def test_a_negative_report(made: Replicas) -> None:
    refused(made, HELLO + encode_report(-5))


def test_b15_frames_split_at_every_byte(made: Replicas) -> None:
    one = made[1]
    end = one.store.log.end
    said = HELLO + encode_report(end) + encode_report(end)
    for at in range(1, len(said)):
        conn = made.stranger(one)
        made.says(one, conn, said[:at])
        made.says(one, conn, said[at:])
        assert one.replication.master is not None
        follower = one.replication.master.followers[conn]
        assert (follower.replica, follower.acknowledged) == (9, end), f"split at {at}"
        made.cut(conn)


def test_a_repeated_handshake_asks_anew(made: Replicas) -> None:
    one = made[1]
    conn = made.stranger(one)
    made.says(one, conn, HELLO + encode_report(0))
    made.says(one, conn, HELLO)
    assert one.replication.master is not None
    assert not one.replication.master.followers[conn].following


def test_a_report_that_goes_down_never_takes_back_what_was_confirmed(made: Replicas) -> None:
    one = made[1]
    before = one.store.reads.confirmed
    assert one.replication.master is not None
    conn = next(c for c, f in one.replication.master.followers.items() if f.replica == 2)
    made.says(one, conn, encode_report(0))
    assert one.store.reads.confirmed == before
    one.append(b"waits")
    assert one.store.reads.confirmed == before


# ---- a master that lies ----


def greeted(said: Callable[[Replica], bytes]) -> Replica:
    """A replica with a log, whose master says this after the handshake."""
    made = Replicas(2)
    made.elect(1)
    made.wait(300)
    made.write(5)
    made.wait(200)
    two = made[2]
    made.part(1, 2)
    entries = [EpochEntry(1, 0)]
    two.run(two.replication.slave.follow("10.0.0.1:10912", made.now))
    made.now += 2_000
    two.replication.slave.state = State.DIALLING
    two.run(two.replication.opened(Opened(777, "10.0.0.1:10912", "", LISTENER, "10.0.0.1:10912"), made.now))
    hello = encode_master_handshake(entries, two.store.log.end)
    before = two.bytes()
    two.run(two.replication.received(Frames(777, hello), made.now))
    assert two.replication.slave.following
    for byte in said(two):
        if two.replication.slave.conn == 777:
            two.run(two.replication.received(Frames(777, bytes((byte,))), made.now))
    assert two.replication.slave.conn is None, "the connection is ended"
    assert two.bytes() == before and two.replication.epochs.entries == entries
    two.check()
    return two


@pytest.mark.parametrize(
    "said",
    [
        lambda two: encode_packet(Packet(-1, two.store.log.end, 1, 0, 0)),
        lambda two: encode_packet(Packet(1 << 30, two.store.log.end, 1, 0, 0)),
        lambda two: encode_packet(Packet(0, two.store.log.end + 1, 1, 0, 0)),
        lambda two: encode_packet(Packet(5, 0, 1, 0, 0)),
        lambda two: encode_packet(Packet(0, two.store.log.end, 0, 0, 0)),
        lambda two: encode_packet(Packet(0, two.store.log.end, 2, two.store.log.end, 0)),
        lambda two: encode_packet(Packet(16, two.store.log.end, 1, 0, 0)) + bytes(16),
        lambda two: (3).to_bytes(4, "big") + bytes(32),
        lambda two: encode_master_handshake([EpochEntry(1, 0)], 5) + bytes(16),
    ],
    ids=["negative", "huge", "ahead", "behind", "old_epoch", "new_epoch", "no_record", "state", "handshake"],
)
def test_packets_that_do_not_fit(said: Callable[[Replica], bytes]) -> None:
    greeted(said)


def test_a_confirm_offset_beyond_our_log_shows_what_we_have() -> None:
    made = Replicas(2)
    made.elect(1)
    made.wait(300)
    made.write(3)
    two = made[2]
    conn = two.replication.slave.conn
    assert conn is not None
    beat = encode_packet(Packet(0, two.store.log.end, 1, 0, 1 << 60))
    two.run(two.replication.received(Frames(conn, beat), made.now))
    assert two.store.reads.confirmed == two.store.log.end


@pytest.mark.parametrize(
    "said",
    [
        encode_master_handshake([EpochEntry(2, 5), EpochEntry(3, 5)], 9),
        encode_master_handshake([EpochEntry(3, 0), EpochEntry(2, 5)], 9),
        encode_packet(Packet(0, 0, 1, 0, 0)),
        encode_master_handshake([EpochEntry(1, 0)], 0) + b"x",
    ],
    ids=["starts", "epochs", "packet", "behind"],
)
def test_handshakes_that_are_none(said: bytes) -> None:
    made = Replicas(2)
    two = made[2]
    two.replication.slave.address = "10.0.0.1:10912"
    two.replication.slave.state = State.DIALLING
    two.run(two.replication.opened(Opened(777, "10.0.0.1:10912", "", LISTENER, "10.0.0.1:10912"), made.now))
    two.run(two.replication.received(Frames(777, said), made.now))
    assert two.replication.slave.conn is None and two.replication.epochs.entries == []


def test_an_empty_master_and_a_replica_with_a_confirmed_log() -> None:
    made = Replicas(2)
    made.elect(1)
    made.wait(300)
    made.write(3)
    made.wait(300)
    two = made[2]
    made.part(1, 2)
    two.replication.slave.state = State.DIALLING
    two.run(two.replication.opened(Opened(777, "10.0.0.1:10912", "", LISTENER, "10.0.0.1:10912"), made.now))
    before = two.bytes()
    two.run(two.replication.received(Frames(777, encode_master_handshake([], 0)), made.now))
    assert two.replication.slave.conn is None and two.bytes() == before
    assert any("none in common" in note for note in two.notes)
