"""Leadership that is handed over: what is refused, what is waited for, and how a member that takes it ends."""

from __future__ import annotations

from typing import Any

import pytest

from perseid.wire.dledger import (
    Code,
    DLedgerRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    VoteRequest,
    VoteResponse,
)
from perseid.wire.dledger import Push as Kind

from .harness import GROUP, Group, Seat, accepts, append, beat, entries, following, leading, push, pushed, until, vote

TRANSFER = DLedgerRequest.LEADERSHIP_TRANSFER


def order(term: int, giver: str = "n0", taker: str = "n1", index: int = -1, leader: str = "client") -> Any:
    return LeadershipTransferRequest(
        group=GROUP, remote_id="n0", term=term, transfer_id=giver, transferee_id=taker, leader_id=leader,
        local_id=leader, take_leadership_ledger_index=index,
    )  # fmt: skip


def say(seat: Seat, request: Any) -> int:
    """The order's opaque."""
    return seat.send(TRANSFER, request.to_json(), request.leader_id)


def code_of(seat: Seat, opaque: int) -> int | None:
    answer = seat.answer(opaque, LeadershipTransferResponse)
    return None if answer is None else answer.code


# ---- who gives ----


def test_a_leader_refuses_what_can_not_be() -> None:
    seat = leading(Seat())
    term = seat.raft.member.term
    assert code_of(seat, say(seat, order(term, "n1", "n2"))) == Code.UNEXPECTED_ARGUMENT, "it is neither"
    assert code_of(seat, say(seat, order(term, taker="n9"))) == Code.UNKNOWN_MEMBER
    assert code_of(seat, say(seat, order(term, taker="n0"))) == Code.UNKNOWN_MEMBER
    assert code_of(seat, say(seat, order(term + 1))) == Code.INCONSISTENT_TERM
    assert not seat.asked(TRANSFER) and seat.raft.member.is_leader


def test_who_does_not_lead_gives_nothing() -> None:
    seat = following(Seat(), "n1", 3)
    assert code_of(seat, say(seat, order(3))) == Code.NOT_LEADER


@pytest.mark.parametrize(("behind", "code"), [(2, None), (3, Code.FALL_BEHIND_TOO_MUCH)])
def test_only_a_member_that_is_near_is_asked(behind: int, code: int | None) -> None:
    seat = leading(Seat(max_leadership_transfer_wait_index=3))
    append(seat, *(b"%d" % n for n in range(5)))
    for _ in range(5):
        for one in seat.asked(DLedgerRequest.PUSH, "n1"):
            seat.reply(one, pushed(-1))
    seat.raft.leader.followers["n1"].watermark = seat.raft.log.end - behind  # type: ignore[union-attr]
    opaque = say(seat, order(seat.raft.member.term))
    assert code_of(seat, opaque) == code
    assert len(seat.asked(TRANSFER, "n1")) == (code is None)


def test_one_transfer_at_a_time_and_its_answer_is_the_takers() -> None:
    seat = leading(Seat())
    term = seat.raft.member.term
    first = say(seat, order(term))
    assert code_of(seat, first) is None
    assert code_of(seat, say(seat, order(term, taker="n2"))) == Code.LEADER_TRANSFERRING
    (asked,) = seat.asked(TRANSFER)
    request = asked.body(LeadershipTransferRequest)
    assert (request.transfer_id, request.transferee_id, request.term) == ("n0", "n1", term)
    assert request.take_leadership_ledger_index == seat.raft.log.end
    seat.reply(asked, LeadershipTransferResponse(code=Code.TAKE_LEADERSHIP_FAILED, term=term))
    assert code_of(seat, first) == Code.TAKE_LEADERSHIP_FAILED
    second = say(seat, order(term, taker="n2"))
    assert code_of(seat, second) is None, "it takes orders again"
    seat.cut(next(conn for conn, peer in seat.dialled.items() if peer == "n2"))
    assert code_of(seat, second) == Code.NETWORK_ERROR


# ---- who takes ----


def taking(index: int = -1, **settings: Any) -> tuple[Seat, int]:
    """A follower of n1 in term 3, asked to lead when its log has reached an index."""
    seat = following(Seat(**settings), "n1", 3)
    seat.forget(DLedgerRequest.VOTE)
    return seat, say(seat, order(3, "n1", "n0", index, "n1"))


def test_a_follower_refuses_what_can_not_be() -> None:
    seat = following(Seat(), "n1", 3)
    assert code_of(seat, say(seat, order(3, "n2", "n0", leader="n2"))) == Code.INCONSISTENT_LEADER
    assert code_of(seat, say(seat, order(4, "n1", "n0", leader="n1"))) == Code.INCONSISTENT_TERM
    assert seat.where == ("follower", 3, "n1")
    assert code_of(seat, say(seat, order(3, "n1", "n0", 5, "n1"))) is None
    assert code_of(seat, say(seat, order(3, "n1", "n0", 5, "n1"))) == Code.LEADER_TRANSFERRING


def test_it_leads_the_next_term_when_others_agree() -> None:
    seat, opaque = taking()
    until(seat, lambda: bool(seat.asked(DLedgerRequest.VOTE)))
    assert {one.body(VoteRequest).term for one in seat.asked(DLedgerRequest.VOTE)} == {4}
    for one in seat.asked(DLedgerRequest.VOTE):
        seat.reply(one, accepts(4))
    assert seat.where == ("leader", 4, "n0")
    seat.pass_time(10)
    assert code_of(seat, opaque) == Code.SUCCESS


def test_it_waits_for_what_the_leader_had_and_no_longer_than_its_time() -> None:
    seat, opaque = taking(index=1)
    seat.pass_time(100)
    assert not seat.asked(DLedgerRequest.VOTE)
    for entry in entries(3, 3):
        seat.send(DLedgerRequest.PUSH, push(Kind.APPEND, entry, term=3).to_json(), "n1")
    seat.pass_time(100)
    assert seat.asked(DLedgerRequest.VOTE) and code_of(seat, opaque) is None
    late, opaque = taking(index=1, leadership_transfer_wait_timeout=500)
    for _ in range(6):
        late.pass_time(100)
        late.ask(DLedgerRequest.HEART_BEAT, beat("n1", 3), HeartBeatResponse)
    assert code_of(late, opaque) == Code.TAKE_LEADERSHIP_FAILED and late.where == ("follower", 3, "n1")


def test_another_term_comes_before_it_has_begun() -> None:
    seat, opaque = taking(index=1)
    seat.ask(DLedgerRequest.HEART_BEAT, beat("n2", 5), HeartBeatResponse)
    until(seat, lambda: seat.raft.member.term >= 5)
    assert code_of(seat, opaque) == Code.INCONSISTENT_TERM


def test_another_leads_the_term_that_it_asked_for() -> None:
    seat, opaque = taking()
    until(seat, lambda: bool(seat.asked(DLedgerRequest.VOTE)))
    seat.ask(DLedgerRequest.HEART_BEAT, beat("n2", 4), HeartBeatResponse)
    until(seat, lambda: code_of(seat, opaque) is not None)
    assert code_of(seat, opaque) == Code.TAKE_LEADERSHIP_FAILED


def test_a_later_term_ends_it() -> None:
    seat, opaque = taking()
    until(seat, lambda: bool(seat.asked(DLedgerRequest.VOTE)))
    seat.ask(DLedgerRequest.VOTE, vote("n2", 9, 0, 0), VoteResponse)
    until(seat, lambda: code_of(seat, opaque) is not None)
    assert code_of(seat, opaque) == Code.EXPIRED_TERM


def test_nobody_answers_it() -> None:
    seat, opaque = taking()
    until(seat, lambda: code_of(seat, opaque) is not None)
    assert code_of(seat, opaque) == Code.INTERNAL_ERROR


# ---- all of them ----


def test_a_group_hands_over_and_goes_on() -> None:
    group = Group()
    first = group.elect("n0")
    term = first.raft.member.term
    append(first, b"before")
    group.pass_time(100)
    opaque = say(first, order(term))
    group.pass_time(3_000)
    assert group.leader.name == "n1" and group.leader.raft.member.term > term
    assert code_of(first, opaque) == Code.SUCCESS
    append(group.leader, b"after")
    group.pass_time(1_000)
    assert {tuple(seat.bodies) for seat in group.seats.values()} == {(b"before", b"after")}


def test_a_leader_that_is_not_preferred_hands_over_to_one_that_is() -> None:
    group = Group(preferred_leader_ids="n2")
    group.elect("n0")
    group.pass_time(20_000)
    assert group.leader.name == "n2"
