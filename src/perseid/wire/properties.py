"""Message properties: `name \\x01 value \\x02` repeated, UTF-8; and their names.

The last `\\x02` may be missing (clients up to 4.9.3). Names and values of no length vanish. A value may
hold `\\x01`, never `\\x02`. Bytes that are not UTF-8 are read with replacement characters, as Java does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from perseid.base.machine import Buffer

PROPERTY_END = b"\x02"
MAX_BYTES = 32767
"""Encoded properties of one message."""
MAX_KEYS = 4096
"""Names whose encoded form is kept."""

KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
WAIT = "WAIT"
DELAY = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID = "__transactionId__"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME = "CONSUME_START_TIME"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
CLUSTER = "CLUSTER"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
MSG_TYPE = "MSG_TYPE"
INSTANCE_ID = "INSTANCE_ID"
EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO"
TRACE_CONTEXT = "TRACE_CONTEXT"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
PRIORITY = "_SYS_MSG_PRIORITY_"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
POP_CK = "POP_CK"
POP_CK_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
SHARDING_KEY = "__SHARDINGKEY"
LITE_TOPIC = "__LITE_TOPIC"
BUYER_ID = "BUYER_ID"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
CRC32 = "__CRC32#"

CHANGING_NAMES = (
    DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, TRAN_MSG, POP_CK, INNER_NUM, MSG_REGION, TRACE_ON,
    CLUSTER, PRIORITY,
)  # fmt: skip
"""Properties that change what is stored: a message without them is stored as it came."""
TIMER_NAMES = (
    TIMER_DELAY_SEC,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_ENQUEUE_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ROLL_TIMES,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_LEVEL,
)
SYSTEM_NAMES = frozenset({
    *CHANGING_NAMES, *TIMER_NAMES, KEYS, TAGS, UNIQ_KEY, WAIT, RETRY_TOPIC, REAL_TOPIC, REAL_QID, PGROUP,
    TRANSACTION_CHECK_TIMES, CHECK_IMMUNITY_TIME_IN_SECONDS, TRAN_PREPARED_QUEUE_OFFSET, TRANSACTION_ID,
    ORIGIN_MESSAGE_ID, RECONSUME_TIME, MAX_RECONSUME_TIMES, CONSUME_START_TIME, DLQ_ORIGIN_TOPIC,
    DLQ_ORIGIN_MESSAGE_ID, BORN_HOST, BORN_TIMESTAMP, MSG_TYPE, EXTEND_UNIQ_INFO, CORRELATION_ID, REPLY_TO_CLIENT, TTL,
    ARRIVE_TIME, PUSH_REPLY_TIME, INNER_BASE, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, POP_CK_OFFSET,
    FIRST_POP_TIME, LITE_TOPIC, MIN_OFFSET, MAX_OFFSET, CRC32,
})  # fmt: skip
"""Properties that clients and brokers set and read themselves."""


def encode(values: Mapping[str, str]) -> bytes:
    """The text form, with the last separator, in the order of the mapping."""
    return "".join([f"{name}\x01{value}\x02" for name, value in values.items()]).encode("utf-8", "replace")


def decode(raw: Buffer | str) -> dict[str, str]:
    """Names and values; what can't be read as a pair is left out, the last of a name counts. Never fails."""
    text = raw if isinstance(raw, str) else str(raw, "utf-8", "replace")
    found: dict[str, str] = {}
    for piece in text.split("\x02"):
        name, _, value = piece.partition("\x01")
        if name and value:
            found[name] = value
    return found


@lru_cache(maxsize=MAX_KEYS)
def _key(name: str) -> bytes:
    """What stands before a property's value, unless it is the first one."""
    return f"\x02{name}\x01".encode()


def get(raw: bytes, name: str) -> str | None:
    """One value, without decoding the others; what `decode(raw).get(name)` gives."""
    key = _key(name)
    at = raw.rfind(key)
    if at >= 0:
        at += len(key)
    elif raw.startswith(key[1:]):
        at = len(key) - 1
    else:
        return None
    end = raw.find(b"\x02", at)
    value = raw[at:] if end < 0 else raw[at:end]
    if value:
        return value.decode("utf-8", "replace")
    return decode(raw).get(name)  # an empty pair hides an earlier one from the quick search


def added(raw: bytes, more: Mapping[str, str]) -> bytes:
    """Properties with some more of them behind, which take the place of those with the same name."""
    if any(raw.startswith(key) or b"\x02" + key in raw for key in (f"{name}\x01".encode() for name in more)):
        return encode({**decode(raw), **more})
    return (raw if not raw or raw[-1] == 2 else raw + PROPERTY_END) + encode(more)


def crc_property(crc: int) -> bytes:
    """The closing `__CRC32#` property (enabledAppendPropCRC): ten digits, the least significant first."""
    return f"{CRC32}\x01{f'{crc:010d}'[::-1]}\x02".encode()
