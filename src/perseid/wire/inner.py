"""Inner batches: records that hold several messages each, as a client pulls them from a topic with BatchCQ (store.md).

The body is that of a batch send; the messages have the queue offsets from the record's own on, and of the record its
topic, hosts, times and place in the log. A body that can't be read is one message, as for the Java client.
"""

from __future__ import annotations

import re

from perseid.base.errors import RemoteProtocolError
from perseid.base.machine import Buffer
from perseid.wire import batch, compression
from perseid.wire.hashing import crc32
from perseid.wire.record import (
    SYS_COMPRESSED,
    SYS_INNER_BATCH,
    SYS_NEED_UNWRAP,
    Message,
    Record,
    decode_all,
    encode,
    patch,
)

WRAPPED = SYS_INNER_BATCH | SYS_NEED_UNWRAP
_MARK = re.compile(rb"INNER_NUM\x01")


def is_wrapped(sys_flag: int) -> bool:
    """Does a record of this sysFlag hold several messages?"""
    return sys_flag & WRAPPED == WRAPPED


def unwrap(record: Record) -> list[Record]:
    """The messages of a record, one by one; the record itself when it holds no others."""
    if not is_wrapped(record.sys_flag):
        return [record]
    try:
        items = batch.decode(compression.decompress(record.body, record.sys_flag))
    except RemoteProtocolError:
        return [record]
    sys_flag = record.sys_flag & ~(WRAPPED | SYS_COMPRESSED)
    return [_message(record, item, sys_flag, record.queue_offset + number) for number, item in enumerate(items)]


def _message(record: Record, item: batch.BatchItem, sys_flag: int, queue_offset: int) -> Record:
    return Record(
        size=record.size,
        magic=record.magic,
        body_crc=crc32(item.body),
        queue_id=record.queue_id,
        flag=item.flag,
        queue_offset=queue_offset,
        physical_offset=record.physical_offset,
        sys_flag=sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_timestamp=record.store_timestamp,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        body=bytes(item.body),
        topic=record.topic,
        properties=item.properties,
    )


def expanded(body: Buffer, start: int, end: int) -> Buffer:
    """A pull answer in which each message from `start` up to `end` has a record of its own; the same bytes when none of
    it holds others. RecordError when it can't be read."""
    if _MARK.search(body) is None:
        return body
    parts: list[Buffer] = []
    at = 0
    for record in decode_all(body):
        if not is_wrapped(record.sys_flag):
            parts.append(memoryview(body)[at : at + record.size])
        else:
            parts += [_encoded(one) for one in unwrap(record) if start <= one.queue_offset < end]
        at += record.size
    return b"".join(parts)


def _encoded(one: Record) -> bytearray:
    message = Message(
        topic=one.topic,
        body=one.body,
        queue_id=one.queue_id,
        flag=one.flag,
        sys_flag=one.sys_flag,
        born_timestamp=one.born_timestamp,
        born_host=one.born_host,
        store_host=one.store_host,
        reconsume_times=one.reconsume_times,
        prepared_transaction_offset=one.prepared_transaction_offset,
        properties=one.properties,
    )
    record = encode(message)
    patch(record, one.queue_offset, one.physical_offset, one.store_timestamp)
    return record
