"""The delay levels: messages wait in the queues of SCHEDULE_TOPIC_XXXX until their time has come.

One queue a level, so within a queue the delivery times never fall; each unit's tag code is its delivery time.
Per level the service knows the offset of the next unit to deliver, and when that is. A delivered message is
stored anew under its real topic, with the properties that it had; the offset moves on in the same step.

A level is *idle* (nothing waits), *asleep* until its next unit's time, or *blocked*: the store refused a message,
which is tried again each `RETRY_MS`. Where this slave acts for its master, what is due is sent to another master
(`escape.py`): a level waits for the answer, and its offset moves on with it. A unit whose time is further away than
its level says (the clock went back) is due at once, as in the original.

Offsets are saved every `flushDelayOffsetInterval`, after what they stand for is durable: a crash delivers some
messages twice, and loses none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from perseid.base.errors import ConfigError
from perseid.base.machine import Millis
from perseid.broker.kernel import messages
from perseid.broker.kernel.saved_table import SavedTable
from perseid.broker.kernel.settings import Settings
from perseid.broker.kernel.turn import Turn
from perseid.broker.scheduled import escape
from perseid.store.dispatch import parse_delay_levels
from perseid.store.reads import Reads
from perseid.store.results import AppendRefused
from perseid.wire import fastjson
from perseid.wire import properties as props
from perseid.wire.bodies import DataVersion
from perseid.wire.names import HALF_TOPIC, SCHEDULE_TOPIC
from perseid.wire.record import Message

if TYPE_CHECKING:
    from perseid.broker.produce.appender import Appender
    from perseid.broker.scheduled.escape import Escape

FIRST_RUN_MS = 1_000
RETRY_MS = 100
MAX_DELIVERIES = 128
"""Messages of one level that one tick delivers, so that a long backlog never stalls the node."""

OFFSETS_PATH = "config/delayOffset.json"
NOT_SENT_AWAY = frozenset((props.DELAY, props.TIMER_DELIVER_MS, props.TIMER_DELAY_SEC))
"""Properties that would have another master delay the message once more."""


class QuickDelays(Protocol):
    """Takes delayed messages whose time has come: `deliver` each, then `settle`."""

    def deliver(self, physical_offset: int) -> int:
        """Take the message that stands there: where it will end in the log. 0: it has to be delivered in the ordinary
        way."""

    def settle(self) -> None:
        """Write what was taken."""

    def count(self) -> None:
        """Tell the statistics what was taken."""

    def learn(self, topic: str, queue_id: int) -> None:
        """Messages for this queue can be taken from now on."""


class _Saved(SavedTable):
    """The file's form."""

    offset_table: dict[int, int] = msgspec.field(default_factory=dict)


class DelayService:
    """Delivers what is due. `offsets` maps level → offset of the next unit of its queue."""

    def __init__(
        self, turn: Turn, settings: Settings, reads: Reads, appender: Appender, escape: Escape,
        quick: Callable[[], QuickDelays | None],
    ) -> None:  # fmt: skip
        """`quick` makes the quick way to deliver, where there is one."""
        self._turn = turn
        self._settings = settings
        self._reads = reads
        self._appender = appender
        self._escape = escape
        self._waits_ms = parse_delay_levels(self._reads.config.message_delay_level)
        if not self._waits_ms:
            raise ConfigError("messageDelayLevel: names no level")
        self.version = DataVersion(counter=0, state_version=0, timestamp=0)
        self.offsets: dict[int, int] = {}
        self._confirmed: dict[int, int] = {}
        """The same without deliveries that may yet be lost, since a group has not committed them."""
        self._unconfirmed: deque[tuple[int, int, int]] = deque()
        """The others: where the delivered message ends in the log, level, offset."""
        self.dirty = False
        self._due: dict[int, Millis] = {}
        self._away: set[int] = set()
        """Levels whose next message is on its way to another master."""
        self._blocked: dict[int, str] = {}
        self._steps = 0
        self._make_quick = quick
        self.quick: QuickDelays | None = None

    @property
    def levels(self) -> int:
        """How many there are."""
        return len(self._waits_ms)

    def runtime_info(self, now: Millis) -> dict[str, str]:
        """How far each level is delivered, and how far it goes, as rows of code 28's table."""
        end = self._reads.max_offset
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{end(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in sorted(self.offsets.items())
        }

    def load(self, text: bytes) -> None:
        """Take up what config/delayOffset.json says. StoreError when the text is not such a file."""
        saved = _Saved.read(text, OFFSETS_PATH)
        self.version, self.offsets = saved.data_version, saved.offset_table
        self._confirmed = dict(self.offsets)

    def stop(self) -> None:
        """Deliver nothing any more: this broker is a slave."""
        self._due.clear()
        self._away.clear()
        self._blocked.clear()
        self._unconfirmed.clear()
        self.offsets = dict(self._confirmed)
        self.count_quick()
        self.quick = None

    def count_quick(self) -> None:
        """Tell the statistics what was delivered the quick way."""
        if self.quick is not None:
            self.quick.count()

    def start(self, now: Millis) -> None:
        """Begin, with a first look after `FIRST_RUN_MS`, as in the original."""
        for level in range(1, self.levels + 1):
            end = self._reads.max_offset(SCHEDULE_TOPIC, level - 1)
            start = self._reads.min_offset(SCHEDULE_TOPIC, level - 1)
            self.offsets[level] = min(max(self.offsets.get(level, 0), start), end)
            if self.offsets[level] < end:
                self._due[level] = now + FIRST_RUN_MS
        self._confirmed = dict(self.offsets)
        self.quick = self._make_quick()

    def adopt(self, offsets: dict[int, int], version: DataVersion | None) -> None:
        """Let the offsets be a master's. A slave delivers nothing."""
        if offsets != self.offsets:
            self.offsets, self.dirty = dict(offsets), True
            self._confirmed = dict(offsets)
        if version is not None:
            self.version = version

    def to_json(self) -> bytes:
        """The text of config/delayOffset.json."""
        self._confirm()
        table = {level: offset for level, offset in sorted(self._confirmed.items()) if offset}
        return fastjson.pretty({"dataVersion": self.version, "offsetTable": table})

    def _confirm(self) -> None:
        end, unconfirmed = self._reads.confirmed, self._unconfirmed
        while unconfirmed and unconfirmed[0][0] <= end:
            _, level, offset = unconfirmed.popleft()
            self._confirmed[level] = offset

    def arrived(self, queue_id: int, deliver_at: Millis) -> None:
        """A delayed message was stored: unless the level has older ones, its delivery is the next deadline."""
        self._due.setdefault(queue_id + 1, deliver_at)

    def next_deadline(self) -> Millis | None:
        return min(self._due.values(), default=None)

    def tick(self, now: Millis) -> None:
        """Deliver all that is due."""
        self._confirm()
        for level in [level for level, due in self._due.items() if due <= now]:
            self._run(level, now)
        if self.quick is not None:
            self.quick.settle()

    def _run(self, level: int, now: Millis) -> None:
        reads, queue_id = self._reads, level - 1
        for _ in range(MAX_DELIVERIES):
            offset = max(self.offsets[level], reads.min_offset(SCHEDULE_TOPIC, queue_id))
            unit = reads.unit(SCHEDULE_TOPIC, queue_id, offset)
            if unit is None:
                del self._due[level]
                return
            if 0 < unit.tag_code - now <= self._waits_ms[queue_id]:
                self._due[level] = unit.tag_code
                return
            if self._escape.on:
                self._send_away(level, offset, unit.physical_offset, now)
                return
            end = self._deliver(level, unit.physical_offset)
            if end is None:
                self._due[level] = now + RETRY_MS
                return
            self._unconfirmed.append((end, level, offset + 1))
            self._advance(level, offset + 1, now)
        self._due[level] = now

    def _deliver(self, level: int, physical_offset: int) -> int | None:
        """Store one message under its real topic; where it ends in the log (0: it is skipped), None: try again
        later."""
        quick = self.quick
        if quick is not None:
            if end := quick.deliver(physical_offset):
                self._blocked.pop(level, None)
                return end
            quick.settle()
        message = self._real(level, physical_offset)
        if message is None:
            return 0
        try:
            placed = self._appender.store(message)
        except AppendRefused as refused:
            self._hindered(level, message.topic, physical_offset, str(refused))
            return None
        self._blocked.pop(level, None)
        if quick is not None:
            quick.learn(message.topic, message.queue_id)
        return placed.physical_offset + placed.size

    def _real(self, level: int, physical_offset: int) -> Message | None:
        """The message as it is to be stored; None, with a line: it can't be."""
        stored = messages.stored_at(self._reads, physical_offset)
        where = f"delay level {level}: the message at {physical_offset}"
        if stored is None:
            self._turn.note("error", f"{where} can't be read: skipped")
            return None
        topic, queue_id = stored.props.get(props.REAL_TOPIC), stored.props.get(props.REAL_QID, "")
        if topic is None or topic == HALF_TOPIC or not (queue_id.isascii() and queue_id.isdecimal()):
            self._turn.note("error", f"{where} is for {topic!r}, queue {queue_id!r}: skipped")
            return None
        message = messages.copy_of(stored)
        message.topic, message.queue_id = topic, int(queue_id)
        return message

    def _hindered(self, level: int, topic: str, physical_offset: int, why: str) -> None:
        """A message stays for now: one line, and not one for each attempt."""
        if self._blocked.get(level) != why:
            where = f"delay level {level}: the message at {physical_offset}"
            self._turn.note("warning", f"{where} for {topic} is tried again: {why}")
            self._blocked[level] = why

    def _send_away(self, level: int, offset: int, physical_offset: int, now: Millis) -> None:
        """Send one message to another master; the level goes on when it is there."""
        del self._due[level]
        message = self._real(level, physical_offset)

        def told(why: str, now: Millis) -> None:
            self._away.discard(level)
            self._due[level] = now + escape.RETRY_MS if why else now
            if why and message is not None:
                self._hindered(level, message.topic, physical_offset, why)
                return
            self._blocked.pop(level, None)
            self._confirmed[level] = offset + 1
            self._advance(level, offset + 1, now)
            self.version.next_version(now)  # the master's own is not the later one then

        if message is None:
            told("", now)
            return
        self._away.add(level)
        kept = {name: text for name, text in props.decode(message.properties).items() if name not in NOT_SENT_AWAY}
        self._escape.send(message, kept, told)

    def _advance(self, level: int, offset: int, now: Millis) -> None:
        self.offsets[level] = offset
        self.dirty = True
        self._steps += 1
        if self._steps % max(1, self._settings.current.delay_offset_update_version_step) == 0:
            self.version.next_version(now)

    def validate(self) -> None:
        reads = self._reads
        for level, offset in self.offsets.items():
            if level <= self.levels:
                end = reads.max_offset(SCHEDULE_TOPIC, level - 1)
                assert offset <= end, f"delay level {level}: offset {offset} of {end}"
                waits = max(offset, reads.min_offset(SCHEDULE_TOPIC, level - 1)) < end
                looked_at = level in self._due or level in self._away
                assert not waits or looked_at, f"delay level {level}: nobody looks at what waits"
