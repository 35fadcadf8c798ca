"""Strangers at the ports of a Raft group: requests in the names of members, from a machine that is none of theirs.

They speak as leaders and candidates, with terms near and far, and push entries that nobody appended. The group's
invariants are what checks them: a believed stranger leaves two leaders in a term, another log, or no leader at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perseid.sim.net import End
from perseid.sim.promises import Violation
from perseid.sim.scheduler import US_PER_MS
from perseid.wire.command import decode_all, encode_request
from perseid.wire.dledger import (
    Code,
    DLedgerRequest,
    Entry,
    HeartBeatRequest,
    LeadershipTransferRequest,
    Message,
    Push,
    PushEntryRequest,
    VoteRequest,
)

if TYPE_CHECKING:
    from perseid.sim.models.raft.group import Group

IP = "10.9.9.9"
SHARE = 0.5
"""Of the seeds have one."""
PAUSE_MS = (500, 6_000)
MOST_REQUESTS = 6
"""On one connection."""
FAR = ((1 << 63) - 1, 1 << 62, 1 << 31, 1_000_000, -1, -(1 << 63))


class Stranger:
    """One machine that troubles the members of a group until it is told to stop."""

    name = "stranger"

    def __init__(self, group: Group) -> None:
        self._group = group
        self._random = group.scheduler.stream("strangers")
        self.running = self._random.random() < SHARE
        self.is_unsigned = False
        """Members sign what they ask each other, and it does not."""
        self._opaque = 0
        group.network.machines[IP] = self.name

    def begin(self) -> None:
        if self.running:
            self._group.scheduler.after(self._random.randint(*PAUSE_MS) * US_PER_MS, self._work)

    def _work(self) -> None:
        if self.running and not self._group.healed:
            self._group.network.dial(self, IP, self._random.choice(self._group.addresses))
            self.begin()

    def _message(self) -> tuple[DLedgerRequest, Message]:
        random, group = self._random, self._group
        names = [one.name for one in group.members]
        terms = [one.raft.member.term for one in group.members if one.raft is not None] or [0]
        term = random.choice((*FAR, *(random.choice(terms) + step for step in (0, 0, 1, 1, 2, 100))))
        speaker, target = random.choice((*names, "n9")), random.choice(names)
        base: dict[str, Any] = {"group": "g", "remote_id": target, "term": term}
        base |= {"local_id": speaker, "leader_id": speaker}
        index = random.choice((-1, 0, 1, 5, len(group.commitment.bodies), (1 << 63) - 1))
        kind = random.choice(("vote", "vote", "beat", "push", "take over"))
        self._group.count(f"stranger: {kind}")
        if kind == "vote":
            vote = VoteRequest(**base, ledger_end_index=index, ledger_end_term=random.choice((term, -1, 1 << 62)))
            return DLedgerRequest.VOTE, vote
        if kind == "beat":
            return DLedgerRequest.HEART_BEAT, HeartBeatRequest(**base)
        if kind == "push":
            entry = Entry(index=index, term=term, pos=0, body=b"of a stranger")
            what = random.choice((Push.APPEND, Push.COMMIT, Push.COMPARE, Push.TRUNCATE))
            return DLedgerRequest.PUSH, PushEntryRequest(**base, type=what, commit_index=index, entry=entry)
        order = LeadershipTransferRequest(
            **base, transfer_id=speaker, transferee_id=target, take_leadership_ledger_index=index
        )
        return DLedgerRequest.LEADERSHIP_TRANSFER, order

    # ---- the network's side ----

    def opened(self, end: End, listener: str, dialled: str) -> None:
        for _ in range(self._random.randint(1, MOST_REQUESTS)):
            code, message = self._message()
            self._opaque += 1
            self._group.network.write(end, encode_request(code, self._opaque, None, message.to_json()))

    def connect_failed(self, address: str, reason: str) -> None: ...

    def received(self, end: End, frames: bytearray) -> None:
        if self.is_unsigned:
            raise Violation("who does not sign is not served", f"{end.other} answers {len(frames)} bytes")
        for command in decode_all(bytes(frames)):
            code = Message.from_json(command.body).code
            if code == Code.UNKNOWN_MEMBER:
                self._group.count("stranger refused")

    def closed(self, end: End, reason: str) -> None:
        if self.is_unsigned:
            self._group.count("member without a signature refused")
