"""Messages on their way into the store: stored ones read again, delayed ones redirected.

A delayed message is stored under SCHEDULE_TOPIC_XXXX, queue level - 1, and carries its real topic and queue in
REAL_TOPIC and REAL_QID; `delay.py` brings it there when its time has come (store.md §10, broker.md §7).
"""

from __future__ import annotations

import re

from perseid.base.errors import RequestRefused
from perseid.store.reads import Reads
from perseid.wire import properties as props
from perseid.wire import record
from perseid.wire.codes import ResponseCode
from perseid.wire.names import SCHEDULE_TOPIC
from perseid.wire.record import Message, Record, RecordError

_LEVEL = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


def stored_at(reads: Reads, physical_offset: int) -> Record | None:
    """The record that begins at an offset of the log, whoever named it; None when there is no sound one."""
    view = reads.record_at(physical_offset)
    if view is None:
        return None
    try:
        found = record.decode(view)
    except RecordError:
        return None
    return found if found.physical_offset == physical_offset else None


def found_at(reads: Reads, physical_offset: int) -> memoryview:
    """The bytes of the sound record that begins at an offset. RequestRefused(1): there is none."""
    view = reads.record_at(physical_offset)
    if view is None or stored_at(reads, physical_offset) is None:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {physical_offset}"
        )
    return view


def copy_of(stored: Record) -> Message:
    """A stored record as a message to be stored anew, with the same properties."""
    return Message(
        topic=stored.topic,
        body=stored.body,
        queue_id=stored.queue_id,
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_timestamp=stored.born_timestamp,
        born_host=stored.born_host,
        store_host=stored.store_host,
        reconsume_times=stored.reconsume_times,
        properties=stored.properties,
    )


def delay_level(properties: dict[str, str]) -> int:
    """The level that DELAY asks for; 0 or less: none. RequestRefused(1) when it is no number."""
    text = properties.get(props.DELAY)
    if text is None:
        return 0
    if not _LEVEL.fullmatch(text):
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the property DELAY is not a number: {text[:80]!r}")
    return int(text)


def redirect_delayed(message: Message, properties: dict[str, str], level: int, levels: int) -> None:
    """Send a message with a delay level (1 or more; capped to `levels`) to the schedule topic."""
    level = min(level, levels)
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


_FOR_A_TIME = (props.DELAY, props.TIMER_DELIVER_MS, props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS)


def priority(properties: dict[str, str]) -> int:
    """The priority that the message asks for; -1: none, or no number that the original reads."""
    text = properties.get(props.PRIORITY, "")
    return int(text) if _LEVEL.fullmatch(text) and abs(int(text)) < 1 << 31 else -1


def is_by_priority(properties: dict[str, str]) -> bool:
    """Does the priority of a message count? Not that of a half, of one for a time, or of one in order."""
    return (
        properties.get(props.TRAN_MSG, "").lower() != "true"
        and not any(name in properties for name in _FOR_A_TIME)
        and props.SHARDING_KEY not in properties
    )
