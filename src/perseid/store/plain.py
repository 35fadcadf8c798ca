"""Plain messages of one turn, gathered and written at once: one write to the log, one to each queue, one to the index.

    begin → add … add → commit

Nothing of a turn can be read before `commit`: whoever reads, or appends in the ordinary way, commits first. What is
written is byte for byte what `Appends.append` writes. What can't be gathered (no room in the file, an oversized
part) is refused by `add` with -1, and takes the ordinary way after a commit.

Invariant: between turns nothing is gathered.

With the compiled core (`perseid.core.batch`) the core gathers, and `CoreAppends` begins and commits.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Protocol

from perseid.base.machine import Buffer, Millis
from perseid.store.commit_log import CommitLog
from perseid.store.config import StoreConfig
from perseid.store.confirm_gate import ConfirmGate
from perseid.store.consume_queue import ConsumeQueue
from perseid.store.dispatch import TAIL_CHARS, head_hash, key_hash, whole_hash
from perseid.store.index import Index
from perseid.store.queues import Queues
from perseid.wire.hashing import crc32
from perseid.wire.record import BLANK_BYTES, MAGIC_V1, MAX_PROPERTIES_BYTES, MIN_RECORD_BYTES, Host

if TYPE_CHECKING:
    from perseid.core.batch import Batch

MAX_HEADS = 1024
"""Beginnings of unique keys whose hash a queue remembers: one a client and minute."""

_pack_fixed = Struct(">iiiiiqqiq8sq8siqi").pack
"""The record up to its body, both hosts packed (`packed_host`)."""
_pack_length = Struct(">h").pack
_pack_unit = Struct(">qiq").pack


def packed_host(host: Host) -> bytes:
    """An IPv4 address and port as a record carries them."""
    return host.ip + host.port.to_bytes(4, "big")


class Written(Protocol):
    """What is written to: `appends.Appends`."""

    index: Index
    gate: ConfirmGate | None
    queues: Queues
    config: StoreConfig
    store_host: Host

    @property
    def log(self) -> CommitLog: ...

    @property
    def writable(self) -> bool: ...


class PlainQueue:
    """One queue of a store that plain messages are appended to. Made by `Appends.plain_queue`."""

    __slots__ = (
        "heads", "next", "queue", "queue_id", "rest_bytes", "room", "store", "taken_bytes", "topic", "topic_part",
        "units",
    )  # fmt: skip

    def __init__(self, store: Written, topic: str, queue: ConsumeQueue) -> None:
        raw = topic.encode()
        self.store = store
        self.queue = queue
        self.topic = topic
        self.queue_id = queue.queue_id
        self.topic_part = bytes((len(raw),)) + raw
        self.rest_bytes = MIN_RECORD_BYTES + len(raw)
        self.next = self.room = 0
        """The offset of the next message, and where the queue's file ends: of this turn."""
        self.units: list[bytes] = []
        self.taken_bytes = 0
        """Of all records since the caller last set it to 0."""
        self.heads: dict[str, int] = {}

    @property
    def usable(self) -> bool:
        """Is it still the store's queue, and does the store take messages?"""
        return self.store.queues.get(self.topic, self.queue_id) is self.queue and self.store.writable

    def unique_hash(self, key: str) -> int:
        """`dispatch.key_hash` of a key whose beginning came before."""
        if not key.isascii():
            return key_hash(self.topic, key)
        head = key[:-TAIL_CHARS]
        start = self.heads.get(head)
        if start is None:
            if not head:
                return key_hash(self.topic, key)
            if len(self.heads) >= MAX_HEADS:
                self.heads.clear()
            start = self.heads[head] = head_hash(self.topic, head)
        return whole_hash(start, key)


class PlainAppends:
    """The gathered messages of one turn of one store."""

    def __init__(self, store: Written) -> None:
        self._store = store
        self._store_host = packed_host(store.store_host)
        self._most_bytes = store.config.max_message_size
        self._parts: list[Buffer] = []
        self._queues: list[PlainQueue] = []
        self._entries: list[tuple[int, int]] = []
        self._at = self._limit = self._last = 0
        self._now: Millis = 0

    def begin(self, queue: PlainQueue, now: Millis) -> bool:
        """A queue takes part in this turn; False: it has no room, or takes no messages."""
        if not queue.usable or not queue.queue.ready:
            return False
        if not self._parts:
            log = self._store.log
            self._at, self._limit, self._now = log.end, log.file_end - BLANK_BYTES, now
        queue.next, queue.room = queue.queue.end, queue.queue.room
        self._queues.append(queue)
        return True

    def add(
        self,
        queue: PlainQueue,
        body: Buffer,
        properties: bytes,
        tag_code: int,
        hashes: list[int],
        flag: int,
        sys_flag: int,
        born_timestamp: Millis,
        born_host: bytes,
        reconsume_times: int,
    ) -> int:
        """Gather one message; where it will stand in the log. -1: it can't be gathered; nothing has happened.

        Its queue offset is `queue.next` before. `hashes` are those of all keys that it is found by.
        """
        body_bytes, properties_bytes = len(body), len(properties)
        at, number = self._at, queue.next
        size = queue.rest_bytes + body_bytes + properties_bytes
        if at + size > self._limit or number >= queue.room:
            return -1
        if body_bytes > self._most_bytes or properties_bytes > MAX_PROPERTIES_BYTES:
            return -1
        self._parts += (
            _pack_fixed(
                size, MAGIC_V1, crc32(body), queue.queue_id, flag, number, at, sys_flag, born_timestamp, born_host,
                self._now, self._store_host, reconsume_times, 0, body_bytes,
            ),
            body, queue.topic_part, _pack_length(properties_bytes), properties,
        )  # fmt: skip
        queue.units.append(_pack_unit(at, size, tag_code))
        queue.next = number + 1
        queue.taken_bytes += size
        for one in hashes:
            self._entries.append((one, at))
        self._last, self._at = at, at + size
        return at

    def fits(self, queue: PlainQueue, messages: list[tuple[int, int]]) -> bool:
        """Have these messages (bytes of body and properties) all a place, next to one another?"""
        size = sum(body + properties for body, properties in messages) + len(messages) * queue.rest_bytes
        if self._at + size > self._limit or queue.next + len(messages) > queue.room or size > self._most_bytes:
            return False
        return all(properties <= MAX_PROPERTIES_BYTES for _, properties in messages)

    def commit(self) -> None:
        """Write what was gathered; readers see it now."""
        if self._parts:
            log = self._store.log
            log.put(log.end, b"".join(self._parts), self._now)
            assert log.end == self._at, "what was gathered is not what was written"
            log.last_offset = self._last
            self._parts.clear()
            for queue in self._queues:
                if queue.units:
                    first, gate = queue.queue.end, self._store.gate
                    queue.queue.put_many(b"".join(queue.units))
                    queue.units.clear()
                    if gate is not None:
                        gate.hold(queue.queue, first, log.end)
            index = self._store.index
            if index.enabled:
                index.put_many(self._entries, self._now)
            self._entries = []
        self._queues.clear()


class CoreAppends:
    """What the compiled core gathered in one turn of one store."""

    def __init__(self, store: Written, batch: Batch) -> None:
        self._store = store
        self._batch = batch

    def begin(self, may_order: bool, now: Millis) -> bool:
        """A turn begins; False: the store takes no messages."""
        log = self._store.log
        if not self._store.writable:
            return False
        self._batch.begin(now, log.end, log.file_end - BLANK_BYTES, may_order)
        return True

    @property
    def seen(self) -> bool:
        """Do readers see at once what `commit` has written?"""
        return True

    def commit(self, now: Millis) -> None:
        """Write what was gathered; readers see it now."""
        batch, log, index = self._batch, self._store.log, self._store.index
        log.put(log.end, batch.records, now)
        log.last_offset = batch.last
        for target in batch.touched:
            target.queue.put_many(target.units)
        if index.enabled:
            index.put_many(bytearray(batch.entries), now)


class GatedAppends(CoreAppends):
    """What the compiled core gathered in one turn; readers see it when it is confirmed."""

    def __init__(self, store: Written, batch: Batch, gate: ConfirmGate) -> None:
        super().__init__(store, batch)
        self._gate = gate

    @property
    def seen(self) -> bool:
        return False

    def commit(self, now: Millis) -> None:
        """Write what was gathered."""
        super().commit(now)
        end = self._store.log.end
        for target in self._batch.touched:
            queue = self._store.queues.get(target.topic, target.queue_id)
            assert queue is not None, "a target of a queue that is gone"
            self._gate.hold(queue, target.first, end)
