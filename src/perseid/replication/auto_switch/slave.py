"""The slave's end of the AutoSwitch stream.

    idle ──address──> waiting ──> dialling ──> greeting ──> trimming ──> following
      ^                  ^            │            │            │            │
      └── no address     └────────────┴────────────┴────────────┘            │  lost, refused, silent: again later
                         └────────────────────────────────────────────────────┘

- greeting: we have said who we are; the master answers with its epochs.
- trimming: what our log has beyond the last common point goes (`Trim`), and our epochs become the master's from there
  on. Nothing is reported before both are durable: a report is a promise.
- following: each packet has to begin where the log, with what is not yet a whole record, ends, and be of an epoch that
  the handshake named: a newer one, of the same master elected again, is greeted anew. Whole records are written; after
  each read the log's end is reported, or, with haReportDurableOnly, what is flushed of it.

What the master says is confirmed readers see, as far as our log goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Buffer, Close, ConnId, Effect, Millis, Write
from perseid.replication.auto_switch.epochs import Epochs, consistent_point
from perseid.replication.config import ReplicationConfig
from perseid.replication.receiver import REFUSED_RETRY_MS, RETRY_MS, Receiver, State
from perseid.store.replica import Replica, ReplicaRefused
from perseid.wire.ha_auto import (
    HANDSHAKE,
    MASTER_HANDSHAKE_BYTES,
    NO_EPOCH,
    PACKET_BYTES,
    STATE_BYTES,
    TRANSFER,
    EpochEntry,
    decode_entries,
    decode_master_handshake_head,
    decode_packet,
    encode_report,
    encode_slave_handshake,
    state_of,
)

FIRST_RETRY_MS = 100
"""Between a connection's end, or a dial that failed, and the next dial; doubled each time, up to `RETRY_MS`."""
TRIM_MS = 60_000
"""A cut that takes longer is given up, and asked for again."""


@dataclass(slots=True)
class Trim:
    """What has to be durable before we follow: the log ends at `end`, and goes on as `theirs` says."""

    conn: ConnId
    end: int
    theirs: list[EpochEntry]


class Slave(Receiver):
    """Follows one master. `trim` makes a `Trim` durable; `trimmed` has to be called then. `confirm` lets readers see
    more."""

    def __init__(
        self,
        config: ReplicationConfig,
        replica: Replica,
        epochs: Epochs,
        trim: Callable[[Trim], list[Effect]],
        confirm: Callable[[int], None],
        confirmed: Callable[[], int],
    ) -> None:
        super().__init__(config, replica, PACKET_BYTES)
        self._epochs = epochs
        self._trim = trim
        self._confirm = confirm
        self._confirmed = confirmed
        self.broker_id = 0
        self.caught_up = False
        """We have had all that the master said was confirmed, since we follow it."""
        self._retry_ms = FIRST_RETRY_MS
        self._named: frozenset[int] = frozenset()
        """The epochs of the handshake."""
        self._told = 0
        """What the master said last is confirmed."""

    # ---- whom to follow ----

    def follow(self, address: str, now: Millis) -> list[Effect]:
        """The master's HA address, as it is known now; "" when there is none, or it is not known."""
        if address == self.address:
            return []
        self.address = address
        effects: list[Effect] = []
        if self.conn is not None or self.state is State.DIALLING:
            effects = self._end(f"the master is at {address or 'no address'} now", now, level="info")
        self.state = State.WAITING if address else State.IDLE
        self._dial_at, self._retry_ms = now, FIRST_RETRY_MS
        return effects + self.tick(now)

    def _end(self, why: str, now: Millis, retry_ms: Millis = 0, level: str = "warning") -> list[Effect]:
        """Give up a connection; another one is tried later."""
        self.caught_up = False
        pause, self._retry_ms = retry_ms or self._retry_ms, min(2 * self._retry_ms, RETRY_MS)
        return super()._end(why, now, pause, level)

    # ---- connections ----

    def opened(self, conn: ConnId, address: str, now: Millis) -> list[Effect]:
        """The master's HA port answered."""
        if self.state is not State.DIALLING or address != self.address:
            return [Close(conn, "not wanted any more")]
        self._connected(conn, State.GREETING, now)
        config = self._config
        hello = encode_slave_handshake(
            self.broker_id, from_last_file=config.sync_from_last_file, learner=config.async_learner
        )
        return [Write(conn, hello)]

    # ---- the stream ----

    def received(self, data: Buffer, now: Millis) -> list[Effect]:
        """Frames, cut anywhere."""
        if self.conn is None:
            return []
        self.heard = now
        self.meter.add(len(data), now)
        try:
            if self.state is State.GREETING:
                return self._greeted(data, now)
            if self.state is not State.FOLLOWING:
                return self._end("bytes before we asked for any", now)
        except (ReplicaRefused, RemoteProtocolError) as refused:
            return self._end(str(refused), now, RETRY_MS, "error")
        return self._took(data, now)

    def _took(self, data: Buffer, now: Millis) -> list[Effect]:
        try:
            try:
                self._take(memoryview(data))
            finally:
                self._replica.write()  # what came before a packet that does not fit is good
        except (ReplicaRefused, RemoteProtocolError) as refused:
            return self._end(str(refused), now, RETRY_MS, "error")
        except OSError as error:
            return self._end(f"our disk doesn't take it: {error}", now, REFUSED_RETRY_MS, "error")
        self._show()
        return [] if self._config.ha_report_durable_only else self.report_new(self._replica.end, now)

    def _show(self) -> None:
        """Let readers see what is confirmed of what we have."""
        end = self._replica.end
        self._confirm(min(self._told, end))
        self.caught_up = self.caught_up or end >= self._told

    def _greeted(self, data: Buffer, now: Millis) -> list[Effect]:
        """The master's epochs. Nothing may come behind them before our first report."""
        self._head += data
        head = self._head
        if len(head) >= STATE_BYTES and state_of(head) != HANDSHAKE:
            raise RemoteProtocolError(f"a frame of state {state_of(head)} instead of a handshake")
        if len(head) < MASTER_HANDSHAKE_BYTES:
            return []
        size, end = decode_master_handshake_head(head)
        whole = MASTER_HANDSHAKE_BYTES + size
        if len(head) < whole:
            return []
        if len(head) > whole:
            raise RemoteProtocolError(f"{len(head) - whole} bytes behind a handshake, before we asked for any")
        theirs = decode_entries(bytes(head[MASTER_HANDSHAKE_BYTES:whole]))
        self._head = bytearray()
        point = self._point(theirs, end)
        if point < 0:
            why = (
                f"its epochs {_told(theirs)} and ours {_told(self._epochs.entries)} have none in common: another "
                "history. Wipe the store of the one that is wrong"
            )
            return self._end(why, now, REFUSED_RETRY_MS, "error")
        assert self.conn is not None
        self.state = State.TRIMMING
        self._named = frozenset(entry.epoch for entry in theirs)
        return self._trim(Trim(self.conn, min(point, self._replica.end), theirs))

    def _point(self, theirs: list[EpochEntry], their_end: int) -> int:
        """Up to where our log is the master's; −1: nobody knows."""
        ours, end = self._epochs.entries, self._replica.end
        if end == 0:
            return 0
        if not theirs:
            return -1
        if not ours:  # the log is older than its epochs, or lost them: what the master's epochs cover is copied anew
            return min(end, theirs[0].start)
        point = consistent_point(ours, end, theirs, their_end)
        if point < 0 and self._confirmed() <= self._replica.start:
            return 0  # nobody ever saw anything of what we have
        return point

    def trimmed(self, trim: Trim, now: Millis) -> list[Effect]:
        """Log and epochs are durably those of the master, up to `trim.end`: go on from there."""
        if self.state is not State.TRIMMING or trim.conn != self.conn:
            return []
        self.heard = now
        if not self._replica.begun:
            return self._end("a start would not find our log yet, which begins later than at 0", now, level="info")
        self._retry_ms = FIRST_RETRY_MS
        return self._follow_on(now, f"{self._replica.end}, epoch {self._epochs.last}")

    def _begin_packet(self, head: bytes) -> int:
        if state_of(head) != TRANSFER:
            raise RemoteProtocolError(f"a frame of state {state_of(head)} among packets")
        packet = decode_packet(head)
        if packet.epoch not in self._named:
            if packet.epoch > max(self._named, default=NO_EPOCH):
                raise RemoteProtocolError(f"it is master of epoch {packet.epoch} now")
            raise RemoteProtocolError(f"bytes of epoch {packet.epoch}, which its handshake did not name")
        self._replica.expect(packet.offset, packet.size)
        self._told = packet.confirm
        return packet.size

    def report_new(self, upto: int, now: Millis) -> list[Effect]:
        """As every slave; of a log that begins later than at 0 nothing before a start would find it. A slave whose
        report was heard may be elected, and must not come back with nothing."""
        return super().report_new(upto, now) if self._replica.begun else []

    def _encode_report(self, upto: int) -> bytes:
        return encode_report(upto)

    @property
    def _most_silent(self) -> Millis:
        return TRIM_MS if self.state is State.TRIMMING else self._config.ha_housekeeping_interval

    def validate(self) -> None:
        """AssertionError when the state contradicts itself."""
        super().validate()
        assert len(self._head) <= 1 << 16


def _told(entries: list[EpochEntry]) -> str:
    """The last epochs of a list, for people."""
    return "{" + ", ".join(f"{entry.epoch}:{entry.start}" for entry in entries[-4:]) + "}"
