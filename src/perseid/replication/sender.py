"""What both masters' ends do alike: who is connected, how much each one is sent, and when it is to hear of us.

    acknowledged ≤ next ≤ sendable ≤ log.end         next − max(acknowledged, start) ≤ window

What is no longer in memory is fetched before it is sent, so that nobody else waits for it. Each stream has packets and
reports of its own (`classic`, `auto_switch`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from perseid.base.machine import Buffer, Close, ConnId, Effect, Feed, Fetch, Millis, Note, Write
from perseid.replication.config import ReplicationConfig
from perseid.store.commit_log import CommitLog

MAX_FOLLOWERS = 64
MAX_STRANGERS = 16
"""Connections that do not follow yet."""
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
class Connected:
    """One connection of a replica."""

    conn: ConnId
    peer: str
    heard: Millis
    sent: Millis
    start: int = -1
    """Where it was begun with; -1: nothing was asked for yet."""
    next: int = -1
    acknowledged: int = -1
    partial: bytes = b""
    """Of a frame that is not whole yet."""
    fetching: bool = False
    meter: Meter = field(default_factory=Meter)

    @property
    def following(self) -> bool:
        return self.start >= 0


F = TypeVar("F", bound=Connected)


class Sender(ABC, Generic[F]):
    """All followers of one log. `sendable` tells up to where it may be sent."""

    def __init__(
        self,
        config: ReplicationConfig,
        log: CommitLog,
        sendable: Callable[[], int],
        new_follower: Callable[[ConnId, str, Millis, Millis], F],
        *,
        hot_bytes: int,
        longest_record: int,
    ) -> None:
        """A window holds `longest_record` at least: slaves may report whole records only."""
        self._config = config
        self._window = max(config.ha_window_bytes, longest_record)
        self._log = log
        self._sendable = sendable
        self._new_follower = new_follower
        self._hot_bytes = hot_bytes
        self.followers: dict[ConnId, F] = {}

    def reconfigure(self, config: ReplicationConfig, longest_record: int) -> None:
        """Follow other settings from now on. A window never shrinks: what is on its way may fill it."""
        self._config = config
        self._window = max(self._window, config.ha_window_bytes, longest_record)

    # ---- what each stream does in its own way ----

    @abstractmethod
    def _cut(self, follower: F, why: str) -> list[Effect]:
        """End a connection that we won't go on with."""

    @abstractmethod
    def _packet(self, at: int, most: int) -> tuple[Buffer, Buffer]:
        """A packet's head, and its body: bytes of the log from `at` on, `most` at most; none: the log has no such."""

    @abstractmethod
    def _heartbeat(self, follower: F, now: Millis) -> Effect:
        """Where we are."""

    @abstractmethod
    def _beat_at(self, follower: F) -> Millis:
        """When it is to hear of us next, if nothing is sent to it."""

    def _sent(self, follower: F, first: int, now: Millis) -> None:
        """It was sent what stands between `first` and its `next`."""
        follower.sent = now

    # ---- connections ----

    def opened(self, conn: ConnId, peer: str, now: Millis) -> list[Effect]:
        """Somebody connected; until it says something it is nobody. Connections that say nothing don't keep replicas
        out: of `MAX_STRANGERS` the oldest makes room."""
        effects: list[Effect] = []
        strangers = [one for one in self.followers.values() if not one.following]
        if len(strangers) >= MAX_STRANGERS:
            effects += self._cut(strangers[0], f"{MAX_STRANGERS} connections at the HA port follow nothing")
        if len(self.followers) >= MAX_FOLLOWERS:
            return [
                *effects,
                Note("warning", f"{peer}: refused at the HA port: {MAX_FOLLOWERS} are connected already"),
                Close(conn, "too many replicas"),
            ]
        self.followers[conn] = self._new_follower(conn, peer, now, now)
        return effects

    # ---- sending ----

    def send(self, now: Millis) -> list[Effect]:
        """What each follower can be sent now."""
        effects: list[Effect] = []
        upto = self._sendable()
        for follower in list(self.followers.values()):
            if follower.following and not follower.fetching and follower.next < upto:
                effects += self._send_to(follower, upto, now)
        return effects

    def _send_to(self, follower: F, upto: int, now: Millis) -> list[Effect]:
        log, first = self._log, follower.next
        base = max(follower.acknowledged, follower.start)
        limit = min(upto, base + self._window, first + self._allowance(follower, now))
        if limit <= first:
            return []
        if first < log.end - self._hot_bytes:
            parts = log.segments.cold(first, min(FETCH_BYTES, upto - first))
            if parts:
                follower.fetching = True
                conn = follower.conn
                return [Fetch(parts, [Feed(FetchedFor(conn))], [Feed(FetchedFor(conn, failed=True))])]
            limit = min(limit, first + FETCH_BYTES)
        pieces: list[Buffer] = []
        at, size = first, self._config.ha_transfer_batch_size
        while at < limit:
            head, body = self._packet(at, min(size, limit - at))
            if not body:
                return self._cut(follower, f"the log has no byte {at} any more, it begins at {log.start}")
            pieces += (head, body)
            at += len(body)
        follower.meter.add(at - first, now)
        follower.next = at
        self._sent(follower, first, now)
        return [Write(follower.conn, pieces)]

    def _allowance(self, follower: F, now: Millis) -> int:
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
            elif follower.following and now >= self._beat_at(follower):
                follower.sent = now
                effects.append(self._heartbeat(follower, now))
        return effects

    def next_deadline(self) -> Millis | None:
        if not self.followers:
            return None
        config, first = self._config, 0
        for follower in self.followers.values():
            due = follower.heard + config.ha_housekeeping_interval + 1
            if follower.following:
                due = min(due, self._beat_at(follower))
                if config.ha_flow_control_enable and follower.next < self._sendable():
                    due = min(due, follower.meter.since + WINDOW_MS)
            first = min(first, due) if first else due
        return first

    def validate(self) -> None:
        """AssertionError when the state contradicts itself."""
        log = self._log
        assert len(self.followers) <= MAX_FOLLOWERS
        for follower in self.followers.values():
            if follower.following:
                low = max(follower.start, follower.acknowledged)
                assert low <= follower.next <= log.end, f"{follower}, log end {log.end}"
                assert follower.next - low <= self._window, follower
