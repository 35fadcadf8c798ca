"""What a leader pushes and what a follower makes of it: compare, cut, append, commit."""

from __future__ import annotations

import pytest

from perseid.raft.files import FileLog
from perseid.raft.leader import AGAIN_MS, COMMIT_MS, IDLE_COMMIT_MS, State
from perseid.wire.dledger import (
    AppendEntryRequest,
    AppendEntryResponse,
    Code,
    DLedgerRequest,
    Entry,
    GetEntriesRequest,
    GetEntriesResponse,
    Push,
    PushEntryRequest,
    PushEntryResponse,
)

from .harness import GROUP, Group, Mail, Seat, append, beat, entries, following, leading, push, pushed, written

TERM = 5
OURS = entries(5, 5, 5, 5, 5, 5)
THEIRS = entries(5, 5, 5, 5, 5, 5, text="BODY")
"""Others, at the same indexes and positions."""


def follower(*log: Entry, **settings: object) -> Seat:
    """It follows n1 in `TERM`."""
    seat = Seat(**settings)
    written(seat.disk, list(log), term=TERM - 1)
    return following(seat, "n1", TERM)


def said(seat: Seat, kind: str, *carried: Entry, committed: int = -1, term: int = TERM, leader: str = "n1") -> int:
    """A push; its opaque."""
    request = push(kind, *carried, term=term, leader=leader, committed=committed)
    return seat.send(DLedgerRequest.PUSH, request.to_json(), leader)


def got(seat: Seat, opaque: int) -> tuple[int, int | None, int, int, int] | None:
    """Code, index, count, begin and end of an answer, if there is one."""
    answer = seat.answer(opaque, PushEntryResponse)
    if answer is None:
        return None
    return answer.code, answer.index, answer.count, answer.begin_index, answer.end_index


def done(seat: Seat, kind: str, *carried: Entry, committed: int = -1) -> int:
    """A push that is answered at once; the code."""
    answer = got(seat, said(seat, kind, *carried, committed=committed))
    assert answer is not None, f"{kind} was not answered: {seat.notes[-3:]}"
    return answer[0]


# ---- the exchange that was held with Java 0.3.2 (dledger.md §13) ----


def test_the_exchange_with_java() -> None:
    seat = follower()
    assert got(seat, said(seat, Push.COMPARE, OURS[0])) == (Code.INCONSISTENT_STATE, 0, 1, -1, -1)
    assert got(seat, said(seat, Push.TRUNCATE, OURS[0])) == (Code.SUCCESS, 0, 1, 0, 0)
    assert got(seat, said(seat, Push.APPEND, OURS[1])) == (Code.SUCCESS, 1, 1, 0, 1)
    assert got(seat, said(seat, Push.APPEND, *OURS[2:4])) == (Code.SUCCESS, 2, 2, 0, 3)
    wrong = Entry(4, TERM, OURS[4].pos + 1, b"body-4")
    assert got(seat, said(seat, Push.APPEND, wrong)) == (Code.INCONSISTENT_STATE, 4, 1, 0, 3)
    gap = said(seat, Push.APPEND, Entry(9, TERM, 900, b"body-9"))
    assert got(seat, gap) is None
    seat.pass_time(999)
    assert got(seat, gap) is None
    seat.pass_time(1)
    assert got(seat, gap) == (Code.INCONSISTENT_STATE, 9, 1, 0, 3)
    assert got(seat, said(seat, Push.APPEND, OURS[1])) == (Code.SUCCESS, 1, 1, 0, 3)
    assert got(seat, said(seat, Push.COMPARE, OURS[3])) == (Code.SUCCESS, 3, 1, 0, 3)
    assert got(seat, said(seat, Push.COMPARE, THEIRS[3])) == (Code.INCONSISTENT_STATE, 3, 1, 0, 3)
    assert got(seat, said(seat, Push.COMMIT, committed=2)) == (Code.SUCCESS, None, 0, 0, 3)
    assert seat.raft.committed == 2
    assert done(seat, Push.COMMIT, committed=100) == Code.SUCCESS and seat.raft.committed == 3
    assert seat.bodies == [entry.body for entry in OURS[:4]]


def test_a_client_is_sent_to_the_leader() -> None:
    seat = follower()
    request = AppendEntryRequest(group=GROUP, remote_id="n0", body=b"x")
    answer = seat.ask(DLedgerRequest.APPEND, request, AppendEntryResponse)
    assert (answer.code, answer.leader_id, answer.index) == (Code.NOT_LEADER, "n1", -1)
    read = GetEntriesRequest(group=GROUP, remote_id="n0", begin_index=0)
    assert seat.ask(DLedgerRequest.GET, read, GetEntriesResponse).code == Code.NOT_LEADER


# ---- the follower: appending ----


def test_an_answer_waits_until_its_entries_are_durable() -> None:
    seat = follower()
    seat.hold = True
    opaques = [said(seat, Push.TRUNCATE, OURS[0]), *(said(seat, Push.APPEND, entry) for entry in OURS[1:3])]
    assert [got(seat, opaque) for opaque in opaques] == [None] * 3 and seat.raft.log.end == 2
    seat.release()
    assert got(seat, opaques[0]) is not None and got(seat, opaques[1]) is got(seat, opaques[2]) is None
    seat.release()
    assert [code for opaque in opaques if (answer := got(seat, opaque)) for code in answer[:1]] == [Code.SUCCESS] * 3


def test_an_answer_waits_for_nothing_when_it_need_not_be_durable() -> None:
    seat = follower(sync_before_answer=False)
    seat.hold = True
    assert done(seat, Push.TRUNCATE, OURS[0]) == Code.SUCCESS == done(seat, Push.APPEND, OURS[1])


def test_entries_that_were_answered_survive_a_power_cut() -> None:
    for seed in range(10):
        seat = follower()
        seat.disk.random.seed(seed)
        done(seat, Push.TRUNCATE, OURS[0])
        done(seat, Push.APPEND, *OURS[1:4])
        seat.again(power=True)
        assert seat.bodies == [entry.body for entry in OURS[:4]]


def test_an_entry_compared_but_of_an_earlier_life_is_answered_for_when_it_is_durable() -> None:
    seat = follower(*OURS[:2])
    assert seat.raft.log.durable == 1 and done(seat, Push.COMPARE, OURS[1]) == Code.SUCCESS


def test_pushes_in_any_order_are_put_in_theirs() -> None:
    seat = follower()
    done(seat, Push.TRUNCATE, OURS[0])
    late = [said(seat, Push.APPEND, OURS[index]) for index in (5, 3, 2, 4)]
    assert [got(seat, opaque) for opaque in late] == [None] * 4
    assert done(seat, Push.APPEND, OURS[1]) == Code.SUCCESS
    assert [(got(seat, opaque) or (0,))[0] for opaque in late] == [Code.SUCCESS] * 4
    assert seat.bodies == [entry.body for entry in OURS]


def test_a_push_that_waits_already_is_repeated_in_vain() -> None:
    seat = follower()
    done(seat, Push.TRUNCATE, OURS[0])
    first = said(seat, Push.APPEND, OURS[3])
    assert done(seat, Push.APPEND, OURS[3]) == Code.REPEATED_PUSH and got(seat, first) is None


def test_a_push_of_what_is_there_already_is_a_success() -> None:
    seat = follower()
    done(seat, Push.TRUNCATE, OURS[0])
    for _ in range(3):
        assert done(seat, Push.APPEND, *OURS[1:4]) == Code.SUCCESS
    assert done(seat, Push.APPEND, *OURS[2:6]) == Code.SUCCESS
    assert seat.bodies == [entry.body for entry in OURS]


def test_a_push_of_another_entry_than_is_there_is_refused() -> None:
    seat = follower()
    done(seat, Push.TRUNCATE, OURS[0])
    done(seat, Push.APPEND, *OURS[1:4])
    assert done(seat, Push.APPEND, THEIRS[2]) == Code.INCONSISTENT_STATE
    assert done(seat, Push.APPEND, OURS[3], THEIRS[4]) == Code.SUCCESS
    assert seat.raft.log.end == 4


def test_entries_behind_what_was_never_compared_are_refused() -> None:
    """They would fit: but what is before them may be another log."""
    seat = follower(*THEIRS[:3])
    assert done(seat, Push.APPEND, OURS[3]) == Code.INCONSISTENT_STATE
    assert seat.bodies == [entry.body for entry in THEIRS[:3]]


def test_an_entry_whose_term_falls_is_refused() -> None:
    seat = follower(*OURS[:2])
    done(seat, Push.COMPARE, OURS[1])
    assert done(seat, Push.APPEND, Entry(2, TERM - 1, OURS[2].pos, b"x")) == Code.INCONSISTENT_STATE
    assert done(seat, Push.APPEND, Entry(2, TERM + 1, OURS[2].pos, b"x")) == Code.INCONSISTENT_STATE
    assert seat.raft.log.end == 1


@pytest.mark.parametrize("kind", [Push.APPEND, Push.TRUNCATE])
def test_a_push_of_another_leader_or_term_is_refused(kind: str) -> None:
    seat = follower()
    for term, leader in ((TERM, "n2"), (TERM - 1, "n1"), (TERM + 1, "n1")):
        answer = got(seat, said(seat, kind, OURS[0], term=term, leader=leader))
        assert answer is not None and answer[0] == Code.INCONSISTENT_STATE
    assert seat.raft.log.end == -1 and seat.where == ("follower", TERM, "n1")


@pytest.mark.parametrize(
    ("term", "leader", "code"),
    [(TERM - 1, "n1", Code.INCONSISTENT_TERM), (TERM, "n2", Code.INCONSISTENT_LEADER)],
)
def test_a_compare_of_another_leader_or_term_verifies_nothing(term: int, leader: str, code: int) -> None:
    """The original answers it, and says 200; a leader of that term does not count it either way."""
    seat = follower(*OURS[:3])
    answer = got(seat, said(seat, Push.COMPARE, OURS[2], term=term, leader=leader))
    assert answer is not None and answer[0] == code
    done(seat, Push.COMMIT, committed=2)
    assert seat.raft.committed == -1


def test_a_candidate_that_follows_nobody_does_not_answer() -> None:
    seat = Seat()
    written(seat.disk, OURS[:2], term=TERM)
    seat.start()
    opaques = [said(seat, kind, OURS[1], term=TERM + 1) for kind in (Push.COMPARE, Push.TRUNCATE, Push.APPEND)]
    seat.pass_time(1_500)
    assert [got(seat, opaque) for opaque in opaques] == [None] * 3


def test_who_pushes_in_our_term_leads() -> None:
    seat = Seat()
    written(seat.disk, OURS[:2], term=TERM)
    seat.start()
    assert done(seat, Push.COMPARE, OURS[1]) == Code.SUCCESS
    assert seat.where == ("follower", TERM, "n1")


def test_a_change_of_leader_takes_back_the_answers_that_wait() -> None:
    seat = follower()
    seat.hold = True
    opaque = said(seat, Push.TRUNCATE, OURS[0])
    seat.send(DLedgerRequest.HEART_BEAT, beat("n2", TERM + 1).to_json(), "n2")
    seat.release(len(seat.held))
    assert got(seat, opaque) is None


# ---- the follower: committing ----


def test_nothing_beyond_what_was_verified_is_committed() -> None:
    """The leader has committed 5; our 3 to 5 are of another log, and were never compared."""
    seat = follower(*OURS[:3], *THEIRS[3:])
    assert done(seat, Push.COMMIT, committed=5) == Code.INCONSISTENT_STATE and seat.raft.committed == -1
    assert done(seat, Push.COMPARE, OURS[2], committed=5) == Code.SUCCESS and seat.raft.committed == 2
    assert done(seat, Push.COMMIT, committed=2) == Code.SUCCESS and seat.raft.committed == 2
    assert done(seat, Push.COMMIT, committed=5) == Code.INCONSISTENT_STATE and seat.raft.committed == 2
    assert done(seat, Push.COMPARE, OURS[5], committed=5) == Code.INCONSISTENT_STATE and seat.raft.committed == 2


def test_what_was_verified_for_one_leader_is_not_for_the_next() -> None:
    seat = follower(*OURS[:3])
    done(seat, Push.COMPARE, OURS[2])
    for _ in range(2):
        seat.send(DLedgerRequest.HEART_BEAT, beat("n2", TERM + 1).to_json(), "n2")
    assert seat.where == ("follower", TERM + 1, "n2")
    said(seat, Push.COMMIT, committed=2, term=TERM + 1, leader="n2")
    assert seat.raft.committed == -1


def test_a_commit_of_a_stranger_commits_nothing() -> None:
    seat = follower(*OURS[:3])
    done(seat, Push.COMPARE, OURS[2])
    for term, leader in ((TERM, "n2"), (TERM - 1, "n1")):
        said(seat, Push.COMMIT, committed=2, term=term, leader=leader)
    assert seat.raft.committed == -1


def test_the_committed_index_never_falls() -> None:
    seat = follower(*OURS[:3])
    done(seat, Push.COMPARE, OURS[2], committed=2)
    done(seat, Push.COMMIT, committed=0)
    done(seat, Push.COMPARE, OURS[0], committed=0)
    assert seat.raft.committed == 2


# ---- the follower: cutting ----


def test_other_entries_are_cut_before_the_leaders_take_their_place() -> None:
    seat = follower(*OURS[:2], *THEIRS[2:])
    done(seat, Push.COMPARE, OURS[1])
    seat.hold = True
    opaque = said(seat, Push.TRUNCATE, OURS[2])
    assert seat.raft.log.end == 1 and seat.raft.log.cutting and got(seat, opaque) is None
    seat.release()
    assert seat.raft.log.end == 2 and got(seat, opaque) is None
    seat.release()
    assert got(seat, opaque) == (Code.SUCCESS, 2, 1, 0, 2)
    assert seat.bodies == [entry.body for entry in OURS[:3]]


def test_an_entry_that_is_the_same_is_kept_and_what_is_behind_it_cut() -> None:
    seat = follower(*OURS[:3], *THEIRS[3:])
    assert done(seat, Push.TRUNCATE, OURS[2]) == Code.SUCCESS
    assert seat.bodies == [entry.body for entry in OURS[:3]]
    assert done(seat, Push.APPEND, OURS[3], committed=3) == Code.SUCCESS and seat.raft.committed == 3


def test_a_cut_below_the_committed_index_stops_the_member() -> None:
    seat = follower(*OURS[:4])
    done(seat, Push.COMPARE, OURS[3], committed=3)
    opaque = said(seat, Push.TRUNCATE, THEIRS[2])
    assert got(seat, opaque) is None
    assert seat.stopped is not None and "wants entries from 2 on cut, and 3 is committed" in seat.stopped
    seat.again()
    assert seat.bodies == [entry.body for entry in OURS[:4]], "nothing was cut"


def test_committed_entries_behind_one_that_is_the_same_are_kept() -> None:
    """A leader that begins far back does not know that we have them."""
    seat = follower(*OURS[:4], *THEIRS[4:])
    done(seat, Push.COMPARE, OURS[3], committed=3)
    assert done(seat, Push.TRUNCATE, OURS[1]) == Code.SUCCESS
    assert seat.bodies == [entry.body for entry in OURS[:4]] and seat.stopped is None


def test_a_cut_that_leaves_a_gap_is_refused() -> None:
    seat = follower(*OURS[:2])
    assert done(seat, Push.TRUNCATE, OURS[4]) == Code.INCONSISTENT_STATE
    assert seat.raft.log.end == 1 and "what is between is gone at the leader" in " ".join(seat.notes)


def test_a_cut_behind_what_was_never_compared_verifies_nothing() -> None:
    """Entry 3 of the leader takes its place here, but our 0 to 2 may be others than the leader's."""
    seat = follower(*THEIRS[:3])
    done(seat, Push.TRUNCATE, OURS[3], committed=3)
    assert seat.raft.committed == -1, "what the leader has committed is not what we have"


# ---- the leader ----


def asked(seat: Seat, peer: str = "n1") -> list[tuple[Mail, PushEntryRequest]]:
    return [(one, one.body(PushEntryRequest)) for one in seat.asked(DLedgerRequest.PUSH, peer)]


def leader(*terms: int, **settings: object) -> Seat:
    """It leads in the term after that of its last entry, and has told nobody of its entries."""
    seat = Seat(**settings)
    written(seat.disk, entries(*terms), term=(terms[-1] if terms else 0) + 1)
    return leading(seat)


def the_push(seat: Seat, kind: str, index: int, peer: str = "n1") -> Mail:
    """The one push that lies in the mail for a peer, but for those that only commit."""
    ((mail, request),) = [(mail, request) for mail, request in asked(seat, peer) if request.type != Push.COMMIT]
    assert (request.type, [entry.index for entry in request.entries][:1]) == (kind, [index]), request
    return mail


def test_an_empty_log_has_nothing_to_compare() -> None:
    seat = leader()
    seat.pass_time(1_000)
    assert asked(seat) == []


def test_the_first_entry_of_an_empty_log_is_compared_at_once() -> None:
    seat = leader()
    seat.pass_time(1_234)
    append(seat, b"x")
    for peer in ("n1", "n2"):
        the_push(seat, Push.COMPARE, 0, peer)


def test_a_follower_with_the_same_last_entry_follows_at_once() -> None:
    seat = leader(0, 0)
    seat.reply(the_push(seat, Push.COMPARE, 1), pushed(1))
    assert seat.raft.leader is not None and seat.raft.leader.followers["n1"].state is State.APPEND
    append(seat, b"x")
    seat.reply(the_push(seat, Push.APPEND, 2), pushed(2))
    assert seat.raft.committed == 2


def test_a_longer_follower_is_told_to_cut() -> None:
    seat = leader(0, 0)
    seat.reply(the_push(seat, Push.COMPARE, 1), pushed(4))
    seat.reply(the_push(seat, Push.TRUNCATE, 1), pushed(1))
    assert seat.raft.leader is not None and seat.raft.leader.followers["n1"].watermark == 1


def test_another_entry_is_looked_for_one_by_one() -> None:
    seat = leader(0, 0, 0, 0)
    seat.reply(the_push(seat, Push.COMPARE, 3), pushed(9, Code.INCONSISTENT_STATE))
    seat.reply(the_push(seat, Push.COMPARE, 2), pushed(9, Code.INCONSISTENT_STATE))
    seat.reply(the_push(seat, Push.COMPARE, 1), pushed(9))
    seat.reply(the_push(seat, Push.TRUNCATE, 1), pushed(1))
    request = the_push(seat, Push.APPEND, 2).body(PushEntryRequest)
    assert [entry.index for entry in request.entries] == [2, 3] and request.entry is None


def test_a_shorter_follower_is_compared_at_its_end() -> None:
    seat = leader(0, 0, 0, 0, 0)
    seat.reply(the_push(seat, Push.COMPARE, 4), pushed(1, Code.INCONSISTENT_STATE))
    the_push(seat, Push.COMPARE, 1)


@pytest.mark.parametrize("end", [-1, 9])
def test_a_follower_that_is_empty_or_quite_another_begins_with_our_first_entry(end: int) -> None:
    seat = leader(0, 0)
    begin = -1 if end < 0 else 5
    seat.reply(the_push(seat, Push.COMPARE, 1), pushed(end, Code.INCONSISTENT_STATE, begin))
    seat.reply(the_push(seat, Push.TRUNCATE, 0), pushed(0))
    the_push(seat, Push.APPEND, 1)


@pytest.mark.parametrize("code", [Code.UNKNOWN_MEMBER, Code.INTERNAL_ERROR, Code.INCONSISTENT_TERM])
def test_any_other_answer_to_a_compare_is_followed_by_one_a_little_later(code: int) -> None:
    seat = leader(0, 0)
    seat.reply(the_push(seat, Push.COMPARE, 1), pushed(1, code))
    assert asked(seat) == []
    seat.pass_time(AGAIN_MS)
    the_push(seat, Push.COMPARE, 1)


def test_a_follower_that_lacks_what_retention_has_removed_meanwhile_is_compared_anew() -> None:
    """It was told of the first entries, and has not answered; then their file goes. What it hears after that is where
    the log begins now: it says what an operator has to do."""
    seat = leader(0, push_batch_bytes=1, push_window_bytes=1)
    files = seat.raft.log
    assert isinstance(files, FileLog)
    append(seat, *[b"x"] * 39)
    seat.reply(the_push(seat, Push.COMPARE, 0), pushed(0))
    push_1 = the_push(seat, Push.APPEND, 1)
    files.data.remove(files.data.starts[0])
    files.follow_start(files.data.starts[0])
    assert 2 < files.begin < 39
    seat.reply(push_1, pushed(1))
    seat.reply(the_push(seat, Push.COMPARE, 39), pushed(1, Code.INCONSISTENT_STATE))
    the_push(seat, Push.TRUNCATE, files.begin)


def test_a_push_that_is_refused_is_followed_by_a_compare() -> None:
    """At once when the follower had got on before; otherwise it is given time, for its disk may be full."""
    seat = leader(0)
    seat.reply(the_push(seat, Push.COMPARE, 0), pushed(0))
    append(seat, b"x")
    seat.reply(the_push(seat, Push.APPEND, 1), pushed(0, Code.INCONSISTENT_STATE))
    seat.forget(DLedgerRequest.PUSH)
    seat.pass_time(AGAIN_MS - 1)
    assert asked(seat) == []
    seat.pass_time(1)
    seat.reply(the_push(seat, Push.COMPARE, 1), pushed(1))
    for index in (2, 3):
        append(seat, b"x")
        code = Code.SUCCESS if index == 2 else Code.INCONSISTENT_STATE
        seat.reply(the_push(seat, Push.APPEND, index), pushed(index, code))
    the_push(seat, Push.COMPARE, 3)


def test_entries_of_an_older_term_are_not_committed_by_counting() -> None:
    """Figure 8 of the Raft paper: a quorum has them, and another leader may still cut them."""
    seat = leader(0, 0, 0)
    for peer in ("n1", "n2"):
        seat.reply(the_push(seat, Push.COMPARE, 2, peer), pushed(2))
    assert seat.raft.committed == -1
    append(seat, b"own")
    assert seat.raft.committed == -1
    seat.reply(the_push(seat, Push.APPEND, 3), pushed(3))
    assert seat.raft.committed == 3, "and the older ones with it"


def test_the_leaders_own_copy_counts_when_it_is_durable() -> None:
    seat = leader(0)
    seat.reply(the_push(seat, Push.COMPARE, 0), pushed(0))
    seat.hold = True
    (opaque,) = append(seat, b"x")
    seat.reply(the_push(seat, Push.APPEND, 1), pushed(1))
    assert seat.raft.committed == -1 and seat.answers(opaque) == []
    seat.release()
    assert seat.raft.committed == 1
    answer = seat.answer(opaque, AppendEntryResponse)
    assert answer is not None and (answer.code, answer.index, answer.term) == (Code.SUCCESS, 1, 1)


def test_a_quorum_of_others_commits_before_the_leaders_own_copy_is_durable() -> None:
    seat = leader(0)
    for peer in ("n1", "n2"):
        seat.reply(the_push(seat, Push.COMPARE, 0, peer), pushed(0))
    seat.hold = True
    append(seat, b"x")
    for peer in ("n1", "n2"):
        seat.reply(the_push(seat, Push.APPEND, 1, peer), pushed(1))
    assert seat.raft.committed == 1


def test_an_append_without_a_quorum_ends_without_a_certain_outcome() -> None:
    seat = leader(0)
    (opaque,) = append(seat, b"x")
    seat.pass_time(seat.config.max_wait_ack_time_ms - 1)
    assert seat.answers(opaque) == []
    seat.pass_time(1)
    answer = seat.answer(opaque, AppendEntryResponse)
    assert answer is not None and answer.code == Code.WAIT_QUORUM_ACK_TIMEOUT and seat.raft.log.end == 1


def test_appends_that_wait_are_answered_when_the_leadership_ends() -> None:
    seat = leader(0)
    (opaque,) = append(seat, b"x")
    seat.send(DLedgerRequest.HEART_BEAT, beat("n1", 9).to_json(), "n1")
    answer = seat.answer(opaque, AppendEntryResponse)
    assert answer is not None and answer.code == Code.TERM_CHANGED


def test_more_appends_than_may_wait_are_refused() -> None:
    seat = leader(0, max_pending_requests_num=2)
    opaques = append(seat, b"a", b"b", b"c")
    answer = seat.answer(opaques[2], AppendEntryResponse)
    assert answer is not None and (answer.code, answer.index, answer.pos) == (Code.LEADER_PENDING_FULL, -1, -1)
    assert seat.raft.log.end == 2 and seat.answers(opaques[0]) == []


def test_answers_of_an_earlier_leadership_commit_nothing() -> None:
    seat = leader(0)
    seat.reply(the_push(seat, Push.COMPARE, 0), pushed(0))
    append(seat, b"x")
    early = the_push(seat, Push.APPEND, 1)
    seat.send(DLedgerRequest.HEART_BEAT, beat("n1", 9).to_json(), "n1")
    seat.reply(early, pushed(1))
    assert seat.raft.committed == -1


def committed_one() -> Seat:
    """A leader whose entry 1 has just been committed by the answer of n1."""
    seat = leader(0)
    seat.reply(the_push(seat, Push.COMPARE, 0), pushed(0))
    append(seat, b"x")
    seat.reply(the_push(seat, Push.APPEND, 1), pushed(1))
    assert seat.raft.committed == 1
    seat.forget(DLedgerRequest.PUSH)
    return seat


def test_a_follower_is_told_soon_what_is_committed() -> None:
    seat = committed_one()
    seat.pass_time(COMMIT_MS)
    ((_, request),) = asked(seat)
    assert (request.type, request.commit_index, request.entries) == (Push.COMMIT, 1, [])


def test_a_follower_that_gets_nothing_is_told_again_and_again_what_is_committed() -> None:
    seat = committed_one()
    seat.pass_time(IDLE_COMMIT_MS)
    for _ in range(3):
        mail, request = asked(seat)[-1]
        assert (request.type, request.commit_index, request.entries) == (Push.COMMIT, 1, [])
        seat.reply(mail, pushed(1))
        seat.pass_time(IDLE_COMMIT_MS)


def test_a_client_reads_what_is_committed_and_nothing_else() -> None:
    seat = leader(0)
    seat.reply(the_push(seat, Push.COMPARE, 0), pushed(0))
    append(seat, b"x")

    def read(index: int) -> GetEntriesResponse:
        request = GetEntriesRequest(group=GROUP, remote_id="n0", begin_index=index)
        return seat.ask(DLedgerRequest.GET, request, GetEntriesResponse)

    assert [read(index).code for index in (-1, 0, 1, 2)] == [Code.INDEX_OUT_OF_RANGE] * 4
    seat.reply(the_push(seat, Push.APPEND, 1), pushed(1))
    assert [entry.body for index in (0, 1) for entry in read(index).entries] == [b"body-0", b"x"]
    assert read(2).code == Code.INDEX_OUT_OF_RANGE


# ---- a group ----


def test_a_group_has_one_log_whatever_comes_between() -> None:
    group = Group()
    first = group.elect("n0")
    append(first, b"a", b"b")
    group.pass_time(1_000)
    assert [seat.bodies for seat in group.seats.values()] == [[b"a", b"b"]] * 3
    append(first, b"lost")  # while nobody hears it
    group.pass_time(20_000, "n1", "n2")
    second = group.leader
    assert second is not first and second.raft.log.end == 1
    append(second, b"c")
    group.pass_time(100, "n1", "n2")
    assert second.raft.committed == 2
    group.pass_time(10_000)
    assert [seat.bodies for seat in group.seats.values()] == [[b"a", b"b", b"c"]] * 3
    assert [seat.raft.committed for seat in group.seats.values()] == [2] * 3
