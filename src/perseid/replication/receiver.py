"""What both slaves' ends do alike: dial the master, take packets that are cut anywhere, report, and notice silence.

    idle ──address──> waiting ──> dialling ──> …  ──> following
      ^                  ^            │         │          │
      └── no address     └────────────┴─────────┴──────────┘   lost, refused, silent: again later

What has to be agreed on before anything is reported, each stream has for itself (`classic`, `auto_switch`); so are
packets and reports.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum

from perseid.base.machine import Buffer, Close, Connect, ConnId, Effect, Millis, Note, Write
from perseid.replication.config import ReplicationConfig
from perseid.replication.sender import Meter
from perseid.store.replica import Replica

RETRY_MS = 1_000
"""Between a connection's end, or a dial that failed, and the next dial. The original waits 5 s."""
REFUSED_RETRY_MS = 30_000
"""The same after our history was refused: somebody has to do something about it."""
LISTENER = "ha"
"""What the connections of both streams are called, accepted and dialled ones."""


class State(Enum):
    """Of a slave."""

    IDLE = "idle"
    WAITING = "waiting"
    DIALLING = "dialling"
    PROVING = "proving"
    """Classic: does the master have our last record?"""
    GREETING = "greeting"
    """AutoSwitch: which epochs does the master have?"""
    TRIMMING = "trimming"
    """AutoSwitch: what goes beyond them is cut off."""
    FOLLOWING = "following"


class Receiver(ABC):
    """Follows one master."""

    def __init__(self, config: ReplicationConfig, replica: Replica, head_bytes: int, *, now: Millis = 0) -> None:
        """`head_bytes`: of a packet's head."""
        self._config = config
        self._replica = replica
        self._head_bytes = head_bytes
        self.state = State.IDLE
        self.address = ""
        self.conn: ConnId | None = None
        self._dial_at: Millis = now
        self._head = bytearray()
        """Of a frame whose head is not whole yet."""
        self._left = 0
        """Bytes of the packet's body that have not come yet."""
        self.heard: Millis = 0
        self.reported_at: Millis = 0
        self.reported = -1
        self.meter = Meter()

    def reconfigure(self, config: ReplicationConfig) -> None:
        """Follow other settings from now on."""
        self._config = config

    @property
    def following(self) -> bool:
        """Does the master send its log to us?"""
        return self.state is State.FOLLOWING

    # ---- what each stream does in its own way ----

    @abstractmethod
    def _begin_packet(self, head: bytes) -> int:
        """A packet's head is whole; how long its body is. ReplicaRefused, RemoteProtocolError when it doesn't fit."""

    @abstractmethod
    def _encode_report(self, upto: int) -> bytes:
        """A report's bytes."""

    @abstractmethod
    def _took(self, data: Buffer, now: Millis) -> list[Effect]:
        """Bytes of the stream that belong to packets: write what is whole, and report it."""

    @property
    def _most_silent(self) -> Millis:
        return self._config.ha_housekeeping_interval

    # ---- connections ----

    def _end(self, why: str, now: Millis, retry_ms: Millis = RETRY_MS, level: str = "warning") -> list[Effect]:
        """Give up a connection; another one is tried later."""
        conn, self.conn = self.conn, None
        self.reported = -1
        self.state = State.WAITING if self.address else State.IDLE
        self._dial_at = now + retry_ms
        self._replica.forget_partial()
        note = Note(level, f"master {self.address}: {why}; our log ends at {self._replica.end}")
        return [note] if conn is None else [note, Close(conn, why)]

    def _connected(self, conn: ConnId, state: State, now: Millis) -> None:
        """The master's HA port answered: `state` comes next."""
        self.conn, self.state = conn, state
        self._head, self._left = bytearray(), 0
        self.heard = self.reported_at = now

    def connect_failed(self, address: str, reason: str, now: Millis) -> list[Effect]:
        """The master can't be reached."""
        if self.state is not State.DIALLING or address != self.address:
            return []
        return self._end(f"no connection: {reason}", now)

    def closed(self, conn: ConnId, reason: str, now: Millis) -> list[Effect]:
        """The connection is gone."""
        if conn != self.conn:
            return []
        self.conn = None
        return self._end(reason, now)

    # ---- the stream ----

    def _take(self, view: memoryview) -> None:
        at, size = 0, len(view)
        while at < size:
            if self._left:
                stop = min(size, at + self._left)
                self._replica.take(view[at:stop])
                self._left -= stop - at
            else:
                stop = min(size, at + self._head_bytes - len(self._head))
                self._head += view[at:stop]
                if len(self._head) == self._head_bytes:
                    head, self._head = bytes(self._head), bytearray()
                    self._left = self._begin_packet(head)
            at = stop

    def _follow_on(self, now: Millis, where: str) -> list[Effect]:
        """Our log is the master's, up to its end: ask for what follows."""
        self.state = State.FOLLOWING
        self.reported, self.reported_at = -1, now
        note = Note("info", f"following master {self.address} from {where}")
        if self._config.ha_report_durable_only and self._replica.flushed < self._replica.end:
            return [note, self._replica.flush()]
        return [note, *self._report(self._replica.end, now)]

    def report_new(self, upto: int, now: Millis) -> list[Effect]:
        """Report the log's end, or what is durable of it, if that is more than was reported."""
        if self.state is not State.FOLLOWING or upto <= self.reported:
            return []
        if self.reported < 0 and upto < self._replica.end:
            return []  # the request names the log's end
        return self._report(upto, now)

    def _report(self, upto: int, now: Millis) -> list[Effect]:
        assert self.conn is not None
        self.reported, self.reported_at = upto, now
        return [Write(self.conn, self._encode_report(upto))]

    def go_on(self, now: Millis) -> list[Effect]:
        """Write what had to wait for our disk, if it need not any more."""
        return self._took(b"", now) if self._replica.waits else []

    # ---- time ----

    def tick(self, now: Millis) -> list[Effect]:
        """Dial, report, notice silence."""
        if self.state is State.WAITING and now >= self._dial_at:
            self.state = State.DIALLING
            return [Connect(self.address, listener=LISTENER, complete=len)]
        if self.conn is None:
            return []
        if now - self.heard > self._most_silent:
            return self._end(f"silent for {now - self.heard} ms", now)
        if self.reported >= 0 and now - self.reported_at > self._config.ha_send_heartbeat_interval:
            return self._report(self.reported, now)
        return []

    def next_deadline(self) -> Millis | None:
        if self.state is State.WAITING:
            return self._dial_at
        if self.conn is None:
            return None
        silent = self.heard + self._most_silent + 1
        if self.reported < 0:
            return silent
        return min(silent, self.reported_at + self._config.ha_send_heartbeat_interval + 1)

    def validate(self) -> None:
        """AssertionError when the state contradicts itself."""
        connected = self.state not in (State.IDLE, State.WAITING, State.DIALLING)
        assert (self.conn is not None) == connected, self.state
        assert self._left >= 0
        if self.state is State.FOLLOWING:
            assert len(self._head) < self._head_bytes
            assert self.reported <= self._replica.end, "nothing is reported that is not in the log"
        else:
            assert not self._replica.waits, "something waits that a master will send again"
