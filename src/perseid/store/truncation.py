"""Cutting off the end of a log, so that a crash at any time leaves a log that ends at the old place or at the new one.

    checkpoint promises no more than the new end, durably → cut → all of it durable → go on

- The checkpoint goes first: a start refuses a log that ends before what the checkpoint says was durable.
- Behind the new end are zeros, as always. Until they are durable nothing is written there: a record between new bytes
  and old ones would lead a recovery from one to the other (B13).
- A crash on the way leaves a longer log, with nothing else changed: whoever asked for the cut asks again.

Units and keys go with their records: a queue offset that was cut may be given again, to another message.

A queue all of whose units go may have begun anew with the first of them, when its topic was deleted and made again:
then what stays of the log may have records of the old one, and they are the queue's again. Nothing but the log knows,
so it is looked through first, a part at a time:

    look through what stays → checkpoint: a start reads from the first such record on → cut, units of those → durable
"""

from __future__ import annotations

from typing import Protocol

from perseid.base.machine import Effect, Feed, Flush, SaveState, Syncable
from perseid.store import checkpoint as checkpoints
from perseid.store.consume_queue import BLANK_UNIT, UNIT, ConsumeQueue
from perseid.store.dispatch import in_queue, units_of
from perseid.store.recovery import Recovering, bring_back
from perseid.store.results import QueueKey, StoreEvent
from perseid.store.segments import Folders

LOOK_BYTES = 4 << 20
"""So much of the log is looked through in one turn."""


class Looked(StoreEvent):
    """Fed back between two parts of the log that is looked through for records of queues that lose all their units."""

    __slots__ = ("at", "end", "then")

    def __init__(self, at: int, end: int, then: list[Effect]) -> None:
        self.at = at
        self.end = end
        self.then = then


class Cut(StoreEvent):
    """Fed back when the checkpoint promises nothing any more of what is to be cut."""

    __slots__ = ("end", "then")

    def __init__(self, end: int, then: list[Effect]) -> None:
        self.end = end
        self.then = then


class Truncating(Recovering, Protocol):
    """The store that is cut."""

    folders: Folders

    def truncated(self, end: int) -> None:
        """Log, queues and index end there now."""


class Truncation:
    """Cuts one store."""

    def __init__(self, store: Truncating) -> None:
        self._store = store
        self.under_way = False
        self._emptied: set[QueueKey] = set()
        """Queues that lose all their units."""
        self._old: dict[QueueKey, int] = {}
        """Those of them of which records stay, and where the first one stands."""

    def begin(self, end: int, then: list[Effect]) -> list[Effect]:
        """Ask for a log that ends at `end`; `then` is carried out when it durably does. Where the log begins later,
        nothing of it stays, and what comes next may begin anywhere."""
        log, queues = self._store.log, self._store.queues.table
        assert 0 <= end <= log.end, f"cut at {end}, the log is [{log.start}, {log.end})"
        self.under_way = True
        self._old = {}
        if end <= log.start:
            return self._promise(0, then)
        self._emptied = {key for key, queue in queues.items() if _begins_behind(queue, end)}
        return self._look(Looked(log.start, end, then)) if self._emptied else self._promise(end, then)

    def _look(self, event: Looked) -> list[Effect]:
        """Look through a part of what stays, for records of queues that lose all their units."""
        log, config = self._store.log, self._store.config
        begin = max(event.at, log.start)  # old files may go meanwhile
        walk, stop = log.walk(begin), min(begin + LOOK_BYTES, event.end)
        for record in walk:
            if walk.offset >= stop:
                break
            for key, _ in units_of(record, lmq=config.lmq) if in_queue(record.sys_flag) else ():
                if key in self._emptied:
                    self._old.setdefault(key, walk.offset)
        if begin < walk.offset < event.end:
            return [Flush([], [Feed(Looked(walk.offset, event.end, event.then))])]  # others have their turn
        return self._promise(event.end, event.then)

    def _promise(self, end: int, then: list[Effect]) -> list[Effect]:
        flusher = self._store.flusher
        if self._old:  # their units are not durable before the cut is: a start has to read their records
            flusher.hold_back(min(self._old.values()))
        return [SaveState(checkpoints.PATH, checkpoints.encode(flusher.clamp(end)), [Feed(Cut(end, then))])]

    def handle(self, event: Looked | Cut) -> list[Effect]:
        """Go on. OSError from the disk."""
        return self._look(event) if isinstance(event, Looked) else self._cut(event)

    def _cut(self, event: Cut) -> list[Effect]:
        store, end = self._store, event.end
        log = store.log
        files = self._cut_to(end) if end else self._cut_all()
        log.last_offset = min(log.last_offset, end)
        store.truncated(end)
        self.under_way = False
        return [Flush([*files, *store.index.take_dirty(), *store.folders.take()], event.then)]

    def _cut_all(self) -> list[Syncable]:
        store = self._store
        store.log.segments.remove_from(0)
        store.log.set_end(0)
        for queue in store.queues.table.values():
            queue.segments.remove_folder()
            store.queues.dirty.pop(queue, None)
        store.queues.table.clear()
        store.index.clear()
        return []

    def _cut_to(self, end: int) -> list[Syncable]:
        store, log = self._store, self._store.log
        log.cut_off(end, everything=True)
        log.set_end(end)
        files: list[Syncable] = [*log.files_between(end, end + 1)]
        for queue in store.queues.table.values():
            first = self._first_after(queue, end)
            if first < queue.end:
                queue.cut(first)
                files += queue.segments.files_between(first * queue.unit_bytes, (first + 1) * queue.unit_bytes)
        store.index.drop_from(end)
        return files + self._bring_back()

    def _bring_back(self) -> list[Syncable]:
        """Make those queues that had begun anew what they were before; the files to be durable with the cut."""
        store = self._store
        old = {key: at for key, at in self._old.items() if key in store.queues.table}  # none was deleted since
        if not old:
            return []
        for key in old:
            store.queues.table.pop(key).segments.remove_folder()
        files = bring_back(store, old.keys(), min(old.values()))
        store.flusher.let_go()
        return files

    @staticmethod
    def _first_after(queue: ConsumeQueue, end: int) -> int:
        """The first unit of records from `end` of the log on; blank units before it go too."""
        first = queue.end
        while first > queue.min:
            unit = queue.raw(first - 1)
            if unit is not None and unit.physical_offset < end and UNIT.pack(*unit) != BLANK_UNIT:
                break
            first -= 1
        return first


def _begins_behind(queue: ConsumeQueue, end: int) -> bool:
    """Is the first unit that there ever was of a queue that of a record at `end` of the log or behind it?"""
    unit = queue.raw(0) if queue.end > queue.min == 0 else None
    return unit is not None and unit.physical_offset >= end
