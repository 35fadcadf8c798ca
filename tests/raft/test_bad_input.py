"""What strangers, other versions and broken machines bring to a member: refused with a line that says what, or stopped;
nothing that was promised is broken."""

from __future__ import annotations

from struct import pack

import pytest

from perseid.base.errors import ConfigError, CorruptLog, StoreError
from perseid.base.machine import Frames
from perseid.raft.config import peers_of
from perseid.wire.command import encode_request, encode_response
from perseid.wire.dledger import (
    AppendEntryRequest,
    AppendEntryResponse,
    Code,
    DLedgerRequest,
    Entry,
    GetEntriesRequest,
    GetEntriesResponse,
    HeartBeatRequest,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
    Push,
    PushEntryRequest,
    PushEntryResponse,
    Vote,
    VoteRequest,
    VoteResponse,
)

from .harness import (
    GROUP,
    Seat,
    append,
    beat,
    config,
    entries,
    file_log,
    following,
    leading,
    push,
    settle,
    until,
    vote,
    written,
)

TERM = 5
LOG = entries(5, 5, 5, 5)
KINDS: list[tuple[int, type[Message], type[Message]]] = [
    (DLedgerRequest.METADATA, MetadataRequest, MetadataResponse),
    (DLedgerRequest.APPEND, AppendEntryRequest, AppendEntryResponse),
    (DLedgerRequest.GET, GetEntriesRequest, GetEntriesResponse),
    (DLedgerRequest.VOTE, VoteRequest, VoteResponse),
    (DLedgerRequest.HEART_BEAT, HeartBeatRequest, HeartBeatResponse),
    (DLedgerRequest.PUSH, PushEntryRequest, PushEntryResponse),
    (DLedgerRequest.LEADERSHIP_TRANSFER, LeadershipTransferRequest, LeadershipTransferResponse),
]
ALL = pytest.mark.parametrize(("code", "kind", "answers"), KINDS, ids=[kind.__name__ for _, kind, _ in KINDS])


def member() -> Seat:
    """It follows n1 in `TERM`, and has the entries of `LOG`."""
    seat = Seat()
    written(seat.disk, LOG, term=TERM - 1)
    return following(seat, "n1", TERM)


def unharmed(seat: Seat) -> None:
    """Nothing of it has changed."""
    assert seat.stopped is None and seat.where == ("follower", TERM, "n1")
    assert seat.bodies == [entry.body for entry in LOG] and seat.raft.committed == -1


# ---- the wrong address ----


@ALL
def test_a_request_of_another_group_is_refused(code: int, kind: type[Message], answers: type[Message]) -> None:
    seat = member()
    answer = seat.ask(code, kind(group="other", remote_id="n0", leader_id="n1", term=99), answers)
    assert answer.code == Code.UNKNOWN_GROUP and answer.term == 99
    unharmed(seat)


@ALL
@pytest.mark.parametrize("remote", ["n1", "n9", "", None])
def test_a_request_for_another_member_is_refused(
    code: int, kind: type[Message], answers: type[Message], remote: str | None
) -> None:
    seat = member()
    answer = seat.ask(code, kind(group=GROUP, remote_id=remote, leader_id="n1", term=99), answers)
    assert answer.code == Code.UNKNOWN_MEMBER
    unharmed(seat)


@pytest.mark.parametrize("stranger", ["n9", "", None])
def test_a_candidate_or_leader_with_an_unknown_id_is_refused(stranger: str | None) -> None:
    seat = member()
    candidate = seat.ask(DLedgerRequest.VOTE, vote("n9", 99, 99, 99, leader_id=stranger), VoteResponse)
    assert candidate.vote_result == Vote.UNKNOWN_LEADER
    leader = seat.ask(DLedgerRequest.HEART_BEAT, beat("n9", 99, leader_id=stranger), HeartBeatResponse)
    assert leader.code == Code.UNKNOWN_MEMBER
    pushed = seat.ask(DLedgerRequest.PUSH, push(Push.TRUNCATE, LOG[0], term=TERM, leader="n9"), PushEntryResponse)
    assert pushed.code == Code.INCONSISTENT_STATE
    unharmed(seat)


def test_a_push_of_an_unknown_id_is_not_followed_by_a_candidate() -> None:
    seat = Seat()
    written(seat.disk, LOG, term=TERM)
    seat.start()
    for leader in ("n9", "n0"):
        seat.send(DLedgerRequest.PUSH, push(Push.COMPARE, LOG[3], term=TERM, leader=leader).to_json(), leader)
    assert seat.where == ("candidate", TERM, None)


# ---- the same id twice ----


@pytest.mark.parametrize("local", ["n0", "n1", "n9", None])
def test_a_candidate_that_says_it_is_us_is_refused(local: str | None) -> None:
    """Two processes were given one id; our vote is ours to give."""
    seat = Seat()
    seat.start()
    until(seat, lambda: ask_higher(seat).term == TERM)
    answer = seat.ask(DLedgerRequest.VOTE, vote("n0", TERM, 9, 9, local_id=local), VoteResponse)
    assert answer.vote_result == Vote.UNEXPECTED_LEADER
    assert seat.raft.member.vote is None


def ask_higher(seat: Seat) -> VoteResponse:
    """A candidate of `TERM` that gets no vote for its log, and so leaves only its term."""
    if seat.raft.member.term < TERM:
        seat.ask(DLedgerRequest.VOTE, vote("n1", TERM), VoteResponse)
    return VoteResponse(term=seat.raft.member.term)


def test_a_leader_that_says_it_is_us_is_refused() -> None:
    for seat in (member(), leading(Seat())):
        before = seat.where
        for term in (seat.raft.member.term, 99):
            answer = seat.ask(DLedgerRequest.HEART_BEAT, beat("n0", term), HeartBeatResponse)
            assert (answer.code, answer.term) == (Code.UNEXPECTED_MEMBER, before[1])
        assert seat.where == before


def test_a_push_of_a_leader_that_says_it_is_us_is_refused() -> None:
    seat = member()
    answer = seat.ask(DLedgerRequest.PUSH, push(Push.TRUNCATE, LOG[0], term=TERM, leader="n0"), PushEntryResponse)
    assert answer.code == Code.INCONSISTENT_STATE
    unharmed(seat)


def test_an_id_that_is_no_member_does_not_start() -> None:
    with pytest.raises(StoreError, match="'n7' is not among the peers"):
        Seat("n7")


@pytest.mark.parametrize(
    ("peers", "why"),
    [
        ("n0-a:1;n0-b:2", "n0 is there twice"),
        ("n0", "no `id-host:port`"),
        ("n0-a", "no `id-host:port`"),
        ("n0-a:x", "no `id-host:port`"),
        ("", "no `id-host:port`"),
        ("n0-a:1;", "no `id-host:port`"),
        (";".join(f"n{n}-a:{n}" for n in range(10)), "10 members; 9 are the most"),
    ],
)
def test_peers_that_make_no_group_are_refused(peers: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        peers_of(config(peers=peers).peers)


# ---- the wrong time ----


def test_a_vote_of_the_future_raises_the_term_once_and_one_of_the_past_nothing() -> None:
    seat = Seat().start()
    until(seat, lambda: ask_higher(seat).term == TERM)
    for term in (TERM - 1, 0, -1, -(1 << 63)):
        answer = seat.ask(DLedgerRequest.VOTE, vote("n1", term), VoteResponse)
        assert (answer.vote_result, answer.term) == (Vote.EXPIRED_VOTE_TERM, TERM)
    assert seat.where == ("candidate", TERM, None)


def test_a_push_of_a_term_from_the_future_is_refused_and_raises_nothing() -> None:
    seat = member()
    for kind in (Push.APPEND, Push.TRUNCATE):
        answer = seat.ask(DLedgerRequest.PUSH, push(kind, LOG[3], term=99, committed=3), PushEntryResponse)
        assert answer.code == Code.INCONSISTENT_STATE
    seat.ask(DLedgerRequest.PUSH, push(Push.COMMIT, term=99, committed=3), PushEntryResponse)
    unharmed(seat)


def test_an_entry_of_a_term_from_the_future_is_refused() -> None:
    seat = member()
    seat.ask(DLedgerRequest.PUSH, push(Push.COMPARE, LOG[3], term=TERM), PushEntryResponse)
    future = Entry(4, TERM + 1, 4 * LOG[0].disk_bytes, b"x")
    answer = seat.ask(DLedgerRequest.PUSH, push(Push.APPEND, future, term=TERM), PushEntryResponse)
    assert answer.code == Code.INCONSISTENT_STATE
    unharmed(seat)


# ---- entries that make no sense ----


@pytest.mark.parametrize(
    "carried",
    [(LOG[3], LOG[2]), (LOG[1], LOG[3]), (LOG[2], LOG[2]), ()],
    ids=["backwards", "a gap", "twice", "none"],
)
def test_entries_out_of_order_are_refused(carried: tuple[Entry, ...]) -> None:
    seat = member()
    answer = seat.ask(DLedgerRequest.PUSH, push(Push.APPEND, *carried, term=TERM), PushEntryResponse)
    assert answer.code == Code.UNEXPECTED_ARGUMENT
    unharmed(seat)


@pytest.mark.parametrize("kind", [Push.COMPARE, Push.TRUNCATE])
@pytest.mark.parametrize("carried", [(), LOG[2:4]], ids=["none", "two"])
def test_a_comparison_of_any_other_number_than_one_is_refused(kind: str, carried: list[Entry]) -> None:
    seat = member()
    answer = seat.ask(DLedgerRequest.PUSH, push(kind, *carried, term=TERM), PushEntryResponse)
    assert answer.code == Code.UNEXPECTED_ARGUMENT
    unharmed(seat)


@pytest.mark.parametrize("kind", [Push.COMPARE, Push.TRUNCATE, Push.APPEND])
@pytest.mark.parametrize("index", [-1, -(1 << 63)])
def test_an_entry_with_a_negative_index_is_refused(kind: str, index: int) -> None:
    seat = member()
    answer = seat.ask(DLedgerRequest.PUSH, push(kind, Entry(index, TERM, 0, b"x"), term=TERM), PushEntryResponse)
    assert answer.code == Code.INCONSISTENT_STATE
    unharmed(seat)


def test_a_kind_of_push_that_nobody_knows_is_refused() -> None:
    seat = member()
    answer = seat.ask(DLedgerRequest.PUSH, push("INSTALL_SNAPSHOT", term=TERM), PushEntryResponse)
    assert answer.code == Code.UNEXPECTED_ARGUMENT
    unharmed(seat)


def test_a_committed_index_from_the_future_commits_what_was_compared() -> None:
    seat = member()
    request = push(Push.COMPARE, LOG[2], term=TERM, committed=(1 << 63) - 1)
    assert seat.ask(DLedgerRequest.PUSH, request, PushEntryResponse).code == Code.SUCCESS
    assert seat.raft.committed == 2


def test_an_entry_that_is_too_long_for_our_files_is_refused() -> None:
    seat = member()
    seat.ask(DLedgerRequest.PUSH, push(Push.COMPARE, LOG[3], term=TERM), PushEntryResponse)
    long = Entry(4, TERM, 4 * LOG[0].disk_bytes, bytes(4_000))
    answer = seat.ask(DLedgerRequest.PUSH, push(Push.APPEND, long, term=TERM), PushEntryResponse)
    assert answer.code == Code.INCONSISTENT_STATE and "are the most" in seat.notes[-1]
    unharmed(seat)


def test_a_clients_body_that_is_too_long_is_refused() -> None:
    seat = leading(Seat())
    (opaque,) = append(seat, bytes(4_000))
    answer = seat.answer(opaque, AppendEntryResponse)
    assert answer is not None and answer.code == Code.DISK_FULL and seat.raft.log.end == -1


def test_a_clients_request_without_a_body_is_refused() -> None:
    seat = leading(Seat())
    request = AppendEntryRequest(group=GROUP, remote_id="n0")
    answer = seat.ask(DLedgerRequest.APPEND, request, AppendEntryResponse)
    assert answer.code == Code.REQUEST_WITH_EMPTY_BODYS and seat.raft.log.end == -1


def test_members_with_files_of_another_size_refuse_one_anothers_entries() -> None:
    """mappedFileSizeForEntryData: the leader's sixth entry would stand in the next file here."""
    seat = Seat(mapped_file_size_for_entry_data=256)
    following(seat, "n1", TERM)
    theirs = entries(5, 5, 5, 5, 5)
    seat.ask(DLedgerRequest.PUSH, push(Push.TRUNCATE, theirs[0], term=TERM), PushEntryResponse)
    answer = seat.ask(DLedgerRequest.PUSH, push(Push.APPEND, *theirs[1:], term=TERM), PushEntryResponse)
    assert answer.code == Code.INCONSISTENT_STATE and seat.raft.log.end == 3
    assert "stands at 216 at its leader, and would at 256 here" in " ".join(seat.notes)
    assert "mappedFileSizeForEntryData (256 here)" in " ".join(seat.notes)


# ---- frames and bodies ----


@pytest.mark.parametrize(
    "frame",
    [
        pack(">II", 1 << 30, 0),
        pack(">II", 100, 50) + bytes(10),
        pack(">II", 4, 100),
        pack(">II", 4, 0x07000000),
        pack(">II", 14, 10) + b'{"code":51',
        b"\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=[
        "a gigabyte",
        "more than is there",
        "a header beyond the end",
        "serializer",
        "half a header",
        "two bytes",
        "http",
    ],
)
def test_a_frame_that_lies_about_its_length_ends_its_connection_and_nothing_else(frame: bytes) -> None:
    seat = member()
    conn = seat.link("stranger")
    seat.do(Frames(conn, frame))
    assert seat.closed == [conn] and "it is closed" in seat.notes[-1]
    unharmed(seat)


@ALL
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'{"term":',
        b'{"term":"many"}',
        b'{"term":99999999999999999999}',
        b'{"group":{}}',
    ],
)
def test_a_body_that_is_no_json_of_its_kind_is_answered(
    code: int, kind: type[Message], answers: type[Message], body: bytes
) -> None:
    """A Java peer can't read an answer without a body."""
    seat = member()
    answer = seat.answer(seat.send(code, body), answers)
    assert answer is not None and answer.code == Code.UNEXPECTED_ARGUMENT
    unharmed(seat)


def test_a_body_of_a_thousand_brackets_is_answered() -> None:
    seat = member()
    for body in (b"[" * 100_000, b'{"a":' * 100_000):
        answer = seat.answer(seat.send(DLedgerRequest.VOTE, body), VoteResponse)
        assert answer is not None and answer.code == Code.UNEXPECTED_ARGUMENT
    unharmed(seat)


def test_an_entry_whose_body_is_no_base64_is_refused() -> None:
    seat = member()
    text = push(Push.APPEND, LOG[3], term=TERM).to_json().replace(b'"body":"', b'"body":"*')
    answer = seat.answer(seat.send(DLedgerRequest.PUSH, text), PushEntryResponse)
    assert answer is not None and answer.code == Code.UNEXPECTED_ARGUMENT
    unharmed(seat)


@pytest.mark.parametrize("code", [51003, 51006, 59999, 10, 0, -1])
def test_a_request_that_nobody_knows_is_not_answered(code: int) -> None:
    seat = member()
    assert seat.answers(seat.send(code, b"{}")) == []
    unharmed(seat)


def test_an_answer_that_nobody_waits_for_counts_for_nothing() -> None:
    seat = Seat().start()
    (one, _) = seat.asked(DLedgerRequest.VOTE)
    text = VoteResponse(term=0, vote_result=Vote.ACCEPT).to_json()
    seat.do(Frames(one.conn, encode_response(one.command.opaque + 1_000, 200, None, text)))
    seat.do(Frames(seat.link("stranger"), encode_response(one.command.opaque, 200, None, text)))
    assert seat.where == ("candidate", 0, None)


def test_an_answer_that_is_no_json_is_no_vote() -> None:
    seat = Seat().start()
    for one in seat.asked(DLedgerRequest.VOTE):
        seat.do(Frames(one.conn, encode_response(one.command.opaque, 1, None, b"java.lang.NullPointerException")))
    assert seat.where == ("candidate", 0, None) and "can't be read" in " ".join(seat.notes)


def test_a_result_that_nobody_knows_is_no_vote() -> None:
    seat = Seat().start()
    seat.reply_all(DLedgerRequest.VOTE, VoteResponse(term=0, vote_result="ACCEPTED_PERHAPS"))
    assert seat.where[0] == "candidate"


def test_a_frame_that_is_right_is_served_after_one_that_was_not() -> None:
    seat = member()
    seat.do(Frames(seat.link("stranger"), pack(">II", 4, 100)))
    request = MetadataRequest(group=GROUP, remote_id="n0")
    frame = encode_request(DLedgerRequest.METADATA, 7, None, request.to_json())
    seat.do(Frames(seat.link("stranger"), frame))
    answer = seat.answer(7, MetadataResponse)
    assert answer is not None and answer.leader_id == "n1"


# ---- files ----


def test_a_start_with_files_of_another_size_is_refused_with_both_sizes() -> None:
    seat = Seat()
    written(seat.disk, LOG, term=TERM)
    other = Seat(disk=seat.disk, mapped_file_size_for_entry_data=4_096)
    with pytest.raises(CorruptLog, match="the file has 1024 bytes, mappedFileSizeForEntryData says 4096"):
        other.start()


def test_a_bad_magic_in_the_data_file_ends_the_log_before_it() -> None:
    seat = Seat()
    written(seat.disk, LOG, term=TERM)
    seat.disk.open(f"data/{0:020d}").write(LOG[2].pos, b"\0\0\0\2")
    seat.start()
    assert seat.bodies == [b"body-0", b"body-1"] and "after entry 1: what follows is no entry" in " ".join(seat.notes)


def test_a_bad_magic_in_an_entry_that_was_committed_stops_the_start() -> None:
    seat = Seat()
    written(seat.disk, LOG, term=TERM, checkpoint="committedIndex=3\nendIndex=3\n")
    seat.disk.open(f"data/{0:020d}").write(LOG[2].pos, b"\0\0\0\2")
    with pytest.raises(CorruptLog, match="entry 2 can't be read, and up to 3 were durable"):
        seat.start()


def test_a_bad_magic_in_the_first_entry_stops_the_start_if_it_was_committed() -> None:
    """It must not come back empty, and with a vote for whoever asks."""
    seat = Seat()
    written(seat.disk, LOG, term=TERM, checkpoint="committedIndex=3\nendIndex=3\n")
    seat.disk.open(f"data/{0:020d}").write(0, b"\0\0\0\2")
    with pytest.raises(CorruptLog):
        seat.start()


def test_a_term_that_cannot_be_read_stops_the_start() -> None:
    seat = Seat()
    seat.disk.write("currterm", b"\0" * 25)
    with pytest.raises(StoreError, match="no term can be read in it"):
        seat.start()


@pytest.mark.parametrize("text", [b"", b"\xff\xff", b"committedIndex=x\nendIndex=--2\n", b"committedIndex=-7\n"])
def test_a_checkpoint_that_cannot_be_read_commits_nothing(text: bytes) -> None:
    seat = Seat()
    written(seat.disk, LOG, term=TERM)
    seat.disk.write("checkpoint", text)
    assert seat.start().raft.committed == -1 and seat.bodies == [entry.body for entry in LOG]


# ---- a disk that fails ----


def test_a_disk_that_fails_to_sync_stops_the_member_and_nothing_is_answered() -> None:
    seat = leading(Seat(size=1))
    seat.disk.failing["sync"] = 1
    (opaque,) = append(seat, b"x")
    assert seat.answers(opaque) == [] and seat.raft.committed == -1
    assert seat.stopped is not None and "the disk failed" in seat.stopped and "sync fails" in seat.stopped
    assert seat.stopped in seat.notes and seat.raft.next_deadline() is None
    assert seat.raft.handle(Frames(1, b""), seat.now) == []


def test_a_vote_that_cannot_be_saved_stops_the_member_and_is_not_given() -> None:
    seat = Seat().start()
    until(seat, lambda: ask_higher(seat).term == TERM)
    seat.disk.failing["sync"] = 1
    opaque = seat.send(DLedgerRequest.VOTE, vote("n1", TERM).to_json(), "n1")
    assert seat.answers(opaque) == []
    assert seat.stopped is not None and seat.stopped.startswith("currterm: the disk failed")


def test_a_checkpoint_that_cannot_be_saved_is_tried_again() -> None:
    seat = leading(Seat(size=1))
    append(seat, b"x")
    seat.disk.failing["write"] = 1
    seat.pass_time(seat.config.check_point_interval)
    assert seat.stopped is None and "checkpoint can't be saved" in " ".join(seat.notes)
    append(seat, b"y")
    seat.pass_time(seat.config.check_point_interval)
    assert seat.disk.read("checkpoint") == b"committedIndex=1\nendIndex=1\nchecksums=1\n"


def test_a_checkpoint_that_could_not_be_saved_is_tried_again_though_nothing_new_comes() -> None:
    seat = leading(Seat(size=1))
    append(seat, b"x")
    seat.disk.failing["write"] = 1
    seat.pass_time(2 * seat.config.check_point_interval)
    assert seat.disk.read("checkpoint") == b"committedIndex=0\nendIndex=0\nchecksums=1\n"


@pytest.mark.parametrize(("checkpoint", "found"), [("checksums=1\n", 2), ("", 3), (None, 2)])
def test_only_a_checkpoint_of_ours_says_that_all_has_checksums(checkpoint: str | None, found: int) -> None:
    seat = Seat()
    text = "" if checkpoint is None else f"committedIndex=1\nendIndex=1\n{checkpoint}"
    written(seat.disk, entries(1, 1, 1), term=1, checkpoint=text)
    seat.disk.open(f"crc/{0:020d}").write(8, bytes(4))
    seat.start()
    assert seat.raft.log.end + 1 == found


@pytest.mark.parametrize("call", ["sync", "write"], ids=["the log", "the checkpoint"])
def test_an_end_at_which_the_disk_fails_is_an_end(call: str) -> None:
    """Without a Stop the process would wait for it for ever."""
    seat = leading(Seat(size=1))
    seat.hold = True
    append(seat, b"x", b"y")  # the second one waits for the flush of the first
    seat.hold = False
    seat.disk.failing[call] = 1
    seat.stop()
    assert seat.stopped is not None


def test_a_full_disk_refuses_appends_and_the_member_goes_on() -> None:
    seat = leading(Seat(size=1))
    append(seat, b"x")
    seat.disk.fill(1.0)
    answers = [seat.answer(opaque, AppendEntryResponse) for opaque in append(seat, *[bytes(900)] * 4)]
    assert Code.DISK_FULL in [answer.code for answer in answers if answer is not None]
    seat.disk.fill(0)
    (opaque,) = append(seat, b"y")
    answer = seat.answer(opaque, AppendEntryResponse)
    assert answer is not None and answer.code == Code.SUCCESS and seat.stopped is None


def test_the_log_of_a_member_that_was_stopped_is_whole() -> None:
    seat = leading(Seat(size=1))
    append(seat, b"x", b"y")
    seat.disk.failing["sync"] = 1
    append(seat, b"z")
    assert seat.stopped
    log = file_log(seat.disk)
    log.load(1)
    settle(log)
    assert log.end >= 1
