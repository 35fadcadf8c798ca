"""One compacted queue: it follows its consume queue, is read instead of it, and is compacted now and then.

    idle → mapping: the last offset of each key, over the full pairs that are new
         → copying: what stays of all full pairs goes into new ones, in a folder below
         → syncing → listed: a file says, durably, which pairs take the place of which
         → placed: they do; the position is saved, the folder goes → idle

Each step looks at so many bytes (`STEP_BYTES`) and then lets others have their turn. A start that finds the list puts
the new pairs in place; one that finds none removes them. A message stays unless its key has a later one among those
that were mapped, or it is mapped itself and empty: an empty body takes its key away, as in the original.

    taken ≤ the consume queue's `shown`;   durable ≤ taken: the log is needed from the record of `durable` on
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

from perseid.base.errors import CorruptLog
from perseid.base.machine import Buffer, Effect, Feed, Flush, Millis, Note, SaveState, Syncable
from perseid.disk.port import Disk
from perseid.store.batch_queue import BatchUnit
from perseid.store.commit_log import CommitLog
from perseid.store.compaction.parts import LOGS, Part, Parts
from perseid.store.config import StoreConfig
from perseid.store.dispatch import tag_code_of
from perseid.store.queues import Queues
from perseid.store.results import ReadResult, ReadStatus, StoreEvent
from perseid.store.segments import Folders
from perseid.wire import fastjson
from perseid.wire import properties as props
from perseid.wire.record import PHYSICAL_OFFSET_AT, decode

STEP_BYTES = 1 << 20
"""Of records that one turn looks at for a compaction, or takes from the log."""
READ_BYTES = 8 << 20
"""Of records that a read takes from the log before it looks."""
ENTRY_BYTES = 24
"""Of the original's map of keys, for each: its setting counts by them."""
LEAST_ENTRIES = 100
COMPACTING, REPLICATING = "compacting", "replicating"
LIST = "perseid-list"


class Step(StoreEvent):
    """Fed back when what a compaction has written so far is durable."""

    __slots__ = ("number", "queue")

    def __init__(self, queue: CompactedQueue, number: int) -> None:
        self.queue = queue
        self.number = number


class Compacting(Protocol):
    """The store whose queue is compacted."""

    config: StoreConfig
    log: CommitLog
    folders: Folders
    queues: Queues


class CompactedQueue:
    """One queue of a topic with `cleanup.policy` COMPACTION."""

    def __init__(
        self, store: Compacting, disk: Disk, topic: str, queue_id: int, file_bytes: tuple[int, int], most: int
    ) -> None:
        """`most`: keys of one compaction."""
        self._store = store
        self._disk = disk
        self._file_bytes = file_bytes
        self._most = most
        self.topic = topic
        self.queue_id = queue_id
        self.parts = Parts(disk, store.folders, topic, queue_id, file_bytes)
        self.position = -1
        """The last offset that a compaction has mapped."""
        self.taken = 0
        """Messages before it were looked at."""
        self.durable = 0
        self.waits = False
        """Nothing is taken until it is durable that less is here than was before."""
        self.lost = False
        """What was here was another topic's of the same name: the service does not know yet."""
        self.due: Millis = 0
        self.state = "idle"
        self._unclean = False
        """Files are left of a compaction that was given up."""
        self._number = 0
        self._new: Parts | None = None
        self._old: list[Part] = []
        self._keys: dict[str, int] = {}
        self._last = -1
        self._left: Iterator[tuple[Part, BatchUnit]] = iter(())

    @property
    def name(self) -> str:
        """In the original's tables."""
        return f"{self.topic}_{self.queue_id}"

    # ---- loading ----

    def load(self, durable: int | None, *, crashed: bool) -> list[str]:
        """Take in the files; what is to be told to people. After a crash what is not known to be `durable` is left out:
        the log has it."""
        store, disk, parts = self._store, self._disk, self.parts
        below = f"{parts.logs}/{COMPACTING}"
        text = self._disk.read(f"{below}/{LIST}")
        if text is not None:
            self._place(_listed(f"{below}/{LIST}", text))
            for at in (parts.logs, parts.units):
                disk.sync_dir(at)  # before the list goes
        for folder in (COMPACTING, REPLICATING):
            for at in (parts.logs, parts.units):
                if disk.list(f"{at}/{folder}"):
                    disk.remove(f"{at}/{folder}")
                    store.folders.touch(at)
        note = parts.load(crashed=crashed)
        if crashed and durable is not None:
            parts.cut(durable)
        elif crashed and parts.all:
            parts.check(parts.all[-1])
        self.taken = self.durable = parts.end
        self.position = min(self.position, self.taken - 1)
        return [note] if note else []

    # ---- following ----

    def catch_up(self, most_bytes: int) -> bool:
        """Take what the consume queue has by now; False when there is more."""
        store = self._store
        queue = store.queues.get(self.topic, self.queue_id)
        if queue is None:
            return True
        shown, done = queue.shown_offset, 0
        if (queue.next_offset < self.taken and queue.first_offset == 0) or self._is_other():
            self._begin_anew()  # the topic was made again, or that was cut off
            self.waits = self.lost = True
        if self.waits:
            return True
        self.taken = max(self.taken, queue.first_offset)
        while self.taken < shown:
            if done >= most_bytes:
                return False
            unit = queue.unit(self.taken)
            view = store.log.view(unit.physical_offset, unit.size) if unit is not None else None
            if view is not None:
                self._take(view)
                done += len(view)
            self.taken += 1
        return True

    def _begin_anew(self) -> None:
        self.abandon()
        self.parts.remove()
        self.taken = self.durable = 0
        self.position = -1

    def _is_other(self) -> bool:
        """Is the newest message here not the one that the consume queue has there?"""
        part = next((part for part in reversed(self.parts.all) if part.count), None)
        unit = part.unit(part.count - 1) if part is not None else None
        queue = self._store.queues.get(self.topic, self.queue_id)
        there = queue.unit(unit.base) if queue is not None and unit is not None else None
        if part is None or unit is None or there is None:
            return False
        mine, its = part.record(unit), self._store.log.view(there.physical_offset, there.size)
        behind = PHYSICAL_OFFSET_AT + 8  # where it stands is different
        return its is None or mine[:PHYSICAL_OFFSET_AT] != its[:PHYSICAL_OFFSET_AT] or mine[behind:] != its[behind:]

    def fit_the_log(self) -> bool:
        """At the start after a crash: messages that were taken before the log had them durably, and that it has lost,
        go here too, since others will have their offsets. False: there are none."""
        queue = self._store.queues.get(self.topic, self.queue_id)
        if (queue.next_offset if queue is not None else 0) >= self.taken:
            return False
        if queue is None or queue.first_offset == 0:  # all went, or it was made again: the log has what there is
            self._begin_anew()
            return True
        return self.cut()

    def _take(self, view: memoryview) -> None:
        record = decode(view, check_crc=False)
        if record.queue_offset == self.taken and (props.get(record.properties, props.KEYS) or "").strip():
            tag = tag_code_of(record.topic, record.properties, record.store_timestamp, ())
            self.parts.put(view, tag, record.store_timestamp, record.queue_offset)

    def cut(self) -> bool:
        """The consume queue was cut: what is behind its end goes here, too. False: nothing is."""
        queue = self._store.queues.get(self.topic, self.queue_id)
        end = queue.next_offset if queue is not None else self.taken
        if end < self.taken:
            self.abandon()
            self.parts.cut(end)
            self.taken, self.durable, self.position = end, min(self.durable, end), min(self.position, end - 1)
            return True
        return False

    # ---- reading ----

    def read(self, offset: int, max_messages: int, max_bytes: int) -> ReadResult:
        """Messages from an offset or the next one that is there on; tags are not looked at, as in the original."""
        with suppress(OSError):  # no room for more: what there is is read, and `CompactionService.tick` tells of it
            self.catch_up(READ_BYTES)
        parts, config = self.parts, self._store.config
        low, high = max(parts.begin, 0), parts.end
        if high == 0:
            return ReadResult(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, low, high, [])
        if offset == high:
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_ONE, offset, low, high, [])
        if offset > high:
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_BADLY, high if low else 0, low, high, [])
        buffers: list[Buffer] = []
        total, next_offset = 0, offset
        most = min(max_messages, config.max_transfer_count_on_message_in_memory)
        most_bytes = min(max_bytes, config.max_transfer_bytes_on_message_in_memory)
        for part, unit in parts.units_from(offset):
            if buffers and (len(buffers) >= most or total + unit.size > most_bytes):
                break
            buffers.append(part.record(unit))
            total += unit.size
            next_offset = unit.end
        return ReadResult(ReadStatus.FOUND, next_offset, low, high, buffers, len(buffers), total)

    # ---- compacting ----

    def begin(self) -> bool:
        """Begin to compact, if full pairs are there that no compaction has mapped. OSError when the files of one that
        was given up can't be removed."""
        old = self.parts.all[:-1]
        if self.state != "idle" or not any(part.last > self.position for part in old):
            return False
        if self._unclean:
            self._clean()
        self._number += 1
        self._old, self._keys, self._last = old, {}, self.position
        self._left = ((p, p.unit(n)) for p in old if p.last > self.position for n in range(p.count))
        self.state = "mapping"
        return True

    def step(self) -> list[Effect]:
        """Go on for a turn. OSError when the disk has no room."""
        done = 0
        for part, unit in self._left:
            if self.state == "mapping":
                self._map(part, unit)
                if len(self._keys) >= self._most:
                    self._left = iter(())
                    break
            else:
                self._copy(part, unit)
            done += unit.size
            if done >= STEP_BYTES:
                return []
        if self.state == "mapping":
            below = f"/{COMPACTING}"
            self._new = Parts(
                self._disk, self._store.folders, self.topic, self.queue_id, self._file_bytes, below
            )
            self._left = ((part, part.unit(n)) for part in self._old for n in range(part.count))
            self.state = "copying"
            return []
        assert self._new is not None, "nothing was copied"
        self.state = "syncing"
        files: list[Syncable] = [*self._new.take_dirty(), *self._store.folders.take()]
        return [Flush(files, [Feed(Step(self, self._number))])]

    def _map(self, part: Part, unit: BatchUnit) -> None:
        if unit.base > self.position:
            record = decode(part.record(unit), check_crc=False)
            self._keys[record.props.get(props.KEYS, "")] = self._last = unit.base

    def _copy(self, part: Part, unit: BatchUnit) -> None:
        view = part.record(unit)
        record = decode(view)
        later = self._keys.get(record.props.get(props.KEYS, ""), -1)
        if unit.base > self._last or (unit.base >= later and record.body):
            assert self._new is not None
            self._new.put(view, unit.tag_code, unit.store_timestamp, unit.base)

    def stepped(self, event: Step, positions: Positions) -> list[Effect]:
        """What was written is durable: go on. OSError when the disk refuses; the same event goes on later."""
        if event.number != self._number:
            return []
        if self.state == "cleaning":
            self.state = "idle"
            return []
        assert self._new is not None, f"{self.name}: nothing to go on with in state {self.state}"
        below = f"{self.parts.logs}/{COMPACTING}"
        if self.state == "syncing":
            self.state = "listed"
            listed = {"old": [part.base for part in self._old], "new": [part.base for part in self._new.all]}
            return [SaveState(f"{below}/{LIST}", fastjson.dumps(listed), [Feed(event)])]
        if self.state == "listed":
            kept = [part for part in self.parts.all if part not in self._old]
            self._place({"old": [p.base for p in self._old], "new": [p.base for p in self._new.all]})
            dirty = self.parts.dirty
            self.parts.load()
            self.parts.all = [part for part in self.parts.all if part.base < kept[0].base] + kept
            self.parts.dirty = {base: part for base, part in dirty.items() if part in kept}
            self.state = "placed"  # not before: what a disk refuses is done again
            self.position = self._last
            positions[self.name] = self.position
            return [Flush([*self._store.folders.take()], [positions.saved([Feed(event)])])]
        for at in (self.parts.logs, self.parts.units):
            self._disk.remove(f"{at}/{COMPACTING}")
            self._store.folders.forget(f"{at}/{COMPACTING}")
            self._store.folders.touch(at)
        self._new, self._old, self._keys = None, [], {}
        self._number += 1
        self.state = "cleaning"
        return [Flush([*self._store.folders.take()], [Feed(Step(self, self._number))])]

    def _place(self, listed: dict[str, list[int]]) -> None:
        """Let the new pairs take the place of the old ones. Done again after a crash it comes to the same."""
        disk, parts = self._disk, self.parts
        for at in (parts.logs, parts.units):
            for base in parts.names(f"{at}/{COMPACTING}"):
                name = f"{base:020d}"
                if base not in listed["new"]:
                    raise CorruptLog(f"{at}/{COMPACTING}/{name}", 0, "the list of the compaction does not name it")
                disk.rename(f"{at}/{COMPACTING}/{name}", f"{at}/{name}")
            for base in listed["old"]:
                if base not in listed["new"]:
                    disk.remove(f"{at}/{base:020d}")
            self._store.folders.touch(at)

    def abandon(self) -> None:
        """Give up a compaction that is not listed yet; its files go with the next one, or the next start."""
        if self.state in ("mapping", "copying", "syncing"):
            self._number += 1
            self._left, self._keys, self._old, self._new = iter(()), {}, [], None
            self.state, self._unclean = "idle", True
            with suppress(OSError):  # `begin` tries again
                self._clean()

    def _clean(self) -> None:
        """Remove what a compaction left that was given up."""
        for at in (self.parts.logs, self.parts.units):
            self._disk.remove(f"{at}/{COMPACTING}")
            self._store.folders.forget(f"{at}/{COMPACTING}")
        self._unclean = False


def _listed(path: str, text: bytes) -> dict[str, list[int]]:
    """What a list says; CorruptLog when it can't be read."""
    try:
        found = fastjson.loads(text)
        return {name: [int(base) for base in found[name]] for name in ("old", "new")}
    except (ValueError, KeyError, TypeError) as error:
        why = f"the list of a compaction can't be read: {error}. Bring the file back from a backup"
        raise CorruptLog(path, 0, why) from error


class Positions(dict[str, int]):
    """How far compactions have come, by queue, as the original saves it."""

    PATH = LOGS.rpartition("/")[0] + "/position-checkpoint"

    def saved(self, then: list[Effect]) -> SaveState:
        """Save them."""
        return SaveState(self.PATH, fastjson.dumps({"queueOffsetMap": dict(self)}), then)

    def load(self, text: bytes | None) -> list[Effect]:
        """Take up what was saved; without it the next compaction maps everything anew."""
        if text is None:
            return []
        try:
            found = fastjson.loads(text)["queueOffsetMap"]
            self.update({str(name): int(offset) for name, offset in found.items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return [Note("error", f"{self.PATH}: can't be read, compactions begin anew: {error}")]
        return []
