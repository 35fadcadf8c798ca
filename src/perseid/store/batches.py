"""Queues of topics with BatchCQ: each record has one unit, however many messages it holds.

Which kind of queue a record belongs to its topic says (`Queues.batch_topics`), or it says so itself. A slave may
get records before it knows the topic: a queue of single messages becomes one of batches when the first batch comes.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from perseid.base.machine import Millis
from perseid.store import inner
from perseid.store.batch_queue import BatchUnit
from perseid.store.commit_log import CommitLog
from perseid.store.confirm_gate import ConfirmGate
from perseid.store.consume_queue import ConsumeQueue
from perseid.store.dispatch import in_queue, key_hashes, tag_code_of
from perseid.store.flushing import Flusher
from perseid.store.index import Index
from perseid.store.queues import Queues
from perseid.store.reading import record_time
from perseid.store.results import Appended, AppendRefused, OnAppend, PutStatus
from perseid.wire.record import Message, Record, patch


class Shown(Protocol):
    """A store whose readers see what is appended."""

    log: CommitLog
    gate: ConfirmGate | None
    on_append: OnAppend | None


class Booked(Protocol):
    """A store with queues."""

    log: CommitLog
    gate: ConfirmGate | None
    flusher: Flusher
    queues: Queues


class Appending(Shown, Booked, Protocol):
    """A store that messages are appended to."""

    index: Index
    levels: tuple[int, ...]

    def check_writable(self) -> None:
        """AppendRefused when it takes nothing."""

    def encoded(self, message: Message, now: Millis) -> bytearray:
        """The record of a message within all limits, its places still empty."""


def append(store: Appending, message: Message, now: Millis) -> Appended:
    """Store an inner batch, or a message that comes alone, as one record with one unit; the queue offset of the first.
    AppendRefused when it can't be stored, and nothing has happened then."""
    assert in_queue(message.sys_flag), "halves stand in their own topic"
    store.check_writable()
    queue = _batch_queue(store, message)
    base, count = queue.next_offset, inner.count_of(message.properties)
    message.properties = inner.sealed(message.properties, base)
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


def _batch_queue(store: Appending, message: Message) -> ConsumeQueue:
    """The queue of a message. One of single messages is there when a slave did not know the topic, and leads now."""
    old = store.queues.get(message.topic, message.queue_id)
    if old is not None and not old.batched:
        try:
            changed(store, old, old.end, batch=True)
        except OSError as error:
            raise AppendRefused(PutStatus.CREATE_MAPPED_FILE_FAILED, f"no new queue file: {error}") from error
    return store.queues.get_or_make(message.topic, message.queue_id, batch=True)


def put(store: Shown, queue: ConsumeQueue, unit: BatchUnit) -> None:
    """Show the log's last record in its queue, which has room."""
    number = queue.end
    queue.put(*unit[:6])
    if store.gate is not None:
        store.gate.hold(queue, number, store.log.end)
    if store.on_append is not None:
        store.on_append(queue.topic, queue.queue_id, unit.end - 1, unit.tag_code, unit.physical_offset, unit.size)


def is_batch(batch_topics: Set[str], queue: ConsumeQueue | None, record: Record) -> bool:
    """Does a record belong into a batch consume queue, where this queue is there?"""
    if record.topic in batch_topics or inner.span(record) is not None:
        return True
    return queue is not None and queue.batched and record.queue_offset > 0


def copy(queue: ConsumeQueue, into: ConsumeQueue, log: CommitLog) -> None:
    """Give a batch consume queue the units of a queue of single messages; blank ones are left out. OSError."""
    for number in range(queue.min, queue.end):
        unit = queue.raw(number)
        time = record_time(log, unit.physical_offset, unit.size) if unit is not None else -1
        if unit is not None and time >= 0:
            into.prepare()
            into.put(*unit, time, number, 1)


def changed(store: Booked, queue: ConsumeQueue, offset: int, *, batch: bool) -> ConsumeQueue | None:
    """The queue of the other kind in this one's place, for a record of this queue offset; None: its topic was made
    again, and none is there. OSError from the disk."""
    if not batch or offset == 0:
        store.queues.drop(queue)
        return None
    new = store.queues.make(queue.topic, queue.queue_id, True)
    copy(queue, new, store.log)
    store.queues.drop(queue)
    store.queues.table[queue.topic, queue.queue_id] = new
    store.queues.prepare(new)
    store.flusher.hurry = True  # the old units were durable
    if store.gate is not None:
        store.gate.load(store.gate.confirmed, store.queues.table.values())
    return new
