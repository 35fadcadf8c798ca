"""Messages for a time that a slave which acts for its master sends to another master (`escape.py`).

Such a slave turns its wheel as a master does: slot after slot, in each from the first message on, one under way at a
time. What is to roll on, and what takes a message back, waits for the master. When that one is back it is told of which
slots the messages were sent, and up to which offset of the timer queue the slave knew any (fields of the answer to code
60 that others pass over): these it leaves out, once. Slots that the master was past when the slave began to act are not
among them: their deliveries may have gone with the master's last moments. Neither are slots from the first one on of
which the slave could not send a message: its log may have lost what the master's still has. Nor are messages before
the first one that its log has: a disk that was too full may have let them go before they were taken in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perseid.base.machine import Millis
from perseid.broker.kernel import messages
from perseid.broker.scheduled.escape import RETRY_MS
from perseid.store.reads import Reads
from perseid.store.timer.log import UNIT_BYTES
from perseid.wire import properties as props
from perseid.wire.names import TIMER_TOPIC

if TYPE_CHECKING:
    from perseid.broker.scheduled.escape import Escape
    from perseid.broker.scheduled.timer_due import Due
    from perseid.broker.scheduled.timers import TimerService

FIELDS = (
    "perseidEscapedFromMs", "perseidEscapedUptoMs", "perseidEscapedBeforeOffset", "perseidEscapedFromOffset",
)  # fmt: skip
MAX_DIGITS = 18
NEVER = 1 << 62


class Escaped(NamedTuple):
    """Slots `[begin_ms, end_ms)`, whose messages from `first_offset` on and before `queue_offset` of the timer queue a
    slave has sent away."""

    begin_ms: Millis
    end_ms: Millis
    queue_offset: int
    first_offset: int

    def has(self, at_ms: Millis, queue_offset: int) -> bool:
        return self.begin_ms <= at_ms < self.end_ms and self.first_offset <= queue_offset < self.queue_offset

    def fields(self) -> dict[str, str | None]:
        return {name: str(value) for name, value in zip(FIELDS, self, strict=True)}


NOTHING = Escaped(0, 0, 0, 0)


def read(ext: dict[str, str]) -> Escaped:
    """What an answer says of it; nothing, when it says nothing, or no numbers."""
    texts = [ext.get(name, "") for name in FIELDS]
    if not all(text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS for text in texts):
        return NOTHING
    return Escaped(*map(int, texts))


class TimerEscape:
    """Of one broker. `away`: a message is on its way to another master."""

    def __init__(self, reads: Reads, escape: Escape, service: TimerService) -> None:
        self._reads, self._escape, self._service = reads, escape, service
        self.away = False
        self.left_out = NOTHING
        """What a master that came back does not deliver."""
        self._begin_ms: Millis = 0
        self._unsent_ms: Millis = NEVER
        """The first slot with a message that was passed over."""

    def start(self) -> None:
        """The wheel turns from now on, as far as it was turned."""
        self._begin_ms, self._unsent_ms = self._service.timers.read_ms, NEVER

    def done(self, now: Millis) -> Escaped | None:
        """Of a slave that acts, and sends away."""
        if not self._escape.on or not self._service.enabled:
            return None
        progress = self._service.timers.progress(now, master=True)
        end_ms = max(self._begin_ms, min(progress.read_ms, self._unsent_ms))
        first = self._reads.min_offset(TIMER_TOPIC, 0)
        return Escaped(self._begin_ms, end_ms, progress.queue_offset, first)

    def send(self, due: Due, position: int, now: Millis) -> None:
        """Send one message to another master, or see that there is nothing to send."""
        service = self._service
        unit = service.timers.log.unit(position)
        found = messages.stored_at(self._reads, unit.physical_offset) if unit is not None else None
        message = None
        if unit is None or found is None or (service.is_early(found) and not unit.rolls):
            self._unsent_ms = min(self._unsent_ms, due.at_ms)
        elif not (unit.rolls or unit.deletes) and (
            (found.props.get(props.REAL_TOPIC, ""), found.unique_key) not in due.recalls
        ):
            message = service.real(found, unit, now)

        def told(why: str, now: Millis) -> None:
            self.away = False
            if why:
                service.wait(f"the timer message of the unit at {position} is tried again: {why}", RETRY_MS)
                return
            due.next += 1
            service.timers.wheel.deliver_from(due.at_ms, position + UNIT_BYTES)
            if message is not None:
                service.metrics.add(message.topic, -1, now)

        if message is None:
            told("", now)
            return
        kept = props.decode(message.properties)
        for name in (props.REAL_TOPIC, props.REAL_QID):
            kept.pop(name, None)
        self.away = True
        self._escape.send(message, kept, told)
