"""Messages for a time: none comes before it; and how they are asked for."""

from __future__ import annotations

from perseid.sim.facts import Sent
from perseid.sim.promises import Violation
from perseid.wire import properties as props
from perseid.wire.names import TIMER_TOPIC
from perseid.wire.record import Record

PRECISION_MS = 1_000
LATE_MS = 6_000
"""So long after its time at the latest a message comes, once a broker serves."""


def delay_of(number: int, *, timed: bool = True) -> str:
    """The property that delays a message: by a level, or by some time of its own."""
    return "DELAY\x011\x02" if number % 2 or not timed else f"TIMER_DELAY_MS\x01{300 + number * 7_919 % 8_000}\x02"


def check_never_early(sent: Sent, record: Record) -> None:
    """A message was delivered: not before the time that its producer named."""
    if sent.deliver_at is not None and record.store_timestamp < sent.deliver_at:
        early = sent.deliver_at - record.store_timestamp
        raise Violation("never early", f"{sent} was delivered {early} ms before its time {sent.deliver_at}")


def may_wait(sent: Sent, clock_ms: int) -> bool:
    """Was it sent for a time that is not long over?"""
    return sent.deliver_at is not None and sent.deliver_at + LATE_MS >= clock_ms


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
    return record.topic == TIMER_TOPIC and int(record.props[props.TIMER_OUT_MS]) + LATE_MS > clock_ms
