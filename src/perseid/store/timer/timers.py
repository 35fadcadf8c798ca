"""Which messages wait for which time: timer log, timer wheel and checkpoint of one store.

The messages themselves stand in the topic rmq_sys_wheel_timer, whose queue is the truth; all here follows from it. Each
message of that queue is taken in once, in order: it gets a unit in the timer log, and the unit its place at the head of
its slot's chain.

    pending = the units of the slots that are alive, from each slot's `first` on
    every message before `queue_offset` is pending, or delivered, or taken back

What is durable goes forward in rounds (`begin_round`), each in this order, so that a crash at any time leaves a state
that a start can go on from:

    commit log → timer log up to L → those slots of the wheel that changed until then → checkpoint (L)

So the wheel on disk never names a unit that is not durable, and after a crash it is the one of the checkpoint with some
of the slots of the round that was under way. A start (`load`) takes up the wheel, and then the units behind L, as long
as each is of the next message of the queue: those that a slot knows already change nothing. What comes behind is cut
off, and taken in again. Where the files don't fit together (one was lost, or damaged) they are made anew from the whole
queue: then what the checkpoint calls delivered stays so, and nothing is lost.

When the commit log is cut (`cut`), the units of what goes are made zeros, durably before the log has other messages
there. A checkpoint that names them may be on disk, or on its way there: nothing is taken in until a later one is
durable (`waits`), so a start after a crash finds no unit at its end, and makes the files anew.

Source: store.md §12.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy

from perseid.base.errors import RemoteProtocolError, StoreError
from perseid.base.machine import Effect, Feed, Flush, Millis, SaveState, Syncable
from perseid.disk.port import Disk
from perseid.store.config import StoreConfig
from perseid.store.recovery import save_durably
from perseid.store.results import StoreEvent
from perseid.store.segments import Folders
from perseid.store.timer import checkpoint as checkpoints
from perseid.store.timer import log as units
from perseid.store.timer.checkpoint import TimerCheckpoint
from perseid.store.timer.log import NONE, TimerLog, Unit
from perseid.store.timer.wheel import Wheel
from perseid.wire import properties as props
from perseid.wire.hashing import java_hash
from perseid.wire.names import TIMER_TOPIC
from perseid.wire.record import Record

PRECISIONS_MS = (100, 200, 500, 1000)
FRESH_MS = 600_000
MIN_WINDOW_SLOTS, BLANK_SLOTS = 2, 60
NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII).fullmatch
_MAX_LONG = (1 << 63) - 1

RecordAt = Callable[[int], Record | None]
"""The record that begins at an offset of the commit log; None when there is none."""
QueueRecord = Callable[[int], Record | None]
"""The message at an offset of the timer topic's queue."""


class TimerLogDurable(StoreEvent):
    """Fed back when the timer log of a round is durable: its slots and its checkpoint."""

    __slots__ = ("checkpoint",)

    def __init__(self, checkpoint: TimerCheckpoint) -> None:
        self.checkpoint = checkpoint


def precision_of(wanted_ms: int) -> int:
    """The width of a slot that the original makes of a setting."""
    return max((width for width in PRECISIONS_MS if width <= wanted_ms), default=PRECISIONS_MS[0])


def time_of(record: Record) -> Millis | None:
    """When a message of the timer topic is to be delivered; None when it does not say so."""
    text = record.props.get(props.TIMER_OUT_MS, "")
    known = text.isascii() and text.isdecimal() and len(text) <= 18 and record.props.get(props.REAL_TOPIC)
    return int(text) if known else None


def asked_time(properties: dict[str, str], now: Millis) -> Millis | None:
    """When a message asks to be delivered; None: what it says is no time."""
    for name, base, factor in (
        (props.TIMER_DELAY_SEC, now, 1000),
        (props.TIMER_DELAY_MS, now, 1),
        (props.TIMER_DELIVER_MS, 0, 1),
    ):
        text = properties.get(name)
        if text is not None:
            return base + int(text) * factor if NUMBER(text) and abs(int(text)) <= _MAX_LONG else None
    return None


class TimerStore:
    """The timers of one store. Times are those of slots: multiples of the wheel's precision."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        self._disk = disk
        self._folders = Folders(disk)
        self.log = TimerLog(disk, self._folders, config.timer_log_file_bytes)
        self.wheel = Wheel(disk, self._folders, config.timer_wheel_slots, precision_of(config.timer_precision_ms))
        most = config.timer_wheel_slots // 2 - BLANK_SLOTS
        window = config.timer_roll_window_slot
        self._window_slots = window if MIN_WINDOW_SLOTS <= window <= most else max(most, MIN_WINDOW_SLOTS)
        self.queue_offset = 0
        """The next message of the queue to take in."""
        self.read_ms: Millis = 0
        self.master_offset = 0
        """Messages before this one whose time is before `read_ms` were delivered by the master."""
        self._late: dict[Millis, Millis] = {}
        """Slot → the first slot to which some of its messages would have come in time: elsewhere they wait there, so it
        is not called delivered before. After a start each slot that may have such messages counts as if it had."""
        self._late_from = 1 << 62
        self._late_ms: Millis = 0
        """Of a slave, and messages from the former on: those that its master took in when their time was over wait in
        the latter's slot, since the master may not have delivered them yet."""
        self._late_least_ms: Millis = 0
        """Of a slave that has just begun: what should have come before this is taken for delivered."""
        self._durable = 0
        """The timer log up to here was durable at the last checkpoint."""
        self._images: list[tuple[int, bytes]] = []
        """Slots of the round that is under way."""
        self.saved = TimerCheckpoint()
        """The last checkpoint that was handed out, or read; its version is that of the table."""
        self.under_way = False
        """A round is."""
        self.waits = False
        """Nothing is taken in until a round that begins from now on is durable."""
        self._frees = False
        """The round that is under way is one."""
        self._distrusted = False
        """What was loaded may not be durable: an earlier life's sync of it may have failed. The first round writes it
        again."""
        self.used = False
        """There are files."""

    # ---- taking in ----

    def slot_of(self, deliver_at: Millis, stored_at: Millis) -> tuple[Millis, int]:
        """The slot for a message that is to be delivered then, and what its unit says of it: one beyond the window
        rolls, to half the window if little would be left after a whole one. It hangs on the message alone, so that each
        broker of a set, and each of its lives, finds the same: a slave drops what its master is past."""
        precision = self.wheel.precision_ms
        begin, window = self.wheel.floor(stored_at), self._window_slots * precision
        if deliver_at - begin < window:
            return self.wheel.floor(deliver_at), 0
        if deliver_at - begin - window < self._window_slots // 3 * precision:
            return begin + self._window_slots // 2 * precision, units.ROLL
        return begin + window, units.ROLL

    def take_in(self, record: Record, now: Millis, *, master: bool) -> Millis | None:
        """Take in the message at `queue_offset`: the slot in which it waits; None: it was delivered before, or is no
        timer at all. OSError when the disk has no room: nothing has happened.

        A slot whose time has come gets no more units from a master: what comes too late goes into the present one.
        """
        deliver_at = time_of(record)
        if deliver_at is None:
            self.queue_offset += 1
            return None
        known = self.queue_offset < self.master_offset
        at_ms, flags = self.slot_of(deliver_at, record.store_timestamp)
        own_ms, alive = at_ms, not known or at_ms >= self.read_ms
        if not alive and self.queue_offset >= self._late_from and at_ms >= self._late_least_ms:
            at_ms, alive = max(self._late_ms, self.read_ms), True  # the master was late with it, too
        if master and alive:
            at_ms = max(at_ms, self.wheel.floor(now))
        at_ms = self.wheel.free(at_ms) if alive else at_ms
        if alive and own_ms < at_ms:
            self._late[at_ms] = min(own_ms, self._late.get(at_ms, own_ms))
        if props.TIMER_DEL_UNIQKEY in record.props:
            flags |= units.DELETE
        slot = self.wheel.slots.get(at_ms) if alive else None
        unit = units.unit_for(
            at_ms, self.wheel.floor(now), slot.last if slot is not None else NONE, flags,
            record.physical_offset, record.size, java_hash(record.props[props.REAL_TOPIC]),
        )  # fmt: skip
        position = self.log.append(unit)
        self.used = True
        self.queue_offset += 1
        if not alive:
            return None
        self.wheel.add(at_ms, position, _weight(unit))
        return at_ms

    def cut(self, end: int) -> list[Syncable]:
        """The commit log is about to end at `end`: units of messages that go are gone. The files that are to be durable
        before the log has other messages there. OSError from the disk."""
        at = self.log.end
        lost = 0
        while at > self.log.start:
            position = self.log.before(at)
            unit = self.log.unit(position)
            if unit is None or unit.physical_offset < end:
                break
            self.wheel.take_back(unit.at_ms, position, unit.previous, _weight(unit))
            at, lost = position, lost + 1
        if not lost:
            return []
        self.log.cut(at)
        self._durable = min(self._durable, at)
        self._doubt()
        return [*self.log.segments.files_between(at, at + 1), *self._folders.take()]

    def _doubt(self) -> None:
        """The checkpoint on disk, or on its way there, names units that are no more."""
        self.waits, self._frees = True, False
        self._images = []
        self.wheel.change_all()
        self.saved = copy(self.saved)  # the log's part of a round may be under way: it does not go on

    # ---- delivering ----

    def progress(self, now: Millis, *, master: bool) -> TimerCheckpoint:
        """How far all is now: what a checkpoint says, and what slaves are told."""
        if master and self.queue_offset >= self.master_offset:
            oldest = self.wheel.oldest
            self._late = {at_ms: own_ms for at_ms, own_ms in self._late.items() if at_ms in self.wheel.slots}
            self.read_ms = min([self.wheel.floor(now), *self._late.values(), *(() if oldest is None else (oldest,))])
            self.master_offset = self.queue_offset
        saved = self.saved
        found = TimerCheckpoint(
            self.read_ms, self.log.end, self.queue_offset, self.master_offset,
            saved.state_version, saved.timestamp, saved.counter,
        )  # fmt: skip
        if master:
            found.timestamp, found.counter = now, saved.counter + 1
        return found

    def follow(self, master: TimerCheckpoint) -> bool:
        """A slave learns how far its master is. False: the master is not yet as far as we are, so nothing changes."""
        if master.master_offset < self.queue_offset:
            return False
        self._late_from, self._late_ms = self.master_offset, self.wheel.floor(master.timestamp)
        self._late_least_ms = self._late_ms - FRESH_MS if not self.master_offset else 0
        self.read_ms, self.master_offset = master.read_ms, master.master_offset
        self.wheel.remove_before(self.read_ms)
        self.saved.state_version, self.saved.timestamp = master.state_version, master.timestamp
        self.saved.counter = master.counter
        return True

    # ---- durability ----

    @property
    def changed(self) -> bool:
        """Is there something that the last round did not take?"""
        ends = self.saved.log_end, self.saved.queue_offset
        return self._distrusted or self.waits or self.wheel.changed or ends != (self.log.end, self.queue_offset)

    def begin_round(self, checkpoint: TimerCheckpoint) -> list[Effect]:
        """Make all of it durable. What the commit log has is to be handed out to be flushed before."""
        assert not self.under_way, "a round of the timers is under way"
        self.under_way, self.saved, self._distrusted = True, checkpoint, False
        self._frees = self.waits
        self._images = self.wheel.take_changed()
        return [Flush([*self.log.take_dirty(), *self._folders.take()], [Feed(TimerLogDurable(checkpoint))])]

    def end_round(self, event: TimerLogDurable, then: list[Effect]) -> list[Effect]:
        """The timer log is durable: write the slots of the round, and its checkpoint. OSError from the disk."""
        if event.checkpoint is not self.saved:  # the log was cut, or all made anew, meanwhile
            self.under_way = False
            return []
        files = self.wheel.write(self._images)
        self._images = []
        self._durable = event.checkpoint.log_end
        return [Flush(files), SaveState(checkpoints.PATH, _file(event.checkpoint), then)]

    def round_saved(self) -> None:
        """The checkpoint of a round is durable."""
        self.under_way = False
        if self._frees:
            self.waits = self._frees = False

    def close(self, checkpoint: TimerCheckpoint) -> None:
        """Make all of it durable at once, the commit log being so. OSError from the disk."""
        if not self.used:
            return
        files: list[Syncable] = [*self.log.segments.files_between(min(self._durable, self.log.end), self.log.end)]
        for file in [*files, *self._folders.take_again()]:
            file.sync()
        for file in self.wheel.write([*self._images, *self.wheel.take_changed()]):
            file.sync()
        save_durably(self._disk, checkpoints.PATH, _file(checkpoint))

    # ---- loading ----

    def load(self, record_at: RecordAt, queue_record: QueueRecord, log_end: int | None, now: Millis) -> list[str]:
        """Take up the files; what is to be told of it. `log_end` of the commit log; None: it is not yet known, as in a
        group, which never loses what it had. StoreError, OSError."""
        text = self._disk.read(checkpoints.PATH)
        try:
            found = TimerCheckpoint() if text is None else checkpoints.decode(text)
        except RemoteProtocolError as error:
            why = "restore it, or remove it: then all messages for a time that the log still has are delivered again"
            raise StoreError(f"{checkpoints.PATH}: {error}; {why}") from None
        self.saved = found
        self.read_ms, self.master_offset = found.read_ms, max(found.master_offset, found.queue_offset)
        self.queue_offset = found.queue_offset
        why = self._take_up(found, record_at, queue_record, log_end)
        self.used = self._distrusted = bool(self.log.segments.starts) or text is not None
        if self.used:
            self._folders.distrust()
            self.wheel.change_all()
        if not why:
            self._doubt_times(now)
            return []
        self.queue_offset = found.queue_offset  # what came after it waits, whatever its time
        self.begin_anew()
        self.waits = False  # no round is under way
        return [f"{why}: the timer files are made anew from the messages that wait"]

    def _doubt_times(self, now: Millis) -> None:
        """What an earlier life took in too late waits in slots that were its present: nobody knows any more in which
        ones, and how late it was, but not later than what the checkpoint calls delivered."""
        log = self.log
        newest = log.unit(log.before(log.end)) if log.end > log.start else None
        until = max(now, self.saved.timestamp, newest.taken_at if newest is not None else 0)
        self._late = {at_ms: self.read_ms for at_ms in self.wheel.slots if at_ms <= until}

    def _take_up(
        self, found: TimerCheckpoint, record_at: RecordAt, queue_record: QueueRecord, log_end: int | None
    ) -> str:
        """Take up log and wheel as the checkpoint says; why it can't be, "" when it can."""
        log = self.log
        gaps = log.load()
        if gaps:
            return f"{log.segments.path(gaps[0])} is missing"
        if not log.start <= found.log_end <= log.segments.end:
            return f"the timer log has no end at {found.log_end}"
        log.end = found.log_end
        tail = self._tail(record_at, queue_record)
        if found.log_end and not self.wheel.there:
            return "the wheel is missing"
        if not self.wheel.load(self.read_ms, log.end):
            return "the wheel names units that the timer log does not have"
        for position, unit, alive in tail:
            slot = self.wheel.slots.get(unit.at_ms)
            if alive and (slot is None or slot.last < position):
                if unit.previous != (NONE if slot is None else slot.last):
                    return f"the unit at {position} of the timer log does not follow its slot's last one"
                self.wheel.add(unit.at_ms, position, _weight(unit))
        if self.wheel.oldest is not None:  # a clock that went back: what waits there is not delivered
            self.read_ms = min(self.read_ms, self.wheel.oldest)
        log.cut(log.end)
        log.write_again(found.log_end)
        log.issued = self._durable = min(found.log_end, log.end)
        return self._misfit(log_end)

    def _misfit(self, log_end: int | None) -> str:
        """Why log and wheel don't fit together, or to the commit log; "" when they do."""
        log = self.log
        if log.end > log.start:
            last = log.unit(log.before(log.end))
            if last is None:
                return "the timer log was cut"
            if log_end is not None and last.physical_offset >= log_end:
                return "the commit log ends before messages that wait"
        for at_ms, slot in self.wheel.slots.items():
            newest = log.unit(slot.last)
            if newest is None or self.wheel.floor(newest.at_ms) != at_ms:
                return f"the slot {at_ms} of the wheel has no unit at {slot.last}"
        return ""

    def _tail(self, record_at: RecordAt, queue_record: QueueRecord) -> list[tuple[int, Unit, bool]]:
        """The units behind the checkpoint's end that are those of the next messages, with whether each is pending."""
        log, tail = self.log, list[tuple[int, Unit, bool]]()
        position = log.place_from(log.end)
        while (unit := log.unit(position)) is not None:
            record = record_at(unit.physical_offset)
            if record is None or not self._is_of(unit, record):
                break
            offset = record.queue_offset
            if offset > self.queue_offset and any(
                one is None or time_of(one) is not None
                for one in map(queue_record, range(self.queue_offset, offset))
            ):
                break
            alive = unit.at_ms >= self.read_ms or offset >= self.master_offset
            tail.append((position, unit, alive))
            self.queue_offset = max(self.queue_offset, offset + 1)
            log.end = position + units.UNIT_BYTES
            position = log.after(position)
        return tail

    def _is_of(self, unit: Unit, record: Record) -> bool:
        """Is this the message that the unit was made for?"""
        if record.topic != TIMER_TOPIC or record.size != unit.record_bytes:
            return False
        deliver_at = time_of(record)
        return deliver_at is not None and (unit.rolls or unit.at_ms >= self.wheel.floor(deliver_at))

    def begin_anew(self) -> None:
        """Forget units and slots; the queue is taken in from its beginning, but for what is delivered. OSError."""
        self.master_offset = max(self.master_offset, self.queue_offset)
        self.queue_offset = 0
        self._doubt()
        old = self.saved
        self.saved = TimerCheckpoint(
            self.read_ms, 0, 0, self.master_offset, old.state_version, old.timestamp, old.counter
        )
        save_durably(self._disk, checkpoints.PATH, _file(self.saved))  # first: no later start may trust the old files
        self.log.clear()
        self.wheel.clear()
        self._durable = 0

    def remove_before(self, physical_offset: int) -> None:
        """The commit log begins there: what stands before it has nothing to deliver. OSError when a file can't be
        removed."""
        begin = self.log.start
        try:
            self.log.remove_before(physical_offset)
        finally:
            if self.log.start > begin:
                for at_ms in [at_ms for at_ms, slot in self.wheel.slots.items() if slot.first < self.log.start]:
                    self.wheel.deliver_from(at_ms, self.log.start)

    # ---- invariants ----

    def validate(self) -> None:
        """AssertionError when something does not fit; the newest unit of each of a few slots is looked at."""
        wheel, log = self.wheel, self.log
        assert log.start <= log.end <= max(log.segments.end, log.start), f"the timer log ends at {log.end}"
        for at_ms in list(wheel.slots)[:8]:
            slot = wheel.slots[at_ms]
            assert slot.first <= slot.last < log.end, f"slot {at_ms}: [{slot.first}, {slot.last}] of {log.end}"
            unit = log.unit(slot.last)
            assert unit is not None and wheel.floor(unit.at_ms) == at_ms, f"slot {at_ms}: {unit} at {slot.last}"


def _file(checkpoint: TimerCheckpoint) -> bytes:
    """The whole file."""
    return checkpoints.encode(checkpoint).ljust(checkpoints.FILE_BYTES, b"\0")


def _weight(unit: Unit) -> int:
    """What a unit adds to the count of its slot."""
    return -1 if unit.deletes else 1

