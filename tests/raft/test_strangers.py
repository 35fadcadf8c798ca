"""Terms and indexes at the limits, from a stranger's machine and from a member's own, while three members work."""

from __future__ import annotations

from typing import Any

import pytest
from tests.combinations import at_each_change

from perseid.base.machine import Frames, Opened
from perseid.raft.node import LISTENER
from perseid.wire.command import encode_request
from perseid.wire.dledger import (
    DLedgerRequest,
    Entry,
    GetEntriesRequest,
    LeadershipTransferRequest,
    Message,
    Push,
    PushEntryRequest,
)

from .harness import GROUP, Group, Seat, address, append, beat, vote

LAST = (1 << 63) - 1
TERMS = (LAST, LAST - 1, 1 << 62, -1, -(1 << 63))
INDEXES = (LAST, 0, -1, -(1 << 63))


def words(speaker: str, target: str, term: int, index: int) -> list[tuple[DLedgerRequest, Message]]:
    base: dict[str, Any] = {"group": GROUP, "remote_id": target, "local_id": speaker, "leader_id": speaker}
    base["term"] = term
    entry = Entry(index=index, term=term, pos=0, body=b"of a stranger")
    kinds = (Push.APPEND, Push.COMMIT, Push.COMPARE, Push.TRUNCATE)
    order = {"transfer_id": speaker, "transferee_id": target, "take_leadership_ledger_index": index}
    return [
        (DLedgerRequest.VOTE, vote(speaker, term, index, term, remote_id=target)),
        (DLedgerRequest.HEART_BEAT, beat(speaker, term, remote_id=target)),
        *((DLedgerRequest.PUSH, PushEntryRequest(**base, type=one, commit_index=index, entry=entry)) for one in kinds),
        (DLedgerRequest.GET, GetEntriesRequest(**base, begin_index=index)),
        (DLedgerRequest.LEADERSHIP_TRANSFER, LeadershipTransferRequest(**base, **order)),
    ]


def say(seat: Seat, host: str, said: list[tuple[DLedgerRequest, Message]]) -> None:
    """On one connection from a machine."""
    seat._conns += 1
    seat.do(Opened(seat._conns, f"{host}:4000", address(seat.name), LISTENER))
    for code, message in said:
        seat._opaque += 1
        seat.do(Frames(seat._conns, encode_request(code, seat._opaque, None, message.to_json())))


@pytest.mark.parametrize("machine", at_each_change(("a stranger's", "a member's own"), "a stranger's"))
def test_a_group_at_work_goes_on_whatever_somebody_says(machine: str) -> None:
    group = Group()
    group.elect("n0")
    leader = group.leader
    append(leader, *(b"%d" % number for number in range(5)))
    group.pass_time(1_000)
    term, committed = leader.raft.member.term, leader.raft.committed
    for seat in group.seats.values():
        for speaker in group.seats:
            host = "10.9.9.9" if machine == "a stranger's" else address(speaker).partition(":")[0]
            for one in TERMS:
                for index in INDEXES:
                    say(seat, host, words(speaker, seat.name, one, index))
    group.pass_time(10_000)
    assert group.leader is leader and leader.raft.member.term == term
    assert all(f"currTerm={term}".encode() in (s.disk.read("currterm") or b"") for s in group.seats.values())
    append(leader, b"after")
    group.pass_time(1_000)
    assert leader.raft.committed == committed + 1
    for seat in group.seats.values():
        bodies = [seat.raft.log.get(index) for index in range(committed + 2)]
        assert b"of a stranger" not in [one.body for one in bodies if one is not None] and None not in bodies
