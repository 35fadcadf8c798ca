"""The master's end of the classic HA stream: who follows, what is sent to whom, what is on how many nodes.

A follower's states: silent (connected, nothing reported) → following (its first report is its request) → gone.

    acknowledged ≤ next ≤ sendable ≤ log.end         next − max(acknowledged, start) ≤ window

Reports of a follower never fall and never pass what was sent to it; whoever breaks that is cut off. So does a
request that this log can't serve: beyond its end (the slave is ahead, or has another history) or before its start.
A request of 0 comes from an empty slave: it gets the last file, as from the original, or the whole log by option. Where
answers wait for messages of an earlier file it begins there: what it reports stands for all before it.

How many nodes have a byte (`replicated`): the stream names nobody, and a slave that lost its connection comes back
on a new one while the old one may stay half-open for a while. A follower is *sure* when it is the one that made its
request last, or when it has acknowledged more than had been sent to it by then (`mark`). All that are sure are
different slaves; one that is not may be any of the others, so it counts only where a single slave is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perseid.base.machine import Buffer, Close, ConnId, Effect, Millis, Note, Write
from perseid.replication.config import ReplicationConfig
from perseid.replication.sender import EVERYTHING, Connected, Sender
from perseid.store.commit_log import CommitLog
from perseid.wire.ha import REPORT_BYTES, decode_report, encode_header


@dataclass(slots=True)
class Follower(Connected):
    """One connection of a slave."""

    mark: int = EVERYTHING
    """What had been sent to it when the youngest other follower made its request."""
    lag_mark: tuple[int, Millis] = (0, 0)
    """The log's end at some time that was not acknowledged then, and that time."""
    lag_ms: int = 0
    """How long it took to acknowledge the last such end."""

    @property
    def sure(self) -> bool:
        return self.acknowledged > self.mark


class Master(Sender[Follower]):
    """All followers of one log. `sendable` tells up to where it may be sent, `wanted_from` from where on somebody waits
    for it to be replicated."""

    def __init__(
        self,
        config: ReplicationConfig,
        log: CommitLog,
        sendable: Callable[[], int],
        wanted_from: Callable[[], int],
        *,
        hot_bytes: int,
        longest_record: int,
    ) -> None:
        super().__init__(config, log, sendable, Follower, hot_bytes=hot_bytes, longest_record=longest_record)
        self._wanted_from = wanted_from

    # ---- connections ----

    def closed(self, conn: ConnId, reason: str) -> list[Effect]:
        """A follower is gone."""
        follower = self.followers.pop(conn, None)
        if follower is None or not follower.following:
            return []
        return [Note("info", f"slave {follower.peer} at {follower.acknowledged} is gone: {reason}")]

    def _cut(self, follower: Follower, why: str) -> list[Effect]:
        """End a connection that we won't go on with."""
        del self.followers[follower.conn]
        return [Note("warning", f"slave {follower.peer}: {why}; its connection is closed"), Close(follower.conn, why)]

    # ---- reports ----

    def received(self, conn: ConnId, data: Buffer, now: Millis) -> list[Effect]:
        """What a follower sent: reports, cut anywhere. Only the last whole one counts."""
        follower = self.followers.get(conn)
        if follower is None:
            return []
        follower.heard = now
        partial = follower.partial + data
        whole = len(partial) - len(partial) % REPORT_BYTES
        follower.partial = partial[whole:]
        effects: list[Effect] = []
        for at in range(0, whole, REPORT_BYTES):
            report = decode_report(partial, at)
            take = self._advance if follower.following else self._begin
            effects += take(follower, report, now)
            if conn not in self.followers:
                break
        return effects

    def _begin(self, follower: Follower, report: int, now: Millis) -> list[Effect]:
        log = self._log
        start, end = log.start, log.end
        if report < 0:
            return self._cut(follower, f"a request of {report}")
        if report > end:
            why = f"its log ends at {report}, ours at {end}: it is ahead, or has another history. Wipe one of them"
            return self._cut(follower, why)
        begin = report
        if report == 0:
            file_bytes = log.segments.file_bytes
            first = min(end, self._wanted_from())
            begin = start if self._config.ha_copy_whole_log else max(start, first - first % file_bytes)
        elif report < start:
            why = f"its log ends at {report}, ours begins at {start}: what is between is gone. Wipe the slave's store"
            return self._cut(follower, why)
        follower.acknowledged = report
        follower.start = follower.next = begin
        follower.lag_mark = end, now
        for other in self.followers.values():
            if other.following:
                other.mark = other.next
        follower.mark = -1
        return [Note("info", f"slave {follower.peer} follows from {begin}, our log ends at {end}")]

    def _advance(self, follower: Follower, report: int, now: Millis) -> list[Effect]:
        if report < follower.acknowledged or report > follower.next:
            why = f"a report of {report} after {follower.acknowledged}, with {follower.next} sent"
            return self._cut(follower, why)
        follower.acknowledged = report
        end, since = follower.lag_mark
        if report >= end:
            follower.lag_ms = now - since
            follower.lag_mark = self._log.end, now
        return []

    # ---- sending ----

    def _packet(self, at: int, most: int) -> tuple[Buffer, Buffer]:
        body = self._log.segments.view(at, most)
        return encode_header(at, len(body)), body

    def _heartbeat(self, follower: Follower, now: Millis) -> Effect:
        return Write(follower.conn, encode_header(follower.next, 0))

    def _beat_at(self, follower: Follower) -> Millis:
        return follower.sent + self._config.ha_send_heartbeat_interval + 1

    # ---- what is on how many nodes ----

    def replicated(self, nodes: int) -> int:
        """Up to here the log is on so many nodes at least, ours among them."""
        if nodes <= 1:
            return EVERYTHING
        if nodes == 2:
            return max((f.acknowledged for f in self.followers.values()), default=-1)
        acknowledged = sorted((f.acknowledged for f in self.followers.values() if f.sure), reverse=True)
        return acknowledged[nodes - 2] if len(acknowledged) >= nodes - 1 else -1

    def in_sync(self, follower: Follower) -> bool:
        """Is a follower less behind than `haMaxGapNotInSync`?"""
        return self._log.end - follower.acknowledged < self._config.ha_max_gap_not_in_sync

    def lag(self, follower: Follower, now: Millis) -> int:
        """For how many milliseconds a follower has been behind; 0: it has everything."""
        if follower.acknowledged >= self._log.end:
            return 0
        return max(follower.lag_ms, now - follower.lag_mark[1])

    def validate(self) -> None:
        """AssertionError when the state contradicts itself."""
        super().validate()
        assert all(len(follower.partial) < REPORT_BYTES for follower in self.followers.values())
