"""Appending to topics with batch consume queues: each record has one unit, however many messages it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.base.machine import Millis
from perseid.store import inner
from perseid.store.batch_queue import BatchQueue, BatchUnit
from perseid.store.consume_queue import ConsumeQueue
from perseid.store.dispatch import in_queue, key_hashes, tag_code_of
from perseid.store.results import Appended
from perseid.wire.record import Message, Record, patch

if TYPE_CHECKING:
    from perseid.store.store import MessageStore


def append(store: MessageStore, message: Message, now: Millis) -> Appended:
    """Store an inner batch, or a message that comes alone, as one record with one unit; the queue offset of the first.
    AppendRefused when it can't be stored, and nothing has happened then."""
    assert in_queue(message.sys_flag), "halves stand in their own topic"
    store.check_writable()
    queue, count = store.queue_for(message.topic, message.queue_id, batch=True), inner.count_of(message.properties)
    assert isinstance(queue, BatchQueue)
    base = queue.next_offset
    message.properties = inner.sealed(message.properties, base, count)
    record = store.encoded(message, now)
    log, size = store.log, len(record)
    offset = log.reserve(size)
    patch(record, base, offset, now)
    log.put(offset, record, now)
    tag = tag_code_of(message.topic, message.properties, now, store.levels)
    if store.index.enabled:
        store.index.put(key_hashes(message.topic, message.properties), offset, now)
    put(store, queue, BatchUnit(offset, size, tag, now, base, count))
    return Appended(offset, size, base, now)


def put(store: MessageStore, queue: BatchQueue, unit: BatchUnit) -> None:
    """Show the log's last record in its queue, which has room."""
    number = queue.end
    queue.put_batch(unit)
    if store.gate is not None:
        store.gate.hold(queue, number, store.log.end)
    if store.on_append is not None:
        store.on_append(queue.topic, queue.queue_id, unit.end - 1, unit.tag_code, unit.physical_offset, unit.size)


def changes_kind(store: MessageStore, record: Record) -> bool:
    """Does a record belong to a queue of another kind than the one that is there? Its topic was made again."""
    queue = store.queue_of(record.topic, record.queue_id)
    if inner.span(record) is not None:
        return not isinstance(queue, BatchQueue)
    return isinstance(queue, BatchQueue) and record.queue_offset == 0


def drop(store: MessageStore, queue: ConsumeQueue) -> None:
    """Forget a queue with all of its units. OSError from the disk."""
    del store.queue_table[queue.topic, queue.queue_id]
    store.flusher.dirty.pop(queue, None)
    if store.gate is not None:
        store.gate.forget(queue)
    queue.segments.remove_folder()
