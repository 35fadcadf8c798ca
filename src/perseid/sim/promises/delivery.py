"""What is read was sent: to this topic and queue, with these bytes, and it stands at no more places than it was sent
times."""

from __future__ import annotations

from collections.abc import Mapping

from perseid.sim.facts import VALUE_BYTES, Sent
from perseid.sim.promises import Violation
from perseid.wire.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, retry_topic
from perseid.wire.record import Record

HALVES = (HALF_TOPIC, CHECK_MAX_TIME_TOPIC)
POP_RETRY = retry_topic("poppers")
"""What was popped and not acknowledged stands there, too."""


def sent_of(record: Record, sent: Mapping[bytes, Sent]) -> Sent:
    """What a record was sent as, by value."""
    value = bytes(record.body[:VALUE_BYTES])
    found = sent.get(value)
    if found is None:
        raise Violation("nothing invented", f"{value!r} at {record.topic}/{record.queue_id}@{record.queue_offset}")
    if record.body != found.body:
        raise Violation("exact bytes", f"{found}: the body of {len(record.body)} bytes is another one")
    return found


def is_on_its_way(record: Record, sent: Sent) -> bool:
    """Does it stand in a topic of the broker's own, which it goes through? Violation when it is in a wrong one."""
    if record.topic == sent.topic:
        return False
    if record.topic == TIMER_TOPIC and sent.deliver_at is not None:
        return True
    if record.topic == SCHEDULE_TOPIC and (sent.delayed or sent.sent_back):
        return True
    if record.topic.startswith(RETRY_PREFIX) and (sent.sent_back or record.topic.startswith(POP_RETRY)):
        return True
    if record.topic in HALVES and sent.commit is not None:
        return True
    raise Violation("right topic", f"{sent} was sent to {sent.topic} and read in {record.topic}")


def check_delivered(record: Record, sent: Sent) -> None:
    """A record of its own topic: it is in the right queue, with its tag."""
    if sent.queue_id not in (-1, record.queue_id):
        raise Violation("right queue", f"{sent} was sent to queue {sent.queue_id} and read in {record.queue_id}")
    if sent.tag != (record.tag or None):
        raise Violation("exact bytes", f"{sent} was sent with tag {sent.tag} and read with {record.tag}")


def check_copies(sent: Sent) -> None:
    """It is at no more places than it was sent times."""
    if not sent.delayed and len(sent.places) > sent.attempts + sent.repeats:
        places = ", ".join(map(str, sorted(sent.places)))
        raise Violation("no duplicates but by retries", f"{sent}: sent {sent.attempts} times, is at {places}")
