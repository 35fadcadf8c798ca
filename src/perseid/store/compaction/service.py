"""All compacted queues of a store: they follow their consume queues, become durable, and are compacted in turn.

The files are the original's. What is Perseid's own is `compaction/perseid-durable`: up to which queue offset the files
of each queue are durable. A start after a crash leaves out what is behind it; until then the log keeps its files. After
a cut that took of these files, nothing is taken until that table says so: a save from before it may be under way.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Set

from perseid.base.machine import Effect, Feed, Flush, Millis, Note, SaveState, Syncable
from perseid.disk.port import Disk
from perseid.store.compaction.parts import LOGS, UNIT_BYTES, sizes
from perseid.store.compaction.queue import (
    ENTRY_BYTES,
    LEAST_ENTRIES,
    STEP_BYTES,
    CompactedQueue,
    Compacting,
    Positions,
    Step,
)
from perseid.store.recovery import save_durably
from perseid.store.results import QueueKey, ReadResult, ReadStatus, StoreEvent
from perseid.wire import fastjson

DURABLE_PATH = LOGS.rpartition("/")[0] + "/perseid-durable"
FOLLOW_MS = 1_000
"""How often queues that nobody reads are followed."""
FLUSH_MS = 5_000
RETRY_MS = 60_000
"""After the disk had no room for a compaction."""
EVERYTHING = 1 << 62


class Followed(StoreEvent):
    """Fed back when what the queues had taken is durable, and saved as such."""

    __slots__ = ("durable",)

    def __init__(self, durable: Mapping[QueueKey, int]) -> None:
        self.durable = durable


EVENTS = (Step, Followed)


class CompactionService:
    """Of one store."""

    def __init__(self, store: Compacting, disk: Disk) -> None:
        config = store.config
        self._store = store
        self._disk = disk
        self._file_bytes = sizes(config.compaction_mapped_file_size, config.compaction_cq_mapped_file_size)
        self._most = max(config.max_offset_map_size // config.compaction_thread_num // ENTRY_BYTES, LEAST_ENTRIES)
        self.topics: Set[str] = frozenset()
        """Those with `cleanup.policy` COMPACTION."""
        self.queues: dict[QueueKey, CompactedQueue] = {}
        self._positions = Positions()
        self._running: CompactedQueue | None = None
        self._refused: Step | None = None
        """A step that the disk has refused: it is done again."""
        self._saved: dict[QueueKey, int] = {}
        self._follow_at: Millis = 0
        self._flush_at: Millis = 0
        self._flushing = False
        self._cut = False
        """The table on disk may say that more is durable than a cut has left."""

    # ---- start and stop ----

    def load(self, now: Millis, *, crashed: bool) -> list[str]:
        """Take in all files; what is to be told to people. CorruptLog when they can't be read."""
        disk = self._disk
        notes = [note.text for note in self._positions.load(disk.read(Positions.PATH)) if isinstance(note, Note)]
        durable: dict[str, int] = {}
        try:
            found = fastjson.loads(disk.read(DURABLE_PATH) or b"{}")
            durable = {str(name): max(0, int(offset)) for name, offset in found.items()}
        except (ValueError, TypeError, AttributeError) as error:
            notes.append(f"{DURABLE_PATH}: can't be read, the last files are checked instead: {error}")
        for topic in disk.list(LOGS):
            for number in disk.list(f"{LOGS}/{topic}".rstrip("/")) if topic.endswith("/") else []:
                if number.endswith("/") and number[:-1].isascii() and number[:-1].isdigit():
                    queue = self._made((topic[:-1], int(number[:-1])), now)
                    notes += queue.load(durable.get(queue.name), crashed=crashed)
        shorter = crashed and [queue for queue in self.queues.values() if queue.fit_the_log()]
        if crashed:
            for queue in self.queues.values():
                self._sync(queue.parts.take_dirty())
            self._sync([*self._store.folders.take()])
        self._saved = {key: queue.durable for key, queue in self.queues.items()}
        if shorter:
            save_durably(disk, DURABLE_PATH, self._table(self._saved))
        return notes

    @staticmethod
    def _sync(files: list[Syncable]) -> None:
        for file in files:
            file.sync()

    def close(self) -> None:
        """Make all durable; OSError when it can't be."""
        if not self.queues:
            return
        for queue in self.queues.values():
            queue.abandon()
            queue.waits = False
            queue.catch_up(EVERYTHING)
            self._sync(queue.parts.take_dirty())
            queue.durable = queue.taken
        self._sync([*self._store.folders.take()])
        save_durably(self._disk, DURABLE_PATH, self._table({k: q.durable for k, q in self.queues.items()}))

    def _made(self, key: QueueKey, now: Millis) -> CompactedQueue:
        queue = self.queues[key] = CompactedQueue(self._store, self._disk, *key, self._file_bytes, self._most)
        interval = self._store.config.compaction_schedule_internal
        queue.due = now + interval + 1_000 + zlib.crc32(queue.name.encode()) % interval  # not all at once
        queue.position = self._positions.get(queue.name, -1)
        return queue

    # ---- reading ----

    def has(self, topic: str) -> bool:
        """Is a topic read from here?"""
        return topic in self.topics and self._store.config.enable_compaction

    def read(self, topic: str, queue_id: int, offset: int, max_messages: int, max_bytes: int) -> ReadResult:
        """Messages of a queue, as far as they stay; without new ones while the disk has no room for them."""
        queue = self.queues.get((topic, queue_id))
        if queue is None and self._store.queues.get(topic, queue_id) is not None:
            queue = self._made((topic, queue_id), self._follow_at)
        if queue is None:
            return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [])
        return queue.read(offset, max_messages, max_bytes)

    # ---- time ----

    def needed_from(self) -> int:
        """The log is needed from there on, for what is not durable here."""
        needed = EVERYTHING
        if not self.has_any:
            return needed
        for key in self.queues:
            stored = self._store.queues.get(*key) if key[0] in self.topics else None
            if stored is not None:
                unit = stored.unit(max(self._saved.get(key, 0), stored.first_offset))
                needed = min(needed, unit.physical_offset) if unit is not None else needed
        return needed

    @property
    def has_any(self) -> bool:
        """Is anything to be done at all?"""
        return bool(self.topics) and self._store.config.enable_compaction

    def next_deadline(self) -> Millis | None:
        if not self.has_any:
            return None
        if self._running is not None and self._running.state in ("mapping", "copying"):
            return self._follow_at - FOLLOW_MS
        return self._follow_at

    def tick(self, now: Millis) -> list[Effect]:
        """Follow, flush, and go on with a compaction, each by so much."""
        if not self.has_any:
            return []
        try:
            effects = [*self._refused_again(), *self._follow(now)] if now >= self._follow_at else []
            return effects + self._compact(now)
        except OSError as error:
            if self._running is not None:
                self._running.abandon()
                self._running.due = now + RETRY_MS
                self._running = None
            self._follow_at = now + RETRY_MS
            return [Note("error", f"compaction: no room on the disk, tried again later: {error}")]

    def _follow(self, now: Millis) -> list[Effect]:
        self._follow_at = now + FOLLOW_MS
        for key, queue in self.queues.items():
            if queue.lost:
                self._saved[key], self._cut, queue.lost = queue.durable, True, False
        positions: list[Effect] = []
        if self._cut and not self._flushing:
            save_durably(self._disk, DURABLE_PATH, self._table(self._saved))
            self._cut = False
            positions = self._positions_back()
            for queue in self.queues.values():
                queue.waits = False
        for key in [key for key in self._store.queues.table if key[0] in self.topics]:
            queue = self.queues.get(key) or self._made(key, now)
            if not queue.catch_up(STEP_BYTES):
                self._follow_at = now
        if self._flushing or self._cut or now < self._flush_at:
            return positions
        self._flush_at = now + FLUSH_MS
        taken = {key: queue.taken for key, queue in self.queues.items()}
        if all(queue.taken == queue.durable and not queue.parts.dirty for queue in self.queues.values()):
            return positions
        files: list[Syncable] = [file for queue in self.queues.values() for file in queue.parts.take_dirty()]
        files += self._store.folders.take()
        self._flushing = True
        return [*positions, Flush(files, [SaveState(DURABLE_PATH, self._table(taken), [Feed(Followed(taken))])])]

    def _positions_back(self) -> list[Effect]:
        """No position stays behind the end of its queue: an empty message that counts as mapped goes."""
        high = [queue for queue in self.queues.values() if self._positions.get(queue.name, -1) > queue.position]
        for queue in high:
            self._positions[queue.name] = queue.position
        return [self._positions.saved([])] if high else []

    @staticmethod
    def _table(durable: Mapping[QueueKey, int]) -> bytes:
        return fastjson.dumps({f"{topic}_{queue_id}": offset for (topic, queue_id), offset in durable.items()})

    def _compact(self, now: Millis) -> list[Effect]:
        if self._running is None:
            for queue in self.queues.values():
                if now >= queue.due and queue.topic in self.topics:
                    queue.due = now + self._store.config.compaction_schedule_internal
                    if queue.begin():
                        self._running = queue
                        break
        elif self._running.state in ("mapping", "copying"):
            return self._running.step()
        elif self._running.state == "idle":
            self._running = None
        return []

    def handle(self, event: StoreEvent) -> list[Effect]:
        """Something became durable."""
        if isinstance(event, Followed):
            self._flushing = False
            for key, offset in event.durable.items():
                queue = self.queues.get(key)
                if queue is not None:
                    queue.durable = self._saved[key] = min(offset, queue.taken)
        elif isinstance(event, Step) and self.queues.get((event.queue.topic, event.queue.queue_id)) is event.queue:
            try:
                return event.queue.stepped(event, self._positions)
            except OSError as error:
                self._refused = event
                return [Note("error", f"compaction of {event.queue.name}: tried again later: {error}")]
        return []

    def _refused_again(self) -> list[Effect]:
        """The step that the disk has refused."""
        event, self._refused = self._refused, None
        return self.handle(event) if event is not None else []

    # ---- topics, cuts ----

    def forget(self, topic: str) -> list[Effect]:
        """A topic was deleted. OSError when its files can't be removed."""
        gone = [key for key in self.queues if key[0] == topic]
        for key in gone:
            queue = self.queues.pop(key)
            if self._running is queue:
                self._running = None
            self._saved.pop(key, None)
            self._positions.pop(queue.name, None)
            queue.parts.remove()
        return [self._positions.saved([]), SaveState(DURABLE_PATH, self._table(self._saved))] if gone else []

    def cut(self) -> None:
        """The consume queues were cut."""
        for key, queue in self.queues.items():
            if queue.cut():
                self._saved[key], self._cut = queue.durable, True
        if self._cut:
            for queue in self.queues.values():
                queue.waits = True

    def validate(self) -> None:
        """AssertionError when something is broken."""
        for key, queue in self.queues.items():
            assert queue.durable <= queue.taken, f"{key}: durable up to {queue.durable}, taken up to {queue.taken}"
            assert UNIT_BYTES * max((part.count for part in queue.parts.all), default=0) <= self._file_bytes[1]
