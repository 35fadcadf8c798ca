"""Messages for a time in the runs of broker sets and groups: how they are asked for, and what is true of them."""

from __future__ import annotations

from perseid.sim.history import TIMER_LATE_MS, Violation
from perseid.wire import properties as props
from perseid.wire.names import TIMER_TOPIC
from perseid.wire.record import Record

PRECISION_MS = 1_000


def delay_of(number: int, *, timed: bool = True) -> str:
    """The property that delays a message: by a level, or by some time of its own."""
    return "DELAY\x011\x02" if number % 2 or not timed else f"TIMER_DELAY_MS\x01{300 + number * 7_919 % 8_000}\x02"


def check_time(record: Record) -> bool:
    """Is this a message for a time that was delivered? Violation when it came before it, by the clock of who delivered
    it."""
    out_ms = record.props.get(props.TIMER_OUT_MS)
    if out_ms is None or record.topic == TIMER_TOPIC:
        return False
    if record.store_timestamp < int(out_ms) + PRECISION_MS:
        raise Violation("never early", f"{record.body[:20]!r}: {record.store_timestamp}, its slot is {out_ms}")
    return True


def still_waits(record: Record, clock_ms: int) -> bool:
    """Is this a message whose time is not long over?"""
    return record.topic == TIMER_TOPIC and int(record.props[props.TIMER_OUT_MS]) + TIMER_LATE_MS > clock_ms
