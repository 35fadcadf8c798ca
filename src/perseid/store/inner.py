"""Inner batches: several messages of one producer in one record, with one unit in a batch consume queue (store.md §4).

The record says how many there are, `INNER_NUM`, and the queue offset of the first, `INNER_BASE`. Any other record of
such a topic is one message, of its own queue offset.
"""

from __future__ import annotations

from perseid.wire import properties as props
from perseid.wire.batch import MIN_ITEM_BYTES
from perseid.wire.record import Record

MARK = b"INNER_NUM\x01"
"""In the properties of each record that this is about."""
MAX_COUNT = 32_767
"""Of one batch: two bytes of its unit."""


def sealed(properties: bytes, base: int) -> bytes:
    """The properties of a message to be stored; a batch says from now on where it begins in its queue."""
    if MARK not in properties:
        return properties
    found = props.decode(properties)
    found[props.INNER_BASE] = str(base)
    return props.encode(found)


def span(record: Record) -> tuple[int, int] | None:
    """(base, count) of the messages that a record holds, when it says both; it may say anything: what can't be counts
    as not said."""
    if MARK not in record.properties:
        return None
    count = _number(props.get(record.properties, props.INNER_NUM), MAX_COUNT)
    most = record.physical_offset // MIN_ITEM_BYTES
    base = _number(props.get(record.properties, props.INNER_BASE), most)
    return (base, count) if base >= 0 and count > 0 else None


def count_of(properties: bytes) -> int:
    """How many messages a message to be stored says that it holds: 1 when it says nothing."""
    found = _number(props.get(properties, props.INNER_NUM), MAX_COUNT) if MARK in properties else 1
    return max(found, 1)


def _number(text: str | None, most: int) -> int:
    """A number up to `most`; -1 for anything else."""
    if text is None or not (text.isascii() and text.isdecimal() and len(text) < 20):
        return -1
    return int(text) if int(text) <= most else -1
