"""What a record means to consume queues and index: its tag code, its index keys, whether it is shown at all."""

from __future__ import annotations

from functools import lru_cache
from operator import mul

from perseid.base.errors import ConfigError
from perseid.base.machine import Millis
from perseid.core.layout import INDEXED_TAG
from perseid.store.lmq import LMQ_QUEUE_ID
from perseid.store.lmq import units as lmq_units
from perseid.store.results import QueueKey
from perseid.wire import properties as props
from perseid.wire.hashing import java_hash, tag_code
from perseid.wire.names import SCHEDULE_TOPIC
from perseid.wire.record import (
    SYS_TRANSACTION_MASK,
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
    Record,
)

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


_TAGS = b"TAGS\x01"
_KEYS = b"KEYS\x01"
_UNIQ_KEY = b"UNIQ_KEY\x01"
MAX_CACHED_TAGS = 8192
MAX_CACHED_TAG_BYTES = 128
_tag_codes: dict[bytes, int] = {b"": 0}


def _value(properties: bytes, start: bytes) -> bytes:
    """What `props.get` says, for a name with its separator, and as bytes; b"" for none. For every append."""
    at = properties.rfind(start)
    if at < 0:
        return b""
    begin = at + len(start)
    end = properties.find(b"\2", begin)
    if end == begin or (at > 0 and properties[at - 1] != 2):  # an empty pair, or the end of a longer name
        return (props.get(properties, start[:-1].decode()) or "").encode()
    return properties[begin:end] if end > 0 else properties[begin:]


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """The waits of levels 1, 2, … in milliseconds."""
    levels = []
    for word in text.split():
        if word[-1] not in _UNIT_MS or not word[:-1].isdecimal():
            raise ConfigError(f"messageDelayLevel: {word!r} is not a number followed by s, m, h or d")
        levels.append(int(word[:-1]) * _UNIT_MS[word[-1]])
    return tuple(levels)


def in_queue(sys_flag: int) -> bool:
    """Prepared and rolled back records stand in no consume queue."""
    kind = sys_flag & SYS_TRANSACTION_MASK
    return kind != SYS_TRANSACTION_PREPARED and kind != SYS_TRANSACTION_ROLLBACK


def tag_code_of(topic: str, properties: bytes, store_timestamp: Millis, levels: tuple[int, ...]) -> int:
    """The tag code of a consume queue unit. For delayed messages it is the time of their delivery."""
    if topic == SCHEDULE_TOPIC:
        text = props.get(properties, props.DELAY)
        level = int(text) if text is not None and text.isascii() and text.isdecimal() else 0
        if level > 0:
            wait = levels[min(level, len(levels)) - 1] if levels else 1_000
            return store_timestamp + wait
    tag = _value(properties, _TAGS)
    code = _tag_codes.get(tag)
    if code is None:
        code = tag_code(tag.decode("utf-8", "replace"))
        if len(_tag_codes) < MAX_CACHED_TAGS and len(tag) <= MAX_CACHED_TAG_BYTES:
            _tag_codes[tag] = code
    return code


def units_of(record: Record, *, lmq: bool) -> list[tuple[QueueKey, int]]:
    """Queue and offset of the units of a record that is shown: its own, then those in light queues."""
    own: tuple[QueueKey, int] = (record.topic, record.queue_id), record.queue_offset
    if not lmq:
        return [own]
    return [own, *(((name, LMQ_QUEUE_ID), offset) for name, offset in lmq_units(
        record.topic, record.properties, record.physical_offset
    ))]  # fmt: skip


# ---- index keys ----

MAX_CACHED_HEADS = 65_536
TAIL_CHARS = 8
"""Of a client's unique key all but the last characters stay the same for a minute: their hash is kept."""
WRAP = 0xFFFFFFFF
TAIL_POWERS = tuple(31**i for i in reversed(range(TAIL_CHARS)))
HEAD_POWER: int = 31**TAIL_CHARS
_head_hashes: dict[tuple[str, str], int] = {}


def key_hash(topic: str, key: str) -> int:
    """The hash of a key in the index: that of `topic#key`, never negative."""
    head = key[:-TAIL_CHARS]
    if not head or not key.isascii():
        signed = java_hash(f"{topic}#{key}")
        return 0 if signed == -0x80000000 else abs(signed)
    start: int | None = _head_hashes.get((topic, head))
    if start is None:
        if len(_head_hashes) >= MAX_CACHED_HEADS:
            _head_hashes.clear()
        start = _head_hashes[topic, head] = head_hash(topic, head)
    return whole_hash(start, key)


def head_hash(topic: str, head: str) -> int:
    """What an ASCII key that begins with `head`, and has TAIL_CHARS more, adds its end to (`whole_hash`)."""
    return (java_hash(f"{topic}#{head}") & WRAP) * HEAD_POWER


def whole_hash(start: int, key: str) -> int:
    """The hash in the index of an ASCII key, whose head's is `start`."""
    h: int = start + sum(map(mul, key[-TAIL_CHARS:].encode(), TAIL_POWERS)) & WRAP
    return h if h < 0x80000000 else (0x100000000 - h) & 0x7FFFFFFF


def key_hashes(topic: str, properties: bytes) -> list[int]:
    """The hashes under which a message is found: that of its unique key, then those of its keys, then that of
    its tag."""
    unique = _value(properties, _UNIQ_KEY)
    found = [key_hash(topic, unique.decode("utf-8", "replace"))] if unique else []
    keys = _value(properties, _KEYS)
    if keys:
        found += [key_hash(topic, word) for word in keys.decode("utf-8", "replace").split(" ") if word]
    tag = _value(properties, _TAGS)
    if tag:
        found.append(_tag_hash(topic, tag))
    return found


@lru_cache(maxsize=MAX_CACHED_TAGS)
def _tag_hash(topic: str, tag: bytes) -> int:
    return key_hash(topic, INDEXED_TAG + tag.decode("utf-8", "replace"))
