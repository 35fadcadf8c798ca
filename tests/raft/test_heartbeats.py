"""Heartbeats: what each answer means to the leader, what each beat means to who gets it, and what silence means."""

from __future__ import annotations

import pytest

from perseid.raft.election import FIRST_DOUBT_MS, PAUSE_MS
from perseid.wire.dledger import (
    Code,
    DLedgerRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    MetadataRequest,
    MetadataResponse,
    VoteRequest,
)

from .harness import GROUP, Seat, beat, following, leading

INTERVAL, SILENCE = 2_000, 6_000
OK = HeartBeatResponse()
NOT_READY = HeartBeatResponse(code=Code.TERM_NOT_READY)
OTHER_LEADER = HeartBeatResponse(code=Code.INCONSISTENT_LEADER)


def expired(term: int) -> HeartBeatResponse:
    return HeartBeatResponse(code=Code.EXPIRED_TERM, term=term)


def heard(seat: Seat, request: HeartBeatRequest) -> tuple[int, int]:
    """Code and term of the answer to a heartbeat."""
    answer = seat.ask(DLedgerRequest.HEART_BEAT, request, HeartBeatResponse)
    assert answer.group is None and answer.leader_id is None
    return answer.code, answer.term


def beats(seat: Seat, peer: str | None = None) -> int:
    """How many heartbeats lie in the mail."""
    return len(seat.asked(DLedgerRequest.HEART_BEAT, peer))


def pulse(seat: Seat, answers: dict[str, HeartBeatResponse]) -> None:
    """Answer the beats that lie in the mail; those of others are lost."""
    for peer, response in answers.items():
        seat.reply_all(DLedgerRequest.HEART_BEAT, response, peer)
    seat.forget(DLedgerRequest.HEART_BEAT)


# ---- who gets one ----


def test_a_leader_that_is_no_member_is_refused() -> None:
    seat = following(Seat(), "n1", 5)
    assert heard(seat, beat("n9", 9)) == (Code.UNKNOWN_MEMBER, 5)
    assert seat.where == ("follower", 5, "n1")


def test_a_leader_that_is_ourselves_is_refused() -> None:
    seat = following(Seat(), "n1", 5)
    assert heard(seat, beat("n0", 9)) == (Code.UNEXPECTED_MEMBER, 5)


def test_a_leader_of_an_older_term_is_told_the_term() -> None:
    seat = following(Seat(), "n1", 5)
    assert heard(seat, beat("n1", 3)) == (Code.EXPIRED_TERM, 5)
    assert heard(seat, beat("n2", 4)) == (Code.EXPIRED_TERM, 5)


def test_the_leader_that_is_followed_is_heard() -> None:
    seat = following(Seat(), "n1", 5)
    seat.pass_time(SILENCE)
    assert heard(seat, beat("n1", 5)) == (Code.SUCCESS, -1)
    seat.pass_time(SILENCE)
    assert seat.where == ("follower", 5, "n1")


def test_a_candidate_follows_the_leader_of_its_term() -> None:
    seat = Seat().start()
    assert heard(seat, beat("n2", 0)) == (Code.SUCCESS, -1)
    assert seat.where == ("follower", 0, "n2") and seat.roles == [("follower", 0)]


def test_another_leader_of_the_same_term_is_refused() -> None:
    seat = following(Seat(), "n1", 5)
    assert heard(seat, beat("n2", 5)) == (Code.INCONSISTENT_LEADER, -1)
    assert seat.where == ("follower", 5, "n1")


def test_a_leader_refuses_another_one_of_its_term() -> None:
    seat = leading(Seat(), 0)
    assert heard(seat, beat("n1", 0)) == (Code.INCONSISTENT_LEADER, -1)
    assert seat.where == ("leader", 0, "n0")


def test_a_leader_of_a_higher_term_is_followed_with_its_second_beat() -> None:
    seat = following(Seat(), "n1", 5)
    assert heard(seat, beat("n2", 7)) == (Code.TERM_NOT_READY, -1)
    assert seat.where == ("candidate", 7, None) and seat.raft.member.vote is None
    assert heard(seat, beat("n2", 7)) == (Code.SUCCESS, -1)
    assert seat.where == ("follower", 7, "n2")


def test_a_leader_steps_down_before_one_of_a_higher_term() -> None:
    seat = leading(Seat(), 0)
    assert heard(seat, beat("n1", 3)) == (Code.TERM_NOT_READY, -1)
    assert seat.where == ("candidate", 3, None)


def test_a_beat_for_another_group_or_member_is_refused() -> None:
    seat = following(Seat(), "n1", 5)
    for wrong, code in ({"group": "h"}, Code.UNKNOWN_GROUP), ({"remote_id": "n1"}, Code.UNKNOWN_MEMBER):
        answer = seat.ask(DLedgerRequest.HEART_BEAT, beat("n1", 9, **wrong), HeartBeatResponse)
        assert answer.code == code and seat.where == ("follower", 5, "n1")


# ---- who hears none ----


def test_a_follower_waits_three_intervals_and_is_then_a_candidate_of_the_same_term() -> None:
    seat = following(Seat(), "n1", 5)
    seat.pass_time(SILENCE)
    assert seat.where == ("follower", 5, "n1")
    seat.pass_time(1)
    assert seat.where == ("candidate", 5, None)


def test_what_was_refused_does_not_count_as_heard() -> None:
    seat = following(Seat(), "n1", 5)
    for _ in range(6):
        seat.pass_time(1_000)
        heard(seat, beat("n2", 5))
        heard(seat, beat("n1", 4))
    seat.pass_time(1)
    assert seat.where == ("candidate", 5, None)


# ---- the leader ----


def test_a_new_leader_tells_all_others_at_once_and_then_at_each_interval() -> None:
    seat = leading(Seat(), 0)
    assert [one.body(HeartBeatRequest) for one in seat.asked(DLedgerRequest.HEART_BEAT, "n2")] == [
        beat("n0", 0, remote_id="n2")
    ]
    for _ in range(3):
        pulse(seat, {"n1": OK, "n2": OK})
        seat.pass_time(INTERVAL - 1)
        assert beats(seat) == 0
        seat.pass_time(1)
        assert (beats(seat, "n1"), beats(seat, "n2")) == (1, 1)


@pytest.mark.parametrize("silent", ["n1", "n2"])
def test_a_quorum_that_answers_keeps_the_leader(silent: str) -> None:
    seat = leading(Seat(), 0)
    other = "n2" if silent == "n1" else "n1"
    for _ in range(20):
        pulse(seat, {other: OK})
        seat.pass_time(1_000)
    assert seat.where == ("leader", 0, "n0")


def test_a_leader_without_a_quorum_gives_up_after_three_intervals() -> None:
    seat = leading(Seat(), 0)
    pulse(seat, {"n1": OK})
    since = seat.now
    while seat.raft.member.is_leader:
        seat.forget(DLedgerRequest.HEART_BEAT)
        seat.pass_time(10)
    assert seat.where == ("candidate", 0, None) and "no quorum has answered" in " ".join(seat.notes)
    assert SILENCE < seat.now - since <= SILENCE + INTERVAL


def test_a_higher_term_in_an_answer_ends_the_leadership() -> None:
    seat = leading(Seat(), 0)
    seat.reply_all(DLedgerRequest.HEART_BEAT, expired(8), "n1")
    assert seat.where == ("candidate", 8, None)


def test_a_higher_term_counts_before_a_quorum_of_successes() -> None:
    seat = leading(Seat(size=5), 0)
    for peer in ("n1", "n2"):
        seat.reply_all(DLedgerRequest.HEART_BEAT, OK, peer)
    assert seat.raft.member.is_leader
    seat.reply_all(DLedgerRequest.HEART_BEAT, expired(8), "n3")
    assert seat.where == ("candidate", 8, None)


def test_an_answer_that_names_no_higher_term_ends_nothing() -> None:
    seat = leading(Seat(), 0)
    pulse(seat, {"n1": expired(0), "n2": OK})
    assert seat.where == ("leader", 0, "n0")


def test_who_is_not_ready_is_told_again_at_once() -> None:
    seat = leading(Seat(), 0)
    pulse(seat, {"n1": NOT_READY, "n2": NOT_READY})
    assert beats(seat) == 0
    seat.pass_time(PAUSE_MS)
    assert beats(seat) == 2
    pulse(seat, {"n1": OK, "n2": OK})
    seat.pass_time(INTERVAL // 2)
    assert beats(seat) == 0


def test_one_who_is_not_ready_waits_for_its_turn_when_a_quorum_answers() -> None:
    seat = leading(Seat(), 0)
    pulse(seat, {"n1": OK, "n2": NOT_READY})
    seat.pass_time(INTERVAL // 2)
    assert beats(seat) == 0


def test_another_leader_ends_the_leadership_where_no_quorum_answers() -> None:
    seat = leading(Seat(), 0)
    pulse(seat, {"n1": OTHER_LEADER, "n2": OTHER_LEADER})
    assert seat.where == ("candidate", 0, None)


def test_another_leader_ends_nothing_where_a_quorum_answers() -> None:
    seat = leading(Seat(), 0)
    pulse(seat, {"n1": OTHER_LEADER, "n2": OK})
    assert seat.where == ("leader", 0, "n0")


def test_answers_of_an_earlier_leadership_count_for_nothing() -> None:
    seat = leading(Seat(), 0)
    early = seat.asked(DLedgerRequest.HEART_BEAT)
    assert heard(seat, beat("n1", 3)) == (Code.TERM_NOT_READY, -1)
    for one in early:
        seat.reply(one, expired(9))
    assert seat.where == ("candidate", 3, None)


def test_a_peer_is_alive_whatever_it_answers() -> None:
    seat = leading(Seat(size=5), 0)
    for peer, answer in ("n1", OK), ("n2", OK), ("n3", OTHER_LEADER):
        seat.reply_all(DLedgerRequest.HEART_BEAT, answer, peer)
    (lost,) = seat.asked(DLedgerRequest.HEART_BEAT, "n4")
    seat.cut(lost.conn)
    assert seat.raft.member.live == {"n1": True, "n2": True, "n3": True, "n4": False}
    assert seat.where == ("leader", 0, "n0")


def test_a_member_alone_leads_for_ever() -> None:
    seat = leading(Seat(size=1), 0)
    seat.pass_time(10 * SILENCE)
    assert seat.where == ("leader", 0, "n0") and beats(seat) == 0


# ---- doubt: the leader's connection is gone ----


def doubting() -> Seat:
    """It follows n1, whose connection has closed; it asks whether others hear it."""
    seat = following(Seat(), "n1", 5)
    seat.mail.clear()
    seat.cut(seat.link("n1"))
    assert sorted(one.peer for one in seat.asked(DLedgerRequest.METADATA)) == ["n1", "n2"]
    return seat


def metadata(leader: str | None, hears: bool | None = True) -> MetadataResponse:
    return MetadataResponse(group=GROUP, leader_id=leader, hears=hears)


def test_the_leaders_own_word_ends_a_doubt() -> None:
    seat = doubting()
    seat.reply_all(DLedgerRequest.METADATA, metadata("n1"), "n1")
    seat.reply_all(DLedgerRequest.METADATA, metadata("n1", False), "n2")
    seat.pass_time(1_000)
    assert seat.where == ("follower", 5, "n1") and seat.asked(DLedgerRequest.METADATA) == []


def test_the_leaders_own_word_counts_as_a_heartbeat_of_an_interval_ago() -> None:
    """Neither less, whenever it was heard last, nor more: who was heard since is heard since."""
    for quiet_ms in (0, SILENCE - 500):
        seat = following(Seat(), "n1", 5)
        seat.pass_time(quiet_ms)
        seat.mail.clear()
        seat.cut(seat.link("n1"))
        seat.reply_all(DLedgerRequest.METADATA, metadata("n1"), "n1")
        seat.pass_time(SILENCE - INTERVAL - 100 if quiet_ms else SILENCE - 100)
        assert seat.where == ("follower", 5, "n1"), quiet_ms
        seat.pass_time(INTERVAL + 2_000)
        assert seat.where[0] == "candidate", quiet_ms


def gone(other_end: object) -> Seat:
    """It follows n1, which is gone; n2, whose log ends at `other_end`, does not hear it either. Ours is empty."""
    seat = doubting()
    (lost,) = seat.asked(DLedgerRequest.METADATA, "n1")
    says = metadata("n1", False)
    says.status = {"end": other_end}
    seat.reply_all(DLedgerRequest.METADATA, says, "n2")
    assert seat.where == ("follower", 5, "n1")
    seat.cut(lost.conn)
    return seat


def asks_in(seat: Seat) -> set[int]:
    """The terms of its requests for votes."""
    return {one.body(VoteRequest).term for one in seat.asked(DLedgerRequest.VOTE)}


@pytest.mark.parametrize("other_end", [-1, "nonsense", None])
def test_a_leader_that_is_gone_is_followed_by_an_election_in_the_next_term_at_once(other_end: object) -> None:
    seat = gone(other_end)
    assert seat.where == ("candidate", 6, None) and asks_in(seat) == {6}


def test_who_has_the_longer_log_asks_for_votes_first() -> None:
    seat = gone(7)
    assert seat.where == ("candidate", 5, None)
    turn = seat.config.min_vote_interval_ms // 4
    seat.pass_time(turn - 1)
    assert asks_in(seat) == set()
    seat.pass_time(turn // 2 + 1)
    assert asks_in(seat) == {6}


def test_a_question_that_is_not_answered_leaves_what_was_said_before() -> None:
    """Nobody has to answer twice at the same time: the leader's dead socket is dialled again only after a while."""
    seat = doubting()
    (lost,) = seat.asked(DLedgerRequest.METADATA, "n1")
    seat.cut(lost.conn)
    seat.reply_all(DLedgerRequest.METADATA, metadata("n1", True), "n2")
    seat.pass_time(FIRST_DOUBT_MS)
    seat.reply_all(DLedgerRequest.METADATA, metadata("n1", False), "n2")
    assert asks_in(seat) == {6}


def test_a_word_that_was_taken_back_counts_for_nothing() -> None:
    seat = doubting()
    (lost,) = seat.asked(DLedgerRequest.METADATA, "n1")
    seat.reply_all(DLedgerRequest.METADATA, metadata("n1", False), "n2")
    seat.pass_time(FIRST_DOUBT_MS)
    seat.reply_all(DLedgerRequest.METADATA, metadata("n1", True), "n2")
    seat.cut(lost.conn)
    assert seat.where == ("follower", 5, "n1")


@pytest.mark.parametrize("says", [metadata("n1", True), metadata("n1", None)], ids=["ours", "java"])
def test_a_doubt_alone_starts_no_election(says: MetadataResponse) -> None:
    """A Java member does not say whether it hears: then the timer decides."""
    seat = doubting()
    for _ in range(30):
        for one in seat.asked(DLedgerRequest.METADATA, "n1"):
            if one in seat.mail:
                seat.mail.remove(one)
                seat.cut(one.conn)
        seat.reply_all(DLedgerRequest.METADATA, says, "n2")
        seat.pass_time(50)
    assert seat.where == ("follower", 5, "n1")


def test_a_strangers_connection_that_closes_is_no_doubt() -> None:
    seat = following(Seat(), "n1", 5)
    seat.cut(seat.link("stranger"))
    assert seat.asked(DLedgerRequest.METADATA) == []


def test_a_follower_says_whether_it_hears_its_leader() -> None:
    seat = following(Seat(), "n1", 5)
    ask = MetadataRequest(group=GROUP, remote_id="n0", local_id="n2")
    answer = seat.ask(DLedgerRequest.METADATA, ask, MetadataResponse)
    assert (answer.leader_id, answer.hears, answer.term) == ("n1", True, -1)
    assert answer.peers == seat.raft.member.peers
    seat.cut(seat.link("n1"))
    answer = seat.ask(DLedgerRequest.METADATA, ask, MetadataResponse)
    assert (answer.leader_id, answer.hears) == ("n1", False)
