"""A log that grows by the bytes of another one: checked, whole records, with their units and keys.

    end ≤ expected = end + what was taken and is not written yet;  after `write` that is less than one record

Bytes come in pieces that may end anywhere; those that arrive together are taken one by one and written at once. A
record is written when all of it is there and it is one: of this offset, with a size, a magic and parts that agree, and
a body that matches its checksum. So between two calls the log is as a master's is: nothing but records and blanks, each
record with its unit in its queue and its keys in the index.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from perseid import core
from perseid.base.errors import StoreError
from perseid.base.machine import Flush
from perseid.store import batches, inner, lmq, queue_folders
from perseid.store.batch_queue import unit_of
from perseid.store.consume_queue import ConsumeQueue
from perseid.store.dispatch import in_queue, key_hashes, parse_delay_levels, tag_code_of
from perseid.store.results import AppendRefused, QueueKey
from perseid.store.store import MessageStore
from perseid.wire.batch import MIN_ITEM_BYTES
from perseid.wire.frame import MAX_FRAME_BYTES
from perseid.wire.names import SCHEDULE_TOPIC
from perseid.wire.record import (
    BLANK_BYTES,
    BLANK_MAGIC,
    MAX_TOPIC_BYTES,
    MIN_RECORD_BYTES,
    SYS_TRANSACTION_MASK,
    SYS_TRANSACTION_ROLLBACK,
    Record,
    RecordError,
    decode,
    size_and_magic,
)

MAX_TARGETS = 100_000
"""Queues that the core knows at a time."""
MAX_WAITING_BYTES = 4 << 20
"""So much may be taken while a record waits for the disk."""
MAX_GAP = 1_000_000
"""Queue offsets that may be missing between two records of a queue; more are no accident."""


if TYPE_CHECKING:
    from perseid.core.records import Records


class ReplicaRefused(StoreError):
    """Bytes that don't belong here; nothing of them was written."""


class Replica:
    """Takes the bytes of a master's log into a store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._levels = parse_delay_levels(store.config.message_delay_level)
        self._taken = bytearray()
        """Bytes that are not written yet."""
        self.waits = False
        """A queue begins anew with the next record: `write` goes on when the store has made sure that a start finds
        the old units again, where it has lost that record."""
        self._anew = False
        """Queues begin anew with records that are about to be written."""
        self._begin = 0
        """Where an empty log is to begin."""
        self._lmq = store.config.lmq
        self._compiled = compiled = None if self._lmq else core.compiled  # the core knows of no light queues
        self._core: Records | None = compiled.records.Records() if compiled is not None else None
        if self._core is not None:
            self._core.follow(store.queues.table)
        self._known: dict[QueueKey, ConsumeQueue] = {}
        """Those that the core has a target of."""

    @property
    def end(self) -> int:
        """The log's end: all before it is written."""
        return self._store.log.end

    @property
    def start(self) -> int:
        """Where the log begins."""
        return self._store.log.start

    @property
    def begun(self) -> bool:
        """Does a start find a log that begins elsewhere than at 0? Not before a checkpoint says that it is there: until
        then it could be one whose first files are lost."""
        log = self._store.log
        return log.end == 0 or log.start == 0 or self._store.flusher.saved_log_end > log.start

    @property
    def flushed(self) -> int:
        """The log is durable up to here."""
        return self._store.log.flushed

    def flush(self) -> Flush:
        """Make all of the log durable."""
        return self._store.flusher.flush([])

    @property
    def expected(self) -> int:
        """The offset of the next byte that is to come."""
        return self._next + len(self._taken)

    @property
    def _next(self) -> int:
        """Where the next record will be written."""
        return self._store.log.end or self._begin

    def forget_partial(self) -> None:
        """The rest of an unfinished record won't come: it will be asked for again."""
        self._taken = bytearray()
        self._begin = 0
        self.waits = self._anew = False
        self._store.flusher.let_go()

    def expect(self, offset: int, size: int) -> None:
        """A packet of `size` bytes from `offset` on is about to come. ReplicaRefused when it doesn't fit."""
        log = self._store.log
        file_bytes = log.segments.file_bytes
        if size < 0 or offset < 0 or size > file_bytes:
            raise ReplicaRefused(f"a packet of {size} bytes at {offset}; a file of the log has {file_bytes}")
        if self.expected == 0 and offset > 0:
            if offset % file_bytes:
                raise ReplicaRefused(
                    f"it begins at {offset}, in the middle of a file of {file_bytes} bytes: "
                    f"is mappedFileSizeCommitLog the same on both sides?"
                )
            if size:
                self._begin = offset
        elif offset != self.expected:
            raise ReplicaRefused(f"its packet begins at {offset}, {self.expected} was to come")
        if offset % file_bytes + size > file_bytes:
            raise ReplicaRefused(f"a packet from {offset} to {offset + size} crosses the end of a file")

    def take(self, data: memoryview) -> None:
        """The next bytes of the log."""
        self._taken += data

    def write(self) -> None:
        """Write the whole records of what was taken, or those before one that `waits`. ReplicaRefused: something is no
        record, and those before it are written. OSError: the disk has no room."""
        taken, self._taken = self._taken, bytearray()
        self.waits = False
        with memoryview(taken) as view:
            done = self._write_whole(view)
        self._taken = taken[done:] if done else taken
        if self.waits and len(self._taken) > MAX_WAITING_BYTES:
            raise OSError(f"{len(self._taken)} bytes wait for a checkpoint that lets a queue begin anew")

    def _write_whole(self, view: memoryview) -> int:
        """Write the whole records and blanks that `view` begins with; how many bytes they take."""
        log = self._store.log
        at, total, base = 0, len(view), self._next
        records: list[Record] = []
        begun = 0
        nexts: dict[QueueKey, int] = {}
        while total - at >= BLANK_BYTES:
            if self._core is not None:
                self._commit(view[begun:at], records)
                at = begun = self._take_plain(view, at)
                records = []
                nexts.clear()
                if total - at < BLANK_BYTES:
                    break
            size, magic = size_and_magic(view, at)
            left = log.segments.file_bytes - (base + at) % log.segments.file_bytes
            try:
                self._check_size(base + at, size, magic, left)
                if size > total - at:
                    break
                record = None if magic == BLANK_MAGIC else self._decoded(view, at, base + at)
                targets = [] if record is None else self._targets(record)
                for queue_key, offset in targets[:1]:
                    self._check_offset(queue_key, offset, base + at, record)
                changes = record is not None and self._changes_kind(record)
                if not self._may_begin(targets, changes):
                    self.waits = True
                    break
            except ReplicaRefused:
                self._commit(view[begun:at], records)  # what stands before it is good
                raise
            if record is None:
                self._commit(view[begun : at + size], records)
                begun, records = at + size, []
            else:
                again = any(nexts.get(key, offset) != offset for key, offset in targets)
                if again or changes:  # the topic was made again
                    self._commit(view[begun:at], records)
                    begun, records = at, []
                    nexts.clear()
                _, count = inner.span(record) or (0, 1)
                nexts.update((key, offset + count) for key, offset in targets)
                records.append(record)
            at += size
        self._commit(view[begun:at], records)
        return at

    def _take_plain(self, view: memoryview, at: int) -> int:
        """Write the plain records that begin at `at` of `view`, by the core; where the first one begins that isn't."""
        batch, log = self._core, self._store.log
        if batch is None or log.end == 0 or log.end == log.file_end:
            return at
        end = batch.read(view, at, log.end, log.file_end)
        if end > at:
            log.extend(view[at:end])
            self._put_units(batch)
        batch.finish()
        return end

    def enter_entries(self, view: memoryview, offset: int, limit: int) -> int:
        """Give the plain records of entries, which the log has already, their units and keys, by the core; how
        many bytes of entries that are. `view` begins with an entry, at `offset`."""
        if self._core is None:
            return 0
        end = self._core.read_entries(view, 0, offset, limit)
        if end:
            self._put_units(self._core)
        self._core.finish()
        return end

    def _put_units(self, batch: Records) -> None:
        """Write units and keys of what the core has taken."""
        store, log = self._store, self._store.log
        times, entries = batch.times, batch.entries
        log.last_offset, log.last_timestamp = batch.last, times[-1][1]
        for target in batch.touched:
            units = target.units
            target.queue.put_many(units)
            if store.gate is not None:
                queue = store.queues.get(target.topic, target.queue_id)
                assert queue is not None, "a target of a queue that is gone"
                store.gate.hold(queue, target.first, log.end)
            elif store.appends.on_units is not None:
                store.appends.on_units(target.topic, target.queue_id, target.first, units)
        if store.index.enabled:
            for (begin, stored), (stop, _) in pairwise((*times, (len(entries), 0))):
                store.index.put_many(bytearray(entries[begin:stop]), stored)

    def _learn(self, queue: ConsumeQueue) -> None:
        """What comes for this queue from now on may be plain: but for delayed messages, whose tag code is a time."""
        topic = queue.topic
        key = topic, queue.queue_id
        if queue.batched or self._core is None or self._known.get(key) is queue or topic == SCHEDULE_TOPIC:
            return
        if topic.isascii() and len(topic) <= MAX_TOPIC_BYTES:
            assert self._compiled is not None
            if len(self._known) >= MAX_TARGETS:
                self._known.clear()
            self._known[key] = queue
            self._core.learn(self._compiled.batch.Target(topic, queue.queue_id, queue, None), MAX_TARGETS)

    def _check_size(self, offset: int, size: int, magic: int, left: int) -> None:
        """Refuse at once what can't become a record: it would be waited for in vain."""
        if magic == BLANK_MAGIC:
            if size != left:
                raise ReplicaRefused(f"at {offset}: a blank of {size} bytes, {left} from the file's end")
            return
        # The master's maxMessageSize may be another one by now: what it took of a send belongs to the log.
        most = min(max(self._store.config.max_record_bytes, MAX_FRAME_BYTES), left)
        if not MIN_RECORD_BYTES <= size <= most:
            raise ReplicaRefused(f"at {offset}: no record: a size of {size}; {MIN_RECORD_BYTES} to {most} are possible")

    @staticmethod
    def _decoded(view: memoryview, at: int, offset: int) -> Record:
        try:
            record = decode(view, at)
        except RecordError as error:
            raise ReplicaRefused(f"at {offset}: no record: {error}") from None
        if record.physical_offset != offset:
            raise ReplicaRefused(f"at {offset}: a record that says it stands at {record.physical_offset}")
        return record

    def _commit(self, run: memoryview, records: list[Record]) -> None:
        """Write records that stand next to one another in one file, or end with its blank. Those of one queue follow
        each other. Everything that may lack room is made before the log is written."""
        if not run:
            return
        log = self._store.log
        queues = self._places(records)
        if log.end == 0 and self._begin:
            log.begin_at(self._begin)
        try:
            log.extend(run)
        except OSError:
            if not log.segments.starts:
                log.set_end(0)
            raise
        self._enter(records, queues)

    def enter(self, records: list[Record]) -> None:
        """Give records that the log has already their units and keys; those of one queue follow each other.
        ReplicaRefused, or OSError when the disk has no room: nothing has happened."""
        self._enter(records, self._places(records))

    def _enter(self, records: list[Record], queues: dict[QueueKey, ConsumeQueue]) -> None:
        store, log = self._store, self._store.log
        for record in records:
            offset, topic = record.physical_offset, record.topic
            log.last_offset, log.last_timestamp = offset, record.store_timestamp
            if store.index.enabled and record.sys_flag & SYS_TRANSACTION_MASK != SYS_TRANSACTION_ROLLBACK:
                store.index.put(key_hashes(topic, record.properties), offset, record.store_timestamp)
            targets = [(queues.get(key), queue_offset) for key, queue_offset in self._targets(record)]
            waiting = [queue for queue, offset in targets if queue is not None and queue.is_to_come(offset)]
            if not waiting:
                continue  # it has its units already
            tag = tag_code_of(topic, record.properties, record.store_timestamp, self._levels)
            for queue in waiting:
                self._put_unit(queue, record, tag)
        if self._anew:
            self._anew = False
            store.flusher.let_go()

    def _put_unit(self, queue: ConsumeQueue, record: Record, tag: int) -> None:
        store = self._store
        queue.prepare()
        if queue.topic == record.topic:
            batches.put(store.appends, queue, unit_of(record, tag))
        else:
            store.appends.put_light(queue, record.physical_offset, record.size, tag)

    def _targets(self, record: Record) -> list[tuple[QueueKey, int]]:
        """Where a record has units, queue and offset: its own queue first, then light ones. What it says of these is
        not worth a refusal: what can't be is left out, as by the original."""
        if not in_queue(record.sys_flag):
            return []
        key, span = (record.topic, record.queue_id), inner.span(record)
        if span is not None:
            return [(key, span[0])]
        found: list[tuple[QueueKey, int]] = [(key, record.queue_offset)]
        if self._lmq:
            for name, offset in lmq.units(record.topic, record.properties, record.physical_offset):
                queue = self._store.queues.get(name, lmq.LMQ_QUEUE_ID)
                if queue is None or offset <= queue.end + MAX_GAP:
                    found.append(((name, lmq.LMQ_QUEUE_ID), offset))
        return found

    def _places(self, records: list[Record]) -> dict[QueueKey, ConsumeQueue]:
        """The queues of records, each with room for its units."""
        firsts: dict[QueueKey, tuple[int, Record]] = {}
        counts: Counter[QueueKey] = Counter()
        for record in records:
            for key, offset in self._targets(record):
                firsts.setdefault(key, (offset, record))
                counts[key] += 1
        queues = {}
        for key, (offset, record) in firsts.items():
            at = record.physical_offset
            queue = queues[key] = self._queue_of(key, offset, at, record)
            self._make_place(queue, offset)
            self._learn(queue)
            try:
                self._store.queues.prepare(queue, counts[key])
            except AppendRefused as refused:
                raise _cause(refused, at) from None
        return queues

    def may_enter(self, record: Record) -> bool:
        """False: a queue begins anew with this record, and has units that are durable. As long as the record is not, a
        start has to bring them back: ask again when the store has saved a checkpoint that makes it do so."""
        return self._may_begin(self._targets(record), self._changes_kind(record))

    def _may_begin(self, targets: list[tuple[QueueKey, int]], changes: bool) -> bool:
        """The same, of the places of its units; does its own queue become one of another kind?"""
        may = True
        for key, offset in targets:
            queue = self._store.queues.get(*key) if offset == 0 or changes else None
            unit = queue.raw(queue.min) if queue is not None and queue.min < queue.end else None
            may &= unit is None or self._store.flusher.hold_back(unit.physical_offset)
        return may

    def _changes_kind(self, record: Record) -> bool:
        """Is the queue of a record of another kind, or is there none yet that knows?"""
        queue = self._store.queues.get(record.topic, record.queue_id)
        batch = batches.is_batch(self._store.queues.batch_topics, queue, record)
        return in_queue(record.sys_flag) and batch != (queue is not None and queue.batched)

    def _check_offset(self, key: QueueKey, offset: int, at: int, record: Record | None) -> None:
        """Refuse a queue that can't be, and a queue offset."""
        queue = self._store.queues.get(*key)
        if queue is None and not queue_folders.may_be(*key):
            raise ReplicaRefused(f"at {at}: {key[0]!r}, {key[1]} can't be a queue")
        topics = self._store.queues.batch_topics
        batch = record is not None and key[0] == record.topic and batches.is_batch(topics, queue, record)
        where = f"at {at}: queue offset {offset} in {key[0]}/{key[1]}"
        if not 0 <= offset <= at // (MIN_ITEM_BYTES if batch else MIN_RECORD_BYTES):
            raise ReplicaRefused(f"{where}: so many records don't fit before it")
        if queue is not None and offset > queue.next_offset + MAX_GAP:
            raise ReplicaRefused(f"{where}, which ends at {queue.next_offset}")

    def _queue_of(self, key: QueueKey, offset: int, at: int, record: Record) -> ConsumeQueue:
        """Where the unit of an offset goes, that of a record at `at`."""
        self._check_offset(key, offset, at, record)
        queue = self._store.queues.get(*key)
        batch = key[0] == record.topic and batches.is_batch(self._store.queues.batch_topics, queue, record)
        if queue is not None and queue.batched != batch:
            self._anew = True
            queue = batches.changed(self._store, queue, offset, batch=batch)
        if queue is None:
            try:
                queue = self._store.queues.get_or_make(*key, batch=batch)
            except AppendRefused as refused:
                raise _cause(refused, at) from None
        if not queue.next_offset:  # new, or the disk failed when it was to begin
            queue.begin_at(offset)
        return queue

    def _make_place(self, queue: ConsumeQueue, offset: int) -> None:
        """Let the queue's next unit be that of `offset`, unless it has one there already."""
        if offset == 0 < queue.end:  # the topic was deleted and made again
            self._anew = True
            queue.cut(0)
            if self._store.gate is not None:
                self._store.gate.forget(queue)
        queue.fill_up(offset)


def _cause(refused: AppendRefused, offset: int) -> Exception:
    """Why a queue can't be had: a disk without room is an OSError, a bad name ReplicaRefused."""
    if isinstance(refused.__cause__, OSError):
        return refused.__cause__
    return ReplicaRefused(f"at {offset}: {refused.why}")
