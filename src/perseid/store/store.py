"""The message store of one broker.

An append writes the record into the log, its unit into the consume queue and its keys into the index in one
step; readers see it at once. Nothing is durable by that: `flush` and `tick` hand out the effects that make
it so, and a reply that promises durability travels in their `then`.

Everything here is quick (page cache) but `load` and `close`, which wait for the disk.

    log.start ≤ flushed ≤ log.end
    the units of all queues together = the log's records that are shown, each once, in order
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING

from perseid.base.deadlines import soonest
from perseid.base.machine import DiskFailed, Effect, Flush, Millis, Note
from perseid.core.layout import INDEXED_TAG
from perseid.disk.port import Disk
from perseid.store import batch_reading, batches, lmq, queue_folders, reading
from perseid.store import checkpoint as checkpoints
from perseid.store.batch_queue import BatchQueue, BatchUnit
from perseid.store.checks import Checks, check_log_is_there
from perseid.store.commit_log import CommitLog
from perseid.store.compaction.service import EVENTS, CompactionService
from perseid.store.config import StoreConfig
from perseid.store.consume_queue import ConsumeQueue
from perseid.store.dispatch import in_queue, key_hashes, parse_delay_levels, tag_code_of
from perseid.store.encoding import encoded
from perseid.store.flushing import Flusher
from perseid.store.gate import Gate
from perseid.store.index import Index
from perseid.store.plain import CoreAppends, GatedAppends, PlainQueue
from perseid.store.recovery import Recovery, save_durably
from perseid.store.results import (
    Appended,
    AppendRefused,
    ConsumeUnit,
    LoadReport,
    OnAppend,
    OnUnits,
    PutStatus,
    QueryResult,
    QueueKey,
    ReadResult,
    Removed,
    StoreEvent,
    Wanted,
    WantedRecord,
)
from perseid.store.retention import Retention
from perseid.store.segments import Folders, Part
from perseid.store.truncation import Cut, Looked, Truncation
from perseid.wire.record import MAX_TOPIC_BYTES, SYS_TRANSACTION_MASK, SYS_TRANSACTION_ROLLBACK, Host, Message, patch

if TYPE_CHECKING:
    from perseid.core.batch import Batch
    from perseid.core.queue import Queue

ABORT_PATH = "abort"
LOCK_PATH = "lock"
TAG_INDEX = "T"


class MessageStore:
    """Log, queues, index and their durability. Use it from one thread; only syncs run elsewhere."""

    def __init__(
        self, disk: Disk, config: StoreConfig, store_host: Host, log: CommitLog | None = None, *, gated: bool = False
    ) -> None:
        """`log`: another one than that of the folder `commitlog`. `gated`: readers see what is confirmed (`gate`)."""
        self.disk = disk
        self.config = config
        self.store_host = store_host
        self.levels = parse_delay_levels(config.message_delay_level)
        self.folders = Folders(disk)
        self.log = log or CommitLog(disk, self.folders, config)
        self.index = Index(disk, self.folders, config)
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        self.flusher = Flusher(config, self.log, self.index, self.folders, checkpoints.Checkpoint())
        self._retention = Retention(disk, config, self.log)
        self.on_append: OnAppend | None = None
        self.on_units: OnUnits | None = None
        self.lmq = config.lmq
        """Messages may name light queues (`store.lmq`)."""
        self.batch_topics: Set[str] = frozenset()
        """Topics with batch consume queues (`store.batch_queue`)."""
        self.compaction = CompactionService(self, disk)
        self.on_light: OnAppend | None = None
        """The same as `on_append`, for a unit in a light queue."""
        self._why_not_loaded = "the store is not loaded"
        self._failure = ""
        self.gate = Gate() if gated else None
        self._truncation = Truncation(self)
        self._checks = Checks()
        self._deleted: set[str] = set()
        self._leftovers: set[str] = set()

    # ---- start and stop ----

    def load(self, now: Millis) -> LoadReport:
        """Lock the folder and bring all files to one durable state. StoreLocked when another node uses it; CorruptLog,
        with file and offset, when what was durable can't be read; OSError from the disk."""
        disk = self.disk
        disk.lock(LOCK_PATH)
        try:
            return self._load(now)
        except BaseException:
            disk.unlock(LOCK_PATH)
            raise

    def _load(self, now: Millis) -> LoadReport:
        disk, log = self.disk, self.log
        crashed = disk.size(ABORT_PATH) is not None
        disk.write(ABORT_PATH, str(self.config.process_id).encode())
        disk.sync_file(ABORT_PATH)
        disk.sync_dir("")  # before anything changes: a load that is cut short leaves the store to be checked
        checkpoint = checkpoints.decode(disk.read(checkpoints.PATH))
        notes = log.load(checkpoint.log_end)
        check_log_is_there(log, checkpoint, self.config)
        log.end = log.top
        gaps = queue_folders.load(disk, self._queues, log.start, self.made)
        self.index.load()
        recovery = Recovery(self, checkpoint)
        recovery.run(crashed, gaps)
        if crashed:
            self.folders.distrust()
        for file in [*recovery.files_to_sync(), *self.folders.take()]:
            file.sync()
        self.flusher = Flusher(self.config, log, self.index, self.folders, checkpoint)
        if self.gate is not None:
            self.gate.load(min(max(checkpoint.confirm_offset, log.start), log.end), self._queues.values())
            self.flusher.gate = self.gate
        save_durably(disk, checkpoints.PATH, self.flusher.final_checkpoint())
        compacted = self.compaction.load(now, crashed=crashed)
        self.flusher.start(now)
        self._retention.start(now)
        self._checks.loaded(log)
        self._why_not_loaded = ""
        notes += recovery.notes + compacted
        return LoadReport(not crashed, log.start, log.end, recovery.truncated_bytes, notes)

    def close(self, now: Millis) -> str:
        """Leave the folder as a clean stop does. Returns what went wrong, "" for nothing: then the abort file stays."""
        self._why_not_loaded = "the store is closed"
        try:
            if not self._failure:
                self._close()
        except OSError as error:
            self.fail(f"the store could not be closed: {error}")
        finally:
            self.disk.unlock(LOCK_PATH)
        return self._failure

    def _close(self) -> None:
        disk = self.disk
        for file in self.flusher.unfinished():
            file.sync()
        self.compaction.close()
        save_durably(disk, checkpoints.PATH, self.flusher.final_checkpoint())
        disk.remove(ABORT_PATH)
        disk.sync_dir("")

    def lives_on(self, event: DiskFailed, now: Millis) -> bool:
        """Whether a failure is only that of the checkpoint's save: the old one stays true, and it is tried again."""
        if event.path != checkpoints.PATH or self.truncating:
            return False
        self.flusher.not_saved(now)
        return True

    def fail(self, reason: str) -> None:
        """The disk failed (`DiskFailed`): nothing may be promised any more."""
        self._failure = self._failure or reason

    # ---- state ----

    @property
    def why_not_writable(self) -> str:
        """Why appends are refused; "" when they are not."""
        if self._why_not_loaded or self._failure:
            return self._why_not_loaded or self._failure
        return "the disk is too full" if self._retention.disk_full else ""

    @property
    def writable(self) -> bool:
        return not self.why_not_writable

    @property
    def disk_used_ratio(self) -> float:
        """How full the disk is, from 0 to 1; -1 when it can't be told."""
        return self._retention.used_ratio

    @property
    def start(self) -> int:
        """The log's first offset."""
        return self.log.start

    @property
    def end(self) -> int:
        """The log's end."""
        return self.log.end

    @property
    def flushed(self) -> int:
        """The log is durable up to here."""
        return self.log.flushed

    @property
    def confirmed(self) -> int:
        """Readers see the records before it."""
        return self.log.end if self.gate is None else self.gate.confirmed

    def confirm(self, upto: int) -> None:
        """Readers may see the log up to there: every replica that counts has it."""
        assert self.gate is not None and upto <= self.log.end, f"confirmed up to {upto} of {self.log.end}"
        if self.gate.confirm(upto):
            self.flusher.confirmed()

    @property
    def truncating(self) -> bool:
        """Is a cut under way?"""
        return self._truncation.under_way

    def truncate(self, end: int, then: list[Effect]) -> list[Effect]:
        """Let the log end at `end`, where a record begins, and all with it, then `then`; no append before."""
        return self._truncation.begin(end, then)

    # ---- append ----

    def append(self, message: Message, now: Millis) -> Appended:
        """Store a message. AppendRefused when it can't be: nothing has happened."""
        light = self._light_queues_of(message) if self.lmq and lmq.MARK in message.properties else ()
        if message.topic in self.batch_topics:
            return batches.append(self, message, now)
        record = self.encoded(message, now)
        size = len(record)
        if not in_queue(message.sys_flag):
            return self._append_hidden(message, record, now)
        queue = self.queue_for(message.topic, message.queue_id)
        if isinstance(queue, BatchQueue):  # its topic is not known
            return batches.append(self, message, now)
        log = self.log
        offset = log.reserve(size)
        queue_offset = queue.end
        patch(record, queue_offset, offset, now)
        log.put(offset, record, now)
        tag = tag_code_of(message.topic, message.properties, now, self.levels)
        queue.put(offset, size, tag)
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
        queue.put(offset, size, tag)
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
        queue = self.queue_for(topic, queue_id, len(messages))
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
            if isinstance(queue, BatchQueue):
                batches.put(self, queue, BatchUnit(done.physical_offset, done.size, tag, now, done.queue_offset, 1))
                continue
            queue.put(done.physical_offset, done.size, tag)
            if self.gate is not None:
                self.gate.hold(queue, done.queue_offset, log.end)
            if self.on_append is not None:
                self.on_append(topic, queue_id, done.queue_offset, tag, done.physical_offset, done.size)
        return placed

    def encoded(self, message: Message, now: Millis) -> bytearray:
        """The record of a message within all limits, its places still empty."""
        self.check_writable()
        return encoded(message, self.config, self.log)

    def check_writable(self) -> None:
        if self._why_not_loaded or self._failure or self._retention.disk_full:
            raise AppendRefused(PutStatus.SERVICE_NOT_AVAILABLE, self.why_not_writable)

    def _light_queues_of(self, message: Message) -> list[ConsumeQueue]:
        """The light queues that a message is to stand in, with room; from now on it says its offsets there."""
        self.check_writable()
        names = lmq.names(message.topic, message.properties) if in_queue(message.sys_flag) else []
        queues = [self.queue_for(name, lmq.LMQ_QUEUE_ID) for name in names]
        message.properties = lmq.with_offsets(message.properties, [queue.end for queue in queues])
        return queues

    def queue_for(self, topic: str, queue_id: int, count: int = 1, *, batch: bool | None = None) -> ConsumeQueue:
        """The queue, with room for `count` more units, and in the books as written to; made if need be, of the topic's
        kind, or as `batch` says. AppendRefused when it can't be."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None:
            self.prepare(queue, count)
            return queue
        if not queue_folders.may_be(topic, queue_id):
            raise AppendRefused(PutStatus.MESSAGE_ILLEGAL, f"{topic!r}, {queue_id} can't be a queue")
        try:
            self._remove_leftovers(topic)
        except OSError as error:
            why = f"{topic}: what a deleted topic left can't be removed: {error}"
            raise AppendRefused(PutStatus.CREATE_MAPPED_FILE_FAILED, why) from error
        queue = self.made(topic, queue_id, topic in self.batch_topics if batch is None else batch)
        self.prepare(queue, count)
        self._queues[topic, queue_id] = queue
        return queue

    def made(self, topic: str, queue_id: int, batch: bool) -> ConsumeQueue:
        """A queue without files. `batch`: one of inner batches."""
        return queue_folders.made(self.disk, self.folders, self.config, topic, queue_id, batch)

    def prepare(self, queue: ConsumeQueue, count: int = 1) -> None:
        """Give a queue room for `count` more units, and note that it is written to. AppendRefused: there is none."""
        try:
            queue.prepare()
            if count > 1:
                queue.reserve(count)
        except OSError as error:
            raise AppendRefused(PutStatus.CREATE_MAPPED_FILE_FAILED, f"no new queue file: {error}") from error
        if not queue.dirty:
            queue.dirty = True
            self.flusher.dirty[queue] = None

    def queue_of(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue itself; None when it has had no message."""
        return self._queues.get((topic, queue_id))

    @property
    def queue_table(self) -> dict[QueueKey, ConsumeQueue]:
        """All queues, for the compiled core to look into."""
        return self._queues

    @property
    def plain_queues(self) -> Mapping[QueueKey, Queue]:
        """What plain sends are appended to by the core, for it to look into; always the same table."""
        return self._queues

    @property
    def appended_end(self) -> int:
        """Where the last message ends that was appended; readers may see it later."""
        return self.log.end

    def core_appends(self, batch: Batch) -> CoreAppends:
        """Takes what the core gathers."""
        return CoreAppends(self, batch) if self.gate is None else GatedAppends(self, batch, self.gate)

    def plain_queue(self, topic: str, queue_id: int) -> PlainQueue | None:
        """A quick way to append plain messages to a queue that is there; None when there is none."""
        queue = self._queues.get((topic, queue_id))
        if queue is None or isinstance(queue, BatchQueue) or len(topic.encode()) > MAX_TOPIC_BYTES:
            return None
        return PlainQueue(self, topic, queue) if len(self.store_host.ip) == 4 else None

    def _append_hidden(self, message: Message, record: bytearray, now: Millis) -> Appended:
        """A prepared or rolled back record stands in the log only."""
        size = len(record)
        offset = self.log.reserve(size)
        patch(record, 0, offset, now)
        self.log.put(offset, record, now)
        if self.index.enabled and message.sys_flag & SYS_TRANSACTION_MASK != SYS_TRANSACTION_ROLLBACK:
            self.index.put(key_hashes(message.topic, message.properties), offset, now)
        return Appended(offset, size, 0, now)

    # ---- read ----

    def queues(self) -> Iterable[QueueKey]:
        """(topic, queue id) of all queues that there are."""
        return self._queues.keys()

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset behind the queue's last message that readers see; 0 for a queue that has had none."""
        queue = self._queues.get((topic, queue_id))
        return queue.shown_offset if queue is not None else 0

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the first message that is still there, the max offset when none is."""
        queue = self._queues.get((topic, queue_id))
        return queue.first_offset if queue is not None else 0

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        wanted: Wanted | None = None,
        wanted_record: WantedRecord | None = None,
    ) -> ReadResult:
        """Records from `offset` on that are wanted by their tag code and by themselves (None: all), within the limits
        of one answer."""
        queue = self._queues.get((topic, queue_id))
        if self.compaction.has(topic):
            return self.compaction.read(topic, queue_id, offset, max_messages, max_bytes)
        if isinstance(queue, BatchQueue):
            limits = max_messages, max_bytes
            return batch_reading.read(self.log, queue, self.config, offset, *limits, wanted, wanted_record)
        return reading.read(self.log, queue, self.config, offset, max_messages, max_bytes, wanted, wanted_record)

    def cold(
        self, topic: str, queue_id: int, offset: int, most: int, codes: frozenset[int] | None, each: bool = False
    ) -> list[Part]:
        """Parts of files that `read` would wait for the disk for. `each`: it looks at records before it chooses."""
        queue = self._queues.get((topic, queue_id))
        if self.compaction.has(topic):
            return []
        if isinstance(queue, BatchQueue):
            return batch_reading.cold(self.log, queue, self.config, offset, most)
        return [] if queue is None else reading.cold(self.log, queue, self.config, offset, most, codes, each)

    def unit(self, topic: str, queue_id: int, offset: int) -> ConsumeUnit | None:
        """The consume queue's entry for an offset; None when there is none."""
        queue = self._queues.get((topic, queue_id))
        return queue.unit(offset) if queue is not None else None

    def record(self, topic: str, queue_id: int, offset: int) -> memoryview | None:
        """The record of a queue's message; None when it is not there."""
        unit = self.unit(topic, queue_id, offset)
        return None if unit is None else self.log.view(unit.physical_offset, unit.size)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The record that begins at an offset of the log; None when there is none. The bytes at an offset
        that a stranger named may be anything: decode them with care."""
        return self.log.record_at(physical_offset) if physical_offset < self.confirmed else None

    def last_record(self) -> int | None:
        """The offset of the log's last record that a queue points to, or of its very last one; None: there is none."""
        last = self.log.last_offset
        if last < self.log.end and self.log.record_at(last) is not None:
            return last
        units = (queue.raw(queue.end - 1) for queue in self._queues.values() if queue.end > queue.min)
        return max((unit.physical_offset for unit in units if unit is not None), default=None)

    def store_time(self, topic: str, queue_id: int, offset: int) -> Millis:
        """Store time of a queue's message; -1 when it is not there."""
        return reading.store_time(self.log, self._queues.get((topic, queue_id)), offset)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: Millis, upper: bool = False) -> int:
        """The first offset stored at `timestamp` or later; `upper`: the last one at it or earlier (0: none)."""
        queue = self._queues.get((topic, queue_id))
        if isinstance(queue, BatchQueue):
            return batch_reading.offset_by_time(queue, timestamp, upper)
        return reading.offset_by_time(self.log, queue, timestamp, upper)

    def earliest_time(self) -> Millis:
        """Store time of the log's first record; -1 when the log is empty."""
        return self.log.first_timestamp(self.log.start) or -1 if self.log.end > self.log.start else -1

    def query(
        self, topic: str, key: str, max_count: int, begin: Millis, end: Millis, index_type: str | None = None
    ) -> QueryResult:
        """Records that may carry a key (`index_type` T: a tag), the oldest first; only the hash was compared."""
        key = INDEXED_TAG + key if index_type == TAG_INDEX else key
        most = min(max_count, self.config.max_msgs_num_batch)
        return reading.query(self.log, self.index, topic, key, most, begin, end, self.confirmed)

    # ---- topics ----

    def delete_topic(self, topic: str) -> list[Effect]:
        """Forget a topic's queues. Its records stay in the log until their files go, unseen."""
        gone = [queue for key, queue in self._queues.items() if key[0] == topic]
        if not gone:
            return []
        for queue in gone:
            del self._queues[topic, queue.queue_id]
            self.flusher.dirty.pop(queue, None)
        self._deleted.add(topic)
        self.flusher.hurry = True  # a crash before the next checkpoint would bring the topic back
        self._leftovers |= {f"{queue.folder}/{topic}" for queue in gone}
        try:
            self._remove_leftovers(topic)
            forgotten = self.compaction.forget(topic)
        except OSError as error:
            return [Note("error", f"{topic}: can't be removed, tried again when the topic is used: {error}")]
        return [Flush([*self.folders.take()]), *forgotten]

    def _remove_leftovers(self, topic: str) -> None:
        """Remove a deleted topic's folders, whose old units must not come back with a new topic of the name."""
        for folder in self._leftovers & set(queue_folders.of_topic(topic)):
            self.disk.remove(folder)
            self.folders.forget(folder)
            self._leftovers.discard(folder)

    # ---- durability and time ----

    @property
    def needs_flush(self) -> bool:
        """Something was appended that no flush was handed out for."""
        return self.flusher.needs_flush

    def flush(self, then: list[Effect]) -> Flush:
        """Make all appended so far durable, then `then`. Costs nothing when it is in a flush already."""
        return self.flusher.flush(then)

    def handle(self, event: StoreEvent) -> list[Effect]:
        """An event that came back from one of the store's own effects."""
        if isinstance(event, Removed):
            self._retention.removed()
            return self.follow_log_start()
        if isinstance(event, Cut | Looked):
            return self._truncation.handle(event)
        if isinstance(event, EVENTS):
            return self.compaction.handle(event)
        return self.flusher.handle(event)

    def follow_log_start(self) -> list[Effect]:
        """Remove what queues and index have of records that the log has lost (code 306; after each removal, too)."""
        start, durable = self.log.start, self.flusher.saved_replay_from
        failed: list[Effect] = []
        for queue in self._queues.values():
            try:
                queue.remove_before(start, durable)
            except OSError as error:
                failed = [Note("error", f"{queue.segments.folder}: old files can't be removed: {error}")]
            queue.correct_min(start)
        try:
            self.index.remove_before(start)
        except OSError as error:
            failed.append(Note("error", f"old files of the index can't be removed: {error}"))
        return failed

    def tick(self, now: Millis) -> list[Effect]:
        """What is due: flushes, the checkpoint, removals."""
        if self._why_not_loaded or self._failure or self._truncation.under_way:
            return []
        effects = self.flusher.tick(now)
        effects += self._retention.tick(now, min(self.flusher.saved_replay_from, self.compaction.needed_from()))
        effects += self.compaction.tick(now)
        if self.index.broken:
            effects += self.index.try_again(now)
        return effects

    def next_deadline(self) -> Millis | None:
        if self._why_not_loaded or self._failure or self._truncation.under_way:
            return None
        index = self.index.retry_at if self.index.broken else None
        return soonest(
            index, self.flusher.next_deadline(), self._retention.next_deadline(), self.compaction.next_deadline()
        )

    def reconfigure(self, config: StoreConfig) -> None:
        """Follow other settings from now on."""
        self.config = self._retention.config = config
        self.log.reconfigure(config)

    def delete_expired(self, now: Millis) -> None:
        """Remove expired files now, whatever the hour (code 329)."""
        self._retention.delete_now(now)

    def cut_done(self, end: int) -> None:
        """Log, queues and index end there now."""
        self.flusher.cut_done(end, self.index.end_offset)
        self._checks.cut(end)
        self.compaction.cut()
        if self.gate is not None:
            self.gate.cut(end, self._queues.values())

    # ---- invariants ----

    def validate(self) -> None:
        """Check the whole state, of records what is new: AssertionError when it is broken."""
        self._checks.run(self.log, self._queues, self.flusher.promised, self._deleted, lmq=self.lmq)
        if self.gate is not None:
            self.gate.validate(self.log.end)
