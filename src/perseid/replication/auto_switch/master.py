"""The master's end of the AutoSwitch stream: who follows, what is sent to whom, what all that count have.

A follower's states: silent → (handshake) claiming → (it is that replica) greeted → (first report: its request)
following → gone.

    acknowledged ≤ next ≤ sendable ≤ log.end         next − max(acknowledged, start) ≤ window

Each packet is of one epoch and one file, and says which epoch its bytes are (the original's last packet of an epoch
says the next one, B10). Whoever breaks the order of frames, or reports more than it was sent, is cut off (B14a, B15). A
replica on two connections is the newest one that follows (B17).

The protocol has no passwords. So a connection is a replica's only when it comes from the machine where the controllers
know that replica; until they have been asked, and while another connection of the same replica is alive, its handshake
waits. So a stranger neither takes a replica's place nor speaks for it.

What a replica is known to have outlives its connection: its log does, too. So a lost connection never lets anything be
confirmed or acknowledged that the replica has not reported (B2, B4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perseid.base.machine import Buffer, Close, ConnId, Effect, Millis, Note, Write
from perseid.replication.auto_switch.epochs import Epochs
from perseid.replication.auto_switch.in_sync import AWAITED_MS, InSync, Proposal
from perseid.replication.config import ReplicationConfig
from perseid.replication.sender import EVERYTHING, Connected, Sender
from perseid.store.commit_log import CommitLog
from perseid.wire.ha_auto import (
    HANDSHAKE,
    REPORT_BYTES,
    SLAVE_HANDSHAKE_BYTES,
    STATE_BYTES,
    TRANSFER,
    Packet,
    SlaveHandshake,
    decode_report,
    decode_slave_handshake,
    encode_master_handshake,
    encode_packet,
    state_of,
)

TELL_MS = 100
"""A replica hears so much later at most what is confirmed, when nothing else is sent to it."""
CLAIM_MS = 5_000
"""So long a handshake waits until the controllers have said where that replica is."""
LIVELY_BEATS = 2
"""A replica that was not heard for so many intervals of its reports has no live connection."""
LONGEST_BYTES = max(SLAVE_HANDSHAKE_BYTES, REPORT_BYTES)


IsAt = Callable[[int, str, Millis], bool]
"""Is this the replica of that id, by the address that its connection comes from? When not, what is known is soon known
anew, and it is asked again."""


@dataclass(slots=True)
class Follower(Connected):
    """One connection of a replica."""

    replica: int = 0
    """Its id; 0: it has not said yet who it is."""
    learner: bool = False
    from_last_file: bool = False
    claim: SlaveHandshake | None = None
    """What it says of itself, and is not believed yet."""
    claimed: Millis = 0
    waits_until: Millis = 0
    """When it is looked at again, if nothing happens before."""
    probed: bool = False
    """Another connection of that replica was asked to show that it is alive."""
    told: int = -1
    """The confirm offset that it was told."""
    mark: tuple[int, Millis] = (0, 0)
    """Our log's end when it last had all up to the mark before, and when that was: when it has that, too, it had caught
    up then. It moves no sooner: a replica that reports some time after it was sent something would never reach it."""


class Master(Sender[Follower]):
    """All followers of one log in one master's term. `sendable` tells up to where the log may be sent, `confirmed` up
    to where readers see it."""

    def __init__(
        self,
        config: ReplicationConfig,
        log: CommitLog,
        epochs: Epochs,
        in_sync: InSync,
        sendable: Callable[[], int],
        confirmed: Callable[[], int],
        is_at: IsAt,
        *,
        hot_bytes: int,
        longest_record: int,
    ) -> None:
        super().__init__(config, log, sendable, Follower, hot_bytes=hot_bytes, longest_record=longest_record)
        self._epochs = epochs
        self.in_sync = in_sync
        self._confirmed = confirmed
        self._is_at = is_at
        self._has: dict[int, int] = {}
        """Replica → the end of its log, as it last reported in this term."""
        self._learners: set[int] = set()

    # ---- connections ----

    def closed(self, conn: ConnId, reason: str) -> list[Effect]:
        """A follower is gone."""
        follower = self.followers.pop(conn, None)
        if follower is None or not follower.replica:
            return []
        if all(other.replica != follower.replica for other in self.followers.values()):
            self.in_sync.gone(follower.replica)
            if follower.replica not in self.in_sync.required:
                self._has.pop(follower.replica, None)
                self._learners.discard(follower.replica)
        text = f"replica {follower.replica} at {follower.peer}, {follower.acknowledged}, is gone: {reason}"
        return [Note("info", text)]

    def _cut(self, follower: Follower, why: str) -> list[Effect]:
        """End a connection that we won't go on with."""
        gone = self.closed(follower.conn, why)
        note = Note("warning", f"replica {follower.replica} at {follower.peer}: {why}; its connection is closed")
        return [*gone, note, Close(follower.conn, why)]

    # ---- frames ----

    def received(self, conn: ConnId, data: Buffer, now: Millis) -> list[Effect]:
        """What a follower sent: a handshake, then reports, cut anywhere."""
        follower = self.followers.get(conn)
        if follower is None:
            return []
        follower.heard = now
        partial = follower.partial + data
        effects: list[Effect] = []
        at, total = 0, len(partial)
        while total - at >= STATE_BYTES and conn in self.followers:
            state = state_of(partial, at)
            size = {HANDSHAKE: SLAVE_HANDSHAKE_BYTES, TRANSFER: REPORT_BYTES}.get(state)
            if size is None:
                return effects + self._cut(follower, f"a frame of state {state}")
            if total - at < size:
                break
            if state == HANDSHAKE:
                effects += self._claims(follower, decode_slave_handshake(partial, at), now)
            else:
                effects += self._reported(follower, decode_report(partial, at), now)
            at += size
        follower.partial = partial[at:]
        return effects

    def _claims(self, follower: Follower, said: SlaveHandshake, now: Millis) -> list[Effect]:
        """It says who it is; it may say so again, and asks anew then."""
        if said.broker_id < 1 or said.broker_id == self.in_sync.own:
            return self._cut(follower, f"it says that it is replica {said.broker_id}")
        if follower.replica not in (0, said.broker_id):
            return self._cut(follower, f"it was replica {follower.replica}, and says that it is {said.broker_id}")
        if follower.replica:
            return self._greet(follower, said)
        follower.claimed = now if follower.claim is None else follower.claimed
        follower.claim = said
        return self._believe(follower, said, now)

    def _believe(self, follower: Follower, said: SlaveHandshake, now: Millis) -> list[Effect]:
        """Greet it, if it is what it says; cut it off when that has not turned out in time."""
        if not self._is_at(said.broker_id, follower.peer, now):
            follower.waits_until = follower.claimed + CLAIM_MS
            if now < follower.waits_until:
                return []
            why = f"it says that it is replica {said.broker_id}, which the controllers don't know at that address"
            return self._cut(follower, f"{why}; if it is, set checkPeerAddresses=false")
        rival = next((one for one in self.followers.values() if one.replica == said.broker_id), None)
        if rival is None:
            return self._greet(follower, said)
        follower.waits_until = rival.heard + LIVELY_BEATS * self._config.ha_send_heartbeat_interval
        if now >= follower.waits_until or not self._is_at(rival.replica, rival.peer, now):
            return [*self._cut(rival, "it came back on another connection"), *self._greet(follower, said)]
        if follower.probed or not rival.following:
            return []
        follower.probed = True
        return [self._heartbeat(rival, now)]  # a machine that has begun anew resets what it does not know

    def believe(self, now: Millis) -> list[Effect]:
        """Look again at handshakes that wait."""
        effects: list[Effect] = []
        for follower in list(self.followers.values()):
            if follower.claim is not None and follower.conn in self.followers:
                effects += self._believe(follower, follower.claim, now)
        return effects

    def _greet(self, follower: Follower, said: SlaveHandshake) -> list[Effect]:
        follower.claim = None
        follower.replica, follower.learner = said.broker_id, said.learner
        follower.from_last_file = said.from_last_file
        follower.start = follower.next = follower.acknowledged = -1
        if said.learner:
            self._learners.add(said.broker_id)
        else:
            self._learners.discard(said.broker_id)
        return [Write(follower.conn, encode_master_handshake(self._epochs.entries, self._log.end))]

    def _reported(self, follower: Follower, report: int, now: Millis) -> list[Effect]:
        if not follower.replica:
            return self._cut(follower, "a report before its handshake")
        if report < 0 or report > self._log.end:
            return self._cut(follower, f"a report of {report}, our log ends at {self._log.end}")
        if not follower.following:
            effects = self._begin(follower, report, now)
        elif report > follower.next:
            return self._cut(follower, f"a report of {report}, with {follower.next} sent")
        else:
            effects = []
        if follower.conn in self.followers:
            follower.acknowledged = report
            self._has[follower.replica] = report
            if not follower.learner:
                self._progress(follower, now)
        return effects

    def _begin(self, follower: Follower, request: int, now: Millis) -> list[Effect]:
        log = self._log
        begin = request
        if request == 0:
            last = log.end - log.end % log.segments.file_bytes
            begin = max(log.start, last) if follower.from_last_file else log.start
        elif request < log.start:
            why = f"its log ends at {request}, ours begins at {log.start}: what is between is gone. Wipe its store"
            return self._cut(follower, why)
        follower.start = follower.next = begin
        follower.mark = log.end, now
        text = f"replica {follower.replica} at {follower.peer} follows from {begin}, our log ends at {log.end}"
        return [Note("info", text)]

    def _progress(self, follower: Follower, now: Millis) -> None:
        """Has it caught up, and may it come in?"""
        end, at = follower.mark
        if follower.acknowledged >= self._log.end:
            self.in_sync.caught_up(follower.replica, now)
        elif follower.acknowledged >= end:
            self.in_sync.caught_up(follower.replica, at)
        if follower.acknowledged >= end:
            follower.mark = self._log.end, now
        is_near = follower.acknowledged >= max(end, self._own_start) and now - at <= AWAITED_MS
        if self._may_be_in(follower.replica):
            self.in_sync.may_join(follower.replica)
        elif is_near and self._config.all_ack_in_sync_state_set:
            self.in_sync.near(follower.replica, now)

    @property
    def _own_start(self) -> int:
        """Where our own epoch begins."""
        return self._epochs.entries[-1].start if self._epochs.entries else 0

    def _may_be_in(self, replica: int) -> bool:
        """Has it all that is confirmed, and reached our own epoch?"""
        return self._has.get(replica, -1) >= max(self._confirmed(), self._own_start)

    def proposal(self, now: Millis) -> Proposal | None:
        """What to propose now, None if there is nothing to change. More may have been confirmed since a joiner had
        caught up, without it: it waits until it has that too."""
        self.in_sync.keep_joiners(self._may_be_in)
        return self.in_sync.proposal(now)

    # ---- sending ----

    def _packet(self, at: int, most: int) -> tuple[Buffer, Buffer]:
        entry, end = self._epochs.owner(at)
        body = self._log.segments.view(at, min(most, end - at))
        return encode_packet(Packet(len(body), at, entry.epoch, entry.start, self._confirmed())), body

    def _sent(self, follower: Follower, first: int, now: Millis) -> None:
        super()._sent(follower, first, now)
        follower.told = self._confirmed()

    def _heartbeat(self, follower: Follower, now: Millis) -> Effect:
        """Where we are, and what is confirmed; the replica compares the offset with its end."""
        entry, _ = self._epochs.owner(follower.next)
        follower.told = self._confirmed()
        return Write(
            follower.conn, encode_packet(Packet(0, follower.next, entry.epoch, entry.start, follower.told))
        )

    def _beat_at(self, follower: Follower) -> Millis:
        news = follower.told < self._confirmed() and follower.next >= self._sendable()
        return follower.sent + (TELL_MS if news else self._config.ha_send_heartbeat_interval + 1)

    # ---- time ----

    def refresh(self, now: Millis) -> None:
        """Followers that have all that there is have caught up, however long nothing was written."""
        for follower in self.followers.values():
            if follower.acknowledged >= self._log.end and not follower.learner:
                self.in_sync.caught_up(follower.replica, now)

    def next_deadline(self) -> Millis | None:
        due = super().next_deadline()
        for one in self.followers.values():
            if one.claim is not None and (due is None or one.waits_until < due):
                due = one.waits_until
        return due

    # ---- what is on which replicas ----

    def on_all(self) -> int:
        """Up to here all that are in sync, or may be by now, have the log; `EVERYTHING`: there is none but us."""
        own, has, least = self.in_sync.own, self._has, EVERYTHING
        for one in self.in_sync.required:  # each turn asks: no generator
            if one != own and (end := has.get(one, -1)) < least:
                least = end
        return least

    def on_nodes(self, nodes: int) -> int:
        """Up to here so many nodes have the log, ours among them, learners not."""
        if nodes <= 1:
            return EVERYTHING
        ends = sorted((end for one, end in self._has.items() if one not in self._learners), reverse=True)
        return ends[nodes - 2] if len(ends) >= nodes - 1 else -1

    def validate(self) -> None:
        """AssertionError when the state contradicts itself."""
        super().validate()
        self.in_sync.validate()
        ids = [follower.replica for follower in self.followers.values() if follower.replica]
        assert len(ids) == len(set(ids)), f"a replica on two connections: {ids}"
        assert all(len(follower.partial) < LONGEST_BYTES for follower in self.followers.values())
