"""The consume queues of one store: which there are, which were written to since they were synced last, and how they are
made, become others, and go."""

from __future__ import annotations

from collections.abc import Set

from perseid.base.machine import Effect, Note, Syncable
from perseid.disk.port import Disk
from perseid.store import queue_folders
from perseid.store.config import StoreConfig
from perseid.store.confirm_gate import ConfirmGate
from perseid.store.consume_queue import ConsumeQueue
from perseid.store.results import AppendRefused, PutStatus, QueueKey
from perseid.store.segments import Folders


class Queues:
    """Of one store."""

    def __init__(self, disk: Disk, folders: Folders, config: StoreConfig, gate: ConfirmGate | None) -> None:
        self._disk = disk
        self._folders = folders
        self._config = config
        self._gate = gate
        self.table: dict[QueueKey, ConsumeQueue] = {}
        """All of them, by topic and queue id; always the same table, for the compiled core looks into it."""
        self.batch_topics: Set[str] = frozenset()
        """Topics with batch consume queues (`store.batch_queue`)."""
        self.dirty: dict[ConsumeQueue, None] = {}
        """Those with units that no flush has taken yet."""
        self.deleted: set[str] = set()
        """Topics whose queues were deleted in this life."""
        self._leftovers: set[str] = set()
        """Folders of theirs that could not be removed."""

    # ---- which there are ----

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue itself; None when it has had no message."""
        return self.table.get((topic, queue_id))

    def load(self, log_start: int) -> list[str]:
        """Take in the files of all queues; returns those that are missing between others."""
        return queue_folders.load(self._disk, self.table, log_start, self.make)

    # ---- writing ----

    def make(self, topic: str, queue_id: int, batch: bool) -> ConsumeQueue:
        """A queue without files, which the table does not have. `batch`: one of inner batches."""
        return queue_folders.made(self._disk, self._folders, self._config, topic, queue_id, batch)

    def get_or_make(self, topic: str, queue_id: int, count: int = 1, *, batch: bool | None = None) -> ConsumeQueue:
        """The queue, with room for `count` more units, and known as written to; made if need be, of the topic's
        kind, or as `batch` says. AppendRefused when it can't be."""
        queue = self.table.get((topic, queue_id))
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
        queue = self.make(topic, queue_id, topic in self.batch_topics if batch is None else batch)
        self.prepare(queue, count)
        self.table[topic, queue_id] = queue
        return queue

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
            self.dirty[queue] = None

    def take_dirty(self) -> list[Syncable]:
        """The files that were written since this was called last."""
        files: list[Syncable] = []
        for queue in self.dirty:
            files += queue.segments.files_between(queue.issued * queue.unit_bytes, queue.end * queue.unit_bytes)
            queue.issued = queue.end
            queue.dirty = False
        self.dirty.clear()
        return files

    # ---- going ----

    def drop(self, queue: ConsumeQueue) -> None:
        """Forget a queue with all of its units. OSError from the disk."""
        del self.table[queue.topic, queue.queue_id]
        self.dirty.pop(queue, None)
        if self._gate is not None:
            self._gate.forget(queue)
        queue.segments.remove_folder()

    def delete(self, topic: str) -> bool:
        """Forget a topic's queues; False: it has none. OSError when files can't be removed: they are when the topic is
        used."""
        gone = [queue for key, queue in self.table.items() if key[0] == topic]
        if not gone:
            return False
        for queue in gone:
            del self.table[topic, queue.queue_id]
            self.dirty.pop(queue, None)
        self.deleted.add(topic)
        self._leftovers |= {f"{queue.folder}/{topic}" for queue in gone}
        self._remove_leftovers(topic)
        return True

    def _remove_leftovers(self, topic: str) -> None:
        """Remove a deleted topic's folders, whose old units must not come back with a new topic of the name."""
        for folder in self._leftovers & set(queue_folders.of_topic(topic)):
            self._disk.remove(folder)
            self._folders.forget(folder)
            self._leftovers.discard(folder)

    def remove_before(self, log_start: int, durable: int) -> list[Effect]:
        """Remove what queues have of records that the log has lost. `durable`: units of records before it are."""
        failed: list[Effect] = []
        for queue in self.table.values():
            try:
                queue.remove_before(log_start, durable)
            except OSError as error:
                failed = [Note("error", f"{queue.segments.folder}: old files can't be removed: {error}")]
            queue.correct_min(log_start)
        return failed
