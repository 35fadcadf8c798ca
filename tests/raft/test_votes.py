"""Votes: each row of the table that answers them, each row of the table that reads them, and what is kept before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from perseid.raft.election import PAUSE_MS, YIELD_MS, Parsed, Round
from perseid.raft.state import Role, parse_vote
from perseid.wire.dledger import Code, DLedgerRequest, HeartBeatResponse, Vote, VoteRequest, VoteResponse

from .harness import START, Seat, accepts, beat, entries, following, leading, until, vote, written

LOG = entries(1, 1, 2)
"""Of the voter: it ends with entry 2 of term 2."""
TERM = 6


def voter(term: int = TERM, **settings: Any) -> Seat:
    """A candidate of a term that has voted for nobody yet."""
    seat = Seat(**settings)
    written(seat.disk, LOG, term=term - 1)
    seat.start()
    asked(seat, vote("n2", term, 2, 2))
    until(seat, lambda: seat.raft.member.term == term)
    assert seat.where == ("candidate", term, None) and seat.raft.member.vote is None
    seat.mail.clear()
    return seat


def asked(seat: Seat, request: VoteRequest) -> VoteResponse:
    return seat.ask(DLedgerRequest.VOTE, request, VoteResponse)


def at(term: int, leader: str = "n1", end: int = 2, end_term: int = 2, **more: Any) -> VoteRequest:
    return vote(leader, term, end, end_term, **more)


# ---- how a vote is answered ----


def nothing(seat: Seat) -> None:
    """It is as `voter` made it."""


def follows(seat: Seat) -> None:
    """It voted for n1, and follows it."""
    asked(seat, at(TERM))
    seat.ask(DLedgerRequest.HEART_BEAT, beat("n1", TERM), HeartBeatResponse)


def voted(seat: Seat) -> None:
    asked(seat, at(TERM))


def behind_its_log(seat: Seat) -> None:
    """No start leaves a member so: it takes the term of its last entry."""
    seat.raft.member.term = 1


def takes_over(seat: Seat) -> None:
    """It was asked to lead in this term."""
    seat.raft.member.term_to_take = TERM


@dataclass(frozen=True)
class Row:
    """A row of dledger.md §4.2: a request, and what is answered."""

    name: str
    request: VoteRequest
    result: str
    term: int = TERM
    before: Callable[[Seat], None] = nothing
    code: int = Code.SUCCESS
    settings: dict[str, Any] = field(default_factory=dict)


ROWS = [
    Row("wrong group", at(9, group="other"), Vote.UNKNOWN, 9, code=Code.UNKNOWN_GROUP),
    Row("wrong member", at(9, remote_id="n2"), Vote.UNKNOWN, 9, code=Code.UNKNOWN_MEMBER),
    Row("unknown leader", at(9, "n9", 0, 0), Vote.UNKNOWN_LEADER),
    Row("unexpected leader", at(9, "n0", 0, 0, local_id="n1"), Vote.UNEXPECTED_LEADER),
    Row("older last entry", at(9, end=99, end_term=1), Vote.EXPIRED_LEDGER_TERM),
    Row("shorter log", at(9, end=1), Vote.SMALL_LEDGER_END_INDEX),
    Row("older log before older term", at(1, end=1), Vote.SMALL_LEDGER_END_INDEX),
    Row("older term", at(5, end=99), Vote.EXPIRED_VOTE_TERM),
    Row("has a leader", at(TERM, "n2", 99), Vote.ALREADY_HAS_LEADER, before=follows),
    Row("has voted", at(TERM, "n2", 99), Vote.ALREADY_VOTED, before=voted),
    Row("higher term", at(7), Vote.TERM_NOT_READY),
    Row("term below the log's", at(1), Vote.TERM_SMALL_THAN_LEDGER, 2, behind_its_log),
    Row("takes over", at(TERM), Vote.TAKING_LEADERSHIP, before=takes_over, settings={"preferred_leader_ids": "n0"}),
    Row("accepted", at(TERM), Vote.ACCEPT),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_vote_is_answered_by_the_first_row_that_fits(row: Row) -> None:
    seat = voter(**row.settings)
    row.before(seat)
    answer = asked(seat, row.request)
    assert (answer.code, answer.vote_result, answer.term) == (row.code, row.result, row.term)
    request = row.request
    assert (answer.group, answer.remote_id) == (request.group, request.remote_id)
    assert (answer.leader_id, answer.local_id) == (request.leader_id, request.local_id)


@pytest.mark.parametrize("row", [row for row in ROWS if row.result != Vote.ACCEPT], ids=lambda row: row.name)
def test_a_vote_that_is_not_given_changes_nothing_on_disk_but_the_term(row: Row) -> None:
    seat = voter(**row.settings)
    row.before(seat)
    before, kept = seat.raft.member.vote, seat.disk.read("currterm")
    asked(seat, row.request)
    if row.result == Vote.TERM_NOT_READY:
        assert seat.where == ("candidate", 7, None) and seat.raft.member.vote is None
    else:
        assert seat.raft.member.vote == before and seat.disk.read("currterm") == kept


def test_a_candidate_with_an_older_log_does_not_raise_the_term() -> None:
    seat = voter()
    asked(seat, at(1_000, end=1))
    assert seat.raft.member.term == TERM


def test_a_higher_term_is_gone_to_at_once_and_its_candidate_accepted_the_next_time() -> None:
    seat = voter()
    first, second = asked(seat, at(9)), asked(seat, at(9))
    assert (first.vote_result, first.term) == (Vote.TERM_NOT_READY, TERM)
    assert (second.vote_result, second.term) == (Vote.ACCEPT, 9)


def test_the_same_candidate_is_accepted_again() -> None:
    seat = voter()
    for _ in range(3):
        answer = asked(seat, at(TERM))
        assert answer.vote_result == Vote.ACCEPT


def test_a_follower_that_has_not_voted_accepts_another_candidate() -> None:
    """Its leader has a quorum of others; and it goes on following."""
    seat = voter()
    seat.ask(DLedgerRequest.HEART_BEAT, beat("n1", TERM), HeartBeatResponse)
    answer = asked(seat, at(TERM, "n2"))
    assert answer.vote_result == Vote.ACCEPT
    assert seat.where == ("follower", TERM, "n1")


def test_who_takes_over_accepts_a_longer_log() -> None:
    seat = voter(preferred_leader_ids="n0")
    takes_over(seat)
    answer = asked(seat, at(TERM, end=3))
    assert answer.vote_result == Vote.ACCEPT


def test_a_leader_steps_down_before_a_candidate_of_a_higher_term() -> None:
    seat = leading(Seat(), 0)
    answer = asked(seat, vote("n1", 5))
    assert (answer.vote_result, answer.term) == (Vote.TERM_NOT_READY, 0)
    assert seat.where == ("candidate", 5, None)


def test_nobody_is_answered_before_what_was_found_is_durable() -> None:
    seat = Seat()
    written(seat.disk, LOG, term=TERM)
    seat.hold = True
    seat.start()
    opaque = seat.send(DLedgerRequest.VOTE, at(9).to_json(), "n1")
    assert seat.answers(opaque) == [] and seat.raft.member.term == TERM
    assert seat.asked(DLedgerRequest.VOTE) == []


# ---- what is kept before ----


def test_a_vote_is_answered_when_it_is_durable_and_so_is_the_second_answer() -> None:
    seat = voter()
    seat.hold = True
    first, second = (seat.send(DLedgerRequest.VOTE, at(TERM).to_json(), "n1") for _ in range(2))
    assert seat.answers(first) == seat.answers(second) == []
    seat.release(len(seat.held))
    assert parse_vote(seat.disk.read("currterm") or b"", "") == (TERM, "n1")
    for opaque in (first, second):
        answer = seat.answer(opaque, VoteResponse)
        assert answer is not None and answer.vote_result == Vote.ACCEPT


def test_a_refusal_does_not_wait_for_the_disk() -> None:
    seat = voter()
    seat.hold = True
    seat.send(DLedgerRequest.VOTE, at(TERM).to_json(), "n1")
    answer = asked(seat, at(TERM, "n2"))
    assert answer.vote_result == Vote.ALREADY_VOTED


def test_a_vote_that_a_power_cut_took_was_never_answered() -> None:
    seat = voter()
    seat.hold = True
    opaque = seat.send(DLedgerRequest.VOTE, at(TERM).to_json(), "n1")
    assert seat.answers(opaque) == []
    seat.again(power=True)
    assert seat.raft.member.term == TERM


def test_a_vote_that_was_answered_survives_a_power_cut() -> None:
    for seed in range(10):
        seat = voter()
        seat.disk.random.seed(seed)
        asked(seat, at(TERM))
        seat.again(power=True)
        answer = asked(seat, at(TERM, "n2", 99))
        assert answer.vote_result == Vote.ALREADY_VOTED


def test_others_are_asked_when_the_own_vote_is_durable() -> None:
    seat = Seat()
    seat.hold = True
    votes: list[tuple[int, str]] = []
    seat.raft.on_vote = lambda term, candidate: votes.append((term, candidate))
    seat.start()
    seat.release(len(seat.held))  # what was found
    assert seat.raft.member.vote == "n0" and seat.asked(DLedgerRequest.VOTE) == [] and votes == []
    seat.release(len(seat.held))
    assert parse_vote(seat.disk.read("currterm") or b"", "") == (0, "n0")
    assert sorted(one.peer for one in seat.asked(DLedgerRequest.VOTE)) == ["n1", "n2"] and votes == [(0, "n0")]


def test_a_member_alone_leads_only_when_its_vote_is_durable() -> None:
    seat = Seat(size=1)
    seat.hold = True
    seat.start()
    seat.release(len(seat.held))
    assert seat.where == ("candidate", 0, None)
    seat.release(len(seat.held))
    assert seat.where == ("leader", 0, "n0")


def test_who_voted_for_itself_asks_in_the_next_term_after_a_start() -> None:
    """It may have led in that term, and have lost what it pushed before its own disk had it."""
    seat = leading(Seat(), 0)
    seat.again(power=True)
    assert {one.body(VoteRequest).term for one in seat.asked(DLedgerRequest.VOTE)} == {1}
    assert parse_vote(seat.disk.read("currterm") or b"", "") == (1, "n0")


def test_a_term_that_only_the_log_knows_gets_no_vote() -> None:
    """currterm was lost: in the term of the last entry this member may have voted for anybody."""
    seat = Seat()
    written(seat.disk, LOG)
    seat.start()
    answer = asked(seat, at(2))
    assert (answer.vote_result, answer.term) == (Vote.ALREADY_VOTED, 2)
    assert "no vote is given" in " ".join(seat.notes)


@pytest.mark.parametrize("left", ["currterm.bak", "currterm.tmp"])
def test_a_term_that_a_crash_left_beside_its_file_is_found(left: str) -> None:
    seat = Seat()
    seat.disk.write("currterm.tmp", b"voteLe")
    seat.disk.write(left, b"voteLeader=n2\ncurrTerm=4\n")
    seat.start()
    assert seat.raft.member.term == 4 and seat.raft.member.vote == "n2"


# ---- how votes are read ----


def counted(*answers: tuple[str, int], term: int = TERM, number: int = 1) -> Round:
    one = Round(number, term, START + 3_000, 2, 2)
    for result, in_term in answers:
        one.count(result, in_term)
    return one


YES, READY, NONE = (Vote.ACCEPT, TERM), (Vote.TERM_NOT_READY, TERM - 1), (Vote.UNKNOWN, -1)
BIGGER, LONGER = (Vote.EXPIRED_LEDGER_TERM, TERM), (Vote.SMALL_LEDGER_END_INDEX, TERM)
HAS, NO = (Vote.ALREADY_HAS_LEADER, TERM), (Vote.ALREADY_VOTED, TERM)
NEXT = (300, 1_000)
"""The next vote comes so much later."""
READINGS = [
    ("a higher term", [YES, YES, (Vote.EXPIRED_VOTE_TERM, 9)], Parsed.WAIT_TO_VOTE_NEXT, NEXT),
    ("a log of a higher term", [YES, YES, (Vote.TERM_SMALL_THAN_LEDGER, 9)], Parsed.WAIT_TO_VOTE_NEXT, NEXT),
    ("a term no higher", [YES, YES, (Vote.EXPIRED_VOTE_TERM, TERM)], Parsed.PASSED, (0, 1)),
    ("has a leader", [YES, YES, HAS], Parsed.WAIT_TO_REVOTE, (6_300, 7_000)),
    ("no quorum answered", [YES, NONE, NONE], Parsed.WAIT_TO_REVOTE, NEXT),
    ("a quorum has more", [YES, BIGGER, LONGER], Parsed.WAIT_TO_REVOTE, (1_300, 2_000)),
    ("of two, one has more", [YES, LONGER, NONE], Parsed.WAIT_TO_REVOTE, (1_300, 2_000)),
    ("passed", [YES, YES, NONE], Parsed.PASSED, (0, 1)),
    ("passed, one has more", [YES, YES, BIGGER], Parsed.PASSED, (0, 1)),
    ("soon ready", [YES, READY, NONE], Parsed.REVOTE_IMMEDIATELY, (PAUSE_MS, PAUSE_MS + 1)),
    ("soon ready, one has voted", [YES, READY, NO], Parsed.REVOTE_IMMEDIATELY, (PAUSE_MS, PAUSE_MS + 1)),
    ("split", [YES, NO, NO], Parsed.WAIT_TO_VOTE_NEXT, NEXT),
    ("strangers", [YES, (Vote.UNKNOWN_LEADER, 0), (Vote.TAKING_LEADERSHIP, 0)], Parsed.WAIT_TO_VOTE_NEXT, NEXT),
]


@pytest.mark.parametrize(("answers", "parsed", "later"), [row[1:] for row in READINGS], ids=[r[0] for r in READINGS])
def test_votes_are_read_by_the_first_row_that_fits(
    answers: list[tuple[str, int]], parsed: Parsed, later: tuple[int, int]
) -> None:
    seat = voter()
    election = seat.raft._election
    election._parse(counted(*answers), seat.now)
    assert election._parsed is parsed
    assert later[0] <= election._vote_at - seat.now < later[1]
    assert seat.where == (("leader", TERM, "n0") if parsed is Parsed.PASSED else ("candidate", TERM, None))
    known = 9 if any(term == 9 for _, term in answers) else TERM
    assert seat.raft.member.known_max_term == known


def test_votes_of_another_term_or_role_are_not_read() -> None:
    seat = voter()
    seat.raft._election._parse(counted(YES, YES, YES, term=TERM - 1), seat.now)
    assert seat.raft.member.role is Role.CANDIDATE
    follows(seat)
    seat.raft._election._parse(counted(YES, YES, YES), seat.now)
    assert seat.where == ("follower", TERM, "n1"), "a follower does not become leader of its own term"


def test_a_round_ends_as_soon_as_its_outcome_is_known() -> None:
    assert not counted(YES).is_settled(2, 3)
    for answers in ((YES, YES), (YES, READY), (YES, HAS), (YES, NO, NO), (YES, NONE, NONE)):
        assert counted(*answers).is_settled(2, 3), answers
    assert not counted(YES, NO).is_settled(2, 3)
    assert not counted(YES, YES, NONE, NO).is_settled(3, 5) and counted(YES, YES, READY).is_settled(3, 5)


# ---- rounds ----


def test_two_of_three_votes_make_a_leader() -> None:
    seat = Seat().start()
    request = seat.asked(DLedgerRequest.VOTE, "n1")[0].body(VoteRequest)
    assert request == vote("n0", 0, remote_id="n1")
    seat.reply_all(DLedgerRequest.VOTE, accepts(0), "n2")
    assert seat.where == ("leader", 0, "n0")


def test_answers_of_an_earlier_round_count_for_nothing() -> None:
    seat = Seat(size=5).start()
    early = seat.asked(DLedgerRequest.VOTE)
    seat.reply(early.pop(), accepts(0))
    seat.pass_time(3_000)
    seat.pass_time(1_000)
    assert len(seat.asked(DLedgerRequest.VOTE)) > len(early), "a second round has begun"
    for one in early:
        seat.reply(one, accepts(0))
    assert seat.where == ("candidate", 0, None)
    for one in seat.asked(DLedgerRequest.VOTE)[:2]:
        seat.reply(one, accepts(0))
    assert seat.where == ("leader", 0, "n0")


@pytest.mark.parametrize("told_by", ["vote", "heartbeat"])
def test_a_round_is_given_up_for_a_higher_term(told_by: str) -> None:
    """Its votes would be of no use, and whoever waits for ours would wait until its end."""
    seat = Seat(size=5).start()
    early = seat.asked(DLedgerRequest.VOTE)
    if told_by == "vote":
        assert asked(seat, vote("n1", 4)).vote_result == Vote.TERM_NOT_READY
    else:
        seat.ask(DLedgerRequest.HEART_BEAT, beat("n1", 4), HeartBeatResponse)
    assert seat.where == ("candidate", 4, None)
    assert asked(seat, vote("n1", 4)).vote_result == Vote.ACCEPT
    for one in early:
        seat.reply(one, accepts(0))
    assert seat.where == ("candidate", 4, None) and seat.roles == []


def test_who_is_not_ready_is_asked_again_in_the_same_term_at_once() -> None:
    seat = Seat().start()
    for _ in range(5):
        seat.reply_all(DLedgerRequest.VOTE, VoteResponse(term=-1, vote_result=Vote.TERM_NOT_READY), "n1")
        seat.forget(DLedgerRequest.VOTE)
        seat.pass_time(PAUSE_MS)
    assert seat.where == ("candidate", 0, None)
    seat.reply_all(DLedgerRequest.VOTE, accepts(0), "n1")
    assert seat.where == ("leader", 0, "n0")


def test_a_round_without_answers_does_not_raise_the_term() -> None:
    seat = Seat().start()
    seat.pass_time(30_000)
    assert seat.where == ("candidate", 0, None)


def test_a_split_vote_raises_the_term_in_the_next_round() -> None:
    seat = Seat().start()
    seat.reply_all(DLedgerRequest.VOTE, VoteResponse(term=0, vote_result=Vote.ALREADY_VOTED))
    assert seat.where == ("candidate", 0, None)
    seat.pass_time(1_000)
    assert seat.where == ("candidate", 1, None)
    assert {one.body(VoteRequest).term for one in seat.asked(DLedgerRequest.VOTE)} == {1}


def test_a_higher_term_in_an_answer_is_gone_to_in_the_next_round() -> None:
    seat = Seat().start()
    one, other = seat.asked(DLedgerRequest.VOTE)
    seat.reply(one, VoteResponse(term=7, vote_result=Vote.EXPIRED_VOTE_TERM))
    seat.reply(other, VoteResponse(term=0, vote_result=Vote.ALREADY_VOTED))
    seat.pass_time(1_000)
    assert seat.where == ("candidate", 7, None)


def test_a_follower_that_hears_nothing_votes_first_in_the_term_it_has() -> None:
    seat = following(Seat(), "n1", 4)
    seat.mail.clear()
    seat.pass_time(6_002)
    assert {one.body(VoteRequest).term for one in seat.asked(DLedgerRequest.VOTE)} == {4}


def test_who_has_given_its_vote_gives_the_candidate_time_to_lead() -> None:
    seat = Seat(min_vote_interval_ms=20, max_vote_interval_ms=60).start()
    until(seat, lambda: seat.ask(DLedgerRequest.VOTE, vote("n1", 3), VoteResponse).vote_result == Vote.ACCEPT)
    seat.forget(DLedgerRequest.VOTE)
    seat.pass_time(YIELD_MS - 1)
    assert seat.asked(DLedgerRequest.VOTE) == []
    seat.pass_time(100)
    assert [one.body(VoteRequest).term for one in seat.asked(DLedgerRequest.VOTE, "n1")] == [3]
