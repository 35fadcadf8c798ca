"""The message store of one broker.

An append writes the record into the log, its unit into the consume queue and its keys into the index in one
step; readers see it at once. Nothing is durable by that: `flush` and `tick` hand out the effects that make
it so, and a reply that promises durability travels in their `then`.

Everything here is quick (page cache) but `load` and `close`, which wait for the disk.

    log.start ≤ flushed ≤ log.end
    the units of all queues together = the log's records that are shown, each once, in order
"""

from __future__ import annotations

from perseid.base.deadlines import soonest
from perseid.base.machine import DiskFailed, Effect, Flush, Millis, Note
from perseid.disk.port import Disk
from perseid.store import checkpoint as checkpoints
from perseid.store.appends import Appends
from perseid.store.checks import Checks, check_log_is_there
from perseid.store.commit_log import CommitLog
from perseid.store.compaction.service import EVENTS, CompactionService
from perseid.store.condition import Condition
from perseid.store.config import StoreConfig
from perseid.store.confirm_gate import ConfirmGate
from perseid.store.flushing import Flusher
from perseid.store.index import Index
from perseid.store.queues import Queues
from perseid.store.reads import Reads
from perseid.store.recovery import Recovery, save_durably
from perseid.store.results import LoadReport, Removed, StoreEvent
from perseid.store.retention import Retention
from perseid.store.segments import Folders
from perseid.store.truncation import Cut, Looked, Truncation
from perseid.wire.record import Host

ABORT_PATH = "abort"
LOCK_PATH = "lock"


class MessageStore:
    """Owns the parts of a store, and sees to its life. Use it from one thread; only syncs run elsewhere.

    Who reads takes `reads`, who appends `appends`, who waits for the disk `flusher`; bounds are those of `log`.
    """

    def __init__(
        self, disk: Disk, config: StoreConfig, store_host: Host, log: CommitLog | None = None, *, gated: bool = False
    ) -> None:
        """`log`: another one than that of the folder `commitlog`. `gated`: readers see what is confirmed."""
        self.disk = disk
        self.config = config
        self.store_host = store_host
        self.folders = Folders(disk)
        self.log = log or CommitLog(disk, self.folders, config)
        self.index = Index(disk, self.folders, config)
        self.gate = ConfirmGate() if gated else None
        self.condition = Condition()
        self.queues = Queues(disk, self.folders, config, self.gate)
        self.flusher = self._new_flusher()
        self.retention = Retention(disk, config, self.log, self.condition)
        self.compaction = CompactionService(self, disk)
        self.reads = Reads(self.log, self.index, self.queues, self.compaction, self.gate, config)
        self.appends = self._new_appends()
        self.truncation = Truncation(self)
        self._checks = Checks()

    def _new_flusher(self) -> Flusher:
        return Flusher(self.config, self.log, self.index, self.folders, self.queues, self.gate)

    def _new_appends(self) -> Appends:
        return Appends(
            self.log, self.index, self.queues, self.flusher, self.condition, self.gate, self.config, self.store_host
        )

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
        gaps = self.queues.load(log.start)
        self.index.load()
        recovery = Recovery(self, checkpoint)
        recovery.run(crashed, gaps)
        if crashed:
            self.folders.distrust()
        for file in [*recovery.files_to_sync(), *self.folders.take()]:
            file.sync()
        self.flusher.load(checkpoint)
        if self.gate is not None:
            self.gate.load(min(max(checkpoint.confirm_offset, log.start), log.end), self.queues.table.values())
        save_durably(disk, checkpoints.PATH, self.flusher.final_checkpoint())
        compacted = self.compaction.load(now, crashed=crashed)
        self.flusher.start(now)
        self.retention.start(now)
        self._checks.loaded(log)
        self.condition.why_not_loaded = ""
        notes += recovery.notes + compacted
        return LoadReport(not crashed, log.start, log.end, recovery.truncated_bytes, notes)

    def close(self, now: Millis) -> str:
        """Leave the folder as a clean stop does. Returns what went wrong, "" for nothing: then the abort file stays."""
        self.condition.why_not_loaded = "the store is closed"
        try:
            if not self.condition.failure:
                self._close()
        except OSError as error:
            self.condition.fail(f"the store could not be closed: {error}")
        finally:
            self.disk.unlock(LOCK_PATH)
        return self.condition.failure

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
        if event.path != checkpoints.PATH or self.truncation.under_way:
            return False
        self.flusher.not_saved(now)
        return True

    # ---- topics ----

    def delete_topic(self, topic: str) -> list[Effect]:
        """Forget a topic's queues. Its records stay in the log until their files go, unseen."""
        try:
            if not self.queues.delete(topic):
                return []
            forgotten = self.compaction.forget(topic)
        except OSError as error:
            self.flusher.hurry = True
            return [Note("error", f"{topic}: can't be removed, tried again when the topic is used: {error}")]
        self.flusher.hurry = True  # a crash before the next checkpoint would bring the topic back
        return [Flush([*self.folders.take()]), *forgotten]

    # ---- durability and time ----

    def handle(self, event: StoreEvent) -> list[Effect]:
        """An event that came back from one of the store's own effects."""
        if isinstance(event, Removed):
            self.retention.removed()
            return self.follow_log_start()
        if isinstance(event, Cut | Looked):
            return self.truncation.handle(event)
        if isinstance(event, EVENTS):
            return self.compaction.handle(event)
        return self.flusher.handle(event)

    def follow_log_start(self) -> list[Effect]:
        """Remove what queues and index have of records that the log has lost (code 306; after each removal, too)."""
        start = self.log.start
        failed = self.queues.remove_before(start, self.flusher.saved_replay_from)
        try:
            self.index.remove_before(start)
        except OSError as error:
            failed.append(Note("error", f"old files of the index can't be removed: {error}"))
        return failed

    def tick(self, now: Millis) -> list[Effect]:
        """What is due: flushes, the checkpoint, removals."""
        if not self.condition.runs or self.truncation.under_way:
            return []
        effects = self.flusher.tick(now)
        effects += self.retention.tick(now, min(self.flusher.saved_replay_from, self.compaction.needed_from()))
        effects += self.compaction.tick(now)
        if self.index.broken:
            effects += self.index.try_again(now)
        return effects

    def next_deadline(self) -> Millis | None:
        if not self.condition.runs or self.truncation.under_way:
            return None
        index = self.index.retry_at if self.index.broken else None
        return soonest(
            index, self.flusher.next_deadline(), self.retention.next_deadline(), self.compaction.next_deadline()
        )

    def reconfigure(self, config: StoreConfig) -> None:
        """Follow other settings from now on."""
        self.config = self.retention.config = self.reads.config = self.appends.config = config
        self.log.reconfigure(config)

    def truncated(self, end: int) -> None:
        """Log, queues and index end there now."""
        self.flusher.truncated(end, self.index.end_offset)
        self._checks.cut(end)
        self.compaction.cut()
        if self.gate is not None:
            self.gate.cut(end, self.queues.table.values())

    # ---- invariants ----

    def validate(self) -> None:
        """Check the whole state, of records what is new: AssertionError when it is broken."""
        self._checks.run(self.log, self.queues.table, self.flusher.promised, self.queues.deleted, lmq=self.config.lmq)
        if self.gate is not None:
            self.gate.validate(self.log.end)
