"""Requests, responses and files of a DLedger group, against what the Java 0.3.2 classes wrote."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from perseid.base.errors import RequestRefused, StoreError
from perseid.base.machine import Flush, SaveState
from perseid.raft.files import FileLog
from perseid.raft.log import LogRefused
from perseid.raft.state import Member, parse_vote
from perseid.sim.disk import SimDisk
from perseid.store.recovery import save_durably
from perseid.wire.command import decode_all, encode_response
from perseid.wire.dledger import (
    ENTRY_HEADER_BYTES,
    HEADER_CODE,
    INDEX_UNIT_BYTES,
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
from raft.harness import Seat, append

VECTORS: dict[str, str] = json.loads((Path(__file__).parent / "dledger-vectors.json").read_text())
DERIVED = {"batch", "count", "firstEntryIndex", "lastEntryIndex", "totalSize"}
"""Members of a Java push that its getters make up."""

NAMES: dict[str, Any] = {"group": "g0", "leader_id": "n0", "local_id": "n0", "remote_id": "n1", "term": 3}
ONE = Entry(42, 3, 4096, b"hello", size=53)
TWO = Entry(43, 3, 4149, b"ab", size=50)
PUSH = NAMES | {"commit_index": 40}
PEERS = {"n0": "127.0.0.1:20911", "n1": "127.0.0.1:20912"}
BODIES: dict[str, Message] = {
    "voteRequest": VoteRequest(**NAMES, ledger_end_index=41, ledger_end_term=2),
    "voteResponse.accept": VoteResponse(**NAMES, vote_result=Vote.ACCEPT),
    "voteResponse.notready": VoteResponse(**NAMES | {"term": 2}, vote_result=Vote.TERM_NOT_READY),
    "voteResponse.default": VoteResponse(),
    "heartbeatRequest": HeartBeatRequest(**NAMES),
    "heartbeatResponse.success": HeartBeatResponse(),
    "heartbeatResponse.termNotReady": HeartBeatResponse(code=Code.TERM_NOT_READY),
    "heartbeatResponse.expired": HeartBeatResponse(code=Code.EXPIRED_TERM, term=9),
    "push.APPEND": PushEntryRequest(**PUSH, type=Push.APPEND, entry=ONE),
    "push.COMMIT": PushEntryRequest(**PUSH, type=Push.COMMIT),
    "push.COMPARE": PushEntryRequest(**PUSH, type=Push.COMPARE, entry=ONE),
    "push.TRUNCATE": PushEntryRequest(**PUSH, type=Push.TRUNCATE, entry=ONE),
    "push.BATCH_APPEND": PushEntryRequest(**PUSH, type=Push.APPEND, batch_entry=[ONE, TWO]),
    "pushResponse": PushEntryResponse(group="g0", term=3, index=42, count=1, begin_index=0, end_index=42),
    "pushResponse.commit": PushEntryResponse(group="g0", term=3, begin_index=0, end_index=42),
    "appendRequest": AppendEntryRequest(**NAMES, body=b"hello"),
    "batchAppendRequest": AppendEntryRequest(**NAMES, batch_msgs=[b"a", b"b"]),
    "appendResponse": AppendEntryResponse(group="g0", leader_id="n0", term=3, index=42, pos=4096),
    "getRequest": GetEntriesRequest(**NAMES, begin_index=42),
    "getResponse": GetEntriesResponse(group="g0", entries=[ONE]),
    "metadataRequest": MetadataRequest(**NAMES),
    "metadataResponse": MetadataResponse(group="g0", leader_id="n0", peers=PEERS),
    "leadershipTransferRequest": LeadershipTransferRequest(
        **NAMES, transfer_id="n0", transferee_id="n1", take_leadership_ledger_index=42
    ),
    "leadershipTransferResponse": LeadershipTransferResponse(term=4),
}


def java(name: str) -> str:
    return VECTORS[f"{name}.json"]


def test_every_text_of_java_is_read() -> None:
    assert {f"{name}.json" for name in BODIES} == {name for name in VECTORS if name.endswith(".json")}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_of_java_has_its_fields(name: str) -> None:
    body = BODIES[name]
    assert type(body).from_json(java(name)) == body
    assert type(body).from_json(memoryview(java(name).encode())) == body


@pytest.mark.parametrize("name", BODIES)
def test_a_body_of_ours_is_javas(name: str) -> None:
    theirs = json.loads(java(name))
    if isinstance(BODIES[name], PushEntryRequest):
        theirs = {key: value for key, value in theirs.items() if key not in DERIVED}
    text = BODIES[name].to_json()
    assert json.loads(text) == theirs
    assert b" " not in text and sorted(theirs) == list(json.loads(text)), "members stand in the order of their names"


def test_a_push_carries_one_entry_or_a_batch() -> None:
    batch = PushEntryRequest.from_json(java("push.BATCH_APPEND"))
    first, last = batch.entries[0].index, batch.entries[-1].index
    assert f"{len(batch.entries)},{first},{last},0" == VECTORS["push.BATCH_APPEND.reparsed"]
    assert PushEntryRequest.from_json(java("push.APPEND")).entries == [ONE]
    assert PushEntryRequest.from_json(java("push.COMMIT")).entries == []


def test_a_member_that_is_null_counts_as_absent() -> None:
    assert VoteRequest.from_json(b'{"localId":null,"term":4,"ledgerEndIndex":null}') == VoteRequest(term=4)


@pytest.mark.parametrize(
    "text", [b"", b"nothing", b"[1]", b'{"term":"x"}', b'{"term":9223372036854775808}', b'{"leaderId":[1]}']
)
def test_what_is_no_body_is_refused(text: bytes) -> None:
    with pytest.raises(RequestRefused, match="the body is no VoteRequest"):
        VoteRequest.from_json(text)


# ---- frames ----


def test_a_vote_in_a_frame_of_java_is_read() -> None:
    (request,) = decode_all(bytes.fromhex(VECTORS["voteRequest.frame.hex"]))
    assert (request.code, request.opaque, request.is_response) == (DLedgerRequest.VOTE, 7, False)
    assert VoteRequest.from_json(request.body) == BODIES["voteRequest"]
    (response,) = decode_all(bytes.fromhex(VECTORS["voteResponse.frame.hex"]))
    assert (response.code, response.opaque, response.is_response) == (HEADER_CODE, 7, True)
    assert VoteResponse.from_json(response.body) == BODIES["voteResponse.accept"]


def test_an_answer_of_ours_has_javas_body_in_its_frame() -> None:
    (ours,) = decode_all(encode_response(7, HEADER_CODE, None, BODIES["voteResponse.accept"].to_json()))
    (theirs,) = decode_all(bytes.fromhex(VECTORS["voteResponse.frame.hex"]))
    assert (ours.code, ours.opaque, ours.flag) == (theirs.code, theirs.opaque, theirs.flag)
    assert bytes(ours.body) == bytes(theirs.body)


# ---- files ----


def test_an_entry_and_its_unit_stand_on_disk_as_javas() -> None:
    assert b"".join(ONE.encode()).hex() == VECTORS["entry.hex"]
    assert bytes(ONE.unit()).hex() == VECTORS["index.hex"]
    assert (ONE.disk_bytes, ENTRY_HEADER_BYTES + 5) == (53, 53)


def single() -> tuple[SimDisk, FileLog]:
    """What the Java member of a group of one did in its first term."""
    disk = SimDisk(Random(1))
    log = FileLog(disk, 256, 2048)
    log.load(-1)
    for number in range(5):
        entry = log.append(int(VECTORS["single.term"]), b"body-%d" % number)
        assert f"index={entry.index} pos={entry.pos} code=200" == VECTORS[f"single.append.{number}"]
    return disk, log


def test_the_files_of_a_log_are_javas() -> None:
    disk, _ = single()
    data0, data256 = disk.read("data/00000000000000000000"), disk.read("data/00000000000000000256")
    index0 = disk.read("index/00000000000000000000")
    assert data0 is not None and data256 is not None and index0 is not None
    assert data0.hex() == VECTORS["file.data0.hex"]
    assert data256[:64].hex() == VECTORS["file.data256.hex64"] and not any(data256[64:])
    # the sample has five units, and then zeros
    theirs = bytes.fromhex(VECTORS["file.index0.hex160"])
    assert index0[: len(theirs)] == theirs and not any(index0[5 * INDEX_UNIT_BYTES :])


def test_a_log_has_the_files_of_javas_by_name_and_size() -> None:
    disk, _ = single()
    ours = {f"{folder}/{name}({disk.size(f'{folder}/{name}')})" for folder in ("data", "index") for name in
            disk.list(folder)}  # fmt: skip
    theirs = {path.partition("dledger-n0/")[2] for path in VECTORS["single.files"].split()}
    assert ours == {path for path in theirs if "/" in path}


def test_the_files_of_java_are_loaded() -> None:
    disk = SimDisk(Random(1))
    for path, text, size in (
        ("data/00000000000000000000", VECTORS["file.data0.hex"], 256),
        ("data/00000000000000000256", VECTORS["file.data256.hex64"], 256),
        ("index/00000000000000000000", VECTORS["file.index0.hex160"], 2048),
    ):
        disk.open(path, size).write(0, bytes.fromhex(text))
    log = FileLog(disk, 256, 2048)
    log.load(-1)
    assert [log.get(index) for index in range(5)] == [
        Entry(number, 0, pos, b"body-%d" % number, size=54) for number, pos in enumerate((0, 54, 108, 162, 256))
    ]
    assert (log.begin, log.end, log.end_term) == (0, 4, 0)


def test_an_entry_that_fits_into_no_file_is_refused() -> None:
    _, log = single()
    with pytest.raises(LogRefused, match="an entry of 249 bytes; 248 are the most"):
        log.append(0, bytes(201))
    assert log.append(0, bytes(200)).pos == 512


def test_the_file_of_term_and_vote_is_javas() -> None:
    text = VECTORS["file.currterm"].encode()
    assert parse_vote(text, "currterm") == (0, "n0")
    member = Member("g0", "n0", PEERS, vote="n0")
    assert member.save([]) == SaveState("currterm", text, [])
    member.vote = None
    assert parse_vote(member.save([]).data, "currterm") == (0, None)


@pytest.mark.parametrize("text", ["currTerm=7\nvoteLeader=\n", "#made by Java\r\ncurrTerm = 7\r\n", "currTerm=7"])
def test_a_file_of_term_and_vote_is_read_in_any_form(text: str) -> None:
    assert parse_vote(text.encode(), "currterm") == (7, None)


@pytest.mark.parametrize("text", [b"", b"voteLeader=n0\n", b"currTerm=x\n", b"\xff\xfe\0"])
def test_a_file_without_a_term_is_refused(text: bytes) -> None:
    with pytest.raises(StoreError, match="currterm: no term can be read in it"):
        parse_vote(text, "currterm")


def test_the_checkpoint_is_javas_and_a_line() -> None:
    """A member alone that ends with five entries, all committed."""
    seat = Seat("n0", 1)
    seat.start()
    assert seat.raft.member.is_leader
    append(seat, *(b"body-%d" % number for number in range(5)))
    seat.stop()
    ours = VECTORS["file.checkpoint"] + "checksums=1\n"  # which Java does not look at, and leaves out
    assert seat.stopped == "" and seat.disk.read("checkpoint") == ours.encode()
    assert seat.disk.read("currterm") == VECTORS["file.currterm"].encode()
    seat.again()
    assert seat.raft.committed == 4


def test_a_lying_checkpoint_commits_nothing_that_is_not_there() -> None:
    disk, log = single()
    for effect in log.flush([]):
        assert isinstance(effect, Flush)
        for file in effect.files:
            file.sync()
    save_durably(disk, "checkpoint", b"committedIndex=99\nendIndex=2\n")
    seat = Seat("n0", 3, disk=disk, mapped_file_size_for_entry_data=256, mapped_file_size_for_entry_index=2048)
    assert seat.start().raft.committed == 4
