"""Appends of plain messages to one queue, the quick way: one struct, one join, one copy into the log.

What it stores is byte for byte what `MessageStore.append` stores. What it can't store (a topic with a long
name, an IPv6 host, a transaction, an oversized part) takes the ordinary way.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from perseid.base.machine import Buffer, Millis
from perseid.store.dispatch import key_hash
from perseid.wire.hashing import crc32
from perseid.wire.record import MAGIC_V1, MAX_PROPERTIES_BYTES, MIN_RECORD_BYTES, Host

if TYPE_CHECKING:
    from perseid.store.consume_queue import ConsumeQueue
    from perseid.store.store import MessageStore

_pack_fixed = Struct(">iiiiiqqiq8sq8siqi").pack
"""The record up to its body, both hosts packed (`packed_host`)."""
_pack_length = Struct(">h").pack


def packed_host(host: Host) -> bytes:
    """An IPv4 address and port as a record carries them."""
    return host.ip + host.port.to_bytes(4, "big")


class PlainQueue:
    """One queue of a store that messages are appended to. Made by `MessageStore.plain_queue`."""

    __slots__ = (
        "_index", "_log", "_most_bytes", "_queue", "_rest_bytes", "_store", "_store_host", "_topic_part", "queue_id", "topic",
    )  # fmt: skip

    def __init__(self, store: MessageStore, topic: str, queue: ConsumeQueue) -> None:
        raw = topic.encode()
        self._store = store
        self._log = store.log
        self._index = store.index
        self._queue = queue
        self._topic_part = bytes((len(raw),)) + raw
        self._store_host = packed_host(store.store_host)
        self._most_bytes = store.config.max_message_size
        self._rest_bytes = MIN_RECORD_BYTES + len(raw)
        self.topic = topic
        self.queue_id = queue.queue_id

    @property
    def usable(self) -> bool:
        """Is it still the store's queue, and does the store take messages?"""
        return self._store.queue_of(self.topic, self.queue_id) is self._queue and self._store.writable

    @property
    def end(self) -> int:
        """The queue offset of the next message."""
        return self._queue.end

    def append(
        self,
        body: Buffer,
        properties: bytes,
        tag_code: int,
        keys: list[str],
        flag: int,
        sys_flag: int,
        born_timestamp: Millis,
        born_host: bytes,
        reconsume_times: int,
        now: Millis,
    ) -> tuple[int, int]:
        """Store one message at `end`; its offset in the log and its size, (-1, 0): take the ordinary way.

        `properties` fit a record and are final; `keys` are all that it is found by. AppendRefused when there is
        no room for it.
        """
        log, queue = self._log, self._queue
        body_bytes, properties_bytes = len(body), len(properties)
        size = self._rest_bytes + body_bytes + properties_bytes
        if properties_bytes > MAX_PROPERTIES_BYTES or body_bytes > self._most_bytes:
            return -1, 0
        if not queue.ready:
            self._store.prepare(queue)
        offset = log.reserve(size)
        record = b"".join((
            _pack_fixed(
                size, MAGIC_V1, crc32(body), self.queue_id, flag, queue.end, offset, sys_flag, born_timestamp, born_host,
                now, self._store_host, reconsume_times, 0, body_bytes,
            ),
            body, self._topic_part, _pack_length(properties_bytes), properties,
        ))  # fmt: skip
        log.put(offset, record, now)
        queue.put(offset, size, tag_code)
        index = self._index
        if index.enabled:
            topic = self.topic
            for key in keys:
                index.put_one(key_hash(topic, key), offset, now)
        return offset, size
