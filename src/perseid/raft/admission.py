"""What a member takes from others: words of a leader or a candidate from the machine of that member alone, and terms
that an honest member could have.

The protocol has no passwords. So a vote, a heartbeat, a push and the order to lead are taken only on connections that
come from the address of the peer that they name (`checkPeerAddresses=false` takes them from anywhere). Everything else
is for clients; but appends are not, where the log is that of a controller or a broker: what a stranger writes there
would be an election, or a message that nobody checked.

A term rises by one an election. One that is more than `MAX_TERM_STEP` above our own is nobody's: believed, it would
come to the last number that there is, and no election could follow. A member whose file has such a term already does
not start: `perseid admin raft-term` is the way on (docs/raft.md).
"""

from __future__ import annotations

from perseid.base.hosts import Hosts, host_of
from perseid.base.machine import Effect, Millis, Note, Resolved
from perseid.raft.config import RaftConfig
from perseid.raft.state import Member
from perseid.wire.dledger import DLedgerRequest, LeadershipTransferRequest, Message

MAX_TERM_STEP = 10_000_000
"""At one election a second four months without a leader."""
TELL_MS = 60_000
"""So often one machine is worth a line for one kind of request."""
MAX_TOLD = 1_000
"""Lines in that time; further machines go without."""
OPEN = (
    "checkPeerAddresses=false: whoever reaches this port can vote, depose the leader and write to the group's log; let "
    "nobody reach it but the members"
)
FROM_LEADERS = frozenset((DLedgerRequest.VOTE, DLedgerRequest.HEART_BEAT, DLedgerRequest.PUSH))
"""Requests in the name of their `leaderId`."""


class Admission:
    """Of one member."""

    def __init__(self, config: RaftConfig, member: Member, *, takes_appends: bool = True) -> None:
        self._checks = config.check_peer_addresses
        self._takes_appends = takes_appends
        self._member = member
        self._hosts = Hosts(member.peers.values() if self._checks else ())
        self._told: dict[tuple[str, int], Millis] = {}

    def start(self) -> list[Effect]:
        """Say so when the port is open to everybody."""
        return [] if self._checks else [Note("warning", OPEN)]

    def refusal(self, code: int, request: Message, peer: str, now: Millis) -> str:
        """Why a request is not taken, for the log; "": it is taken."""
        if code == DLedgerRequest.APPEND:
            return "" if self._takes_appends else "only the node around this member writes its log"
        speaker = request.leader_id
        if code not in FROM_LEADERS:
            if not isinstance(request, LeadershipTransferRequest) or request.transferee_id != self._member.self_id:
                return ""
            speaker = request.transfer_id
        if self.is_beyond(request.term):
            return f"term {request.term}, more than {MAX_TERM_STEP} above ours ({self._member.term})"
        address = self._member.peers.get(speaker or "")
        if not self._checks or address is None:  # who is no member is refused for that
            return ""
        if self._hosts.is_at(peer, address, now):
            return ""
        return f"it speaks as {speaker}, which is at {address}; if it is, set checkPeerAddresses=false"

    def is_beyond(self, term: int) -> bool:
        """Is this a term that no honest member could have?"""
        return term > self._member.term + MAX_TERM_STEP

    def is_news(self, code: int, peer: str, now: Millis) -> bool:
        """Is it worth a line that something of this machine was not taken?"""
        about = host_of(peer), code
        if about in self._told and now < self._told[about] + TELL_MS:
            return False
        if len(self._told) >= MAX_TOLD:
            self._told = {one: told for one, told in self._told.items() if now < told + TELL_MS}
        if len(self._told) < MAX_TOLD:
            self._told[about] = now
        return about in self._told

    # ---- names ----

    def ask(self, now: Millis) -> list[Effect]:
        """Look up the names of the peers, when that is due."""
        return self._hosts.ask(now)

    def resolved(self, event: Resolved) -> None:
        """What their names stand for."""
        self._hosts.take(event)

    def next_deadline(self) -> Millis | None:
        return self._hosts.next_deadline()
