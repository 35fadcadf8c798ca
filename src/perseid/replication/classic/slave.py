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

from perseid.base.machine import Buffer, Close, ConnId, Effect, Millis
from perseid.replication.config import ReplicationConfig
from perseid.replication.receiver import REFUSED_RETRY_MS, RETRY_MS, Receiver, State
from perseid.store.replica import Replica, ReplicaRefused
from perseid.wire.ha import HEADER_BYTES, decode_header, encode_report


class Slave(Receiver):
    """Follows one master. `prove` asks the master for our last record; `proved` or `refuted` has to be called then."""

    def __init__(
        self, config: ReplicationConfig, replica: Replica, prove: Callable[[Millis], list[Effect]], *, now: Millis
    ) -> None:
        super().__init__(config, replica, HEADER_BYTES, now=now)
        self._prove = prove

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

    # ---- connections ----

    def opened(self, conn: ConnId, address: str, now: Millis) -> list[Effect]:
        """The master's HA port answered."""
        if self.state is not State.DIALLING or address != self.address:
            return [Close(conn, "not wanted any more")]
        self._connected(conn, State.PROVING, now)
        return self._prove(now) if self._replica.end else self.proved(now)

    def proved(self, now: Millis) -> list[Effect]:
        """The master has what our log ends with: go on from there."""
        if self.state is not State.PROVING:
            return []
        return self._follow_on(now, f"{self._replica.end}")

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
        return self._took(data, now)

    def _took(self, data: Buffer, now: Millis) -> list[Effect]:
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

    def _begin_packet(self, head: bytes) -> int:
        offset, size = decode_header(head)
        self._replica.expect(offset, size)
        return size

    def _encode_report(self, upto: int) -> bytes:
        return encode_report(upto)
