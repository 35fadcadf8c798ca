"""The slave's end of the classic HA stream.

    idle ──address──> waiting ──> dialling ──> proving ──> following
      ^                  ^            │           │            │
      └── no address     └────────────┴───────────┴────────────┘   lost, refused, silent: again after RETRY_MS

- proving: the master is asked (through `prove`) whether it has the record that our log ends with. Nothing is reported
  before, so nothing is sent to us either. An empty log has nothing to prove.
- following: each packet has to begin where the log, with what is not yet a whole record, ends. What comes is cut into
  whole records and written (`Replica`); after each read the log's end is reported, or, with haReportDurableOnly, what
  is flushed of it. A report goes out each `haSendHeartbeatInterval` as well. The first report is the request, which
  names the log's end: with haReportDurableOnly it waits until all of the log is flushed, for it acknowledges all of it.

Whatever doesn't fit ends the connection with a line in the log, and nothing of it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from perseid.base.machine import Buffer, Close, Connect, ConnId, Effect, Millis, Note, Write
from perseid.replication.config import ReplicationConfig
from perseid.replication.sender import Meter
from perseid.store.replica import Replica, ReplicaRefused
from perseid.wire.ha import HEADER_BYTES, decode_header, encode_report

RETRY_MS = 1_000
"""Between a connection's end, or a dial that failed, and the next dial. The original waits 5 s."""
REFUSED_RETRY_MS = 30_000
"""The same after our history was refused: somebody has to do something about it."""
LISTENER = "ha"
"""What the connections of this stream are called, accepted and dialled ones."""


class State(Enum):
    """See above."""

    IDLE = "idle"
    WAITING = "waiting"
    DIALLING = "dialling"
    PROVING = "proving"
    FOLLOWING = "following"


class Slave:
    """Follows one master. `prove` asks the master for our last record; `proved` or `refuted` has to be called then."""

    def __init__(
        self, config: ReplicationConfig, replica: Replica, prove: Callable[[Millis], list[Effect]], *, now: Millis
    ) -> None:
        self._config = config
        self._replica = replica
        self._prove = prove
        self.state = State.IDLE
        self.address = ""
        self.conn: ConnId | None = None
        self._dial_at: Millis = now
        self._header = b""
        """Of a packet whose header is not whole yet."""
        self._left = 0
        """Bytes of the packet's body that have not come yet."""
        self.heard: Millis = 0
        self.reported_at: Millis = 0
        self.reported = -1
        self.meter = Meter()

    @property
    def following(self) -> bool:
        """Does the master send its log to us?"""
        return self.state is State.FOLLOWING

    # ---- whom to follow ----

    def follow(self, address: str, now: Millis) -> list[Effect]:
        """The master's HA address, as it is known now; "" when there is no master."""
        if address == self.address:
            return []
        self.address = address
        effects: list[Effect] = []
        if self.conn is not None:
            effects = self._end(f"the master is at {address or 'no address'} now", now)
        self.state = State.WAITING if address else State.IDLE
        self._dial_at = now
        return effects + self.tick(now)

    def _end(self, why: str, now: Millis, retry_ms: int = RETRY_MS, level: str = "warning") -> list[Effect]:
        """Give up a connection; another one is tried later."""
        conn, self.conn = self.conn, None
        self.reported = -1
        self.state = State.WAITING if self.address else State.IDLE
        self._dial_at = now + retry_ms
        self._replica.forget_partial()
        note = Note(level, f"master {self.address}: {why}; our log ends at {self._replica.end}")
        return [note] if conn is None else [note, Close(conn, why)]

    # ---- connections ----

    def opened(self, conn: ConnId, address: str, now: Millis) -> list[Effect]:
        """The master's HA port answered."""
        if self.state is not State.DIALLING or address != self.address:
            return [Close(conn, "not wanted any more")]
        self.conn = conn
        self._header, self._left = b"", 0
        self.heard = self.reported_at = now
        self.state = State.PROVING
        return self._prove(now) if self._replica.end else self.proved(now)

    def connect_failed(self, address: str, reason: str, now: Millis) -> list[Effect]:
        """Nobody is there."""
        if self.state is not State.DIALLING or address != self.address:
            return []
        return self._end(f"no connection: {reason}", now)

    def closed(self, conn: ConnId, reason: str, now: Millis) -> list[Effect]:
        """The connection is gone."""
        if conn != self.conn:
            return []
        self.conn = None
        return self._end(reason, now)

    def proved(self, now: Millis) -> list[Effect]:
        """The master has what our log ends with: go on from there."""
        if self.state is not State.PROVING:
            return []
        self.state = State.FOLLOWING
        self.reported, self.reported_at = -1, now
        note = Note("info", f"following master {self.address} from {self._replica.end}")
        if self._config.ha_report_durable_only and self._replica.flushed < self._replica.end:
            return [note, self._replica.flush()]
        return [note, *self._report(self._replica.end, now)]

    def refuted(self, why: str, now: Millis, *, final: bool) -> list[Effect]:
        """The master has something else there (`final`), or could not be asked."""
        if self.state is not State.PROVING:
            return []
        return self._end(why, now, REFUSED_RETRY_MS if final else RETRY_MS, "error" if final else "warning")

    # ---- the stream ----

    def received(self, data: Buffer, now: Millis) -> list[Effect]:
        """Packets, cut anywhere."""
        if self.state is not State.FOLLOWING:
            return [] if self.conn is None else self._end("bytes before we asked for any", now)
        self.heard = now
        self.meter.add(len(data), now)
        try:
            try:
                self._take(memoryview(data))
            finally:
                self._replica.write()  # what came before a packet that does not fit is good
        except ReplicaRefused as refused:
            return self._end(str(refused), now, REFUSED_RETRY_MS, "error")
        except OSError as error:
            return self._end(f"our disk doesn't take it: {error}", now, REFUSED_RETRY_MS, "error")
        return [] if self._config.ha_report_durable_only else self.report_new(self._replica.end, now)

    def _take(self, view: memoryview) -> None:
        at, size = 0, len(view)
        while at < size:
            if self._left:
                stop = min(size, at + self._left)
                self._replica.take(view[at:stop])
                self._left -= stop - at
            else:
                stop = min(size, at + HEADER_BYTES - len(self._header))
                self._header += view[at:stop]
                if len(self._header) == HEADER_BYTES:
                    offset, left = decode_header(self._header)
                    self._header = b""
                    self._replica.expect(offset, left)
                    self._left = left
            at = stop

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
        return [Write(self.conn, encode_report(upto))]

    # ---- time ----

    def tick(self, now: Millis) -> list[Effect]:
        """Dial, report, notice silence."""
        if self.state is State.WAITING and now >= self._dial_at:
            self.state = State.DIALLING
            return [Connect(self.address, listener=LISTENER, complete=len)]
        if self.conn is None:
            return []
        if now - self.heard > self._config.ha_housekeeping_interval:
            return self._end(f"silent for {now - self.heard} ms", now)
        if self.reported >= 0 and now - self.reported_at > self._config.ha_send_heartbeat_interval:
            return self._report(self.reported, now)
        return []

    def next_deadline(self) -> Millis | None:
        if self.state is State.WAITING:
            return self._dial_at
        if self.conn is None:
            return None
        silent = self.heard + self._config.ha_housekeeping_interval + 1
        if self.reported < 0:
            return silent
        return min(silent, self.reported_at + self._config.ha_send_heartbeat_interval + 1)

    def validate(self) -> None:
        """AssertionError when the books contradict one another."""
        assert (self.conn is not None) == (self.state in (State.PROVING, State.FOLLOWING)), self.state
        assert self._left >= 0 and len(self._header) < HEADER_BYTES
        if self.state is State.FOLLOWING:
            assert self.reported <= self._replica.end, "nothing is reported that is not in the log"
