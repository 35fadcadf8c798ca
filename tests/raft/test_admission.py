"""Strangers that speak as members, and terms that nobody could have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from perseid.base.errors import StoreError
from perseid.base.machine import Frames, Opened, Resolve, Resolved
from perseid.cli.main import app
from perseid.disk.real import RealDisk
from perseid.raft import admission, terms
from perseid.raft.admission import MAX_TERM_STEP, MAX_TOLD, TELL_MS
from perseid.raft.config import RaftConfig
from perseid.raft.files import FileLog
from perseid.raft.node import LISTENER
from perseid.raft.state import MAX_TERM
from perseid.wire.command import encode_request
from perseid.wire.dledger import (
    Code,
    DLedgerRequest,
    Entry,
    HeartBeatResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    Message,
    Push,
    PushEntryResponse,
    VoteResponse,
)

from .harness import (
    DATA_BYTES,
    GROUP,
    INDEX_BYTES,
    Seat,
    address,
    beat,
    entries,
    following,
    leading,
    push,
    vote,
    written,
)
from .harness import Group as Members

LAST = (1 << 63) - 1
"""The highest term that there is."""


def ask_from(seat: Seat, host: str, code: int, request: Message, kind: type[Any]) -> Any:
    """A request on a connection from a machine."""
    seat._conns += 1
    seat._opaque += 1
    conn, opaque = seat._conns, seat._opaque
    seat.do(Opened(conn, f"{host}:4000", address(seat.name), LISTENER))
    seat.do(Frames(conn, encode_request(code, opaque, None, request.to_json())))
    return seat.answer(opaque, kind)


@pytest.mark.parametrize("term", [LAST, 1 << 62, 7, 0])
@pytest.mark.parametrize(
    ("code", "request_of", "kind"),
    [
        (DLedgerRequest.VOTE, lambda term: vote("n1", term, LAST, LAST), VoteResponse),
        (DLedgerRequest.HEART_BEAT, lambda term: beat("n1", term), HeartBeatResponse),
        (DLedgerRequest.PUSH, lambda term: push(Push.TRUNCATE, Entry(0, term, 0, b"x"), term=term), PushEntryResponse),
        (
            DLedgerRequest.LEADERSHIP_TRANSFER,
            lambda term: LeadershipTransferRequest(
                group=GROUP, remote_id="n0", term=term, transfer_id="n1", transferee_id="n0"
            ),
            LeadershipTransferResponse,
        ),
    ],
    ids=["vote", "heartbeat", "push", "transfer"],
)
def test_a_stranger_that_names_a_member_changes_nothing(code: int, request_of: Any, kind: type[Any], term: int) -> None:
    """Votes with a term of 2^63−1 left three controllers without a leader for ever."""
    seat = following(Seat(), "n1", 3)
    before = seat.raft.status(), seat.disk.read("currterm")
    answer = ask_from(seat, "10.9.9.9", code, request_of(term), kind)
    assert answer.code == Code.UNKNOWN_MEMBER
    assert (seat.raft.status(), seat.disk.read("currterm")) == before
    assert any("request" in note and "is refused" in note for note in seat.notes)
    assert ask_from(seat, "10.0.4.1", DLedgerRequest.HEART_BEAT, beat("n1", 3), HeartBeatResponse).code == Code.SUCCESS


def test_three_members_elect_whatever_strangers_say() -> None:
    group = Members()
    for seat in group.seats.values():
        seat.start()
        for speaker in ("n0", "n1", "n2"):
            for term in (LAST, LAST - 1, 1 << 61):
                request = vote(speaker, term, LAST, LAST, remote_id=seat.name)
                ask_from(seat, "10.9.9.9", DLedgerRequest.VOTE, request, VoteResponse)
    group.pass_time(10_000)
    assert 0 < group.leader.raft.member.term < 100


def test_a_member_from_another_members_machine_is_not_believed() -> None:
    seat = following(Seat(), "n1", 3)
    answer = ask_from(seat, "10.0.4.2", DLedgerRequest.HEART_BEAT, beat("n1", 4), HeartBeatResponse)
    assert answer.code == Code.UNKNOWN_MEMBER and seat.raft.member.term == 3


def test_an_open_port_says_so_and_believes() -> None:
    seat = following(Seat(check_peer_addresses=False), "n1", 3)
    assert any("checkPeerAddresses=false" in note for note in seat.notes)
    ask_from(seat, "10.9.9.9", DLedgerRequest.HEART_BEAT, beat("n2", 4), HeartBeatResponse)
    seat.pass_time(10)
    assert seat.raft.member.term == 4


def test_names_of_peers_are_resolved() -> None:
    """Nobody is believed before its name is; then its machine is, also when it has moved."""
    config = RaftConfig(
        group=GROUP, self_id="n0", peers="n0-n0.example:1;n1-n1.example:1;n2-n2.example:1",
        mapped_file_size_for_entry_data=DATA_BYTES, mapped_file_size_for_entry_index=INDEX_BYTES,
    )  # fmt: skip
    seat = Seat()
    asked: list[Resolve] = []
    seat.config = config
    seat.raft = seat._new()
    carry_out = seat._carry_out
    seat._carry_out = lambda effect: asked.append(effect) if isinstance(effect, Resolve) else carry_out(effect)  # type: ignore[method-assign,assignment]
    seat.on_connect = lambda peer: False
    seat.start()
    assert [one.names for one in asked] == [("n0.example", "n1.example", "n2.example")]
    request = vote("n1", 5, -1, -1)
    assert ask_from(seat, "10.0.0.1", DLedgerRequest.VOTE, request, VoteResponse).code == Code.UNKNOWN_MEMBER
    seat.do(Resolved({"n0.example": [], "n1.example": ["10.0.0.1", "2001:db8::1"], "n2.example": []}))
    assert ask_from(seat, "[2001:db8::1]", DLedgerRequest.VOTE, request, VoteResponse).code == Code.SUCCESS
    assert ask_from(seat, "10.0.0.8", DLedgerRequest.VOTE, request, VoteResponse).code == Code.UNKNOWN_MEMBER
    seat.pass_time(1_000)
    assert len(asked) == 2, "a stranger: has a name moved?"
    seat.do(Resolved({"n1.example": ["10.0.0.8"]}))
    assert ask_from(seat, "10.0.0.8", DLedgerRequest.VOTE, request, VoteResponse).code == Code.SUCCESS


@pytest.mark.parametrize(("step", "believed"), [(MAX_TERM_STEP, True), (MAX_TERM_STEP + 1, False), (LAST - 3, False)])
def test_a_members_term_may_be_so_much_higher(step: int, believed: bool) -> None:
    seat = following(Seat(), "n1", 3)
    ask_from(seat, "10.0.4.2", DLedgerRequest.VOTE, vote("n2", 3 + step, 9, 9), VoteResponse)
    seat.pass_time(10)
    assert seat.raft.member.term == (3 + step if believed else 3)


def test_an_answer_with_a_term_that_nobody_could_have_is_none() -> None:
    seat = leading(Seat())
    term = seat.raft.member.term
    seat.pass_time(2_000)
    for one in seat.asked(DLedgerRequest.HEART_BEAT):
        seat.reply(one, HeartBeatResponse(code=Code.EXPIRED_TERM, term=LAST))
    assert seat.raft.member.is_leader and seat.raft.member.term == term
    assert any("not believed" in note for note in seat.notes)


def test_strangers_fill_no_log() -> None:
    seat = following(Seat(), "n1", 3)
    before = len(seat.notes)
    for number in range(3 * MAX_TOLD):
        host = f"10.9.{number // 250}.{number % 250}"
        for term in (LAST, LAST - number):
            ask_from(seat, host, DLedgerRequest.VOTE, vote("n1", term, 1, 1), VoteResponse)
    assert len(seat.notes) - before == MAX_TOLD


def test_what_a_machine_says_is_worth_a_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_TOLD", 2)
    made = admission.Admission(RaftConfig(peers="n0-10.0.0.1:1"), Seat().raft.member)
    vote_code, beat_code = DLedgerRequest.VOTE, DLedgerRequest.HEART_BEAT
    seen = [made.is_news(vote_code, "10.9.0.1:5", at) for at in (0, 1, TELL_MS - 1, TELL_MS, TELL_MS + 1, 2 * TELL_MS)]
    assert seen == [True, False, False, True, False, True]
    now = 2 * TELL_MS
    assert not made.is_news(vote_code, "10.9.0.1:6", now), "the same machine"
    assert made.is_news(beat_code, "10.9.0.1:5", now + 1), "something else"
    assert not made.is_news(vote_code, "10.9.0.2:5", now + 2), "there is no room for a third one"
    assert not made.is_news(vote_code, "10.9.0.2:5", now + TELL_MS - 1)
    assert made.is_news(vote_code, "10.9.0.2:5", now + TELL_MS), "the first one's minute is over"
    assert not made.is_news(vote_code, "10.9.0.3:5", now + TELL_MS)


# ---- a term that is there already ----


@pytest.mark.parametrize("term", [LAST, MAX_TERM + 1, -1])
def test_a_term_that_nobody_could_have_stops_the_start(term: int) -> None:
    seat = Seat()
    written(seat.disk, entries(1, 1, 2), term=term)
    with pytest.raises(StoreError, match="raft-term"):
        seat.start()


def test_a_group_with_a_term_at_the_limit_goes_on_by_the_documented_step() -> None:
    """docs/raft.md: all members are stopped, and all are given one term above that of their last entries."""
    group = Members()
    for number, seat in enumerate(group.seats.values()):
        written(seat.disk, entries(*range(1, 3 + number)), term=LAST, vote="n1")
        with pytest.raises(StoreError):
            seat.start()
    ends = [terms.read(seat.disk, "").end_term for seat in group.seats.values()]
    assert ends == [2, 3, 4]
    for seat in group.seats.values():
        terms.write(seat.disk, "", max(ends) + 1)
        seat.disk.cut_power()
        seat.raft = seat._new()
        seat.start()
    group.pass_time(10_000)
    assert group.leader.name in ("n1", "n2") and group.leader.raft.member.term > 4


@pytest.mark.parametrize("term", [0, 2, LAST, MAX_TERM + 1])
def test_a_term_that_can_not_follow_is_not_set(term: int) -> None:
    seat = Seat()
    written(seat.disk, entries(1, 1, 2), term=LAST)
    with pytest.raises(StoreError, match=r"more than 2\b"):
        terms.write(seat.disk, "", term)
    assert terms.read(seat.disk, "") == (LAST, None, 2)


def test_the_command_reads_and_sets(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path / "dledger-n0"))
    log = FileLog(disk, DATA_BYTES, INDEX_BYTES)
    log.load(-1)
    for entry in entries(1, 1, 2):
        log.put(entry)
    disk.write("currterm", f"voteLeader=n1\ncurrTerm={LAST}\n".encode())
    run = CliRunner().invoke
    read = run(app, ["admin", "raft-term", str(tmp_path / "dledger-n0"), "--json"])
    assert json.loads(read.output) == {"term": LAST, "vote": "n1", "last_entry_term": 2}
    assert run(app, ["admin", "raft-term", str(tmp_path / "dledger-n0"), "--set", "2"]).exit_code == 1
    done = run(app, ["admin", "raft-term", str(tmp_path / "dledger-n0"), "--set", "7"])
    assert (done.exit_code, "term 7, vote for nobody" in done.output) == (0, True)
    missing = run(app, ["admin", "raft-term", str(tmp_path / "nowhere")])
    assert missing.exit_code == 1 and "no such folder" in missing.stderr and not (tmp_path / "nowhere").exists()
