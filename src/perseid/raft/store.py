"""The message store of a broker in a group: an append is an entry, and what a queue has is committed (dledger.md §9).

    append (leader) → entry, pending → committed → dispatched: unit in its queue, keys in the index, readers see it

Queue offsets are given when a message is appended, so a queue's next offset is its end and what is pending of it. That
is only known while every entry of the log is dispatched or was appended by this leader: a broker becomes master when
all is dispatched, and forgets what is pending when it is master no longer.

    dispatched ≤ committed;   pending: entries (committed, end], all of this term
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from perseid.base.deadlines import soonest
from perseid.base.machine import Buffer, Effect, Flush, Millis
from perseid.core.layout import UNIT_BYTES
from perseid.disk.port import Disk
from perseid.raft.commit_log import EntryLog, EntryWalk, starts_in
from perseid.raft.files import FileLog
from perseid.raft.log import LogRefused
from perseid.raft.node import Raft
from perseid.raft.runs import Run
from perseid.store import inner
from perseid.store.appends import Appends
from perseid.store.commit_log import FOLDER
from perseid.store.config import StoreConfig
from perseid.store.dispatch import in_queue
from perseid.store.flushing import Flusher
from perseid.store.plain import CoreAppends
from perseid.store.replica import Replica, ReplicaRefused
from perseid.store.results import Appended, AppendRefused, LoadReport, PutStatus, QueueKey, StoreEvent
from perseid.store.store import MessageStore
from perseid.wire.dledger import ENTRY_HEADER_BYTES, Code, Entry
from perseid.wire.record import Host, Message, blank, patch

if TYPE_CHECKING:
    from perseid.core.batch import Batch
    from perseid.core.queue import Queue

MAX_DISPATCH_BYTES = 8 << 20
"""Of the log that one turn gives its units; the rest follows in the next turn."""
CHECKPOINT_MS = 20
"""After a queue could not begin anew before a checkpoint is saved."""
RETRY_MS = 1_000
"""After the disk had no room for a unit."""

REFUSALS = {
    Code.DISK_FULL: PutStatus.SERVICE_NOT_AVAILABLE,
    Code.NOT_LEADER: PutStatus.SERVICE_NOT_AVAILABLE,
    Code.LEADER_NOT_READY: PutStatus.SERVICE_NOT_AVAILABLE,
    Code.LEADER_TRANSFERRING: PutStatus.SERVICE_NOT_AVAILABLE,
    Code.LEADER_PENDING_FULL: PutStatus.OS_PAGE_CACHE_BUSY,
}
"""What an append that the group does not take is called."""


class PendingQueue:
    """What a queue will be when all that is pending of it is dispatched."""

    __slots__ = ("dirty", "end", "room")

    def __init__(self, end: int) -> None:
        self.end = end
        self.room = sys.maxsize
        """Units are made room for when they are committed."""
        self.dirty = True

    def put_many(self, units: Buffer) -> None:
        """So many units more are pending."""
        self.end += len(units) // UNIT_BYTES


class EntryAppends(CoreAppends):
    """What the compiled core gathered in one turn, as entries."""

    def __init__(self, appends: GroupAppends, batch: Batch, raft: Raft, entries: FileLog) -> None:
        super().__init__(appends, batch)
        self._raft = raft
        self._entries = entries

    def begin(self, may_order: bool, now: Millis) -> bool:
        if not self._store.writable or self._raft.may_append != Code.SUCCESS:
            return False
        try:
            at, limit = self._entries.room()
        except OSError:
            return False
        self._batch.begin(now, at, limit, may_order)
        self._batch.begin_entries(self._entries.end + 1, self._raft.member.term)
        return True

    @property
    def seen(self) -> bool:
        return False

    def commit(self, now: Millis) -> None:
        """Write what was gathered; readers see it when it is committed."""
        batch, first = self._batch, self._entries.end + 1
        run = Run(bytes(batch.records), first, batch.index - first, self._entries.pos, self._raft.member.term)
        self._raft.extend(run, _nobody_waits)
        for target in batch.touched:
            target.queue.put_many(target.units)


class GroupAppends(Appends):
    """Appends of a leader: entries, which readers see when they are committed."""

    log: EntryLog

    def __init__(self, store: GroupStore, raft: Raft, entries: FileLog) -> None:
        super().__init__(
            store.log, store.index, store.queues, store.flusher, store.condition, store.gate, store.config,
            store.store_host,
        )  # fmt: skip
        self._raft = raft
        self._entries = entries
        self._next: dict[QueueKey, PendingQueue] = {}
        """Queues that got a message from us and whose last one may be pending."""
        self.on_entry: Callable[[str, int], None] | None = None
        """Told topic and size of each message that `append` has made an entry of."""

    def append(self, message: Message, now: Millis) -> Appended:
        key, count = (message.topic, message.queue_id), 1
        if message.topic in self.queues.batch_topics:
            self.check_writable()
            count = inner.count_of(message.properties)
            message.properties = inner.sealed(message.properties, self._next_offset(key))
        record = self.encoded(message, now)
        offset = self._next_offset(key) if in_queue(message.sys_flag) else 0
        done = self._append_record(record, offset, now)
        if in_queue(message.sys_flag):
            self._appended(key, done, count)
        return done

    def append_batch(self, messages: list[Message], now: Millis) -> list[Appended]:
        """Next to one another, if the disk has room for all; else those before it are stored, as in the original."""
        if not messages:
            raise AppendRefused(PutStatus.MESSAGE_ILLEGAL, "a batch of no messages")
        key = messages[0].topic, messages[0].queue_id
        for message in messages:
            if (message.topic, message.queue_id) != key or not in_queue(message.sys_flag):
                raise AppendRefused(PutStatus.MESSAGE_ILLEGAL, "a batch is of one topic and one queue")
        records = [self.encoded(message, now) for message in messages]
        if not self._raft.has_room(len(records)):
            raise AppendRefused(PutStatus.OS_PAGE_CACHE_BUSY, "too many appends wait for a quorum")
        placed = []
        for record in records:
            offset = self._next_offset(key)
            placed.append(self._append_record(record, offset, now))
            self._appended(key, placed[-1])
        return placed

    def _next_offset(self, key: QueueKey) -> int:
        pending = self._next.get(key)
        return self.queues.get_or_make(*key).next_offset if pending is None else pending.end

    def _pending(self, key: QueueKey, end: int) -> None:
        """The next offset of a queue is `end`."""
        queue = self._next.get(key)
        if queue is None:
            self._next[key] = PendingQueue(end)
        else:
            queue.end = end

    def _appended(self, key: QueueKey, done: Appended, count: int = 1) -> None:
        self._pending(key, done.queue_offset + count)
        if self.on_entry is not None:
            self.on_entry(key[0], done.size)

    def _append_record(self, record: bytearray, queue_offset: int, now: Millis) -> Appended:
        size = len(record)
        try:
            pos = self._entries.place(ENTRY_HEADER_BYTES + size)
        except LogRefused as refused:
            raise AppendRefused(PutStatus.MESSAGE_ILLEGAL, str(refused)) from None
        patch(record, queue_offset, pos + ENTRY_HEADER_BYTES, now)
        code = self._raft.append(bytes(record), _nobody_waits)
        if code != Code.SUCCESS:
            known = Code(code)
            raise AppendRefused(REFUSALS.get(known, PutStatus.UNKNOWN_ERROR), f"the group says {known.name}")
        return Appended(pos + ENTRY_HEADER_BYTES, size, queue_offset, now)

    @property
    def plain_queues(self) -> Mapping[QueueKey, Queue]:
        return self._next

    @property
    def end(self) -> int:
        return self._entries.pos

    def core_appends(self, batch: Batch) -> CoreAppends:
        return EntryAppends(self, batch, self._raft, self._entries)

    def plain_queue(self, topic: str, queue_id: int) -> None:
        """Without the core a message of a group's log takes the ordinary way."""

    # ---- what is pending ----

    def forget_pending(self) -> None:
        """This broker leads no longer."""
        self._next.clear()

    def learn_pending(self) -> None:
        """This broker is about to append behind entries of others that are not committed: they have queue offsets."""
        walk = EntryWalk(self.log, self.log.end, self._entries.end_of(self._entries.end))
        for record in walk:
            if in_queue(record.sys_flag):
                _, count = inner.span(record) or (record.queue_offset, 1)
                self._pending((record.topic, record.queue_id), record.queue_offset + count)


class GroupFlusher(Flusher):
    """The group syncs its entries, which are the log."""

    def flush(self, then: list[Effect]) -> Flush:
        """Nothing of ours. What is saved behind it may stand for entries that only others have on disk; they come
        back."""
        return Flush([], then)


class GroupStore(MessageStore):
    """A store whose log is that of a group. `raft` is not yet started when the store is made."""

    log: EntryLog
    appends: GroupAppends

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        store_host: Host,
        raft: Raft,
        entries: FileLog,
        begin: Callable[[Millis], None],
    ) -> None:
        """`begin` starts the member; it is called with the folder locked."""
        self._raft = raft
        self._entries = entries
        super().__init__(disk, config, store_host, EntryLog(disk, config, entries))
        self._begin = begin
        self._replica = Replica(self)
        self._retry_at: Millis = 0
        self._first = 0

    def _new_flusher(self) -> Flusher:
        return GroupFlusher(self.config, self.log, self.index, self.folders, self.queues, self.gate)

    def _new_appends(self) -> GroupAppends:
        return GroupAppends(self, self._raft, self._entries)

    def _load(self, now: Millis) -> LoadReport:
        if self.log.divided and not starts_in(self.disk, self._entries.data.folder):
            self._end_old_log(now)
        self._begin(now)
        self.log.committed(self._raft.committed)
        report = super()._load(now)
        self._first = self.log.start
        return report

    def _end_old_log(self, now: Millis) -> None:
        """This store had no group until now: recover its log, and let it end with its last file."""
        old = MessageStore(self.disk, self.config, self.store_host)
        old._load(now)  # noqa: SLF001 (the folder is locked already)
        log, end = old.log, old.log.end
        if end < self.log.divided:
            rest = blank(self.log.divided - end)
            last = log.segments.file(log.segments.starts[-1])
            last.write(end - log.segments.starts[-1], rest)
            last.sync()
            log.end = self.log.divided
        old._close()  # noqa: SLF001 (and stays locked)

    # ---- dispatching ----

    @property
    def behind(self) -> bool:
        """Is something committed that has no unit yet?"""
        return self.log.end < self.log.top

    @property
    def settled(self) -> bool:
        """Every entry of the log is committed, and has its unit."""
        return self._raft.committed == self._entries.end and not self.behind

    def dispatch(self, now: Millis) -> str:
        """Give what is committed its units, up to `MAX_DISPATCH_BYTES`; what is to be told to people, "" for
        nothing."""
        if not self.behind:
            return ""
        log, notes = self.log, list[str]()
        if now < self._retry_at or self.condition.why_not_loaded == "the store is not loaded":
            return ""
        limit = log.end + MAX_DISPATCH_BYTES
        while self.behind and log.end < limit:
            view = log.segments.view(log.end, log.top - log.end)
            taken = self._replica.enter_entries(view, log.end, log.top)
            if taken:
                log.dispatched(log.end + taken)
            elif not self._dispatch_one(now, notes):
                break
        return "; ".join(notes[:3])

    def _dispatch_one(self, now: Millis, notes: list[str]) -> bool:
        """Give one more record its unit, in the ordinary way; False when there is no room for it."""
        log = self.log
        walk = EntryWalk(log, log.end)
        record = next(iter(walk), None)
        notes += walk.strange
        if record is None:
            log.dispatched(walk.offset)
            return True
        if not self._replica.may_enter(record):
            self._retry_at = now + CHECKPOINT_MS
            return False
        try:
            self._replica.enter([record])
        except ReplicaRefused as refused:
            self.flusher.let_go()
            notes.append(f"{refused}; it has no place in its queue")
        except OSError as error:
            self._retry_at = now + RETRY_MS
            notes.append(f"at {record.physical_offset}: no room for its unit, tried again: {error}")
            return False
        log.dispatched(record.physical_offset + record.size)
        return True

    # ---- time ----

    def handle(self, event: StoreEvent) -> list[Effect]:
        effects = super().handle(event)
        if self.log.start != self._first:
            self._first = self.log.start
            self._entries.follow_start(self._first)
        return effects

    @property
    def dispatch_at(self) -> Millis | None:
        """When `dispatch` is to be called again, if something has no unit yet."""
        return self._retry_at if self.behind else None

    def next_deadline(self) -> Millis | None:
        return soonest(super().next_deadline(), self.dispatch_at)


def divided_offset(disk: Disk, config: StoreConfig) -> int:
    """Where the log of an earlier life without a group ends, and that of a group begins; 0: there is none."""
    old = starts_in(disk, FOLDER)
    return old[-1] + config.commit_log_file_bytes if old else 0


def _nobody_waits(code: int, entry: Entry) -> None:
    """Who waits for an append waits in the broker's books (`Acks`)."""
