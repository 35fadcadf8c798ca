"""Putting messages into a store, in one step: record into the log, unit into its queue, keys into the index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perseid.base.machine import Millis
from perseid.store import batches, lmq
from perseid.store.batch_queue import BatchUnit
from perseid.store.commit_log import CommitLog
from perseid.store.condition import Condition
from perseid.store.config import StoreConfig
from perseid.store.confirm_gate import ConfirmGate
from perseid.store.consume_queue import ConsumeQueue
from perseid.store.dispatch import in_queue, key_hashes, parse_delay_levels, tag_code_of
from perseid.store.encoding import encoded
from perseid.store.flushing import Flusher
from perseid.store.index import Index
from perseid.store.plain import CoreAppends, GatedAppends, PlainQueue
from perseid.store.queues import Queues
from perseid.store.results import Appended, AppendRefused, OnAppend, OnUnits, PutStatus, QueueKey
from perseid.wire.record import MAX_TOPIC_BYTES, SYS_TRANSACTION_MASK, SYS_TRANSACTION_ROLLBACK, Host, Message, patch

if TYPE_CHECKING:
    from perseid.core.batch import Batch
    from perseid.core.queue import Queue


class Appends:
    """Into one store. Readers see at once what is appended, or when it is confirmed (`confirm_gate`)."""

    def __init__(
        self, log: CommitLog, index: Index, queues: Queues, flusher: Flusher, condition: Condition,
        gate: ConfirmGate | None, config: StoreConfig, store_host: Host,
    ) -> None:  # fmt: skip
        self.log = log
        self.index = index
        self.queues = queues
        self.flusher = flusher
        self.gate = gate
        self.config = config
        """As it is now; its owner sets it."""
        self.store_host = store_host
        self.levels = parse_delay_levels(config.message_delay_level)
        self.lmq = config.lmq
        """Messages may name light queues (`store.lmq`)."""
        self.on_append: OnAppend | None = None
        self.on_units: OnUnits | None = None
        self.on_light: OnAppend | None = None
        """The same as `on_append`, for a unit in a light queue."""
        self._condition = condition

    # ---- whether ----

    @property
    def why_not_writable(self) -> str:
        """Why appends are refused; "" when they are not."""
        return self._condition.why_not_writable

    @property
    def writable(self) -> bool:
        return not self._condition.why_not_writable

    def check_writable(self) -> None:
        condition = self._condition
        if condition.why_not_loaded or condition.failure or condition.disk_full:
            raise AppendRefused(PutStatus.SERVICE_NOT_AVAILABLE, condition.why_not_writable)

    @property
    def end(self) -> int:
        """Where the last message ends that was appended; readers may see it later."""
        return self.log.end

    # ---- one by one, and batches ----

    def append(self, message: Message, now: Millis) -> Appended:
        """Store a message. AppendRefused when it can't be: nothing has happened."""
        light = self._light_queues_of(message) if self.lmq and lmq.MARK in message.properties else ()
        if message.topic in self.queues.batch_topics:
            return batches.append(self, message, now)
        record = self.encoded(message, now)
        size = len(record)
        if not in_queue(message.sys_flag):
            return self._append_hidden(message, record, now)
        queue = self.queues.get_or_make(message.topic, message.queue_id)
        if queue.batched:  # its topic is not known
            return batches.append(self, message, now)
        log = self.log
        offset = log.reserve(size)
        queue_offset = queue.end
        patch(record, queue_offset, offset, now)
        log.put(offset, record, now)
        tag = tag_code_of(message.topic, message.properties, now, self.levels)
        queue.put(offset, size, tag, now, queue_offset, 1)
        if self.gate is not None:
            self.gate.hold(queue, queue_offset, log.end)
        if self.index.enabled:
            self.index.put(key_hashes(message.topic, message.properties), offset, now)
        if self.on_append is not None:
            self.on_append(message.topic, message.queue_id, queue_offset, tag, offset, size)
        for other in light:
            self.put_light(other, offset, size, tag)
        return Appended(offset, size, queue_offset, now)

    def put_light(self, queue: ConsumeQueue, offset: int, size: int, tag: int) -> None:
        """Show the log's last record in a light queue, too, which has room."""
        queue_offset = queue.end
        queue.put(offset, size, tag, self.log.last_timestamp, queue_offset, 1)
        if self.gate is not None:
            self.gate.hold(queue, queue_offset, self.log.end)
        if self.on_light is not None:
            self.on_light(queue.topic, queue.queue_id, queue_offset, tag, offset, size)

    def append_batch(self, messages: list[Message], now: Millis) -> list[Appended]:
        """Store messages of one topic and queue next to one another in one file: all or none."""
        if not messages:
            raise AppendRefused(PutStatus.MESSAGE_ILLEGAL, "a batch of no messages")
        topic, queue_id = messages[0].topic, messages[0].queue_id
        for message in messages:
            if message.topic != topic or message.queue_id != queue_id or not in_queue(message.sys_flag):
                raise AppendRefused(PutStatus.MESSAGE_ILLEGAL, "a batch is of one topic and one queue")
            if self.lmq and lmq.MARK in message.properties:  # none of a batch stands in light queues
                message.properties = lmq.with_offsets(message.properties, ())
        records = [self.encoded(message, now) for message in messages]
        log, index, size = self.log, self.index, sum(map(len, records))
        log.admit(size)
        queue = self.queues.get_or_make(topic, queue_id, len(messages))
        offset = log.reserve(size)
        placed: list[Appended] = []
        at, queue_offset = offset, queue.next_offset
        for record in records:
            patch(record, queue_offset, at, now)
            placed.append(Appended(at, len(record), queue_offset, now))
            at += len(record)
            queue_offset += 1
        log.put(offset, b"".join(records), now)
        log.last_offset = placed[-1].physical_offset
        for message, done in zip(messages, placed, strict=True):
            tag = tag_code_of(topic, message.properties, now, self.levels)
            queue.prepare()
            if index.enabled:
                index.put(key_hashes(topic, message.properties), done.physical_offset, now)
            batches.put(self, queue, BatchUnit(done.physical_offset, done.size, tag, now, done.queue_offset, 1))
        return placed

    def encoded(self, message: Message, now: Millis) -> bytearray:
        """The record of a message within all limits, its places still empty."""
        self.check_writable()
        return encoded(message, self.config, self.log)

    def _light_queues_of(self, message: Message) -> list[ConsumeQueue]:
        """The light queues that a message is to stand in, with room; from now on it says its offsets there."""
        self.check_writable()
        names = lmq.names(message.topic, message.properties) if in_queue(message.sys_flag) else []
        queues = [self.queues.get_or_make(name, lmq.LMQ_QUEUE_ID) for name in names]
        message.properties = lmq.with_offsets(message.properties, [queue.end for queue in queues])
        return queues

    def _append_hidden(self, message: Message, record: bytearray, now: Millis) -> Appended:
        """A prepared or rolled back record stands in the log only."""
        size = len(record)
        offset = self.log.reserve(size)
        patch(record, 0, offset, now)
        self.log.put(offset, record, now)
        if self.index.enabled and message.sys_flag & SYS_TRANSACTION_MASK != SYS_TRANSACTION_ROLLBACK:
            self.index.put(key_hashes(message.topic, message.properties), offset, now)
        return Appended(offset, size, 0, now)

    # ---- many at once ----

    @property
    def plain_queues(self) -> Mapping[QueueKey, Queue]:
        """What plain sends are appended to by the core, for it to look into; always the same table."""
        return self.queues.table

    def core_appends(self, batch: Batch) -> CoreAppends:
        """Takes what the core gathers."""
        return CoreAppends(self, batch) if self.gate is None else GatedAppends(self, batch, self.gate)

    def plain_queue(self, topic: str, queue_id: int) -> PlainQueue | None:
        """A quick way to append plain messages to a queue that is there; None when there is none."""
        queue = self.queues.get(topic, queue_id)
        if queue is None or queue.batched or len(topic.encode()) > MAX_TOPIC_BYTES:
            return None
        return PlainQueue(self, topic, queue) if len(self.store_host.ip) == 4 else None
