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
from dataclasses import dataclass, field

from perseid.base.machine import Buffer, Close, ConnId, Effect, Feed, Fetch, Millis, Note, Write
from perseid.replication.config import ReplicationConfig
from perseid.store.commit_log import CommitLog
from perseid.wire.ha import REPORT_BYTES, decode_report, encode_header

MAX_FOLLOWERS = 64
FETCH_BYTES = 4 << 20
"""So much of a cold log is fetched at a time for one follower."""
WINDOW_MS = 1_000
"""Of flow control and of the bytes in a second."""
EVERYTHING = 1 << 62


@dataclass(slots=True)
class FetchedFor:
    """Fed back when what a follower needs next is in memory, or can't be read."""

    conn: ConnId
    failed: bool = False


@dataclass(slots=True)
class Meter:
    """Bytes of the last whole second, and of the one that runs."""

    since: Millis = 0
    bytes: int = 0
    last: int = 0

    def add(self, count: int, now: Millis) -> None:
        self.per_second(now)
        self.bytes += count

    def per_second(self, now: Millis) -> int:
        """Bytes of the last second that is over."""
        if now - self.since >= WINDOW_MS:
            self.last = self.bytes if now - self.since < 2 * WINDOW_MS else 0
            self.since, self.bytes = now, 0
        return self.last


@dataclass(slots=True)
class Follower:
    """One connection of a slave."""

    conn: ConnId
    peer: str
    heard: Millis
    sent: Millis
    request: int = -1
    start: int = -1
    """Where it was begun with; -1: nothing was asked for yet."""
    next: int = -1
    acknowledged: int = -1
    mark: int = EVERYTHING
    """What had been sent to it when the youngest other follower made its request."""
    partial: bytes = b""
    fetching: bool = False
    meter: Meter = field(default_factory=Meter)
    lag_mark: tuple[int, Millis] = (0, 0)
    """The log's end at some time that was not acknowledged then, and that time."""
    lag_ms: int = 0
    """How long it took to acknowledge the last such end."""

    @property
    def following(self) -> bool:
        return self.start >= 0

    @property
    def sure(self) -> bool:
        return self.acknowledged > self.mark


class Master:
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
        """A window holds `longest_record` at least: slaves may report whole records only."""
        self._config = config
        self._window = max(config.ha_window_bytes, longest_record)
        self._log = log
        self._sendable = sendable
        self._wanted_from = wanted_from
        self._hot_bytes = hot_bytes
        self.followers: dict[ConnId, Follower] = {}

    # ---- connections ----

    def opened(self, conn: ConnId, peer: str, now: Millis) -> list[Effect]:
        """Somebody connected; until the first report it is nobody."""
        if len(self.followers) >= MAX_FOLLOWERS:
            return [
                Note("warning", f"{peer}: refused at the HA port: {MAX_FOLLOWERS} are connected already"),
                Close(conn, "too many slaves"),
            ]
        self.followers[conn] = Follower(conn, peer, now, now)
        return []

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
        follower.request = follower.acknowledged = report
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

    def send(self, now: Millis) -> list[Effect]:
        """What each follower can be sent now."""
        effects: list[Effect] = []
        upto = self._sendable()
        for follower in list(self.followers.values()):
            if follower.following and not follower.fetching and follower.next < upto:
                effects += self._send_to(follower, upto, now)
        return effects

    def _send_to(self, follower: Follower, upto: int, now: Millis) -> list[Effect]:
        config, log = self._config, self._log
        base = max(follower.acknowledged, follower.start)
        limit = min(upto, base + self._window, follower.next + self._allowance(follower, now))
        if limit <= follower.next:
            return []
        if follower.next < log.end - self._hot_bytes:
            parts = log.segments.cold(follower.next, min(FETCH_BYTES, upto - follower.next))
            if parts:
                follower.fetching = True
                conn = follower.conn
                return [Fetch(parts, [Feed(FetchedFor(conn))], [Feed(FetchedFor(conn, failed=True))])]
            limit = min(limit, follower.next + FETCH_BYTES)
        pieces: list[Buffer] = []
        at, size = follower.next, config.ha_transfer_batch_size
        while at < limit:
            body = log.segments.view(at, min(size, limit - at))
            if not body:
                return self._cut(follower, f"the log has no byte {at} any more, it begins at {log.start}")
            pieces += (encode_header(at, len(body)), body)
            at += len(body)
        follower.meter.add(at - follower.next, now)
        follower.next = at
        follower.sent = now
        return [Write(follower.conn, pieces)]

    def _allowance(self, follower: Follower, now: Millis) -> int:
        if not self._config.ha_flow_control_enable:
            return EVERYTHING
        follower.meter.per_second(now)
        return max(0, self._config.max_ha_transfer_byte_in_second - follower.meter.bytes)

    def fetched(self, event: FetchedFor) -> list[Effect]:
        """A part of the log is in memory now."""
        follower = self.followers.get(event.conn)
        if follower is None:
            return []
        follower.fetching = False
        return self._cut(follower, f"the log can't be read at {follower.next}") if event.failed else []

    # ---- time ----

    def tick(self, now: Millis) -> list[Effect]:
        """Heartbeats, and the end of those that say nothing."""
        effects: list[Effect] = []
        for follower in list(self.followers.values()):
            if now - follower.heard > self._config.ha_housekeeping_interval:
                effects += self._cut(follower, f"silent for {now - follower.heard} ms")
            elif follower.following and now - follower.sent > self._config.ha_send_heartbeat_interval:
                follower.sent = now
                effects.append(Write(follower.conn, encode_header(follower.next, 0)))
        return effects

    def next_deadline(self) -> Millis | None:
        config = self._config
        dues: list[Millis] = []
        for follower in self.followers.values():
            dues.append(follower.heard + config.ha_housekeeping_interval + 1)
            if follower.following:
                dues.append(follower.sent + config.ha_send_heartbeat_interval + 1)
                if config.ha_flow_control_enable and follower.next < self._sendable():
                    dues.append(follower.meter.since + WINDOW_MS)
        return min(dues, default=None)

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
        """AssertionError when the books contradict one another."""
        log = self._log
        assert len(self.followers) <= MAX_FOLLOWERS
        for follower in self.followers.values():
            if follower.following:
                low = max(follower.start, follower.acknowledged)
                assert low <= follower.next <= log.end, f"{follower}, log end {log.end}"
                assert follower.next - low <= self._window, follower
            assert len(follower.partial) < REPORT_BYTES
