"""The timer wheel: for each time at which messages wait, the first and the last of their units in the timer log.

In memory there are only slots that somebody waits in, by their time. The file has one place for each slot of two weeks
(14 days × 86400, each of `timerPrecisionMs`); a slot's place is its number modulo that. A place without a slot that is
alive holds zeros, or a slot of the past, which the original leaves there.

Invariant: no two slots that are alive have the same place (`free`).
"""

from __future__ import annotations

import errno
import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct

from perseid.base.errors import CorruptLog
from perseid.base.machine import Millis, Syncable
from perseid.disk.port import Disk, File
from perseid.store.segments import Folders

PATH = "timerwheel"
SLOT = Struct(">qqqii")
CHUNK_SLOTS = 4096
_BLANK = bytes(SLOT.size)


@dataclass(slots=True)
class Slot:
    """The units of one time: from `first`, the next to be delivered, back from `last`."""

    first: int
    last: int
    count: int
    magic: int = 0


class Wheel:
    """The slots that are alive, and the file."""

    def __init__(self, disk: Disk, folders: Folders, places: int, precision_ms: int) -> None:
        self._disk = disk
        self._folders = folders
        self._places = places
        self.precision_ms = precision_ms
        self.slots: dict[Millis, Slot] = {}
        self.count = 0
        """Messages that wait, less those that take one back."""
        self._times: list[Millis] = []
        self._placed: dict[int, Millis] = {}
        """The slots that are alive, by their place in the file."""
        self._changed: set[Millis] = set()
        self._file: File | None = None

    # ---- times ----

    def floor(self, at_ms: Millis) -> Millis:
        """The time of the slot that a time belongs to."""
        return at_ms // self.precision_ms * self.precision_ms

    @property
    def oldest(self) -> Millis | None:
        """The time of the first slot that is alive."""
        times = self._times
        while times and times[0] not in self.slots:
            heapq.heappop(times)
        return times[0] if times else None

    def free(self, at_ms: Millis) -> Millis:
        """This slot's time, or that of the next later one whose place no other slot has: only after the clock went back
        by days, or with a tiny wheel. OSError when each of the wheel's places (`timerWheelSlots`) has a slot that
        waits, and none of them is this one: there is room when one of them was delivered."""
        for _ in range(self._places):
            if self._placed.get(self._place(at_ms), at_ms) == at_ms:
                return at_ms
            at_ms += self.precision_ms
        why = f"all {self._places} slots of the timer wheel wait to be delivered (timerWheelSlots)"
        raise OSError(errno.ENOSPC, why, PATH)

    # ---- slots ----

    def add(self, at_ms: Millis, position: int, change: int) -> None:
        """A unit comes to a slot; `change`: what it adds to its count."""
        slot = self.slots.get(at_ms)
        if slot is None:
            self.slots[at_ms] = Slot(position, position, change)
            heapq.heappush(self._times, at_ms)
            self._placed[self._place(at_ms)] = at_ms
        else:
            slot.last = position
            slot.count += change
        self.count += change
        self._changed.add(at_ms)

    def take_back(self, at_ms: Millis, position: int, previous: int, change: int) -> None:
        """The last unit of a slot is gone again."""
        slot = self.slots.get(at_ms)
        if slot is None or slot.last != position:
            return
        slot.count -= change
        self.count -= change
        self._changed.add(at_ms)
        if previous < slot.first:
            self.remove(at_ms)
        else:
            slot.last = previous

    def deliver_from(self, at_ms: Millis, position: int) -> None:
        """All units of a slot before `position` are delivered; the slot goes with the last one."""
        slot = self.slots.get(at_ms)
        if slot is None:
            return
        slot.first = max(slot.first, position)
        self._changed.add(at_ms)
        if slot.first > slot.last:
            self.remove(at_ms)

    def remove(self, at_ms: Millis) -> None:
        slot = self.slots.pop(at_ms, None)
        if slot is not None:
            self.count -= slot.count
            self._changed.add(at_ms)
            del self._placed[self._place(at_ms)]

    def remove_before(self, at_ms: Millis) -> None:
        """All slots of earlier times are done with."""
        while (oldest := self.oldest) is not None and oldest < at_ms:
            self.remove(oldest)

    def clear(self) -> None:
        """Forget all slots, and remove the file."""
        self.slots.clear()
        self._changed.clear()
        self._times.clear()
        self._placed.clear()
        self.count = 0
        self._file = None
        self._disk.remove(PATH)
        self._folders.touch("")

    # ---- the file ----

    def change_all(self) -> None:
        """Write all slots anew."""
        self._changed.update(self.slots)

    @property
    def changed(self) -> bool:
        return bool(self._changed)

    def _place(self, at_ms: Millis) -> int:
        return at_ms // self.precision_ms % self._places * SLOT.size

    def take_changed(self) -> list[tuple[int, bytes]]:
        """What is to be written to the file, as it is now: offsets and bytes, what is gone first."""
        gone, there = list[tuple[int, bytes]](), list[tuple[int, bytes]]()
        for at_ms in sorted(self._changed):
            slot = self.slots.get(at_ms)
            if slot is None:
                gone.append((self._place(at_ms), _BLANK))
            else:
                text = SLOT.pack(at_ms // self.precision_ms, slot.first, slot.last, slot.count, slot.magic)
                there.append((self._place(at_ms), text))
        self._changed.clear()
        return gone + there

    def write(self, images: Iterable[tuple[int, bytes]]) -> list[Syncable]:
        """Put them into the file; what is to be synced then. OSError from the disk."""
        file = self._open()
        for offset, image in images:
            file.write(offset, image)
        return [file, *self._folders.take()]

    def _open(self) -> File:
        if self._file is None:
            if self._disk.size(PATH) is None:
                self._folders.touch("")
            self._file = self._disk.open(PATH, self._places * SLOT.size, sparse=True)
        return self._file

    @property
    def there(self) -> bool:
        """Is there a file?"""
        return bool(self._disk.size(PATH))

    def load(self, read_ms: Millis, end: int) -> bool:
        """Take up the file's slots from `read_ms` on; older ones are blanked. False: one of them names units beyond
        `end` of the timer log. CorruptLog for a file of another size."""
        size = self._disk.size(PATH)
        if not size:
            return True
        if size != self._places * SLOT.size:
            why = f"the file has {size} bytes, {self._places} slots have {self._places * SLOT.size}"
            raise CorruptLog(PATH, min(size, self._places * SLOT.size), why)
        file = self._open()
        for begin, until in file.written(0):
            first, last = begin // SLOT.size, -(-until // SLOT.size)
            for chunk in range(first, min(last, self._places), CHUNK_SLOTS):
                view = file.view(chunk * SLOT.size, min(CHUNK_SLOTS, last - chunk) * SLOT.size)
                if not any(view):
                    continue
                for number, (time, *fields) in enumerate(SLOT.iter_unpack(view), chunk):
                    if time and not self._take_up(number, time, Slot(*fields), read_ms, end):
                        return False
        self._times = sorted(self.slots)
        self._placed = {self._place(at_ms): at_ms for at_ms in self._times}
        self.count = sum(slot.count for slot in self.slots.values())
        return True

    def _take_up(self, number: int, time: int, slot: Slot, read_ms: Millis, end: int) -> bool:
        """One slot of the file."""
        at_ms = time * self.precision_ms
        if time % self._places != number or at_ms < read_ms:
            self._changed.add(at_ms if time % self._places == number else number * self.precision_ms)
            return True
        if slot.last >= end or slot.first < 0:
            return False
        self.slots[at_ms] = slot
        return True
