"""Bringing log, consume queues and index to one state when a store is loaded (store.md §7).

The log is the truth; queues and index are made to say what it says. The log is read from a place up to
which everything is known to be durable:

- after a clean stop: the last record that a queue points to;
- after a crash: where the checkpoint says; for a checkpoint of the original, the last file whose first
  record is older than the checkpoint's times.

Reading ends at the first bytes that are no record: the log's end. Bytes behind it are overwritten with
zeros, and that is synced before the store is used. What may not be durable is written again before it is
synced: the crash may have been the end of a node whose sync had failed.

Units before the starting place were durable, so each queue that is met must have the unit before the first
one met; a queue that has not makes all queues be built anew from the whole log.
"""

from __future__ import annotations

from collections.abc import Set
from functools import partial
from typing import Protocol

from perseid.base.errors import CorruptLog
from perseid.base.machine import Millis, Syncable
from perseid.disk.port import Disk
from perseid.store import batches, queue_folders
from perseid.store import checkpoint as checkpoints
from perseid.store.batch_queue import BatchUnit, unit_of
from perseid.store.checkpoint import Checkpoint
from perseid.store.commit_log import UNWRITTEN, Walk
from perseid.store.config import StoreConfig
from perseid.store.consume_queue import BLANK_UNIT, UNIT, ConsumeQueue
from perseid.store.dispatch import in_queue, key_hashes, parse_delay_levels, tag_code_of, units_of
from perseid.store.index import Index
from perseid.store.lmq import is_lmq
from perseid.store.results import ConsumeUnit, QueueKey
from perseid.wire.properties import PROPERTY_END
from perseid.wire.record import (
    MIN_RECORD_BYTES,
    SYS_TRANSACTION_MASK,
    SYS_TRANSACTION_ROLLBACK,
    Record,
)

MAX_NOTES = 20
MAX_LMQ_GAP = 10_000
"""Offsets of a light queue that may be missing between two records; what is further is no unit of it."""


def save_durably(disk: Disk, path: str, data: bytes) -> None:
    """Replace a small file at once, as a `SaveState` does; for start and stop only."""
    disk.write(path + ".tmp", data)
    disk.sync_file(path + ".tmp")
    disk.rename(path + ".tmp", path)
    disk.sync_dir(path.rpartition("/")[0])


class Recovering(batches.Booked, Protocol):
    """The store that is brought to one state."""

    disk: Disk
    config: StoreConfig
    index: Index


class _Rebuild(Exception):
    """A queue lacks what must have been durable: all queues have to be built anew."""


class Recovery:
    """One recovery; `run` does it."""

    def __init__(self, store: Recovering, checkpoint: Checkpoint) -> None:
        self._store = store
        config = self._config = store.config
        log = self._log = store.log
        self._queues = store.queues.table
        self._index = store.index
        self._checkpoint = checkpoint
        self._known = log.promised(checkpoint.log_end)
        """The log has to be there up to here; −1: nobody knows."""
        self._levels = parse_delay_levels(config.message_delay_level)
        self._met: dict[QueueKey, int] = {}
        """Queues that had a record, and the offset of their first one."""
        self._cut: set[QueueKey] = set()
        self._start = 0
        self._queues_from = 0
        """Units of records before it are durable."""
        self._last_timestamp: Millis = 0
        self._last_offset = -1
        self._thorough = False
        self.notes: list[str] = []
        self.truncated_bytes = 0

    def run(self, crashed: bool, gaps: list[str]) -> None:
        """Bring everything to one state. `gaps`: files that are missing in consume queues."""
        log = self._log
        log.end = log.top  # until the end is known, all may be looked at
        self._check_files()
        if not log.segments.starts:
            self._forget_all()
            log.set_end(0)
            return
        start = None if crashed or gaps else self._clean_start()
        if start is None:
            self._thorough = True
            self._queues_from = self._crash_start()
            start = self._index_start(self._queues_from)
            if 0 <= self._checkpoint.last_record < start:
                start = max(self._checkpoint.last_record, log.start)
        elif any(queue.end > queue.first and not queue.batched for queue in self._queues.values()):
            # What the checkpoint has, and no queue points to, is of topics that were deleted: it stays unseen.
            self._queues_from = max(start, min(self._checkpoint.replay_from, log.top))
        else:  # somebody took the queues away, to have them made anew
            self._queues_from = start
        self._start = start
        try:
            if gaps:
                raise _Rebuild(f"{gaps[0]}: the file is missing")
            walk = self._replay(start)
        except _Rebuild as why:
            walk = self._rebuild(str(why))
        self._truncate(walk)
        self._finish_queues()

    def files_to_sync(self) -> list[Syncable]:
        """What the recovery read or wrote and may not be durable, folders aside."""
        log = self._log
        files: list[Syncable] = [*log.files_between(self._start, log.end + 1)]
        for key, queue in self._queues.items():
            first = self._met.get(key)
            if first is None and key in self._cut:
                first = max(queue.end - 1, 0)
            if first is not None:
                files += queue.segments.files_between(first * queue.unit_bytes, (queue.end + 1) * queue.unit_bytes)
        return files + list(self._index.take_dirty())

    def _note(self, text: str) -> None:
        if len(self.notes) < MAX_NOTES:
            self.notes.append(text)

    def _check_files(self) -> None:
        segments, known = self._log.segments, self._known
        if known > segments.end and not self._config.truncate_corrupt_log:
            why = f"the file is missing; the log was durable up to {known}. " + _ADVICE
            raise CorruptLog(segments.path(segments.end), segments.end, why)

    def _forget_all(self) -> None:
        for queue in self._queues.values():
            queue.segments.remove_folder()
            self._note(f"{queue.segments.folder}: removed, there is no log to it")
        self._queues.clear()
        self._index.clear()

    # ---- where to start ----

    def _clean_start(self) -> int | None:
        """The last record that a queue points to; None when a queue is not as a clean stop leaves it."""
        log = self._log
        start = log.start
        for queue in self._queues.values():
            queue.end = queue.find_end()
            unit = queue.raw(queue.end - 1) if queue.end > queue.first else None
            if unit is None or unit.physical_offset < log.start or UNIT.pack(*unit) == BLANK_UNIT:
                continue
            if not self._matches(queue, queue.end - 1, unit):
                self._note(f"{queue.segments.folder}: unit {queue.end - 1} does not fit the log, checking all")
                return None
            start = max(start, unit.physical_offset)
        return start

    def _crash_start(self) -> int:
        log, checkpoint = self._log, self._checkpoint
        if checkpoint.replay_from >= 0:
            return min(max(checkpoint.replay_from, log.start), log.top)
        for start in reversed(log.segments.starts):
            if 0 < log.first_timestamp(start) <= checkpoint.min_timestamp:
                return start
        return log.start

    def _index_start(self, start: int) -> int:
        """Repair the index; an earlier start when entries that were durable can't be read."""
        index, log, known = self._index, self._log, self._checkpoint
        index.repair(known.index_end + 1 if known.replay_from >= 0 else start, self._timestamp_of)
        if not index.enabled or index.end_offset >= known.index_end:
            return start
        self._note(f"the index was durable up to {known.index_end}, is whole up to {index.end_offset}")
        return min(max(index.end_offset, log.start), start)

    def _matches(self, queue: ConsumeQueue, number: int, unit: ConsumeUnit) -> bool:
        """The log has the record that a unit points to, and it is the one of this unit."""
        record = self._log.decoded(unit.physical_offset)
        return record is not None and record.size == unit.size and queue.matches(number, record)

    def _timestamp_of(self, offset: int) -> Millis:
        record = self._log.decoded(offset)
        return record.store_timestamp if record is not None else 0

    # ---- reading the log ----

    def _replay(self, start: int) -> Walk:
        walk = self._log.walk(start)
        known = self._known if self._thorough else -1
        indexed = self._index.end_offset
        for record in walk:
            if 0 <= known <= walk.offset:
                why = self._doubt(record)
                if why:
                    walk.stop(why)
                    continue
            self._last_timestamp, self._last_offset = record.store_timestamp, walk.offset
            if in_queue(record.sys_flag) and walk.offset >= self._queues_from:
                self._put_units(record)
            if record.sys_flag & SYS_TRANSACTION_MASK != SYS_TRANSACTION_ROLLBACK and self._index.enabled:
                hashes = key_hashes(record.topic, record.properties)
                if hashes and walk.offset > indexed:
                    self._index.put(hashes, walk.offset, record.store_timestamp)
        return walk

    def _doubt(self, record: Record) -> str:
        """Why a record that was never flushed can't be whole; "" when it can. The body's checksum does not
        cover topic, properties and queue offset, and a power cut may have taken any page."""
        if "\0" in record.topic or not record.topic or "/" in record.topic:
            return "a topic's name with a zero byte"
        if b"\0" in record.properties:
            return "properties with a zero byte"
        if record.properties and not record.properties.endswith(PROPERTY_END):
            return "properties without an end"
        try:
            record.properties.decode()
        except UnicodeDecodeError:
            return "properties that are not UTF-8"
        key = record.topic, record.queue_id
        if in_queue(record.sys_flag) and key in self._met and record.queue_offset:
            expected = self._queues[key].next_offset
            if record.queue_offset != expected:
                return f"queue offset {record.queue_offset} where {expected} was to come"
        return ""

    def _put_units(self, record: Record, only: Set[QueueKey] | None = None) -> None:
        """Write the units of a record: one in a batch consume queue, or one of its queue and of each light one. `only`:
        those in these queues."""
        key = record.topic, record.queue_id
        tag = tag_code_of(record.topic, record.properties, record.store_timestamp, self._levels)
        if batches.is_batch(self._store.queues.batch_topics, self._queues.get(key), record):
            if only is None or key in only:
                self._put(key, unit_of(record, tag), batch=True)
        else:
            for queue_key, offset in units_of(record, lmq=self._config.lmq):
                if only is None or queue_key in only:
                    at, size = record.physical_offset, record.size
                    self._put(queue_key, BatchUnit(at, size, tag, record.store_timestamp, offset, 1), batch=False)

    def _put(self, key: QueueKey, unit: BatchUnit, *, batch: bool) -> None:
        """Write a unit in its place, in a queue of that kind."""
        queue = self._queues.get(key)
        if key not in self._met or queue is None or queue.batched != batch:
            queue = self._meet(key, queue, unit, batch)
        elif unit.base != queue.next_offset:
            if unit.base == 0:  # the topic was deleted and made again
                queue.cut(0)
                self._met[key] = 0
            elif unit.base < queue.next_offset:
                self._note(f"{queue.segments.folder}: offset {unit.base} again at {unit.physical_offset}, left out")
                return
            elif not queue.batched and not self._pass_gap(queue, unit.base):
                return
        queue.prepare()
        queue.put(*unit[:6])

    def _pass_gap(self, queue: ConsumeQueue, offset: int) -> bool:
        """Go on with an offset where those before it are missing; False: it is no unit of this queue."""
        self._note(f"{queue.segments.folder}: offsets {queue.end} to {offset - 1} are not in the log")
        if is_lmq(queue.topic) and offset - queue.end > MAX_LMQ_GAP:
            return False  # nobody checked what a client said while there were no light queues
        queue.fill_up(offset)
        return True

    def _meet(self, key: QueueKey, queue: ConsumeQueue | None, unit: BatchUnit, batch: bool) -> ConsumeQueue:
        """The queue of the first unit of it that is read, ready for that unit."""
        whole = self._queues_from <= self._log.start  # nothing before it can be missing
        if queue is None or queue.batched != batch:
            return self._made(key, queue, unit.base, batch, whole)
        why = queue.rejoin(unit.base, unit.physical_offset, partial(self._is_good, queue), whole=whole)
        if why:
            raise _Rebuild(f"{queue.segments.folder}: {why}")
        self._met[key] = queue.end
        return queue

    def _made(self, key: QueueKey, other: ConsumeQueue | None, offset: int, batch: bool, whole: bool) -> ConsumeQueue:
        """A queue that was not there, or that was one of the other kind, ready for the unit of `offset`."""
        known = batch and other is not None  # the topic was not known to be one of batches: all units are there
        if offset > 0 and not whole and not known:
            raise _Rebuild(f"{queue_folders.folder(*key, batch)}: begins too late")
        queue = self._store.queues.make(*key, batch)
        if other is not None:
            if batch and offset > 0:
                batches.copy(other, queue, self._log)
            other.segments.remove_folder()
        queue.begin_at(offset)
        self._queues[key] = queue
        self._met[key] = 0 if batch else offset
        return queue

    def _is_good(self, queue: ConsumeQueue, number: int) -> bool:
        """Is the unit of this number there, and does it fit the log?"""
        unit = queue.raw(number)
        return unit is not None and (self._is_old(unit) or self._matches(queue, number, unit))

    def _rebuild(self, why: str) -> Walk:
        """Write all queues anew, from all of the log. The checkpoint forgets them first: a crash on the way has
        to end here again. A queue of which the log has nothing left stays: it knows the next offset."""
        self._note(f"{why}: all consume queues are built anew from the log")
        c = self._checkpoint
        c.replay_from, c.last_record = min(c.replay_from, self._log.start), -1
        c.queues_timestamp = 0
        save_durably(self._store.disk, checkpoints.PATH, checkpoints.encode(c))
        self._met.clear()
        self._start = self._queues_from = self._log.start
        return self._replay(self._start)

    def bring_back(self, keys: Set[QueueKey], start: int) -> list[Syncable]:
        """See the function."""
        log = self._log
        for record in log.walk(start):
            if in_queue(record.sys_flag):
                self._put_units(record, keys)
        files: list[Syncable] = []
        for queue in [self._queues[key] for key in keys if key in self._queues]:
            queue.correct_min(log.start)
            self._store.queues.prepare(queue)  # a stop makes it durable, too
            files += queue.segments.files_between(queue.first * queue.unit_bytes, (queue.end + 1) * queue.unit_bytes)
        return files

    # ---- the end ----

    def _truncate(self, walk: Walk) -> None:
        """Let the log end where the walk did, with nothing but zeros behind."""
        log, end, known = self._log, walk.offset, self._known
        start = log.segments.start_of(end)
        path, at = (log.segments.path(start), end - start) if start is not None else ("", 0)
        if end < known:
            if not self._config.truncate_corrupt_log:
                raise CorruptLog(path, at, f"{walk.why}; the log was durable up to offset {known}. {_ADVICE}")
            self._note(f"{path}: at byte {at}: {walk.why}; given up {known - end} bytes that were durable")
            self._checkpoint.log_end = self._checkpoint.replay_from = end
        if end == self._start or walk.why != UNWRITTEN:
            self._thorough = True  # the queues may point behind the end
        self.truncated_bytes = log.cut_off(end, everything=self._thorough or known < 0)
        if self.truncated_bytes:
            self._note(f"{path}: at byte {at}: {walk.why}; cut off {self.truncated_bytes} bytes")
        if self._index.end_offset >= end:
            self._index.repair(end, self._timestamp_of)
        if self._thorough:
            log.write_again(max(known, self._start), end)
        log.set_end(end)
        log.last_timestamp = self._last_timestamp or self._checkpoint.log_timestamp
        log.last_offset = self._last_offset if self._last_offset >= 0 else min(self._start, end)

    def _finish_queues(self) -> None:
        """Let every queue end where the log says, with nothing but zeros behind."""
        for key, queue in list(self._queues.items()):
            if key in self._met:
                changed = queue.cut(queue.end)
            elif self._thorough:
                end = self._last_fitting(queue)
                lost = end == queue.first > 0 == self._log.start  # no file was ever removed: the crash took the first
                if lost or self._not_begun(queue):
                    queue.segments.remove_folder()
                    del self._queues[key]
                    continue
                changed = queue.cut(end)
            else:
                changed = 0
            if changed:
                self._cut.add(key)
                self._note(f"{queue.segments.folder}: cut off {changed} bytes behind unit {queue.end}")
            queue.correct_min(self._log.start)
            queue.issued = queue.end

    def _not_begun(self, queue: ConsumeQueue) -> bool:
        """Is the first unit that of a record which is not in the log any more? The record comes once more, and begins
        the queue; or nobody sends it again, and the queue stays deleted."""
        return queue.first == 0 < queue.last_written() and not self._fits(queue, 0)

    def _last_fitting(self, queue: ConsumeQueue) -> int:
        """The end of a queue none of whose records was read: behind its last unit that fits the log."""
        end = queue.last_written()
        while end > queue.first and not self._fits(queue, end - 1):
            end -= 1
        return end

    def _fits(self, queue: ConsumeQueue, number: int) -> bool:
        """Is what stands at this unit's place one of this queue, as far as the log can tell?"""
        unit = queue.raw(number)
        assert unit is not None
        if UNIT.pack(*unit) == BLANK_UNIT:
            return True
        if unit.physical_offset < self._log.start:
            before = queue.raw(number - 1) if number - 1 >= queue.first else None
            ascending = before is None or before.physical_offset < unit.physical_offset
            return ascending and self._is_old(unit)
        return self._matches(queue, number, unit)

    def _is_old(self, unit: ConsumeUnit) -> bool:
        """May this be the unit of a record in a file that the log has lost?"""
        if UNIT.pack(*unit) == BLANK_UNIT:
            return True
        return unit.size >= MIN_RECORD_BYTES and 0 <= unit.physical_offset <= self._log.start - unit.size


def bring_back(store: Recovering, keys: Set[QueueKey], start: int) -> list[Syncable]:
    """Write queues anew that are not there, in a store that is loaded, from all that the log has of them, which stands
    at `start` or behind it; the files to be made durable. OSError from the disk."""
    return Recovery(store, store.flusher.checkpoint).bring_back(keys, start)


_ADVICE = "Bring the file back from a replica or a backup, or set truncateCorruptLog=true to start with what is left"
