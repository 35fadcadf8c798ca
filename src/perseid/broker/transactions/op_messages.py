"""Op messages: what the log says of halves that are decided, and how far all are, for whoever is master next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perseid.base.machine import Millis
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.store.reads import Reads
from perseid.store.results import AppendRefused
from perseid.wire import properties as props
from perseid.wire.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP
from perseid.wire.record import Message

if TYPE_CHECKING:
    from perseid.broker.consume.offsets import ConsumerOffsets
    from perseid.broker.produce.appender import Appender

OP_TAG = "d"
OP_HALVES = 200
"""Named in one op message: 4 KiB of numbers, transactionOpMsgMaxSize of the original."""
RETRY_MS = 1_000
"""After the log refused to take one."""
NOTHING = 1 << 62


class OpMessages:
    """Those of one broker that is master."""

    def __init__(
        self, turn: Turn, settings: Settings, appender: Appender, reads: Reads, offsets: ConsumerOffsets
    ) -> None:
        self._turn = turn
        self._settings = settings
        self._appender = appender
        self._reads = reads
        self._offsets = offsets
        self._unconfirmed: deque[tuple[int, int]] = deque()
        """Halves whose op message may yet be lost: where it ends in the log, and the half's offset."""
        self._needed: deque[tuple[int, int]] = deque()
        """Op messages that tell of halves beyond the progress: their offset, and the highest half that they name."""
        self._owed: list[int] = []
        """Halves that are decided, and whose op message the log did not take yet."""
        self._retry_at: Millis = 0
        self._together: list[int] | None = None
        """Halves that one op message is going to name."""
        self._progress = (0, 0)

    # ---- begin and end ----

    def start(self, half_offset: int, op_offset: int) -> None:
        """Halves and op messages count from these offsets on."""
        self.clear()
        self._progress = half_offset, op_offset

    def clear(self) -> None:
        """Nothing is decided here any more."""
        self._unconfirmed.clear()
        self._needed.clear()
        self._owed.clear()
        self._retry_at = 0

    def found(self, offset: int, halves: Sequence[int]) -> None:
        """The log has one that names these halves."""
        self._needed.append((offset, max(halves)))

    def found_decided(self, half: int) -> None:
        """A half is decided by what the log has, which does not say so yet."""
        self._owed.append(half)

    # ---- writing ----

    def write(self, half: int) -> int:
        """Say in the log that a half is decided; where that ends, or (0) when it is said later. AppendRefused: the log
        does not take it."""
        if self._together is not None:
            self._together.append(half)
            return 0
        return self._write([half])

    def write_or_owe(self, half: int) -> int:
        """As `write`; what the log does not take now is written as soon as it does (0)."""
        try:
            return self.write(half)
        except AppendRefused as refused:
            self._owe([half], refused)
            return 0

    @property
    def gathers(self) -> bool:
        """Is what is decided now named in one op message, at the end?"""
        return self._together is not None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Name the halves that are decided meanwhile in one op message behind all of them."""
        decided = self._together = []
        try:
            yield
        finally:
            self._together = None
            for begin in range(0, len(decided), OP_HALVES):
                some = decided[begin : begin + OP_HALVES]
                try:
                    self._write(some)
                except AppendRefused as refused:
                    self._owe(some, refused)

    def _owe(self, halves: list[int], refused: AppendRefused) -> None:
        self._turn.note("warning", f"halves {halves} are decided, which can't be written yet: {refused}")
        self._owed += halves
        self._retry_at = self._turn.now + RETRY_MS

    def _write(self, halves: list[int]) -> int:
        op = Message(
            topic=OP_HALF_TOPIC,
            body=b"".join(b"%d," % half for half in halves),
            born_timestamp=self._turn.now,
            born_host=self._settings.store_host,
            store_host=self._settings.store_host,
            properties=props.encode({props.TAGS: OP_TAG}),
        )
        stored = self._appender.store(op)
        end = stored.physical_offset + stored.size
        self._needed.append((stored.queue_offset, max(halves)))
        self._unconfirmed += [(end, half) for half in halves]
        return end

    # ---- time ----

    def next_deadline(self) -> Millis | None:
        return self._retry_at if self._owed else None

    def tick(self, now: Millis) -> None:
        """Write those that the log did not take."""
        if not self._owed or now < self._retry_at:
            return
        try:
            while self._owed:
                self.write(self._owed[-1])
                self._owed.pop()
        except AppendRefused:
            self._retry_at = now + RETRY_MS

    # ---- progress ----

    def forget_confirmed(self) -> None:
        """Op messages that are confirmed can't be lost any more."""
        unconfirmed, confirmed = self._unconfirmed, self._reads.confirmed
        while unconfirmed and unconfirmed[0][0] <= confirmed:
            unconfirmed.popleft()

    def commit(self, first_open: int) -> None:
        """Commit how far all halves are decided. `first_open`: the first one that is not."""
        unconfirmed = min((half for _, half in self._unconfirmed), default=NOTHING)
        halves = min(first_open, unconfirmed, min(self._owed, default=NOTHING))
        while self._needed and self._needed[0][1] < halves:
            self._needed.popleft()
        ops = self._needed[0][0] if self._needed else self._reads.max_offset(OP_HALF_TOPIC, 0)
        if (halves, ops) != self._progress:
            self._progress = halves, ops
            step = self._settings.current.consumer_offset_update_version_step
            self._offsets.commit(HALF_TOPIC, TRANSACTION_GROUP, 0, halves, self._turn.now, step)
            self._offsets.commit(OP_HALF_TOPIC, TRANSACTION_GROUP, 0, ops, self._turn.now, step)
