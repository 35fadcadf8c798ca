"""Messages on their way into the store: stored ones read again, delayed ones redirected.

A delayed message is stored under SCHEDULE_TOPIC_XXXX, queue level - 1, and carries its real topic and queue in
REAL_TOPIC and REAL_QID; `delay.py` brings it there when its time has come (store.md §10, broker.md §7).
"""

from __future__ import annotations

from perseid.wire import properties as props
from perseid.wire.record import Message, Record

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_levels(text: str) -> tuple[int, ...]:
    """The waits of levels 1, 2, … in milliseconds. ValueError when a word is not a number with s, m, h or d."""
    levels = []
    for word in text.split():
        number, unit = word[:-1], word[-1:]
        if unit not in _UNIT_MS or not number.isdecimal():
            raise ValueError(f"messageDelayLevel: {word!r} is not a number followed by s, m, h or d")
        levels.append(int(number) * _UNIT_MS[unit])
    return tuple(levels)


LEVELS_MS = parse_levels(DELAY_LEVELS)


def again(record: Record) -> tuple[Message, dict[str, str]]:
    """A stored record as a message to be stored anew, and its properties, which the caller may change and
    then has to put back (`seal`)."""
    message = Message(
        topic=record.topic,
        body=bytes(record.body),
        queue_id=record.queue_id,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
    )
    return message, dict(record.props)


def redirect_delayed(message: Message, properties: dict[str, str], level: int) -> None:
    """Send a message with a delay level (1 or more; capped to the last one) to the schedule topic."""
    level = min(level, len(LEVELS_MS))
    for name in (props.TIMER_DELIVER_MS, props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS):
        properties.pop(name, None)
    properties[props.DELAY] = str(level)
    properties[props.REAL_TOPIC] = message.topic
    properties[props.REAL_QID] = str(message.queue_id)
    message.topic = SCHEDULE_TOPIC
    message.queue_id = level - 1


def seal(message: Message, properties: dict[str, str]) -> Message:
    """Put the properties into the message as they are stored."""
    message.properties = props.encode(properties)
    return message
