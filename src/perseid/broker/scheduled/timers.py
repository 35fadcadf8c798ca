"""Delayed messages of arbitrary times: what takes them in, and delivers them when their time has come.

    send with TIMER_DELAY_SEC, _DELAY_MS or _DELIVER_MS → stored in rmq_sys_wheel_timer, queue 0 (`redirect`)
    stored, and seen by readers → *taken in*: a unit in the timer log, in the slot of its time (`store.timer`)
    the slot is over → each of its messages is stored in its real topic: *delivered*
                       or, of a slot that is not yet the message's time, stored in the timer topic anew: *rolled*
                       or, with a message in the slot that takes it back (code 370), dropped: *recalled*

The slot of a time is the last one that ends at it or before, so that its messages are delivered when its end has come:
never early, and at most one precision (`timerPrecisionMs`) late. A slot whose end has come gets no more messages: what
comes too late for it waits in the present one.

A delivery counts when readers could see it (`Reads.confirmed`); only then the slot's next message is its first. What a
checkpoint says is made durable behind the log, so a crash, or a switch of master, delivers some messages twice, as in
the original, and none never. A refused delivery is tried again until it is taken; the original gives up after three.

A slave takes in what its master has taken in, and drops the slots that the master has delivered: whoever becomes
master has the same wheel, and goes on (codes 60 and 61). Where the last master's clock was ahead, what it took in too
late waits in slots that are long to come here: a new master looks at them at once, delivers what is due, and rolls the
rest. A slave that acts for its master may send to another one what is due (`timer_escape.py`). Sources: broker.md §7,
store.md §12.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Protocol

from perseid.base.deadlines import soonest
from perseid.base.errors import RequestRefused
from perseid.base.machine import Buffer, DiskFailed, Feed, Flush, Millis
from perseid.broker.kernel import messages
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.scheduled.timer_due import Due
from perseid.broker.scheduled.timer_escape import TimerEscape
from perseid.broker.scheduled.timer_metrics import TimerMetrics
from perseid.disk.port import Disk
from perseid.raft.store import GroupStore
from perseid.store.results import AppendRefused, PutStatus
from perseid.store.store import MessageStore
from perseid.store.timer import checkpoint as checkpoints
from perseid.store.timer.log import NONE, UNIT_BYTES, Unit
from perseid.store.timer.timers import NUMBER, TimerLogDurable, TimerStore, asked_time, time_of
from perseid.store.truncation import Cut
from perseid.wire import properties as props
from perseid.wire import record as records
from perseid.wire.codes import ResponseCode
from perseid.wire.names import HALF_TOPIC, TIMER_TOPIC
from perseid.wire.record import Message, Record

if TYPE_CHECKING:
    from perseid.broker.produce.appender import Appender
    from perseid.broker.scheduled.escape import Escape

TAKEN_IN_A_TURN = 256
DELIVERIES_A_TURN = 256
WALK_A_TURN = 20_000
"""Units of a slot that one turn looks at before the first of them is delivered."""
RETRY_MS = 100
LATE_MS = 5_000
"""A slot so late is delivered although not all messages are taken in yet, one of which may take another one back."""
CLEAN_MS = 30_000
ANEW_MS = 60_000
"""Files that were made anew because of damage are not made anew again before."""
_PUT_ILLEGAL = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


class CheckpointSaved:
    """Fed back when a round's checkpoint is durable."""


class QuickDeliveries(Protocol):
    """Takes timed messages whose time has come: `deliver` each, then `settle`."""

    def deliver(self, unit: Unit) -> int:
        """Take the message of a unit: where it will end in the log. 0: it has to be delivered in the ordinary way."""

    def settle(self) -> None:
        """Write what was taken."""

    def count(self) -> None:
        """Tell the statistics what was taken."""

    def learn(self, topic: str, queue_id: int) -> None:
        """Messages for this queue can be taken from now on."""


class TimerService:
    """The timers of one broker."""

    def __init__(
        self, turn: Turn, settings: Settings, store: MessageStore, disk: Disk, random: Random, appender: Appender,
        escape: Escape, quick: Callable[[TimerStore, TimerMetrics], QuickDeliveries | None],
    ) -> None:  # fmt: skip
        self._turn = turn
        self._settings = settings
        self._store = store
        self._disk = disk
        self._random = random
        self._appender = appender
        self._escape = escape
        self._make_quick = quick
        self._in_group = isinstance(store, GroupStore)
        """Readers see what a quorum has: what is stored may yet be lost."""
        self._config = self._store.config
        self.enabled = self._settings.current.timer_wheel_enable
        self.timers = TimerStore(self._disk, self._config)
        self.metrics = TimerMetrics()
        self.quick: QuickDeliveries | None = None
        self._leads = False
        self._take_in_at: Millis | None = None
        """There is something to take in, from then on."""
        self._due: Due | None = None
        self._todo: list[Millis] = []
        """Slots that are not yet handed out, by their time."""
        self._ahead: deque[Millis] = deque()
        """Those that may be a matter of an earlier master's clock, which was ahead of ours: looked at at once."""
        self._unconfirmed: deque[tuple[int, Millis, int]] = deque()
        """What was delivered and may yet be lost: where it ends in the log, its slot, where the slot then begins."""
        self.escape = TimerEscape(store.reads, escape, self)
        self._blocked_until: Millis = 0
        self._trouble = ""
        self._round_at: Millis = 0
        self._round_again = False
        self._stuck: tuple[TimerLogDurable, Millis] | None = None
        self._clean_at: Millis = 0
        self._anew_until: Millis = 0

    # ---- life and roles ----

    def load(self, now: Millis) -> None:
        """Take up the files. StoreError, OSError."""
        if not self.enabled:
            return
        store = self._store

        def record_at(offset: int) -> Record | None:
            return _decoded(store.log.record_at(offset), offset) if store.log.start <= offset < store.log.end else None

        def queue_record(offset: int) -> Record | None:
            queue = store.queues.get(TIMER_TOPIC, 0)
            unit = queue.raw(offset) if queue is not None and queue.min <= offset < queue.end else None
            return None if unit is None else record_at(unit.physical_offset)

        log_end = store.log.end if not self._in_group else None
        for note in self.timers.load(record_at, queue_record, log_end, now):
            self._turn.note("warning", note)
        self._follow_queue()
        self._round_at = now + self._config.timer_flush_interval_ms
        self._clean_at = now + CLEAN_MS

    def _follow_queue(self) -> None:
        """The queue may end before what was taken in of it: its log lost its end."""
        queue = self._store.queues.get(TIMER_TOPIC, 0)
        if not self._in_group:
            self.timers.queue_offset = min(self.timers.queue_offset, queue.end if queue is not None else 0)

    def start(self, now: Millis) -> None:
        """This broker is master from now on."""
        self.stop()
        self._leads = True
        self.quick = self._make_quick(self.timers, self.metrics)
        self.escape.start()
        self._todo = sorted(self.timers.wheel.slots)
        self._ahead = deque(at_ms for at_ms in self._todo if now < at_ms <= self.timers.saved.timestamp)
        self._take_in_at = now

    def count_quick(self) -> None:
        """Tell the statistics what was delivered the quick way."""
        if self.quick is not None:
            self.quick.count()

    def stop(self) -> None:
        """It is a slave from now on."""
        self._leads = False
        if self.quick is not None:
            self.quick.count()
            self.quick = None
        self._due = None
        self._todo = []
        self._ahead.clear()
        self._unconfirmed.clear()
        self.escape.away = False
        self._blocked_until = 0

    def follow(self, answer: Buffer, now: Millis) -> None:
        """A slave's master says how far it is (code 60). RemoteProtocolError when it can't be read."""
        if self.enabled and not self._leads and self.timers.follow(checkpoints.decode(answer)):
            self._take_in_at = now

    def checkpoint(self, now: Millis) -> bytes:
        """How far all is: the answer to code 60."""
        return checkpoints.encode(self.timers.progress(now, master=self._leads))

    def close(self) -> None:
        """The broker ends, and its log is durable."""
        store = self._store
        if self.enabled and (self._in_group or store.log.flushed >= store.log.end):
            self._confirm()
            try:
                self.timers.close(self.timers.progress(self._turn.now, master=self._leads))
            except OSError as error:
                why = "the timers could not be saved, the next start goes on from their last save"
                self._turn.note("error", f"{why}: {error}")

    def cut(self, event: Cut) -> None:
        """The log is cut, and with it what was taken in of its end. OSError from the disk."""
        if self.enabled and (files := self.timers.cut(event.end)):
            self._turn.emit(Flush(files))
            self._round_again, self._round_at = True, self._turn.now
        for effect in self._store.handle(event):
            self._turn.emit(effect)
        if self.enabled:
            self._follow_queue()

    # ---- time ----

    def arrived(self) -> None:
        """Readers see a message of the timer topic."""
        if self._take_in_at is None:
            self._take_in_at = self._turn.now

    def next_deadline(self) -> Millis | None:
        if not self.enabled:
            return None
        slot = confirmed = due_round = None
        if self.escape.away:
            pass
        elif self._due is not None or self._ahead:
            slot = max(self._turn.now, self._blocked_until)
        elif self._todo:
            waits = LATE_MS if self._take_in_at is not None else 0  # for what is to be taken in (`_next_slot`)
            slot = max(self._todo[0] + self.timers.wheel.precision_ms + waits, self._blocked_until)
        if self._unconfirmed and self._unconfirmed[0][0] <= self._store.reads.confirmed:
            confirmed = self._turn.now
        if self._stuck is not None:
            due_round = self._stuck[1]
        elif not self.timers.under_way and (self._round_again or self.timers.changed):
            due_round = self._round_at
        clean = self._clean_at if self.timers.log.start < self.timers.log.end else None
        return soonest(self._take_in_at, slot, confirmed, due_round, clean)

    def tick(self, now: Millis) -> None:
        """Take in what came, deliver what is due, make durable what changed."""
        if not self.enabled:
            return
        self._confirm()
        if self._take_in_at is not None and self._take_in_at <= now:
            self._take_in(now)
        if self._leads and self._blocked_until <= now and not self.escape.away:
            self._deliver_due(now)
            self._confirm()
        if self._stuck is not None and self._stuck[1] <= now:
            self.durable(self._stuck[0])
        if self._round_at <= now and not self.timers.under_way and (self._round_again or self.timers.changed):
            self._begin_round(now)
        if self._clean_at <= now:
            self._clean(now)

    # ---- taking in ----

    def _take_in(self, now: Millis) -> None:
        store, timers = self._store, self.timers
        if timers.waits:
            self._take_in_at = None
            return
        end = store.reads.max_offset(TIMER_TOPIC, 0)
        if not self._leads:
            end = min(end, timers.master_offset)
        self._take_in_at = None
        timers.queue_offset = max(timers.queue_offset, min(store.reads.min_offset(TIMER_TOPIC, 0), end))
        for _ in range(TAKEN_IN_A_TURN):
            if timers.queue_offset >= end:
                return
            if not self._take_in_one(now):
                self._take_in_at = now + RETRY_MS
                return
        self._take_in_at = now

    def _take_in_one(self, now: Millis) -> bool:
        """Take in the next message; False: there is no room for it now."""
        store, timers, offset = self._store, self.timers, self.timers.queue_offset
        unit = store.reads.unit(TIMER_TOPIC, 0, offset)
        found = messages.stored_at(store.reads, unit.physical_offset) if unit is not None else None
        if found is None:
            self._turn.note("error", f"the timer message {offset} can't be read: skipped")
            timers.queue_offset += 1
            return True
        try:
            at_ms = timers.take_in(found, now, master=self._leads)
        except OSError as error:
            self._in_trouble(f"the timer message {offset} can't be taken in yet: {error}")
            return False
        self._trouble = ""
        if at_ms is None:
            if offset >= timers.master_offset:
                self._turn.note("error", f"the timer message {offset} says no time and topic: skipped")
            return True
        if self._leads:
            slot = timers.wheel.slots[at_ms]
            if slot.first == slot.last:
                heapq.heappush(self._todo, at_ms)
            if props.TIMER_DEL_UNIQKEY not in found.props:
                self.metrics.add(found.props[props.REAL_TOPIC], 1, now)
        return True

    def _in_trouble(self, why: str) -> None:
        """Say so once, not at each attempt."""
        if why != self._trouble:
            self._trouble = why
            self._turn.note("warning", why)

    # ---- delivering ----

    def _deliver_due(self, now: Millis) -> None:
        left = DELIVERIES_A_TURN
        while left > 0 and (self._due is not None or self._next_slot(now)):
            due = self._due
            assert due is not None
            if due.next == NONE:
                if not self._find_units(due):
                    break
                if due.ahead and self._is_in_place(due):
                    self._due = None
                    left -= len(due.positions)  # which were read
            elif due.next == len(due.positions):
                self._due = None
            elif self._escape.on:
                left -= 1
                self.escape.send(due, due.positions[-1 - due.next], now)
                if self.escape.away or self._blocked_until > now:
                    break
            elif self._deliver(due, due.positions[-1 - due.next], now):
                due.next += 1
                left -= 1
            else:
                self._blocked_until = now + RETRY_MS
                break
        if self.quick is not None:
            self.quick.settle()

    def _next_slot(self, now: Millis) -> bool:
        """Begin with the next slot whose end has come, if there is one."""
        timers, todo = self.timers, self._todo
        while self._ahead:
            at_ms = self._ahead[0]
            if at_ms not in timers.wheel.slots or self._begin(at_ms, now, ahead=True):
                self._ahead.popleft()
            if self._due is not None or self._blocked_until > now:
                return self._due is not None
        while todo and todo[0] not in timers.wheel.slots:
            heapq.heappop(todo)
        if not todo or todo[0] + timers.wheel.precision_ms > now:
            return False
        if self._take_in_at is not None and todo[0] + timers.wheel.precision_ms + LATE_MS > now:
            return False
        if not self._begin(todo[0], now):
            return False
        heapq.heappop(todo)
        return True

    def _begin(self, at_ms: Millis, now: Millis, *, ahead: bool = False) -> bool:
        """Begin with a slot; False: its newest message is not confirmed yet."""
        last = self.timers.wheel.slots[at_ms].last
        newest = self.timers.log.unit(last)
        if newest is not None and newest.physical_offset >= self._store.reads.confirmed:
            self._blocked_until = now + RETRY_MS  # after a start: what was confirmed is so again in a moment
            return False
        self._due = Due(at_ms, last, ahead=ahead)
        return True

    def _is_in_place(self, due: Due) -> bool:
        """Is no message of the slot to come before it? Then it waits there: to roll them would be to store them once
        more at each start, and twice as many each time that a crash takes the checkpoint after it."""
        if len(due.positions) > DELIVERIES_A_TURN:
            return False
        for position in due.positions:
            unit = self.timers.log.unit(position)
            found = messages.stored_at(self._store.reads, unit.physical_offset) if unit is not None else None
            at_ms = time_of(found) if found is not None else None
            if at_ms is None or self.timers.wheel.floor(at_ms) < due.at_ms:
                return False
        return True

    def _find_units(self, due: Due) -> bool:
        """Go back through a slot's chain; False: this turn's time for it is over."""
        timers, at = self.timers, due.cursor
        slot = timers.wheel.slots.get(due.at_ms)
        first = slot.first if slot is not None else 0
        for _ in range(WALK_A_TURN):
            if at == NONE:
                break
            unit = timers.log.unit(at)
            if unit is None or timers.wheel.floor(unit.at_ms) != due.at_ms or unit.previous >= at:
                if at >= first and self._made_anew(due.at_ms, at):
                    return False
                at = NONE
                break
            if unit.deletes and not unit.rolls:
                self._recalled(due, unit)
            if at >= first:
                due.positions.append(at)
            at = unit.previous
        due.cursor = at
        if at != NONE:
            return False
        due.next = 0
        return True

    def _made_anew(self, at_ms: Millis, position: int) -> bool:
        """A slot's chain is broken: somebody damaged the files, which the messages themselves can replace. False: they
        were made anew a moment ago, so what can't be found is passed over."""
        now, timers = self._turn.now, self.timers
        why = f"the slot {at_ms} of the timer wheel has no unit at {position}"
        if now < self._anew_until:
            self._turn.note("error", f"{why}: what stands before it is passed over")
            return False
        self._turn.note("error", f"{why}: the timer files are made anew from the messages that wait")
        if self.quick is not None:
            self.quick.settle()  # what this turn delivered of earlier slots counts as delivered
        self._anew_until = now + ANEW_MS
        timers.read_ms = min(timers.read_ms, at_ms) if timers.queue_offset < timers.master_offset else at_ms
        timers.begin_anew()
        self.start(now)
        return True

    def _recalled(self, due: Due, unit: Unit) -> None:
        found = messages.stored_at(self._store.reads, unit.physical_offset)
        if found is not None and not self.is_early(found):
            key = found.props.get(props.TIMER_DEL_UNIQKEY, "")
            topic = found.props.get(props.REAL_TOPIC, "")
            due.recalls.add((topic, key.removeprefix(f"{topic}+")))

    def _deliver(self, due: Due, position: int, now: Millis) -> bool:
        """Deliver one message, or see that there is nothing to deliver; False: try again later."""
        unit = self.timers.log.unit(position)
        end: int | None = 0
        quick = self.quick if not due.recalls and due.at_ms >= self.escape.left_out.end_ms else None
        if quick is not None and unit is not None and (end := quick.deliver(unit)):
            self._unconfirmed.append((end, due.at_ms, position + UNIT_BYTES))
            return True
        found = messages.stored_at(self._store.reads, unit.physical_offset) if unit is not None else None
        where = f"the timer message of the unit at {position}"
        if unit is None or found is None or found.topic != TIMER_TOPIC:
            self._turn.note("error", f"{where} can't be read: skipped")
        else:
            topic = found.props.get(props.REAL_TOPIC, "")
            if unit.rolls or self.is_early(found):
                end = self._put(self._rolled(found, unit, now), found, where)
            elif self.escape.left_out.has(due.at_ms, found.queue_offset):
                end = 0
            elif not unit.deletes and (topic, found.unique_key) not in due.recalls:
                end = self._put(self.real(found, unit, now), found, where)
            if end is not None and not unit.deletes:
                self.metrics.add(topic, -1, now)
        if end is None:
            return False
        self._unconfirmed.append((end, due.at_ms, position + UNIT_BYTES))
        return True

    def wait(self, why: str, for_ms: int) -> None:
        """Nothing is delivered for a while."""
        self._in_trouble(why)
        self._blocked_until = self._turn.now + for_ms

    def is_early(self, found: Record) -> bool:
        """Is the time of a message still to come? Its slot was begun too soon (`_ahead`), or the clock went back."""
        at_ms = time_of(found)
        return at_ms is not None and self.timers.wheel.floor(at_ms) + self.timers.wheel.precision_ms > self._turn.now

    def _put(self, message: Message | None, found: Record, where: str) -> int | None:
        """Where the message ends in the log then; 0: it can't be delivered at all; None: not now."""
        if message is None:
            self._turn.note("error", f"{where} names no topic and queue: skipped")
            return 0
        if self.quick is not None:
            self.quick.settle()
        for properties in (message.properties, found.properties):
            message.properties = properties
            try:
                placed = self._appender.store(message)
            except AppendRefused as refused:
                if refused.status not in _PUT_ILLEGAL:
                    self._in_trouble(f"{where} for {message.topic} is tried again: {refused}")
                    return None
                why = str(refused)  # what tells of the delay may be too much: without it, once more
            else:
                self._trouble = ""
                if self.quick is not None:
                    self.quick.learn(message.topic, message.queue_id)
                return placed.physical_offset + placed.size
        self._turn.note("error", f"{where} for {message.topic} is skipped: {why}")
        return 0

    @staticmethod
    def real(found: Record, unit: Unit, now: Millis) -> Message | None:
        """What is delivered; None: to nowhere."""
        topic, queue_id = found.props.get(props.REAL_TOPIC), found.props.get(props.REAL_QID, "")
        if not topic or topic in (HALF_TOPIC, TIMER_TOPIC) or not (queue_id.isascii() and queue_id.isdecimal()):
            return None
        message = messages.copy_of(found)
        message.topic, message.queue_id = topic, int(queue_id)
        times = {props.TIMER_ENQUEUE_MS: str(unit.taken_at), props.TIMER_DEQUEUE_MS: str(now)}
        message.properties = props.added(message.properties, times)
        return message

    @staticmethod
    def _rolled(found: Record, unit: Unit, now: Millis) -> Message:
        """The message as it waits on."""
        text = found.props.get(props.TIMER_ROLL_TIMES, "0")
        times = {
            props.TIMER_ENQUEUE_MS: str(unit.taken_at),
            props.TIMER_DEQUEUE_MS: str(now),
            props.TIMER_ROLL_TIMES: str(int(text) + 1 if NUMBER(text) else 1),
        }
        return messages.seal(messages.copy_of(found), {**found.props, **times})

    def _confirm(self) -> None:
        end, unconfirmed = self._store.reads.confirmed, self._unconfirmed
        while unconfirmed and unconfirmed[0][0] <= end:
            _, at_ms, position = unconfirmed.popleft()
            self.timers.wheel.deliver_from(at_ms, position)

    # ---- durability ----

    def _begin_round(self, now: Millis) -> None:
        self._round_at = now + self._config.timer_flush_interval_ms
        self._round_again = False
        if self._store.log.flushed < self._store.log.end:
            self._turn.emit(self._store.flusher.flush([]))
        for effect in self.timers.begin_round(self.timers.progress(now, master=self._leads)):
            self._turn.emit(effect)

    def durable(self, event: TimerLogDurable) -> None:
        """The timer log of a round is durable."""
        self._stuck = None
        try:
            effects = self.timers.end_round(event, [Feed(CheckpointSaved())])
        except OSError as error:
            self._in_trouble(f"the timer wheel can't be written, tried again: {error}")
            self._stuck = (event, self._turn.now + RETRY_MS)
            return
        for effect in effects:
            self._turn.emit(effect)

    def saved(self, event: CheckpointSaved) -> None:
        """The round is over."""
        waited = self.timers.waits
        self.timers.round_saved()
        if waited and not self.timers.waits:
            self.arrived()

    def failed(self, event: DiskFailed) -> bool:
        """A save failed: if it was the checkpoint's, the old one stays true, and True is the answer."""
        if event.path != checkpoints.PATH:
            return False
        self.timers.under_way = False
        self._round_again = True
        return True

    def _clean(self, now: Millis) -> None:
        self._clean_at = now + CLEAN_MS
        try:
            self.timers.remove_before(self._store.log.start)
        except OSError as error:
            self._in_trouble(f"old files of the timer log can't be removed: {error}")

    # ---- sends ----

    def redirect(self, message: Message, properties: dict[str, str]) -> None:
        """Send a message with a time of its own to the timer topic, if its time is still to come. RequestRefused: 13
        for a time that can't be, 1 when timers are off, or too many wait for the same slot."""
        config, now = self._settings.current, self._turn.now
        if not self.enabled:
            why = "accurate timer message is not enabled, timerWheelEnable is false"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, why)
        deliver_at = asked_time(properties, now)
        illegal = deliver_at is None or deliver_at - now > config.timer_max_delay_sec * 1000
        if deliver_at is None or illegal or (deliver_at <= now and props.TIMER_DEL_UNIQKEY in properties):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                "timer message illegal, the delay time should not be bigger than the max delay "
                f"{config.timer_max_delay_sec * 1000}ms; or if set del msg, the delay time should be bigger than the "
                "current time",
            )
        if deliver_at <= now:
            return
        at_ms = self.timers.wheel.floor(deliver_at - 1)
        limit = config.timer_congest_num_each_slot
        slot = self.timers.wheel.slots.get(at_ms)
        if slot is not None and slot.count > limit and self._random.random() * limit < slot.count - limit:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control, max num limit is {limit * 2} or the current value is greater "
                f"than {limit} and less than {limit * 2}, trigger random flow control",
            )
        properties[props.TIMER_OUT_MS] = str(at_ms)
        properties[props.REAL_TOPIC] = message.topic
        properties[props.REAL_QID] = str(message.queue_id)
        message.topic, message.queue_id = TIMER_TOPIC, 0

    # ---- what people see ----

    def runtime_info(self, now: Millis) -> dict[str, str]:
        """Keys of code 28."""
        wheel = self.timers.wheel
        behind = max(0, now - wheel.precision_ms - wheel.oldest) if wheel.oldest is not None and self._leads else 0
        waits = self._store.reads.max_offset(TIMER_TOPIC, 0) - self.timers.queue_offset
        return {
            "timerReadBehind": str(behind // 1000),
            "timerOffsetBehind": str(max(0, waits)),
            "timerCongestNum": str(wheel.count),
        }

    def validate(self) -> None:
        if not self.enabled:
            return
        self.timers.validate()
        if self._leads:
            known = set(self._todo)
            handed = {at_ms for _, at_ms, _ in self._unconfirmed}
            for at_ms in list(self.timers.wheel.slots)[:8]:
                working = self._due is not None and self._due.at_ms == at_ms
                assert at_ms in known or at_ms in handed or working, f"nobody looks at the slot {at_ms}"


def _decoded(view: memoryview | None, offset: int) -> Record | None:
    """The record that was found at an offset, if it is one and says so."""
    try:
        found = records.decode(view) if view is not None else None
    except records.RecordError:
        return None
    return found if found is not None and found.physical_offset == offset else None
