"""Light message queues (LMQ): one record, shown in further queues beside that of its topic.

A message names them, `INNER_MULTI_DISPATCH` = "%LMQ%a,%LMQ%b"; the store says where it stands in each of them,
`INNER_MULTI_QUEUE_OFFSET` = "7,0", in the same order. So the record alone tells all its units:

    a light queue is queue 0 of a topic of its name;   its next offset is its end, as in every queue
    what is stored says offsets exactly when the record has these units, or is one of the original's

Names that can't all be queues (another prefix, a `/`, one twice) make the message one of its topic only. The original
stores such messages and its dispatch then stops or leaves holes, so a broker refuses them when they are sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from perseid.wire import properties as props
from perseid.wire.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX, SYSTEM_UPPER_PREFIX
from perseid.wire.record import MAX_PROPERTIES_BYTES, MIN_RECORD_BYTES

LMQ_PREFIX = "%LMQ%"
LMQ_QUEUE_ID = 0
SEPARATOR = ","
MAX_NAME_BYTES = 255
"""A queue's name is that of a folder."""

OFFSET_BYTES = 20
"""An offset in INNER_MULTI_QUEUE_OFFSET, with its separator."""

MARK = b"INNER_MULTI_"
"""In the properties of each message that this is about."""

_NEVER = (RETRY_PREFIX, SYSTEM_PREFIX)
"""Records of these topics, and delayed ones, are in no light queue, in the original too."""
_NOT_HERE = (DLQ_PREFIX, SYSTEM_UPPER_PREFIX)
"""The original puts dead letters, and halves before they are committed, into the queues that they name; we don't."""


def is_lmq(name: str) -> bool:
    """Is it the name of a light queue, or of a group of one?"""
    return name.startswith(LMQ_PREFIX)


def names_fault(topic: str, properties: bytes, room_bytes: int = 0) -> str:
    """Why a message can't stand in the light queues that it names; "" when it can, or names none. `room_bytes`: of the
    properties, for what the broker itself may add before it is stored."""
    names = _split(props.get(properties, props.INNER_MULTI_DISPATCH) or "")
    for name in names:
        if not is_lmq(name):
            return f"{name!r} in {props.INNER_MULTI_DISPATCH} does not begin with {LMQ_PREFIX}"
        if not may_be(name):
            return f"{name!r:.80} in {props.INNER_MULTI_DISPATCH} can't be the name of a queue"
    if len(properties) + len(names) * OFFSET_BYTES + room_bytes > MAX_PROPERTIES_BYTES:
        return f"{props.INNER_MULTI_DISPATCH} names {len(names)} queues; their offsets don't fit the properties"
    if len({topic, *names}) <= len(names):
        return f"{props.INNER_MULTI_DISPATCH} names a queue twice"
    return ""


def names(topic: str, properties: bytes) -> list[str]:
    """The light queues that a message is to stand in; none when it can't stand in all that it names."""
    if _is_excluded(topic) or topic.startswith(_NOT_HERE) or names_fault(topic, properties):
        return []
    return _split(props.get(properties, props.INNER_MULTI_DISPATCH) or "")


def with_offsets(properties: bytes, offsets: Iterable[int]) -> bytes:
    """The properties of a message that has these offsets in its light queues; none: it says none."""
    found = props.decode(properties)
    found.pop(props.INNER_MULTI_QUEUE_OFFSET, None)
    text = SEPARATOR.join(map(str, offsets))
    if text:
        found[props.INNER_MULTI_QUEUE_OFFSET] = text
    return props.encode(found)


def units(topic: str, properties: bytes, physical_offset: int) -> list[tuple[str, int]]:
    """(name, queue offset) of a record's units in light queues. It may say anything: what can't be is left out, as the
    original leaves it out, or should."""
    if MARK not in properties or _is_excluded(topic):
        return []
    named = _split(props.get(properties, props.INNER_MULTI_DISPATCH) or "")
    offsets = _split(props.get(properties, props.INNER_MULTI_QUEUE_OFFSET) or "")
    if len(named) != len(offsets):
        return []
    found: dict[str, int] = {}
    most = physical_offset // MIN_RECORD_BYTES
    for name, text in zip(named, offsets, strict=True):
        if not is_lmq(name) or not may_be(name) or name == topic or name in found:
            continue
        if text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= most:
            found[name] = int(text)
    return list(found.items())


def _is_excluded(topic: str) -> bool:
    return topic == SCHEDULE_TOPIC or topic.startswith(_NEVER)


def may_be(name: str) -> bool:
    """Can it be the name of a queue, which is that of a folder?"""
    return "/" not in name and "\0" not in name and len(name.encode("utf-8", "replace")) <= MAX_NAME_BYTES


def _split(text: str) -> list[str]:
    """As the original splits: nothing for a blank text, and no empty words at the end."""
    text = text.rstrip(SEPARATOR)
    return text.split(SEPARATOR) if text.strip() else []
