"""The columns of a message, and record batches of them.

Kafka's columns come first, so that a job written for Kafka runs; the broker's own stand beside them. `partition`
is the queue id, which counts per broker: a queue is (brokerName, topic, queueId).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from perseid.client.model import ReceivedMessage
from perseid.core.layout import TIME_MAX, TIME_MIN

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

LOG_APPEND_TIME = 1
"""Kafka's timestampType for the time at which the broker stored the message."""

_TEXT_MAP = pa.map_(pa.string(), pa.string())
_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_TIME = pa.timestamp("us", tz="UTC")


def _time(time_ms: int) -> int | None:
    """Microseconds; null for a time that no calendar has."""
    return time_ms * 1000 if TIME_MIN <= time_ms <= TIME_MAX else None


def _key(message: ReceivedMessage) -> bytes | None:
    keys = message.record.props.get("KEYS")
    return keys.encode() if keys else None


def _headers(message: ReceivedMessage) -> list[dict[str, Any]]:
    return [{"key": name, "value": value.encode()} for name, value in message.properties.items()]


Column = tuple[str, str, Any, Callable[[ReceivedMessage], Any]]

COLUMNS: tuple[Column, ...] = (
    ("key", "binary", pa.binary(), _key),
    ("value", "binary", pa.binary(), lambda m: m.body),
    ("topic", "string", pa.string(), lambda m: m.record.topic),
    ("partition", "int", pa.int32(), lambda m: m.record.queue_id),
    ("offset", "bigint", pa.int64(), lambda m: m.record.queue_offset),
    ("timestamp", "timestamp", _TIME, lambda m: _time(m.record.store_timestamp)),
    ("timestampType", "int", pa.int32(), lambda m: LOG_APPEND_TIME),
    ("brokerName", "string", pa.string(), lambda m: m.queue.broker_name),
    ("queueId", "int", pa.int32(), lambda m: m.record.queue_id),
    ("queueOffset", "bigint", pa.int64(), lambda m: m.record.queue_offset),
    ("tag", "string", pa.string(), lambda m: m.tag),
    ("keys", "string", pa.string(), lambda m: m.record.props.get("KEYS")),
    ("msgId", "string", pa.string(), lambda m: m.msg_id),
    ("bornTimestamp", "timestamp", _TIME, lambda m: _time(m.record.born_timestamp)),
    ("storeTimestamp", "timestamp", _TIME, lambda m: _time(m.record.store_timestamp)),
    ("bornHost", "string", pa.string(), lambda m: str(m.record.born_host)),
    ("storeHost", "string", pa.string(), lambda m: str(m.record.store_host)),
    ("flag", "int", pa.int32(), lambda m: m.record.flag),
    ("sysFlag", "int", pa.int32(), lambda m: m.record.sys_flag),
    ("reconsumeTimes", "int", pa.int32(), lambda m: m.record.reconsume_times),
    ("physicalOffset", "bigint", pa.int64(), lambda m: m.record.physical_offset),
    ("properties", "map<string,string>", _TEXT_MAP, lambda m: list(m.properties.items())),
    ("headers", "array<struct<key:string,value:binary>>", _HEADERS, _headers),
    ("body", "binary", pa.binary(), lambda m: m.body),
)
BY_NAME = {column[0]: column for column in COLUMNS}

ONLY_WHEN_ASKED = {"headers", "body"}
"""`headers` with includeHeaders; `body`, which is `value` by its native name, in a schema of one's own."""


def ddl(*, include_headers: bool, include_body: bool) -> str:
    """The schema of a read that names no columns."""
    left_out = ONLY_WHEN_ASKED - ({"headers"} if include_headers else set())
    if not include_body:
        left_out.add("value")
    return ", ".join(f"`{name}` {kind}" for name, kind, _, _ in COLUMNS if name not in left_out)


def chosen(schema: StructType) -> list[str]:
    """The columns of a schema by name, which is how a read is told to hand over fewer. ValueError for others."""
    names = [field.name for field in schema.fields]
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise ValueError(f"no such column: {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    return names


def arrow_schema(names: Sequence[str]) -> Any:
    """The Arrow schema of some columns."""
    return pa.schema([pa.field(name, BY_NAME[name][2]) for name in names])


def batch(messages: Sequence[ReceivedMessage], names: Sequence[str]) -> Any:
    """One record batch of messages with some columns."""
    arrays = []
    for name in names:
        _, _, kind, value = BY_NAME[name]
        arrays.append(pa.array([value(message) for message in messages], type=kind))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(names))
