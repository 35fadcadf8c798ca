"""Cutting off the end of a log, so that a crash at any time leaves a log that ends at the old place or at the new one.

    checkpoint promises no more than the new end, durably → cut → all of it durable → go on

- The checkpoint goes first: a start refuses a log that ends before what the checkpoint says was durable.
- Behind the new end are zeros, as always. Until they are durable nothing is written there: a record between new bytes
  and old ones would lead a recovery from one to the other (B13).
- A crash on the way leaves a longer log, with nothing else changed: whoever asked for the cut asks again.

Units and keys go with their records: a queue offset that was cut may be given again, to another message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perseid.base.machine import Effect, Feed, Flush, SaveState, Syncable
from perseid.store import checkpoint as checkpoints
from perseid.store.consume_queue import BLANK_UNIT, UNIT, ConsumeQueue
from perseid.store.results import StoreEvent

if TYPE_CHECKING:
    from perseid.store.store import MessageStore


class Cut(StoreEvent):
    """Fed back when the checkpoint promises nothing any more of what is to be cut."""

    __slots__ = ("end", "then")

    def __init__(self, end: int, then: list[Effect]) -> None:
        self.end = end
        self.then = then


class Truncation:
    """Cuts one store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.under_way = False

    def begin(self, end: int, then: list[Effect]) -> list[Effect]:
        """Ask for a log that ends at `end`; `then` is carried out when it durably does. Where the log begins later,
        nothing of it stays, and what comes next may begin anywhere."""
        log = self._store.log
        assert 0 <= end <= log.end, f"cut at {end}, the log is [{log.start}, {log.end})"
        end = end if end > log.start else 0
        self.under_way = True
        checkpoint = self._store.flusher.clamp(end)
        return [SaveState(checkpoints.PATH, checkpoints.encode(checkpoint), [Feed(Cut(end, then))])]

    def cut(self, event: Cut) -> list[Effect]:
        """Do it. OSError from the disk."""
        store, end = self._store, event.end
        log = store.log
        files = self._cut_to(end) if end else self._cut_all()
        log.last_offset = min(log.last_offset, end)
        store.cut_done(end)
        self.under_way = False
        return [Flush([*files, *store.index.take_dirty(), *store.folders.take()], event.then)]

    def _cut_all(self) -> list[Syncable]:
        store = self._store
        store.log.segments.remove_from(0)
        store.log.set_end(0)
        for queue in store.queue_table.values():
            queue.segments.remove_folder()
            store.flusher.dirty.pop(queue, None)
        store.queue_table.clear()
        store.index.clear()
        return []

    def _cut_to(self, end: int) -> list[Syncable]:
        store, log = self._store, self._store.log
        log.cut_off(end, everything=True)
        log.set_end(end)
        files: list[Syncable] = [*log.files_between(end, end + 1)]
        for queue in store.queue_table.values():
            first = self._first_after(queue, end)
            if first < queue.end:
                queue.cut(first)
                files += queue.segments.files_between(first * queue.unit_bytes, (first + 1) * queue.unit_bytes)
        store.index.drop_from(end)
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
