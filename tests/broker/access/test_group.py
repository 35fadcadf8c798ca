"""The port of a broker's DLedger group, where requests have to be signed: strangers read and change nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.access.test_gate import ALICE, INNER, SECURED, make
from tests.broker.harness import Rig
from tests.broker.streams import ALONE

from perseid.base.machine import Effect, Frames, Opened, Write
from perseid.broker.access.config import Access
from perseid.raft.node import LISTENER
from perseid.security.credentials import Credentials
from perseid.wire.command import decode, encode_request
from perseid.wire.dledger import (
    DLedgerRequest,
    GetEntriesRequest,
    HeartBeatRequest,
    Message,
    MetadataRequest,
    MetadataResponse,
    PushEntryRequest,
    VoteRequest,
)

BASE: dict[str, Any] = {"group": "default", "remote_id": "n0", "local_id": "n1", "leader_id": "n1", "term": 9}
ASKED = {
    DLedgerRequest.METADATA: MetadataRequest(**BASE),
    DLedgerRequest.GET: GetEntriesRequest(**BASE),
    DLedgerRequest.VOTE: VoteRequest(**BASE),
    DLedgerRequest.HEART_BEAT: HeartBeatRequest(**BASE),
    DLedgerRequest.PUSH: PushEntryRequest(**BASE),
}
CONN = 77


class Member(Rig):
    """A member of a group."""

    def __init__(self, root: Path, access: Access) -> None:
        super().__init__(root, raft=ALONE, access=access)

    def say(self, code: int, message: Message, by: Credentials | None) -> list[Effect]:
        """What somebody at the group's port gets."""
        body = message.to_json()
        self.broker.handle(Opened(CONN, "10.0.0.9:5", "10.0.0.9:1", LISTENER), self.now)
        frame = encode_request(code, 5, by.sign(None, body) if by else None, body)
        return self.broker.handle(Frames(CONN, frame), self.now)


@pytest.mark.parametrize(
    "by", [None, ALICE, Credentials("inner", "a guess")], ids=["unsigned", "a user", "wrong secret"]
)
@pytest.mark.parametrize("code", ASKED)
def test_a_stranger_gets_no_answer_and_changes_nothing(
    tmp_path: Path, code: DLedgerRequest, by: Credentials | None
) -> None:
    rig = Member(tmp_path, SECURED)
    make(rig)
    member = rig.broker.parts.mode.stream.raft.member
    before = member.term, member.vote, member.role, rig.parts.store.log.end
    effects = rig.say(code, ASKED[code], by)
    assert not [one for one in effects if isinstance(one, Write) and one.conn == CONN]
    assert (member.term, member.vote, member.role, rig.parts.store.log.end) == before
    assert [one for one in effects if getattr(one, "conn", None) == CONN], "its connection is closed"
    assert any("is refused, and its connection closed" in getattr(one, "text", "") for one in effects)


def test_a_member_is_answered(tmp_path: Path) -> None:
    rig = Member(tmp_path, SECURED)
    (answer,) = [
        one for one in rig.say(DLedgerRequest.METADATA, ASKED[DLedgerRequest.METADATA], INNER) if isinstance(one, Write)
    ]
    assert isinstance(answer.data, bytes)
    assert MetadataResponse.from_json(decode(answer.data).body).leader_id == "n0"


def test_members_of_the_original_may_be_let_in_by_code(tmp_path: Path) -> None:
    """They sign nothing."""
    rig = Member(tmp_path, replace(SECURED, unsigned=frozenset({int(DLedgerRequest.METADATA)})))
    assert [
        one for one in rig.say(DLedgerRequest.METADATA, ASKED[DLedgerRequest.METADATA], None) if isinstance(one, Write)
    ]


@pytest.mark.parametrize("authenticates", [True, False])
def test_what_is_asked_of_other_members_is_signed(tmp_path: Path, authenticates: bool) -> None:
    """Before requests have to be, too, so that members can be told one after the other."""
    access = SECURED if authenticates else Access(inner=INNER)
    raft = Rig(tmp_path, raft=ALONE, access=access).broker.parts.mode.stream.raft
    assert raft.caller.sign is not None
    assert raft.caller.sign(None, b"body") == INNER.sign(None, b"body")
